//! Watches a key: its holder, whenever that changes.

use super::connection::Connection;
use super::error::ClientError;
use super::observer::{Holder, Sight, period};
use super::patience::Patience;
use super::route::Route;
use super::settings::Settings;
use super::terms::{Key, MAX_TIME};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

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
    /// For a server that is away. A server that has answered is looked for for longer than a program runs.
    patience: Option<Patience>,
}

impl Watch {
    pub(super) fn begin(key: Key, settings: &Arc<Settings>) -> Self {
        let route = Route::to(&key, Arc::clone(settings));
        Self { route, key, connection: None, due: Instant::now(), last: None, patience: None }
    }

    /// The holder of the key, or nothing when it is free: at first at once, later when it is another one. Changes that
    /// follow each other quickly may be told as one; the last is always told, and nothing is told twice.
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
            let error = match self.look().await {
                Ok(sight) => {
                    self.patience = Some(Patience::to_return_until(Instant::now() + MAX_TIME));
                    match sight.told_after(&mut self.last) {
                        Some(holder) => return Ok(holder),
                        None => continue,
                    }
                }
                Err(error) => error,
            };
            self.connection = None;
            self.route.turn();
            let patience = self.patience.get_or_insert_with(|| self.route.patience());
            if let Err(error) = patience.outlast(error).await {
                self.patience = None;
                return Err(error);
            }
        }
    }

    async fn look(&mut self) -> Result<Sight, ClientError> {
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
        let line = connection.late_answer(left).await.ok_or(ClientError::Silent)?;
        Sight::read(&line)
    }
}
