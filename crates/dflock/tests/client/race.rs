//! Many real processes, one lock: never two inside.

use crate::program::{LONG, assert_free, patient, shell, start};
use testbed::dflockd::{Daemon, PATIENCE};

/// The inside is a directory each makes and removes: a second one would find it there.
#[test]
fn two_are_never_inside() {
    const PROCESSES: usize = 24;
    const ROUNDS: usize = 5;
    let daemon = Daemon::start(&[]);
    let dir = tempfile::tempdir().unwrap();
    let inside = "mkdir in || echo two >>bad; echo $DFLOCK_FENCE >>fences; rmdir in";
    let script =
        format!("for round in $(seq {ROUNDS}); do dflock run k -- sh -c '{inside}' || exit; done");
    let racers: Vec<_> =
        (0..PROCESSES).map(|_| start(shell(&daemon, &script).current_dir(dir.path()))).collect();
    for racer in racers {
        let end = patient(racer.end_in(5 * PATIENCE));
        assert_eq!((end.code, &*end.err), (0, ""), "{end:?}");
    }
    assert!(!dir.path().join("bad").exists());
    let fences = std::fs::read_to_string(dir.path().join("fences")).unwrap();
    let fences: Vec<u64> = fences.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(fences.len(), PROCESSES * ROUNDS);
    assert!(fences.windows(2).all(|pair| pair[0] < pair[1]), "fences grow in the order of turns");
    assert_free(&daemon);
}

/// Holders that are killed without a word take their commands with them: the next one finds nobody
/// inside, at most somebody who is just dying.
#[test]
fn killed_holders_leave_nobody_inside() {
    const PROCESSES: usize = 20;
    let daemon = Daemon::start(&[]);
    let dir = tempfile::tempdir().unwrap();
    let script = format!(
        "dflock run k --ttl {LONG} -- sh -c 'exec 9>lock; flock -w 40 9 || echo two >>bad; \
         echo in >>log; kill -KILL $PPID; exec sleep {LONG}'"
    );
    let racers: Vec<_> =
        (0..PROCESSES).map(|_| start(shell(&daemon, &script).current_dir(dir.path()))).collect();
    for racer in racers {
        let end = racer.end();
        assert_eq!(end.code, 128 + 9, "{end:?}");
    }
    assert!(!dir.path().join("bad").exists());
    let log = std::fs::read_to_string(dir.path().join("log")).unwrap();
    assert_eq!(log.lines().count(), PROCESSES);
    assert_free(&daemon);
}
