//! As much of etcd as transactions and reads need, in memory: for tests that move time by hand.

use super::rpc::compare::{CompareResult, TargetUnion};
use super::rpc::request_op::Request;
use super::rpc::response_op::Response;
use super::rpc::{
    Compare, DeleteRangeResponse, KeyValue, PutRequest, PutResponse, RangeRequest, RangeResponse,
    RequestOp, ResponseHeader, ResponseOp, TxnRequest, TxnResponse,
};
use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex};
use tokio::sync::oneshot;

#[derive(Clone, Default)]
struct Keys {
    revision: i64,
    all: BTreeMap<Vec<u8>, KeyValue>,
    /// Keys gone through to count them.
    counted: usize,
    /// Leases that have ended.
    ended: HashSet<i64>,
}

/// One cluster; clones are the same one.
#[derive(Clone, Default)]
pub(crate) struct Etcd {
    keys: Arc<Mutex<Keys>>,
    /// The answer to the next call is under way until this is told.
    late: Arc<Mutex<Option<oneshot::Receiver<()>>>>,
}

impl Etcd {
    pub(crate) fn range(&self, request: &RangeRequest) -> RangeResponse {
        self.keys.lock().unwrap().range(request)
    }

    pub(crate) fn counted(&self) -> usize {
        self.keys.lock().unwrap().counted
    }

    /// Deletes all keys of this lease. No key can be put on it any more.
    pub(crate) fn end_lease(&self, lease: i64) {
        let mut keys = self.keys.lock().unwrap();
        keys.ended.insert(lease);
        keys.all.retain(|_, kv| kv.lease != lease);
    }

    pub(crate) fn has(&self, key: &[u8]) -> bool {
        self.keys.lock().unwrap().all.contains_key(key)
    }

    /// The next call is carried out at once, and its answer arrives when the sender is told, or dropped.
    pub(crate) fn delay_next_answer(&self) -> oneshot::Sender<()> {
        let (arrive, late) = oneshot::channel();
        *self.late.lock().unwrap() = Some(late);
        arrive
    }

    /// A transaction as a client's call: nothing when it would put something on a lease that has ended.
    pub(crate) async fn carry(&self, request: &TxnRequest) -> Option<TxnResponse> {
        let is_on_ended =
            puts(request).any(|put| self.keys.lock().unwrap().ended.contains(&put.lease));
        let answer = (!is_on_ended).then(|| self.txn(request));
        let late = self.late.lock().unwrap().take();
        if let Some(late) = late {
            let _told_or_dropped = late.await;
        }
        answer
    }

    /// All of it happens at one revision, and its conditions are judged before any of it.
    pub(crate) fn txn(&self, request: &TxnRequest) -> TxnResponse {
        let mut keys = self.keys.lock().unwrap();
        let before = keys.clone();
        let mut writes = 0;
        let mut answer = keys.txn(&before, request, &mut writes);
        if writes > 0 {
            keys.revision += 1;
        }
        answer.header = Some(keys.header());
        answer
    }
}

/// The keys that a transaction may put.
fn puts(request: &TxnRequest) -> Box<dyn Iterator<Item = &PutRequest> + '_> {
    let ops = request.success.iter().chain(&request.failure);
    Box::new(ops.flat_map(|op| -> Box<dyn Iterator<Item = &PutRequest>> {
        match op.request.as_ref() {
            Some(Request::RequestPut(put)) => Box::new(std::iter::once(put)),
            Some(Request::RequestTxn(txn)) => puts(txn),
            Some(Request::RequestRange(_) | Request::RequestDeleteRange(_)) | None => {
                Box::new(std::iter::empty())
            }
        }
    }))
}

impl Keys {
    fn header(&self) -> ResponseHeader {
        ResponseHeader { revision: self.revision, ..ResponseHeader::default() }
    }

    fn within(&self, key: &[u8], end: &[u8]) -> Vec<KeyValue> {
        if end.is_empty() {
            return self.all.get(key).cloned().into_iter().collect();
        }
        self.all.range(key.to_vec()..end.to_vec()).map(|(_, kv)| kv.clone()).collect()
    }

    fn range(&mut self, request: &RangeRequest) -> RangeResponse {
        let mut kvs = self.within(&request.key, &request.range_end);
        let count = i64::try_from(kvs.len()).unwrap();
        if request.count_only {
            self.counted += kvs.len();
            kvs.clear();
        }
        RangeResponse { header: Some(self.header()), kvs, more: false, count }
    }

    fn holds(&self, compare: &Compare) -> bool {
        let found = self.within(&compare.key, &compare.range_end);
        let target = compare.target_union.as_ref().unwrap();
        if let TargetUnion::Value(value) = target {
            let is_so = |kv: &KeyValue| match compare.result() {
                CompareResult::Equal => kv.value == *value,
                CompareResult::Greater => kv.value > *value,
                CompareResult::Less | CompareResult::NotEqual => {
                    unreachable!("the store asks for none")
                }
            };
            return !found.is_empty() && found.iter().all(is_so);
        }
        let nothing = [KeyValue::default()];
        let found = if found.is_empty() { &nothing[..] } else { &found };
        found.iter().all(|kv| {
            let (is, than) = match target {
                TargetUnion::CreateRevision(than) => (kv.create_revision, than),
                TargetUnion::ModRevision(than) => (kv.mod_revision, than),
                TargetUnion::Version(_) | TargetUnion::Value(_) | TargetUnion::Lease(_) => {
                    unreachable!("the store asks for none")
                }
            };
            // Equal, Greater, Less, NotEqual.
            [is == *than, is > *than, is < *than, is != *than]
                [usize::try_from(compare.result).unwrap()]
        })
    }

    fn txn(&mut self, before: &Self, request: &TxnRequest, writes: &mut usize) -> TxnResponse {
        let succeeded = request.compare.iter().all(|compare| before.holds(compare));
        let ops = if succeeded { &request.success } else { &request.failure };
        let responses = ops.iter().map(|op| self.act(before, op, writes)).collect();
        TxnResponse { header: None, succeeded, responses }
    }

    fn act(&mut self, before: &Self, op: &RequestOp, writes: &mut usize) -> ResponseOp {
        let response = match op.request.as_ref().unwrap() {
            Request::RequestRange(range) => Response::ResponseRange(self.range(range)),
            Request::RequestTxn(txn) => Response::ResponseTxn(self.txn(before, txn, writes)),
            Request::RequestPut(put) => {
                *writes += 1;
                self.put(put);
                Response::ResponsePut(PutResponse {})
            }
            Request::RequestDeleteRange(delete) => {
                let deleted = i64::from(self.all.remove(&delete.key).is_some());
                *writes += usize::from(deleted > 0);
                Response::ResponseDeleteRange(DeleteRangeResponse { deleted })
            }
        };
        ResponseOp { response: Some(response) }
    }

    fn put(&mut self, put: &PutRequest) {
        let mod_revision = self.revision + 1;
        let kv = self.all.entry(put.key.clone()).or_insert_with(|| KeyValue {
            key: put.key.clone(),
            create_revision: mod_revision,
            ..KeyValue::default()
        });
        kv.version += 1;
        (kv.mod_revision, kv.value, kv.lease) = (mod_revision, put.value.clone(), put.lease);
    }
}
