//! The four scenes, and what a program did in them.

use std::fs;

use testbed::{End, User};

use crate::bench::{Bench, Came, Mark, PORT, lfpd, sandbox};
use crate::programs::{ALL, Deed, Program, Row};
use crate::table::Table;

/// All four scenes, in the order b, c, a, d, so that each leads to the next.
pub(crate) fn play(program: &Program) -> Row {
    let sandbox = sandbox();
    let bench = Bench::new(&sandbox, program, PORT);
    let mut lfpd = lfpd(&sandbox);
    let holder = sandbox.sleeper(User::Root);
    let pid = holder.pid();

    let troupe = bench.take();
    let program_holds = lfpd.lock(PORT, pid);
    if program_holds == 200 {
        assert_eq!(lfpd.unlock(PORT, pid), 200, "{} has no lock", program.name);
    }

    troupe.kill();
    let program_killed = lfpd.lock(PORT, pid);
    if program_killed == 450 {
        // As an administrator would have to.
        let removed = fs::remove_file(sandbox.path(&bench.lock()));
        assert!(removed.is_ok() && lfpd.lock(PORT, pid) == 200, "{}", program.name);
    }

    let ours = bench.lock_files();
    // One for the port, one by its number, one for the link to it in `/dev`, three for udev's.
    let contents: Vec<&[u8]> = ours.iter().map(|file| file.content.as_slice()).collect();
    let content = format!("{pid:10}\n");
    assert_eq!(contents, [content.as_bytes(); 6], "what lfpd writes");
    let (came, troupe) = bench.attempt();
    let untouched = bench.lock_files() == ours;
    let lfpd_holds = match came {
        Came::Has if untouched => Deed::StartsBesides,
        Came::Has => Deed::Steals,
        Came::Waits(says) => Deed::Waits(says),
        Came::Ended(end) => refusal(program, &end),
    };
    if lfpd_holds == Deed::Steals {
        drop(troupe);
        // It took the port's own name; the lock still stands under the link's.
        assert_eq!(lfpd.unlock(PORT, pid), 200, "{}: the thief is gone", program.name);
        assert_eq!(lfpd.lock(PORT, pid), 200, "{}: the thief is gone", program.name);
    } else {
        assert!(untouched, "{} spoilt the lock", program.name);
        assert_eq!(lfpd.lock(PORT, sandbox.sleeper(User::Root).pid()), 450);
        drop(troupe);
    }

    holder.kill();
    let (came, troupe) = bench.attempt();
    drop(troupe);
    let holder_died = match came {
        Came::Has => Deed::Starts,
        Came::Waits(says) => Deed::Waits(says),
        Came::Ended(end) => {
            refusal(program, &end);
            assert_eq!(lfpd.unlock(PORT, pid), 200, "{}: clearing", program.name);
            bench.take();
            Deed::StartsWhenCleared
        }
    };
    Row { lfpd_holds, program_holds, program_killed, holder_died }
}

/// The refusal, which must be in the words and with the exit code of the program's row.
pub(crate) fn refusal(program: &Program, end: &End) -> Deed {
    let expected = program.row.lfpd_holds;
    let matches = match expected {
        Deed::Refuses(code, says) => end.code() == code && end.said(says),
        Deed::TellsClient(says) => end.said(says),
        Deed::Starts
        | Deed::StartsBesides
        | Deed::StartsWhenCleared
        | Deed::Steals
        | Deed::Waits(_) => false,
    };
    assert!(matches, "{}: not {expected:?}: {end}", program.name);
    expected
}

/// The table of all programs in all scenes.
pub(crate) static TABLE: Table = Table::new(
    "matrix.md",
    &[
        "Program",
        "Locks by",
        "`lfpd` has the port: the program",
        "Program has it: LOCK",
        "Program killed: LOCK",
        "`lfpd`'s holder died: the program",
    ],
    ALL.len(),
);

/// One row of the table.
pub(crate) fn cells(program: &Program, row: &Row) -> Vec<String> {
    let locks_by = match program.mark {
        Mark::LockFile => "lock file",
        Mark::Flock => "flock only",
        Mark::Open => "nothing",
    };
    let killed = match row.program_killed {
        450 => "450: only its owner may read its lock file".to_owned(),
        code => code.to_string(),
    };
    vec![
        program.name.to_owned(),
        locks_by.to_owned(),
        words(row.lfpd_holds),
        row.program_holds.to_string(),
        killed,
        words(row.holder_died),
    ]
}

fn words(deed: Deed) -> String {
    match deed {
        Deed::Starts => "starts".to_owned(),
        Deed::StartsBesides => "starts: it checks no lock files".to_owned(),
        Deed::StartsWhenCleared => "starts once `lfpd` has cleared the lock".to_owned(),
        Deed::Steals => "**takes it**: it removes the lock file".to_owned(),
        Deed::Refuses(code, says) => format!("refuses: {code}, `{says}`"),
        Deed::TellsClient(says) => format!("tells its client `{says}`"),
        Deed::Waits(says) => format!("waits, and logs `{says}`"),
    }
}

#[test]
fn the_documents_show_the_table() {
    let page = include_str!("../../docs/compatibility.md");
    let rows: Vec<_> = ALL.iter().map(|program| cells(program, &program.row)).collect();
    let table = TABLE.markdown(&rows);
    assert!(page.contains(&table), "docs/compatibility.md needs target/matrix.md:\n{table}");
}
