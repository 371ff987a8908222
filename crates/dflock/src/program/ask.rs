//! The commands that ask the server once and print the answer.

use super::args::{Acquire, Held, Renew, Stats, Terms};
use super::outcome::Failure;
use super::sys::Endings;
use super::{complain, holder, mention, print, print_all, reach};
use crate::{Claim, Client, ClientError, Grant, Key, Lease, Refusal, ServerAddress, Token};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::time::{Duration, Instant};
use tokio::io::AsyncReadExt;

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
pub(super) fn left_the_line(error: &ClientError, json: bool) {
    mention(&format!("{error}; waiting for the server to join the line again"), json);
}

/// Busy or timed out: not getting it without and after waiting.
pub(super) fn not_granted(terms: &Terms, holder: Option<String>) -> Failure {
    if terms.timeout == Some(0) { Failure::Busy(holder) } else { Failure::TimedOut(holder) }
}

pub(super) async fn acquire(acquire: &Acquire, client: &Client, json: bool) -> Result<(), Failure> {
    let Acquire { key, terms, hold: is_held } = acquire;
    let claim = claim(key, terms, client)?;
    let (timeout, left) = (terms.timeout.map(seconds), |error: &_| left_the_line(error, json));
    let key = || Some(claim.key().clone());
    let refused = async || {
        let holder = holder::in_the_way(claim.key(), client).await;
        Err(not_granted(terms, holder))
    };
    if *is_held {
        let wait = claim.acquire_persistently(timeout, left);
        let lease = holder::waited_for(wait, key, client, json).await?;
        let Some(lease) = lease else { return refused().await };
        let endings = Endings::catch().map_err(|error| Failure::System("signals", error))?;
        let grant = Grant { token: lease.token().clone(), fence: lease.fence(), ttl: lease.ttl() };
        if let Err(failure) = show_grant(claim.key(), &grant, json) {
            lease.release().await?;
            return Err(failure);
        }
        return hold(lease, endings).await;
    }
    let wait = claim.acquire_detached(timeout, left);
    let grant = holder::waited_for(wait, key, client, json).await?;
    let Some(grant) = grant else { return refused().await };
    let shown = show_grant(claim.key(), &grant, json);
    if shown.is_err() {
        // A token that nobody has read would keep the lock for a whole lease.
        claim.release(&grant.token).await?;
    }
    shown
}

fn show_grant(key: &Key, grant: &Grant, json: bool) -> Result<(), Failure> {
    let text = if json {
        json!({
            "key": String::from_utf8_lossy(key.as_bytes()),
            "token": grant.token.as_str(),
            // As text: the number is larger than what JavaScript and jq count exactly.
            "fence": grant.fence.map(|fence| fence.to_string()),
            "ttl_s": grant.ttl.as_secs(),
        })
        .to_string()
    } else {
        grant.token.as_str().to_owned()
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

pub(super) async fn release(held: &Held, client: &Client, json: bool) -> Result<(), Failure> {
    let (key, token) = named(held)?;
    let claim = client.lock(key.as_bytes())?;
    holder::answered(claim.release(&token), &client.servers_of(&key), client, json).await?;
    if json { print("{\"released\":true}\n") } else { Ok(()) }
}

pub(super) async fn renew(renew: &Renew, client: &Client, json: bool) -> Result<(), Failure> {
    let (key, token) = named(&renew.held)?;
    let mut claim = client.lock(key.as_bytes())?;
    if let Some(ttl_s) = renew.ttl {
        claim = claim.ttl(seconds(ttl_s))?;
    }
    let servers = client.servers_of(&key);
    let ttl = holder::answered(claim.renew(&token), &servers, client, json).await?;
    let ttl_s = ttl.as_secs();
    let text = if json { json!({ "ttl_s": ttl_s }).to_string() } else { ttl_s.to_string() };
    print(&format!("{text}\n"))
}

fn named(held: &Held) -> Result<(Key, Token), Failure> {
    let key = Key::new(reach::bytes(&held.key)?).map_err(ClientError::Term)?;
    let token = Token::new(held.token.as_str()).map_err(ClientError::Term)?;
    Ok((key, token))
}

/// `error` to a request without a token: the server does not know the word (`ping` is younger than
/// the protocol).
fn unknown_word(error: ClientError) -> ClientError {
    if matches!(error, ClientError::Refused(Refusal::Error)) {
        return ClientError::Strange("the server does not know this request".to_owned());
    }
    error
}

/// What the servers that answered said, and what was wrong with the last of the others, whose
/// predecessors have been complained of.
struct Answers<T> {
    rows: Vec<(String, T)>,
    failure: Option<Failure>,
}

impl<T> Answers<T> {
    fn new() -> Self {
        Self { rows: Vec::new(), failure: None }
    }

    fn add(&mut self, server: &ServerAddress, answer: Result<T, ClientError>, json: bool) {
        match answer {
            Ok(answer) => self.rows.push((server.to_string(), answer)),
            Err(error) => {
                let failure = Failure::Asked(server.clone(), unknown_word(error));
                if let Some(earlier) = self.failure.replace(failure) {
                    complain(&earlier, json);
                }
            }
        }
    }

    fn show(self, text: &str) -> Result<(), Failure> {
        if !self.rows.is_empty() {
            print(text)?;
        }
        self.failure.map_or(Ok(()), Err)
    }
}

pub(super) async fn ping(client: &Client, json: bool) -> Result<(), Failure> {
    let mut answers = Answers::new();
    for server in client.servers() {
        let began = Instant::now();
        let pong = async { client.connect_to(server).await?.ping().await };
        let pong = holder::answered(pong, &[server], client, json).await;
        let pong = pong.map(|()| began.elapsed().as_secs_f64() * 1e3);
        answers.add(server, pong, json);
    }
    let text = if json {
        let rows = answers.rows.iter().map(|(server, ms)| json!({ "server": server, "ms": ms }));
        format!("{}\n", Value::from_iter(rows))
    } else {
        answers.rows.iter().map(|(server, ms)| format!("{server}: ok, {ms:.1} ms\n")).collect()
    };
    answers.show(&text)
}

/// One key: its holders and its line.
async fn key_stats(key: &OsStr, client: &Client, json: bool) -> Result<(), Failure> {
    let key = Key::new(reach::bytes(key)?).map_err(ClientError::Term)?;
    let body = async { client.connect(&key).await?.key_stats(&key).await };
    let body = holder::answered(body, &client.servers_of(&key), client, json).await?;
    let stats: Value = serde_json::from_str(&body).unwrap_or_default();
    if stats.get("key").is_none() {
        let words = "the server does not know the request `stats` of one key";
        return Err(ClientError::Strange(words.to_owned()).into());
    }
    if json { print(&format!("{body}\n")) } else { print(&holder::of_key(&stats)) }
}

/// Of servers that are one service the first that answers knows everything.
pub(super) async fn stats(wanted: &Stats, client: &Client, json: bool) -> Result<(), Failure> {
    if let Some(key) = &wanted.key {
        return key_stats(key, client, json).await;
    }
    let is_one_service = client.is_one_service();
    let mut answers = Answers::new();
    for server in client.servers() {
        let body = async {
            let mut connection = client.connect_to(server).await?;
            if wanted.long { connection.stats_with_names().await } else { connection.stats().await }
        };
        let body = holder::answered(body, &[server], client, json).await;
        answers.add(server, body, json);
        if is_one_service && !answers.rows.is_empty() {
            answers.failure = None;
            break;
        }
    }
    let is_alone = client.servers().len() == 1 || is_one_service;
    let text = match (&*answers.rows, json) {
        ([(_, body)], true) if is_alone => format!("{body}\n"),
        (several, true) => {
            let rows = several.iter().map(|(server, body)| {
                let body: Value = serde_json::from_str(body).unwrap_or(Value::Null);
                json!({ "server": server, "stats": body })
            });
            format!("{}\n", Value::from_iter(rows))
        }
        (several, false) => several.iter().map(|(server, body)| table(server, body)).collect(),
    };
    answers.show(&text)
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
