//! Answers that read many keys, or all holders and waiters of one: the body of `stats`, the object of a key, which is JSON,
//! and the roster for people. Reads the table in small steps, between which others are served, so no request of a lock
//! client waits for it. No answer can contain a token, because a [`Party`] has none.

use super::Core;
use super::shared::{PARTIES_PER_TURN, Shared};
use leases::wire::{Decimal, StatsCursor, push_json_string, push_stats};
use leases::{Cursor, Key, KeyLine, KeyView, Moment, Party, Progress};
use memchr::memmem::Finder;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::ops::{ControlFlow, Range};

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
pub(crate) struct RosterQuery {
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

    /// A key in use, to be shown with at most `most` holders and as many waiters.
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
    pub(crate) async fn roster(&self, query: &RosterQuery) -> Roster {
        let part = query.part.to_ascii_lowercase();
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
                    picked.note(query.keys, roster.matching, line);
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
                    if roster.entries.len() >= query.bytes {
                        return Progress::Done;
                    }
                    let Some(name) = names.next() else { return Progress::Done };
                    // A key that is no longer in use is left out.
                    report = Key::new(&name).and_then(|key| self.key_report(key, query.parties));
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

/// One key, if it is in use, with the holders and waiters at these places, and their addresses. A client of a Unix socket
/// has none, and nothing is known of one whose connection is gone.
fn view(
    core: &Core,
    now: Moment,
    key: Key<'_>,
    holders: Range<usize>,
    waiting: Range<usize>,
) -> Option<AddressedView> {
    let view = core.engine.view(now, key, holders, waiting)?;
    let address = |party: &Party| core.connections.address(party.conn?);
    let addresses = view.holders.iter().chain(&view.waiting).map(address).collect();
    Some((view, addresses))
}

/// Some holders and waiters of a key, and the addresses of the holders and then of the waiters.
type AddressedView = (KeyView, Vec<Option<IpAddr>>);

/// The progress of writing the object of a key: its holders, the longest hold first, and its waiters in their order. An
/// object of several pieces does not show one moment: those who come or leave between two pieces may be in it twice or
/// not at all.
#[derive(Debug)]
pub(crate) struct KeyReport {
    view: KeyView,
    /// The most holders, and the most waiters, that are shown.
    most: usize,
    begun: bool,
    /// The number of holders that are still to be shown.
    holders: usize,
    /// The number of waiters that were shown; `None` while there are holders to show.
    waiters: Option<usize>,
    /// Whether something was written into this list.
    filled: bool,
}

impl KeyReport {
    /// `view` needs no holders and no waiters: each piece reads its own.
    fn new(view: KeyView, most: usize) -> Self {
        let holders = most.min(usize::try_from(view.held).unwrap_or(usize::MAX));
        Self { view, most, begun: false, holders, waiters: None, filled: false }
    }

    /// The report of a key that nobody holds or waits for.
    fn idle(key: Key<'_>) -> Self {
        let (name, holders, waiting) = (key.bytes().to_vec(), Vec::new(), Vec::new());
        Self::new(KeyView { name, limit: 1, held: 0, waiters: 0, holders, waiting }, 0)
    }

    /// Appends the next piece, at most `room` holders and waiters, and subtracts these from it. `look` reads them by
    /// their places, as [`Engine::view`](leases::Engine::view) does.
    fn push(
        &mut self,
        out: &mut String,
        room: &mut usize,
        look: impl FnOnce(Key<'_>, Range<usize>, Range<usize>) -> Option<AddressedView>,
    ) -> Progress {
        if !std::mem::replace(&mut self.begun, true) {
            let (limit, held, waiters) = (self.view.limit, self.view.held, self.view.waiters);
            out.push_str("{\"key\":");
            push_json_string(out, &self.view.name);
            // Writing to a String cannot fail.
            let _ = write!(out, ",\"limit\":{limit},\"held\":{held},\"waiters\":{waiters}");
            out.push_str(",\"holders\":[");
        }
        let holders = self.holders.saturating_sub(*room)..self.holders;
        let shown = self.waiters.unwrap_or(0);
        let waiting = shown..self.most.min(shown.saturating_add(*room - holders.len()));
        let seen =
            Key::new(&self.view.name).and_then(|key| look(key, holders.clone(), waiting.clone()));
        let (held, queue, addresses) = seen
            .map(|(view, addresses)| (view.holders, view.waiting, addresses))
            .unwrap_or_default();
        self.push_list(out, "held_s", held.iter().zip(&addresses).rev());
        self.holders = holders.start;
        *room -= held.len() + queue.len();
        if self.holders > 0 {
            return Progress::More;
        }
        if self.waiters.is_none() {
            out.push_str("],\"queue\":[");
            self.filled = false;
        }
        self.push_list(out, "waiting_s", queue.iter().zip(addresses.iter().skip(held.len())));
        self.waiters = Some(waiting.end);
        if queue.len() == waiting.len() && waiting.end < self.most {
            return Progress::More;
        }
        out.push_str("]}");
        Progress::Done
    }

    fn push_list<'a>(
        &mut self,
        out: &mut String,
        since: &str,
        parties: impl Iterator<Item = (&'a Party, &'a Option<IpAddr>)>,
    ) {
        for (party, address) in parties {
            if std::mem::replace(&mut self.filled, true) {
                out.push(',');
            }
            push_party(out, since, party, *address);
        }
    }
}

fn push_party(out: &mut String, since: &str, party: &Party, address: Option<IpAddr>) {
    let _ = write!(out, "{{\"connection\":{},\"address\":", party.serial);
    let _ = match address {
        Some(address) => write!(out, "\"{address}\""),
        None => write!(out, "null"),
    };
    if let Some(label) = &party.label {
        for (field, text) in [("name", &label.name), ("value", &label.value)] {
            if !text.is_empty() {
                let _ = write!(out, ",\"{field}\":");
                push_json_string(out, text.as_bytes());
            }
        }
    }
    if party.is_reader {
        out.push_str(",\"reader\":true");
    }
    if let Some(slot) = party.slot {
        let _ = write!(out, ",\"slot\":{slot}");
    }
    let _ = write!(out, ",\"{since}\":{}", Decimal(party.since_micros));
    if let Some(left) = party.left_micros {
        let here = party.conn.is_some();
        let _ = write!(out, ",\"lease_left_s\":{},\"connected\":{here}", Decimal(left));
    }
    out.push('}');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::take;
    use crate::server::Settings;
    use leases::{Claim, Limit, Request, Seconds};
    use rstest::rstest;
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
        let query = RosterQuery { part: Vec::new(), keys: KEYS, parties: 1, bytes: usize::MAX };
        let roster = runtime.enable_time().build().unwrap().block_on(async {
            let mut roster = pin!(shared.roster(&query));
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

    /// A semaphore with so many holders and waiters, whose connections have the numbers 1, 2 and so on, and long names.
    fn crowded(holders: u64, waiters: u64) -> Shared {
        let mut settings = Settings::default();
        settings.caps.max_locks = 10_000;
        let shared = Shared::new(settings);
        let claim = Claim::Slot(Limit::new(holders.max(1)).unwrap());
        let (key, timeout) = (Key::new(b"pool").unwrap(), Seconds::new(600).unwrap());
        for _ in 0..holders + waiters {
            let mut core = shared.core();
            let (id, _) = core.admit(&shared.settings, Some([127, 0, 0, 1].into())).unwrap();
            core.relabel(id, |label| label.name = "n".repeat(200).into());
            core.ask(shared.now(), id, Request::Acquire { key, claim, timeout, ttl: None })
                .unwrap();
        }
        shared
    }

    /// What a client of `stats KEY` gets, in pieces.
    fn pieces(shared: &Shared, most: usize) -> Vec<String> {
        let mut report = shared.key_report(Key::new(b"pool").unwrap(), most).unwrap();
        let (mut pieces, mut progress) = (Vec::new(), Progress::More);
        while progress != Progress::Done {
            let (mut piece, mut room) = (String::new(), PARTIES_PER_TURN);
            progress = shared.key_piece(&mut report, &mut room, &mut piece);
            pieces.push(piece);
        }
        pieces
    }

    fn serials(list: &serde_json::Value) -> Vec<u64> {
        list.as_array().unwrap().iter().map(|it| it["connection"].as_u64().unwrap()).collect()
    }

    /// However many they are, each piece is short, and all of them together are the object.
    #[rstest]
    #[case::one(1, 0, 1000)]
    #[case::a_waiter(1, 1, 1000)]
    #[case::a_piece_of_holders(PARTIES_PER_TURN as u64, 0, 1000)]
    #[case::a_piece_of_holders_and_a_waiter(PARTIES_PER_TURN as u64, 1, 1000)]
    #[case::a_piece_of_both(1, PARTIES_PER_TURN as u64 - 1, 1000)]
    #[case::many(1000, 1000, 1000)]
    #[case::more_than_are_shown(300, 500, 100)]
    fn lists_come_in_small_pieces(#[case] holders: u64, #[case] waiters: u64, #[case] most: u64) {
        let shared = crowded(holders, waiters);
        let pieces = pieces(&shared, usize::try_from(most).unwrap());
        let longest = pieces.iter().map(String::len).max().unwrap();
        assert!(longest < PARTIES_PER_TURN * 400, "{longest}");
        let shown = usize::try_from(most.min(holders) + most.min(waiters)).unwrap();
        assert!(pieces.len() <= shown / PARTIES_PER_TURN + 2, "{}", pieces.len());
        let object: serde_json::Value = serde_json::from_str(&pieces.concat()).unwrap();
        assert_eq!((&object["held"], &object["waiters"]), (&holders.into(), &waiters.into()));
        // Of the holders the latest, the longest hold first.
        let first = holders - holders.min(most) + 1;
        assert_eq!(serials(&object["holders"]), (first..=holders).collect::<Vec<_>>());
        let last = holders + waiters.min(most);
        assert_eq!(serials(&object["queue"]), (holders + 1..=last).collect::<Vec<_>>());
    }

    /// All leave between two pieces.
    #[test]
    fn a_crowd_that_leaves_ends_the_object() {
        let shared = crowded(100, 100);
        let mut report = shared.key_report(Key::new(b"pool").unwrap(), 1000).unwrap();
        let mut text = String::new();
        let mut piece = || shared.key_piece(&mut report, &mut { PARTIES_PER_TURN }, &mut text);
        assert_eq!(piece(), Progress::More);
        shared.core().engine.restart(crate::server::core::ServerMint::new(0));
        while piece() != Progress::Done {}
        let object: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(serials(&object["holders"]).len(), PARTIES_PER_TURN);
        assert!(serials(&object["queue"]).is_empty());
    }
}
