//! What `run` and `acquire` take: all keys of the command line, or none.

use super::args::{Keys, Terms};
use super::outcome::{Failure, NAMELESS, mention};
use super::sys::asked_to_end;
use super::{holder, reach};
use crate::terms::seconds;
use crate::{Claim, Claims, Client, ClientError, Grant, Key, KeyEvent, Leases};
use std::cell::RefCell;
use std::ffi::OsStr;
use std::time::Duration;
use tokio::time::timeout;
use wrapcmd::Form;

/// After a signal: how long to wait for releases.
const RELEASE_LIMIT: Duration = Duration::from_secs(5);

/// The keys, and the key that was requested last.
pub(super) struct KeysWanted<'a> {
    claims: Claims,
    terms: &'a Terms,
    client: &'a Client,
    form: Form,
    /// Whether the user reads who holds the keys.
    pub(super) names_holders: bool,
    asked: RefCell<Option<Key>>,
}

/// What comes of a wait.
pub(super) enum Outcome<T> {
    Taken(T),
    /// A signal ended the wait. With the exit code.
    Ended(u8),
}

impl<'a> KeysWanted<'a> {
    /// `limit` is the number of slots, if the keys are semaphores.
    pub(super) fn of(
        keys: &Keys,
        terms: &'a Terms,
        limit: Option<u32>,
        client: &'a Client,
        form: Form,
    ) -> Result<Self, Failure> {
        let claims = keys.names().map(|key| claim(key, terms, limit, client));
        let claims = Claims::of(claims.collect::<Result<Vec<_>, _>>()?)?;
        let asked = RefCell::default();
        Ok(Self { claims, terms, client, form, names_holders: true, asked })
    }

    /// The keys in the order of the grants.
    pub(super) fn keys(&self) -> impl Iterator<Item = &Key> {
        self.claims.keys()
    }

    /// Waits for all keys, also if servers go away meanwhile.
    pub(super) async fn acquire(&self) -> Result<Option<Leases>, ClientError> {
        let timeout = self.terms.timeout.map(seconds);
        self.claims.acquire_persistently(timeout, |key, step| self.report(key, step)).await
    }

    /// The same, and leaves them at the servers.
    pub(super) async fn acquire_detached(&self) -> Result<Option<Vec<Grant>>, ClientError> {
        let timeout = self.terms.timeout.map(seconds);
        self.claims.acquire_detached(timeout, |key, step| self.report(key, step)).await
    }

    /// Until the locks are ours, signals end this process as they end any other, and the place in the line with it. Of
    /// several locks some may be held by then.
    ///
    /// # Errors
    /// Others held them all the time; or another failure.
    pub(super) async fn taken<T>(
        &self,
        wait: impl Future<Output = Result<Option<T>, ClientError>>,
    ) -> Result<Outcome<T>, Failure> {
        let wait = async {
            if !self.names_holders {
                return wait.await;
            }
            holder::waited_for(wait, || self.asked.borrow().clone(), self.client, self.form).await
        };
        tokio::select! {
            // First, or a signal that comes together with the last grant is lost.
            biased;
            code = asked_to_end(self.are_several()) => {
                let _ = timeout(RELEASE_LIMIT, self.client.ended()).await;
                code.map(Outcome::Ended)
            }
            taken = wait => match taken? {
                Some(taken) => Ok(Outcome::Taken(taken)),
                None => Err(self.not_granted().await),
            },
        }
    }

    fn are_several(&self) -> bool {
        self.keys().count() > 1
    }

    fn report(&self, key: &Key, event: KeyEvent<'_>) {
        match event {
            KeyEvent::Requested => *self.asked.borrow_mut() = Some(key.clone()),
            KeyEvent::Interrupted(error) => {
                let words = format!("{error}; waiting for the server to join the line again");
                mention(&words, self.form);
            }
            KeyEvent::Lost(loss) => {
                let lost = Failure::Lost(Some(key.clone()), loss);
                mention(&format!("{lost}; asking for all keys again"), self.form);
            }
        }
    }

    /// Busy or timed out: not getting it without and after waiting. With the holder, if the server knows its name.
    async fn not_granted(&self) -> Failure {
        let is_told = self.names_holders || self.form == Form::Json;
        let asked = self.asked.borrow().clone().filter(|_| is_told);
        let holder = match &asked {
            Some(key) => holder::in_the_way(key, self.client).await,
            None => None,
        };
        let holder = match asked {
            Some(key) if self.are_several() => {
                Some(format!("{key}: {}", holder.as_deref().unwrap_or(NAMELESS)))
            }
            _ => holder,
        };
        match self.terms.timeout {
            Some(0) => Failure::Busy(holder),
            _ => Failure::TimedOut(holder),
        }
    }
}

fn claim(
    key: &OsStr,
    terms: &Terms,
    limit: Option<u32>,
    client: &Client,
) -> Result<Claim, Failure> {
    let key = reach::bytes(key)?;
    let claim = match limit {
        None if terms.shared => client.shared(key)?,
        None => client.lock(key)?,
        Some(limit) => client.semaphore(key, limit)?,
    };
    Ok(match terms.ttl {
        None => claim,
        Some(ttl_s) => claim.ttl(seconds(ttl_s))?,
    })
}
