//! The transactions of the store, and the meaning of their answers.
//!
//! Each is one request. If an answer is lost, the transaction may have happened. Each has a guard, so it can be
//! repeated, except the create of a ticket (see [`bury`]).

use super::keys::{ALONE_BELOW, Names, Share, Span};
use super::rpc::compare::{CompareResult, CompareTarget, TargetUnion};
use super::rpc::request_op::Request;
use super::rpc::response_op::Response;
use super::rpc::{
    Compare, DeleteRangeRequest, KeyValue, PutRequest, RangeRequest, RangeResponse, RequestOp,
    ResponseOp, TxnRequest, TxnResponse,
};
use leases::Claim;
use std::sync::Arc;

/// The registration of a front-end. Its tickets can be made only while it exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Session {
    /// The lease of all keys that end with the front-end.
    pub(super) lease: i64,
    /// The revision at which the front-end's own key was made.
    pub(super) revision: i64,
}

/// A condition on one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Guard {
    /// Its create revision.
    Create(i64),
    /// Its mod revision.
    Mod(i64),
}

impl Guard {
    fn on(self, key: Vec<u8>) -> Compare {
        match self {
            Self::Create(revision) => created(key, revision),
            Self::Mod(revision) => {
                compare(key, CompareResult::Equal, TargetUnion::ModRevision(revision))
            }
        }
    }
}

pub(super) fn compare(key: Vec<u8>, result: CompareResult, than: TargetUnion) -> Compare {
    let target = match &than {
        TargetUnion::Version(_) => CompareTarget::Version,
        TargetUnion::CreateRevision(_) => CompareTarget::Create,
        TargetUnion::ModRevision(_) => CompareTarget::Mod,
        TargetUnion::Value(_) => CompareTarget::Value,
        TargetUnion::Lease(_) => CompareTarget::Lease,
    };
    Compare {
        result: result.into(),
        target: target.into(),
        key,
        target_union: Some(than),
        range_end: Vec::new(),
    }
}

/// The key was made at this revision; 0 if it must not exist.
pub(super) fn created(key: Vec<u8>, revision: i64) -> Compare {
    compare(key, CompareResult::Equal, TargetUnion::CreateRevision(revision))
}

/// Nothing in the span was made after this revision; 0 if it must be empty.
pub(super) fn none_since(span: Span, revision: i64) -> Compare {
    let than = TargetUnion::CreateRevision(revision.saturating_add(1));
    Compare { range_end: span.to, ..compare(span.from, CompareResult::Less, than) }
}

/// There are tickets in the span, and all of them are of readers.
fn all_shared(span: Span) -> Compare {
    let than = TargetUnion::Value(ALONE_BELOW.to_vec());
    Compare { range_end: span.to, ..compare(span.from, CompareResult::Greater, than) }
}

const fn op(request: Request) -> RequestOp {
    RequestOp { request: Some(request) }
}

pub(super) fn put(key: Vec<u8>, value: Vec<u8>, lease: i64) -> RequestOp {
    op(Request::RequestPut(PutRequest { key, value, lease }))
}

fn delete(key: Vec<u8>) -> RequestOp {
    op(Request::RequestDeleteRange(DeleteRangeRequest { key, range_end: Vec::new() }))
}

fn look(key: Vec<u8>) -> RequestOp {
    op(Request::RequestRange(RangeRequest { key, ..RangeRequest::default() }))
}

pub(super) fn count(Span { from, to }: Span) -> RequestOp {
    let range =
        RangeRequest { key: from, range_end: to, count_only: true, ..RangeRequest::default() };
    op(Request::RequestRange(range))
}

pub(super) const fn nested(txn: TxnRequest) -> RequestOp {
    op(Request::RequestTxn(txn))
}

/// The behaviour of a new ticket behind other tickets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Behind {
    /// Waits in the queue.
    Wait,
    /// Waits in the queue, and other tickets are known to exist, so etcd need not count them. If they have gone, it
    /// waits for nobody; the front-end that watches the queue will notice.
    Queue,
    /// Is a hold if the count leaves room, and is changed to a waiting ticket otherwise.
    Hope,
    /// Is not made. The tickets up to this revision are known to leave a slot free; 0 if that is not known of any.
    Stay(i64),
}

/// A ticket to be made.
#[derive(Clone, Debug)]
pub(super) struct Create<'a> {
    pub(super) key: &'a [u8],
    pub(super) nonce: u64,
    pub(super) claim: Claim,
    pub(super) behind: Behind,
    /// All keys are counted if its key is new.
    pub(super) counts: bool,
    /// Its text as a hold.
    pub(super) held: Vec<u8>,
    /// Its text in the queue.
    pub(super) waiting: Vec<u8>,
}

/// The outcome of [`create`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Created {
    /// The ticket exists and is a hold, made at this revision.
    Held(i64),
    /// The same, and the key is new, or had another limit. The number of keys includes it, if they were counted.
    NewKey { revision: i64, keys: Option<i64> },
    /// It exists behind other tickets, or is marked as a hold although `tickets` may contradict that.
    Behind { revision: i64, tickets: i64 },
    /// It was not made: there are this many tickets at this revision.
    Full { tickets: i64, revision: i64 },
    /// The key has another limit.
    Mismatch,
    /// The front-end's registration is gone, or the ticket was buried.
    NoSession,
}

/// Makes a ticket, and its key's limit if the key is new or unused.
pub(super) fn create(
    names: &Names,
    front: &[u8],
    session: Session,
    new: &Create<'_>,
) -> TxnRequest {
    let name = names.ticket(new.key, new.nonce);
    let limit = names.limit(new.key);
    let limit_text = new.claim.limit().count().to_string().into_bytes();
    let held = || put(name.clone(), new.held.clone(), 0);
    let (seen, behind) = match new.behind {
        Behind::Wait | Behind::Queue => {
            (0, vec![put(name.clone(), new.waiting.clone(), session.lease)])
        }
        Behind::Hope => (0, vec![held()]),
        Behind::Stay(seen) => (seen, Vec::new()),
    };
    // Beside other readers, a reader is a hold at once.
    let behind = match (new.behind, Share::of(new.claim)) {
        (Behind::Queue, _) | (_, Share::Alone) => behind,
        (Behind::Wait | Behind::Hope | Behind::Stay(_), Share::Shared) => {
            vec![nested(TxnRequest {
                compare: vec![all_shared(names.tickets(new.key))],
                success: vec![held()],
                failure: behind,
            })]
        }
    };
    let ticket = match new.behind {
        Behind::Queue => TxnRequest { success: behind, ..TxnRequest::default() },
        Behind::Wait | Behind::Hope | Behind::Stay(_) => TxnRequest {
            compare: vec![none_since(names.tickets(new.key), seen)],
            success: vec![held()],
            failure: behind,
        },
    };
    // Also a key that exists without tickets, with another limit.
    let mut new_key = TxnRequest {
        compare: vec![none_since(names.tickets(new.key), 0)],
        success: vec![put(limit.clone(), limit_text.clone(), 0), held()],
        failure: Vec::new(),
    };
    if new.counts {
        new_key.success.push(count(names.limits()));
    }
    let known_key = TxnRequest {
        compare: vec![compare(limit, CompareResult::Equal, TargetUnion::Value(limit_text))],
        success: vec![nested(ticket), count(names.tickets(new.key))],
        failure: vec![nested(new_key)],
    };
    TxnRequest {
        compare: vec![
            created(front.to_vec(), session.revision),
            created(names.tombstone(new.nonce), 0),
        ],
        success: vec![nested(known_key)],
        failure: Vec::new(),
    }
}

/// `None` if this is no answer to such a request.
pub(super) fn read_created(behind: Behind, answer: &TxnResponse) -> Option<Created> {
    let revision = answer.header.as_ref()?.revision;
    if !answer.succeeded {
        return Some(Created::NoSession);
    }
    let known_key = inner(answer.responses.first()?)?;
    if !known_key.succeeded {
        let new_key = inner(known_key.responses.first()?)?;
        if !new_key.succeeded {
            return Some(Created::Mismatch);
        }
        let counted = new_key.responses.get(2).and_then(ranged);
        return Some(Created::NewKey { revision, keys: counted.map(|all| all.count) });
    }
    let ticket = inner(known_key.responses.first()?)?;
    let tickets = ranged(known_key.responses.get(1)?)?.count;
    let shares = ticket.responses.first().and_then(inner).is_some_and(|shared| shared.succeeded);
    Some(match (ticket.succeeded || shares, behind) {
        (_, Behind::Queue) | (false, Behind::Wait | Behind::Hope) => {
            Created::Behind { revision, tickets }
        }
        (true, _) => Created::Held(revision),
        (false, Behind::Stay(_)) => Created::Full { tickets, revision },
    })
}

pub(super) fn inner(answer: &ResponseOp) -> Option<&TxnResponse> {
    match answer.response.as_ref()? {
        Response::ResponseTxn(txn) => Some(txn),
        Response::ResponseRange(_)
        | Response::ResponsePut(_)
        | Response::ResponseDeleteRange(_) => None,
    }
}

pub(super) fn ranged(answer: &ResponseOp) -> Option<&RangeResponse> {
    match answer.response.as_ref()? {
        Response::ResponseRange(range) => Some(range),
        Response::ResponseTxn(_) | Response::ResponsePut(_) | Response::ResponseDeleteRange(_) => {
            None
        }
    }
}

/// Makes sure that a ticket with an unanswered create never exists: removes it if it is there, and leaves a
/// tombstone that stops the create if it still comes. The tombstone is on the lease of the front-end's key, and
/// without that key the create has no effect either.
///
/// Tickets that were made together share the tombstone of the first.
pub(super) fn bury(names: &Names, session: Session, tickets: &[(Arc<[u8]>, u64)]) -> TxnRequest {
    let first = tickets.iter().take(1);
    let tombstone = first.map(|(_, nonce)| put(names.tombstone(*nonce), Vec::new(), session.lease));
    let gone = tickets.iter().map(|(key, nonce)| delete(names.ticket(key, *nonce)));
    TxnRequest { success: tombstone.chain(gone).collect(), ..TxnRequest::default() }
}

/// The outcome of a guarded change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Changed {
    /// Done, at this revision.
    Done(i64),
    /// The key does not fulfil the guard; this is its state.
    Other(KeyValue),
    /// There is no such key.
    Gone,
    /// There is no such key, after an attempt of ours with a lost answer, which may have removed it.
    Vanished,
}

/// Rewrites a ticket.
pub(super) fn rewrite(name: &[u8], guard: Guard, value: Vec<u8>, lease: i64) -> TxnRequest {
    TxnRequest {
        compare: vec![guard.on(name.to_vec())],
        success: vec![put(name.to_vec(), value, lease)],
        failure: vec![look(name.to_vec())],
    }
}

/// Removes a ticket.
pub(super) fn remove(name: &[u8], guard: Guard) -> TxnRequest {
    TxnRequest {
        compare: vec![guard.on(name.to_vec())],
        success: vec![delete(name.to_vec())],
        failure: vec![look(name.to_vec())],
    }
}

pub(super) fn read_changed(answer: &TxnResponse) -> Option<Changed> {
    if answer.succeeded {
        return Some(Changed::Done(answer.header.as_ref()?.revision));
    }
    let found = ranged(answer.responses.first()?)?.kvs.first();
    Some(found.map_or(Changed::Gone, |found| Changed::Other(found.clone())))
}

/// The next ticket in the queue, which becomes a holder together with the end of the one before.
#[derive(Clone, Debug)]
pub(super) struct Next {
    pub(super) name: Vec<u8>,
    pub(super) revision: i64,
    pub(super) held: Vec<u8>,
}

/// Removes a hold, and makes the next ticket a holder if it has not changed.
pub(super) fn hand_over(name: &[u8], guard: Guard, next: Next) -> TxnRequest {
    let both = TxnRequest {
        compare: vec![Guard::Mod(next.revision).on(next.name.clone())],
        success: vec![delete(name.to_vec()), put(next.name, next.held, 0)],
        failure: vec![delete(name.to_vec())],
    };
    TxnRequest {
        compare: vec![guard.on(name.to_vec())],
        success: vec![nested(both)],
        failure: vec![look(name.to_vec())],
    }
}

/// Whether the next ticket was made a holder.
pub(super) fn is_handed_over(answer: &TxnResponse) -> bool {
    let first = answer.responses.first().and_then(inner);
    answer.succeeded && first.is_some_and(|both| both.succeeded)
}

/// Forgets a key whose limit was written at `revision`, if it has no ticket.
pub(super) fn forget(names: &Names, key: &[u8], revision: i64) -> TxnRequest {
    let limit = names.limit(key);
    TxnRequest {
        compare: vec![none_since(names.tickets(key), 0), Guard::Mod(revision).on(limit.clone())],
        success: vec![delete(limit)],
        failure: Vec::new(),
    }
}

/// Registers a front-end that is not registered.
pub(super) fn register(front: &[u8], lease: i64) -> TxnRequest {
    TxnRequest {
        compare: vec![created(front.to_vec(), 0)],
        success: vec![put(front.to_vec(), Vec::new(), lease)],
        failure: vec![look(front.to_vec())],
    }
}

/// The names that a transaction may write, whichever branch is taken.
pub(super) fn written(txn: &TxnRequest) -> Vec<&[u8]> {
    let mut names = Vec::new();
    let mut open = vec![txn];
    while let Some(txn) = open.pop() {
        for op in txn.success.iter().chain(&txn.failure) {
            match op.request.as_ref() {
                Some(Request::RequestPut(put)) => names.push(put.key.as_slice()),
                Some(Request::RequestDeleteRange(delete)) => names.push(delete.key.as_slice()),
                Some(Request::RequestTxn(inner)) => open.push(inner),
                Some(Request::RequestRange(_)) | None => {}
            }
        }
    }
    names
}

/// Combines several transactions into one; no two of them write the same name. Without space, etcd refuses a
/// transaction that writes, but looks only at its own writes, not at those of transactions inside it.
pub(super) fn batch(parts: Vec<TxnRequest>) -> TxnRequest {
    let success = parts.into_iter().map(nested).collect();
    TxnRequest { compare: Vec::new(), success, failure: Vec::new() }
}

/// The answers of the parts, each with the common revision.
pub(super) fn split(answer: TxnResponse) -> Vec<Option<TxnResponse>> {
    let header = answer.header;
    let part = |op: ResponseOp| match op.response {
        Some(Response::ResponseTxn(part)) => Some(TxnResponse { header, ..part }),
        Some(
            Response::ResponseRange(_)
            | Response::ResponsePut(_)
            | Response::ResponseDeleteRange(_),
        )
        | None => None,
    };
    answer.responses.into_iter().map(part).collect()
}

#[cfg(test)]
#[path = "txn_tests.rs"]
mod tests;
