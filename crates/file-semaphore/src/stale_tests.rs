//! The table "Stale" of the contract, row by row, with every fact put in by hand.

use std::time::UNIX_EPOCH;

use rstest::rstest;

use super::*;
use crate::record::LockInfo;

const BOOT: &str = "0f2b6e5e-7a43-4f0c-9d4e-1d7b1b1d1a11";
const OTHER_BOOT: &str = "ffffffff-7a43-4f0c-9d4e-1d7b1b1d1a11";
const START: u64 = 777;
const TAKEN: u64 = 1_700_000_000;
const HOUR: u64 = 3600;
/// The last second that a clock of Unix can show.
const END_OF_TIME: u64 = i64::MAX as u64;

fn here() -> Here {
    let host = Some("alpha".into());
    Here { boot: Some(BOOT.into()), pidns: Some(5), host, ..Here::default() }
}

/// The age of a lock whose file has the time that it tells.
fn age_of(info: &LockInfo, now: u64) -> Age {
    Age::of(info.taken(), UNIX_EPOCH + Duration::from_secs(now))
}

fn exact() -> Holder {
    Holder {
        pid: 42,
        start: Some(START),
        boot: Some(BOOT.into()),
        pidns: Some(5),
        host: Some("alpha".into()),
        nobody: false,
    }
}

fn after_reboot() -> Holder {
    Holder { boot: Some(OTHER_BOOT.into()), ..exact() }
}

fn in_another_namespace() -> Holder {
    Holder { pidns: Some(6), ..exact() }
}

fn in_another_container() -> Holder {
    Holder { host: Some("3f2a".into()), ..in_another_namespace() }
}

fn on_another_host() -> Holder {
    Holder { boot: Some(OTHER_BOOT.into()), host: Some("beta".into()), ..exact() }
}

const GONE: Option<Start> = Some(Start::Nobody);
const SAME: Option<Start> = Some(Start::At(START));
const REUSED: Option<Start> = Some(Start::At(START + 1));
const UNSEEN: Option<Start> = None;
const HIDDEN: Option<Start> = Some(Start::Unknown);

#[rstest]
#[case::exact_alive(exact(), SAME, Liveness::Alive)]
#[case::exact_alive_but_hidden(exact(), HIDDEN, Liveness::Alive)]
#[case::exact_gone(exact(), GONE, Liveness::Dead)]
#[case::pid_reused(exact(), REUSED, Liveness::Dead)]
#[case::rebooted_pid_free(after_reboot(), GONE, Liveness::Dead)]
#[case::rebooted_pid_taken(after_reboot(), REUSED, Liveness::Dead)]
#[case::rebooted_same_start_by_chance(after_reboot(), SAME, Liveness::Dead)]
#[case::bare_alive(Holder::bare(42), REUSED, Liveness::NumberTaken)]
#[case::bare_alive_not_permitted(Holder::bare(42), HIDDEN, Liveness::NumberTaken)]
#[case::bare_gone(Holder::bare(42), GONE, Liveness::NumberFree)]
#[case::another_namespace_not_seen(in_another_namespace(), UNSEEN, Liveness::Namesake)]
#[case::another_namespace_and_name(in_another_container(), UNSEEN, Liveness::Elsewhere)]
#[case::another_namespace_all_seen(in_another_namespace(), GONE, Liveness::Dead)]
#[case::another_namespace_found(in_another_container(), SAME, Liveness::Alive)]
#[case::nobody(Holder::nobody(42, Some("beta")), GONE, Liveness::Ownerless)]
#[case::another_host_pid_free_here(on_another_host(), GONE, Liveness::Elsewhere)]
#[case::another_host_pid_taken_here(on_another_host(), REUSED, Liveness::Elsewhere)]
#[case::renamed_but_same_boot(Holder { host: Some("old-name".into()), ..exact() }, SAME, Liveness::Alive)]
#[case::renamed_same_boot_gone(Holder { host: Some("old-name".into()), ..exact() }, GONE, Liveness::Dead)]
#[case::other_boot_and_no_name(Holder { host: None, ..after_reboot() }, GONE, Liveness::Elsewhere)]
#[case::other_boot_and_namespace(Holder { pidns: Some(6), ..after_reboot() }, UNSEEN, Liveness::Namesake)]
#[case::container_with_a_boot_of_its_own(Holder { pidns: Some(6), ..after_reboot() }, SAME, Liveness::Alive)]
#[case::other_boot_and_namespace_all_seen(Holder { pidns: Some(6), ..after_reboot() }, GONE, Liveness::Dead)]
#[case::other_boot_namespace_and_name(Holder { pidns: Some(6), ..on_another_host() }, UNSEEN, Liveness::Elsewhere)]
#[case::only_a_foreign_name(Holder { host: Some("beta".into()), ..Holder::bare(42) }, GONE, Liveness::Elsewhere)]
#[case::only_our_name(Holder { host: Some("alpha".into()), ..Holder::bare(42) }, GONE, Liveness::NumberFree)]
#[case::only_a_foreign_namespace(Holder { pidns: Some(6), ..Holder::bare(42) }, GONE, Liveness::Elsewhere)]
#[case::start_missing(Holder { start: None, ..exact() }, GONE, Liveness::NumberFree)]
#[case::boot_missing(Holder { boot: None, ..exact() }, GONE, Liveness::NumberFree)]
#[case::namespace_missing(Holder { pidns: None, ..exact() }, GONE, Liveness::NumberFree)]
fn the_standing_of_a_holder(
    #[case] holder: Holder,
    #[case] seen: Option<Start>,
    #[case] liveness: Liveness,
) {
    assert_eq!(Liveness::of(&holder, &here(), seen), liveness);
}

#[rstest]
#[case::no_boot_id(Here { boot: None, ..here() }, Liveness::Elsewhere)]
#[case::no_boot_id_and_no_name(Here { boot: None, host: None, ..here() }, Liveness::Elsewhere)]
#[case::no_namespace(Here { pidns: None, ..here() }, Liveness::Namesake)]
#[case::nothing(Here::default(), Liveness::Elsewhere)]
fn a_process_that_does_not_know_where_it_is(#[case] here: Here, #[case] liveness: Liveness) {
    assert_eq!(Liveness::of(&exact(), &here, UNSEEN), liveness);
}

/// Rows of the contract's table; columns are the rules, each at one hour and one second more.
#[rstest]
#[case::surely_dead(Liveness::Dead, [(true, true), (true, true), (false, true), (true, true)])]
#[case::surely_alive(Liveness::Alive, [(false, false), (false, true), (false, false), (false, false)])]
#[case::only_a_number_free(Liveness::NumberFree, [(false, true), (false, true), (false, true), (false, true)])]
#[case::only_a_number_taken(Liveness::NumberTaken, [(false, false), (false, true), (false, false), (false, false)])]
#[case::elsewhere(Liveness::Elsewhere, [(false, false), (false, true), (false, false), (false, false)])]
#[case::namesake(Liveness::Namesake, [(false, false), (false, true), (false, false), (true, true)])]
#[case::ownerless(Liveness::Ownerless, [(false, false), (false, true), (false, false), (false, false)])]
fn each_rule_says_which_locks_are_stale(
    #[case] liveness: Liveness,
    #[case] columns: [(bool, bool); 4],
) {
    let rules = [StaleRule::Dead, StaleRule::Age, StaleRule::DeadAndOld, StaleRule::Host];
    let info = LockInfo::new(Holder::bare(42), TAKEN, None);
    for (rule, (young, old)) in rules.into_iter().zip(columns) {
        let policy = StalePolicy { rule, timeout: Some(Duration::from_secs(HOUR)) };
        assert_eq!(policy.is_stale(liveness, age_of(&info, TAKEN)), young, "{rule:?}, just taken");
        assert_eq!(
            policy.is_stale(liveness, age_of(&info, TAKEN + HOUR)),
            young,
            "{rule:?}, an hour"
        );
        assert_eq!(
            policy.is_stale(liveness, age_of(&info, TAKEN + HOUR + 1)),
            old,
            "{rule:?}, older"
        );
        let never = StalePolicy { rule, timeout: None };
        assert!(!never.is_stale(liveness, age_of(&info, END_OF_TIME)), "{rule:?}, never");
    }
}

/// A clock that was set back a little makes nothing older. If it was set back further, the lock and its file are
/// from the future: nobody knows how old they are, so they are old.
#[rstest]
#[case::one_second(TAKEN - 1, false)]
#[case::a_year(TAKEN - 31_536_000, true)]
#[case::to_1970(0, true)]
fn clock_set_back(#[case] now: u64, #[case] old: bool) {
    let info = LockInfo::new(Holder::bare(42), TAKEN, None);
    for rule in [StaleRule::Dead, StaleRule::Age, StaleRule::DeadAndOld] {
        let policy = StalePolicy { rule, timeout: Some(Duration::from_secs(HOUR)) };
        let is_stale = |liveness| policy.is_stale(liveness, age_of(&info, now));
        assert_eq!(is_stale(Liveness::Alive), old && rule == StaleRule::Age);
        assert_eq!(is_stale(Liveness::NumberFree), old);
        assert_eq!(is_stale(Liveness::Elsewhere), old && rule == StaleRule::Age);
        assert_eq!(is_stale(Liveness::Dead), old || rule != StaleRule::DeadAndOld);
        let never = StalePolicy { rule, timeout: None };
        assert!(!never.is_stale(Liveness::NumberFree, age_of(&info, now)));
    }
}

#[rstest]
#[case::a_day(TAKEN + 86_400)]
#[case::to_the_end_of_time(END_OF_TIME)]
fn clock_set_forward(#[case] now: u64) {
    let info = LockInfo::new(Holder::bare(42), TAKEN, None);
    let timeout = Some(Duration::from_secs(HOUR));
    let policy = StalePolicy { rule: StaleRule::Dead, timeout };
    assert!(!policy.is_stale(Liveness::Alive, age_of(&info, now)), "a live holder keeps its lock");
    assert!(!policy.is_stale(Liveness::NumberTaken, age_of(&info, now)));
    assert!(!policy.is_stale(Liveness::Elsewhere, age_of(&info, now)));
    assert!(policy.is_stale(Liveness::NumberFree, age_of(&info, now)));
}

#[rstest]
#[case::alive(Liveness::Alive, Some(true))]
#[case::number_taken(Liveness::NumberTaken, Some(true))]
#[case::dead(Liveness::Dead, Some(false))]
#[case::number_free(Liveness::NumberFree, Some(false))]
#[case::elsewhere(Liveness::Elsewhere, None)]
fn status_tells_whether_the_holder_is_alive(
    #[case] liveness: Liveness,
    #[case] alive: Option<bool>,
) {
    assert_eq!(liveness.is_alive(), alive);
}
