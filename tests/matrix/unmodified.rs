//! Unmodified programs, as an ordinary user, by themselves and behind `lfp run`: with
//! a lock directory that only root and the service may write, and with Debian's, which everybody
//! may write.
//!
//! For each: does it take a free port, is it kept out of a port that somebody else has, does
//! everybody else find it has the port, is the port free when it was killed, and can it have the
//! port when the one who had it was killed?

use std::fmt;
use std::time::Duration;

use rstest::rstest;
use testbed::{LFP, LIMIT, Process, Sandbox, User, comes, until, until_every};

use crate::bench::{Bench, Came, Mark, PORT, bring_programs};
use crate::programs::{self, Program};
use crate::table::Table;

/// The ways to start a program.
const WAYS: [&str; 4] = [
    "",
    "{lfp} run --no-shim {dev} --",
    // A busy machine is no service that hangs.
    "env LFP_TIMEOUT=30 {lfp} run --shim {dev} --",
    "env LFP_TIMEOUT=30 {lfp} shim --ports --also {dev} --",
];

/// A lock directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Directory {
    /// Root's and the service's, as newer systemd makes it.
    Closed,
    /// Everybody's, sticky, as Debian makes it.
    Open,
}

impl Directory {
    pub(crate) fn sandbox(self) -> Sandbox {
        let mode = match self {
            Self::Closed => "0755",
            Self::Open => "1777",
        };
        let layout = Sandbox::layout()
            .port("ttyW0")
            .installed()
            .lock_dir(mode, "root:root")
            .bring("lib/lfp/liblfp_preload.so", testbed::library("lfp-preload", "liblfp_preload"))
            .bring("locked", testbed::peer("serialport", "debug/locked"));
        bring_programs(layout).enter()
    }
}

pub(crate) fn daemon(sandbox: &Sandbox) -> Process<'_> {
    sandbox.serve(User::LfpdWithFowner, &[])
}

/// What is wrong with a program that was started one way; nothing, if it is as it should be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Faults(Vec<&'static str>);

impl Faults {
    fn of(faults: &[&'static str]) -> Self {
        Self(faults.to_vec())
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { f.write_str("right") } else { f.write_str(&self.0.join("; ")) }
    }
}

const CANNOT: &str = "refuses a free port";
const BESIDES: &str = "starts though another has it";
const UNSEEN: &str = "others get the port as well";
const STAYS: &str = "killed, it keeps the port";
const DEAD: &str = "a dead process keeps it out";

/// What `lfp` says of a busy machine's service.
const LATE: &str = "gave no reply in time";

/// A lock that stays does so for ever.
const LATER: Duration = Duration::from_secs(20);

/// Plays the scenes with a program that is started one way.
fn faults(sandbox: &Sandbox, program: &Program, way: &'static str) -> Faults {
    let mut faults = Faults::default();
    let bench = Bench::new(sandbox, program, PORT).behind(way);
    let holder = sandbox.sleeper(User::Bob);
    let lfp = |verb: &str| {
        let words = [verb, PORT, "--pid", &holder.pid().to_string()];
        let answer = until(LIMIT, || {
            let end = sandbox.command(LFP).args(words).run();
            // What came too late may have been a grant.
            let is_done = end.code() == 0
                || (verb == "lock") == (sandbox.locked_by("ttyW0") == Some(holder.pid()));
            (is_done || !end.said(LATE)).then_some(is_done)
        });
        answer == Some(true)
    };
    let attempt = || loop {
        let (came, troupe) = bench.attempt();
        if !matches!(&came, Came::Ended(end) if end.said(LATE)) {
            return (came, troupe);
        }
    };
    let (came, troupe) = attempt();
    match came {
        Came::Has => {
            if lfp("lock") {
                faults.0.push(UNSEEN);
                assert!(comes(|| lfp("unlock")), "{}", program.name);
            }
            let is_killed = || {
                let user = bench.user().unwrap_or_default().to_string();
                let _ = sandbox.command("kill").args(["-KILL", &user]).run();
                bench.user().is_none()
            };
            assert!(comes(is_killed), "{}", program.name);
            drop(troupe);
            // On a busy machine, the service may see the end later.
            let can_lock = || lfp("lock").then_some(());
            if until_every(Duration::from_millis(500), LATER, can_lock).is_none() {
                faults.0.push(STAYS);
                sandbox.shell(User::Root, "rm -f /run/lock/LCK* /tmp/LCK*").expect(0);
                assert!(comes(|| lfp("lock")), "{}", program.name);
            }
        }
        Came::Ended(_) | Came::Waits(_) => {
            faults.0.push(CANNOT);
            drop(troupe);
            assert!(comes(|| lfp("lock")), "{}", program.name);
        }
    }

    let (came, troupe) = attempt();
    drop(troupe);
    if matches!(came, Came::Has) {
        faults.0.push(BESIDES);
    }
    assert!(comes(|| bench.user().is_none()), "{}", program.name);
    if faults.0.contains(&CANNOT) {
        return faults;
    }

    holder.kill();
    assert!(comes(|| bench.lock_files().is_empty()), "the service removes a dead lock by itself");
    let (came, troupe) = attempt();
    drop(troupe);
    if !matches!(came, Came::Has) {
        faults.0.push(DEAD);
    }
    faults
}

/// What is wrong with a program in all ways, each on a machine of its own.
fn play(program: &Program, directory: Directory) -> [Faults; 4] {
    let program = Program { user: User::Alice, mark: Mark::Open, waits: None, ..*program };
    WAYS.map(|way| {
        let sandbox = directory.sandbox();
        let _daemon = daemon(&sandbox);
        faults(&sandbox, &program, way)
    })
}

/// What is wrong with a program in each way to start it.
type Expected = [&'static [&'static str]; 4];

const NONE: &[&str] = &[];
/// Programs that make lock files. `lfp run` alone keeps them out by the lock that it has taken.
const ALL_BUT_RUN: Expected = [NONE, &[CANNOT], NONE, NONE];
const NEEDS_DIRECTORY: Expected = [&[CANNOT], &[CANNOT], NONE, NONE];
const GOES_WITHOUT: Expected = [&[UNSEEN], &[CANNOT], NONE, NONE];
/// Programs that look at no lock files: right as soon as somebody locks for them.
const FLOCKS: Expected = [&[BESIDES], NONE, NONE, NONE];
const BLIND: Expected = [&[UNSEEN, BESIDES], NONE, NONE, NONE];
/// The library cannot be loaded into it: whoever asks for the library is told so, and the program is not started.
const UNLOADABLE: Expected = [&[UNSEEN, BESIDES], NONE, &[CANNOT], &[CANNOT]];

/// A program, with what is wrong in a closed and in an open lock directory.
type Row = (Program, Expected, Expected);

const ROWS: [Row; 22] = [
    (programs::MINICOM, GOES_WITHOUT, ALL_BUT_RUN),
    // It takes a lock with its own process number for its own.
    (programs::CU, NEEDS_DIRECTORY, [NONE; 4]),
    (programs::KERMIT, NEEDS_DIRECTORY, ALL_BUT_RUN),
    (programs::GENSIOT, NEEDS_DIRECTORY, ALL_BUT_RUN),
    (programs::MICROCOM, NEEDS_DIRECTORY, ALL_BUT_RUN),
    (programs::BUSYBOX, GOES_WITHOUT, ALL_BUT_RUN),
    (programs::RXTX, NEEDS_DIRECTORY, ALL_BUT_RUN),
    (programs::QT, ALL_BUT_RUN, ALL_BUT_RUN),
    (programs::GAMMU, NEEDS_DIRECTORY, ALL_BUT_RUN),
    (programs::GNOKII, NEEDS_DIRECTORY, ALL_BUT_RUN),
    // Its lock file has mode 0600: what cannot be read is never taken for dead.
    (programs::SOCAT, NEEDS_DIRECTORY, [&[STAYS], &[CANNOT], NONE, &[STAYS]]),
    (programs::PICOCOM, FLOCKS, FLOCKS),
    (programs::TIO_ONCE, FLOCKS, FLOCKS),
    (programs::PYSERIAL, FLOCKS, FLOCKS),
    (programs::SERIALX, FLOCKS, FLOCKS),
    (programs::ESPTOOL, FLOCKS, FLOCKS),
    (programs::NODE, FLOCKS, FLOCKS),
    (programs::RUST, FLOCKS, FLOCKS),
    (programs::PYSERIAL_PLAIN, BLIND, BLIND),
    (programs::GO, UNLOADABLE, UNLOADABLE),
    (programs::SOCAT_PLAIN, BLIND, BLIND),
    (programs::SHELL, BLIND, BLIND),
];

#[rstest]
#[ignore = "needs root: tests/run"]
fn programs_lock(
    #[values(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21)]
    row: usize,
    #[values(Directory::Closed, Directory::Open)] directory: Directory,
) {
    let (program, closed, open) = ROWS[row];
    let seen = play(&program, directory);
    let (table, expected) = match directory {
        Directory::Closed => (&CLOSED, closed),
        Directory::Open => (&OPEN, open),
    };
    table.add(cells(&program, &seen));
    assert_eq!(seen, expected.map(Faults::of), "{}", program.name);
}

/// The example for programs in Rust: by itself it does what the others do behind `lfp`.
#[rstest]
#[case::serialport(programs::LOCKED)]
#[case::tokio_serial(programs::LOCKED_ASYNC)]
#[ignore = "needs root: tests/run"]
fn a_program_that_uses_the_library_is_right(#[case] program: Program) {
    let sandbox = Directory::Closed.sandbox();
    let _daemon = daemon(&sandbox);
    let program = Program { user: User::Alice, mark: Mark::Open, ..program };
    assert_eq!(faults(&sandbox, &program, ""), Faults::default(), "{}", program.name);
}

fn cells(program: &Program, faults: &[Faults; 4]) -> Vec<String> {
    let faults = faults.iter().map(ToString::to_string);
    std::iter::once(program.name.to_owned()).chain(faults).collect()
}

const HEAD: &[&str] =
    &["Program", "by itself", "`lfp run --no-shim`", "`lfp run --shim`", "`lfp shim --ports`"];

static CLOSED: Table = Table::new("matrix-closed.md", HEAD, ROWS.len());
static OPEN: Table = Table::new("matrix-open.md", HEAD, ROWS.len());

#[rstest]
#[case::closed(&CLOSED, |row: &Row| row.1)]
#[case::open(&OPEN, |row: &Row| row.2)]
#[ignore = "needs root: tests/run"]
fn the_documents_show_the_tables(#[case] table: &Table, #[case] of: fn(&Row) -> Expected) {
    let page = include_str!("../../docs/compatibility.md");
    let rows: Vec<_> = ROWS.iter().map(|row| cells(&row.0, &of(row).map(Faults::of))).collect();
    let table = table.markdown(&rows);
    assert!(page.contains(&table), "docs/compatibility.md needs this table:\n{table}");
}

/// `lfp adopt`: the name that everybody types starts the program with the library, and back.
#[test]
#[ignore = "needs root: tests/run"]
fn an_adopted_program_is_right_for_all_users() {
    let sandbox = Directory::Closed.sandbox();
    let _daemon = daemon(&sandbox);
    sandbox.command("mount").args(["-t", "tmpfs", "none", "/usr/local/bin"]).run().expect(0);
    let lfp = |words: &[&str]| sandbox.command(LFP).args(words).run();
    let holder = sandbox.sleeper(User::Bob);
    let lock = || lfp(&["lock", PORT, "--pid", &holder.pid().to_string()]).code();

    sandbox.write("/usr/local/bin/minicom", "not ours", 0o755);
    let end = lfp(&["adopt", "minicom"]);
    assert!(end.code() != 0 && end.said("was not made by lfp adopt"), "{end}");
    assert!(lfp(&["adopt", "--undo", "minicom"]).code() != 0);
    assert_eq!(sandbox.read("/usr/local/bin/minicom").unwrap(), b"not ours");
    assert_eq!(sandbox.command("rm").arg("/usr/local/bin/minicom").run().code(), 0);

    assert!(lfp(&["adopt", "../minicom"]).said("without a directory"));
    assert!(lfp(&["adopt", "nosuchprogram"]).said("no such program"));
    lfp(&["adopt", "minicom"]).expect(0);
    assert_eq!(lfp(&["adopt", "minicom"]).code(), 0, "once more");
    let bench = || Bench::new(&sandbox, &Program { user: User::Alice, ..programs::MINICOM }, PORT);
    let troupe = bench().take();
    assert_eq!(lock(), 1);
    drop(troupe);
    bench().take();

    assert_eq!(lfp(&["adopt", "--undo", "minicom"]).code(), 0);
    assert!(sandbox.read("/usr/local/bin/minicom").is_none());
    let end = lfp(&["adopt", "--undo", "minicom"]);
    assert!(end.code() == 71 && end.said("minicom is not adopted"), "{end}");
}
