//! A model of the locks of one device: gate, file with links, records and PASS, and every order of the calls of three
//! processes, each of which may be stopped or killed at every call. Meanwhile, holders end, and foreign programs remove a
//! name or take one. The numbers of removed files are given to the next ones at once, and the clock stands still.
//!
//! What is promised, in every state: no two holders; no lock of a living process is removed, or looks dead to a reader that
//! has only its record; a lock that is being passed is the giver's until its first name has changed, and the receiver's
//! then. And if all processes were killed in this state: a daemon that starts leaves the lock of the living holder as it
//! is, only its holder can release it, and afterwards nothing is left.

mod disk;
mod requests;
mod search;

use rstest::rstest;

use search::{Job, Scene, Search};

/// What the model leaves out or turns round, so that the search has to find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    None,
    ARecordComesAfterTheFirstName,
    AFileIsRemovedWithoutFlock,
    ARecordGoesBeforeItsNames,
    TheFirstNameIsNotLast,
    NoLinkToTheGiversFile,
    TheLinkGoesTooEarly,
    TheGiversRecordGoesTooEarly,
    TheNameAloneShowsTheEnd,
    NobodyLooksAtWhatGoesBack,
    NobodyRecovers,
}

const A: u8 = 1;
const B: u8 = 2;
const C: u8 = 3;
const D: u8 = 4;

/// A holds the lock. Nothing else happens than what a case adds.
const SCENE: Scene<'_> =
    Scene { holder: Some(A), jobs: &[], kills: 1, mortal: &[A, B], removals: 0, takes: false };

const PASSED: Scene<'_> = Scene { jobs: &[Job::Pass(A, B), Job::Lock(C), Job::Unlock(A)], ..SCENE };
const RELEASED_BY_BOTH: Scene<'_> =
    Scene { jobs: &[Job::Pass(A, B), Job::Unlock(A), Job::Unlock(B)], ..SCENE };
const CHAIN: Scene<'_> = Scene { jobs: &[Job::Pass(A, B), Job::Pass(B, C), Job::Lock(D)], ..SCENE };
const TWO_LOCKS: Scene<'_> = Scene { jobs: &[Job::Lock(B), Job::Lock(C), Job::Unlock(A)], ..SCENE };
const BESIDE_THE_GATE: Scene<'_> =
    Scene { jobs: &[Job::LockWithoutGate(B), Job::Lock(C), Job::Unlock(A)], mortal: &[A], ..SCENE };
const PASSED_BESIDE_THE_GATE: Scene<'_> =
    Scene { jobs: &[Job::Pass(A, B), Job::LockWithoutGate(C)], ..SCENE };
const SWEPT: Scene<'_> = Scene { jobs: &[Job::Pass(A, B), Job::Sweep, Job::Lock(C)], ..SCENE };
const ROBBED: Scene<'_> = Scene {
    jobs: &[Job::Pass(A, B), Job::Lock(C), Job::Unlock(B)],
    removals: 1,
    mortal: &[],
    ..SCENE
};
const ROBBED_AND_TAKEN: Scene<'_> =
    Scene { jobs: &[Job::Pass(A, B), Job::Sweep], removals: 1, takes: true, mortal: &[], ..SCENE };
const TAKEN_MEANWHILE: Scene<'_> = Scene {
    holder: None,
    jobs: &[Job::Lock(A), Job::Lock(B), Job::Sweep],
    takes: true,
    mortal: &[],
    ..SCENE
};

/// Each is found, or the model shows nothing.
#[rstest]
#[case::late_record(TWO_LOCKS, Fault::ARecordComesAfterTheFirstName)]
#[case::no_flock(BESIDE_THE_GATE, Fault::AFileIsRemovedWithoutFlock)]
#[case::early_end_of_a_record(TWO_LOCKS, Fault::ARecordGoesBeforeItsNames)]
#[case::first_name_first(PASSED, Fault::TheFirstNameIsNotLast)]
#[case::no_link(PASSED, Fault::NoLinkToTheGiversFile)]
#[case::link_gone_too_early(PASSED, Fault::TheLinkGoesTooEarly)]
#[case::givers_record_gone_too_early(PASSED, Fault::TheGiversRecordGoesTooEarly)]
#[case::by_the_name_alone(ROBBED, Fault::TheNameAloneShowsTheEnd)]
#[case::caught_on_the_way_back(ROBBED_AND_TAKEN, Fault::NobodyLooksAtWhatGoesBack)]
#[case::unrecovered(PASSED, Fault::NobodyRecovers)]
fn a_planted_fault_is_found(#[case] scene: Scene<'_>, #[case] fault: Fault) {
    let broken = Search::of(scene, fault).run();
    println!("{broken:?}");
    assert!(broken.is_err());
}

#[rstest]
#[case::passed(PASSED)]
#[case::released_by_both(RELEASED_BY_BOTH)]
#[case::chain(CHAIN)]
#[case::two_locks(TWO_LOCKS)]
#[case::beside_the_gate(BESIDE_THE_GATE)]
#[case::passed_beside_the_gate(PASSED_BESIDE_THE_GATE)]
#[case::swept(SWEPT)]
#[case::robbed(ROBBED)]
#[case::robbed_and_taken(ROBBED_AND_TAKEN)]
#[case::taken_meanwhile(TAKEN_MEANWHILE)]
fn every_promise_is_kept_in_every_order(#[case] scene: Scene<'_>) {
    let states = Search::of(scene, Fault::None).run();
    // There are many orders.
    assert!(states.as_ref().is_ok_and(|states| *states > 1000), "{states:?}");
}
