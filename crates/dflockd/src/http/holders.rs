//! The roster as JSON.

use crate::server::{Numbers, Roster, push_key};

/// The approximate length of the longest body. Further keys are left out, and the body says so.
const MOST_BYTES: usize = 512 * 1024;

/// `keys` has `shown` of the `matching` keys in use, those with the longest queues first. Each key has some of its
/// `held` holders, the longest hold first, and the first of its `waiters` waiters. Connections have the numbers of
/// `stats` and the log.
pub(super) fn body(numbers: &Numbers, roster: &Roster) -> String {
    let mut entries = String::new();
    let mut shown = 0;
    for (view, clients) in &roster.keys {
        if entries.len() >= MOST_BYTES {
            break;
        }
        if shown > 0 {
            entries.push(',');
        }
        shown += 1;
        push_key(&mut entries, view, clients);
    }
    let census = &numbers.census;
    format!(
        "{{\"version\":\"{}\",\"uptime_s\":{},\"draining\":{},\"connections\":{},\
         \"keys_in_use\":{},\"holders\":{},\"waiters\":{},\"matching\":{},\"shown\":{shown},\
         \"keys\":[{entries}]}}",
        env!("CARGO_PKG_VERSION"),
        numbers.uptime.as_secs(),
        numbers.draining,
        numbers.open_connections,
        census.locks.in_use + census.semaphores.in_use,
        census.locks.holders + census.semaphores.holders,
        census.locks.waiters + census.semaphores.waiters,
        roster.matching,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::{Client, Clients, Tallies};
    use leases::{Census, Counters, KeyView, Label, Party, Population};
    use serde_json::{Value, json};
    use std::net::IpAddr;
    use std::sync::Arc;
    use std::time::Duration;

    fn numbers() -> Numbers {
        Numbers {
            engine: Counters::default(),
            connections: Tallies::default(),
            open_connections: 3,
            watchers: 0,
            census: Census {
                locks: Population { in_use: 4, idle: 0, holders: 4, waiters: 5 },
                semaphores: Population { in_use: 1, idle: 0, holders: 2, waiters: 0 },
                lock_readers: 0,
            },
            etcd: None,
            draining: false,
            uptime: Duration::from_millis(12_900),
        }
    }

    fn party(serial: u64, since: u64, left: Option<u64>) -> Party {
        let (conn, since_micros, left_micros) = (None, since, left);
        Party { serial, conn, since_micros, left_micros, is_reader: false }
    }

    fn key(name: &[u8]) -> (KeyView, Clients) {
        let view = KeyView {
            name: name.to_vec(),
            limit: 2,
            held: 2,
            waiters: 9,
            holders: vec![party(8, 1_000_000, Some(32_500_000)), party(7, 2_000_000, Some(0))],
            waiting: vec![party(9, 400_000, None)],
        };
        let here = Some(IpAddr::from([127, 0, 0, 1]));
        let label = Label { name: "host 12 backup".into(), value: "10.0.0.7:8080".into() };
        let clients = Clients {
            holders: vec![
                Client { address: here, label: None },
                Client { address: None, label: Some(Arc::new(label)) },
            ],
            waiting: vec![Client { address: here, label: Some(Arc::default()) }],
        };
        (view, clients)
    }

    #[test]
    fn everything_is_in_it() {
        let roster = Roster { keys: vec![key(b"a\"<b>\xff")], matching: 4 };
        let value: Value = serde_json::from_str(&body(&numbers(), &roster)).unwrap();
        let want = json!({
            "version": env!("CARGO_PKG_VERSION"), "uptime_s": 12, "draining": false,
            "connections": 3, "keys_in_use": 5, "holders": 6, "waiters": 5,
            "matching": 4, "shown": 1,
            "keys": [{
                "key": "a\"<b>\u{fffd}", "limit": 2, "held": 2, "waiters": 9,
                "holders": [
                    {"connection": 7, "address": null, "name": "host 12 backup", "value": "10.0.0.7:8080",
                     "held_s": 2, "lease_left_s": 0, "connected": false},
                    {"connection": 8, "address": "127.0.0.1", "held_s": 1, "lease_left_s": 32.5,
                     "connected": false},
                ],
                "queue": [{"connection": 9, "address": "127.0.0.1", "waiting_s": 0.4}],
            }],
        });
        assert_eq!(value, want);
    }

    #[test]
    fn readers_are_marked_in_the_json() {
        let (mut view, clients) = key(b"k");
        view.limit = 1;
        view.holders.iter_mut().for_each(|holder| holder.is_reader = true);
        let roster = Roster { keys: vec![(view, clients)], matching: 1 };
        let value: Value = serde_json::from_str(&body(&numbers(), &roster)).unwrap();
        let key = &value["keys"][0];
        assert_eq!(
            (&key["holders"][0]["reader"], &key["holders"][1]["reader"]),
            (&json!(true), &json!(true))
        );
        assert_eq!(key["queue"][0]["reader"], Value::Null);
    }

    #[test]
    fn the_body_is_cut_and_says_so() {
        let keys = vec![key(&[b'<'; 256]); 1000];
        let roster = Roster { keys, matching: 1_000_000 };
        let text = body(&numbers(), &roster);
        assert!(text.len() < MOST_BYTES + 8 * 1024, "{}", text.len());
        let value: Value = serde_json::from_str(&text).unwrap();
        let shown = value["keys"].as_array().unwrap().len();
        assert!(shown > 100 && shown < 1000, "{shown}");
        assert_eq!(value["shown"], shown);
        assert_eq!(value["matching"], 1_000_000);
    }
}
