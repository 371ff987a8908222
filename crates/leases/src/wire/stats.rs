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

    /// Whether a part of the body is written.
    pub const fn has_begun(&self) -> bool {
        self.begun
    }
}

/// In the order of the reference's members.
const SECTIONS: [&str; 4] = ["locks", "semaphores", "idle_locks", "idle_semaphores"];

/// The place of a key's section among [`SECTIONS`].
const fn section_of(line: &KeyLine<'_>) -> usize {
    match (line.is_idle(), line.limit) {
        (false, 1) => 0,
        (false, _) => 1,
        (true, 1) => 2,
        (true, _) => 3,
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
        let _ = write!(out, "{{\"connections\":{connections},\"locks\":[");
    }
    let StatsCursor { names, section, place, filled, keys, truncated, .. } = cursor;
    while *section < SECTIONS.len() {
        // After too many keys, the other sections stay empty.
        let progress = if *truncated {
            Progress::Done
        } else {
            look_over(place, &mut |line| {
                if section_of(line) == *section {
                    *truncated = *keys >= MOST_KEYS;
                    if *truncated {
                        return ControlFlow::Break(());
                    }
                    *keys += 1;
                    if std::mem::replace(filled, true) {
                        out.push(',');
                    }
                    push_line(out, *names, line);
                }
                if out.len() < end { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })
        };
        if progress == Progress::More && !*truncated {
            return progress;
        }
        (*place, *filled) = (Cursor::default(), false);
        *section += 1;
        if let Some(name) = SECTIONS.get(*section) {
            let _ = write!(out, "],\"{name}\":[");
        }
    }
    out.push_str(if *truncated { "],\"truncated\":true}" } else { "]}" });
    Progress::Done
}

fn push_line(out: &mut String, has_names: bool, line: &KeyLine<'_>) {
    out.push_str("{\"key\":");
    push_json_string(out, line.name);
    let is_lock = !line.is_idle() && line.limit == 1;
    if let Some(name) = line.owner_name.filter(|_| is_lock && has_names) {
        out.push_str(",\"owner\":");
        push_json_string(out, name.as_bytes());
    }
    if line.readers > 0 && has_names {
        // Writing to a String cannot fail.
        let _ = write!(out, ",\"readers\":{}", line.readers);
    }
    let (held, waiters) = (line.held, line.waiters);
    let _ = match (line.is_idle(), line.limit) {
        (false, 1) => write!(
            out,
            ",\"owner_conn_id\":{},\"lease_expires_in_s\":{},\"waiters\":{waiters}}}",
            line.owner,
            Decimal(line.left_micros),
        ),
        (false, _) => {
            write!(out, ",\"limit\":{},\"holders\":{held},\"waiters\":{waiters}}}", line.limit)
        }
        (true, _) => write!(out, ",\"idle_s\":{}}}", Decimal(line.idle_micros)),
    };
}
