//! One client: bytes in, requests to the engine, replies out, with deadlines.
//!
//! A hand-written future instead of an async function, because its size counts with ten thousand idle
//! connections: it has no read buffer while no request is incomplete, and works in memory that the thread
//! lends it. Its output buffer is always its own. It decides nothing about locks.

mod frames;
mod room;
mod waiting;
mod watching;

use super::access::Scope;
use super::core::Shared;
use super::state::Saving;
use super::tls;
use super::transport::Transport;
use leases::wire::{self, Fault, StatsCursor};
use leases::{Answer, AutoRelease, ConnId, Moment, Progress, Refusal, Seconds};
use room::{Outbox, Room};
use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use watching::Watching;

const READ_BYTES: usize = 16 * 1024;
/// The most bytes that are read ahead while a request waits, to notice that the peer has closed the connection.
const READ_AHEAD_BYTES: usize = 4 * 1024;
/// Turns of the loop before other connections get theirs.
const ROUNDS: usize = 4;

struct Scratch {
    input: Box<[u8]>,
    room: Room,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch {
        input: vec![0; READ_BYTES].into_boxed_slice(),
        room: Room::new(),
    });
}

/// The peer at the other end, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    Tcp(SocketAddr),
    Unix,
}

impl fmt::Display for Peer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(out),
            Self::Unix => out.write_str("unix"),
        }
    }
}

#[derive(Debug)]
enum Phase {
    /// Frames are read and served.
    Serving,
    /// The rest of a line that is too long is skipped.
    Skipping,
    /// A request waits in the engine.
    Waiting,
    /// A key is watched.
    Watching(Box<Watching>),
    /// A `stats` body is being sent.
    Reporting(Box<StatsCursor>),
    /// A wrong secret was shown; the answer is delayed.
    CoolingDown,
    /// The holds and waits of the connection are being removed.
    Leaving,
}

/// See the module.
pub(super) struct Connection {
    shared: Arc<Shared>,
    transport: Transport,
    id: ConnId,
    serial: u64,
    peer: Peer,
    phase: Phase,
    /// Bytes that were received and not served yet.
    input: Vec<u8>,
    /// Bytes that the kernel has not taken yet.
    output: Outbox,
    /// The number of whole lines of the unfinished frame at the start of `input`.
    lines: u8,
    /// `input` was examined and contains no whole frame.
    scanned: bool,
    /// The keys it may ask about. `None` until it has shown a secret, if the server requires one.
    scope: Option<Scope>,
    /// The length in bytes of the longest valid secret.
    longest_secret: usize,
    /// The peer sends no more.
    ended: bool,
    /// The peer sends no more, but earlier bytes are still in the kernel.
    end_ahead: bool,
    /// A reply is being sent, and the write deadline applies.
    sending: bool,
    registered: bool,
    /// In this turn a frame was served or a reply sent, so the deadline is a new one.
    progressed: bool,
    probed: bool,
    /// The kernel itself was asked for more bytes since the client's last bytes came.
    looked: bool,
    /// The number of changes of holds that must be saved before `output` may be sent; 0 if it may be sent now.
    rests_on: u64,
    /// What becomes of its holds when the connection ends.
    auto: AutoRelease,
    left: bool,
}

/// The connection cannot be used any more.
struct Gone;

impl Connection {
    pub(super) fn new(
        shared: Arc<Shared>,
        transport: Transport,
        (id, serial): (ConnId, u64),
        peer: Peer,
    ) -> Self {
        let access = shared.access();
        let scope = access.is_open().then_some(Scope::All);
        let longest_secret = access.longest();
        let auto = shared.settings.auto_release;
        Self {
            shared,
            transport,
            id,
            serial,
            peer,
            phase: Phase::Serving,
            input: Vec::new(),
            output: Outbox::default(),
            lines: 0,
            scanned: true,
            scope,
            longest_secret,
            ended: false,
            end_ahead: false,
            sending: false,
            registered: false,
            progressed: false,
            probed: false,
            looked: false,
            rests_on: 0,
            auto,
            left: false,
        }
    }

    /// Works until there is nothing to do but wait; ready when the connection is over.
    fn run(&mut self, cx: &mut Context<'_>, scratch: &mut Scratch) -> Poll<()> {
        self.progressed = false;
        for _ in 0..ROUNDS {
            if self.shared.is_kicked() {
                // A server that comes again must find what its clients still hold.
                if self.shared.core().has_record() {
                    self.auto = AutoRelease::Off;
                }
                return Poll::Ready(());
            }
            match self.step(cx, scratch) {
                Poll::Ready(Ok(())) => {
                    if self.is_over() {
                        return Poll::Ready(());
                    }
                }
                Poll::Ready(Err(Gone)) => return Poll::Ready(()),
                Poll::Pending if self.progressed => return Poll::Pending,
                Poll::Pending => {
                    if !self.shared.core().is_late(self.id, self.shared.now()) {
                        return Poll::Pending;
                    }
                    // After a pause of this process, the timer may fire before bytes that arrived during the pause
                    // have been noticed.
                    if !std::mem::replace(&mut self.looked, true) {
                        self.transport.look_again();
                    } else if self.time_out().is_err() {
                        return Poll::Ready(());
                    }
                }
            }
        }
        yield_turn(cx);
        Poll::Pending
    }

    fn step(&mut self, cx: &mut Context<'_>, scratch: &mut Scratch) -> Poll<Result<(), Gone>> {
        if self.rests_on > 0 && !self.is_saved() {
            return Poll::Pending;
        }
        if !self.output.unsent().is_empty() || self.transport.is_backlogged() {
            return self.flush(cx);
        }
        scratch.room.lend(&mut self.output);
        match &mut self.phase {
            Phase::Serving if !self.scanned => Poll::Ready(self.serve_input()),
            Phase::Serving | Phase::Skipping => self.receive(cx, scratch),
            Phase::Waiting => self.wait(cx, scratch),
            Phase::Watching(_) => self.watch(cx, scratch),
            Phase::Reporting(cursor) => {
                let cursor = std::mem::take(cursor);
                let progress = self.report(cursor);
                if progress == Progress::Later && self.output.unsent().is_empty() {
                    return Poll::Pending;
                }
                self.scanned = self.input.is_empty();
                self.progressed = true;
                Poll::Ready(self.send())
            }
            Phase::CoolingDown => Poll::Pending,
            Phase::Leaving => Poll::Ready(Ok(())),
        }
    }

    fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Leaving)
            && self.output.unsent().is_empty()
            && !self.transport.is_backlogged()
    }

    /// The deadline of this phase has passed.
    fn time_out(&mut self) -> Result<(), Gone> {
        if self.shared.core().is_kicked(self.id) {
            tracing::warn!(peer = %self.peer, conn_id = self.serial, "ended by an administrator");
            return Err(Gone);
        }
        if self.tell_lost() {
            return Ok(());
        }
        if self.sending {
            self.shared.core().tallies.write_timeouts += 1;
            tracing::warn!(peer = %self.peer, conn_id = self.serial, "write timeout");
            return Err(Gone);
        }
        match self.phase {
            Phase::Serving if self.transport.is_shaking_hands() => Err(Gone),
            Phase::Serving | Phase::Skipping => {
                self.fail(Fault::ReadTimeout);
                Ok(())
            }
            Phase::CoolingDown => {
                self.output.push(wire::status::ERROR_AUTH);
                self.phase = Phase::Leaving;
                Ok(())
            }
            Phase::Leaving => Err(Gone),
            Phase::Waiting | Phase::Watching(_) | Phase::Reporting(_) => Ok(()),
        }
    }

    /// Tells a client which of its holds were taken away, between two answers. Whether there was one.
    fn tell_lost(&mut self) -> bool {
        let lost = self.shared.core().take_lost(self.id);
        // The body of `stats` is no place for it: then the next renewal says it.
        if !lost.is_empty() && !matches!(self.phase, Phase::Reporting(_)) {
            lost.iter().for_each(|token| wire::push_lost(self.output.bytes(), *token));
        }
        if !lost.is_empty() {
            // The deadline of a write begins again.
            self.sending = false;
            self.set_deadline();
        }
        !lost.is_empty()
    }

    fn receive(&mut self, cx: &mut Context<'_>, scratch: &mut Scratch) -> Poll<Result<(), Gone>> {
        if self.ended {
            self.end_of_input();
            return Poll::Ready(Ok(()));
        }
        let count = match ready!(self.transport.poll_receive(cx, &mut scratch.input)) {
            Ok(0) => {
                self.ended = true;
                self.end_of_input();
                return Poll::Ready(Ok(()));
            }
            Ok(count) => count,
            Err(err) => {
                self.note_handshake(&err);
                return Poll::Ready(Err(Gone));
            }
        };
        let bytes = scratch.input.get(..count).unwrap_or_default();
        if self.input.is_empty() {
            let used = self.serve(bytes);
            self.input.extend_from_slice(bytes.get(used..).unwrap_or_default());
            Poll::Ready(self.send())
        } else {
            self.input.extend_from_slice(bytes);
            Poll::Ready(self.serve_input())
        }
    }

    fn end_of_input(&mut self) {
        if self.scope.is_none() && !self.input.is_empty() {
            // As in the reference: the first frame contained no valid secret.
            return self.refuse_auth();
        }
        if !self.input.is_empty() || matches!(self.phase, Phase::Skipping) {
            self.shared.core().count_fault(Fault::Disconnected);
            let code = Fault::Disconnected.code();
            tracing::debug!(peer = %self.peer, code, "client disconnected");
        }
        self.phase = Phase::Leaving;
    }

    /// Logs a TLS peer that failed before its first frame, with the most frequent cause.
    fn note_handshake(&self, err: &std::io::Error) {
        if !self.transport.is_shaking_hands() || err.kind() != std::io::ErrorKind::InvalidData {
            return;
        }
        self.shared.core().tallies.tls_failures += 1;
        let plain = self.transport.is_plain();
        let hint = if plain { "the client speaks without TLS" } else { "see the client's message" };
        let err = tls::of_handshake(err);
        tracing::warn!(peer = %self.peer, conn_id = self.serial, err, hint, "TLS handshake failed");
    }

    fn serve_input(&mut self) -> Result<(), Gone> {
        let mut input = std::mem::take(&mut self.input);
        let used = self.serve(&input);
        if used < input.len() {
            input.drain(..used);
            self.input = input;
        }
        self.send()
    }

    /// Sets the deadline of this phase.
    fn set_deadline(&mut self) {
        let (now, settings) = (self.shared.now(), &self.shared.settings);
        let deadline = match &self.phase {
            Phase::Serving | Phase::Skipping => now.after(settings.read_timeout),
            Phase::CoolingDown => self.shared.core().penalty(now),
            Phase::Watching(watching) => watching.until,
            Phase::Waiting | Phase::Reporting(_) | Phase::Leaving => Moment::NEVER,
        };
        self.shared.core().set_deadline(self.id, deadline);
    }

    /// Sends the collected replies. Bytes that the kernel does not take, and replies that may not be sent yet, stay
    /// in `output`.
    fn send(&mut self) -> Result<(), Gone> {
        let unsent = self.output.unsent();
        if unsent.is_empty() || self.rests_on > 0 {
            return Ok(());
        }
        let count = self.transport.send(unsent).map_err(|_| Gone)?;
        self.output.sent(count);
        Ok(())
    }

    /// Whether the collected replies may be sent. If a change on which they depend could not be recorded, none of
    /// them is sent, and the connection ends without releasing its holds.
    fn is_saved(&mut self) -> bool {
        match self.shared.core().saving(self.id, self.rests_on) {
            Saving::Pending => return false,
            Saving::Saved => {}
            Saving::Lost => {
                self.output.replace(wire::status::ERROR_DRAINING);
                self.auto = AutoRelease::Off;
                self.phase = Phase::Leaving;
            }
        }
        self.rests_on = 0;
        true
    }

    fn flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Gone>> {
        if !self.sending {
            self.sending = true;
            let (now, allowed) = (self.shared.now(), self.shared.settings.write_timeout);
            let deadline =
                if allowed == Seconds::ZERO { Moment::NEVER } else { now.after(allowed) };
            self.shared.core().set_deadline(self.id, deadline);
        }
        while !self.output.unsent().is_empty() || self.transport.is_backlogged() {
            match ready!(self.transport.poll_send(cx, self.output.unsent())) {
                Ok(count) => self.output.sent(count),
                Err(_) => return Poll::Ready(Err(Gone)),
            }
        }
        self.sending = false;
        self.progressed = true;
        self.set_deadline();
        Poll::Ready(Ok(()))
    }

    /// Sends an answer. The answer that the store is unavailable is the last one, and the connection then releases
    /// nothing.
    fn answer(&mut self, answer: &Answer) {
        wire::push_answer(self.output.bytes(), answer);
        if matches!(answer, Answer::Refused(Refusal::Unavailable)) {
            self.auto = AutoRelease::Off;
            self.phase = Phase::Leaving;
        }
    }
}

/// Continues after tokio has asked the kernel for events. A task that only wakes itself would be polled up to
/// `event_interval` times before that.
pub(super) fn yield_turn(cx: &mut Context<'_>) {
    let _ = pin!(tokio::task::yield_now()).poll(cx);
}

impl Future for Connection {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        if !std::mem::replace(&mut this.registered, true) {
            this.shared.core().register(this.id, cx.waker());
            this.set_deadline();
        }
        if !this.left {
            ready!(SCRATCH.with_borrow_mut(|scratch| {
                let end = this.run(cx, scratch);
                scratch.room.take_back(&mut this.output);
                end
            }));
            this.left = true;
        }
        let now = this.shared.now();
        let progress = this.shared.core().leave(this.id, now, this.auto);
        match progress {
            Progress::More => {
                yield_turn(cx);
                Poll::Pending
            }
            Progress::Later => Poll::Pending,
            Progress::Done => {
                this.shared.changed().notify_one();
                tracing::debug!(peer = %this.peer, conn_id = this.serial, "client left");
                // A peer that has closed its side first only reads what is already sent.
                if !this.ended {
                    SCRATCH
                        .with_borrow_mut(|scratch| this.transport.say_goodbye(&mut scratch.input));
                }
                Poll::Ready(())
            }
        }
    }
}

#[cfg(test)]
mod tests;
