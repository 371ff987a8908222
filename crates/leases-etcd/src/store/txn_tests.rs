//! The transactions against eighty lines of etcd: what they do in every state they may find.

use super::super::keys::{Front, Names};
use super::super::rpc::ResponseHeader;
use super::super::together::{Together, create_all, read_created_all};
use super::*;
use leases::Limit;
use rstest::rstest;
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
struct Entry {
    create: i64,
    revision: i64,
    value: Vec<u8>,
    lease: i64,
}

/// Conditions are judged before anything is done, as etcd does; a transaction that writes gets a
/// revision of its own.
#[derive(Clone, Debug, Default)]
struct Etcd {
    entries: BTreeMap<Vec<u8>, Entry>,
    revision: i64,
}

impl Etcd {
    fn span(&self, from: &[u8], to: &[u8]) -> Vec<(Vec<u8>, Entry)> {
        let within =
            |name: &[u8]| if to.is_empty() { name == from } else { name >= from && name < to };
        let all = self.entries.iter().filter(|(name, _)| within(name));
        all.map(|(name, entry)| (name.clone(), entry.clone())).collect()
    }

    fn holds(&self, compare: &Compare) -> bool {
        let found = self.span(&compare.key, &compare.range_end);
        let absent = Entry { create: 0, revision: 0, value: Vec::new(), lease: 0 };
        let judge = |entry: &Entry| {
            let order = match compare.target_union.as_ref().unwrap() {
                TargetUnion::CreateRevision(want) => entry.create.cmp(want),
                TargetUnion::ModRevision(want) => entry.revision.cmp(want),
                TargetUnion::Value(want) => entry.value.cmp(want),
                TargetUnion::Version(_) | TargetUnion::Lease(_) => panic!("not used"),
            };
            match compare.result() {
                CompareResult::Equal => order.is_eq(),
                CompareResult::Less => order.is_lt(),
                CompareResult::Greater => order.is_gt(),
                CompareResult::NotEqual => panic!("not used"),
            }
        };
        if found.is_empty() {
            return compare.target() != CompareTarget::Value && judge(&absent);
        }
        found.iter().all(|(_, entry)| judge(entry))
    }

    fn txn(&mut self, request: &TxnRequest) -> TxnResponse {
        let before = self.clone();
        let next = self.revision + 1;
        let mut answer = self.apply(&before, next, request);
        answer.header =
            Some(ResponseHeader { revision: self.revision, ..ResponseHeader::default() });
        answer
    }

    fn apply(&mut self, before: &Self, next: i64, request: &TxnRequest) -> TxnResponse {
        let succeeded = request.compare.iter().all(|compare| before.holds(compare));
        let ops = if succeeded { &request.success } else { &request.failure };
        let mut responses = Vec::new();
        for op in ops {
            let response = match op.request.as_ref().unwrap() {
                Request::RequestRange(range) => {
                    let found = self.span(&range.key, &range.range_end);
                    let count = i64::try_from(found.len()).unwrap();
                    let kv = |(key, entry): (Vec<u8>, Entry)| KeyValue {
                        key,
                        create_revision: entry.create,
                        mod_revision: entry.revision,
                        value: entry.value,
                        lease: entry.lease,
                        version: 1,
                    };
                    let kvs = if range.count_only {
                        Vec::new()
                    } else {
                        found.into_iter().map(kv).collect()
                    };
                    Response::ResponseRange(RangeResponse {
                        kvs,
                        count,
                        ..RangeResponse::default()
                    })
                }
                Request::RequestPut(put) => {
                    self.revision = next;
                    let create = self.entries.get(&put.key).map_or(next, |entry| entry.create);
                    let (value, lease) = (put.value.clone(), put.lease);
                    self.entries
                        .insert(put.key.clone(), Entry { create, revision: next, value, lease });
                    Response::ResponsePut(super::super::rpc::PutResponse {})
                }
                Request::RequestDeleteRange(delete) => {
                    if self.entries.remove(&delete.key).is_some() {
                        self.revision = next;
                    }
                    Response::ResponseDeleteRange(Default::default())
                }
                Request::RequestTxn(inner) => {
                    Response::ResponseTxn(self.apply(before, next, inner))
                }
            };
            responses.push(ResponseOp { response: Some(response) });
        }
        TxnResponse { header: None, succeeded, responses }
    }
}

const FRONT: Front = Front(7);
const LEASE: i64 = 77;

struct Scene {
    etcd: Etcd,
    names: Names,
    session: Session,
}

impl Scene {
    fn new() -> Self {
        let (mut etcd, names) = (Etcd::default(), Names::new("p/"));
        let answer = etcd.txn(&register(&names.front(FRONT), LEASE));
        assert!(answer.succeeded);
        Self { etcd, names, session: Session { lease: LEASE, revision: 1 } }
    }

    fn request(&self, key: &[u8], nonce: u64, limit: u64, behind: Behind) -> TxnRequest {
        let limit = Limit::new(limit).unwrap();
        let (held, waiting) = (b"h ".to_vec(), b"w ".to_vec());
        let claim = Claim::Slot(limit);
        let new = Create { key, nonce, claim, behind, counts: true, held, waiting };
        create(&self.names, &self.names.front(FRONT), self.session, &new)
    }

    fn shared(&mut self, key: &[u8], nonce: u64, behind: Behind) -> Created {
        let (held, waiting) = (b"x ".to_vec(), b"y ".to_vec());
        let claim = Claim::Shared;
        let new = Create { key, nonce, claim, behind, counts: true, held, waiting };
        let request = create(&self.names, &self.names.front(FRONT), self.session, &new);
        read_created(behind, &self.etcd.txn(&request)).unwrap()
    }

    fn create(&mut self, key: &[u8], nonce: u64, limit: u64, behind: Behind) -> Created {
        let request = self.request(key, nonce, limit, behind);
        let answer = self.etcd.txn(&request);
        read_created(behind, &answer).unwrap()
    }

    fn ticket(&self, key: &[u8], nonce: u64) -> Option<&Entry> {
        self.etcd.entries.get(&self.names.ticket(key, nonce))
    }

    fn change(&mut self, request: &TxnRequest) -> Changed {
        read_changed(&self.etcd.txn(request)).unwrap()
    }
}

/// A ticket behind others that are known to wait is a waiting one, even if they have gone.
#[test]
fn a_client_that_joins_a_queue_waits() {
    let mut scene = Scene::new();
    scene.create(b"k", 1, 1, Behind::Wait);
    let queued = scene.create(b"k", 2, 1, Behind::Queue);
    assert_eq!(queued, Created::Behind { revision: 3, tickets: 2 });
    for nonce in [1, 2] {
        let create = scene.ticket(b"k", nonce).unwrap().create;
        let name = scene.names.ticket(b"k", nonce);
        assert!(matches!(scene.change(&remove(&name, Guard::Create(create))), Changed::Done(_)));
    }
    let queued = scene.create(b"k", 3, 1, Behind::Queue);
    assert_eq!(queued, Created::Behind { revision: 6, tickets: 1 });
    assert_eq!(&*scene.ticket(b"k", 3).unwrap().value, b"w ");
}

#[test]
fn a_lock_is_one_ticket_after_another() {
    let mut scene = Scene::new();
    assert_eq!(
        scene.create(b"k", 1, 1, Behind::Wait),
        Created::NewKey { revision: 2, keys: Some(1) }
    );
    assert_eq!(scene.create(b"k", 2, 1, Behind::Wait), Created::Behind { revision: 3, tickets: 2 });
    assert_eq!(
        scene.create(b"k", 3, 1, Behind::Stay(0)),
        Created::Full { tickets: 2, revision: 3 }
    );
    let (first, second) = (scene.ticket(b"k", 1).unwrap(), scene.ticket(b"k", 2).unwrap());
    // A hold is on no lease, a place in the queue on its front-end's.
    assert_eq!((&*first.value, first.lease), (&b"h "[..], 0));
    assert_eq!((&*second.value, second.lease), (&b"w "[..], LEASE));
    assert!(scene.ticket(b"k", 3).is_none());
    assert_eq!(
        scene.create(b"other", 4, 1, Behind::Wait),
        Created::NewKey { revision: 4, keys: Some(2) }
    );
}

/// A reader is a hold at once if there are readers only, and no ticket waits.
#[test]
fn readers_share_a_lock() {
    let mut scene = Scene::new();
    let first = scene.shared(b"k", 1, Behind::Wait);
    assert_eq!(first, Created::NewKey { revision: 2, keys: Some(1) });
    assert_eq!(scene.shared(b"k", 2, Behind::Wait), Created::Held(3));
    assert_eq!(scene.shared(b"k", 3, Behind::Stay(0)), Created::Held(4));
    for nonce in 1..=3 {
        let ticket = scene.ticket(b"k", nonce).unwrap();
        assert_eq!((&*ticket.value, ticket.lease), (&b"x "[..], 0));
    }
    // Behind others of its front-end it waits in any case.
    assert_eq!(scene.shared(b"k", 4, Behind::Queue), Created::Behind { revision: 5, tickets: 4 });
    assert_eq!(&*scene.ticket(b"k", 4).unwrap().value, b"y ");
    let tried = scene.create(b"k", 5, 1, Behind::Stay(0));
    assert_eq!(tried, Created::Full { tickets: 4, revision: 5 });
    let writer = scene.create(b"k", 5, 1, Behind::Wait);
    assert_eq!(writer, Created::Behind { revision: 6, tickets: 5 });
    assert_eq!(scene.shared(b"k", 6, Behind::Wait), Created::Behind { revision: 7, tickets: 6 });
    let tried = scene.shared(b"k", 7, Behind::Stay(0));
    assert_eq!(tried, Created::Full { tickets: 6, revision: 7 });
    // Nobody is there any more, and the key is known.
    for nonce in 1..=6 {
        let name = scene.names.ticket(b"k", nonce);
        let create = scene.ticket(b"k", nonce).unwrap().create;
        scene.change(&remove(&name, Guard::Create(create)));
    }
    assert_eq!(scene.shared(b"k", 8, Behind::Wait), Created::Held(14));
    assert_eq!(scene.create(b"k", 9, 2, Behind::Wait), Created::Mismatch);
}

#[test]
fn a_semaphore_is_not_shared() {
    let mut scene = Scene::new();
    scene.create(b"p", 1, 2, Behind::Hope);
    assert_eq!(scene.shared(b"p", 2, Behind::Wait), Created::Mismatch);
}

#[test]
fn a_limit_stays_while_the_key_is_used() {
    let mut scene = Scene::new();
    scene.create(b"k", 1, 3, Behind::Hope);
    assert_eq!(scene.create(b"k", 2, 2, Behind::Hope), Created::Mismatch);
    let name = scene.names.ticket(b"k", 1);
    assert_eq!(scene.change(&remove(&name, Guard::Create(2))), Changed::Done(3));
    assert_eq!(scene.create(b"k", 3, 3, Behind::Hope), Created::Held(4));
    let name = scene.names.ticket(b"k", 3);
    scene.change(&remove(&name, Guard::Create(4)));
    assert!(matches!(
        scene.create(b"k", 4, 2, Behind::Hope),
        Created::NewKey { keys: Some(1), .. }
    ));
}

/// A try for a slot of a pool is only good as long as nobody has come since the count.
#[test]
fn a_try_that_was_overtaken_takes_nothing() {
    let mut scene = Scene::new();
    scene.create(b"p", 1, 2, Behind::Hope);
    assert_eq!(
        scene.create(b"p", 2, 2, Behind::Stay(0)),
        Created::Full { tickets: 1, revision: 2 }
    );
    let mut other = Scene { etcd: scene.etcd.clone(), names: scene.names.clone(), ..scene };
    assert_eq!(scene.create(b"p", 2, 2, Behind::Stay(2)), Created::Held(3));
    other.create(b"p", 3, 2, Behind::Hope);
    assert_eq!(
        other.create(b"p", 2, 2, Behind::Stay(2)),
        Created::Full { tickets: 2, revision: 3 }
    );
}

#[test]
fn without_its_session_nothing_is_made() {
    let mut scene = Scene::new();
    let front = scene.names.front(FRONT);
    scene.etcd.entries.remove(&front);
    assert_eq!(scene.create(b"k", 1, 1, Behind::Wait), Created::NoSession);
    // Nor in the name of a later one.
    scene.etcd.txn(&register(&front, 78));
    assert_eq!(scene.create(b"k", 1, 1, Behind::Wait), Created::NoSession);
    assert!(scene.ticket(b"k", 1).is_none());
}

/// Whether a create without an answer came first or comes last: after its burial it is not there.
#[rstest]
fn a_buried_ticket_does_not_exist(#[values("before", "after", "both")] when: &str) {
    let mut scene = Scene::new();
    let late = scene.request(b"k", 1, 1, Behind::Wait);
    if when != "after" {
        scene.etcd.txn(&late);
    }
    let burial = bury(&scene.names, scene.session, &[(b"k"[..].into(), 1)]);
    scene.etcd.txn(&burial);
    if when != "before" {
        scene.etcd.txn(&late);
    }
    assert!(scene.ticket(b"k", 1).is_none());
    // A second time does no harm.
    scene.etcd.txn(&burial);
    assert!(!matches!(scene.create(b"k", 2, 1, Behind::Wait), Created::Behind { .. }));
}

#[rstest]
#[case::as_known(3, true)]
#[case::gone_meanwhile(2, false)]
fn a_hold_goes_with_or_without_a_next_one(#[case] revision: i64, #[case] handed: bool) {
    let mut scene = Scene::new();
    scene.create(b"k", 1, 1, Behind::Wait);
    scene.create(b"k", 2, 1, Behind::Wait);
    let (first, second) = (scene.names.ticket(b"k", 1), scene.names.ticket(b"k", 2));
    let next = || Next { name: second.clone(), revision, held: b"h ".to_vec() };
    // Not while the hold is another one than was meant.
    let answer = scene.etcd.txn(&hand_over(&first, Guard::Create(9), next()));
    assert!(!is_handed_over(&answer));
    assert!(
        matches!(read_changed(&answer), Some(Changed::Other(found)) if found.create_revision == 2)
    );
    let answer = scene.etcd.txn(&hand_over(&first, Guard::Create(2), next()));
    assert_eq!((is_handed_over(&answer), read_changed(&answer)), (handed, Some(Changed::Done(4))));
    assert!(scene.ticket(b"k", 1).is_none());
    let second = scene.ticket(b"k", 2).unwrap();
    // Its place, which is its fence, stays.
    assert_eq!(second.create, 3);
    assert_eq!((second.value == b"h ", second.lease), (handed, if handed { 0 } else { LEASE }));
}

#[test]
fn guarded_changes() {
    let mut scene = Scene::new();
    scene.create(b"k", 1, 1, Behind::Wait);
    let name = scene.names.ticket(b"k", 1);
    assert_eq!(scene.change(&rewrite(&name, Guard::Mod(2), b"x".to_vec(), 0)), Changed::Done(3));
    let again = rewrite(&name, Guard::Mod(2), b"y".to_vec(), 0);
    assert!(matches!(scene.change(&again), Changed::Other(found) if found.mod_revision == 3));
    assert_eq!(scene.change(&remove(&name, Guard::Mod(3))), Changed::Done(4));
    assert_eq!(scene.change(&remove(&name, Guard::Mod(3))), Changed::Gone);
    assert_eq!(scene.change(&rewrite(&name, Guard::Mod(3), Vec::new(), 0)), Changed::Gone);
}

#[test]
fn a_key_in_use_is_not_forgotten() {
    let mut scene = Scene::new();
    scene.create(b"k", 1, 1, Behind::Wait);
    let forget = forget(&scene.names, b"k", 2);
    assert!(!scene.etcd.txn(&forget).succeeded);
    let name = scene.names.ticket(b"k", 1);
    scene.change(&remove(&name, Guard::Create(2)));
    assert!(scene.etcd.txn(&forget).succeeded);
    assert!(scene.etcd.entries.keys().all(|name| !name.starts_with(b"p/m/")));
}

/// Together they do what they do alone, each with an answer of its own.
#[test]
fn transactions_in_a_batch_act_as_they_would_alone() {
    let mut scene = Scene::new();
    let parts: Vec<TxnRequest> =
        (1..=3).map(|n| scene.request(format!("k{n}").as_bytes(), n, 1, Behind::Wait)).collect();
    let answers = split(scene.etcd.txn(&batch(parts)));
    let created: Vec<Created> = answers
        .iter()
        .map(|part| read_created(Behind::Wait, part.as_ref().unwrap()).unwrap())
        .collect();
    let new = |keys| Created::NewKey { revision: 2, keys: Some(keys) };
    assert_eq!(created, [new(1), new(2), new(3)]);
}

/// A response that does not fit the request is rejected, not read as a wrong answer.
#[test]
fn nonsense_is_no_answer() {
    assert_eq!(read_created(Behind::Wait, &TxnResponse::default()), None);
    assert_eq!(read_changed(&TxnResponse::default()), None);
    let header = Some(ResponseHeader::default());
    let empty = TxnResponse { header, succeeded: true, responses: Vec::new() };
    assert_eq!(read_created(Behind::Wait, &empty), None);
    assert!(!is_handed_over(&empty));
}

type Tickets = Vec<(Arc<[u8]>, u64)>;

fn tickets(keys: &str, nonce: u64) -> Tickets {
    keys.bytes().zip(nonce..).map(|(key, nonce)| (Arc::from([key]), nonce)).collect()
}

impl Scene {
    fn together(&self, tickets: &Tickets, counts: bool) -> TxnRequest {
        create_all(&self.names, &self.names.front(FRONT), self.session, tickets, b"h ", counts)
    }

    fn create_all(&mut self, tickets: &Tickets, counts: bool) -> Together {
        let request = self.together(tickets, counts);
        read_created_all(tickets.len(), &self.etcd.txn(&request)).unwrap()
    }
}

/// All of several keys at one revision, or nothing at all: what is in etcd before, and what becomes of `abc`.
#[rstest]
#[case::all_are_new("", Some((vec![0, 1, 2], 3)))]
#[case::some_are_known("-b -x", Some((vec![0, 2], 4)))]
#[case::all_are_known("-a -b -c", Some((vec![], 3)))]
#[case::one_was_a_semaphore("~a -c", Some((vec![0, 1], 3)))]
#[case::one_is_held("a", None)]
#[case::the_last_is_held("-a c", None)]
#[case::one_has_a_slot_left("2b", None)]
#[case::one_is_shared("sc", None)]
fn several_tickets_are_made_together(
    #[case] before: &str,
    #[case] want: Option<(Vec<usize>, i64)>,
    #[values(true, false)] counts: bool,
) {
    let mut scene = Scene::new();
    for (nonce, word) in (1..).zip(before.split_whitespace()) {
        let key = &word.as_bytes()[word.len() - 1..];
        match word.as_bytes()[0] {
            b'2' => drop(scene.create(key, nonce, 2, Behind::Hope)),
            b's' => drop(scene.shared(key, nonce, Behind::Wait)),
            b'~' => drop(scene.create(key, nonce, 5, Behind::Hope)),
            _ => drop(scene.create(key, nonce, 1, Behind::Wait)),
        }
        if matches!(word.as_bytes()[0], b'-' | b'~') {
            let name = scene.names.ticket(key, nonce);
            let create = scene.ticket(key, nonce).unwrap().create;
            scene.change(&remove(&name, Guard::Create(create)));
        }
    }
    let (entries, revision) = (scene.etcd.entries.len(), scene.etcd.revision);
    let all = tickets("abc", 100);
    let found = scene.create_all(&all, counts);
    let Some((new, keys)) = want else {
        assert_eq!(found, Together::InUse);
        assert_eq!((scene.etcd.entries.len(), scene.etcd.revision), (entries, revision));
        return;
    };
    assert_eq!(found, Together::Held { new, keys: counts.then_some(keys) });
    assert_eq!(scene.etcd.revision, revision + 1, "one revision for all");
    for (key, nonce) in &all {
        let Entry { create, value, lease, .. } = scene.ticket(key, *nonce).unwrap();
        assert_eq!((*create, value.as_slice(), *lease), (revision + 1, &b"h "[..], 0));
        assert_eq!(scene.etcd.entries[&scene.names.limit(key)].value, b"1");
    }
    // Each is a hold like any other.
    assert!(matches!(scene.create(b"b", 9, 1, Behind::Wait), Created::Behind { tickets: 2, .. }));
    assert_eq!(scene.create_all(&tickets("xc", 200), counts), Together::InUse);
}

#[test]
fn without_its_session_none_of_several_is_made() {
    let mut scene = Scene::new();
    let front = scene.names.front(FRONT);
    scene.etcd.entries.remove(&front);
    assert_eq!(scene.create_all(&tickets("ab", 1), false), Together::NoSession);
    scene.etcd.txn(&register(&front, 78));
    assert_eq!(scene.create_all(&tickets("ab", 1), false), Together::NoSession);
    assert!(scene.ticket(b"a", 1).is_none() && scene.ticket(b"b", 2).is_none());
}

/// If the answer to several creates is lost, all of them have the same outcome.
#[rstest]
fn several_are_buried_together(#[values("before", "after", "both")] when: &str) {
    let mut scene = Scene::new();
    let all = tickets("abcd", 1);
    let late = scene.together(&all, true);
    if when != "after" {
        scene.etcd.txn(&late);
    }
    let burial = bury(&scene.names, scene.session, &all);
    scene.etcd.txn(&burial);
    if when != "before" {
        let late = scene.etcd.txn(&late);
        assert_eq!(read_created_all(all.len(), &late), Some(Together::NoSession));
    }
    assert!(all.iter().all(|(key, nonce)| scene.ticket(key, *nonce).is_none()));
    scene.etcd.txn(&burial);
    assert!(matches!(scene.create_all(&tickets("dcba", 9), true), Together::Held { .. }));
}
