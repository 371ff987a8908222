//! Handles received bytes: frames → requests → engine → answers. Waits for nothing.

use super::{Connection, End, LONGEST_WATCH, REPLY_BYTES};
use crate::server::access::Scope;
use crate::server::core::{STATS_PIECE_BYTES, view};
use crate::server::key_json::{Clients, push_key};
#[cfg(feature = "etcd")]
use crate::server::link::COMMAND;
use leases::journal::Failed;
use leases::wire::{self, Caps, Fault, MAX_NAME_BYTES, Request, Scan, StatsCursor, Watch, status};
use leases::{Answer, AutoRelease, Key, KeyView, Moment, Progress, Refusal, Seconds, Verdict};
use std::sync::Arc;

/// The most holders, and the most waiters, that `stats` shows of one key.
const MOST_PARTIES: usize = 1000;

/// What a connection does next.
pub(super) enum Next {
    /// Receives more bytes, if there is no whole frame.
    Receive,
    /// Sends the answers that were collected.
    Send,
    /// Waits for the answer of the engine.
    Answer,
    /// Waits for a change of a key.
    Watch { key: Box<[u8]>, last: Option<u64>, until: Moment },
    /// Sends a `stats` body.
    Report(StatsCursor),
    /// Throws the rest of a line away.
    SkipLine,
    /// Ends.
    End(End),
}

/// What is asked for a client whose server is shutting down; `None` for a new hold. What is granted already may still
/// be fetched.
const fn of_draining(request: leases::Request<'_>) -> Option<leases::Request<'_>> {
    match request {
        leases::Request::Acquire { .. }
        | leases::Request::AcquireAll { .. }
        | leases::Request::Enqueue { .. } => None,
        leases::Request::Wait { key, .. } => {
            Some(leases::Request::Wait { key, timeout: Seconds::ZERO })
        }
        leases::Request::Release { .. } | leases::Request::Renew { .. } => Some(request),
    }
}

impl Connection {
    /// Serves whole frames until one of them needs more than an answer.
    pub(super) fn serve_input(&mut self) -> Next {
        let mut input = std::mem::take(&mut self.input);
        let mut at = 0;
        let next = loop {
            if self.output.len() >= REPLY_BYTES {
                break Next::Send;
            }
            let caps = match self.scope {
                Some(_) => Caps::Usual,
                // With room for some blanks around the secret.
                None => Caps::BeforeAuth(self.longest_secret + 64),
            };
            match wire::scan(input.get(at..).unwrap_or_default(), caps) {
                Scan::Frame { lines, used } => {
                    at += used;
                    self.lines = 0;
                    if let Some(next) = self.serve_frame(lines) {
                        break next;
                    }
                }
                Scan::Partial { lines } => {
                    if lines > self.lines {
                        self.restart_reading(self.shared.now());
                    }
                    self.lines = lines;
                    break Next::Receive;
                }
                Scan::TooLong { at: start } => {
                    at += start;
                    break Next::SkipLine;
                }
            }
        };
        input.drain(..at);
        self.input = input;
        next
    }

    /// Serves one frame; `None` if it is answered.
    fn serve_frame(&mut self, lines: [&[u8]; 3]) -> Option<Next> {
        // A standby that knows the secret of this leader. Any other peer gets the usual answer.
        #[cfg(feature = "etcd")]
        if lines[0] == COMMAND {
            if let Some(shown) = self.shared.standby().greet(&self.transport, lines[1]) {
                return Some(Next::End(End::Link(shown)));
            }
        }
        let Some(scope) = &self.scope else { return self.authenticate(lines) };
        let request = match wire::parse(lines) {
            Ok(request) => request,
            Err(fault) => return self.refuse_frame(fault),
        };
        match request {
            Request::Lock(request) if !request.keys().iter().all(|key| scope.has(key.bytes())) => {
                self.say(status::ERROR_AUTH)
            }
            Request::Stats { .. } if *scope != Scope::All => self.say(status::ERROR_AUTH),
            Request::Lock(request) => {
                tracing::debug!(
                    cmd = %lines[0].escape_ascii(),
                    key = %lines[1].escape_ascii(),
                    conn_id = self.serial,
                    "request"
                );
                return self.ask(request);
            }
            Request::Ping
            | Request::Hello { .. }
            | Request::Stats { .. }
            | Request::KeyStats(_)
                if !self.shared.core().is_available() =>
            {
                return Some(Next::End(self.send_away()));
            }
            Request::Ping => self.say(status::OK),
            Request::Hello { hears_lost, leaves } => {
                self.leaves = leaves;
                self.shared.core().connections.hear_lost(self.id, hears_lost);
                self.say(status::HELLO);
            }
            Request::Stats { has_names } => {
                return Some(Next::Report(StatsCursor::new(has_names)));
            }
            Request::KeyStats(key) if !scope.has(key.bytes()) => self.say(status::ERROR_AUTH),
            Request::KeyStats(key) => self.push_key_stats(key),
            Request::Name(name) => {
                relabel(self, name);
                self.say(status::OK);
            }
            Request::Value(value) => {
                let value: Arc<str> = String::from_utf8_lossy(value).into();
                self.shared.core().relabel(self.id, |label| label.value = value);
                self.say(status::OK);
            }
            Request::Watch(watch) if !scope.has(watch.key.bytes()) => self.say(status::ERROR_AUTH),
            Request::Watch(watch) => return self.begin_watch(&watch),
            Request::Grace => {
                let settings = &self.shared.settings;
                let grace = match settings.auto_release {
                    AutoRelease::On => Some(settings.caps.disconnect_grace),
                    AutoRelease::Off => None,
                };
                wire::push_grace(&mut self.output, grace);
            }
            // A second `auth`, or one that this server does not require: unknown, as in the reference.
            Request::Auth(_) => return self.refuse_frame(Fault::UnknownCommand),
        }
        None
    }

    fn say(&mut self, answer: &[u8]) {
        self.output.extend_from_slice(answer);
        self.restart_reading(self.shared.now());
    }

    /// Passes a request to the engine; the answer comes at once or later.
    fn ask(&mut self, request: leases::Request<'_>) -> Option<Next> {
        let now = self.shared.now();
        let is_draining = self.transport.is_draining();
        let Some(request) = (if is_draining { of_draining(request) } else { Some(request) }) else {
            self.say(status::ERROR_DRAINING);
            return None;
        };
        let mut core = self.shared.core();
        match core.ask(now, self.id, request) {
            Ok(Verdict::Now(answer)) => {
                let has_ended = is_draining && matches!(answer, Answer::TimedOut);
                let answer = if has_ended { Answer::Refused(Refusal::Draining) } else { answer };
                self.rests_on = core.recording.mark();
                drop(core);
                self.restart_reading(now);
                wire::push_answer(&mut self.output, &answer);
                None
            }
            Ok(Verdict::Later) => Some(Next::Answer),
            Err(Failed) => {
                drop(core);
                Some(Next::End(self.send_away()))
            }
        }
    }

    fn begin_watch(&mut self, watch: &Watch<'_>) -> Option<Next> {
        let now = self.shared.now();
        let most = self.shared.settings.max_watchers;
        let begun = self.shared.core().begin_watch(self.id, watch.key, most);
        match begun {
            Ok(()) => Some(Next::Watch {
                key: watch.key.bytes().into(),
                last: watch.last,
                until: now.after(watch.timeout.min(LONGEST_WATCH)),
            }),
            Err(refusal) => {
                self.restart_reading(now);
                wire::push_answer(&mut self.output, &Answer::Refused(refusal));
                None
            }
        }
    }

    /// The first frame of a connection that must show a secret: only a valid secret is accepted.
    fn authenticate(&mut self, lines: [&[u8]; 3]) -> Option<Next> {
        let shown = match wire::parse(lines) {
            Ok(Request::Auth(shown)) => Some(shown),
            Ok(_) | Err(_) => None,
        };
        self.scope = shown.and_then(|shown| self.shared.access().scope(shown));
        if self.scope.is_none() {
            return Some(Next::End(End::Refused));
        }
        self.say(status::OK);
        None
    }

    /// Refuses a frame. The connection goes on with the next one.
    fn refuse_frame(&mut self, fault: Fault) -> Option<Next> {
        self.note_fault(fault);
        self.say(status::ERROR);
        None
    }

    /// Counts and logs a fault of the peer. One that leaves in the middle of a frame is nothing to worry about.
    pub(super) fn note_fault(&self, fault: Fault) {
        self.shared.core().tallies.count_fault(fault);
        let (code, msg) = (fault.code(), fault.words());
        if fault == Fault::Disconnected {
            tracing::debug!(peer = %self.peer, code, "client disconnected");
        } else {
            tracing::warn!(peer = %self.peer, code, msg, "protocol error");
        }
    }

    /// Appends the reply to `stats` for one key; a key that nobody holds or waits for is shown so.
    fn push_key_stats(&mut self, key: Key<'_>) {
        let found = view(&self.shared.core(), self.shared.now(), key, MOST_PARTIES);
        let (view, clients) = found.unwrap_or_else(|| {
            let (name, limit) = (key.bytes().to_vec(), 1);
            let (holders, waiting) = (Vec::new(), Vec::new());
            let free = KeyView { name, limit, held: 0, waiters: 0, holders, waiting };
            (free, Clients::default())
        });
        let mut body = String::new();
        push_key(&mut body, &view, &clients);
        self.rests_on = self.shared.core().recording.mark();
        self.output.extend_from_slice(status::OK_BODY);
        self.output.extend_from_slice(body.as_bytes());
        self.say(b"\n");
    }

    /// Appends the next piece of a `stats` body.
    pub(super) fn push_stats(&mut self, cursor: &mut StatsCursor) -> Progress {
        let (mut piece, is_first) = (String::new(), !cursor.has_begun());
        let now = self.shared.now();
        let mut core = self.shared.core();
        let progress = core.stats(now, cursor, &mut piece, STATS_PIECE_BYTES);
        self.rests_on = core.recording.mark();
        drop(core);
        if is_first && cursor.has_begun() {
            self.output.extend_from_slice(status::OK_BODY);
        }
        self.output.extend_from_slice(piece.as_bytes());
        if progress == Progress::Done {
            self.output.push(b'\n');
        }
        progress
    }
}

fn relabel(connection: &Connection, name: &[u8]) {
    let name = name.get(..MAX_NAME_BYTES).unwrap_or(name);
    let name: Arc<str> = String::from_utf8_lossy(name).into();
    tracing::debug!(peer = %connection.peer, conn_id = connection.serial, %name, "client named");
    connection.shared.core().relabel(connection.id, |label| label.name = name);
}
