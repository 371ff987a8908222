//! The journal in etcd: one server at a time leads and records the holds of its engine; the others wait until they
//! can take the lead.
//!
//! One guard keeps every promise: each commit is one transaction that compares the mod revision of the key `term` with
//! that of the last commit, and writes the key. No clock and no lease of etcd is trusted for that. The leader's key is
//! on a lease of etcd so that others see when they should take the lead.
//!
//! While the outcome of a commit is unclear, the same bytes are sent again. More records never go under a number that
//! was once sent.
//!
//! Two files do no I/O: `format` has names and values, `txn` the transactions.

mod format;
mod session;
mod txn;

pub use format::Contact;

use crate::client::{Client, Failure};
use crate::rpc::{RangeRequest, RangeResponse, ResponseHeader, TxnRequest, TxnResponse};
use crate::{EtcdNumbers, Settings};
use format::{Leader, Names, Term, Unusable, read_hold, read_leader};
use leases::Ttl;
use leases::journal::{Failed, Journal, Kept, Record, Recovered};
use session::Session;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::time::timeout;

/// etcd permits 128 operations in a transaction, which are the records, `term` and the transaction around them.
const MAX_RECORDS: usize = 126;
/// How long one call is repeated before the term ends.
const BUDGET: Duration = Duration::from_secs(6);
/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(50);
/// How often a server that does not lead checks whether there is a leader.
const CHECK: Duration = Duration::from_millis(200);
/// The pause after a lead that could not be used.
const UNUSABLE_PAUSE: Duration = Duration::from_secs(5);
/// Fences of one revision of etcd. A term begins with the revision of its own first commit, times this.
const FENCES_PER_REVISION: u64 = 65_536;

/// The journal of one server.
pub struct EtcdJournal {
    client: Arc<Client>,
    names: Names,
    told: Told,
    /// How other servers reach this one while it leads.
    contact: Contact,
    seen: Arc<watch::Sender<Seen>>,
    session: Option<Session>,
    /// The term of this server, while it leads.
    lead: Option<Lead>,
}

/// The leader, as a server that does not lead saw it last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Seen {
    /// etcd did not answer.
    #[default]
    Unclear,
    /// This server.
    Me,
    /// Another server.
    Other {
        /// The lease of etcd that its key is on; no other leader has the same.
        lease: i64,
        /// How to reach it.
        contact: Contact,
    },
}

/// Shows the leader to other tasks of a server.
#[derive(Clone)]
pub struct Observer {
    client: Arc<Client>,
    seen: Arc<watch::Sender<Seen>>,
}

impl Observer {
    /// The leader, and its changes.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<Seen> {
        self.seen.subscribe()
    }

    /// The numbers now.
    #[must_use]
    pub fn numbers(&self) -> EtcdNumbers {
        EtcdNumbers {
            session: *self.seen.borrow() != Seen::Unclear,
            leads: *self.seen.borrow() == Seen::Me,
            calls: self.client.calls(),
            unclear: self.client.unclear(),
            full: self.client.is_full(),
        }
    }

    /// Ends the session of a leader whose process has ended, so that the next one need not wait for that. A leader that
    /// lives all the same leads on until another server has taken the lead.
    pub async fn depose(&self, lease: i64) {
        let _it_ends_by_itself = self.client.revoke(lease).await;
    }
}

/// The last commit of a leader.
#[derive(Debug)]
struct Lead {
    /// The mod revision of `term`.
    revision: i64,
    term: Term,
    /// The lease of etcd that the leader's key is on.
    lease: i64,
    /// The cluster, and when `term` is to name it. Until then it names another one, so that a leader after this one
    /// grants nothing for as long as holds may be missing.
    closed: Option<(u64, Instant)>,
}

/// What etcd has told this server so far.
#[derive(Clone, Copy, Debug)]
struct Told {
    /// The greatest revision.
    revision: i64,
    /// The longest lease in `term`, or the default if that is longer.
    longest: Ttl,
}

/// Why the lead was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NotYet {
    /// Another server leads, with this lease.
    Follows(i64),
    /// Another server was faster.
    Lost,
    /// etcd does not answer.
    Unclear,
    Unusable(Unusable),
}

impl From<Failed> for NotYet {
    fn from(Failed: Failed) -> Self {
        Self::Unclear
    }
}

impl EtcdJournal {
    /// A journal that has not sent anything to etcd yet. A lease of unknown length is taken for `default_lease`.
    #[must_use]
    pub fn new(settings: Settings, default_lease: Ttl, contact: Contact) -> Self {
        let names = Names::new(&settings.prefix);
        let client = Arc::new(Client::new(settings));
        let seen = Arc::new(watch::channel(Seen::Unclear).0);
        let told = Told { revision: 0, longest: default_lease };
        Self { client, names, told, contact, seen, session: None, lead: None }
    }

    /// Shows who leads.
    #[must_use]
    pub fn observer(&self) -> Observer {
        Observer { client: Arc::clone(&self.client), seen: Arc::clone(&self.seen) }
    }

    fn show(&self, seen: Seen) {
        self.seen.send_if_modified(|last| {
            let is_new = *last != seen;
            *last = seen;
            is_new
        });
    }

    /// One attempt to take the lead and read the holds.
    async fn take_lead(&mut self) -> Result<Recovered, NotYet> {
        self.session.get_or_insert_with(|| Session::start(&self.client));
        let found = self.send(txn::leadership(&self.names)).await?;
        let etcd = found.header.as_ref().ok_or(Failed)?;
        let (term, leader) = txn::read_leadership(&found).ok_or(Failed)?;
        self.told.hear(etcd.revision, term.and_then(|term| Term::read(&term.value).ok()));
        if let Some(other) = leader.filter(|leader| !self.has_lease(leader.lease)) {
            let contact = read_leader(&other.value).ok_or(NotYet::Unusable(Unusable::Foreign))?;
            self.show(Seen::Other { lease: other.lease, contact });
            return Err(NotYet::Follows(other.lease));
        }
        let session = self.session.as_ref().ok_or(NotYet::Unclear)?;
        let lease = timeout(CHECK, session.some_lease()).await.ok().flatten();
        let lease = lease.ok_or(NotYet::Unclear)?;
        self.refuse_old_format().await?;
        let (revision, leader) = (mod_revision(term), mod_revision(leader));
        let last =
            term.map(|term| Term::read(&term.value)).transpose().map_err(NotYet::Unusable)?;
        let next = first_term(last, etcd, self.told);
        let won = self
            .send(txn::win(&self.names, (revision, &next), (leader, &self.contact), lease))
            .await?;
        let revision = txn::read_committed(&won, &next).ok_or(NotYet::Lost)?;
        // If it is smaller than before, `term` says so from now on.
        self.told.revision = revision;
        let holds = self.read_holds().await?;
        let fence = holds.iter().map(|kept| kept.token.fence()).max().unwrap_or(0).max(next.fence);
        let cluster = etcd.cluster_id;
        let closed = (next.cluster != cluster).then_some(next.longest);
        let closed_micros = closed.map_or(0, micros);
        let opens = Instant::now() + Duration::from_micros(closed_micros);
        let lead = Lead { revision, term: next, lease, closed: closed.map(|_| (cluster, opens)) };
        self.lead = Some(lead);
        Ok(Recovered {
            holds,
            next_fence: first_fence(revision).max(fence.saturating_add(1)),
            closed_micros,
        })
    }

    /// Servers of the old format and this one do not see each other's holds.
    async fn refuse_old_format(&self) -> Result<(), NotYet> {
        for span in self.names.old_format() {
            if !self.range(txn::any(span)).await?.kvs.is_empty() {
                return Err(NotYet::Unusable(Unusable::OldFormat));
            }
        }
        Ok(())
    }

    /// All holds. If another server takes the lead meanwhile, the next confirmation shows it.
    async fn read_holds(&self) -> Result<Vec<Kept>, NotYet> {
        let span = self.names.holds();
        let (mut holds, mut from) = (Vec::new(), span.from.clone());
        loop {
            let page = self.range(txn::page(&span, from)).await?;
            for found in &page.kvs {
                let fence = self.names.read_hold(&found.key);
                let kept = fence.and_then(|fence| read_hold(fence, &found.value));
                holds.push(kept.ok_or(NotYet::Unusable(Unusable::Foreign))?);
            }
            match page.kvs.last() {
                Some(last) if page.more => from = [last.key.as_slice(), &[0]].concat(),
                Some(_) | None => return Ok(holds),
            }
        }
    }

    /// Sends the same bytes until they are answered.
    async fn send(&self, request: TxnRequest) -> Result<TxnResponse, Failed> {
        let until = Instant::now() + BUDGET;
        loop {
            match self.client.txn(request.clone()).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => pause(failure, until).await?,
            }
        }
    }

    async fn range(&self, request: RangeRequest) -> Result<RangeResponse, Failed> {
        let until = Instant::now() + BUDGET;
        loop {
            match self.client.range(request.clone()).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => pause(failure, until).await?,
            }
        }
    }

    /// The term, if this server leads. If anything fails from here on, the term is over.
    async fn leave(&mut self) -> Result<Lead, Failed> {
        let lead = self.lead.take().ok_or(Failed)?;
        if self.has_lease(lead.lease) { Ok(lead) } else { self.lead_again(lead).await }
    }

    /// The lease of the leader's key has ended, but the term goes on if nobody has taken the lead meanwhile.
    async fn lead_again(&self, mut lead: Lead) -> Result<Lead, Failed> {
        let session = self.session.as_ref().ok_or(Failed)?;
        let lease = timeout(BUDGET, session.some_lease()).await.ok().flatten();
        lead.lease = lease.ok_or(Failed)?;
        lead.term.commit += 1;
        let (term, contact) = ((lead.revision, &lead.term), (0, &self.contact));
        let won = self.send(txn::win(&self.names, term, contact, lead.lease)).await?;
        lead.revision = txn::read_committed(&won, &lead.term).ok_or(Failed)?;
        tracing::info!("this server leads again");
        Ok(lead)
    }

    /// Gives up the lead, if this server has it.
    async fn resign(&mut self) {
        self.lead = None;
        let Some(session) = self.session.take() else { return };
        let lease = session.lease();
        drop(session);
        if let Some(lease) = lease {
            let _it_ends_by_itself = self.client.revoke(lease).await;
        }
    }

    fn has_lease(&self, lease: i64) -> bool {
        self.session.as_ref().is_some_and(|session| session.lease() == Some(lease))
    }
}

impl Journal for EtcdJournal {
    const MAX_RECORDS: usize = MAX_RECORDS;
    const IS_SHARED: bool = true;

    /// Waits until no other server leads.
    async fn load(&mut self) -> Recovered {
        self.lead = None;
        self.show(Seen::Unclear);
        let mut said = None;
        loop {
            let why = match self.take_lead().await {
                Ok(recovered) => {
                    tracing::info!("this server leads");
                    self.show(Seen::Me);
                    return recovered;
                }
                Err(why) => why,
            };
            if !matches!(why, NotYet::Follows(_) | NotYet::Lost) {
                self.show(Seen::Unclear);
            }
            if said.replace(why) != Some(why) {
                match why {
                    NotYet::Follows(_) | NotYet::Lost => tracing::info!("another server leads"),
                    NotYet::Unclear => tracing::warn!(
                        members = self.client.members(),
                        "etcd does not answer: start it there, or see --etcd-endpoints"
                    ),
                    NotYet::Unusable(why) => tracing::error!(%why, "cannot lead"),
                }
            }
            if matches!(why, NotYet::Unusable(_)) {
                // Another server may be able to lead.
                self.resign().await;
                tokio::time::sleep(UNUSABLE_PAUSE).await;
            }
            tokio::time::sleep(CHECK).await;
        }
    }

    async fn commit(&mut self, records: &[Record]) -> Result<(), Failed> {
        let mut lead = self.leave().await?;
        lead.term = next_term(&lead, records, Instant::now());
        let answer =
            self.send(txn::commit(&self.names, lead.revision, &lead.term, records)).await?;
        lead.revision = txn::read_committed(&answer, &lead.term).ok_or(Failed)?;
        self.told.hear(lead.revision, Some(lead.term));
        self.lead = Some(lead);
        Ok(())
    }

    async fn confirm(&mut self) -> Result<(), Failed> {
        let lead = self.leave().await?;
        let answer = self.send(txn::confirm(&self.names, lead.revision)).await?;
        if !answer.succeeded {
            return Err(Failed);
        }
        self.lead = Some(lead);
        Ok(())
    }

    fn room(&mut self, _wanted: usize) -> usize {
        if self.client.is_full() { 0 } else { usize::MAX }
    }

    /// The next server leads at once.
    async fn end(mut self) {
        self.resign().await;
    }
}

/// Waits before the next attempt, if there is to be one.
async fn pause(failure: Failure, until: Instant) -> Result<(), Failed> {
    if failure == Failure::Refused || Instant::now() >= until {
        return Err(Failed);
    }
    tokio::time::sleep(PAUSE).await;
    Ok(())
}

impl Told {
    fn hear(&mut self, revision: i64, term: Option<Term>) {
        if revision > self.revision {
            self.revision = revision;
        }
        if let Some(term) = term {
            self.longest = longer(self.longest, term.longest);
        }
    }
}

/// The first value of `term` in the term of the next leader. An etcd that has a smaller revision than before is another
/// cluster, whatever its id is: a member that lagged behind keeps the id if it is made a cluster of its own
/// (`--force-new-cluster`).
fn first_term(last: Option<Term>, etcd: &ResponseHeader, told: Told) -> Term {
    let last_fence = last.map_or(0, |last| last.fence);
    let (cluster, fence) = if etcd.revision < told.revision {
        (!etcd.cluster_id, last_fence.max(first_fence(told.revision.saturating_add(1))))
    } else {
        (last.map_or(etcd.cluster_id, |last| last.cluster), last_fence)
    };
    let longest = last.map_or(told.longest, |last| longer(last.longest, told.longest));
    Term { cluster, longest, fence, leader: Leader(crate::random()), commit: 0 }
}

/// The value of `term` for a commit.
fn next_term(lead: &Lead, records: &[Record], now: Instant) -> Term {
    let mut term = Term { commit: lead.term.commit + 1, ..lead.term };
    if let Some((cluster, opens)) = lead.closed {
        if now >= opens {
            term.cluster = cluster;
        }
    }
    for record in records {
        term.fence = term.fence.max(record.token().fence());
        match record {
            Record::Granted(kept) | Record::Extended(kept) => {
                term.longest = longer(term.longest, kept.ttl);
            }
            Record::Ended(_) => {}
        }
    }
    term
}

fn longer(one: Ttl, other: Ttl) -> Ttl {
    if one.span() < other.span() { other } else { one }
}

const fn micros(ttl: Ttl) -> u64 {
    ttl.span().count().saturating_mul(1_000_000)
}

fn mod_revision(found: Option<&crate::rpc::KeyValue>) -> i64 {
    found.map_or(0, |found| found.mod_revision)
}

/// Greater than every fence of earlier terms, even of those that a restored backup does not know, if the restore has
/// increased the revision (`--bump-revision`).
fn first_fence(revision: i64) -> u64 {
    u64::try_from(revision).unwrap_or(0).saturating_mul(FENCES_PER_REVISION)
}

#[cfg(test)]
mod tests {
    use super::format::tests::TERM as LAST;
    use super::*;

    /// The same cluster by its id, but what etcd had told is missing there: the next leaders see another cluster, wait
    /// for leases that only this server knows, and give out greater fences.
    #[test]
    fn an_etcd_that_went_back_is_another_cluster() {
        let mut told = Told { revision: 0, longest: Ttl::new(33).unwrap() };
        told.hear(40, Some(LAST));
        told.hear(41, Some(Term { longest: Ttl::new(300).unwrap(), ..LAST }));
        let etcd =
            |revision| ResponseHeader { cluster_id: 0xc1, revision, ..ResponseHeader::default() };
        for revision in [41, 42] {
            let next = first_term(Some(LAST), &etcd(revision), told);
            assert_eq!((next.cluster, next.fence), (LAST.cluster, LAST.fence), "{revision}");
        }
        for last in [Some(LAST), None] {
            let next = first_term(last, &etcd(40), told);
            assert_ne!(next.cluster, LAST.cluster);
            assert_eq!(next.longest.span().count(), 300);
            assert_eq!(next.fence, first_fence(42));
        }
    }

    #[test]
    fn a_server_that_was_told_nothing_believes_the_term() {
        let told = Told { revision: 0, longest: Ttl::new(33).unwrap() };
        let etcd = ResponseHeader { cluster_id: 0xc2, revision: 1, ..ResponseHeader::default() };
        let next = first_term(Some(LAST), &etcd, told);
        assert_eq!((next.cluster, next.longest, next.fence), (0xc1, LAST.longest, LAST.fence));
        let first = first_term(None, &etcd, told);
        assert_eq!((first.cluster, first.longest, first.fence), (0xc2, told.longest, 0));
    }
}
