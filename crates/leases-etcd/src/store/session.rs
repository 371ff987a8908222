//! This front-end's registration in etcd: a key on a lease that is kept alive, and the list of all front-ends. Its
//! places in queues are on that lease, so they vanish when it dies.

use super::Inner;
use super::client::Failure;
use super::keys::Span;
use super::mine::Place;
use super::rpc::RangeRequest;
use super::turns::end_wait;
use super::txn::{self, Session};
use leases::{Moment, Refusal};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long a front-end may be silent before it counts as dead.
const LEASE_SECONDS: i64 = 5;
const LEASE_MICROS: u64 = 5_000_000;
/// The time between two keep-alives.
const BEAT: Duration = Duration::from_millis(1250);
/// The pause after a keep-alive that was not answered.
const RETRY: Duration = Duration::from_millis(100);
/// Etcd counts as unreachable if no attempt was answered for this long after the first failure. Calls that were
/// under way while this process was suspended fail, too. They count as one attempt, and another is made at once.
const SILENCE_MICROS: u64 = 4_000_000;
/// The time between two searches for the leader.
const LOOK: Duration = Duration::from_secs(5);

impl Inner {
    /// Registers, keeps the registration, and registers again if it is lost, as long as the server exists.
    pub(super) async fn keep_session(self: Arc<Self>) {
        while !self.is_closed() {
            let sent = self.now();
            match self.register().await {
                Ok(session) => {
                    self.begin(session);
                    self.stay(session, sent).await;
                    self.lose(session);
                    self.revoke(session).await;
                }
                // Etcd answers, so holds can be renewed and released.
                Err(Failure::NoSpace) => {
                    self.note_answer();
                    tokio::time::sleep(BEAT).await;
                }
                Err(_) => {
                    self.note_silence();
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }

    /// Stays with the leader: searches for it after each registration, and from time to time.
    pub(super) async fn keep_to_leader(self: Arc<Self>) {
        let mut changed = self.session_changed.subscribe();
        while !self.is_closed() {
            let _either = tokio::time::timeout(LOOK, changed.changed()).await;
            self.client.go_to_leader().await;
        }
    }

    async fn register(&self) -> Result<Session, Failure> {
        let lease = self.client.grant(LEASE_SECONDS).await?;
        let front = self.names.front(self.front);
        let answer = self.client.txn(txn::register(&front, lease)).await?;
        if let (true, Some(header)) = (answer.succeeded, &answer.header) {
            return Ok(Session { lease, revision: header.revision });
        }
        // A registration of an attempt whose answer was lost; it ends with its lease.
        Err(Failure::Refused)
    }

    fn begin(self: &Arc<Self>, session: Session) {
        {
            let mut state = self.state();
            state.session = Some(session);
            state.note_answer();
            let front = state.front;
            state.fronts.insert(front);
        }
        tracing::info!(front = %self.front, "etcd session");
        self.session_changed.send_modify(|count| *count += 1);
        self.sweep_now.notify_one();
        self.stir();
    }

    /// Returns when the session is lost, at the latest when its lease may have ended, counted from `reached`.
    async fn stay(self: &Arc<Self>, session: Session, mut reached: Moment) {
        let mut pause = BEAT;
        while !self.is_closed() {
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.fronts_changed.notified() => self.read_fronts().await,
            }
            let sent = self.now();
            match self.client.keep_alive(session.lease).await {
                Ok(seconds) if seconds > 0 => {
                    self.note_answer();
                    reached = sent;
                    pause = BEAT;
                }
                Ok(_) | Err(Failure::Refused) => return self.note_answer(),
                Err(Failure::NotSent | Failure::NoSpace | Failure::Unclear) => {
                    self.note_silence();
                    pause = RETRY;
                }
            }
            if self.now().micros_since(reached) > LEASE_MICROS {
                return;
            }
            self.state().lines.close_idle(self.now());
        }
    }

    /// Everything on the session is gone or will be. Tells the waiters, and makes nothing more with this session.
    pub(super) fn lose(self: &Arc<Self>, session: Session) {
        let reachable = {
            let mut state = self.state();
            let state = &mut *state;
            if state.session != Some(session) {
                return;
            }
            state.session = None;
            let waiting: Vec<u64> = state
                .tickets
                .values()
                .filter(|mine| mine.place == Place::Waiting)
                .map(|mine| mine.nonce)
                .collect();
            for nonce in waiting {
                if let Some(mine) = state.withdraw(nonce) {
                    end_wait(state, mine, Refusal::Unavailable);
                }
            }
            state.lines.clear(&self.names);
            !state.away
        };
        tracing::warn!(reachable, "etcd session lost");
        self.sessions_lost.fetch_add(1, Ordering::Relaxed);
        self.session_changed.send_modify(|count| *count += 1);
        self.stir();
    }

    /// The old registration must be gone before a new one is made.
    async fn revoke(&self, session: Session) {
        while !self.is_closed() {
            match self.client.revoke(session.lease).await {
                Ok(()) | Err(Failure::Refused) => return,
                Err(Failure::NotSent | Failure::NoSpace | Failure::Unclear) => {}
            }
            self.note_silence();
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Etcd has answered, perhaps that this front-end cannot register.
    fn note_answer(&self) {
        self.state().note_answer();
    }

    /// An attempt was not answered. After a while, clients are refused at once.
    fn note_silence(&self) {
        let now = self.now();
        if self.state().note_silence(now, SILENCE_MICROS) {
            let members = self.client.members();
            tracing::warn!(
                members,
                "etcd does not answer: start it there, or see --etcd-endpoints"
            );
            self.state().tell_all();
            self.stir();
            self.session_changed.send_modify(|count| *count += 1);
        }
    }

    async fn read_fronts(self: &Arc<Self>) {
        let Span { from, to } = self.names.fronts();
        let request =
            RangeRequest { key: from, range_end: to, keys_only: true, ..RangeRequest::default() };
        let until = self.now().after_micros(0);
        let Ok(answer) = self.range(request, until).await else {
            // Once more, after the next keep-alive.
            return self.fronts_changed.notify_one();
        };
        let mut state = self.state();
        let fronts = answer.kvs.iter().filter_map(|kv| self.names.read_front(&kv.key)).collect();
        let before = std::mem::replace(&mut state.fronts, fronts);
        if before.iter().any(|front| !state.fronts.contains(front)) {
            self.sweep_now.notify_one();
        }
    }

    /// The session. Waits for one while etcd may still be reached.
    pub(super) async fn session(&self, until: Moment) -> Result<Session, Refusal> {
        let mut changed = self.session_changed.subscribe();
        loop {
            {
                let state = self.state();
                if let Some(session) = state.session {
                    return Ok(session);
                }
                if state.away {
                    return Err(Refusal::Unavailable);
                }
            }
            let left = Duration::from_micros(until.micros_since(self.now()));
            match tokio::time::timeout(left, changed.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return Err(Refusal::Unavailable),
            }
        }
    }

    /// Etcd says that this session is gone. Waits until our own task has noticed it.
    pub(super) async fn session_is_gone(
        &self,
        session: Session,
        until: Moment,
    ) -> Result<(), Refusal> {
        while self.state().session == Some(session) {
            if self.now() >= until {
                return Err(Refusal::Unavailable);
            }
            // The next keep-alive shows it.
            self.fronts_changed.notify_one();
            tokio::time::sleep(RETRY).await;
        }
        Ok(())
    }
}
