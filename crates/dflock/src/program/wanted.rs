//! What `run` and `acquire` take: all keys of the command line, or none; and what a user reads during a wait: the holder of
//! the lock, or the server that does not answer.

use super::args::{Keys, Terms};
use super::outcome::{Failure, NAMELESS, mention};
use super::reach;
use super::sys::asked_to_end;
use crate::terms::seconds;
use crate::{
    Claim, Claims, Client, ClientError, Grant, Holder, Key, KeyEvent, Leases, ServerAddress,
};
use pidlockfile::span;
use std::cell::{Cell, RefCell};
use std::ffi::OsStr;
use std::io::{self, IsTerminal};
use std::pin::pin;
use std::time::Duration;
use tokio::time::{sleep, timeout};
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

    /// Until the locks are ours, signals end this process as they end any other, and the place in the queue with it. Of
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
            waited_for(wait, || self.asked.borrow().clone(), self.client, self.form).await
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

    /// Busy if nobody was to wait, otherwise timed out. With the holder, if the server knows its name.
    async fn not_granted(&self) -> Failure {
        let is_read = self.names_holders || self.form == Form::Json;
        let asked = self.asked.borrow().clone().filter(|_| is_read);
        let holder = match &asked {
            Some(key) => in_the_way(key, self.client).await,
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

/// A wait that is shorter needs no words.
const FIRST: Duration = Duration::from_millis(500);
/// The same where nobody sits at a terminal.
const LATE: Duration = Duration::from_secs(1);
/// How often they are said again.
const PERIOD: Duration = Duration::from_secs(60);
/// How soon a server is asked again that was too busy to say who holds a lock.
const AGAIN: Duration = Duration::from_secs(5);
/// How long a server may take to say who holds a lock.
const MOMENT: Duration = Duration::from_secs(2);

/// Waits for a lock, and names the holder of the key that is waited for at present: soon, and again every minute. If
/// no server answers then, says so.
async fn waited_for<T>(
    wait: impl Future<Output = T>,
    key: impl Fn() -> Option<Key>,
    client: &Client,
    form: Form,
) -> T {
    if form != Form::Text {
        return wait.await;
    }
    // A job of cron that gets its lock after a short wait succeeds, and prints nothing.
    let is_silent = Cell::new(!io::stderr().is_terminal());
    let is_silence_reported = Cell::new(false);
    let say = async || {
        let Some(key) = key() else { return AGAIN };
        let servers = client.servers_of(&key);
        let holder = holder_of(&key, client);
        let holder = answered_since(holder, &servers, client, form, &is_silence_reported).await;
        // The server was too busy, or nobody held the lock at that moment.
        let Some(holder) = holder else { return AGAIN };
        is_silence_reported.set(false);
        if !is_silent.replace(false) {
            let holder = words(&holder).unwrap_or_else(|| NAMELESS.to_owned());
            mention(&format!("waiting for {key}: {holder}"), form);
        }
        PERIOD
    };
    wait_and_say(wait, say).await
}

/// Waits for an answer that needs no lock, and says once if it does not come soon.
pub(super) async fn answered<T>(
    answer: impl Future<Output = T>,
    servers: &[&ServerAddress],
    client: &Client,
    form: Form,
) -> T {
    answered_since(answer, servers, client, form, &Cell::new(false)).await
}

/// The same for one of several questions: says it once for all, until `is_reported` is false again.
async fn answered_since<T>(
    answer: impl Future<Output = T>,
    servers: &[&ServerAddress],
    client: &Client,
    form: Form,
    is_reported: &Cell<bool>,
) -> T {
    if form != Form::Text {
        return answer.await;
    }
    let limit = if io::stderr().is_terminal() { FIRST } else { LATE };
    if client.patience() <= limit {
        return answer.await;
    }
    let mut answer = pin!(answer);
    if let Ok(answer) = timeout(limit, &mut answer).await {
        return answer;
    }
    if is_reported.replace(true) {
        return answer.await;
    }
    let servers: Vec<String> = servers.iter().map(ToString::to_string).collect();
    let (servers, patience) = (servers.join(", "), span(client.patience()));
    mention(&format!("no answer yet from {servers}; trying for {patience} in all"), form);
    answer.await
}

/// The holder that kept us from the lock, if the server knows its name.
async fn in_the_way(key: &Key, client: &Client) -> Option<String> {
    words(&holder_of(key, client).await?)
}

/// Waits, and says something after the first pause, and again after each pause that `say` gives.
async fn wait_and_say<T>(wait: impl Future<Output = T>, say: impl AsyncFn() -> Duration) -> T {
    let mut wait = pin!(wait);
    let mut pause = FIRST;
    loop {
        let turn = async {
            sleep(pause).await;
            say().await
        };
        tokio::select! {
            biased;
            outcome = &mut wait => return outcome,
            next = turn => pause = next,
        }
    }
}

async fn holder_of(key: &Key, client: &Client) -> Option<Holder> {
    let mut watch = client.watch(key.as_bytes()).ok()?;
    timeout(MOMENT, watch.next()).await.ok()?.ok()?
}

/// Nothing about a holder without a name. The name comes last: it may look like a command line.
fn words(holder: &Holder) -> Option<String> {
    let name = holder.name.as_deref().filter(|name| !name.is_empty())?.escape_debug();
    let age = span(holder.age);
    Some(match holder.holders {
        0 | 1 => format!("held for {age} by {name}"),
        several => format!("held by {several} clients, for {age} by the last of them: {name}"),
    })
}

#[cfg(test)]
mod tests {
    use super::{AGAIN, FIRST, PERIOD, wait_and_say, words};
    use crate::Holder;
    use rstest::rstest;
    use std::cell::Cell;
    use std::time::Duration;
    use tokio::time::sleep;

    #[rstest]
    #[case::alone(Some("eve\u{1b}@host[1] cp"), 1, Some("held for 1m01s by eve\\u{1b}@host[1] cp"))]
    #[case::shared(Some("al"), 4, Some("held by 4 clients, for 1m01s by the last of them: al"))]
    #[case::without_a_name(None, 1, None)]
    #[case::without_a_word(Some(""), 1, None)]
    fn the_holder_in_words(
        #[case] name: Option<&str>,
        #[case] holders: u32,
        #[case] said: Option<&str>,
    ) {
        let (name, age) = (name.map(str::to_owned), Duration::from_millis(61_900));
        let holder = Holder { fence: 1, age, holders, name, value: None };
        assert_eq!(words(&holder).as_deref(), said);
    }

    #[rstest]
    #[case::got_at_once(FIRST / 2, 0)]
    #[case::soon(FIRST * 2, 1)]
    #[case::before_a_minute(PERIOD, 1)]
    #[case::after_a_minute(PERIOD + FIRST * 2, 2)]
    #[case::after_ten(PERIOD * 10 + FIRST * 2, 11)]
    fn the_holder_is_named_soon_and_again_every_minute(#[case] time: Duration, #[case] times: u32) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build().unwrap();
        let said = Cell::new(0);
        let say = async || {
            said.set(said.get() + 1);
            PERIOD
        };
        runtime.block_on(async { wait_and_say(sleep(time), say).await });
        assert_eq!(said.get(), times);
    }

    /// A server that cannot say it at first is asked again soon.
    #[test]
    fn a_busy_server_is_asked_again_soon() {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build().unwrap();
        let asked = Cell::new(0);
        let say = async || {
            asked.set(asked.get() + 1);
            if asked.get() < 3 { AGAIN } else { PERIOD }
        };
        runtime.block_on(async { wait_and_say(sleep(AGAIN * 3), say).await });
        assert_eq!(asked.get(), 3);
    }
}
