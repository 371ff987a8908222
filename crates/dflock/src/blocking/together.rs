//! Takes several keys by one request, as the asynchronous client does.

use super::claim::Claim;
use super::connection::Connection;
use super::lease::{Beginning, Lease};
use crate::dialogue::Grant;
use crate::error::ClientError;
use crate::order::{attempted, go_together};
use std::thread;
use std::time::Instant;

/// `None`: they cannot be had in this way, and none of them is held.
pub(super) fn take(
    claims: &[Claim],
    is_persistent: bool,
) -> Result<Option<Vec<Lease>>, ClientError> {
    let parts: Vec<_> = claims.iter().map(Claim::part).collect();
    let (Some(first), true) = (claims.first(), go_together(&parts)) else { return Ok(None) };
    let connection = first.route.open_patiently()?;
    attempted(ask(connection, claims), is_persistent)
}

fn ask(mut connection: Connection, claims: &[Claim]) -> Result<Option<Vec<Lease>>, ClientError> {
    let keys: Vec<_> = claims.iter().map(Claim::key).collect();
    let ttl = claims.first().and_then(|claim| claim.ttl);
    let asked_at = Instant::now();
    let Some(grants) = connection.acquire_all(&keys, ttl)? else { return Ok(None) };
    let begun = begin(connection, asked_at, claims, &grants);
    if begun.is_err() {
        for (claim, grant) in claims.iter().zip(&grants) {
            // It becomes free when its lease ends.
            let _ = claim.route.let_go(None, &grant.token);
        }
    }
    begun.map(Some)
}

/// The connection of the request stays with the first key, until the others have theirs.
fn begin(
    connection: Connection,
    asked_at: Instant,
    claims: &[Claim],
    grants: &[Grant],
) -> Result<Vec<Lease>, ClientError> {
    let mut pairs = claims.iter().zip(grants);
    let Some((first, grant)) = pairs.next() else { return Ok(Vec::new()) };
    let others: Vec<Beginning> = thread::scope(|scope| {
        let begin = |(claim, grant): (&'_ Claim, &'_ Grant)| claim.moved(grant);
        let threads: Vec<_> = pairs
            .map(|pair| {
                let name = "dflock connects".to_owned();
                thread::Builder::new().name(name).spawn_scoped(scope, move || begin(pair))
            })
            .collect();
        let outcome = |thread: Result<thread::ScopedJoinHandle<'_, _>, _>| {
            thread?.join().unwrap_or_else(|_| Err(ClientError::closed()))
        };
        threads.into_iter().map(outcome).collect::<Result<_, ClientError>>()
    })?;
    let first = first.confirmed(connection, grant.clone(), asked_at)?;
    std::iter::once(first).chain(others).map(Lease::begin).collect()
}
