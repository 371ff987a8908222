//! The transactions of the journal, and the meaning of their answers. Each compares the mod revision of the key `term`
//! with that of the last commit, and each commit writes the key. So a commit that arrives twice, or late, or from a
//! leader that another one has followed, changes nothing.

use super::format::{Contact, Names, Span, Term, write_hold, write_leader};
use crate::rpc::compare::{CompareResult, CompareTarget, TargetUnion};
use crate::rpc::request_op::Request;
use crate::rpc::response_op::Response;
use crate::rpc::{
    Compare, DeleteRangeRequest, KeyValue, PutRequest, RangeRequest, RangeResponse, RequestOp,
    TxnRequest, TxnResponse,
};
use leases::journal::Record;
use std::collections::HashSet;

/// The most holds that one call reads.
const PAGE: i64 = 1000;

fn unchanged(key: Vec<u8>, revision: i64) -> Compare {
    Compare {
        result: CompareResult::Equal.into(),
        target: CompareTarget::Mod.into(),
        key,
        target_union: Some(TargetUnion::ModRevision(revision)),
        range_end: Vec::new(),
    }
}

const fn op(request: Request) -> RequestOp {
    RequestOp { request: Some(request) }
}

fn put(key: Vec<u8>, value: Vec<u8>, lease: i64) -> RequestOp {
    op(Request::RequestPut(PutRequest { key, value, lease }))
}

fn read(key: Vec<u8>) -> RequestOp {
    op(Request::RequestRange(RangeRequest { key, ..RangeRequest::default() }))
}

/// Writes in a transaction within the transaction. While etcd has no space, it refuses all others that write.
fn guarded(names: &Names, compare: Vec<Compare>, writes: Vec<RequestOp>) -> TxnRequest {
    let inner = TxnRequest { compare: Vec::new(), success: writes, failure: Vec::new() };
    let failure = vec![read(names.term())];
    TxnRequest { compare, success: vec![op(Request::RequestTxn(inner))], failure }
}

/// Reads the two keys of leadership. Nothing is compared, so the answer comes from the success branch.
pub(super) fn leadership(names: &Names) -> TxnRequest {
    let success = vec![read(names.term()), read(names.leader())];
    TxnRequest { compare: Vec::new(), success, failure: Vec::new() }
}

/// The keys `term` and `leader`, as read by [`leadership`].
pub(super) fn read_leadership(
    answer: &TxnResponse,
) -> Option<(Option<&KeyValue>, Option<&KeyValue>)> {
    let [term, leader] = &answer.responses[..] else { return None };
    Some((range(term.response.as_ref())?.kvs.first(), range(leader.response.as_ref())?.kvs.first()))
}

/// Takes the lead, if neither key has changed since these revisions (0: there was none).
pub(super) fn win(
    names: &Names,
    term: (i64, &Term),
    leader: (i64, &Contact),
    lease: i64,
) -> TxnRequest {
    let ((revision, term), (leader, contact)) = (term, leader);
    let compare = vec![unchanged(names.term(), revision), unchanged(names.leader(), leader)];
    let value = write_leader(term.leader, contact);
    let writes = vec![put(names.leader(), value, lease), put(names.term(), term.write(), 0)];
    guarded(names, compare, writes)
}

/// Records changes, and `term` as the mark of this commit. Of several records of one hold the last one counts: etcd
/// refuses a transaction that writes a key twice.
pub(super) fn commit(names: &Names, revision: i64, term: &Term, records: &[Record]) -> TxnRequest {
    let mut seen = HashSet::new();
    let last = records.iter().rev().filter(|record| seen.insert(record.token()));
    let mut writes: Vec<RequestOp> = last.map(|record| write(names, record)).collect();
    writes.push(put(names.term(), term.write(), 0));
    guarded(names, vec![unchanged(names.term(), revision)], writes)
}

fn write(names: &Names, record: &Record) -> RequestOp {
    let key = names.hold(record.token().fence());
    match record {
        Record::Granted(hold) | Record::Extended(hold) => put(key, write_hold(hold), 0),
        Record::Ended(_) => {
            op(Request::RequestDeleteRange(DeleteRangeRequest { key, range_end: Vec::new() }))
        }
    }
}

/// Asks whether `term` is unchanged. Both branches read the key, and not serializably: a transaction without any read
/// is answered by any member from its own data, which may be old.
pub(super) fn confirm(names: &Names, revision: i64) -> TxnRequest {
    let branch = vec![read(names.term())];
    let compare = vec![unchanged(names.term(), revision)];
    TxnRequest { compare, success: branch.clone(), failure: branch }
}

/// The mod revision of `term` after a commit or a win, if this one took effect now or by an earlier attempt: then
/// the key has its value.
pub(super) fn read_committed(answer: &TxnResponse, term: &Term) -> Option<i64> {
    if answer.succeeded {
        return Some(answer.header.as_ref()?.revision);
    }
    let found = range(answer.responses.first()?.response.as_ref())?.kvs.first()?;
    (found.value == term.write()).then_some(found.mod_revision)
}

/// Reads holds from this name on.
pub(super) fn page(span: &Span, from: Vec<u8>) -> RangeRequest {
    RangeRequest { key: from, range_end: span.to.clone(), limit: PAGE, ..RangeRequest::default() }
}

/// Whether there is any key in the span.
pub(super) fn any(span: Span) -> RangeRequest {
    let Span { from, to } = span;
    RangeRequest { key: from, range_end: to, limit: 1, keys_only: true, ..RangeRequest::default() }
}

const fn range(response: Option<&Response>) -> Option<&RangeResponse> {
    match response {
        Some(Response::ResponseRange(range)) => Some(range),
        Some(
            Response::ResponsePut(_) | Response::ResponseDeleteRange(_) | Response::ResponseTxn(_),
        )
        | None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::MAX_RECORDS;
    use super::super::format::LeaderId;
    use super::*;
    use crate::rpc::{ResponseHeader, ResponseOp};
    use leases::journal::RecordedHold;
    use leases::{Claim, Token, Ttl};

    /// `--max-txn-ops` of etcd; the operations of inner transactions count.
    const MOST_OPERATIONS: usize = 128;

    const TERM: Term = Term {
        cluster: 1,
        longest: Ttl::new(9).unwrap(),
        fence: 5,
        leader: LeaderId(7),
        commit: 3,
        wait: None,
    };

    fn hold(fence: u64) -> RecordedHold {
        RecordedHold {
            key: b"k".as_slice().into(),
            claim: Claim::LOCK,
            token: Token::new(fence, 1),
            ttl: Ttl::new(9).unwrap(),
            left_micros: 9_000_000,
            label: None,
            slot: None,
        }
    }

    fn inner(request: &TxnRequest) -> &[RequestOp] {
        let [RequestOp { request: Some(Request::RequestTxn(inner)) }] = &request.success[..] else {
            panic!("a transaction within the transaction: {request:?}");
        };
        &inner.success
    }

    #[test]
    fn the_largest_commit_is_as_large_as_etcd_permits() {
        let records: Vec<Record> =
            (0..).take(MAX_RECORDS).map(|n| Record::Granted(hold(n))).collect();
        let request = commit(&Names::new(""), 4, &TERM, &records);
        assert_eq!(1 + inner(&request).len(), MOST_OPERATIONS);
    }

    #[test]
    fn the_last_record_of_a_hold_counts() {
        let records = [
            Record::Granted(hold(1)),
            Record::Granted(hold(2)),
            Record::Extended(RecordedHold { left_micros: 7, ..hold(1) }),
            Record::Ended(Token::new(2, 1)),
        ];
        let names = Names::new("");
        let request = commit(&names, 4, &TERM, &records);
        let [RequestOp { request: Some(Request::RequestDeleteRange(ended)) }, extended, term] =
            inner(&request)
        else {
            panic!("{request:?}");
        };
        assert_eq!(ended.key, names.hold(2));
        assert_eq!(*extended, put(names.hold(1), b"0000000000000001 1 9 7 k".to_vec(), 0));
        assert_eq!(*term, put(names.term(), TERM.write(), 0));
    }

    fn failed(value: Vec<u8>) -> TxnResponse {
        let kvs = vec![KeyValue { value, mod_revision: 40, ..KeyValue::default() }];
        let range = Response::ResponseRange(RangeResponse { kvs, ..RangeResponse::default() });
        TxnResponse {
            succeeded: false,
            responses: vec![ResponseOp { response: Some(range) }],
            header: Some(ResponseHeader { revision: 50, ..ResponseHeader::default() }),
        }
    }

    /// An attempt before the answered one may have done it. Then the key names this very commit.
    #[test]
    fn a_commit_is_done_if_the_key_names_it() {
        let done = TxnResponse { succeeded: true, ..failed(Vec::new()) };
        assert_eq!(read_committed(&done, &TERM), Some(50));
        assert_eq!(read_committed(&failed(TERM.write()), &TERM), Some(40));
        for other in [
            Term { commit: 2, ..TERM },
            Term { commit: 4, ..TERM },
            Term { leader: LeaderId(8), ..TERM },
        ] {
            assert_eq!(read_committed(&failed(other.write()), &TERM), None);
        }
        assert_eq!(read_committed(&failed(Vec::new()), &TERM), None);
    }

    /// Without a read that is not serializable, an isolated member answers from old data.
    #[test]
    fn both_branches_of_a_confirmation_read() {
        let request = confirm(&Names::new(""), 4);
        for branch in [&request.success, &request.failure] {
            let [RequestOp { request: Some(Request::RequestRange(range)) }] = &branch[..] else {
                panic!("{request:?}");
            };
            assert!(!range.serializable);
        }
    }
}
