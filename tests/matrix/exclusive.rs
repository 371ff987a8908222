//! Programs that look at no lock files, as ordinary users, against `lfp run --exclusive`: what they do about a
//! port that another has in this way, and whether they work that way themselves.

use rstest::rstest;
use testbed::{LFP, User, can_open, comes};

use crate::bench::{Bench, Mark, PORT};
use crate::programs::{self, Program};
use crate::table::Table;
use crate::unmodified::{Directory, daemon};

/// What the kernel says.
const BUSY: &str = "Device or resource busy";

const EXCLUSIVE: &str = "{lfp} run --no-shim --exclusive {dev} --";

const PROGRAMS: [Program; 16] = [
    programs::PICOCOM,
    programs::TIO_ONCE,
    programs::PYSERIAL,
    programs::SERIALX,
    programs::ESPTOOL,
    programs::MINICOM_O,
    programs::STATIC,
    programs::RAW,
    programs::SCREEN,
    programs::AVRDUDE,
    programs::PYSERIAL_PLAIN,
    programs::NODE,
    programs::RUST,
    programs::GO,
    programs::SOCAT_PLAIN,
    programs::SHELL,
];

/// What a program says of a port that Alice has; the program is Bob's.
fn second_comer(program: &Program) -> String {
    let sandbox = Directory::Closed.sandbox();
    let _daemon = daemon(&sandbox);
    let hold = format!("exec 3<>{PORT}; exec sleep 1000");
    let words = ["run", "--no-shim", "--exclusive", PORT, "--", "sh", "-c", &hold];
    let holder = sandbox.command(LFP).args(words).user(User::Alice).spawn();
    assert!(comes(|| !can_open(&sandbox, PORT)), "{}", holder.output());
    let program = Program { user: User::Bob, mark: Mark::Open, ..*program };
    let end = Bench::new(&sandbox, &program, PORT).attempt_in_vain();
    assert!(end.code() != 0 || program.name == programs::SCREEN.name, "{}: {end}", program.name);
    assert!(!can_open(&sandbox, PORT), "{} ended the exclusive mode", program.name);
    let said = end.output().to_lowercase().contains("resource busy");
    if said {
        format!("refused: {}, `{BUSY}`", end.code())
    } else {
        format!("refused: {}", end.code())
    }
}

/// Whether a program of Alice's works behind `lfp run --exclusive`, and nobody else gets the port, until it is killed.
fn first_comer(program: &Program) -> &'static str {
    let sandbox = Directory::Closed.sandbox();
    let _daemon = daemon(&sandbox);
    let program = Program { user: User::Alice, mark: Mark::Open, waits: None, ..*program };
    let bench = Bench::new(&sandbox, &program, PORT).behind(EXCLUSIVE);
    let _troupe = bench.take();
    assert!(comes(|| !can_open(&sandbox, PORT)), "{}: others can open the port", program.name);
    // The lock is the program's, not that of `lfp`, which has a pseudo-terminal open as well.
    let holder = sandbox.locked_by("ttyW0").unwrap_or_default().to_string();
    sandbox.command("kill").args(["-KILL", &holder]).run().expect(0);
    if [programs::RUST.name, programs::GO.name, programs::SCREEN.name].contains(&program.name) {
        // What it has set itself is its own: killed, it leaves a pseudo-terminal as it does without `lfp`.
        return "right; sets the mode itself";
    }
    assert!(
        comes(|| can_open(&sandbox, PORT)),
        "{}: killed, it leaves the port exclusive",
        program.name
    );
    "right"
}

#[rstest]
#[ignore = "needs root: tests/run"]
fn a_program_that_checks_no_lock_is_refused_by_the_kernel(
    #[values(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)] row: usize,
) {
    let program = &PROGRAMS[row];
    let seen = cells(program, &second_comer(program), first_comer(program));
    TABLE.add(seen.clone());
    let shown = TABLE.markdown(&[seen]);
    let page = squeezed(include_str!("../../docs/compatibility.md"));
    for line in squeezed(&shown).lines() {
        assert!(page.contains(line) || line.contains("---"), "docs/compatibility.md needs: {line}");
    }
}

/// Without what aligns the columns.
fn squeezed(text: &str) -> String {
    let squeeze = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    text.lines().map(squeeze).collect::<Vec<_>>().join("\n")
}

fn cells(program: &Program, second: &str, first: &str) -> Vec<String> {
    vec![program.name.to_owned(), second.to_owned(), first.to_owned()]
}

static TABLE: Table = Table::new(
    "matrix-exclusive.md",
    &["Program", "another has the port with `--exclusive`", "run by `lfp run --exclusive`"],
    PROGRAMS.len(),
);
