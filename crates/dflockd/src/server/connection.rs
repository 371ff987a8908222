//! One client: bytes in, requests to the engine, replies out, with deadlines.
//!
//! A hand-written future instead of an async function, because its size counts with ten thousand idle
//! connections: it has no read buffer while no request is incomplete, and works in memory that the thread
//! lends it. Its output buffer is always its own. It decides nothing about locks.

mod frames;
mod room;
mod waiting;

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

const READ_BYTES: usize = 16 * 1024;
/// Read ahead of a blocked request at most, to notice the end behind it.
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

/// Who is at the other end, for the log.
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
    /// The rest of a line that is too long goes by.
    Skipping,
    /// A request waits in the engine.
    Waiting,
    /// A `stats` body is being sent.
    Reporting(Box<StatsCursor>),
    /// A wrong secret was shown; the answer waits.
    CoolingDown,
    /// The connection's things are being removed.
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
    /// Received and not served yet.
    input: Vec<u8>,
    /// Not taken by the kernel yet.
    output: Outbox,
    /// Whole lines of the unfinished frame at the start of `input`.
    lines: u8,
    /// `input` has been looked at and holds no whole frame.
    scanned: bool,
    /// What it may ask about; nothing before it has shown a secret, where one is asked for.
    scope: Option<Scope>,
    /// Bytes of the longest secret it could show.
    longest_secret: usize,
    /// The peer sends no more.
    ended: bool,
    /// The same, but what it sent before is still in the kernel.
    end_ahead: bool,
    /// The write deadline is running.
    sending: bool,
    registered: bool,
    /// In this turn a frame was served or a reply sent, so the deadline is a new one.
    progressed: bool,
    probed: bool,
    /// Since the last word of the client the kernel was asked itself whether there is more.
    looked: bool,
    /// Changes of holds that the replies in `output` rest on; 0 when they may leave.
    rests_on: u64,
    /// What becomes of its holds when it goes.
    auto: AutoRelease,
    left: bool,
}

/// The peer cannot be talked to any more.
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
                    // After a pause of this process the timer may ring before anybody has heard
                    // of what came meanwhile.
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
            Phase::Waiting | Phase::Reporting(_) => Ok(()),
        }
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
            // As the reference has it: the first frame was no right secret.
            return self.refuse_auth();
        }
        if !self.input.is_empty() || matches!(self.phase, Phase::Skipping) {
            self.shared.core().count_fault(Fault::Disconnected);
            let code = Fault::Disconnected.code();
            tracing::debug!(peer = %self.peer, code, "client disconnected");
        }
        self.phase = Phase::Leaving;
    }

    /// A peer that failed before the first frame under TLS is told of, with what is most often wrong.
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

    /// Starts the time this phase may take.
    fn set_deadline(&mut self) {
        let (now, settings) = (self.shared.now(), &self.shared.settings);
        let deadline = match self.phase {
            Phase::Serving | Phase::Skipping => now.after(settings.read_timeout),
            Phase::CoolingDown => self.shared.core().penalty(now),
            Phase::Waiting | Phase::Reporting(_) | Phase::Leaving => Moment::NEVER,
        };
        self.shared.core().set_deadline(self.id, deadline);
    }

    /// Sends what was collected; what the kernel does not take waits in `output`, and so does what may
    /// not leave yet.
    fn send(&mut self) -> Result<(), Gone> {
        let unsent = self.output.unsent();
        if unsent.is_empty() || self.rests_on > 0 {
            return Ok(());
        }
        let count = self.transport.send(unsent).map_err(|_| Gone)?;
        self.output.sent(count);
        Ok(())
    }

    /// Whether the collected replies may leave. When what they rest on could not be recorded, none
    /// of them does, and the connection ends without giving anything back.
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

    /// Tells an answer. One that says the store is away is the last, and gives nothing back.
    fn answer(&mut self, answer: &Answer) {
        wire::push_answer(self.output.bytes(), answer);
        if matches!(answer, Answer::Refused(Refusal::Unavailable)) {
            self.auto = AutoRelease::Off;
            self.phase = Phase::Leaving;
        }
    }
}

/// Comes back after the kernel was asked for news. A task that merely wakes itself is polled again
/// and again before that: up to `event_interval` times.
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
                // A peer that has ended its side first has nothing to read but what is sent.
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
