//! Sends transactions to etcd: collects them for a moment, sends them together, and retries within a budget
//! where that is safe.

use super::Inner;
use super::batch::{Batch, Haste, Queue, together};
use super::client::Failure;
use super::rpc::{RangeRequest, RangeResponse, TxnRequest, TxnResponse};
use super::txn::{self, Changed, Guard};
use leases::{Moment, Refusal};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;

/// How long a request is tried before the client is told that the store cannot be reached.
pub(super) const BUDGET_MICROS: u64 = 6_000_000;
/// The pause between two attempts.
pub(super) const PAUSE: Duration = Duration::from_millis(50);
/// The most requests with transactions under way at once. More requests would each carry fewer transactions.
const MOST_UNDER_WAY: usize = 3;
/// After this time, transactions that are not urgent are sent by themselves.
const LATER: Duration = Duration::from_millis(2);

type Back = oneshot::Sender<Result<TxnResponse, Failure>>;

struct Load {
    queue: Queue<Back>,
    under_way: usize,
    /// A task will serve the queue in this turn of the loop.
    rung: bool,
    /// A task will serve the queue when transactions that are not urgent have waited long enough.
    timed: bool,
    /// The number of transactions sent so far.
    transactions: u64,
}

pub(super) struct Outbox(Mutex<Load>);

impl Outbox {
    pub(super) const fn new() -> Self {
        Self(Mutex::new(Load {
            queue: Queue::new(),
            under_way: 0,
            rung: false,
            timed: false,
            transactions: 0,
        }))
    }

    fn load(&self) -> MutexGuard<'_, Load> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Transactions so far; one call can carry several.
    pub(super) fn transactions(&self) -> u64 {
        self.load().transactions
    }
}

impl Inner {
    /// One attempt, together with others if there are any.
    async fn submit(
        self: &Arc<Self>,
        request: TxnRequest,
        haste: Haste,
    ) -> Result<TxnResponse, Failure> {
        let (back, answer) = oneshot::channel();
        {
            let mut load = self.outbox.load();
            load.transactions += 1;
            load.queue.push(request, haste, back);
            match haste {
                Haste::Now => self.ring(&mut load),
                Haste::Later if !std::mem::replace(&mut load.timed, true) => {
                    tokio::spawn(Arc::clone(self).pump_later());
                }
                Haste::Later => {}
            }
        }
        answer.await.unwrap_or(Err(Failure::Unclear))
    }

    /// Not at once, so that requests served in the same turn of the loop can go with it.
    fn ring(self: &Arc<Self>, load: &mut Load) {
        if load.under_way < MOST_UNDER_WAY && !std::mem::replace(&mut load.rung, true) {
            tokio::spawn(Arc::clone(self).pump());
        }
    }

    async fn pump(self: Arc<Self>) {
        self.outbox.load().rung = false;
        loop {
            let batch = {
                let mut load = self.outbox.load();
                if load.queue.is_hasty() { self.take(&mut load) } else { None }
            };
            let Some(batch) = batch else { return };
            Arc::clone(&self).carry(batch).await;
        }
    }

    async fn pump_later(self: Arc<Self>) {
        loop {
            tokio::time::sleep(LATER).await;
            let mut load = self.outbox.load();
            if load.queue.is_empty() {
                load.timed = false;
                return;
            }
            if let Some(batch) = self.take(&mut load) {
                tokio::spawn(Arc::clone(&self).carry_later(batch));
            }
        }
    }

    /// An urgent transaction that came while requests like this one were all under way need not wait for others.
    async fn carry_later(self: Arc<Self>, batch: Batch<Back>) {
        Arc::clone(&self).carry(batch).await;
        let mut load = self.outbox.load();
        if load.queue.is_hasty() {
            self.ring(&mut load);
        }
    }

    /// The batches that can be sent now. A transaction that could not go with others is sent alone if that is
    /// allowed.
    fn take(self: &Arc<Self>, load: &mut Load) -> Option<Batch<Back>> {
        if load.under_way >= MOST_UNDER_WAY {
            return None;
        }
        let batch = load.queue.take()?;
        load.under_way += 1;
        if load.queue.is_hasty() {
            self.ring(load);
        }
        Some(batch)
    }

    async fn carry(self: Arc<Self>, batch: Batch<Back>) {
        self.send(batch).await;
        self.outbox.load().under_way -= 1;
    }

    async fn send(&self, batch: Batch<Back>) {
        let (requests, backs): (Vec<TxnRequest>, Vec<Back>) = batch.parts.into_iter().unzip();
        // A transaction inside another one succeeds even if etcd has no space (see `txn::batch`).
        let alone = requests.len() == 1 && !self.client.is_full();
        let request = if alone { together(&requests) } else { txn::batch(requests.clone()) };
        match self.client.txn(request).await {
            Ok(answer) if alone => reply(backs, std::iter::once(Ok(answer))),
            Ok(answer) => {
                let parts = txn::split(answer);
                reply(backs, parts.into_iter().map(|part| part.ok_or(Failure::Unclear)));
            }
            // One of them is not possible, so none took effect.
            Err(Failure::Refused) if !alone => {
                for (request, back) in requests.into_iter().zip(backs) {
                    let _nobody_waits = back.send(self.client.txn(request).await);
                }
            }
            Err(failure) => reply(backs, std::iter::repeat(Err(failure))),
        }
    }

    /// Sends a transaction that must not happen twice. It is tried again only if it certainly did not happen.
    pub(super) async fn once(
        self: &Arc<Self>,
        request: TxnRequest,
        haste: Haste,
        until: Moment,
    ) -> Result<TxnResponse, Failure> {
        loop {
            match self.submit(request.clone(), haste).await {
                Err(Failure::NotSent) if self.now() < until => tokio::time::sleep(PAUSE).await,
                result => return result,
            }
        }
    }

    /// Sends a transaction with a guard, so that a repetition does no harm.
    pub(super) async fn again(
        self: &Arc<Self>,
        request: TxnRequest,
        until: Moment,
    ) -> Result<Answered, Refusal> {
        let mut tries = Tries::First;
        loop {
            match self.submit(request.clone(), Haste::Now).await {
                Ok(answer) => return Ok(Answered { answer, tries }),
                Err(_) if self.now() >= until => return Err(Refusal::Unavailable),
                Err(Failure::Refused) => return Err(Refusal::Unavailable),
                Err(Failure::Unclear) => tries = Tries::AfterUnclear,
                Err(Failure::NotSent | Failure::NoSpace) => {}
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// A guarded change of one ticket.
    pub(super) async fn change(
        self: &Arc<Self>,
        request: TxnRequest,
        until: Moment,
    ) -> Result<Changed, Refusal> {
        self.again(request, until).await?.changed()
    }

    /// Rewrites a ticket.
    pub(super) async fn rewrite(
        self: &Arc<Self>,
        name: &[u8],
        guard: Guard,
        value: Vec<u8>,
        lease: i64,
        until: Moment,
    ) -> Result<Changed, Refusal> {
        let request = txn::rewrite(name, guard, value.clone(), lease);
        let answered = self.again(request, until).await?;
        match (answered.changed()?, answered.tries) {
            // An earlier attempt, with a lost answer, did it.
            (Changed::Other(found), Tries::AfterUnclear) if found.value == value => {
                Ok(Changed::Done(found.mod_revision))
            }
            (changed, _) => Ok(changed),
        }
    }

    /// Reads. The result is never older than the beginning of the call.
    pub(super) async fn range(
        &self,
        request: RangeRequest,
        until: Moment,
    ) -> Result<RangeResponse, Refusal> {
        loop {
            match self.client.range(request.clone()).await {
                Ok(answer) => return Ok(answer),
                Err(_) if self.now() < until => tokio::time::sleep(PAUSE).await,
                Err(_) => return Err(Refusal::Unavailable),
            }
        }
    }
}

/// Whether an earlier attempt than the answered one may have had an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tries {
    First,
    AfterUnclear,
}

pub(super) struct Answered {
    pub(super) answer: TxnResponse,
    tries: Tries,
}

impl Answered {
    /// The outcome of a guarded change.
    pub(super) fn changed(&self) -> Result<Changed, Refusal> {
        match (txn::read_changed(&self.answer), self.tries) {
            (None, _) => Err(Refusal::Unavailable),
            (Some(Changed::Gone), Tries::AfterUnclear) => Ok(Changed::Vanished),
            (Some(changed), _) => Ok(changed),
        }
    }
}

fn reply(backs: Vec<Back>, answers: impl Iterator<Item = Result<TxnResponse, Failure>>) {
    for (back, answer) in backs.into_iter().zip(answers) {
        let _nobody_waits = back.send(answer);
    }
}

#[cfg(test)]
mod tests {
    use super::super::keys::Names;
    use super::super::{Engine, Settings};
    use super::*;

    fn request(nonce: u64) -> TxnRequest {
        txn::remove(&Names::new("").ticket(b"k", nonce), Guard::Create(1))
    }

    /// The most requests are under way, none of them urgent, and the queue is empty. Then an urgent one comes. It
    /// is sent as soon as one of the others is answered, even if no other request comes.
    #[tokio::test]
    async fn an_urgent_request_behind_patient_ones_is_sent() {
        let settings = Settings { members: Vec::new(), prefix: String::new(), user: None };
        let engine = Engine::new(settings, crate::sample::CAPS);
        let inner = Arc::clone(&engine.inner);
        let mut under_way = Vec::new();
        for nonce in 0..MOST_UNDER_WAY {
            let mut load = inner.outbox.load();
            let request = request(u64::try_from(nonce).unwrap());
            load.queue.push(request, Haste::Later, oneshot::channel().0);
            under_way.push(inner.take(&mut load).unwrap());
        }
        let hasty = Arc::clone(&inner);
        let hasty = tokio::spawn(async move { hasty.submit(request(9), Haste::Now).await });
        while !inner.outbox.load().queue.is_hasty() {
            tokio::task::yield_now().await;
        }
        for batch in under_way {
            Arc::clone(&inner).carry_later(batch).await;
        }
        let answer = tokio::time::timeout(Duration::from_secs(20), hasty).await;
        assert_eq!(answer.expect("it is sent").unwrap().unwrap_err(), Failure::NotSent);
    }
}
