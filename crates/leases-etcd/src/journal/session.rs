//! The lease of etcd by which others see that this server lives. It is for liveness alone: no promise about a lock
//! depends on it.

use crate::client::{Client, Failure};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::watch;

/// How long a server may be silent before another one may take the lead.
const SECONDS: i64 = 3;
/// The time between two keep-alives.
const BEAT: Duration = Duration::from_millis(800);
/// The pause after a call that failed.
const RETRY: Duration = Duration::from_millis(100);
/// The time between two searches for etcd's leader, which also show whether etcd has space.
const SEARCH_EVERY: Duration = Duration::from_secs(2);

/// The present lease; none before the first one and after a loss. Kept alive until this is dropped.
#[derive(Debug)]
pub(super) struct Session(Arc<watch::Sender<Option<i64>>>);

impl Session {
    /// Must be called on the runtime.
    pub(super) fn start(client: &Arc<Client>) -> Self {
        let lease = Arc::new(watch::channel(None).0);
        tokio::spawn(keep(Arc::clone(client), Arc::downgrade(&lease)));
        tokio::spawn(search(Arc::clone(client), Arc::downgrade(&lease)));
        Self(lease)
    }

    /// The present lease.
    pub(super) fn lease(&self) -> Option<i64> {
        *self.0.borrow()
    }

    /// The lease, as soon as there is one.
    pub(super) async fn some_lease(&self) -> Option<i64> {
        *self.0.subscribe().wait_for(Option::is_some).await.ok()?
    }
}

/// Takes a lease and keeps it alive, again and again.
async fn keep(client: Arc<Client>, present: Weak<watch::Sender<Option<i64>>>) {
    while let Some(sender) = present.upgrade() {
        let lease = *sender.borrow();
        drop(sender);
        let next = renew(&client, lease).await;
        if let (Some(sender), Ok(next)) = (present.upgrade(), next) {
            sender.send_if_modified(|lease| std::mem::replace(lease, next) != next);
        }
        tokio::time::sleep(if matches!(next, Ok(Some(_))) { BEAT } else { RETRY }).await;
    }
}

/// Looks for etcd's leader. A member that does not answer must not delay the next beat.
async fn search(client: Arc<Client>, present: Weak<watch::Sender<Option<i64>>>) {
    while present.strong_count() > 0 {
        tokio::time::sleep(SEARCH_EVERY).await;
        client.go_to_leader().await;
    }
}

/// The lease after this beat.
async fn renew(client: &Client, lease: Option<i64>) -> Result<Option<i64>, Failure> {
    let Some(lease) = lease else { return client.grant(SECONDS).await.map(Some) };
    match client.keep_alive(lease).await {
        Ok(seconds) if seconds > 0 => Ok(Some(lease)),
        Ok(_) | Err(Failure::Refused) => {
            tracing::warn!("etcd session lost");
            Ok(None)
        }
        Err(Failure::Unclear) => Err(Failure::Unclear),
    }
}
