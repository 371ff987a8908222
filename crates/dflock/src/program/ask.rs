//! The commands that ask the server once and print the answer.

use super::args::{Acquire, Held, Renew, Stats, Terms};
use super::outcome::Failure;
use super::sys::Endings;
use super::{answer, complain, holder, mention, print, print_all, reach};
use crate::{Claim, Client, ClientError, Grant, Key, Lease, Refusal, ServerAddress, Token};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::time::{Duration, Instant};
use tokio::io::AsyncReadExt;
use wrapcmd::Form;

/// A number of the command line.
pub(super) fn seconds(count: u32) -> Duration {
    Duration::from_secs(count.into())
}

pub(super) fn claim(key: &OsStr, terms: &Terms, client: &Client) -> Result<Claim, Failure> {
    let key = reach::bytes(key)?;
    let claim = match terms.limit {
        None if terms.shared => client.shared(key)?,
        None => client.lock(key)?,
        Some(limit) => client.semaphore(key, limit)?,
    };
    Ok(match terms.ttl {
        None => claim,
        Some(ttl_s) => claim.ttl(seconds(ttl_s))?,
    })
}

/// Says that the line was left by force.
pub(super) fn left_the_line(error: &ClientError, form: Form) {
    mention(&format!("{error}; waiting for the server to join the line again"), form);
}

/// Busy or timed out: not getting it without and after waiting.
pub(super) fn not_granted(terms: &Terms, holder: Option<String>) -> Failure {
    if terms.timeout == Some(0) { Failure::Busy(holder) } else { Failure::TimedOut(holder) }
}

pub(super) async fn acquire(acquire: &Acquire, client: &Client, form: Form) -> Result<(), Failure> {
    let Acquire { key, terms, hold: is_held } = acquire;
    let claim = claim(key, terms, client)?;
    let (timeout, left) = (terms.timeout.map(seconds), |error: &_| left_the_line(error, form));
    let key = || Some(claim.key().clone());
    let refused = async || {
        let holder = holder::in_the_way(claim.key(), client).await;
        Err(not_granted(terms, holder))
    };
    if *is_held {
        let wait = claim.acquire_persistently(timeout, left);
        let lease = holder::waited_for(wait, key, client, form).await?;
        let Some(lease) = lease else { return refused().await };
        let endings = Endings::catch().map_err(|error| Failure::System("signals", error))?;
        let grant = Grant { token: lease.token().clone(), fence: lease.fence(), ttl: lease.ttl() };
        if let Err(failure) = show_grant(claim.key(), &grant, form) {
            lease.release().await?;
            return Err(failure);
        }
        return hold(lease, endings).await;
    }
    let wait = claim.acquire_detached(timeout, left);
    let grant = holder::waited_for(wait, key, client, form).await?;
    let Some(grant) = grant else { return refused().await };
    let shown = show_grant(claim.key(), &grant, form);
    if shown.is_err() {
        // A token that nobody has read would keep the lock for a whole lease.
        claim.release(&grant.token).await?;
    }
    shown
}

fn show_grant(key: &Key, grant: &Grant, form: Form) -> Result<(), Failure> {
    let text = match form {
        Form::Quiet => return Ok(()),
        Form::Json => json!({
            "key": String::from_utf8_lossy(key.as_bytes()),
            "token": grant.token.as_str(),
            // As text: the number is larger than what JavaScript and jq count exactly.
            "fence": grant.fence.map(|fence| fence.to_string()),
            "ttl_s": grant.ttl.as_secs(),
        })
        .to_string(),
        Form::Text => grant.token.as_str().to_owned(),
    };
    print_all(format!("{text}\n").as_bytes())
}

/// Until standard input ends, somebody asks for an end, or the lease is lost.
async fn hold(mut lease: Lease, mut endings: Endings) -> Result<(), Failure> {
    tokio::select! {
        () = end_of_input() => {}
        () = endings.next() => {}
        loss = lease.lost() => return Err(Failure::Lost(None, loss)),
    }
    Ok(lease.release().await?)
}

async fn end_of_input() {
    let mut input = tokio::io::stdin();
    let mut buffer = [0; 1024];
    while matches!(input.read(&mut buffer).await, Ok(1..)) {}
}

pub(super) async fn release(held: &Held, client: &Client, form: Form) -> Result<(), Failure> {
    let (key, token) = named(held)?;
    let claim = client.lock(key.as_bytes())?;
    holder::answered(claim.release(&token), &client.servers_of(&key), client, form).await?;
    answer(form, String::new, || json!({ "released": true }))
}

pub(super) async fn renew(renew: &Renew, client: &Client, form: Form) -> Result<(), Failure> {
    let (key, token) = named(&renew.held)?;
    let mut claim = client.lock(key.as_bytes())?;
    if let Some(ttl_s) = renew.ttl {
        claim = claim.ttl(seconds(ttl_s))?;
    }
    let servers = client.servers_of(&key);
    let ttl = holder::answered(claim.renew(&token), &servers, client, form).await?;
    let ttl_s = ttl.as_secs();
    answer(form, || format!("{ttl_s}\n"), || json!({ "ttl_s": ttl_s }))
}

fn named(held: &Held) -> Result<(Key, Token), Failure> {
    let key = Key::new(reach::bytes(&held.key)?).map_err(ClientError::Term)?;
    let token = Token::new(held.token.as_str()).map_err(ClientError::Term)?;
    Ok((key, token))
}

/// `error` to a request without a token: the server does not know the word (`ping` is younger than the protocol).
fn unknown_word(error: ClientError, request: &str) -> ClientError {
    if matches!(error, ClientError::Refused(Refusal::Error)) {
        let words = format!("the server does not know this request: `{request}`");
        return ClientError::Strange(words);
    }
    error
}

/// What each of the servers answered.
struct Answers<T>(Vec<(ServerAddress, Result<T, Failure>)>);

impl<T> Answers<T> {
    fn add(&mut self, server: &ServerAddress, answer: Result<T, ClientError>, request: &str) {
        let failed = |error| Failure::Asked(server.clone(), unknown_word(error, request));
        self.0.push((server.clone(), answer.map_err(failed)));
    }

    /// Prints all that was answered, and tells the exit code: that of the last failure. In JSON the failures are among
    /// the rows; a single one takes the place of the answer.
    fn show(
        self,
        form: Form,
        text: impl Fn(&ServerAddress, &T) -> String,
        row: impl Fn(&ServerAddress, &T) -> Value,
    ) -> Result<u8, Failure> {
        let failures = || self.0.iter().filter_map(|(_, answer)| answer.as_ref().err());
        let code = failures().last().map_or(0, Failure::exit_code);
        let mut rows = Vec::new();
        let mut lines = String::new();
        for (server, answer) in &self.0 {
            match answer {
                Ok(answer) => {
                    lines += &text(server, answer);
                    rows.push(row(server, answer));
                }
                Err(failure) if form == Form::Json => rows.push(json!({
                    "server": server.to_string(),
                    "error": failure.word(),
                    "message": failure.to_string(),
                })),
                Err(_) => {}
            }
        }
        if let ([(_, Err(_))], Form::Json) = (self.0.as_slice(), form) {
            failures().for_each(|failure| complain(failure, form));
            return Ok(code);
        }
        answer(form, || lines, || Value::from(rows))?;
        if form != Form::Json {
            failures().for_each(|failure| complain(failure, form));
        }
        Ok(code)
    }
}

pub(super) async fn ping(client: &Client, form: Form) -> Result<u8, Failure> {
    let mut answers = Answers(Vec::new());
    for server in client.servers() {
        let began = Instant::now();
        let pong = async { client.connect_to(server).await?.ping().await };
        let pong = holder::answered(pong, &[server], client, form).await;
        answers.add(server, pong.map(|()| began.elapsed().as_secs_f64() * 1e3), "ping");
    }
    let text = |server: &ServerAddress, ms: &f64| format!("{server}: ok, {ms:.1} ms\n");
    let row = |server: &ServerAddress, ms: &f64| json!({ "server": server.to_string(), "ms": ms });
    answers.show(form, text, row)
}

/// One key: its holders and its line.
async fn key_stats(key: &OsStr, client: &Client, form: Form) -> Result<(), Failure> {
    let key = Key::new(reach::bytes(key)?).map_err(ClientError::Term)?;
    let body = async { client.connect(&key).await?.key_stats(&key).await };
    let body = holder::answered(body, &client.servers_of(&key), client, form).await?;
    let stats: Value = serde_json::from_str(&body).unwrap_or_default();
    if stats.get("key").is_none() {
        let words = "the server does not know the request `stats` of one key";
        return Err(ClientError::Strange(words.to_owned()).into());
    }
    match form {
        Form::Text => print(&holder::of_key(&stats)),
        Form::Json => print(&format!("{body}\n")),
        Form::Quiet => Ok(()),
    }
}

/// Of servers that are one service the first that answers knows everything.
pub(super) async fn stats(wanted: &Stats, client: &Client, form: Form) -> Result<u8, Failure> {
    if let Some(key) = &wanted.key {
        return key_stats(key, client, form).await.map(|()| 0);
    }
    let is_one_service = client.is_one_service();
    let mut answers = Answers(Vec::new());
    for server in client.servers() {
        let body = async {
            let mut connection = client.connect_to(server).await?;
            if wanted.long { connection.stats_with_names().await } else { connection.stats().await }
        };
        let body = holder::answered(body, &[server], client, form).await;
        answers.add(server, body, "stats");
        if is_one_service && answers.0.last().is_some_and(|(_, answer)| answer.is_ok()) {
            answers.0.retain(|(_, answer)| answer.is_ok());
            break;
        }
    }
    if let ([(_, Ok(body))], Form::Json) = (answers.0.as_slice(), form) {
        if client.servers().len() == 1 || is_one_service {
            return print(&format!("{body}\n")).map(|()| 0);
        }
    }
    let row = |server: &ServerAddress, body: &String| {
        let body: Value = serde_json::from_str(body).unwrap_or(Value::Null);
        json!({ "server": server.to_string(), "stats": body })
    };
    answers.show(form, |server, body| table(&server.to_string(), body), row)
}

/// The figures of one server for people. Keys are shown without control characters.
fn table(server: &str, body: &str) -> String {
    let Ok(stats) = serde_json::from_str::<Value>(body) else {
        return format!("{server}: no JSON\n");
    };
    let rows = |name: &str| stats.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
    let connections = holder::text(&stats, "connections");
    let plural = if connections == "1" { "" } else { "s" };
    let mut lines = format!("{server}: {connections} connection{plural}\n");
    for row in rows("locks") {
        lines +=
            &format!("  lock       {}  {}\n", holder::text(&row, "key"), holder::of_lock(&row));
    }
    for row in rows("semaphores") {
        let (key, words) = (holder::text(&row, "key"), holder::of_semaphore(&row));
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
