//! Handles received bytes: frames → requests → engine → replies. Receives nothing itself.

use super::room::REPLY_BYTES;
use super::{Connection, Phase};
use crate::server::access::Scope;
use crate::server::core::STATS_PIECE_BYTES;
use leases::wire::{self, Caps, Detail, Fault, MAX_NAME_BYTES, Request, Scan, StatsCursor, status};
use leases::{Answer, AutoRelease, Moment, Progress, Refusal, Verdict};
use std::sync::Arc;

impl Connection {
    /// Serves whole frames; returns the number of their bytes.
    pub(super) fn serve(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        self.scanned = false;
        loop {
            let rest = bytes.get(at..).unwrap_or_default();
            match self.phase {
                Phase::Serving if self.output.unsent().len() < REPLY_BYTES => {}
                Phase::Skipping => {
                    at += self.skip(rest);
                    if matches!(self.phase, Phase::Skipping) {
                        return at;
                    }
                    continue;
                }
                Phase::Serving
                | Phase::Waiting
                | Phase::Watching(_)
                | Phase::Reporting(_)
                | Phase::CoolingDown
                | Phase::Leaving => return at,
            }
            let caps = match self.scope {
                Some(_) => Caps::Usual,
                // With room for some blanks around the secret.
                None => Caps::BeforeAuth(self.longest_secret + 64),
            };
            match wire::scan(rest, caps) {
                Scan::Frame { lines, used } => {
                    at += used;
                    self.lines = 0;
                    self.progressed = true;
                    self.looked = false;
                    self.serve_frame(lines);
                }
                Scan::Partial { lines } => {
                    self.scanned = true;
                    if lines > self.lines {
                        self.set_deadline();
                    }
                    self.lines = lines;
                    return at;
                }
                Scan::TooLong { at: start } => {
                    at += start;
                    self.phase = Phase::Skipping;
                }
            }
        }
    }

    /// Skips the rest of a line that is too long; returns the number of skipped bytes.
    fn skip(&mut self, bytes: &[u8]) -> usize {
        match memchr::memchr(b'\n', bytes) {
            None => bytes.len(),
            Some(end) => {
                self.fail(Fault::LineTooLong);
                end + 1
            }
        }
    }

    fn serve_frame(&mut self, lines: [&[u8]; 3]) {
        let Some(scope) = &self.scope else { return self.authenticate(lines) };
        let request = match wire::parse(lines) {
            Ok(request) => request,
            Err(fault) => return self.refuse_frame(fault),
        };
        match request {
            Request::Lock(request) if !request.keys().iter().all(|key| scope.has(key.bytes())) => {
                self.say(status::ERROR_AUTH)
            }
            Request::Stats(_) if *scope != Scope::All => self.say(status::ERROR_AUTH),
            Request::Lock(request) => {
                tracing::debug!(
                    cmd = %lines[0].escape_ascii(),
                    key = %lines[1].escape_ascii(),
                    conn_id = self.serial,
                    "request"
                );
                self.ask(request);
            }
            Request::Ping | Request::Hello { .. } | Request::Stats(_)
                if !self.shared.core().store.is_available() =>
            {
                self.answer(&Answer::Refused(Refusal::Unavailable));
            }
            Request::Ping => self.say(status::OK),
            Request::Hello { hears_lost } => {
                self.shared.core().hear_lost(self.id, hears_lost);
                self.say(status::HELLO);
            }
            Request::Stats(detail) => {
                let cursor = match detail {
                    Detail::Usual => StatsCursor::default(),
                    Detail::Long => StatsCursor::with_names(),
                };
                let _ = self.report(Box::new(cursor));
            }
            Request::Name(name) => {
                let name = name.get(..MAX_NAME_BYTES).unwrap_or(name);
                let name: Arc<str> = String::from_utf8_lossy(name).into();
                tracing::debug!(peer = %self.peer, conn_id = self.serial, %name, "client named");
                self.shared.core().relabel(self.id, |label| label.name = name);
                self.say(status::OK);
            }
            Request::Value(value) => {
                let value: Arc<str> = String::from_utf8_lossy(value).into();
                self.shared.core().relabel(self.id, |label| label.value = value);
                self.say(status::OK);
            }
            Request::Watch(watch) if !scope.has(watch.key.bytes()) => self.say(status::ERROR_AUTH),
            Request::Watch(watch) => self.begin_watch(&watch),
            Request::Grace => {
                let settings = &self.shared.settings;
                let grace = match settings.auto_release {
                    AutoRelease::On => Some(settings.caps.disconnect_grace),
                    AutoRelease::Off => None,
                };
                wire::push_grace(self.output.bytes(), grace);
                self.set_deadline();
            }
            // A second `auth`, or one that this server does not require: unknown, as in the reference.
            Request::Auth(_) => self.refuse_frame(Fault::UnknownCommand),
        }
    }

    fn say(&mut self, answer: &[u8]) {
        self.output.push(answer);
        self.set_deadline();
    }

    /// Passes a request to the store; the answer comes at once or later.
    fn ask(&mut self, request: leases::Request<'_>) {
        let now = self.shared.now();
        let mut core = self.shared.core();
        match core.ask(now, self.id, request) {
            Verdict::Now(answer) => {
                self.rests_on = core.noted();
                core.set_deadline(self.id, now.after(self.shared.settings.read_timeout));
                drop(core);
                self.answer(&answer);
            }
            Verdict::Later => {
                core.set_deadline(self.id, Moment::NEVER);
                drop(core);
                self.phase = Phase::Waiting;
            }
        }
    }

    /// The first frame of a connection that must show a secret: only a valid secret is accepted.
    fn authenticate(&mut self, lines: [&[u8]; 3]) {
        let shown = match wire::parse(lines) {
            Ok(Request::Auth(shown)) => Some(shown),
            Ok(_) | Err(_) => None,
        };
        self.scope = shown.and_then(|shown| self.shared.access().scope(shown));
        if self.scope.is_none() {
            return self.refuse_auth();
        }
        self.say(status::OK);
    }

    /// Refuses a frame. The connection goes on with the next one.
    fn refuse_frame(&mut self, fault: Fault) {
        self.note(fault);
        self.say(status::ERROR);
    }

    fn note(&self, fault: Fault) {
        self.shared.core().count_fault(fault);
        let (code, msg) = (fault.code(), fault.words());
        tracing::warn!(peer = %self.peer, code, msg, "protocol error");
    }

    /// The connection cannot go on: says so and ends it.
    pub(super) fn fail(&mut self, fault: Fault) {
        if self.scope.is_none() {
            return self.refuse_auth();
        }
        self.note(fault);
        self.output.push(status::ERROR);
        self.phase = Phase::Leaving;
    }

    /// The answer is delayed, so that guessing is slow.
    pub(super) fn refuse_auth(&mut self) {
        self.shared.core().tallies.auth_failures += 1;
        tracing::warn!(peer = %self.peer, conn_id = self.serial, "auth failed");
        self.phase = Phase::CoolingDown;
        self.set_deadline();
    }

    /// Appends the next piece of a `stats` body, the first one in the same write as `ok`. A store that has to ask for
    /// its keys first does not begin a body.
    pub(super) fn report(&mut self, mut cursor: Box<StatsCursor>) -> Progress {
        let (mut piece, is_first) = (String::new(), !cursor.has_begun());
        let now = self.shared.now();
        let progress = self.shared.core().stats(now, &mut cursor, &mut piece, STATS_PIECE_BYTES);
        if is_first && cursor.has_begun() {
            self.output.push(status::OK_BODY);
        }
        self.output.push(piece.as_bytes());
        self.phase = match progress {
            Progress::More | Progress::Later => Phase::Reporting(cursor),
            Progress::Done => {
                self.output.push(b"\n");
                Phase::Serving
            }
        };
        self.set_deadline();
        progress
    }
}
