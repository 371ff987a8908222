//! The body of `stats`: one line of JSON, written in pieces, so that many keys neither stall the server nor fill its
//! memory. The caller passes the content of the table. After [`MOST_KEYS`] keys the body ends, with the member
//! `truncated`.
//!
//! A body of one piece shows one moment. A longer one does not: keys that appear, vanish, or change between
//! pieces may be in it twice or not at all. Keys that do not change are in it once.
//!
//! Pure.

use super::json::{Decimal, push_json_string};
use crate::{Cursor, KeyLine, Progress};
use std::fmt::Write as _;
use std::ops::ControlFlow;

/// The most keys in one body.
pub const MOST_KEYS: usize = 10_000;

/// The progress of writing a `stats` body.
#[derive(Clone, Debug, Default)]
pub struct StatsCursor {
    /// Whether names of connections and numbers of readers are shown.
    names: bool,
    section: usize,
    place: Cursor,
    /// Whether the beginning of the body is written.
    begun: bool,
    /// Whether the beginning of this section is written.
    opened: bool,
    /// Whether an entry of this section is written.
    filled: bool,
    /// The number of keys written.
    keys: usize,
    /// Whether keys are left out.
    truncated: bool,
}

impl StatsCursor {
    /// With the names of holders, or without.
    #[must_use]
    pub fn new(names: bool) -> Self {
        Self { names, ..Self::default() }
    }

    /// See [`StatsCursor::new`].
    #[must_use]
    pub const fn has_names(&self) -> bool {
        self.names
    }

    /// Whether a part of the body is written.
    pub const fn has_begun(&self) -> bool {
        self.begun
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Section {
    Locks,
    Semaphores,
    IdleLocks,
    IdleSemaphores,
}

/// In the order of the reference's members.
const SECTIONS: [(Section, &str); 4] = [
    (Section::Locks, ",\"locks\":["),
    (Section::Semaphores, "],\"semaphores\":["),
    (Section::IdleLocks, "],\"idle_locks\":["),
    (Section::IdleSemaphores, "],\"idle_semaphores\":["),
];

impl Section {
    const fn of(line: &KeyLine<'_>) -> Self {
        match (line.is_idle(), line.limit) {
            (false, 1) => Self::Locks,
            (false, _) => Self::Semaphores,
            (true, 1) => Self::IdleLocks,
            (true, _) => Self::IdleSemaphores,
        }
    }
}

/// Appends the next piece of the body to `out`, at most about `room` bytes. `connections` is the value of the first
/// member. `look_over` reads some keys from the cursor on, passes each one on until it is told to stop, and says
/// whether the last key was among them. Returns [`Progress::Done`] when the body is complete.
pub fn push_stats(
    out: &mut String,
    room: usize,
    cursor: &mut StatsCursor,
    connections: usize,
    mut look_over: impl FnMut(&mut Cursor, &mut dyn FnMut(&KeyLine<'_>) -> ControlFlow<()>) -> Progress,
) -> Progress {
    let end = out.len().saturating_add(room);
    if !std::mem::replace(&mut cursor.begun, true) {
        // Writing to a String cannot fail.
        let _ = write!(out, "{{\"connections\":{connections}");
    }
    while let Some(&(section, head)) = SECTIONS.get(cursor.section) {
        if !std::mem::replace(&mut cursor.opened, true) {
            out.push_str(head);
        }
        let StatsCursor { names, filled, keys, truncated, .. } = cursor;
        let progress = look_over(&mut cursor.place, &mut |line| {
            if Section::of(line) == section {
                if *keys >= MOST_KEYS {
                    *truncated = true;
                    return ControlFlow::Break(());
                }
                *keys += 1;
                if std::mem::replace(filled, true) {
                    out.push(',');
                }
                push_line(out, section, *names, line);
            }
            if out.len() < end { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        if cursor.truncated {
            let rest = SECTIONS.get(cursor.section + 1..).unwrap_or_default();
            rest.iter().for_each(|(_, head)| out.push_str(head));
            out.push_str("],\"truncated\":true}");
            return Progress::Done;
        }
        if progress != Progress::Done {
            return progress;
        }
        cursor.place = Cursor::default();
        (cursor.section, cursor.opened, cursor.filled) = (cursor.section + 1, false, false);
    }
    out.push_str("]}");
    Progress::Done
}

fn push_line(out: &mut String, section: Section, has_names: bool, line: &KeyLine<'_>) {
    out.push_str("{\"key\":");
    push_json_string(out, line.name);
    if let (Section::Locks, Some(name)) = (section, line.owner_name) {
        out.push_str(",\"owner\":");
        push_json_string(out, name.as_bytes());
    }
    if line.readers > 0 && has_names {
        // Writing to a String cannot fail.
        let _ = write!(out, ",\"readers\":{}", line.readers);
    }
    let (held, waiters) = (line.held, line.waiters);
    let _ = match section {
        Section::Locks => write!(
            out,
            ",\"owner_conn_id\":{},\"lease_expires_in_s\":{},\"waiters\":{waiters}}}",
            line.owner,
            Decimal(line.left_micros),
        ),
        Section::Semaphores => {
            write!(out, ",\"limit\":{},\"holders\":{held},\"waiters\":{waiters}}}", line.limit)
        }
        Section::IdleLocks | Section::IdleSemaphores => {
            write!(out, ",\"idle_s\":{}}}", Decimal(line.idle_micros))
        }
    };
}
