//! The roster for people: holders with times, and waiters. Reads the table in small steps, between which others are
//! served, so no request of a lock client waits for it.

use super::Handle;
use super::core::view;
use super::key_json::Clients;
use super::pace::Pace;
use leases::{Cursor, Key, KeyLine, KeyView, Progress};
use memchr::memmem::Finder;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::ControlFlow;

/// The number of places of the table that are read in one step, which takes some 10 to 50 microseconds.
const PLACES_PER_STEP: u32 = 512;
/// The number of keys that are shown in one step.
const VIEWS_PER_STEP: usize = 16;

/// A request for the roster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Only keys that contain these bytes, without regard to the case of ASCII letters; empty for all keys.
    pub part: Vec<u8>,
    /// The most keys to show.
    pub keys: usize,
    /// The most holders, and the most waiters, to show of each key.
    pub parties: usize,
}

/// Some keys in use, those with the longest queues first. If the table is large, it does not show one moment.
#[derive(Clone, Debug, Default)]
pub struct Roster {
    /// The keys shown.
    pub keys: Vec<(KeyView, Clients)>,
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

impl Handle {
    /// The roster, at that pace.
    pub(crate) async fn roster(&self, pace: &Pace, wanted: &Wanted) -> Roster {
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
            let now = self.0.now();
            self.0.core().engine.look_over(now, &mut cursor, PLACES_PER_STEP, note)
        };
        while pace.step(&mut look).await != Progress::Done {}
        for names in picked.keys().chunks(VIEWS_PER_STEP) {
            let show = |key| view(&self.0.core(), self.0.now(), key, wanted.parties);
            let views = names.iter().filter_map(|name| Key::new(name).and_then(show));
            pace.step(|| roster.keys.extend(views)).await;
        }
        roster
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::{Server, Settings};
    use leases::{Caps, Claim, Request, Seconds, Verdict};
    use tokio::task::yield_now;

    /// A server that does not run, with these keys held by one connection, and one waiter for the last key.
    fn server_with(names: impl Iterator<Item = String>) -> Server {
        let caps = Caps {
            max_locks: usize::MAX,
            max_entries: usize::MAX,
            max_entries_per_connection: usize::MAX,
            ..Settings::default().caps
        };
        let server = Server::new(Settings { caps, ..Settings::default() }, Vec::new());
        let shared = &server.shared;
        let (holder, _) = shared.core().admit(&shared.settings, None).unwrap();
        let (waiter, _) = shared.core().admit(&shared.settings, None).unwrap();
        let mut last = String::new();
        let ask = |conn, name: &str| {
            let key = Key::new(name.as_bytes()).unwrap();
            let timeout = Seconds::new(9).unwrap();
            let request = Request::Acquire { key, claim: Claim::LOCK, timeout, ttl: None };
            shared.core().ask(shared.now(), conn, request)
        };
        for name in names {
            assert!(matches!(ask(holder, &name), Ok(Verdict::Now(_))));
            last = name;
        }
        assert_eq!(ask(waiter, &last), Ok(Verdict::Later));
        server
    }

    /// The roster, and how often others were served meanwhile.
    fn roster(server: &Server, wanted: &Wanted) -> (Roster, usize) {
        let builder = &mut tokio::runtime::Builder::new_current_thread();
        builder.enable_time().build().unwrap().block_on(async {
            let mut turns = 0;
            let others = async {
                loop {
                    yield_now().await;
                    turns += 1;
                }
            };
            let (handle, pace) = (server.handle(), Pace::new());
            let roster = tokio::select! {
                biased;
                roster = handle.roster(&pace, wanted) => roster,
                () = others => unreachable!(),
            };
            (roster, turns)
        })
    }

    fn wanted(part: &str, keys: usize) -> Wanted {
        Wanted { part: part.as_bytes().to_vec(), keys, parties: 10 }
    }

    /// However many keys there are, few are shown, and others are served between small steps.
    #[test]
    fn a_great_table_is_looked_over_in_small_steps() {
        const KEYS: usize = 100_000;
        let server = server_with((0..KEYS).map(|key| format!("key-{key}")));
        let (all, turns) = roster(&server, &wanted("", 200));
        assert_eq!((all.matching, all.keys.len()), (KEYS, 200));
        let steps = KEYS.div_ceil(PLACES_PER_STEP as usize) + 200_usize.div_ceil(VIEWS_PER_STEP);
        assert!(turns + 1 >= steps, "{turns} turns in {steps} steps");
        // The longest queue first, though it is the last in the table.
        assert_eq!(all.keys[0].0.name, b"key-99999");
        assert_eq!(all.keys[1].0.name, b"key-0");
    }

    #[test]
    fn a_part_of_the_name_chooses() {
        let server = server_with(["build-1", "dEploY", "build-2"].map(str::to_owned).into_iter());
        let names = |part| {
            let (roster, _) = roster(&server, &wanted(part, 10));
            assert_eq!(roster.matching, roster.keys.len());
            roster.keys.into_iter().map(|(view, _)| view.name).collect::<Vec<_>>()
        };
        assert_eq!(names("build"), [b"build-2", b"build-1"]);
        assert_eq!(names("eplo"), [b"dEploY"]);
        assert_eq!(names("ePLo"), [b"dEploY"]);
        assert!(names("nobody").is_empty());
        let (none, _) = roster(&server, &wanted("build", 0));
        assert_eq!((none.matching, none.keys.len()), (2, 0));
    }
}
