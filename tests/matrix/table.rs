//! The table: what happened, for people to read.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use crate::bench::Mark;
use crate::programs::{ALL, Deed, Program, Row};

const HEAD: [&str; 6] = [
    "Program",
    "Locks by",
    "`lfpd` has the port: the program",
    "Program has it: LOCK",
    "Program killed: LOCK",
    "`lfpd`'s holder died: the program",
];

/// Rows of the programs that have been played so far.
static SEEN: Mutex<Vec<(&'static str, Row)>> = Mutex::new(Vec::new());

/// Notes what one program did. The last one prints the table and writes `target/matrix.md`.
pub(crate) fn record(program: &Program, row: &Row) {
    let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    seen.push((program.name, *row));
    if seen.len() == ALL.len() {
        let table = markdown(|program| {
            seen.iter().find(|(name, _)| *name == program.name).map(|(_, row)| *row)
        });
        // Not println!, which the test harness keeps to itself.
        let _ = writeln!(std::io::stdout().lock(), "\n{table}");
        let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("target");
        let written = std::fs::create_dir_all(&target)
            .and_then(|()| std::fs::write(target.join("matrix.md"), table));
        assert!(written.is_ok(), "target/matrix.md: {written:?}");
    }
}

/// All rows as a table in Markdown, aligned.
pub(crate) fn markdown(row: impl Fn(&Program) -> Option<Row>) -> String {
    let mut lines = vec![HEAD.map(String::from)];
    lines.extend(ALL.iter().filter_map(|program| Some(cells(program, &row(program)?))));
    let widths: Vec<usize> = (0..HEAD.len())
        .map(|column| lines.iter().filter_map(|line| line.get(column)).map(|it| it.len()).max())
        .map(Option::unwrap_or_default)
        .collect();
    let mut text = String::new();
    for (number, line) in lines.iter().enumerate() {
        for (cell, width) in line.iter().zip(&widths) {
            let _ = write!(text, "| {cell:width$} ");
        }
        text.push_str("|\n");
        if number == 0 {
            for width in &widths {
                let _ = write!(text, "|{}", "-".repeat(width + 2));
            }
            text.push_str("|\n");
        }
    }
    text
}

fn cells(program: &Program, row: &Row) -> [String; 6] {
    let locks_by = match program.mark {
        Mark::LockFile => "lock file",
        Mark::Flock => "flock only",
    };
    [
        program.name.to_owned(),
        locks_by.to_owned(),
        words(row.lfpd_holds),
        row.program_holds.to_string(),
        match row.program_killed {
            450 => "450: only its owner may read its lock file".to_owned(),
            code => code.to_string(),
        },
        words(row.holder_died),
    ]
}

fn words(deed: Deed) -> String {
    match deed {
        Deed::Starts => "starts".to_owned(),
        Deed::StartsBesides => "starts: it looks at no lock files".to_owned(),
        Deed::Steals => "**takes it**: it removes the lock file".to_owned(),
        Deed::Refuses(code, says) => format!("refuses: {code}, `{says}`"),
        Deed::RefusesUntilCleared(..) => "starts once `lfpd` has cleared the lock".to_owned(),
        Deed::TellsClient(says) => format!("tells its client `{says}`"),
        Deed::Waits(says) => format!("waits, and logs `{says}`"),
    }
}
