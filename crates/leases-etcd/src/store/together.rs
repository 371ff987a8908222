//! Tickets of several keys: one transaction makes all of them, each a hold at once, or none.

use super::keys::Names;
use super::rpc::compare::{CompareResult, TargetUnion};
use super::rpc::{TxnRequest, TxnResponse};
use super::txn::{Session, compare, count, created, inner, nested, none_since, put, ranged};
use leases::Limit;
use std::sync::Arc;

/// The outcome of [`create_all`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Together {
    /// All tickets exist, each as a hold. The keys at these places are new, or had another limit. The number
    /// includes them, if the keys were counted.
    Held { new: Vec<usize>, keys: Option<i64> },
    /// None was made: another client holds one of the keys or waits for it.
    InUse,
    /// The front-end's registration is gone, or the tickets were buried.
    NoSession,
}

/// Makes a ticket for each of these keys with its nonce, all with this text, and the limit of each key that is new
/// or unused. If no key has a ticket yet, each ticket is a hold.
pub(super) fn create_all(
    names: &Names,
    front: &[u8],
    session: Session,
    tickets: &[(Arc<[u8]>, u64)],
    held: &[u8],
    counts: bool,
) -> TxnRequest {
    let one = Limit::ONE.count().to_string().into_bytes();
    let limits = tickets.iter().map(|(key, _)| {
        let limit = names.limit(key);
        let is_known = TargetUnion::Value(one.clone());
        nested(TxnRequest {
            compare: vec![compare(limit.clone(), CompareResult::Equal, is_known)],
            success: Vec::new(),
            failure: vec![put(limit, one.clone(), 0)],
        })
    });
    let holds = tickets.iter().map(|(key, nonce)| put(names.ticket(key, *nonce), held.to_vec(), 0));
    let counted = counts.then(|| count(names.limits()));
    let all = TxnRequest {
        compare: tickets.iter().map(|(key, _)| none_since(names.tickets(key), 0)).collect(),
        success: limits.chain(holds).chain(counted).collect(),
        failure: Vec::new(),
    };
    let tombstone = tickets.iter().take(1).map(|(_, nonce)| created(names.tombstone(*nonce), 0));
    TxnRequest {
        compare: tombstone.chain([created(front.to_vec(), session.revision)]).collect(),
        success: vec![nested(all)],
        failure: Vec::new(),
    }
}

/// `None` if this is no answer to such a request for this many keys.
pub(super) fn read_created_all(many: usize, answer: &TxnResponse) -> Option<Together> {
    if !answer.succeeded {
        return Some(Together::NoSession);
    }
    let all = inner(answer.responses.first()?)?;
    if !all.succeeded {
        return Some(Together::InUse);
    }
    let mut new = Vec::new();
    for (place, limit) in all.responses.iter().take(many).enumerate() {
        if !inner(limit)?.succeeded {
            new.push(place);
        }
    }
    let keys = all.responses.get(2 * many).and_then(ranged).map(|all| all.count);
    Some(Together::Held { new, keys })
}
