//! A connection that watches a key: it is told when the holders of the key are no longer those that it was told last.

use super::{Connection, Gone, Phase, Scratch};
use leases::wire::Watch;
use leases::{Answer, Key, Moment, Seconds};
use std::task::{Context, Poll, ready};

/// No client waits longer than this for a change: sending an answer shows whether the client is still there.
const MOST_SECONDS: Seconds = match Seconds::new(60) {
    Some(seconds) => seconds,
    None => Seconds::ZERO,
};

/// What a connection waits for.
#[derive(Debug)]
pub(super) struct Watching {
    key: Box<[u8]>,
    /// The tag of the state that the client saw last.
    last: Option<u64>,
    /// The client gets an answer then in any case.
    pub(super) until: Moment,
}

impl Connection {
    pub(super) fn begin_watch(&mut self, watch: &Watch<'_>) {
        let until = self.shared.now().after(watch.timeout.min(MOST_SECONDS));
        let most = self.shared.settings.max_watchers;
        let begun = self.shared.core().begin_watch(self.id, watch.key, most);
        match begun {
            Ok(()) => {
                let key = watch.key.bytes().into();
                self.phase = Phase::Watching(Box::new(Watching { key, last: watch.last, until }));
                self.shared.core().set_deadline(self.id, until);
            }
            Err(refusal) => {
                self.answer(&Answer::Refused(refusal));
                self.set_deadline();
            }
        }
    }

    pub(super) fn watch(
        &mut self,
        cx: &mut Context<'_>,
        scratch: &mut Scratch,
    ) -> Poll<Result<(), Gone>> {
        if !self.has_seen() {
            ready!(self.poll_peer(cx, scratch));
            self.shared.core().tallies.gone_while_waiting += 1;
            return Poll::Ready(Err(Gone));
        }
        self.scanned = self.input.is_empty();
        self.progressed = true;
        Poll::Ready(self.send())
    }

    /// Whether there is something to tell; if so, it is in the outbox.
    fn has_seen(&mut self) -> bool {
        let Phase::Watching(watching) = &self.phase else { return false };
        let Some(key) = Key::new(&watching.key) else { return false };
        let (now, last, until) = (self.shared.now(), watching.last, watching.until);
        let mut core = self.shared.core();
        let refusal = match core.sight(now, key) {
            Ok(Some(line)) if now < until && last == Some(line.tag) => return false,
            Ok(None) => {
                // The answer comes by itself, or the store turns out to be unavailable.
                core.set_deadline(self.id, Moment::NEVER);
                return false;
            }
            Ok(Some(line)) => {
                self.output.push(&line.text);
                // The client is told nothing that would be false after a restart.
                self.rests_on = core.noted();
                None
            }
            Err(refusal) => Some(refusal),
        };
        core.end_watch(self.id);
        core.set_deadline(self.id, now.after(self.shared.settings.read_timeout));
        drop(core);
        self.phase = Phase::Serving;
        if let Some(refusal) = refusal {
            self.answer(&Answer::Refused(refusal));
        }
        true
    }
}
