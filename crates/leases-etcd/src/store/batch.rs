//! Collects transactions and sends several in one request, because etcd's cost depends on the number of requests
//! and proposals, and little on their content.
//!
//! Two transactions that write the same name never share a request: etcd refuses it, and as everything in a
//! request gets one revision, two tickets of a key would have no order (each create also writes its key's
//! limit). Other transactions of one key may share one: etcd makes all comparisons before all changes, so a
//! ticket that is created beside the end of the ticket before it is a waiting ticket, and gets its turn like
//! any other.

use super::rpc::TxnRequest;
use super::txn;
use std::collections::{HashSet, VecDeque};

/// The most transactions in one request; one that makes several keys counts as that many. By default etcd refuses
/// more than 128 operations, and also counts the operations inside the largest transaction.
pub(super) const MOST: usize = 100;
/// The most transactions that are examined for one request, if many cannot go together.
const LOOK_AHEAD: usize = 4 * MOST;

/// Whether a transaction is urgent enough to cause a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Haste {
    Now,
    /// No client waits for it: it goes with the next request.
    Later,
}

#[derive(Debug)]
struct Waiting<B> {
    request: TxnRequest,
    back: B,
    haste: Haste,
    weight: usize,
}

/// `B` is the destination of an answer.
#[derive(Debug)]
pub(super) struct Queue<B> {
    waiting: VecDeque<Waiting<B>>,
    /// How many are urgent.
    hasty: usize,
}

/// Transactions to be sent as one request.
#[derive(Debug)]
pub(super) struct Batch<B> {
    /// Each with the destination of its answer.
    pub(super) parts: Vec<(TxnRequest, B)>,
}

impl<B> Queue<B> {
    pub(super) const fn new() -> Self {
        Self { waiting: VecDeque::new(), hasty: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether one of them is urgent.
    pub(super) const fn is_hasty(&self) -> bool {
        self.hasty > 0
    }

    pub(super) fn push(&mut self, request: TxnRequest, haste: Haste, back: B) {
        self.hasty += usize::from(haste == Haste::Now);
        let weight = weight(&request);
        self.waiting.push_back(Waiting { request, back, haste, weight });
    }

    /// The oldest transaction and those that can go with it. Transactions that write the same name keep their
    /// order.
    pub(super) fn take(&mut self) -> Option<Batch<B>> {
        let Waiting { request, back, haste, weight } = self.waiting.pop_front()?;
        self.hasty -= usize::from(haste == Haste::Now);
        let mut parts = vec![(request, back)];
        if self.waiting.is_empty() {
            return Some(Batch { parts });
        }
        let mut room = MOST.saturating_sub(weight);
        // Also the names of transactions that stay behind, because nothing may overtake them.
        let mut names: HashSet<Vec<u8>> = HashSet::new();
        parts.iter().for_each(|(first, _)| names.extend(owned(first)));
        let mut rest = VecDeque::new();
        for _ in 0..LOOK_AHEAD.min(self.waiting.len()) {
            if room == 0 {
                break;
            }
            let Some(item) = self.waiting.pop_front() else { break };
            let is_free = txn::written(&item.request).iter().all(|name| !names.contains(*name));
            names.extend(owned(&item.request));
            if is_free && item.weight <= room {
                room -= item.weight;
                self.hasty -= usize::from(item.haste == Haste::Now);
                parts.push((item.request, item.back));
            } else {
                rest.push_back(item);
            }
        }
        while let Some(item) = rest.pop_back() {
            self.waiting.push_front(item);
        }
        Some(Batch { parts })
    }
}

/// At least the number of keys that it can make, because each key has a limit and a ticket.
fn weight(request: &TxnRequest) -> usize {
    let names: HashSet<&[u8]> = txn::written(request).into_iter().collect();
    names.len().div_ceil(2)
}

fn owned(request: &TxnRequest) -> impl Iterator<Item = Vec<u8>> + '_ {
    txn::written(request).into_iter().map(<[u8]>::to_vec)
}

/// One request with all parts.
pub(super) fn together(parts: &[TxnRequest]) -> TxnRequest {
    match parts {
        [only] => only.clone(),
        several => txn::batch(several.to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::keys::Names;
    use super::super::txn::Guard;
    use super::*;

    /// A removal of each of these tickets in one transaction.
    fn request(tickets: &str) -> TxnRequest {
        let names = Names::new("");
        let one = |ticket: char| {
            let name = names.ticket(b"k", u64::from(u32::from(ticket)));
            txn::remove(&name, Guard::Create(1))
        };
        txn::batch(tickets.chars().map(one).collect())
    }

    fn queue(requests: &[&str]) -> Queue<usize> {
        let mut queue = Queue::new();
        for (place, tickets) in requests.iter().enumerate() {
            queue.push(request(tickets), Haste::Now, place);
        }
        queue
    }

    fn batches(mut queue: Queue<usize>) -> Vec<Vec<usize>> {
        std::iter::from_fn(|| queue.take())
            .map(|batch| batch.parts.into_iter().map(|(_, place)| place).collect())
            .collect()
    }

    #[test]
    fn writes_of_one_name_go_in_separate_batches_in_order() {
        assert_eq!(
            batches(queue(&["a", "b", "a", "c", "a", "b"])),
            [vec![0, 1, 3], vec![2, 5], vec![4]]
        );
        // The fourth could go, but not before the third.
        assert_eq!(batches(queue(&["a", "b", "ac", "c"])), [vec![0, 1], vec![2], vec![3]]);
        assert!(batches(queue(&[])).is_empty());
    }

    /// The end of a hold, the next one's turn and a new ticket are one request; two new tickets are not.
    #[test]
    fn one_key_may_be_in_a_batch_several_times() {
        let names = Names::new("");
        let session = txn::Session { lease: 1, revision: 1 };
        let create = |nonce| {
            let (held, waiting) = (vec![b'h'], vec![b'w']);
            let claim = leases::Claim::LOCK;
            let behind = txn::Behind::Wait;
            let new = txn::Create { key: b"k", nonce, claim, behind, counts: true, held, waiting };
            txn::create(&names, b"f/1", session, &new)
        };
        let next = txn::Next { name: names.ticket(b"k", 2), revision: 5, held: vec![b'h'] };
        let mut queue = Queue::new();
        queue.push(create(7), Haste::Later, 0);
        assert!(!queue.is_hasty());
        let hand_over = txn::hand_over(&names.ticket(b"k", 1), Guard::Create(4), next);
        queue.push(hand_over, Haste::Now, 1);
        queue.push(create(8), Haste::Later, 2);
        queue.push(txn::remove(&names.ticket(b"k", 2), Guard::Create(5)), Haste::Now, 3);
        queue.push(txn::remove(&names.ticket(b"k", 3), Guard::Create(6)), Haste::Now, 4);
        let first = queue.take().unwrap();
        assert!(first.parts.iter().map(|(_, place)| *place).eq([0, 1, 4]) && queue.is_hasty());
        let second = queue.take().unwrap();
        assert!(second.parts.iter().map(|(_, place)| *place).eq([2, 3]) && !queue.is_hasty());
    }

    #[test]
    fn a_batch_is_not_greater_than_etcd_takes() {
        let mut queue = Queue::new();
        for place in 0..250_u32 {
            let name = char::from_u32(0x4e00 + place).unwrap().to_string();
            queue.push(request(&name), Haste::Now, 0);
        }
        let sizes: Vec<usize> = batches(queue).iter().map(Vec::len).collect();
        assert_eq!(sizes, [100, 100, 50]);
        const { assert!(MOST <= 128) };
    }

    /// Operations as etcd counts them (v3.4 to v3.6, `checkTxnRequest`): the longest list, plus the longest list of
    /// a transaction inside.
    fn operations(txn: &TxnRequest) -> usize {
        let inside = txn.success.iter().chain(&txn.failure).map(|op| match &op.request {
            Some(super::super::rpc::request_op::Request::RequestTxn(inner)) => operations(inner),
            _ => 0,
        });
        let longest = txn.compare.len().max(txn.success.len()).max(txn.failure.len());
        longest + inside.max().unwrap_or(0)
    }

    /// A transaction that makes many keys goes with fewer others: the keys and the operations of a call are
    /// limited.
    #[test]
    fn a_request_for_several_keys_weighs_as_much_as_they_do() {
        let names = Names::new("");
        let session = txn::Session { lease: 1, revision: 1 };
        let mut queue = Queue::new();
        let mut number = 0..;
        let mut all = |many: usize| {
            let tickets: Vec<(std::sync::Arc<[u8]>, u64)> = (&mut number)
                .take(many)
                .map(|number: u64| (number.to_string().into_bytes().into(), number))
                .collect();
            super::super::together::create_all(&names, b"f/1", session, &tickets, b"h", true)
        };
        for many in [leases::MAX_KEYS, 2, 5] {
            assert_eq!(weight(&all(many)), many);
        }
        for _ in 0..10 {
            queue.push(all(leases::MAX_KEYS), Haste::Now, leases::MAX_KEYS);
        }
        for _ in 0..300 {
            queue.push(all(1), Haste::Now, 1);
        }
        let mut seen = 0;
        while let Some(batch) = queue.take() {
            let keys: usize = batch.parts.iter().map(|(_, keys)| *keys).sum();
            assert!(keys <= MOST, "{keys}");
            let parts: Vec<TxnRequest> = batch.parts.into_iter().map(|(part, _)| part).collect();
            assert!(operations(&together(&parts)) <= 128, "{}", operations(&together(&parts)));
            seen += parts.len();
        }
        assert_eq!((seen, queue.is_hasty()), (310, false));
    }

    /// However many transactions write the same name, each search of the queue is short.
    #[test]
    fn each_search_of_the_queue_is_bounded() {
        let mut queue = queue(&["a"; LOOK_AHEAD + 10]);
        queue.push(request("b"), Haste::Now, 9999);
        let first = queue.take().unwrap();
        assert_eq!(first.parts.len(), 1);
        for _ in 0..9 {
            assert_eq!(queue.take().unwrap().parts.len(), 1);
        }
        assert_eq!(queue.take().unwrap().parts.len(), 2);
    }
}
