//! Handles received bytes: frames → commands → engine → answers.

use super::{Connection, End, REPLY_BYTES};
use crate::server::access::Scope;
use crate::server::core::PARTIES_PER_TURN;
#[cfg(feature = "etcd")]
use crate::server::link::COMMAND;
use leases::journal::Failed;
use leases::wire::{
    self, Command, Fault, LineCaps, MAX_NAME_BYTES, Scan, StatsCursor, Watch, status,
};
use leases::{Answer, AutoRelease, Key, Label, Refusal, Request, Seconds, Verdict};
use std::borrow::Cow;
use std::sync::Arc;

/// What follows the whole frames.
pub(super) enum Rest {
    /// Nothing, or a part of a frame.
    Partial,
    /// A line that is too long.
    TooLong,
}

/// What a frame asks for that may take long.
enum Later<'a> {
    /// The answer of the engine.
    Answer,
    /// `stats` of all keys.
    Keys(StatsCursor),
    /// `stats` of one key.
    Key(Key<'a>),
    /// A change of a key.
    Sight(Watch<'a>),
}

/// The answer to a client whose server is shutting down: not that the time is over, but that the client must ask
/// another server.
pub(in crate::server) fn answer_of_draining(answer: Answer) -> Answer {
    if answer == Answer::TimedOut { Answer::Refused(Refusal::Draining) } else { answer }
}

/// The request that the engine gets for a client whose server is shutting down. It does not wait. `None` stands for a
/// request for a new hold, which is refused; what is granted already may still be fetched.
pub(in crate::server) const fn of_draining(request: Request<'_>) -> Option<Request<'_>> {
    match request {
        Request::Acquire { .. } | Request::AcquireAll { .. } | Request::Enqueue { .. } => None,
        Request::Wait { key, .. } => Some(Request::Wait { key, timeout: Seconds::ZERO }),
        Request::Release { .. } | Request::Renew { .. } => Some(request),
    }
}

/// What is kept of the name that a client gives itself.
pub(in crate::server) fn kept_name(name: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(name.get(..MAX_NAME_BYTES).unwrap_or(name))
}

impl Connection {
    /// Serves all whole frames. Returns the number of their bytes, and what follows them.
    pub(super) async fn serve_frames(&mut self, input: &[u8]) -> Result<(usize, Rest), End> {
        let mut at = 0;
        loop {
            if self.output.len() >= REPLY_BYTES {
                Box::pin(self.send()).await?;
            }
            let caps = match self.scope {
                Some(_) => LineCaps::Usual,
                // With room for some blanks around the secret.
                None => LineCaps::BeforeAuth(self.shared.access().longest() + 64),
            };
            match wire::scan(input.get(at..).unwrap_or_default(), caps) {
                Scan::Frame { lines, used } => {
                    at += used;
                    self.lines = 0;
                    match self.serve_frame(lines)? {
                        None => {}
                        Some(Later::Answer) => Box::pin(self.wait_for_answer()).await?,
                        Some(Later::Keys(cursor)) => Box::pin(self.report_keys(cursor)).await?,
                        Some(Later::Key(key)) => Box::pin(self.report_key(key)).await?,
                        Some(Later::Sight(watch)) => Box::pin(self.watch(watch)).await?,
                    }
                }
                Scan::Partial { lines } => {
                    if lines > self.lines {
                        self.restart_reading(self.shared.now());
                    }
                    self.lines = lines;
                    return Ok((at, Rest::Partial));
                }
                Scan::TooLong { at: start } => return Ok((at + start, Rest::TooLong)),
            }
        }
    }

    /// Serves one frame, up to what may take long.
    fn serve_frame<'a>(&mut self, lines: [&'a [u8]; 3]) -> Result<Option<Later<'a>>, End> {
        // A standby that knows the secret of this leader. Any other peer gets the usual answer.
        #[cfg(feature = "etcd")]
        if lines[0] == COMMAND {
            if let Some(shown) = self.shared.cluster.greet(&self.transport, lines[1]) {
                return Err(End::Link(shown));
            }
        }
        let Some(scope) = &self.scope else { return self.authenticate(lines).map(|()| None) };
        let request = match wire::parse(lines) {
            Ok(request) => request,
            Err(fault) => {
                self.refuse_frame(fault);
                return Ok(None);
            }
        };
        match request {
            Command::Lock(request) if !scope.has_all(request.keys()) => {
                self.say(status::ERROR_AUTH)
            }
            Command::Stats { .. } if *scope != Scope::All => self.say(status::ERROR_AUTH),
            Command::Lock(request) => {
                tracing::debug!(
                    cmd = %lines[0].escape_ascii(),
                    key = %lines[1].escape_ascii(),
                    conn_id = self.serial,
                    "request"
                );
                return self.ask(request);
            }
            Command::Ping
            | Command::Hello { .. }
            | Command::Stats { .. }
            | Command::KeyStats(_)
                if !self.shared.core().is_available() =>
            {
                return Err(self.send_away());
            }
            Command::Ping => self.say(status::OK),
            Command::Hello { hears_lost, leaves, asks_slots } => {
                (self.leaves, self.has_slots) = (leaves, asks_slots);
                self.shared.core().connections.hear_lost(self.id, hears_lost);
                self.say(if asks_slots { status::HELLO_SLOTS } else { status::HELLO });
            }
            Command::Stats { has_names } => {
                return Ok(Some(Later::Keys(StatsCursor::new(has_names))));
            }
            Command::KeyStats(key) if !scope.has(key.bytes()) => self.say(status::ERROR_AUTH),
            Command::KeyStats(key) => return Ok(Some(Later::Key(key))),
            Command::Name(name) => self.relabel(&kept_name(name), |label| &mut label.name),
            Command::Value(value) => {
                self.relabel(&String::from_utf8_lossy(value), |label| &mut label.value)
            }
            Command::Watch(watch) if !scope.has(watch.key.bytes()) => self.say(status::ERROR_AUTH),
            Command::Watch(watch) => return Ok(Some(Later::Sight(watch))),
            Command::Grace => {
                let settings = &self.shared.settings;
                let grace = match settings.auto_release {
                    AutoRelease::On => Some(settings.caps.disconnect_grace),
                    AutoRelease::Off => None,
                };
                wire::push_grace(&mut self.output, grace);
            }
            // A second `auth`, or one that this server does not require: unknown, as in the reference.
            Command::Auth(_) => self.refuse_frame(Fault::UnknownCommand),
        }
        Ok(None)
    }

    fn say(&mut self, answer: &[u8]) {
        self.output.extend_from_slice(answer);
        self.restart_reading(self.shared.now());
    }

    /// Passes a request to the engine; the answer comes at once or later.
    fn ask(&mut self, request: Request<'_>) -> Result<Option<Later<'static>>, End> {
        let now = self.shared.now();
        let is_draining = self.transport.is_draining();
        let Some(request) = (if is_draining { of_draining(request) } else { Some(request) }) else {
            self.say(status::ERROR_DRAINING);
            return Ok(None);
        };
        let verdict = {
            let mut core = self.shared.core();
            let verdict = core.ask(now, self.id, request);
            if let Ok(Verdict::Now(_)) = verdict {
                self.rests_on = core.recording.mark();
            }
            verdict
        };
        match verdict {
            Ok(Verdict::Now(answer)) => {
                let answer = if is_draining { answer_of_draining(answer) } else { answer };
                self.restart_reading(now);
                self.push(&answer);
                Ok(None)
            }
            Ok(Verdict::Later) => Ok(Some(Later::Answer)),
            Err(Failed) => Err(self.send_away()),
        }
    }

    /// The first frame of a connection that must show a secret: only a valid secret is accepted.
    fn authenticate(&mut self, lines: [&[u8]; 3]) -> Result<(), End> {
        let shown = match wire::parse(lines) {
            Ok(Command::Auth(shown)) => Some(shown),
            Ok(_) | Err(_) => None,
        };
        self.scope = shown.and_then(|shown| self.shared.access().scope(shown));
        if self.scope.is_none() {
            return Err(End::Refused);
        }
        self.say(status::OK);
        Ok(())
    }

    /// Refuses a frame. The connection goes on with the next one.
    fn refuse_frame(&mut self, fault: Fault) {
        self.note_fault(fault);
        self.say(status::ERROR);
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

    /// Answers `stats`.
    async fn report_keys(&mut self, mut cursor: StatsCursor) -> Result<(), End> {
        self.report(|shared, out| shared.stats_piece(&mut cursor, out)).await
    }

    /// Answers `stats` for one key; a key that nobody holds or waits for is shown so.
    async fn report_key(&mut self, key: Key<'_>) -> Result<(), End> {
        let mut report = None;
        self.report(|shared, out| {
            let report = report.get_or_insert_with(|| shared.whole_key_report(key));
            shared.key_piece(report, &mut { PARTIES_PER_TURN }, out)
        })
        .await
    }

    /// Changes a part of the label of the connection.
    fn relabel(&mut self, text: &str, part: fn(&mut Label) -> &mut Arc<str>) {
        tracing::debug!(peer = %self.peer, conn_id = self.serial, %text, "client labelled");
        self.shared.core().relabel(self.id, |label| *part(label) = text.into());
        self.say(status::OK);
    }
}
