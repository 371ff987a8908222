//! Takes several leases, all or none. How that is done is the same for every client: all at once if they are free and the
//! server can do that, otherwise one after another, in the order of their bytes.
//!
//! A client that waits for a key holds only smaller ones. So clients that take their keys in this order never deadlock,
//! whatever the kinds of the locks, and whatever their servers.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use leases::MAX_KEYS;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::claim::Claim;
use crate::dialogue::{Grace, Grant};
use crate::error::ClientError;
use crate::lease::{Lease, Loss, Taken};
use crate::terms::{ArgumentError, Key, Kind, MAX_LINE_BYTES, MAX_TIME, seconds, seconds_to_wait};
use crate::timing::{Patience, was_waited_for};

/// A request for several keys: all of them, or none.
///
/// If all keys are free, the server grants all of them at once: up to 16 locks (not shared) of one client on one server,
/// with leases of one length, and with keys of at most 256 bytes together.
///
/// Otherwise, and with servers that do not know this, the keys are taken one after another, in the order of their bytes,
/// whatever the order in which they are named. So clients never deadlock, as long as each takes all its keys by one
/// call. A client that already holds leases and requests more is outside of this order. While the client waits for a
/// key, it holds and renews the keys before it, and other clients wait for these.
///
/// ```no_run
/// # async fn example(client: dflock::Client) -> Result<(), dflock::ClientError> {
/// let claims = dflock::Claims::of([client.lock("stock")?, client.shared("prices")?])?;
/// if let Some(leases) = claims.acquire(std::time::Duration::from_secs(10)).await? {
///     tokio::select! {
///         () = work() => leases.release().await?,
///         (key, loss) = leases.lost() => eprintln!("stopped half-way: {key}: {loss}"),
///     }
/// }
/// # Ok(())
/// # }
/// # async fn work() {}
/// ```
#[derive(Clone)]
pub struct Claims {
    /// In the order of their keys; at least one.
    claims: Vec<Claim>,
}

/// What happens to one of several keys while they are taken.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum KeyEvent<'a> {
    /// The key is requested now. The keys before it in the order are held. If all keys are granted at once, only the
    /// first is reported.
    Requested,
    /// The server went away, for this reason, while the client waited for the key. The client joins the queue again.
    Interrupted(&'a ClientError),
    /// The lease of the key was lost while the client waited for another key. The other leases are released, and all
    /// keys are requested again.
    Lost(Loss),
}

/// Why the keys were not taken.
enum Stop {
    /// The lease of this key was lost while the client waited for another key.
    Lost(Key, Loss),
    /// A key could not be taken.
    Failed(ClientError),
}

impl Stop {
    /// The error for a caller that does not try again.
    fn into_error(self) -> ClientError {
        match self {
            Self::Lost(_, loss) => loss.into_error(),
            Self::Failed(error) => error,
        }
    }
}

impl Claims {
    /// All these claims. Kinds, lengths and clients can differ.
    ///
    /// # Errors
    /// [`ClientError::InvalidArgument`] for no claim, and for a key that is named twice.
    pub fn of(claims: impl IntoIterator<Item = Claim>) -> Result<Self, ClientError> {
        Ok(Self { claims: in_order(claims)? })
    }

    /// The keys, in the order in which they are taken.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.claims.iter().map(Claim::key)
    }

    /// Takes all keys if they are free and no client is waiting.
    ///
    /// For dropping the future, see [`Self::acquire`].
    ///
    /// # Errors
    /// As for [`Self::acquire`].
    pub async fn try_acquire(&self) -> Result<Option<Leases>, ClientError> {
        self.acquire(Duration::ZERO).await
    }

    /// Waits in one queue after another for at most `timeout` in all; because the protocol has whole seconds, it can
    /// be a second more. If the time is over first, releases the keys that were taken, and returns `None`.
    ///
    /// If the future is dropped, these keys are released in the background; see [`Claim::acquire`].
    ///
    /// # Errors
    /// The errors of [`Claim::acquire`]; [`Refusal::LeaseExpired`](crate::Refusal::LeaseExpired) or
    /// [`ClientError::TimedOut`] if the lease of one key was lost while the client waited for another. The keys that were
    /// taken are released.
    pub async fn acquire(&self, timeout: Duration) -> Result<Option<Leases>, ClientError> {
        let end = Instant::now() + seconds(seconds_to_wait(timeout)?);
        let report: Option<&mut fn(&Key, KeyEvent<'_>)> = None;
        self.gather(end, report).await.map_err(Stop::into_error)
    }

    /// Waits like [`Self::acquire`], and continues if servers go away meanwhile; see
    /// [`Claim::acquire_persistently`]. If the lease of one key is lost while the client waits for another, it
    /// starts over. `report` is called for each step.
    ///
    /// `None` if the time is over first. Without a time it waits for ever. For dropping the future, see
    /// [`Self::acquire`].
    ///
    /// # Errors
    /// The errors of [`Claim::acquire_persistently`]. The keys that were taken are released.
    pub async fn acquire_persistently(
        &self,
        timeout: Option<Duration>,
        mut report: impl FnMut(&Key, KeyEvent<'_>),
    ) -> Result<Option<Leases>, ClientError> {
        let end = Instant::now() + seconds(seconds_to_wait(timeout.unwrap_or(MAX_TIME))?);
        let mut patience = Patience::to_return_until(end);
        loop {
            let (key, loss) = match self.gather(end, Some(&mut report)).await {
                Ok(outcome) => return Ok(outcome),
                Err(Stop::Failed(error)) => return Err(error),
                Err(Stop::Lost(key, loss)) => (key, loss),
            };
            report(&key, KeyEvent::Lost(loss));
            patience.outlast(loss.into_error()).await?;
        }
    }

    /// Takes all keys, waiting like [`Self::acquire_persistently`], and leaves them alone then: the caller must renew and
    /// release each of them by its token. If a server would end one of them before the end of the lease because no
    /// connection holds it, all are released at once. The grants are in the order of the keys.
    ///
    /// Dropping the future gives up, as for [`Claim::acquire`].
    ///
    /// # Errors
    /// [`ClientError::EndsWithConnection`], a refusal, or a server that cannot be reached.
    pub async fn acquire_detached(
        &self,
        timeout: Option<Duration>,
        report: impl FnMut(&Key, KeyEvent<'_>),
    ) -> Result<Option<Vec<Grant>>, ClientError> {
        let Some(first) = self.claims.first() else { return Ok(None) };
        let sessions = Arc::new(first.sessions.apart());
        let claims = self.claims.iter().map(|claim| claim.apart(&sessions)).collect();
        let apart = Self { claims };
        let Some(Leases { mut leases }) = apart.acquire_persistently(timeout, report).await? else {
            return Ok(None);
        };
        let (outcome, detached) = oneshot::channel();
        let work = sessions.work();
        // Also if nobody waits for the outcome.
        tokio::spawn(async move {
            let grants = leases.iter().map(|lease| lease.grant.clone()).collect();
            match apart.detach(&mut leases).await {
                Ok(()) => {
                    if outcome.send(Ok(grants)).is_err() {
                        apart.release_all(&leases).await;
                    }
                }
                Err(error) => {
                    apart.release_all(&leases).await;
                    let _ = outcome.send(Err(error));
                }
            }
            drop(work);
        });
        detached.await.unwrap_or_else(|_| Err(ClientError::closed())).map(Some)
    }

    /// Leaves all leases at their servers. They are renewed until all servers have said that they keep them.
    async fn detach(&self, leases: &mut [Lease]) -> Result<(), ClientError> {
        let mut graces = HashMap::new();
        for (claim, lease) in self.claims.iter().zip(&*leases) {
            let server = claim.route.first();
            let grace = match graces.get(&server) {
                Some(known) => *known,
                None => claim.route.grace().await?,
            };
            match grace {
                Some(Grace::For(after)) if after < lease.ttl() => {
                    return Err(ClientError::EndsWithConnection { after });
                }
                Some(Grace::For(_) | Grace::Lease) | None => graces.insert(server, grace),
            };
        }
        for lease in leases.iter() {
            lease.order_detach();
        }
        for lease in leases.iter_mut() {
            lease.detached().await?;
        }
        for (claim, lease) in self.claims.iter().zip(leases) {
            if let Some(Some(_)) = graces.get(&claim.route.first()) {
                continue;
            }
            // Such a server knows no delay: it has released the hold by now, or will not before its lease ends.
            let renewed = claim.route.renew(&claim.proof(lease.token()), Some(lease.ttl())).await;
            match renewed {
                Err(error) if error.is_not_held() => {
                    return Err(ClientError::EndsWithConnection { after: Duration::ZERO });
                }
                renewed => renewed?,
            };
        }
        Ok(())
    }

    /// Releases all by their tokens. A hold that cannot be released ends with its lease.
    async fn release_all(&self, leases: &[Lease]) {
        for (claim, lease) in self.claims.iter().zip(leases) {
            let _ = claim.route.release_anew(&claim.proof(lease.token())).await;
        }
    }

    /// Takes all keys, or none: before it returns without all, it releases those that were taken.
    async fn gather(
        &self,
        end: Instant,
        report: Option<&mut impl FnMut(&Key, KeyEvent<'_>)>,
    ) -> Result<Option<Leases>, Stop> {
        let mut leases = Leases { leases: Vec::new() };
        let outcome = self.gather_into(&mut leases, end, report).await;
        if let Ok(true) = outcome {
            return Ok(Some(leases));
        }
        // A key that cannot be released becomes free when its lease ends.
        let _ = leases.release().await;
        outcome.map(|_| None)
    }

    /// Takes them by one request. `None`: they cannot be had in this way, and none of them is held.
    async fn take_together(&self, is_persistent: bool) -> Taken {
        let ([first, ..], true) = (&*self.claims, go_together(&self.claims)) else {
            return Ok(None);
        };
        let wanted = self.claims.iter().map(|claim| claim.wanted.clone()).collect();
        let open = async { Ok((first.route.open_patiently().await?, Duration::ZERO)) };
        attempted(first.sessions.take(&first.route, wanted, false, open).await, is_persistent)
    }

    /// Whether all keys were taken in time.
    async fn gather_into(
        &self,
        leases: &mut Leases,
        end: Instant,
        mut report: Option<&mut impl FnMut(&Key, KeyEvent<'_>)>,
    ) -> Result<bool, Stop> {
        if let (Some(report), Some(first)) = (&mut report, self.claims.first()) {
            report(first.key(), KeyEvent::Requested);
        }
        if let Some(all) = self.take_together(report.is_some()).await.map_err(Stop::Failed)? {
            leases.leases = all;
            return leases.stand().map(|()| true);
        }
        let mut first_at = None;
        for claim in &self.claims {
            if let (Some(report), Some(_)) = (&mut report, first_at) {
                report(claim.key(), KeyEvent::Requested);
            }
            let left = end.saturating_duration_since(Instant::now());
            let mut report = report.as_mut().map(|report| {
                |error: &ClientError| report(claim.key(), KeyEvent::Interrupted(error))
            });
            let granted = claim.obtain(left, report.as_mut());
            let granted = tokio::select! {
                biased;
                (key, loss) = leases.lost() => return Err(Stop::Lost(key, loss)),
                granted = granted => granted.map_err(Stop::Failed)?,
            };
            match granted {
                Some(lease) => leases.leases.push(lease),
                None => return Ok(false),
            }
            first_at.get_or_insert_with(Instant::now);
        }
        let now = Instant::now();
        if first_at.is_some_and(|first| was_waited_for(first, now)) {
            leases.known_since(now).await;
        }
        leases.stand().map(|()| true)
    }
}

/// Leases of several keys, each renewed in the background; see [`Lease`].
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

    /// The shortest pause between two renewals; see [`Lease::renewal_interval`].
    #[must_use]
    pub fn renewal_interval(&self) -> Duration {
        self.leases.iter().map(Lease::renewal_interval).min().unwrap_or_default()
    }

    /// Until when all leases are trusted if no further renewal succeeds; `None` after one is lost.
    #[must_use]
    pub fn held_until(&self) -> Option<std::time::Instant> {
        held_until(self.leases.iter())
    }

    /// The first key in their order with a lost lease, and why it is lost.
    #[must_use]
    pub fn loss(&self) -> Option<(&Key, Loss)> {
        first_loss(self.leases.iter())
    }

    fn stand(&self) -> Result<(), Stop> {
        self.loss().map_or(Ok(()), |(key, loss)| Err(Stop::Lost(key.clone(), loss)))
    }

    /// Waits until one of the leases is lost, for ever if none is. The future may be dropped and the method called
    /// again.
    pub async fn lost(&self) -> (Key, Loss) {
        let loss_of = async |lease: &Lease| (lease.key().clone(), lease.lost().await);
        let mut losses: Vec<_> = self.leases.iter().map(|lease| Box::pin(loss_of(lease))).collect();
        poll_fn(|context| {
            let polls = losses.iter_mut().map(|loss| loss.as_mut().poll(context));
            polls.into_iter().find(Poll::is_ready).unwrap_or(Poll::Pending)
        })
        .await
    }

    /// Renews all leases but the last, which is new. If the server was restarted, an earlier lease may be lost, and
    /// its session may not know that yet.
    async fn known_since(&mut self, time: Instant) {
        let Some((_, earlier)) = self.leases.split_last_mut() else { return };
        for lease in &*earlier {
            lease.renew_if_older(time);
        }
        for lease in earlier {
            lease.known_since(time).await;
        }
    }

    /// Releases all of them at once; see [`Lease::release`].
    ///
    /// # Errors
    /// The first failure in the order of the keys. The other leases are released even so.
    pub async fn release(self) -> Result<(), ClientError> {
        let releases: Vec<_> =
            self.leases.into_iter().map(|lease| tokio::spawn(lease.release())).collect();
        let mut outcome = Ok(());
        for release in releases {
            outcome = outcome.and(release.await.unwrap_or_else(|_| Err(ClientError::closed())));
        }
        outcome
    }
}

/// See [`Leases::held_until`].
pub(super) fn held_until<'l>(
    leases: impl Iterator<Item = &'l Lease>,
) -> Option<std::time::Instant> {
    let times: Option<Vec<_>> = leases.map(Lease::held_until).collect();
    times?.into_iter().min()
}

/// See [`Leases::loss`].
pub(super) fn first_loss<'l>(
    mut leases: impl Iterator<Item = &'l Lease>,
) -> Option<(&'l Key, Loss)> {
    leases.find_map(|lease| lease.loss().map(|loss| (lease.key(), loss)))
}

/// Whether these can be sent as one request, which takes all keys if they are free: locks for one holder alone, of one
/// client, at one server, with leases of one length, on one line.
fn go_together(claims: &[Claim]) -> bool {
    let [first, ..] = claims else { return false };
    let (settings, one) = (&first.route.settings, &first.wanted);
    let bytes: usize = claims.iter().map(|claim| claim.wanted.key.as_bytes().len() + 1).sum();
    (2..=MAX_KEYS).contains(&claims.len())
        && bytes <= MAX_LINE_BYTES + 1
        && claims.iter().all(|Claim { route, wanted, .. }| {
            matches!(wanted.kind, Kind::Lock | Kind::Semaphore(1))
                && Arc::ptr_eq(&route.settings, settings)
                && settings.servers.know_both(one.key.as_bytes(), wanted.key.as_bytes())
                && wanted.ttl == one.ttl
        })
}

/// What follows from the outcome of that request: the keys, or `None`: they are taken one after another. So it is if
/// one of them is in use, and if the server refuses, because it does not know the request or for a reason that it gives
/// again for a single key; for a client that waits persistently also after a broken connection.
///
/// # Errors
/// The failure of the whole.
fn attempted<T>(
    outcome: Result<Option<T>, ClientError>,
    is_persistent: bool,
) -> Result<Option<T>, ClientError> {
    match outcome {
        Err(ClientError::Refused(_)) => Ok(None),
        Err(error) if is_persistent && error.is_passing() => Ok(None),
        outcome => outcome,
    }
}

/// The claims in the order of their keys. A client that requested one key twice would wait for itself.
fn in_order(claims: impl IntoIterator<Item = Claim>) -> Result<Vec<Claim>, ArgumentError> {
    let mut claims: Vec<Claim> = claims.into_iter().collect();
    claims.sort_by(|one, other| one.key().as_bytes().cmp(other.key().as_bytes()));
    let is_twice = |pair: &[Claim]| matches!(pair, [one, other] if one.key() == other.key());
    if claims.is_empty() {
        Err(ArgumentError::KeyMissing)
    } else if claims.windows(2).any(is_twice) {
        Err(ArgumentError::KeyTwice)
    } else {
        Ok(claims)
    }
}

#[cfg(test)]
mod tests {
    use super::{attempted, go_together, in_order};
    use crate::claim::{Claim, Client};
    use crate::error::{ClientError, Refusal};
    use crate::settings::Settings;
    use crate::terms::{ArgumentError, Servers};
    use rstest::rstest;
    use std::time::Duration;

    fn client(servers: Servers) -> Client {
        Client::new(Settings::new(servers)).unwrap()
    }

    /// The servers of each client, the clients' requests (`2` is a semaphore of two slots, `1` of one, `r` a reader, `t`
    /// has a lease of its own), and whether they are one request.
    #[rstest]
    #[case::locks("x", "la lb", true)]
    #[case::one("x", "la", false)]
    #[case::none("x", "", false)]
    #[case::sixteen("x", "la lb lc ld le lf lg lh li lj lk ll lm ln lo lp", true)]
    #[case::seventeen("x", "la lb lc ld le lf lg lh li lj lk ll lm ln lo lp lq", false)]
    #[case::slots("x", "la 2b", false)]
    #[case::the_only_slot("x", "la 1b", true)]
    #[case::a_reader("x", "ra lb", false)]
    #[case::a_lease_of_its_own("x", "la tb", false)]
    #[case::leases_of_one_length("x", "ta tb", true)]
    #[case::several_shards("x,y,z", "la lb", false)]
    #[case::one_shard("x,y,z", "la la", true)]
    #[case::any_of("x|y|z", "la lb", true)]
    fn keys_are_requested_together_only_on_one_shard_with_one_lease(
        #[case] list: &str,
        #[case] requests: &str,
        #[case] are_one: bool,
    ) {
        let addresses = list.split([',', '|']).map(|it| it.parse().unwrap()).collect();
        let servers = match list.contains('|') {
            true => Servers::AnyOf(addresses),
            false => Servers::Shards(addresses),
        };
        let clients = [(); 2].map(|()| client(servers.clone()));
        let claims = |client_of: fn(usize) -> usize| -> Vec<Claim> {
            let claim = |(at, text): (usize, &str)| {
                let (client, key) = (&clients[client_of(at)], &text[1..]);
                match &text[..1] {
                    "r" => client.shared(key).unwrap(),
                    "t" => client.lock(key).unwrap().ttl(Duration::from_secs(1)).unwrap(),
                    "l" => client.lock(key).unwrap(),
                    slots => client.semaphore(key, slots.parse().unwrap()).unwrap(),
                }
            };
            requests.split_whitespace().enumerate().map(claim).collect()
        };
        assert_eq!(go_together(&claims(|_| 0)), are_one);
        // Another client may have other secrets.
        assert!(!go_together(&claims(|at| usize::from(at == 1))));
    }

    #[rstest]
    #[case(127, 128, true)]
    #[case(128, 128, false)]
    fn keys_are_requested_together_only_if_they_fit_on_one_line(
        #[case] one: usize,
        #[case] other: usize,
        #[case] fit: bool,
    ) {
        let client = client(Servers::Shards(vec!["x".parse().unwrap()]));
        let claims = [vec![b'a'; one], vec![b'b'; other]].map(|key| client.lock(key).unwrap());
        assert_eq!(go_together(&claims), fit);
    }

    #[rstest]
    #[case::granted(Ok(Some(())), Some(true), Some(true))]
    #[case::in_use(Ok(None), Some(false), Some(false))]
    #[case::an_old_server(Err(ClientError::Refused(Refusal::Error)), Some(false), Some(false))]
    #[case::refused(Err(ClientError::Refused(Refusal::MaxLocks)), Some(false), Some(false))]
    #[case::ending(Err(ClientError::Refused(Refusal::Draining)), Some(false), Some(false))]
    #[case::lost(Err(ClientError::closed()), None, Some(false))]
    #[case::silent(Err(ClientError::TimedOut), None, Some(false))]
    #[case::no_server(Err(ClientError::protocol("HTTP/1.1")), None, None)]
    #[case::a_term(Err(ClientError::InvalidArgument(ArgumentError::TimeLong)), None, None)]
    fn an_error_of_a_joint_request_has_its_consequence(
        #[case] outcome: Result<Option<()>, ClientError>,
        #[case] once: Option<bool>,
        #[case] persistently: Option<bool>,
        #[values(false, true)] is_persistent: bool,
    ) {
        let found = attempted(outcome, is_persistent).ok().map(|taken| taken.is_some());
        assert_eq!(found, if is_persistent { persistently } else { once });
    }

    #[rstest]
    #[case(&["b", "a"], Ok(vec!["a", "b"]))]
    #[case(&["a", "b"], Ok(vec!["a", "b"]))]
    #[case::by_bytes_not_by_letters(&["a", "B", "\u{e4}"], Ok(vec!["B", "a", "\u{e4}"]))]
    #[case::the_shorter_first(&["ab", "a"], Ok(vec!["a", "ab"]))]
    #[case::one(&["a"], Ok(vec!["a"]))]
    #[case::none(&[], Err(ArgumentError::KeyMissing))]
    #[case::twice(&["b", "a", "b"], Err(ArgumentError::KeyTwice))]
    fn keys_are_taken_in_the_order_of_their_bytes(
        #[case] keys: &[&str],
        #[case] want: Result<Vec<&str>, ArgumentError>,
    ) {
        let client = client(Servers::Shards(vec!["x".parse().unwrap()]));
        let sorted = in_order(keys.iter().map(|key| client.lock(*key).unwrap()));
        let names =
            sorted.map(|claims| claims.iter().map(|it| it.key().to_string()).collect::<Vec<_>>());
        assert_eq!(names, want.map(|names| names.into_iter().map(str::to_owned).collect()));
    }
}
