//! The metrics in Prometheus' text format.

use crate::server::Numbers;
use leases::wire::refusal_status;
use leases::{Refusal, WAIT_BOUNDS_MICROS};
use std::fmt::{Display, Write as _};

/// The content type of version 0.0.4 of the format.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The counters of HTTP itself.
#[derive(Clone, Debug, Default)]
pub(super) struct HttpNumbers {
    /// Connections now.
    pub(super) connections: usize,
    /// Connections accepted so far.
    pub(super) accepted: u64,
    /// Connections that were closed to make room.
    pub(super) pushed_out: u64,
    /// Answers by status.
    pub(super) answers: Vec<(u16, u64)>,
}

/// All metrics, in their order: kind, name, and what it says.
const TABLE: &str = "\
gauge build_info The version, as a label.
gauge uptime_seconds Seconds since the start.
gauge draining 1 after the signal to end.
gauge ready 1 until the signal to end.
gauge keys Keys in the table; an idle key has neither holders nor waiters.
gauge locks_held Holders of locks; each reader of a shared lock is one.
gauge lock_readers Holders that share a lock.
gauge lock_waiters Places in queues of locks.
gauge semaphore_holders Slots of semaphores that are held.
gauge semaphore_waiters Places in queues of semaphores.
counter grants_total Slots granted.
counter renewals_total Leases renewed by token.
counter releases_total Slots released, by cause.
counter log_lines_dropped_total Log lines dropped: queue full, or rate limit.
counter lease_expiries_total Leases that ran out.
counter wait_timeouts_total Requests that timed out without a grant.
counter refusals_total Requests refused, by status.
histogram grant_wait_seconds From request to grant, immediate ones included.
gauge connections Connections of lock clients.
gauge watchers Clients that wait for changes of keys.
counter connections_accepted_total Connections accepted.
counter connections_turned_away_total Connections closed at once because of a cap.
counter protocol_errors_total Frames refused and connections ended, by the code in the log.
counter auth_failures_total Lock clients that did not show the secret.
counter tls_failures_total TLS handshakes of lock clients that failed.
counter write_timeouts_total Connections dropped because they did not read.
counter gone_while_waiting_total Waiting connections whose peer went away.
gauge etcd_session 1 while etcd answers this server.
gauge etcd_leader 1 while this server leads; the others pass their clients on to it.
counter etcd_calls_total Calls to etcd.
counter etcd_unclear_total Calls to etcd that did not get a clear answer.
gauge etcd_no_space 1 while etcd has no space and nothing new is granted.
gauge http_connections Connections of the HTTP side.
counter http_connections_accepted_total Connections of the HTTP side accepted.
counter http_connections_pushed_out_total Connections of the HTTP side closed to make room for others.
counter http_responses_total Answers of the HTTP side, by status.
";

/// All metrics as text. One without a value is left out.
pub(super) fn text(numbers: &Numbers, http: &HttpNumbers) -> String {
    let mut text = String::new();
    for row in TABLE.lines() {
        let mut words = row.splitn(3, ' ');
        let [kind, name, help] = std::array::from_fn(|_| words.next().unwrap_or_default());
        let samples = samples(name, numbers, http);
        if samples.is_empty() {
            continue;
        }
        // Writing to a String cannot fail.
        let _ = write!(text, "# HELP dflockd_{name} {help}\n# TYPE dflockd_{name} {kind}\n");
        for sample in samples {
            let _ = writeln!(text, "dflockd_{name}{sample}");
        }
    }
    text
}

/// The samples of a metric: what follows its name, labels and a value. The values of labels are our own and need no
/// quoting.
fn samples(name: &str, numbers: &Numbers, http: &HttpNumbers) -> Vec<String> {
    let Numbers { engine, census, .. } = numbers;
    let mut samples = Vec::new();
    let mut add = |labels: &str, value: &dyn Display| samples.push(format!("{labels} {value}"));
    match name {
        "build_info" => add(concat!("{version=\"", env!("CARGO_PKG_VERSION"), "\"}"), &1),
        "keys" => {
            for (kind, state, count) in [
                ("lock", "in_use", census.locks.in_use),
                ("semaphore", "in_use", census.semaphores.in_use),
                ("lock", "idle", census.locks.idle),
                ("semaphore", "idle", census.semaphores.idle),
            ] {
                add(&format!("{{kind=\"{kind}\",state=\"{state}\"}}"), &count);
            }
        }
        "releases_total" => {
            add("{cause=\"token\"}", &engine.releases);
            add("{cause=\"disconnect\"}", &engine.disconnect_releases);
        }
        "refusals_total" => {
            for refusal in Refusal::ALL {
                let status = refusal_status(refusal);
                // Two refusals have the same word in the protocol; a label tells them apart.
                let cause = if refusal == Refusal::NoSpace { ",cause=\"space\"" } else { "" };
                add(&format!("{{status=\"{status}\"{cause}}}"), &engine.refused(refusal));
            }
        }
        "grant_wait_seconds" => {
            let bounds = WAIT_BOUNDS_MICROS.iter().map(|&bound| seconds(bound).to_string());
            let mut total = 0;
            for (bound, count) in bounds.chain(["+Inf".to_owned()]).zip(engine.waits.buckets) {
                total += count;
                add(&format!("_bucket{{le=\"{bound}\"}}"), &total);
            }
            add("_sum", &seconds(engine.waits.sum_micros));
            add("_count", &engine.waits.count);
        }
        "protocol_errors_total" => {
            for (code, count) in numbers.connections.faults.iter().enumerate().skip(3) {
                add(&format!("{{code=\"{code}\"}}"), count);
            }
        }
        "http_responses_total" => {
            for (status, count) in &http.answers {
                add(&format!("{{code=\"{status}\"}}"), count);
            }
        }
        _ => plain(name, numbers, http).iter().for_each(|value| add("", value)),
    }
    samples
}

/// The value of a metric without labels.
fn plain(name: &str, numbers: &Numbers, http: &HttpNumbers) -> Option<String> {
    let Numbers { engine, census, connections: tallies, etcd, .. } = *numbers;
    Some(match name {
        "uptime_seconds" => numbers.uptime.as_secs_f64().to_string(),
        "draining" => u8::from(numbers.draining).to_string(),
        "ready" => u8::from(!numbers.draining).to_string(),
        "locks_held" => census.locks.holders.to_string(),
        "lock_readers" => census.lock_readers.to_string(),
        "lock_waiters" => census.locks.waiters.to_string(),
        "semaphore_holders" => census.semaphores.holders.to_string(),
        "semaphore_waiters" => census.semaphores.waiters.to_string(),
        "grants_total" => engine.grants.to_string(),
        "renewals_total" => engine.renewals.to_string(),
        "log_lines_dropped_total" => crate::log::dropped().to_string(),
        "lease_expiries_total" => engine.expiries.to_string(),
        "wait_timeouts_total" => engine.timeouts.to_string(),
        "connections" => numbers.open_connections.to_string(),
        "watchers" => numbers.watchers.to_string(),
        "connections_accepted_total" => tallies.accepted.to_string(),
        "connections_turned_away_total" => tallies.turned_away.to_string(),
        "auth_failures_total" => tallies.auth_failures.to_string(),
        "tls_failures_total" => tallies.tls_failures.to_string(),
        "write_timeouts_total" => tallies.write_timeouts.to_string(),
        "gone_while_waiting_total" => tallies.gone_while_waiting.to_string(),
        "etcd_session" => u8::from(etcd?.session).to_string(),
        "etcd_leader" => u8::from(etcd?.leads).to_string(),
        "etcd_calls_total" => etcd?.calls.to_string(),
        "etcd_unclear_total" => etcd?.unclear.to_string(),
        "etcd_no_space" => u8::from(etcd?.full).to_string(),
        "http_connections" => http.connections.to_string(),
        "http_connections_accepted_total" => http.accepted.to_string(),
        "http_connections_pushed_out_total" => http.pushed_out.to_string(),
        _ => return None,
    })
}

/// Exact up to 285 years.
fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::Tallies;
    use leases::{Census, Counters, Histogram, Population};
    use leases_etcd::EtcdNumbers;
    use rstest::rstest;
    use std::time::Duration;

    fn sample() -> String {
        let mut waits = Histogram::default();
        for micros in [0, 100, 101, 70_000_000] {
            waits.record(micros);
        }
        let census = Census {
            locks: Population { in_use: 1, idle: 3, holders: 5, waiters: 7 },
            semaphores: Population { in_use: 2, idle: 4, holders: 6, waiters: 8 },
            lock_readers: 9,
        };
        let mut faults = [0; 14];
        faults[4] = 44;
        let numbers = Numbers {
            engine: Counters {
                grants: 11,
                releases: 12,
                disconnect_releases: 13,
                renewals: 14,
                expiries: 15,
                timeouts: 16,
                refusals: [21, 22, 23, 24, 25, 26, 27, 28, 29],
                waits,
            },
            connections: Tallies {
                accepted: 31,
                turned_away: 32,
                faults,
                auth_failures: 33,
                tls_failures: 37,
                write_timeouts: 34,
                gone_while_waiting: 35,
            },
            open_connections: 36,
            watchers: 37,
            census,
            etcd: Some(EtcdNumbers {
                session: true,
                leads: true,
                calls: 63,
                unclear: 64,
                full: true,
            }),
            draining: true,
            uptime: Duration::from_millis(1500),
        };
        let answers = vec![(200, 51), (404, 52)];
        text(&numbers, &HttpNumbers { connections: 53, accepted: 54, pushed_out: 55, answers })
    }

    /// `metrics_count_what_happened` shows the other numbers.
    #[rstest]
    #[case("dflockd_uptime_seconds 1.5")]
    #[case("dflockd_etcd_session 1")]
    #[case("dflockd_etcd_leader 1")]
    #[case("dflockd_etcd_calls_total 63")]
    #[case("dflockd_etcd_unclear_total 64")]
    #[case("dflockd_etcd_no_space 1")]
    #[case("dflockd_lock_readers 9")]
    #[case("dflockd_refusals_total{status=\"error_already_enqueued\"} 25")]
    #[case("dflockd_refusals_total{status=\"error_lease_expired\"} 26")]
    #[case("dflockd_refusals_total{status=\"error_draining\"} 28")]
    #[case("dflockd_refusals_total{status=\"error\",cause=\"space\"} 29")]
    #[case("dflockd_grant_wait_seconds_bucket{le=\"0.0001\"} 2")]
    #[case("dflockd_grant_wait_seconds_bucket{le=\"0.001\"} 3")]
    #[case("dflockd_grant_wait_seconds_bucket{le=\"60\"} 3")]
    #[case("dflockd_grant_wait_seconds_bucket{le=\"+Inf\"} 4")]
    #[case("dflockd_grant_wait_seconds_sum 70.000201")]
    #[case("dflockd_connections_accepted_total 31")]
    #[case("dflockd_connections_turned_away_total 32")]
    #[case("dflockd_protocol_errors_total{code=\"13\"} 0")]
    #[case("dflockd_auth_failures_total 33")]
    #[case("dflockd_write_timeouts_total 34")]
    #[case("dflockd_gone_while_waiting_total 35")]
    #[case("dflockd_http_connections_accepted_total 54")]
    #[case("dflockd_http_connections_pushed_out_total 55")]
    #[case("dflockd_http_responses_total{code=\"200\"} 51")]
    #[case("dflockd_http_responses_total{code=\"404\"} 52")]
    fn each_number_has_its_line(#[case] line: &str) {
        let text = sample();
        assert_eq!(text.lines().filter(|l| *l == line).count(), 1, "{line} in\n{text}");
    }

    #[test]
    fn each_name_is_explained_once() {
        let text = sample();
        let helps: Vec<&str> = text.lines().filter(|l| l.starts_with("# HELP ")).collect();
        let types = text.lines().filter(|l| l.starts_with("# TYPE ")).count();
        assert_eq!(helps.len(), types);
        let mut names: Vec<_> = helps.iter().map(|l| l.split(' ').nth(2).unwrap()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!((names.len(), names.len()), (helps.len(), TABLE.lines().count()));
        assert!(text.ends_with('\n'));
    }
}
