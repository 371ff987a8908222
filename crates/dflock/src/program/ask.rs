//! The commands that ask the server once and print the answer, `stats` also in words for people; and `dflock
//! watch`, which prints the holder of a key as lines of JSON, whenever it changes.

use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::pin::pin;
use std::time::{Duration, Instant, SystemTime};

use jiff::Timestamp;
use pidlockfile::span;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tokio::time::timeout;
use wrapcmd::Form;

use super::args::{self, Acquire, HeldArgs, Keys, Renew, Watch};
use super::outcome::{Failure, answer, complain, json_line, print, print_all};
use super::reach;
use super::sys::{Endings, asked_to_end, output_closed};
use super::wanted::{KeysWanted, Outcome, answered};
use crate::terms::seconds;
use crate::{
    Client, ClientError, Grant, Holder, Key, Leases, Loss, Refusal, ServerAddress, Stats, Token,
};

/// After the loss of one of several locks: how long to wait for the release of the others.
const OTHERS_LIMIT: Duration = Duration::from_secs(1);

pub(super) async fn acquire(acquire: &Acquire, client: &Client, form: Form) -> Result<u8, Failure> {
    let Acquire { keys, terms, hold: is_held } = acquire;
    let wanted = KeysWanted::of(keys, terms, terms.limit, client, form)?;
    if *is_held {
        return match wanted.taken(wanted.acquire()).await? {
            Outcome::Taken(leases) => hold(leases, keys, form).await,
            Outcome::Ended(code) => Ok(code),
        };
    }
    let grants = match wanted.taken(wanted.acquire_detached()).await? {
        Outcome::Taken(grants) => grants,
        Outcome::Ended(code) => return Ok(code),
    };
    let granted: Vec<_> = wanted.keys().zip(&grants).collect();
    let shown = show_grants(keys, &granted, form);
    if shown.is_err() {
        // A token that nobody has read would keep the lock for a whole lease.
        let mut released = Ok(());
        for (key, grant) in granted {
            released = released.and(client.lock(key.as_bytes())?.release(&grant.token).await);
        }
        released?;
    }
    shown.map(|()| 0)
}

/// In the order in which the keys were typed.
fn show_grants(keys: &Keys, granted: &[(&Key, &Grant)], form: Form) -> Result<(), Failure> {
    let of = |name: &OsString| {
        let name = reach::bytes(name).ok();
        granted.iter().find(|(key, _)| Some(key.as_bytes()) == name)
    };
    let granted: Vec<_> = keys.names().filter_map(of).collect();
    let text = match form {
        Form::Quiet => return Ok(()),
        Form::Text => {
            granted.iter().map(|(_, grant)| format!("{}\n", grant.token.as_str())).collect()
        }
        Form::Json => {
            let mut rows: Vec<Value> =
                granted.into_iter().map(|(key, grant)| row(key, grant)).collect();
            let value = if rows.len() == 1 { rows.remove(0) } else { Value::from(rows) };
            format!("{value}\n")
        }
    };
    print_all(text.as_bytes())
}

fn row(key: &Key, grant: &Grant) -> Value {
    let mut row = json!({
        "key": String::from_utf8_lossy(key.as_bytes()),
        "token": grant.token.as_str(),
        // As text: the number is larger than what JavaScript and jq count exactly.
        "fence": grant.fence.map(|fence| fence.to_string()),
        "ttl_s": grant.ttl.as_secs(),
    });
    if let (Some(slot), Some(row)) = (grant.slot, row.as_object_mut()) {
        row.insert("slot".to_owned(), slot.into());
    }
    row
}

/// Until standard input ends, somebody asks for an end, or a lease is lost.
async fn hold(leases: Leases, keys: &Keys, form: Form) -> Result<u8, Failure> {
    let mut endings = Endings::catch().map_err(|error| Failure::System("signals", error))?;
    let is_one = leases.as_slice().len() == 1;
    let granted: Vec<_> = leases.as_slice().iter().map(|it| (it.key(), &it.grant)).collect();
    if let Err(failure) = show_grants(keys, &granted, form) {
        leases.release().await?;
        return Err(failure);
    }
    let (key, loss) = tokio::select! {
        () = end_of_input() => return Ok(leases.release().await.map(|()| 0)?),
        _ = endings.next() => return Ok(leases.release().await.map(|()| 0)?),
        lost = leases.lost() => lost,
    };
    let failure = Failure::Lost(Some(key).filter(|_| !is_one), loss);
    complain(&failure, form);
    // The other locks. A program that waits for the end of this process must not wait for a server that is away.
    if loss == Loss::NotHeld {
        let _ = timeout(OTHERS_LIMIT, leases.release()).await;
    }
    Ok(failure.exit_code())
}

async fn end_of_input() {
    let mut input = tokio::io::stdin();
    let mut buffer = [0; 1024];
    while matches!(input.read(&mut buffer).await, Ok(1..)) {}
}

pub(super) async fn release(held: &HeldArgs, client: &Client, form: Form) -> Result<(), Failure> {
    let (key, token) = named(held)?;
    let claim = client.lock(key.as_bytes())?;
    answered(claim.release(&token), &client.servers_of(&key), client, form).await?;
    answer(form, String::new, || json!({ "released": true }))
}

pub(super) async fn renew(renew: &Renew, client: &Client, form: Form) -> Result<(), Failure> {
    let (key, token) = named(&renew.held)?;
    let mut claim = client.lock(key.as_bytes())?;
    if let Some(ttl_s) = renew.ttl {
        claim = claim.ttl(seconds(ttl_s))?;
    }
    let servers = client.servers_of(&key);
    let ttl = answered(claim.renew(&token), &servers, client, form).await?;
    let ttl_s = ttl.as_secs();
    answer(form, || format!("{ttl_s}\n"), || json!({ "ttl_s": ttl_s }))
}

fn named(held: &HeldArgs) -> Result<(Key, Token), Failure> {
    let key = reach::key(&held.key)?;
    let token = Token::new(held.token.as_str()).map_err(ClientError::InvalidArgument)?;
    Ok((key, token))
}

/// `error` to a request without a token: the server does not know the word (`ping` is younger than the protocol).
fn of_server(server: &ServerAddress, error: ClientError, request: &str) -> Failure {
    let is_unknown = matches!(error, ClientError::Refused(Refusal::Error));
    let words = || format!("the server does not know this request: `{request}`");
    let error = if is_unknown { ClientError::Protocol(words()) } else { error };
    Failure::Asked(server.clone(), error)
}

/// Prints what each server has answered, as text or as JSON. Returns the exit code: that of the last failure. In JSON
/// the failures are among the rows; a single one takes the place of the answer.
fn show(answers: &[Result<(String, Value), Failure>], form: Form) -> Result<u8, Failure> {
    let failures = || answers.iter().filter_map(|answer| answer.as_ref().err());
    let code = failures().next_back().map_or(0, Failure::exit_code);
    if let ([Err(failure)], Form::Json) = (answers, form) {
        complain(failure, form);
        return Ok(code);
    }
    let text = || answers.iter().flatten().map(|(text, _)| text.as_str()).collect();
    let row = |answer: &Result<(String, Value), Failure>| match answer {
        Ok((_, row)) => row.clone(),
        Err(failure) => {
            let mut row = failure.to_json();
            if let (Failure::Asked(server, _), Some(row)) = (failure, row.as_object_mut()) {
                row.insert("server".to_owned(), server.to_string().into());
            }
            row
        }
    };
    answer(form, text, || answers.iter().map(row).collect())?;
    if form != Form::Json {
        for failure in failures() {
            complain(failure, form);
        }
    }
    Ok(code)
}

pub(super) async fn ping(client: &Client, form: Form) -> Result<u8, Failure> {
    let mut answers = Vec::new();
    for server in client.servers() {
        let began = Instant::now();
        let pong = async { client.connect_to(server).await?.ping().await };
        let pong = answered(pong, &[server], client, form).await;
        let ms = (began.elapsed().as_secs_f64() * 1e6).round() / 1e3;
        let answer = || {
            let row = json!({ "server": server.to_string(), "ms": ms });
            (format!("{server}: ok, {ms:.1} ms\n"), row)
        };
        answers.push(pong.map(|()| answer()).map_err(|error| of_server(server, error, "ping")));
    }
    show(&answers, form)
}

/// One key: its holders and its line.
async fn key_stats(key: &OsStr, client: &Client, form: Form) -> Result<(), Failure> {
    let key = reach::key(key)?;
    let body = async { client.connect(&key).await?.stats(Stats::Of(&key)).await };
    let body = answered(body, &client.servers_of(&key), client, form).await?;
    let stats: Value = serde_json::from_str(&body).unwrap_or_default();
    if stats.get("key").is_none() {
        let words = "the server does not know the request `stats` of one key";
        return Err(ClientError::Protocol(words.to_owned()).into());
    }
    match form {
        Form::Text => print(&of_key(&stats)),
        Form::Json => print(&json_line(&stats)),
        Form::Quiet => Ok(()),
    }
}

/// If the servers are one service, the first that answers knows everything.
pub(super) async fn stats(
    wanted: &args::StatsArgs,
    client: &Client,
    form: Form,
) -> Result<u8, Failure> {
    if let Some(key) = &wanted.key {
        return key_stats(key, client, form).await.map(|()| 0);
    }
    let (is_one_service, servers) = (client.is_one_service(), client.servers());
    let mut answers = Vec::new();
    for server in servers {
        let of = if wanted.long { Stats::KeysAndNames } else { Stats::Keys };
        let body = async { client.connect_to(server).await?.stats(of).await };
        let body = match answered(body, &[server], client, form).await {
            Ok(body) => body,
            Err(error) => {
                answers.push(Err(of_server(server, error, "stats")));
                continue;
            }
        };
        if form == Form::Json && (is_one_service || servers.len() == 1) {
            return print(&format!("{body}\n")).map(|()| 0);
        }
        let stats: Value = serde_json::from_str(&body).unwrap_or(Value::Null);
        let text = table(server, &stats);
        let answer = Ok((text, json!({ "server": server.to_string(), "stats": stats })));
        if is_one_service {
            return show(&[answer], form);
        }
        answers.push(answer);
    }
    show(&answers, form)
}

/// The figures of one server for people. Keys are shown without control characters.
fn table(server: &ServerAddress, stats: &Value) -> String {
    if stats.is_null() {
        return format!("{server}: no JSON\n");
    }
    let rows = |name: &str| stats.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
    let connections = member(stats, "connections");
    let plural = if connections == "1" { "" } else { "s" };
    let mut lines = format!("{server}: {connections} connection{plural}\n");
    for row in rows("locks") {
        lines += &format!("  lock       {}  {}\n", member(&row, "key"), of_lock(&row));
    }
    for row in rows("semaphores") {
        let (key, words) = (member(&row, "key"), of_semaphore(&row));
        lines += &format!("  semaphore  {key}  {words}\n");
    }
    let idle = rows("idle_locks").len() + rows("idle_semaphores").len();
    let plural = if idle == 1 { "" } else { "s" };
    lines += &format!("  {idle} idle key{plural}\n");
    if stats.get("truncated").is_some() {
        lines += "  more keys than one answer shows\n";
    }
    lines
}

/// A row of `locks`.
fn of_lock(row: &Value) -> String {
    let owner = member(row, "owner_conn_id");
    let name = match row.get("owner").and_then(Value::as_str) {
        Some(name) => format!(" ({})", name.escape_debug()),
        None => String::new(),
    };
    let left = span_of(row, "lease_expires_in_s").unwrap_or_else(|| "?".to_owned());
    let waiters = member(row, "waiters");
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
fn of_semaphore(row: &Value) -> String {
    let [limit, holders, waiters] = ["limit", "holders", "waiters"].map(|name| member(row, name));
    format!("{holders} of {limit} held, {waiters} waiting")
}

/// One key, with a line for each holder and each waiter.
fn of_key(stats: &Value) -> String {
    let [key, held, limit, waiters] =
        ["key", "held", "limit", "waiters"].map(|name| member(stats, name));
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
    let connection = member(row, "connection");
    let age = span_of(row, since).unwrap_or_else(|| "?".to_owned());
    let name = match row.get("name") {
        Some(_) => format!("{} (connection {connection})", member(row, "name")),
        None => format!("connection {connection}"),
    };
    let left =
        span_of(row, "lease_left_s").map_or_else(String::new, |left| format!(", {left} left"));
    let slot = row.get("slot").and_then(Value::as_u64);
    let slot = slot.map_or_else(String::new, |slot| format!("slot {slot}: "));
    format!("{slot}{name} for {age}{left}")
}

/// A length of time. Cut, not rounded: a lease never shows more than it has.
fn span_of(row: &Value, name: &str) -> Option<String> {
    let seconds = row.get(name).and_then(Value::as_f64)?;
    Duration::try_from_secs_f64(seconds).ok().map(span)
}

/// A member of a row, without control characters.
fn member(row: &Value, name: &str) -> String {
    match row.get(name) {
        Some(Value::String(text)) => text.escape_debug().to_string(),
        Some(value) => value.to_string(),
        None => "?".to_owned(),
    }
}

pub(super) async fn watch(wanted: &Watch, client: &Client, form: Form) -> Result<u8, Failure> {
    let key = reach::key(&wanted.key)?;
    let servers = client.servers_of(&key);
    let mut watch = client.watch(key.as_bytes())?;
    let mut is_first = true;
    let shown = wanted.key.to_string_lossy();
    let mut ending = pin!(asked_to_end(false));
    loop {
        // Only the first answer comes at once.
        let next = async {
            let next = watch.next();
            if is_first { answered(next, &servers, client, form).await } else { next.await }
        };
        let holder = tokio::select! {
            holder = next => holder?,
            () = output_closed() => return Ok(0),
            code = &mut ending => return code,
        };
        is_first = false;
        let line = line(&shown, holder.as_ref(), SystemTime::now());
        match print_all(format!("{line}\n").as_bytes()) {
            // Nobody reads what is written.
            Err(Failure::System(_, error)) if error.kind() == ErrorKind::BrokenPipe => {
                return Ok(0);
            }
            outcome => outcome?,
        }
        if wanted.once {
            return Ok(0);
        }
    }
}

/// The fence is text, because the number is larger than what JavaScript and jq count exactly.
fn line(key: &str, holder: Option<&Holder>, now: SystemTime) -> String {
    let since = holder.and_then(|holder| now.checked_sub(holder.age)).and_then(date);
    wrapcmd::json(&json!({
        "key": key,
        "holder": holder.and_then(|holder| holder.name.as_deref()),
        "value": holder.and_then(|holder| holder.value.as_deref()),
        "fence": holder.map(|holder| holder.fence.to_string()),
        "since": since,
        "holders": holder.map_or(0, |holder| holder.holders),
    }))
}

/// RFC 3339, in UTC, to the second.
fn date(time: SystemTime) -> Option<String> {
    Timestamp::try_from(time).ok().map(|time| format!("{time:.0}"))
}

#[cfg(test)]
mod tests {
    use super::{date, line};
    use crate::Holder;
    use rstest::rstest;
    use std::time::{Duration, UNIX_EPOCH};

    #[rstest]
    #[case(0, Some("1970-01-01T00:00:00Z"))]
    #[case(951_782_400, Some("2000-02-29T00:00:00Z"))]
    #[case(300_000_000_000, None)]
    fn times_are_written_as_rfc_3339(#[case] unix: u64, #[case] want: Option<&str>) {
        assert_eq!(date(UNIX_EPOCH + Duration::from_secs(unix)).as_deref(), want);
    }

    #[test]
    fn a_line_has_the_same_members_always() {
        let now = UNIX_EPOCH + Duration::from_secs(100);
        let holder = Holder {
            fence: u64::MAX,
            age: Duration::from_secs(40),
            holders: 1,
            name: Some("al".to_owned()),
            value: None,
        };
        let held = r#"{"fence":"18446744073709551615","holder":"al","holders":1,"key":"k","since":"1970-01-01T00:01:00Z","value":null}"#;
        assert_eq!(line("k", Some(&holder), now), held);
        let free =
            r#"{"fence":null,"holder":null,"holders":0,"key":"k","since":null,"value":null}"#;
        assert_eq!(line("k", None, now), free);
        let moves_the_terminal = Holder { name: Some("\u{9b}2J".to_owned()), ..holder };
        assert!(line("k", Some(&moves_the_terminal), now).contains(r#""holder":"\u009b2J""#));
    }
}
