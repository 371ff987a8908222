//! What people are told while they wait: who holds the lock, or which server does not answer. And the holder in
//! words, for `stats` and for people who did not get the lock.
//!
//! A server reports the holders of all keys at once. So it is asked only if standard error is a terminal.

use super::mention;
use crate::{Client, Key, ServerAddress};
use serde_json::Value;
use std::io::{self, IsTerminal};
use std::pin::pin;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// A wait that is shorter needs no words.
const FIRST: Duration = Duration::from_millis(500);
/// How often they are said again.
const PERIOD: Duration = Duration::from_secs(60);
/// How soon a server is asked again that was too busy to say who holds a lock.
const AGAIN: Duration = Duration::from_secs(5);
/// How long a server may take to say who holds a lock.
const MOMENT: Duration = Duration::from_secs(2);

/// Waits for a lock, and names the holder of the key that is waited for at present: soon, and again every minute. If
/// no server answers then, says so.
pub(super) async fn waited_for<T>(
    wait: impl Future<Output = T>,
    key: impl Fn() -> Option<Key>,
    client: &Client,
    json: bool,
) -> T {
    if !is_read(json) {
        return wait.await;
    }
    let say = async || {
        let Some(key) = key() else { return Said::Nothing };
        let servers = client.servers_of(&key);
        match answered(ask(&key, client), &servers, client, json).await {
            Some(words) => {
                mention(&format!("waiting for {key}: {words}"), json);
                Said::Holder
            }
            None => Said::Nothing,
        }
    };
    telling(wait, say).await
}

/// Waits for an answer that needs no lock, and says once if it does not come soon.
pub(super) async fn answered<T>(
    answer: impl Future<Output = T>,
    servers: &[&ServerAddress],
    client: &Client,
    json: bool,
) -> T {
    if !is_read(json) {
        return answer.await;
    }
    let mut answer = pin!(answer);
    if let Ok(answer) = timeout(FIRST, &mut answer).await {
        return answer;
    }
    let servers: Vec<String> = servers.iter().map(ToString::to_string).collect();
    let (servers, patience_s) = (servers.join(", "), client.patience().as_secs());
    mention(&format!("no answer yet from {servers}; trying for {patience_s} s in all"), json);
    answer.await
}

/// The holder that kept us from the lock, if a person reads it.
pub(super) async fn in_the_way(key: &Key, client: &Client, json: bool) -> Option<String> {
    if is_read(json) { ask(key, client).await } else { None }
}

fn is_read(json: bool) -> bool {
    !json && io::stderr().is_terminal()
}

/// What a person was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    Holder,
    /// The server was too busy, or nobody held the lock at that moment.
    Nothing,
}

async fn telling<T>(wait: impl Future<Output = T>, say: impl AsyncFn() -> Said) -> T {
    let mut wait = pin!(wait);
    let mut pause = FIRST;
    loop {
        let turn = async {
            sleep(pause).await;
            say().await
        };
        tokio::select! {
            biased;
            outcome = &mut wait => return outcome,
            said = turn => pause = match said {
                Said::Holder => PERIOD,
                Said::Nothing => AGAIN,
            },
        }
    }
}

async fn ask(key: &Key, client: &Client) -> Option<String> {
    let answer = async { client.connect(key).await.ok()?.stats_with_names().await.ok() };
    words(&timeout(MOMENT, answer).await.ok()??, &String::from_utf8_lossy(key.as_bytes()))
}

/// Of one key in the body of `stats`.
fn words(body: &str, key: &str) -> Option<String> {
    let stats: Value = serde_json::from_str(body).ok()?;
    let find = |name: &str| {
        let rows = stats.get(name)?.as_array()?;
        rows.iter().find(|row| row.get("key").and_then(Value::as_str) == Some(key))
    };
    find("locks").map(of_lock).or_else(|| find("semaphores").map(of_semaphore))
}

/// A row of `locks`.
pub(super) fn of_lock(row: &Value) -> String {
    let owner = text(row, "owner_conn_id");
    let name = match row.get("owner").and_then(Value::as_str) {
        Some(name) => format!(" ({})", name.escape_debug()),
        None => String::new(),
    };
    let left = match row.get("lease_expires_in_s").and_then(Value::as_f64) {
        // Cut, not rounded: a lease never shows more than it has.
        Some(left) => format!("{:.1}", (left * 10.0).floor() / 10.0),
        None => "?".to_owned(),
    };
    let waiters = text(row, "waiters");
    match row.get("readers").and_then(Value::as_u64) {
        None | Some(1) => {
            format!("held by connection {owner}{name}, {left} s left, {waiters} waiting")
        }
        Some(readers) => format!(
            "shared by {readers}, the last of them connection {owner}{name}, {left} s left, {waiters} waiting"
        ),
    }
}

/// A row of `semaphores`.
pub(super) fn of_semaphore(row: &Value) -> String {
    let [limit, holders, waiters] = ["limit", "holders", "waiters"].map(|name| text(row, name));
    format!("{holders} of {limit} held, {waiters} waiting")
}

/// A member of a row, without control characters.
pub(super) fn text(row: &Value, name: &str) -> String {
    match row.get(name) {
        Some(Value::String(text)) => text.escape_debug().to_string(),
        Some(value) => value.to_string(),
        None => "?".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{AGAIN, FIRST, PERIOD, Said, telling, words};
    use rstest::rstest;
    use std::cell::Cell;
    use tokio::time::sleep;

    const STATS: &str = r#"{"locks":[
        {"key":"read","owner_conn_id":3,"readers":4,"lease_expires_in_s":9,"waiters":1},
        {"key":"other","owner_conn_id":1,"lease_expires_in_s":9,"waiters":0},
        {"key":"k","owner_conn_id":7,"owner":"eve\u001b@host[1] cp","lease_expires_in_s":32.8852,"waiters":2}],
        "semaphores":[{"key":"s","limit":3,"holders":3,"waiters":1}]}"#;

    #[rstest]
    #[case("k", Some("held by connection 7 (eve\\u{1b}@host[1] cp), 32.8 s left, 2 waiting"))]
    #[case("other", Some("held by connection 1, 9.0 s left, 0 waiting"))]
    #[case("read", Some("shared by 4, the last of them connection 3, 9.0 s left, 1 waiting"))]
    #[case("s", Some("3 of 3 held, 1 waiting"))]
    #[case("free", None)]
    fn the_holder_of_a_key_is_found(#[case] key: &str, #[case] told: Option<&str>) {
        assert_eq!(words(STATS, key).as_deref(), told);
    }

    #[rstest]
    #[case::got_at_once(FIRST / 2, 0)]
    #[case::soon(FIRST * 2, 1)]
    #[case::before_a_minute(PERIOD, 1)]
    #[case::after_a_minute(PERIOD + FIRST * 2, 2)]
    #[case::after_ten(PERIOD * 10 + FIRST * 2, 11)]
    fn the_holder_is_named_soon_and_again_every_minute(
        #[case] time: std::time::Duration,
        #[case] times: u32,
    ) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build().unwrap();
        let told = Cell::new(0);
        let say = async || {
            told.set(told.get() + 1);
            Said::Holder
        };
        runtime.block_on(async { telling(sleep(time), say).await });
        assert_eq!(told.get(), times);
    }

    /// A server that cannot say it at first is asked again soon.
    #[test]
    fn a_busy_server_is_asked_again_soon() {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build().unwrap();
        let asked = Cell::new(0);
        let say = async || {
            asked.set(asked.get() + 1);
            if asked.get() < 3 { Said::Nothing } else { Said::Holder }
        };
        runtime.block_on(async { telling(sleep(AGAIN * 3), say).await });
        assert_eq!(asked.get(), 3);
    }
}
