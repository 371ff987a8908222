//! The tables: what happened, for people to read. Each is printed when its last row is known,
//! and written to a file in `target`.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use crate::programs::ALL;

/// One table, filled by tests in any order.
pub(crate) struct Table {
    file: &'static str,
    head: &'static [&'static str],
    rows: usize,
    seen: Mutex<Vec<Vec<String>>>,
}

impl Table {
    /// A table that is complete with so many rows, and is then written to `target/FILE`.
    pub(crate) const fn new(
        file: &'static str,
        head: &'static [&'static str],
        rows: usize,
    ) -> Self {
        Self { file, head, rows, seen: Mutex::new(Vec::new()) }
    }

    /// Adds a row; its first cell is the program's name. The last one publishes the table.
    pub(crate) fn add(&self, row: Vec<String>) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.push(row);
        if seen.len() == self.rows {
            let table = self.markdown(&seen);
            // Not println!, which the test harness keeps to itself.
            let _ = writeln!(std::io::stdout().lock(), "\n{table}");
            let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("target");
            let written = std::fs::create_dir_all(&target)
                .and_then(|()| std::fs::write(target.join(self.file), table));
            assert!(written.is_ok(), "target/{}: {written:?}", self.file);
        }
    }

    /// The rows in the order of the programs, aligned, in Markdown.
    pub(crate) fn markdown(&self, rows: &[Vec<String>]) -> String {
        let place = |row: &Vec<String>| {
            let known = ALL.iter().position(|it| row.first() == Some(&it.name.into()));
            (known.unwrap_or(ALL.len()), row.first().cloned())
        };
        let mut lines = rows.to_vec();
        lines.sort_by_key(place);
        lines.insert(0, self.head.iter().map(|&it| it.to_owned()).collect());
        let width =
            |column| lines.iter().filter_map(|line| line.get(column)).map(String::len).max();
        let widths: Vec<usize> = (0..self.head.len()).filter_map(width).collect();
        lines.insert(1, widths.iter().map(|&width| "-".repeat(width)).collect());
        let mut text = String::new();
        for line in lines {
            for (cell, width) in line.iter().zip(&widths) {
                let _ = write!(text, "| {cell:width$} ");
            }
            text.push_str("|\n");
        }
        text
    }
}
