//! What a user reads during a wait: the holder of the lock, or the server that does not answer. And the holder in
//! words, for `stats` and for a user who did not get the lock.

use super::outcome::{NAMELESS, mention};
use crate::{Client, Holder, Key, ServerAddress};
use pidlockfile::span;
use serde_json::Value;
use std::cell::Cell;
use std::io::{self, IsTerminal};
use std::pin::pin;
use std::time::Duration;
use tokio::time::{sleep, timeout};
use wrapcmd::Form;

/// A wait that is shorter needs no words.
const FIRST: Duration = Duration::from_millis(500);
/// The same where nobody sits at a terminal.
const LATE: Duration = Duration::from_secs(1);
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
    form: Form,
) -> T {
    if form != Form::Text {
        return wait.await;
    }
    // A job of cron that gets its lock after a short wait succeeds, and prints nothing.
    let is_silent = Cell::new(!io::stderr().is_terminal());
    let is_silence_reported = Cell::new(false);
    let say = async || {
        let Some(key) = key() else { return AGAIN };
        let servers = client.servers_of(&key);
        let holder = ask(&key, client);
        let holder = answered_since(holder, &servers, client, form, &is_silence_reported).await;
        // The server was too busy, or nobody held the lock at that moment.
        let Some(holder) = holder else { return AGAIN };
        is_silence_reported.set(false);
        if !is_silent.replace(false) {
            let holder = words(&holder).unwrap_or_else(|| NAMELESS.to_owned());
            mention(&format!("waiting for {key}: {holder}"), form);
        }
        PERIOD
    };
    telling(wait, say).await
}

/// Waits for an answer that needs no lock, and says once if it does not come soon.
pub(super) async fn answered<T>(
    answer: impl Future<Output = T>,
    servers: &[&ServerAddress],
    client: &Client,
    form: Form,
) -> T {
    answered_since(answer, servers, client, form, &Cell::new(false)).await
}

/// The same for one of several questions: says it once for all, until `is_reported` is false again.
async fn answered_since<T>(
    answer: impl Future<Output = T>,
    servers: &[&ServerAddress],
    client: &Client,
    form: Form,
    is_reported: &Cell<bool>,
) -> T {
    if form != Form::Text {
        return answer.await;
    }
    let limit = if io::stderr().is_terminal() { FIRST } else { LATE };
    if client.patience() <= limit {
        return answer.await;
    }
    let mut answer = pin!(answer);
    if let Ok(answer) = timeout(limit, &mut answer).await {
        return answer;
    }
    if is_reported.replace(true) {
        return answer.await;
    }
    let servers: Vec<String> = servers.iter().map(ToString::to_string).collect();
    let (servers, patience) = (servers.join(", "), span(client.patience()));
    mention(&format!("no answer yet from {servers}; trying for {patience} in all"), form);
    answer.await
}

/// The holder that kept us from the lock, if the server knows its name.
pub(super) async fn in_the_way(key: &Key, client: &Client) -> Option<String> {
    words(&ask(key, client).await?)
}

/// Waits, and says something after the first pause, and again after each pause that `say` gives.
async fn telling<T>(wait: impl Future<Output = T>, say: impl AsyncFn() -> Duration) -> T {
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
            next = turn => pause = next,
        }
    }
}

async fn ask(key: &Key, client: &Client) -> Option<Holder> {
    let mut watch = client.watch(key.as_bytes()).ok()?;
    timeout(MOMENT, watch.next()).await.ok()?.ok()?
}

/// Nothing about a holder without a name. The name comes last: it may look like a command line.
fn words(holder: &Holder) -> Option<String> {
    let name = holder.name.as_deref().filter(|name| !name.is_empty())?.escape_debug();
    let age = span(holder.age);
    Some(match holder.holders {
        0 | 1 => format!("held for {age} by {name}"),
        several => format!("held by {several} clients, for {age} by the last of them: {name}"),
    })
}

/// A row of `locks`.
pub(super) fn of_lock(row: &Value) -> String {
    let owner = text(row, "owner_conn_id");
    let name = match row.get("owner").and_then(Value::as_str) {
        Some(name) => format!(" ({})", name.escape_debug()),
        None => String::new(),
    };
    let left = seconds(row, "lease_expires_in_s").unwrap_or_else(|| "?".to_owned());
    let waiters = text(row, "waiters");
    match row.get("readers").and_then(Value::as_u64) {
        None | Some(1) => {
            format!("held by connection {owner}{name}, {left} left, {waiters} waiting")
        }
        Some(readers) => format!(
            "shared by {readers}, the last of them connection {owner}{name}, {left} left, {waiters} waiting"
        ),
    }
}

/// A row of `semaphores`.
pub(super) fn of_semaphore(row: &Value) -> String {
    let [limit, holders, waiters] = ["limit", "holders", "waiters"].map(|name| text(row, name));
    format!("{holders} of {limit} held, {waiters} waiting")
}

/// One key, with a line for each holder and each waiter.
pub(super) fn of_key(stats: &Value) -> String {
    let [key, held, limit, waiters] =
        ["key", "held", "limit", "waiters"].map(|name| text(stats, name));
    let state = match (&*held, &*limit) {
        ("0", _) => "free".to_owned(),
        (_, "1") => "held".to_owned(),
        _ => format!("{held} of {limit} held"),
    };
    let mut lines = format!("{key}: {state}, {waiters} waiting\n");
    for (list, word, since) in [("holders", "holder", "held_s"), ("queue", "waiting", "waiting_s")]
    {
        let rows = stats.get(list).and_then(Value::as_array);
        for row in rows.into_iter().flatten() {
            let is_reader = row.get("reader") == Some(&Value::Bool(true));
            let shared = if is_reader { " shared" } else { "" };
            lines += &format!("  {word:<7}{shared}  {}\n", of_party(row, since));
        }
    }
    lines
}

fn of_party(row: &Value, since: &str) -> String {
    let connection = text(row, "connection");
    let age = seconds(row, since).unwrap_or_else(|| "?".to_owned());
    let name = match row.get("name") {
        Some(_) => format!("{} (connection {connection})", text(row, "name")),
        None => format!("connection {connection}"),
    };
    let left =
        seconds(row, "lease_left_s").map_or_else(String::new, |left| format!(", {left} left"));
    let slot = row.get("slot").and_then(Value::as_u64);
    let slot = slot.map_or_else(String::new, |slot| format!("slot {slot}: "));
    format!("{slot}{name} for {age}{left}")
}

/// A length of time. Cut, not rounded: a lease never shows more than it has.
fn seconds(row: &Value, name: &str) -> Option<String> {
    let seconds = row.get(name).and_then(Value::as_f64)?;
    Duration::try_from_secs_f64(seconds).ok().map(span)
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
    use super::{AGAIN, FIRST, PERIOD, telling, words};
    use crate::Holder;
    use rstest::rstest;
    use std::cell::Cell;
    use std::time::Duration;
    use tokio::time::sleep;

    #[rstest]
    #[case::alone(Some("eve\u{1b}@host[1] cp"), 1, Some("held for 1m01s by eve\\u{1b}@host[1] cp"))]
    #[case::shared(Some("al"), 4, Some("held by 4 clients, for 1m01s by the last of them: al"))]
    #[case::without_a_name(None, 1, None)]
    #[case::without_a_word(Some(""), 1, None)]
    fn the_holder_in_words(
        #[case] name: Option<&str>,
        #[case] holders: u32,
        #[case] told: Option<&str>,
    ) {
        let (name, age) = (name.map(str::to_owned), Duration::from_millis(61_900));
        let holder = Holder { fence: 1, age, holders, name, value: None };
        assert_eq!(words(&holder).as_deref(), told);
    }

    #[rstest]
    #[case::got_at_once(FIRST / 2, 0)]
    #[case::soon(FIRST * 2, 1)]
    #[case::before_a_minute(PERIOD, 1)]
    #[case::after_a_minute(PERIOD + FIRST * 2, 2)]
    #[case::after_ten(PERIOD * 10 + FIRST * 2, 11)]
    fn the_holder_is_named_soon_and_again_every_minute(#[case] time: Duration, #[case] times: u32) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build().unwrap();
        let told = Cell::new(0);
        let say = async || {
            told.set(told.get() + 1);
            PERIOD
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
            if asked.get() < 3 { AGAIN } else { PERIOD }
        };
        runtime.block_on(async { telling(sleep(AGAIN * 3), say).await });
        assert_eq!(asked.get(), 3);
    }
}
