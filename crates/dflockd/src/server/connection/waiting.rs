//! A connection whose request waits in the store: its answer, or the end of its peer.

use super::{Connection, Gone, Phase, READ_AHEAD_BYTES, READ_BYTES, Scratch};
use std::task::{Context, Poll, ready};

impl Connection {
    pub(super) fn wait(
        &mut self,
        cx: &mut Context<'_>,
        scratch: &mut Scratch,
    ) -> Poll<Result<(), Gone>> {
        let now = self.shared.now();
        let answer = {
            let mut core = self.shared.core();
            let answer = core.take_answer(self.id, now);
            if answer.is_some() {
                self.rests_on = core.noted();
                core.set_deadline(self.id, now.after(self.shared.settings.read_timeout));
            }
            answer
        };
        let Some(answer) = answer else {
            ready!(self.poll_peer(cx, scratch));
            self.shared.core().tallies.gone_while_waiting += 1;
            return Poll::Ready(Err(Gone));
        };
        self.phase = Phase::Serving;
        self.scanned = self.input.is_empty();
        self.progressed = true;
        self.answer(&answer);
        Poll::Ready(self.send())
    }

    /// Ready when the peer of a waiting connection is gone, even if it sent more requests before it left.
    pub(super) fn poll_peer(&mut self, cx: &mut Context<'_>, scratch: &mut Scratch) -> Poll<()> {
        while !self.ended && !self.end_ahead {
            let room = READ_AHEAD_BYTES.saturating_sub(self.input.len());
            if room == 0 {
                match ready!(self.transport.poll_end(cx)) {
                    Ok(()) => self.end_ahead = true,
                    Err(_) => return Poll::Ready(()),
                }
                continue;
            }
            let buffer = scratch.input.get_mut(..room.min(READ_BYTES)).unwrap_or_default();
            match ready!(self.transport.poll_receive(cx, buffer)) {
                Ok(0) => self.ended = true,
                Ok(count) => {
                    self.input.extend_from_slice(scratch.input.get(..count).unwrap_or_default());
                }
                Err(_) => return Poll::Ready(()),
            }
        }
        if !std::mem::replace(&mut self.probed, true) {
            self.transport.probe();
        }
        self.transport.poll_gone(cx)
    }
}
