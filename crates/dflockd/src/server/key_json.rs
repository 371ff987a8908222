//! A key with its holders and waiters as JSON, in pieces: a key may have a thousand of both. It cannot contain a token,
//! because a [`Party`] has none. Pure.

use leases::wire::{Decimal, push_json_string};
use leases::{Key, KeyView, Party, Progress};
use std::fmt::Write as _;
use std::net::IpAddr;
use std::ops::Range;

/// Some holders and waiters of a key, and the addresses of the holders and then of the waiters.
pub(super) type Seen = (KeyView, Vec<Option<IpAddr>>);

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
    pub(super) fn new(view: KeyView, most: usize) -> Self {
        let holders = most.min(usize::try_from(view.held).unwrap_or(usize::MAX));
        Self { view, most, begun: false, holders, waiters: None, filled: false }
    }

    /// Of a key that nobody holds or waits for.
    pub(crate) fn idle(key: Key<'_>) -> Self {
        let (name, holders, waiting) = (key.bytes().to_vec(), Vec::new(), Vec::new());
        Self::new(KeyView { name, limit: 1, held: 0, waiters: 0, holders, waiting }, 0)
    }

    /// Appends the next piece, at most `room` holders and waiters, and subtracts these from it. `look` reads them by
    /// their places, as [`Engine::view`](leases::Engine::view) does.
    pub(super) fn push(
        &mut self,
        out: &mut String,
        room: &mut usize,
        look: impl FnOnce(Key<'_>, Range<usize>, Range<usize>) -> Option<Seen>,
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
    use crate::server::Settings;
    use crate::server::core::{PARTIES_PER_TURN, Shared};
    use leases::{Claim, Limit, Request, Seconds};
    use rstest::rstest;

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
