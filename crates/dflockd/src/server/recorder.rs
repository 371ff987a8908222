//! Drives the journal: one commit or confirmation after another, and one term after another. Requests are served
//! meanwhile, and their answers wait for it, as [`Commits`](leases::journal::Commits) says.

use super::core::Shared;
#[cfg(feature = "etcd")]
use super::settings::StoreChoice;
use super::state::DiskJournal;
use leases::journal::{Call, Failed, Journal, Recovered};
#[cfg(feature = "etcd")]
use leases_etcd::EtcdJournal;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::{JoinHandle, yield_now};
use tokio::time::timeout;

/// How often a journal without room is asked for room.
const CHECK: Duration = Duration::from_secs(1);

/// Starts the task that records holds, if they are recorded.
pub(super) fn start(shared: &Arc<Shared>) -> Option<JoinHandle<()>> {
    let settings = &shared.settings;
    let default_lease = settings.caps.default_ttl;
    #[cfg(feature = "etcd")]
    if let StoreChoice::Leader(etcd) = &settings.store {
        let journal = EtcdJournal::new(etcd.clone(), default_lease);
        return Some(tokio::spawn(record(Arc::clone(shared), journal)));
    }
    let journal = DiskJournal::new(settings.state.as_ref()?, default_lease.span())?;
    Some(tokio::spawn(record(Arc::clone(shared), journal)))
}

/// Runs until the server has ended its last term.
async fn record<J: Journal>(shared: Arc<Shared>, mut journal: J) {
    while let Some(recovered) = load(&shared, &mut journal).await {
        let now = shared.now();
        shared.core().begin_term(&recovered, now);
        if serve_term(&shared, &mut journal).await.is_err() {
            tracing::error!(
                "holds cannot be recorded: all clients are sent away, and no hold is released"
            );
            continue;
        }
        if J::IS_SHARED {
            // The last answers come first.
            yield_now().await;
            shared.core().end_term();
        }
        return journal.end().await;
    }
}

/// `None` if the server ends before the term begins.
async fn load(shared: &Shared, journal: &mut impl Journal) -> Option<Recovered> {
    tokio::select! {
        recovered = journal.load() => Some(recovered),
        () = poll_fn(|cx| shared.core().recording.poll_closing(cx)) => None,
    }
}

/// Returns when the server ends.
async fn serve_term(shared: &Shared, journal: &mut impl Journal) -> Result<(), Failed> {
    loop {
        let has_room = journal.has_room();
        shared.core().set_room(has_room);
        let next = poll_fn(|cx| shared.core().recording.poll_call(cx));
        let call = if has_room { Ok(next.await) } else { timeout(CHECK, next).await };
        let (outcome, records) = match call {
            Ok(Some(Call::Commit(records))) => (journal.commit(&records).await, records),
            Ok(Some(Call::Confirm)) => (journal.confirm().await, Vec::new()),
            Ok(None) => return Ok(()),
            Err(_) => continue,
        };
        let now = shared.now();
        shared.core().end_call(outcome, &records, now);
        outcome?;
    }
}
