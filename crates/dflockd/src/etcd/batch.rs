//! Transactions waiting to be sent, several in one request: etcd pays for each request and each
//! proposal, hardly for what is in them. Pure.
//!
//! Two about the same key of the protocol never go together: all tickets of one request get the
//! same revision, and their order is their place in the queue.

use super::rpc::TxnRequest;
use super::txn;
use std::collections::{HashSet, VecDeque};

/// Most transactions in one request; etcd refuses more than 128 by default.
const MOST: usize = 100;

#[derive(Debug)]
struct Waiting<B> {
    key: Box<[u8]>,
    request: TxnRequest,
    back: B,
}

/// `B` is where an answer goes.
#[derive(Debug)]
pub(super) struct Queue<B> {
    waiting: VecDeque<Waiting<B>>,
}

/// To be sent as one request.
#[derive(Debug)]
pub(super) struct Batch<B> {
    /// Each with where its answer goes.
    pub(super) parts: Vec<(TxnRequest, B)>,
}

impl<B> Queue<B> {
    pub(super) const fn new() -> Self {
        Self { waiting: VecDeque::new() }
    }

    pub(super) fn push(&mut self, key: &[u8], request: TxnRequest, back: B) {
        self.waiting.push_back(Waiting { key: key.into(), request, back });
    }

    /// The oldest, and with it what may go along; transactions of one key keep their order.
    pub(super) fn take(&mut self) -> Option<Batch<B>> {
        if self.waiting.is_empty() {
            return None;
        }
        let mut keys: HashSet<Box<[u8]>> = HashSet::new();
        let mut parts = Vec::new();
        let mut rest = VecDeque::new();
        while let Some(item) = self.waiting.pop_front() {
            if parts.len() == MOST || keys.contains(&item.key) {
                rest.push_back(item);
                if parts.len() == MOST {
                    break;
                }
            } else {
                parts.push((item.request, item.back));
                keys.insert(item.key);
            }
        }
        rest.append(&mut self.waiting);
        self.waiting = rest;
        Some(Batch { parts })
    }
}

/// One request for all parts.
pub(super) fn together(parts: &[TxnRequest]) -> TxnRequest {
    match parts {
        [only] => only.clone(),
        several => txn::batch(several.to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(keys: &[&str]) -> Queue<usize> {
        let mut queue = Queue::new();
        for (place, key) in keys.iter().enumerate() {
            queue.push(key.as_bytes(), TxnRequest::default(), place);
        }
        queue
    }

    fn batches(mut queue: Queue<usize>) -> Vec<Vec<usize>> {
        std::iter::from_fn(|| queue.take())
            .map(|batch| batch.parts.into_iter().map(|(_, place)| place).collect())
            .collect()
    }

    #[test]
    fn one_key_is_in_a_batch_once_and_in_order() {
        assert_eq!(
            batches(queue(&["a", "b", "a", "c", "a", "b"])),
            [vec![0, 1, 3], vec![2, 5], vec![4]]
        );
        assert!(batches(queue(&[])).is_empty());
    }

    #[test]
    fn a_batch_is_not_greater_than_etcd_takes() {
        let names: Vec<String> = (0..250).map(|n| n.to_string()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let sizes: Vec<usize> = batches(queue(&names)).iter().map(Vec::len).collect();
        assert_eq!(sizes, [100, 100, 50]);
        const { assert!(MOST <= 128) };
        let many = ["same"; 120];
        assert!(batches(queue(&many)).iter().all(|batch| batch.len() == 1));
    }
}
