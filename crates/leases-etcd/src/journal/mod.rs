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
mod txn;

pub use format::Contact;

use crate::client::{Client, Failure, Presence};
use crate::rpc::{RangeRequest, RangeResponse, ResponseHeader, TxnRequest, TxnResponse};
use crate::{EtcdNumbers, Settings};
use format::{LeaderId, Names, Term, Unusable, Wait, read_hold, read_leader};
use leases::Ttl;
use leases::journal::{Failed, Journal, Record, RecordedHold, Recovered};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::time::timeout;

/// etcd permits 128 operations in a transaction, which are the records, `term` and the transaction around them.
const MAX_RECORDS: usize = 126;
/// How long one call is repeated before the term ends.
const BUDGET: Duration = Duration::from_secs(6);
/// How often a server that does not lead checks whether there is a leader.
const CHECK: Duration = Duration::from_millis(200);
/// The pause after a lead that could not be used.
const UNUSABLE_PAUSE: Duration = Duration::from_secs(5);
/// How often the time left of a wait for missing holds is recorded. At most this much of the wait begins again with the
/// next leader.
const NOTE_EVERY: Duration = Duration::from_secs(10);
/// How long, at least, the length of a lease is remembered after its end. A backup does not know of the holds that came
/// after it, so the lengths from the time before it are taken for theirs.
const LENGTHS_COUNT: Duration = Duration::from_secs(7 * 24 * 3600);
/// Fences of one revision of etcd. A term begins with the revision of its own first commit, times this.
const FENCES_PER_REVISION: u64 = 65_536;

/// The journal of one server.
pub struct EtcdJournal {
    client: Arc<Client>,
    names: Names,
    heard: Heard,
    /// How other servers reach this one while it leads.
    contact: Contact,
    seen: Arc<watch::Sender<Seen>>,
    presence: Option<Presence>,
    /// The term of this server, while it leads.
    lead: Option<Lead>,
}

/// The leader, as this server saw it last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "a server acts on each")]
pub enum Seen {
    /// Not known: etcd does not answer, cannot be used, or a term of this server has just ended.
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
        let seen = self.seen.borrow();
        let (session, leads) = (*seen != Seen::Unclear, *seen == Seen::Me);
        EtcdNumbers { session, leads, ..self.client.numbers() }
    }

    /// Ends the presence of a leader whose process has ended, so that the next one need not wait for that. A leader that
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
    /// When the wait in `term` is over.
    opens: Instant,
    /// The lengths of the leases of present holds, by fence.
    present: HashMap<u64, Ttl>,
    /// The longest lease since `longest` in `term` was lowered.
    recent: Ttl,
    /// When it may be lowered again.
    lower_at: Instant,
}

/// What this server has heard from etcd so far.
#[derive(Clone, Copy, Debug)]
struct Heard {
    /// The greatest revision.
    revision: i64,
    /// A lease of unknown length.
    usual: Ttl,
    /// The longest lease in `term`, or the usual one if that is longer.
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

/// Why a term has ended, other than in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TermEnd {
    /// Another server has taken the lead.
    Succeeded,
    /// etcd has not answered within [`BUDGET`], or has refused a call.
    Unanswered,
}

impl TermEnd {
    fn log(self) {
        match self {
            Self::Succeeded => tracing::warn!("another server has taken the lead"),
            Self::Unanswered => tracing::error!(
                seconds = BUDGET.as_secs(),
                "etcd has not answered in time: the last holds may not be recorded"
            ),
        }
    }
}

impl From<Failed> for TermEnd {
    fn from(Failed: Failed) -> Self {
        Self::Unanswered
    }
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
        let heard = Heard { revision: 0, usual: default_lease, longest: default_lease };
        Self { client, names, heard, contact, seen, presence: None, lead: None }
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
        self.presence.get_or_insert_with(|| Presence::start(&self.client));
        let found = self.send(txn::leadership(&self.names)).await?;
        let etcd = found.header.as_ref().ok_or(Failed)?;
        let (term, leader) = txn::read_leadership(&found).ok_or(Failed)?;
        self.heard.hear(etcd, term.and_then(|term| Term::read(&term.value).ok()));
        if let Some(other) = leader.filter(|leader| !self.has_lease(leader.lease)) {
            let contact = read_leader(&other.value).ok_or(NotYet::Unusable(Unusable::Foreign))?;
            self.show(Seen::Other { lease: other.lease, contact });
            return Err(NotYet::Follows(other.lease));
        }
        let presence = self.presence.as_ref().ok_or(NotYet::Unclear)?;
        let lease = timeout(CHECK, presence.some_lease()).await.ok().flatten();
        let lease = lease.ok_or(NotYet::Unclear)?;
        self.refuse_old_format().await?;
        let (revision, leader) = (mod_revision(term), mod_revision(leader));
        let last =
            term.map(|term| Term::read(&term.value)).transpose().map_err(NotYet::Unusable)?;
        let next = first_term(last, etcd, self.heard);
        let won = self
            .send(txn::win(&self.names, (revision, &next), (leader, &self.contact), lease))
            .await?;
        let revision = txn::read_committed(&won, &next).ok_or(NotYet::Lost)?;
        // It may be smaller than one that was heard before. `term` says so from now on, so this one counts.
        self.heard.revision = revision;
        let holds = self.read_holds().await?;
        let fence = holds.iter().map(|hold| hold.token.fence()).max().unwrap_or(0).max(next.fence);
        let closed_micros = next.wait.map_or(0, |wait| wait.left_micros);
        let now = Instant::now();
        self.lead = Some(Lead {
            revision,
            term: next,
            lease,
            opens: now + Duration::from_micros(closed_micros),
            present: holds.iter().map(|hold| (hold.token.fence(), hold.ttl)).collect(),
            recent: self.heard.usual,
            lower_at: now + LENGTHS_COUNT,
        });
        let mut recovered = Recovered::default();
        recovered.holds = holds;
        recovered.next_fence = first_fence(revision).max(fence.saturating_add(1));
        recovered.closed_micros = closed_micros;
        Ok(recovered)
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
    async fn read_holds(&self) -> Result<Vec<RecordedHold>, NotYet> {
        let span = self.names.holds();
        let (mut holds, mut from) = (Vec::new(), span.from.clone());
        loop {
            let page = self.range(txn::page(&span, from)).await?;
            for found in &page.kvs {
                let fence = self.names.read_hold(&found.key);
                let hold = fence.and_then(|fence| read_hold(fence, &found.value));
                holds.push(hold.ok_or(NotYet::Unusable(Unusable::Foreign))?);
            }
            match page.kvs.last() {
                Some(last) if page.more => from = [last.key.as_slice(), &[0]].concat(),
                Some(_) | None => return Ok(holds),
            }
        }
    }

    /// Sends the same bytes until they are answered.
    async fn send(&self, request: TxnRequest) -> Result<TxnResponse, Failed> {
        repeat(|| self.client.txn(request.clone())).await
    }

    async fn range(&self, request: RangeRequest) -> Result<RangeResponse, Failed> {
        repeat(|| self.client.range(request.clone())).await
    }

    /// Takes the term, if this server leads. A call that succeeds puts it back, so any failure ends it.
    async fn begin_call(&mut self) -> Result<Lead, TermEnd> {
        let lead = self.lead.take().ok_or(Failed)?;
        if self.has_lease(lead.lease) { Ok(lead) } else { self.lead_again(lead).await }
    }

    /// The lease of the leader's key has ended, but the term goes on if nobody has taken the lead meanwhile.
    async fn lead_again(&self, mut lead: Lead) -> Result<Lead, TermEnd> {
        let presence = self.presence.as_ref().ok_or(Failed)?;
        let lease = timeout(BUDGET, presence.some_lease()).await.ok().flatten();
        lead.lease = lease.ok_or(Failed)?;
        lead.term.commit += 1;
        let (term, contact) = ((lead.revision, &lead.term), (0, &self.contact));
        let won = self.send(txn::win(&self.names, term, contact, lead.lease)).await?;
        lead.revision = txn::read_committed(&won, &lead.term).ok_or(TermEnd::Succeeded)?;
        tracing::info!("this server leads again");
        Ok(lead)
    }

    async fn try_commit(&mut self, records: &[Record]) -> Result<(), TermEnd> {
        let mut lead = self.begin_call().await?;
        lead.note(records, self.heard.usual, Instant::now());
        lead.term.commit += 1;
        let answer =
            self.send(txn::commit(&self.names, lead.revision, &lead.term, records)).await?;
        lead.revision = txn::read_committed(&answer, &lead.term).ok_or(TermEnd::Succeeded)?;
        (self.heard.revision, self.heard.longest) = (lead.revision, lead.term.longest);
        self.lead = Some(lead);
        Ok(())
    }

    async fn try_confirm(&mut self) -> Result<(), TermEnd> {
        let mut lead = self.begin_call().await?;
        let noted = lead.term;
        lead.note(&[], self.heard.usual, Instant::now());
        if lead.term != noted {
            self.lead = Some(lead);
            return self.try_commit(&[]).await;
        }
        let answer = self.send(txn::confirm(&self.names, lead.revision)).await?;
        if !answer.succeeded {
            return Err(TermEnd::Succeeded);
        }
        self.lead = Some(lead);
        Ok(())
    }

    /// Gives up the lead, if this server has it.
    async fn resign(&mut self) {
        self.lead = None;
        let Some(presence) = self.presence.take() else { return };
        let lease = presence.lease();
        drop(presence);
        if let Some(lease) = lease {
            let _it_ends_by_itself = self.client.revoke(lease).await;
        }
    }

    fn has_lease(&self, lease: i64) -> bool {
        self.presence.as_ref().is_some_and(|presence| presence.lease() == Some(lease))
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
        self.try_commit(records).await.inspect_err(|end| end.log()).map_err(|_| Failed)
    }

    async fn confirm(&mut self) -> Result<(), Failed> {
        self.try_confirm().await.inspect_err(|end| end.log()).map_err(|_| Failed)
    }

    fn room(&mut self, _wanted: usize) -> usize {
        if self.client.is_full() { 0 } else { usize::MAX }
    }

    /// The next server leads at once.
    async fn end(mut self) {
        self.resign().await;
    }
}

/// Repeats a call until it has an answer, or the term is to end.
async fn repeat<T, F>(call: impl Fn() -> F) -> Result<T, Failed>
where
    F: Future<Output = Result<T, Failure>>,
{
    let until = Instant::now() + BUDGET;
    loop {
        match call().await {
            Ok(answer) => return Ok(answer),
            Err(Failure::Unclear) if Instant::now() < until => {}
            Err(Failure::Unclear | Failure::Refused) => return Err(Failed),
        }
    }
}

impl Heard {
    /// Notes what etcd has said. A length that is shorter than the one before is believed only if the cluster is the
    /// accepted one and has not gone back.
    fn hear(&mut self, etcd: &ResponseHeader, term: Option<Term>) {
        let goes_on = etcd.revision >= self.revision;
        self.revision = self.revision.max(etcd.revision);
        let Some(term) = term else { return };
        let is_sure = goes_on && term.cluster == etcd.cluster_id;
        let known = if is_sure { self.usual } else { self.longest };
        self.longest = longer(known, term.longest);
    }
}

/// The first value of `term` in the term of the next leader. An etcd that has a smaller revision than before is another
/// cluster, whatever its id is: a member that lagged behind keeps the id if it is made a cluster of its own
/// (`--force-new-cluster`).
fn first_term(last: Option<Term>, etcd: &ResponseHeader, heard: Heard) -> Term {
    let found = etcd.cluster_id;
    let last_fence = last.map_or(0, |last| last.fence);
    let went_back = etcd.revision < heard.revision;
    let (cluster, fence) = if went_back {
        (!found, last_fence.max(first_fence(heard.revision.saturating_add(1))))
    } else {
        (last.map_or(found, |last| last.cluster), last_fence)
    };
    let longest = last.map_or(heard.longest, |last| longer(last.longest, heard.longest));
    let wait = (cluster != found).then(|| {
        // A wait that another leader began goes on, unless it knew less.
        let known = last.filter(|last| !went_back && last.longest == longest);
        let begun = known.and_then(|last| last.wait).filter(|wait| wait.cluster == found);
        begun.unwrap_or(Wait { cluster: found, left_micros: longest.span().micros() })
    });
    Term { cluster, longest, fence, leader: LeaderId(crate::random()), commit: 0, wait }
}

impl Lead {
    /// Brings `term` up to date: the fences and leases of these records, the wait for missing holds, and whether long
    /// leases are over.
    fn note(&mut self, records: &[Record], usual: Ttl, now: Instant) {
        let term = &mut self.term;
        for record in records {
            let fence = record.token().fence();
            term.fence = term.fence.max(fence);
            match record {
                Record::Granted(hold) | Record::Extended(hold) => {
                    self.recent = longer(self.recent, hold.ttl);
                    term.longest = longer(term.longest, hold.ttl);
                    self.present.insert(fence, hold.ttl);
                }
                Record::Ended(_) => drop(self.present.remove(&fence)),
            }
        }
        if let Some(wait) = &mut term.wait {
            let left = self.opens.saturating_duration_since(now);
            if left.is_zero() {
                // From now on `term` names this cluster.
                term.cluster = wait.cluster;
                term.wait = None;
            } else if left + NOTE_EVERY <= Duration::from_micros(wait.left_micros) {
                wait.left_micros = u64::try_from(left.as_micros()).unwrap_or(u64::MAX);
            }
        } else if now >= self.lower_at {
            term.longest = self.present.values().copied().fold(self.recent, longer);
            (self.recent, self.lower_at) = (usual, now + LENGTHS_COUNT);
        }
    }
}

fn longer(one: Ttl, other: Ttl) -> Ttl {
    if one.span() < other.span() { other } else { one }
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
    use super::format::tests::{TERM as LAST, hold};
    use super::*;
    use leases::{Claim, Token};

    const USUAL: Ttl = Ttl::new(33).unwrap();
    const TOLD: Heard = Heard { revision: 0, usual: USUAL, longest: USUAL };

    fn etcd(cluster_id: u64, revision: i64) -> ResponseHeader {
        ResponseHeader { cluster_id, revision, ..ResponseHeader::default() }
    }

    fn lead(term: Term, now: Instant) -> Lead {
        Lead {
            revision: 9,
            term,
            lease: 7,
            opens: now + Duration::from_micros(term.wait.map_or(0, |wait| wait.left_micros)),
            present: HashMap::new(),
            recent: USUAL,
            lower_at: now + LENGTHS_COUNT,
        }
    }

    /// Holds may be missing in a cluster that no leader had before. Leaders wait for them one after another, and once.
    #[test]
    fn a_wait_goes_on_with_the_next_leader() {
        let (found, now) = (etcd(0xc2, 50), Instant::now());
        let left = |term: Term| term.wait.map(|wait| (wait.cluster, wait.left_micros));
        let first = first_term(Some(LAST), &found, TOLD);
        assert_eq!((first.cluster, left(first)), (0xc1, Some((0xc2, 60_000_000))));
        let mut lead = lead(first, now);
        lead.note(&[], USUAL, now + Duration::from_secs(9));
        assert_eq!(lead.term, first, "not so often");
        lead.note(&[], USUAL, now + Duration::from_secs(25));
        let next = first_term(Some(lead.term), &found, TOLD);
        assert_eq!((next.cluster, left(next)), (0xc1, Some((0xc2, 35_000_000))));
        let restored_again = first_term(Some(lead.term), &etcd(0xc3, 50), TOLD);
        assert_eq!(left(restored_again), Some((0xc3, 60_000_000)));
        let knows_more = Heard { longest: Ttl::new(300).unwrap(), ..TOLD };
        let longer = first_term(Some(lead.term), &found, knows_more);
        assert_eq!(left(longer), Some((0xc2, 300_000_000)));
        let went_back = first_term(Some(lead.term), &found, Heard { revision: 51, ..TOLD });
        assert_eq!(left(went_back), Some((0xc2, 60_000_000)));
        lead.note(&[], USUAL, now + Duration::from_secs(60));
        let after = first_term(Some(lead.term), &found, TOLD);
        assert_eq!((after.cluster, left(after)), (0xc2, None));
    }

    /// One request for a lease of centuries, given back at once, does not close a restored service for as long.
    #[test]
    fn long_leases_that_are_over_are_forgotten() {
        let (mut lead, now) = (lead(LAST, Instant::now()), Instant::now());
        let longest = |lead: &Lead| lead.term.longest.span().count();
        let granted = |fence: u64, seconds: u64| {
            let (token, ttl) = (Token::new(fence, 1), Ttl::new(seconds).unwrap());
            Record::Granted(RecordedHold { token, ttl, ..hold(Claim::LOCK, None) })
        };
        let ages = 1 << 33;
        lead.note(&[granted(1, ages), granted(2, 500)], USUAL, now);
        lead.note(&[Record::Ended(Token::new(1, 1))], USUAL, now);
        assert_eq!(longest(&lead), ages, "a backup may be older");
        let mut heard = TOLD;
        heard.hear(&etcd(0xc1, 9), Some(lead.term));
        let later = |weeks| now + LENGTHS_COUNT * weeks + Duration::from_secs(1);
        lead.note(&[], USUAL, later(1));
        assert_eq!(longest(&lead), ages, "it was given in this time");
        lead.note(&[], USUAL, later(2) + LENGTHS_COUNT);
        assert_eq!(longest(&lead), 500, "it is present");
        lead.note(&[Record::Ended(Token::new(2, 1)), granted(3, 70)], USUAL, now);
        lead.note(&[Record::Ended(Token::new(3, 1))], USUAL, later(4));
        heard.hear(&etcd(0xc1, 10), Some(lead.term));
        assert_eq!((longest(&lead), heard.longest.span().count()), (70, 70));
        lead.note(&[], USUAL, later(6));
        assert_eq!(longest(&lead), 33);
    }

    /// The same cluster by its id, but what etcd had said is missing there: the next leaders see another cluster, wait
    /// for leases that only this server knows, and give out greater fences.
    #[test]
    fn an_etcd_that_went_back_is_another_cluster() {
        let mut heard = TOLD;
        let etcd = |revision| etcd(0xc1, revision);
        heard.hear(&etcd(40), Some(LAST));
        heard.hear(&etcd(41), Some(Term { longest: Ttl::new(300).unwrap(), ..LAST }));
        // What it hears from one that went back does not make it forget.
        heard.hear(&etcd(40), Some(LAST));
        for revision in [41, 42] {
            let next = first_term(Some(LAST), &etcd(revision), heard);
            assert_eq!((next.cluster, next.fence), (LAST.cluster, LAST.fence), "{revision}");
        }
        for last in [Some(LAST), None] {
            let next = first_term(last, &etcd(40), heard);
            assert_ne!(next.cluster, LAST.cluster);
            assert_eq!(next.longest.span().count(), 300);
            assert_eq!(next.fence, first_fence(42));
        }
    }

    #[test]
    fn a_server_that_was_told_nothing_believes_the_term() {
        let (heard, etcd) = (TOLD, etcd(0xc2, 1));
        let next = first_term(Some(LAST), &etcd, heard);
        assert_eq!((next.cluster, next.longest, next.fence), (0xc1, LAST.longest, LAST.fence));
        let first = first_term(None, &etcd, heard);
        assert_eq!((first.cluster, first.longest, first.fence), (0xc2, heard.longest, 0));
    }
}
