//! A request of a client that has no socket of its own: one of a session, or one that belongs to no session. It asks the
//! engine as a [`Connection`](super::connection) does, waits, and withdraws what its client does not wait for.

use super::connection::{LONGEST_WATCH, answer_of_draining, kept_name, of_draining};
use super::core::{Core, SessionId, Shared};
use leases::journal::{Failed, Mark};
use leases::{
    Answer, AutoRelease, ConnId, Key, Label, Refusal, Request, Seconds, Sight, Token, Verdict,
};
use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep_until};

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    /// The session has ended.
    Gone,
    /// The client has left.
    Left,
    /// The server is shutting down.
    Draining,
    /// Holds cannot be recorded, or the term is over.
    Failed,
}

/// Why a client does not wait any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parting {
    /// It has left.
    Left,
    /// The server that it has asked is shutting down.
    Draining,
}

/// Ready when the client does not wait any more.
pub(crate) type PollPeer<'a> = &'a mut (dyn FnMut(&mut Context<'_>) -> Poll<Parting> + Send);

/// See the module. The session is in use until this is dropped.
pub(crate) struct Visit<'a> {
    shared: &'a Shared,
    conn: ConnId,
    /// `None` if it belongs to no session.
    session: Option<(SessionId, Arc<Mutex<()>>)>,
}

/// What is withdrawn if the answer does not reach the client.
struct Undelivered<'a> {
    visit: &'a Visit<'a>,
    /// Whether the request is in a queue, or got its answer there.
    waits: bool,
    tokens: Vec<Token>,
    is_delivered: bool,
}

impl<'a> Visit<'a> {
    /// `None` if there is no such session.
    pub(crate) fn of(shared: &'a Shared, id: SessionId) -> Option<Self> {
        let (conn, turn) = shared.core().sessions.begin_request(id)?;
        Some(Self { shared, conn, session: Some((id, turn)) })
    }

    /// The holds that it gets belong to no connection.
    pub(crate) fn alone(shared: &'a Shared, address: Option<IpAddr>) -> Self {
        Self { shared, conn: shared.core().open_alone(address), session: None }
    }

    /// Sets the name for people.
    pub(crate) fn set_name(&self, name: &[u8]) {
        let (name, mut core) = (kept_name(name), self.shared.core());
        if core.engine.label(self.conn).is_none_or(|label: &Label| *label.name != *name) {
            core.relabel(self.conn, |label| label.name = name.into());
        }
    }

    /// Asks the engine, and waits until the answer may be sent. If the client has left meanwhile, or if this is dropped, it
    /// has got nothing. `is_draining`: the server that the client has asked is shutting down.
    ///
    /// # Errors
    /// See [`Denied`].
    pub(crate) async fn ask(
        &self,
        request: Request<'_>,
        is_draining: bool,
        poll_peer: PollPeer<'_>,
    ) -> Result<Answer, Denied> {
        const DRAINING: Answer = Answer::Refused(Refusal::Draining);
        let Some(request) = (if is_draining { of_draining(request) } else { Some(request) }) else {
            return Ok(DRAINING);
        };
        let _turn = match &self.session {
            Some((_, turn)) if may_wait(request) => {
                let mut turn = pin!(turn.lock());
                let first = poll_fn(|cx| match turn.as_mut().poll(cx) {
                    Poll::Ready(turn) => Poll::Ready(Ok(turn)),
                    Poll::Pending => poll_peer(cx).map(Err),
                });
                match first.await {
                    Ok(turn) => Some(turn),
                    Err(Parting::Draining) => return Ok(DRAINING),
                    Err(Parting::Left) => return Err(Denied::Left),
                }
            }
            Some(_) | None => None,
        };
        let mut undelivered =
            Undelivered { visit: self, waits: false, tokens: Vec::new(), is_delivered: false };
        let (verdict, mark) = self.begin(request)?;
        let (answer, mark) = match verdict {
            Verdict::Now(answer) => (answer, mark),
            Verdict::Later => {
                undelivered.waits = true;
                match self.wait(poll_peer).await? {
                    Ok(answer) => answer,
                    Err(Parting::Draining) => return Ok(DRAINING),
                    Err(Parting::Left) => return Err(self.note_left()),
                }
            }
        };
        // The hold that `w` fetches at once may be known from `e`.
        if undelivered.waits || !matches!(request, Request::Wait { .. }) {
            undelivered.tokens.extend(answer.grants().iter().map(|grant| grant.token));
        }
        self.recorded(mark).await?;
        let left = poll_fn(|cx| Poll::Ready(poll_peer(cx))).await;
        if left == Poll::Ready(Parting::Left) {
            return Err(self.note_left());
        }
        undelivered.is_delivered = true;
        Ok(if is_draining { answer_of_draining(answer) } else { answer })
    }

    /// The holder of a key, as soon as the state is no longer the one of this tag.
    ///
    /// # Errors
    /// See [`Denied`]; [`Refusal::MaxWaiters`] if too many watch, [`Refusal::Draining`].
    pub(crate) async fn watch(
        &self,
        key: Key<'_>,
        last: Option<u64>,
        timeout: Seconds,
        poll_peer: PollPeer<'_>,
    ) -> Result<Result<Option<Sight>, Refusal>, Denied> {
        let until = self.shared.now().after(timeout.min(LONGEST_WATCH));
        let at = self.shared.instant(until).map_or_else(Instant::now, Instant::from_std);
        let mut timer = pin!(sleep_until(at));
        let most = self.shared.settings.max_watchers;
        let begun = self.shared.core().begin_watch(self.conn, key, most);
        if let Err(refusal) = begun {
            return Ok(Err(refusal));
        }
        let mut is_draining = false;
        let seen = poll_fn(|cx| {
            let is_late = timer.as_mut().poll(cx).is_ready();
            match poll_peer(cx) {
                Poll::Ready(Parting::Left) => return Poll::Ready(Err(Denied::Left)),
                Poll::Ready(Parting::Draining) => is_draining = true,
                Poll::Pending => {}
            }
            let mut core = self.shared.core();
            core.connections.register(self.conn, cx.waker());
            if let Some(denied) = self.denied(&core) {
                return Poll::Ready(Err(denied));
            }
            let now = if is_late { until } else { self.shared.now() };
            let seen = core.sight(now, self.conn, (key, last), until, is_draining);
            seen.map_or(Poll::Pending, |seen| Poll::Ready(Ok(seen)))
        });
        let (sight, mark) = seen.await?;
        self.recorded(mark).await?;
        Ok(sight)
    }

    fn begin(&self, request: Request<'_>) -> Result<(Verdict, Option<Mark>), Denied> {
        let (now, mut core) = (self.shared.now(), self.shared.core());
        if let Some(denied) = self.denied(&core) {
            return Err(denied);
        }
        let verdict = core.ask(now, self.conn, request).map_err(|Failed| failed(&core))?;
        let is_now = matches!(verdict, Verdict::Now(_));
        let mark = if is_now { core.recording.mark() } else { None };
        Ok((verdict, mark))
    }

    /// Why nothing more is served: the session, or the term, is over.
    fn denied(&self, core: &Core) -> Option<Denied> {
        if !core.is_available() || core.is_of_past_term(self.conn) || self.shared.is_kicked() {
            return Some(failed(core));
        }
        let is_gone = !core.connections.has(self.conn) || core.connections.is_kicked(self.conn);
        is_gone.then_some(Denied::Gone)
    }

    /// Waits for the answer of the engine.
    async fn wait(
        &self,
        poll_peer: PollPeer<'_>,
    ) -> Result<Result<(Answer, Option<Mark>), Parting>, Denied> {
        poll_fn(|cx| {
            let (now, mut core) = (self.shared.now(), self.shared.core());
            core.connections.register(self.conn, cx.waker());
            if let Some(answer) = core.connections.take_answer(self.conn, now) {
                return Poll::Ready(Ok(Ok(answer)));
            }
            if let Some(denied) = self.denied(&core) {
                return Poll::Ready(Err(denied));
            }
            drop(core);
            poll_peer(cx).map(|parting| Ok(Err(parting)))
        })
        .await
    }

    async fn recorded(&self, mark: Option<Mark>) -> Result<(), Denied> {
        let Some(mark) = mark else { return Ok(()) };
        let recorded = poll_fn(|cx| self.shared.core().recording.poll_recorded(mark, cx)).await;
        recorded.map_err(|Failed| failed(&self.shared.core()))
    }

    fn note_left(&self) -> Denied {
        self.shared.core().tallies.gone_while_waiting += 1;
        Denied::Left
    }
}

impl Drop for Undelivered<'_> {
    fn drop(&mut self) {
        if self.is_delivered {
            return;
        }
        let Visit { shared, conn, .. } = self.visit;
        let (now, mut core) = (shared.now(), shared.core());
        if self.waits {
            core.withdraw(now, *conn);
        }
        core.take_back(now, *conn, &self.tokens);
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        match self.session {
            Some((id, _)) => self.shared.end_request_of(id),
            None => self.shared.end_connection(self.conn, AutoRelease::Off),
        }
    }
}

/// Why nothing more is granted in a term.
const fn failed(core: &Core) -> Denied {
    if core.engine.is_draining() { Denied::Draining } else { Denied::Failed }
}

const fn may_wait(request: Request<'_>) -> bool {
    match request {
        Request::Acquire { timeout, .. } | Request::Wait { timeout, .. } => timeout.count() > 0,
        Request::AcquireAll { .. }
        | Request::Enqueue { .. }
        | Request::Release { .. }
        | Request::Renew { .. } => false,
    }
}

impl Shared {
    /// Opens a session, if the caps allow.
    pub(crate) fn open_session(
        &self,
        address: Option<IpAddr>,
    ) -> Result<SessionId, super::core::Full> {
        self.core().open_session(&self.settings, self.now(), address)
    }

    /// A request of a session has ended: the end of the server may have waited for it.
    fn end_request_of(&self, id: SessionId) {
        let (now, mut core) = (self.now(), self.core());
        core.sessions.end_request(now, id);
        if core.engine.is_draining() {
            self.changed.notify_one();
        }
    }

    /// Ends a session; false if there is none.
    pub(crate) fn end_session(&self, id: SessionId) -> bool {
        let has_ended = self.core().end_session(self.now(), id, self.settings.auto_release);
        self.changed.notify_one();
        has_ended
    }
}
