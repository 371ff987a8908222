//! Takes several keys by one request: all of them if they are free.

use super::claim::Claim;
use super::dialogue::Grant;
use super::error::ClientError;
use super::lease::{Beginning, Lease, confirmed, renewed};
use super::order::{attempted, go_together};
use super::unclaimed::Unclaimed;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// `None`: they cannot be had in this way, and none of them is held.
///
/// Dropping the future releases what was granted.
pub(super) async fn take(
    claims: &[Claim],
    is_persistent: bool,
) -> Result<Option<Vec<Lease>>, ClientError> {
    let parts: Vec<_> = claims.iter().map(Claim::part).collect();
    let ([first, others @ ..], true) = (claims, go_together(&parts)) else { return Ok(None) };
    let place =
        Unclaimed::on(first.route.open_patiently().await?, &first.route, &first.key, first.kind);
    let beside = others.iter().map(|it| Unclaimed::of(&it.route, &it.key, it.kind)).collect();
    attempted(ask(place.with(beside), claims).await, is_persistent)
}

async fn ask(mut place: Unclaimed, claims: &[Claim]) -> Result<Option<Vec<Lease>>, ClientError> {
    let keys: Vec<_> = claims.iter().map(Claim::key).collect();
    let ttl = claims.first().and_then(|claim| claim.ttl);
    let asked_at = Instant::now();
    let Some(grants) = place.ask()?.acquire_all(&keys, ttl).await? else { return Ok(None) };
    let beside = place.all_granted(&grants);
    let mut grants = grants.into_iter();
    let Some(grant) = grants.next() else { return Ok(None) };
    let mut moves = JoinSet::new();
    for (at, (other, grant)) in (1..).zip(beside.into_iter().zip(grants)) {
        moves.spawn(async move { (at, moved(other, grant).await) });
    }
    let mut outcomes = moves.join_all().await;
    // The connection of the request stays with the first key, until the others have theirs.
    outcomes.push((0, confirmed(place, grant, asked_at).await));
    outcomes.sort_unstable_by_key(|(at, _)| *at);
    all_or_none(outcomes).await
}

type Outcome = (usize, Result<Beginning, (ClientError, Unclaimed)>);

/// The other keys get a connection each. What a connection renews stays when the one that took it closes.
async fn moved(mut place: Unclaimed, grant: Grant) -> Result<Beginning, (ClientError, Unclaimed)> {
    let mut asked_at = Instant::now();
    let renewed = async {
        place.connect().await?;
        asked_at = Instant::now();
        renewed(&mut place, &grant).await
    };
    match renewed.await {
        Ok(()) => Ok(Beginning { unclaimed: place, grant, asked_at }),
        Err(error) => Err((error, place)),
    }
}

/// If one of them cannot be kept, all are given up before anything else is done.
async fn all_or_none(outcomes: Vec<Outcome>) -> Result<Option<Vec<Lease>>, ClientError> {
    let (mut begun, mut failed, mut first) = (Vec::new(), Vec::new(), None);
    for (_, outcome) in outcomes {
        match outcome {
            Ok(beginning) => begun.push(beginning),
            Err((error, place)) => {
                first.get_or_insert(error);
                failed.push(place);
            }
        }
    }
    let Some(error) = first else {
        return begun.into_iter().map(Lease::begin).collect::<Result<_, _>>().map(Some);
    };
    for place in failed.into_iter().chain(begun.into_iter().map(|it| it.unclaimed)) {
        place.give_up().await;
    }
    Err(error)
}
