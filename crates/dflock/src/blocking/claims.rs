//! Takes several leases, all or none.

use super::claim::Claim;
use super::lease::Lease;
use super::together;
use crate::backoff::Patience;
use crate::claims::{Progress, Stop};
use crate::error::ClientError;
use crate::lease::Loss;
use crate::line::was_waited_for;
use crate::order::in_order;
use crate::terms::{Key, MAX_TIME, Seconds};
use std::thread;
use std::time::{Duration, Instant};

/// A request for several keys: all of them, or none. See [`crate::Claims`], which takes them in the same order.
#[derive(Clone)]
pub struct Claims {
    /// In the order of their keys; at least one.
    claims: Vec<Claim>,
}

/// The function that is called for each step.
type Told<'a> = Option<&'a mut dyn FnMut(&Key, Progress<'_>)>;

impl Claims {
    /// All these claims. Kinds, lengths and clients can differ.
    ///
    /// # Errors
    /// [`ClientError::Term`] for no claim, and for a key that is named twice.
    pub fn of(claims: impl IntoIterator<Item = Claim>) -> Result<Self, ClientError> {
        Ok(Self { claims: in_order(claims, Claim::key)? })
    }

    /// The keys, in the order in which they are taken.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.claims.iter().map(Claim::key)
    }

    /// Takes all keys if they are free and no client is waiting.
    ///
    /// # Errors
    /// As for [`Self::acquire`].
    pub fn try_acquire(&self) -> Result<Option<Leases>, ClientError> {
        self.acquire(Duration::ZERO)
    }

    /// Waits in one line after another for at most `timeout` in all; because the protocol has whole seconds, it can
    /// be a second more. If the time is over first, releases the keys that were taken, and returns `None`.
    ///
    /// # Errors
    /// The errors of [`Claim::acquire`]; [`Refusal::LeaseExpired`](crate::Refusal::LeaseExpired) or
    /// [`ClientError::Silent`] if the lease of one key was lost while the client waited for another. The keys that
    /// were taken are released.
    pub fn acquire(&self, timeout: Duration) -> Result<Option<Leases>, ClientError> {
        let end = Instant::now() + Seconds::to_wait(timeout)?.time();
        self.gather(end, None).map_err(Stop::into_error)
    }

    /// Waits like [`Self::acquire`], and continues if servers go away meanwhile; see
    /// [`Claim::acquire_persistently`]. If the lease of one key was lost while the client waited for another, it
    /// starts over. `told` is called for each step.
    ///
    /// `None` if the time is over first. Without a time it waits for ever.
    ///
    /// # Errors
    /// The errors of [`Claim::acquire_persistently`]. The keys that were taken are released.
    pub fn acquire_persistently(
        &self,
        timeout: Option<Duration>,
        mut told: impl FnMut(&Key, Progress<'_>),
    ) -> Result<Option<Leases>, ClientError> {
        let end = Instant::now() + Seconds::to_wait(timeout.unwrap_or(MAX_TIME))?.time();
        let mut patience = Patience::until(end);
        loop {
            match self.gather(end, Some(&mut told)) {
                Ok(outcome) => return Ok(outcome),
                Err(stop) => {
                    thread::sleep(stop.pause(&mut patience, Instant::now(), &mut told)?);
                }
            }
        }
    }

    /// Takes all keys, or none: before it returns without all, it releases those that were taken.
    fn gather(&self, end: Instant, told: Told<'_>) -> Result<Option<Leases>, Stop> {
        let mut leases = Leases { leases: Vec::new() };
        let outcome = self.gather_into(&mut leases, end, told);
        if let Ok(true) = outcome {
            return Ok(Some(leases));
        }
        // A key that cannot be released becomes free when its lease ends.
        let _ = leases.release();
        outcome.map(|_| None)
    }

    /// Whether all keys were taken in time.
    fn gather_into(
        &self,
        leases: &mut Leases,
        end: Instant,
        mut told: Told<'_>,
    ) -> Result<bool, Stop> {
        if let (Some(told), Some(first)) = (&mut told, self.claims.first()) {
            told(first.key(), Progress::Asked);
        }
        let all = together::take(&self.claims, told.is_some()).map_err(Stop::Failed)?;
        if let Some(all) = all {
            leases.leases = all;
            return leases.stand().map(|()| true);
        }
        let mut first_at = None;
        for claim in &self.claims {
            let left = end.saturating_duration_since(Instant::now());
            let granted = match &mut told {
                None => claim.acquire(left),
                Some(told) => {
                    if first_at.is_some() {
                        told(claim.key(), Progress::Asked);
                    }
                    let told = |error: &ClientError| told(claim.key(), Progress::Left(error));
                    claim.acquire_persistently(Some(left), told)
                }
            };
            match granted.map_err(Stop::Failed)? {
                Some(lease) => leases.leases.push(lease),
                None => return Ok(false),
            }
            leases.stand()?;
            first_at.get_or_insert_with(Instant::now);
        }
        let now = Instant::now();
        if first_at.is_some_and(|first| was_waited_for(first, now)) {
            leases.known_since(now);
        }
        leases.stand().map(|()| true)
    }
}

/// Leases of several keys, each renewed by a thread of its own; see [`Lease`].
///
/// Dropping them releases them.
#[must_use = "leases that are dropped are released"]
#[derive(Debug)]
pub struct Leases {
    leases: Vec<Lease>,
}

impl Leases {
    /// Each of them, in the order of the keys.
    pub fn as_slice(&self) -> &[Lease] {
        &self.leases
    }

    /// Each by itself, in the order of the keys.
    #[must_use]
    pub fn into_vec(self) -> Vec<Lease> {
        self.leases
    }

    /// Until when all leases are trusted if no further renewal succeeds; `None` after one is lost.
    #[must_use]
    pub fn held_until(&self) -> Option<Instant> {
        let times: Option<Vec<_>> = self.leases.iter().map(Lease::held_until).collect();
        times?.into_iter().min()
    }

    /// The first key in their order with a lost lease, and why it is lost.
    #[must_use]
    pub fn loss(&self) -> Option<(&Key, Loss)> {
        self.leases.iter().find_map(|lease| lease.loss().map(|loss| (lease.key(), loss)))
    }

    fn stand(&self) -> Result<(), Stop> {
        self.loss().map_or(Ok(()), |(key, loss)| Err(Stop::Lost(key.clone(), loss)))
    }

    /// Renews all leases but the last, as the asynchronous client does.
    fn known_since(&self, time: Instant) {
        let Some((_, earlier)) = self.leases.split_last() else { return };
        for lease in earlier {
            lease.known_since(time);
        }
    }

    /// Releases one after another; see [`Lease::release`].
    ///
    /// # Errors
    /// The first failure in the order of the keys. The other leases are released even so.
    pub fn release(self) -> Result<(), ClientError> {
        let mut outcome = Ok(());
        for lease in self.leases {
            outcome = outcome.and(lease.release());
        }
        outcome
    }
}
