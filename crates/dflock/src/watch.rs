//! Watches a key: its holder, whenever that changes.

use super::connection::Connection;
use super::dialogue::{self, Sight};
use super::error::ClientError;
use super::route::Route;
use super::settings::Settings;
use super::terms::{Key, MAX_TIME};
use super::timing::{Patience, TRIES_IN_TIME};
use leases::wire::Holder;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// A watched server is asked again after this time at the latest, so that one that is gone is noticed.
const MOST: Duration = Duration::from_secs(20);

/// Watches a key, over whatever connections: services find their leader so. Begins with [`super::Client::watch`].
///
/// ```no_run
/// # async fn example() -> Result<(), dflock::ClientError> {
/// let client = dflock::Client::new(dflock::Settings::default())?;
/// let mut watch = client.watch("leader")?;
/// loop {
///     match watch.next().await? {
///         Some(holder) => println!("the leader is at {:?}", holder.value),
///         None => println!("there is no leader"),
///     }
/// }
/// # }
/// ```
pub struct Watch {
    route: Route,
    key: Key,
    /// With an answer that is still to come, if a call was dropped.
    connection: Option<Connection>,
    /// When the answer to the last request has to be there.
    due: Instant,
    /// The tag of what was seen last.
    last: Option<String>,
    /// For a server that is away. One that has answered before is waited for longer than a program runs.
    patience: Option<Patience>,
}

impl Watch {
    pub(super) fn begin(key: Key, settings: &Arc<Settings>) -> Self {
        let route = Route::to(&key, Arc::clone(settings));
        Self { route, key, connection: None, due: Instant::now(), last: None, patience: None }
    }

    /// The holder of the key, or nothing when it is free: at first at once, later when it is another one. Changes that
    /// follow each other quickly may come as one; the last always comes, and nothing comes twice.
    ///
    /// A broken connection is replaced, over the next of [`super::Servers::AnyOf`]. Before the first answer a server is
    /// looked for during [`Settings::connect_limit`], later for ever.
    ///
    /// Dropping the future loses nothing: the next call goes on with the same request.
    ///
    /// # Errors
    /// [`ClientError::NotWatched`] for a server that does not know the request; a refusal; a server that cannot be
    /// reached. The next call tries again.
    pub async fn next(&mut self) -> Result<Option<Holder>, ClientError> {
        loop {
            let error = match self.ask().await {
                Ok(sight) => {
                    self.patience = Some(Patience::to_return_until(Instant::now() + MAX_TIME));
                    match news_after(&mut self.last, sight) {
                        Some(holder) => return Ok(holder),
                        None => continue,
                    }
                }
                Err(error) => error,
            };
            self.connection = None;
            self.route.prefer_next();
            let patience = self.patience.get_or_insert_with(|| self.route.patience());
            if let Err(error) = patience.outlast(error).await {
                self.patience = None;
                return Err(error);
            }
        }
    }

    async fn ask(&mut self) -> Result<Sight, ClientError> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => none.insert(self.route.open().await?),
        };
        if connection.is_answered {
            let last = self.last.as_deref();
            let period = period(self.route.settings.read_timeout);
            let wait = if last.is_some() { period } else { Duration::ZERO };
            let limit = wait.saturating_add(self.route.settings.answer_limit);
            self.due = Instant::now().checked_add(limit).unwrap_or(self.due);
            return connection.watch(&self.key, wait, last).await;
        }
        let left = self.due.saturating_duration_since(Instant::now());
        let line = connection.late_answer(left).await.ok_or(ClientError::TimedOut)?;
        dialogue::sight(&line)
    }
}

/// What is to be reported, if it is another state than the last one seen.
fn news_after(last: &mut Option<String>, (tag, holder): Sight) -> Option<Option<Holder>> {
    let is_new = last.as_ref() != Some(&tag);
    *last = Some(tag);
    is_new.then_some(holder)
}

/// How long a server may wait for a change before it answers in any case.
fn period(read_timeout: Duration) -> Duration {
    (read_timeout / TRIES_IN_TIME).min(MOST)
}

#[cfg(test)]
mod tests {
    use super::{dialogue, news_after, period};
    use rstest::rstest;
    use std::time::Duration;

    #[test]
    fn the_same_state_is_told_once() {
        let mut last = None;
        let mut sees = |line| {
            news_after(&mut last, dialogue::sight(line).unwrap()).map(|holder| holder.is_some())
        };
        assert_eq!(sees("free 01"), Some(false));
        assert_eq!(sees("free 01"), None);
        assert_eq!(sees("held 02 7 1500 2 - -"), Some(true));
        assert_eq!(sees("held 02 7 9500 2 - -"), None);
        assert_eq!(sees("free 01"), Some(false));
        assert_eq!(last.as_deref(), Some("01"));
    }

    #[rstest]
    #[case(23_000, 7_666)]
    #[case(600_000, 20_000)]
    fn periods(#[case] read_timeout: u64, #[case] want: u64) {
        let [read_timeout, want] = [read_timeout, want].map(Duration::from_millis);
        assert_eq!(period(read_timeout).as_millis(), want.as_millis());
    }
}
