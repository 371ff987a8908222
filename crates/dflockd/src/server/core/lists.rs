//! Answers that read many keys, or all holders and waiters of one: the body of `stats`, the object of a key, and the
//! roster for people. Reads the table in small steps, between which others are served, so no request of a lock client
//! waits for it.

use super::shared::{PARTIES_PER_TURN, Shared};
use super::view;
use crate::server::key_json::KeyReport;
use leases::wire::{StatsCursor, push_stats};
use leases::{Cursor, Key, KeyLine, Progress};
use memchr::memmem::Finder;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::ControlFlow;

/// The number of bytes of a `stats` body that are made in one turn.
const STATS_PIECE_BYTES: usize = 16 * 1024;
/// The number of places of the table that are read in one turn, which takes some 10 to 50 microseconds.
const PLACES_PER_TURN: u32 = 512;
/// The most holders, and the most waiters, that are shown of one key to those who ask for it alone.
const MOST_PARTIES: usize = 1000;
/// The most keys of the roster that are shown in one step.
const VIEWS_PER_STEP: usize = 16;

/// A request for the roster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Only keys that contain these bytes, without regard to the case of ASCII letters; empty for all keys.
    pub part: Vec<u8>,
    /// The most keys to show.
    pub keys: usize,
    /// The most holders, and the most waiters, to show of each key.
    pub parties: usize,
    /// Keys are left out when those before them have taken this many bytes.
    pub bytes: usize,
}

/// Some keys in use, those with the longest queues first. If the table is large, it does not show one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Roster {
    /// The keys shown, as JSON objects with commas between them.
    pub entries: String,
    /// Their number.
    pub shown: usize,
    /// The number of keys in use that match, shown or not.
    pub matching: usize,
}

/// The keys with the longest queues so far; of queues of equal length, the first.
#[derive(Debug, Default)]
struct Picked(BinaryHeap<Candidate>);

/// Waiters, number, name.
type Candidate = Reverse<(u32, Reverse<usize>, Box<[u8]>)>;

impl Picked {
    /// `number` grows from key to key.
    fn note(&mut self, most: usize, number: usize, line: &KeyLine<'_>) {
        let is_full = self.0.len() >= most;
        if is_full && self.0.peek().is_none_or(|Reverse((least, ..))| line.waiters <= *least) {
            return;
        }
        self.0.push(Reverse((line.waiters, Reverse(number), line.name.into())));
        if self.0.len() > most {
            self.0.pop();
        }
    }

    fn keys(self) -> Vec<Box<[u8]>> {
        self.0.into_sorted_vec().into_iter().map(|Reverse((.., key))| key).collect()
    }
}

impl Shared {
    /// A key, in use or not, to be shown with at most [`MOST_PARTIES`] holders and as many waiters.
    pub(crate) fn whole_key_report(&self, key: Key<'_>) -> KeyReport {
        self.key_report(key, MOST_PARTIES).unwrap_or_else(|| KeyReport::idle(key))
    }

    /// A key in use, to be shown with at most so many holders and so many waiters.
    pub(crate) fn key_report(&self, key: Key<'_>, most: usize) -> Option<KeyReport> {
        let (now, core) = (self.now(), self.core());
        view(&core, now, key, 0..0, 0..0).map(|(view, _)| KeyReport::new(view, most))
    }

    /// Appends the next piece of a key's object, with at most `room` holders and waiters, which are subtracted from it.
    pub(crate) fn key_piece(
        &self,
        report: &mut KeyReport,
        room: &mut usize,
        out: &mut String,
    ) -> Progress {
        let (now, core) = (self.now(), self.core());
        report.push(out, room, |key, holders, waiting| view(&core, now, key, holders, waiting))
    }

    /// Appends the next piece of the `stats` body: JSON without `ok ` and newline, in pieces of about
    /// [`STATS_PIECE_BYTES`], between which others are to be served.
    pub(crate) fn stats_piece(&self, cursor: &mut StatsCursor, out: &mut String) -> Progress {
        let (now, core) = (self.now(), self.core());
        push_stats(out, STATS_PIECE_BYTES, cursor, core.connections.len(), |place, note| {
            core.engine.look_over(now, place, PLACES_PER_TURN, note)
        })
    }

    /// The roster.
    pub(crate) async fn roster(&self, wanted: &Wanted) -> Roster {
        let part = wanted.part.to_ascii_lowercase();
        let finder = Finder::new(&part);
        let (mut roster, mut picked, mut cursor) =
            (Roster::default(), Picked::default(), Cursor::default());
        let mut name = Vec::new();
        let mut look = || {
            let note = |line: &KeyLine<'_>| {
                if line.is_idle() {
                    return ControlFlow::Continue(());
                }
                name.clear();
                name.extend_from_slice(line.name);
                name.make_ascii_lowercase();
                if finder.find(&name).is_some() {
                    roster.matching += 1;
                    picked.note(wanted.keys, roster.matching, line);
                }
                ControlFlow::Continue(())
            };
            let now = self.now();
            self.core().engine.look_over(now, &mut cursor, PLACES_PER_TURN, note)
        };
        while self.pace.step(&mut look).await != Progress::Done {}
        let (mut names, mut report) = (picked.keys().into_iter(), None);
        let mut show = || {
            let mut room = PARTIES_PER_TURN;
            for _ in 0..VIEWS_PER_STEP {
                if room == 0 {
                    break;
                }
                if report.is_none() {
                    if roster.entries.len() >= wanted.bytes {
                        return Progress::Done;
                    }
                    let Some(name) = names.next() else { return Progress::Done };
                    // A key that is no longer in use is left out.
                    report = Key::new(&name).and_then(|key| self.key_report(key, wanted.parties));
                    if report.is_some() {
                        roster.entries.push_str(if roster.shown > 0 { "," } else { "" });
                        roster.shown += 1;
                    }
                }
                let Some(begun) = &mut report else { continue };
                if self.key_piece(begun, &mut room, &mut roster.entries) == Progress::Done {
                    report = None;
                }
            }
            Progress::More
        };
        while self.pace.step(&mut show).await != Progress::Done {}
        roster
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::take;
    use crate::server::Settings;
    use std::future::poll_fn;
    use std::pin::pin;

    /// However large the table is, others have their turn after each step: the roster, and `stats`.
    #[test]
    fn a_great_table_is_read_in_small_steps() {
        const KEYS: usize = 5000;
        const STEPS: usize = KEYS / PLACES_PER_TURN as usize + KEYS / VIEWS_PER_STEP;
        let mut settings = Settings::default();
        settings.caps.max_locks = KEYS;
        let shared = Shared::new(settings);
        {
            let mut core = shared.core();
            let (id, _) = core.admit(&shared.settings, None).unwrap();
            for key in 0..KEYS {
                core.ask(shared.now(), id, take(format!("{key}").as_bytes(), 600)).unwrap();
            }
        }
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let mut turns = 0;
        let wanted = Wanted { part: Vec::new(), keys: KEYS, parties: 1, bytes: usize::MAX };
        let roster = runtime.enable_time().build().unwrap().block_on(async {
            let mut roster = pin!(shared.roster(&wanted));
            poll_fn(|cx| {
                turns += 1;
                roster.as_mut().poll(cx)
            })
            .await
        });
        assert_eq!((roster.matching, roster.shown), (KEYS, KEYS));
        assert!(turns > STEPS, "{turns}");
        let (mut cursor, mut text, mut longest, mut pieces) =
            (StatsCursor::default(), String::new(), 0, 0);
        let mut progress = Progress::More;
        while progress != Progress::Done {
            let before = text.len();
            progress = shared.stats_piece(&mut cursor, &mut text);
            (longest, pieces) = (longest.max(text.len() - before), pieces + 1);
        }
        assert!(longest < 20 * 1024 && pieces > text.len() / longest, "{pieces}, {longest}");
    }
}
