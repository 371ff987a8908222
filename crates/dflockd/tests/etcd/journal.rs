//! The journal against real members: what was committed is found by the next leader, and a server that does not lead
//! any more commits and confirms nothing, whatever happens to members.

use crate::relay::{Answers, Relay};
use leases::journal::{Failed, Journal, Record, RecordedHold};
use leases::{Claim, Label, Token, Ttl};
use leases_etcd::{Contact, EtcdJournal, EtcdOptions, Settings};
use rstest::rstest;
use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;
use testbed::dflockd::PATIENCE;
use testbed::dflockd::etcd::{self as cluster, Cluster};
use tokio::time::timeout;

const DEFAULT: Ttl = Ttl::new(33).unwrap();

fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { timeout(PATIENCE * 3, test).await.expect("the test ends") })
}

/// The options of one service.
struct Service(EtcdOptions);

impl Service {
    fn on(endpoints: &str) -> Self {
        let endpoints = endpoints.split(',').map(str::to_owned).collect();
        let mut options = EtcdOptions::default();
        options.endpoints = endpoints;
        options.prefix = cluster::prefix();
        Self(options)
    }

    fn journal(&self) -> EtcdJournal {
        EtcdJournal::new(Settings::open(&self.0).unwrap(), DEFAULT, contact())
    }

    /// The same, through these members.
    fn through(&self, endpoint: &str) -> EtcdJournal {
        let mut options = self.0.clone();
        options.endpoints = vec![endpoint.to_owned()];
        EtcdJournal::new(Settings::open(&options).unwrap(), DEFAULT, contact())
    }

    /// The name of a key in etcd.
    fn name(&self, key: &str) -> String {
        format!("{}{key}", self.0.prefix)
    }
}

fn contact() -> Contact {
    Contact { address: "127.0.0.1:1".to_owned(), secret: "5ec7e7".to_owned(), is_tls: false }
}

fn kept(fence: u64) -> RecordedHold {
    RecordedHold {
        key: format!("key-{fence}").into_bytes().into(),
        claim: if fence % 2 == 0 { Claim::LOCK } else { Claim::Shared },
        token: Token::new(fence, !fence),
        ttl: Ttl::new(60).unwrap(),
        left_micros: 60_000_000,
        label: (fence % 3 == 0).then(|| Label::new("al 1", "10.0.0.1 8")),
        slot: None,
    }
}

/// The holds that were committed, by fence.
#[derive(Default)]
struct Model(BTreeMap<u64, RecordedHold>);

impl Model {
    fn apply(&mut self, records: &[Record]) {
        for record in records {
            match record {
                Record::Granted(kept) | Record::Extended(kept) => {
                    self.0.insert(kept.token.fence(), kept.clone());
                }
                Record::Ended(token) => {
                    self.0.remove(&token.fence());
                }
            }
        }
    }

    async fn commit(&mut self, journal: &mut EtcdJournal, records: &[Record]) {
        journal.commit(records).await.expect("committed");
        self.apply(records);
    }

    /// Another server finds the same holds.
    async fn is_found_by(&self, journal: &mut EtcdJournal) -> u64 {
        let found = journal.load().await;
        assert_eq!(found.holds, self.0.values().cloned().collect::<Vec<_>>());
        assert!(self.0.keys().all(|fence| *fence < found.next_fence));
        found.next_fence
    }
}

#[test]
fn the_next_leader_finds_what_was_committed() {
    let service = Service::on(&cluster::shared_cluster().endpoints);
    run(async {
        let (mut first, mut model) = (service.journal(), Model::default());
        let fence = model.is_found_by(&mut first).await;
        let grants: Vec<_> =
            (fence..).take(EtcdJournal::MAX_RECORDS).map(|n| Record::Granted(kept(n))).collect();
        model.commit(&mut first, &grants).await;
        let shorter = RecordedHold { left_micros: 5, ..kept(fence) };
        let changes = [
            Record::Granted(kept(fence + 200)),
            Record::Extended(shorter.clone()),
            Record::Ended(kept(fence + 1).token),
            Record::Ended(kept(fence + 200).token),
        ];
        model.commit(&mut first, &changes).await;
        // More than one page.
        for at in 1..9 {
            let grants = (fence + 1000 * at..)
                .take(EtcdJournal::MAX_RECORDS)
                .map(|n| Record::Granted(kept(n)));
            model.commit(&mut first, &grants.collect::<Vec<_>>()).await;
        }
        assert!(first.room(1) > 0);
        let mut second = service.journal();
        let waits = timeout(Duration::from_secs(1), second.load()).await;
        assert!(waits.is_err(), "one leads");
        assert_eq!(first.confirm().await, Ok(()));
        first.end().await;
        let next = model.is_found_by(&mut second).await;
        assert!(next > fence + 10_000, "{next} after {fence}");
        // One that ends without a word has a lease of etcd that ends.
        drop(second);
        model.is_found_by(&mut service.journal()).await;
    });
}

/// It does not know yet: its lease of etcd lives. Only the guard tells.
#[test]
fn a_leader_that_was_succeeded_commits_and_confirms_nothing() {
    let mut cluster = Cluster::start(&[]);
    let service = Service::on(&cluster.endpoints);
    run(async {
        let mut model = Model::default();
        for deed in ["commit", "confirm"] {
            let (mut old, mut new) = (service.journal(), service.journal());
            let fence = model.is_found_by(&mut old).await;
            model.commit(&mut old, &[Record::Granted(kept(fence))]).await;
            cluster.control(&format!("del {}", service.name("leader")));
            model.is_found_by(&mut new).await;
            let outcome = match deed {
                "commit" => old.commit(&[Record::Ended(kept(fence).token)]).await,
                _ => old.confirm().await,
            };
            assert_eq!(outcome, Err(Failed), "{deed}");
            // The term is over.
            assert_eq!(old.commit(&[]).await, Err(Failed));
            assert_eq!(new.confirm().await, Ok(()));
            new.end().await;
        }
        model.is_found_by(&mut service.journal()).await;
    });
}

/// Its key is gone, and so is the key of a leader that came after it. Only the recorded term shows whether there was
/// one.
#[rstest]
#[case::nobody_has_led(false)]
#[case::another_has_led(true)]
fn a_leader_whose_session_is_over_leads_again(#[case] is_succeeded: bool) {
    let mut cluster = Cluster::start(&[]);
    let service = Service::on(&cluster.endpoints);
    run(async {
        let (mut old, mut model) = (service.journal(), Model::default());
        let fence = model.is_found_by(&mut old).await;
        model.commit(&mut old, &[Record::Granted(kept(fence))]).await;
        // On a busy machine, a session may end by itself in between; the journal has another one then.
        let session = loop {
            let session = cluster.control("lease list").pop().expect("its lease");
            match cluster.try_control(&format!("lease revoke {session}")) {
                Ok(_) => break session,
                Err(lines) => assert!(lines.concat().contains("lease not found"), "{lines:#?}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        if is_succeeded {
            let mut new = service.journal();
            model.is_found_by(&mut new).await;
            model.commit(&mut new, &[Record::Ended(kept(fence).token)]).await;
            new.end().await;
        }
        while cluster.control("lease list").get(1).is_none_or(|lease| *lease == session) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let outcome = old.commit(&[Record::Extended(kept(fence))]).await;
        assert_eq!(outcome, if is_succeeded { Err(Failed) } else { Ok(()) });
        model.is_found_by(&mut old).await;
    });
}

/// Its data are old, and it does not know yet that it is alone.
#[test]
fn a_member_that_is_alone_confirms_nothing() {
    let mut cluster = Cluster::start(&[]);
    let service = Service::on(&cluster.endpoints);
    let endpoints: Vec<_> = cluster.endpoints.split(',').map(str::to_owned).collect();
    run(async {
        let mut journal = service.through(&endpoints[0]);
        journal.load().await;
        assert_eq!(journal.confirm().await, Ok(()));
        cluster.stop(2);
        cluster.stop(3);
        assert_eq!(journal.confirm().await, Err(Failed));
        cluster.go_on(2);
        cluster.go_on(3);
        // The same server leads again.
        journal.load().await;
        assert_eq!(journal.confirm().await, Ok(()));
    });
}

/// A server that cannot commit any more begins again, and finds all or nothing of the commit that was unclear.
async fn commit_or_recover(journal: &mut EtcdJournal, model: &mut Model, records: &[Record]) {
    if journal.commit(records).await.is_ok() {
        return model.apply(records);
    }
    let found = journal.load().await.holds;
    if found != model.0.values().cloned().collect::<Vec<_>>() {
        model.apply(records);
        assert_eq!(found, model.0.values().cloned().collect::<Vec<_>>());
    }
}

#[test]
fn members_are_killed_stopped_and_compacted() {
    let mut cluster = Cluster::start(&[]);
    let service = Service::on(&cluster.endpoints);
    run(async {
        let (mut journal, mut model) = (service.journal(), Model::default());
        let mut fence = model.is_found_by(&mut journal).await;
        for fault in ["kill", "stop", "compact"] {
            let leader = cluster.leader();
            match fault {
                "kill" => cluster.kill(leader),
                "stop" => cluster.stop(leader),
                _ => {
                    let answer =
                        cluster.control(&format!("get {} -w fields", service.name("term")));
                    let line = answer.iter().find(|line| line.contains("\"Revision\"")).unwrap();
                    let revision = line.rsplit(' ').next().unwrap().to_owned();
                    cluster.control(&format!("compact {revision}"));
                }
            }
            for round in 0..100 {
                let ended = Record::Ended(kept(fence.saturating_sub(5)).token);
                let records =
                    [Record::Granted(kept(fence)), Record::Granted(kept(fence + 1)), ended];
                fence += 2;
                commit_or_recover(&mut journal, &mut model, &records).await;
                if round == 50 {
                    match fault {
                        "kill" => cluster.restart(leader),
                        "stop" => cluster.go_on(leader),
                        _ => {}
                    }
                }
            }
        }
        drop(journal);
        model.is_found_by(&mut service.journal()).await;
    });
}

/// The commit is applied, its answer is lost, and the same bytes find that it was done.
#[test]
fn a_commit_whose_answer_was_lost_is_done() {
    let endpoints = cluster::shared_cluster().endpoints.clone();
    let service = Service::on(&endpoints);
    let relay = Relay::to(endpoints.split(',').next().unwrap());
    run(async {
        let (mut journal, mut model) = (service.through(&relay.address), Model::default());
        let fence = model.is_found_by(&mut journal).await;
        relay.set(Answers::Lost);
        let records = [Record::Granted(kept(fence))];
        let holds = format!("get --prefix --keys-only {}", service.name("h/"));
        let hearing = async {
            while cluster::shared_cluster().control(&holds).is_empty() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            relay.set(Answers::Passed);
        };
        let ((), outcome) = tokio::join!(hearing, journal.commit(&records));
        assert_eq!(outcome, Ok(()));
        model.apply(&records);
        model.commit(&mut journal, &[Record::Granted(kept(fence + 1))]).await;
        journal.end().await;
        model.is_found_by(&mut service.journal()).await;
    });
}

/// The first commit was applied, but nobody knows. A larger one would find its number in etcd, and count as done.
#[test]
fn after_a_failed_commit_no_larger_one_takes_its_number() {
    let endpoints = cluster::shared_cluster().endpoints.clone();
    let service = Service::on(&endpoints);
    let relay = Relay::to(endpoints.split(',').next().unwrap());
    run(async {
        let (mut journal, mut model) = (service.through(&relay.address), Model::default());
        let fence = model.is_found_by(&mut journal).await;
        model.commit(&mut journal, &[Record::Granted(kept(fence))]).await;
        relay.set(Answers::Lost);
        let first = [Record::Granted(kept(fence + 1))];
        assert_eq!(journal.commit(&first).await, Err(Failed));
        relay.set(Answers::Passed);
        let larger = [Record::Granted(kept(fence + 1)), Record::Ended(kept(fence).token)];
        assert_eq!(journal.commit(&larger).await, Err(Failed));
        model.apply(&first);
        model.is_found_by(&mut journal).await;
    });
}

/// Nobody leads while there are keys that this version must not touch.
#[test]
fn foreign_keys_are_left_alone() {
    let mut cluster = Cluster::start(&[]);
    let service = Service::on(&cluster.endpoints);
    run(async {
        for (name, value) in [
            ("f/00000000000000ab", "anything"),
            ("t/anything", "anything"),
            ("term", "2/another_format"),
            ("term", "anything"),
            ("h/00000000000000ab", "anything"),
        ] {
            let name = service.name(name);
            cluster.control(&format!("put {name} {value}"));
            let mut journal = service.journal();
            let leads = timeout(Duration::from_secs(1), journal.load()).await;
            assert!(leads.is_err(), "{name}");
            cluster.control(&format!("del {name}"));
            journal.load().await;
            assert_eq!(journal.commit(&[]).await, Ok(()));
            journal.end().await;
        }
    });
}

/// In a restored backup holds may be missing. Every leader grants nothing until they are over.
#[test]
fn another_cluster_is_closed_for_the_longest_lease() {
    let mut cluster = Cluster::start(&[]);
    let service = Service::on(&cluster.endpoints);
    run(async {
        // More fences than this etcd has revisions for.
        let term = "1/00000000000000c1/60/00ffffffffff001f/000000000000001e/12";
        cluster.control(&format!("put {} {term}", service.name("term")));
        for _ in 0..2 {
            let mut journal = service.journal();
            let found = journal.load().await;
            assert_eq!(found.closed_micros, 60_000_000);
            assert!(found.next_fence > 0x00ff_ffff_ffff_001f);
            assert_eq!(journal.commit(&[]).await, Ok(()));
            journal.end().await;
        }
    });
}

/// No client may have asked for anything meanwhile, so a change of leader must not begin the waiting again.
#[test]
fn a_wait_that_is_over_is_recorded() {
    let mut cluster = Cluster::start(&[]);
    let service = Service::on(&cluster.endpoints);
    let journal =
        || EtcdJournal::new(Settings::open(&service.0).unwrap(), Ttl::new(1).unwrap(), contact());
    run(async {
        let term = "1/00000000000000c1/1/000000000000001f/000000000000001e/12";
        cluster.control(&format!("put {} {term}", service.name("term")));
        let mut first = journal();
        assert_eq!(first.load().await.closed_micros, 1_000_000);
        let show = format!("get --print-value-only {}", service.name("term"));
        while cluster.control(&show).concat().contains("00000000000000c1") {
            assert_eq!(first.confirm().await, Ok(()));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        first.end().await;
        assert_eq!(journal().load().await.closed_micros, 0);
    });
}
