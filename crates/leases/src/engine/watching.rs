//! The facts about a key for clients that watch it: its holder, and the holder's label.
//!
//! Pure.

use super::keys::KeyEntry;
use super::request::{ConnId, Effect};
use super::slab::Id;
use super::state::Engine;
use super::terms::{Key, Mint, Moment};
use std::sync::Arc;

/// The label of a connection. A hold keeps the label that its connection had at the grant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Label {
    /// A name for people; empty if there is none.
    pub name: Arc<str>,
    /// A value for programs, such as the address of the holder; empty if there is none.
    pub value: Arc<str>,
}

impl Label {
    /// As text: the name, a line end and the value. Neither has a line end.
    #[must_use]
    pub fn write(&self) -> String {
        format!("{}\n{}", self.name, self.value)
    }

    /// Reads the text of [`Label::write`]; `None` for text without a line end.
    #[must_use]
    pub fn read(text: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(text);
        let (name, value) = text.split_once('\n')?;
        Some(Self { name: name.into(), value: value.into() })
    }
}

/// The holders of a key for clients that watch it: all facts are about the holder that got it last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sight {
    /// The number of holders, at least one.
    pub holders: u32,
    /// The fence of the latest holder.
    pub fence: u64,
    /// Microseconds since it got the key, as far as the store knows.
    pub since_micros: u64,
    /// Its label.
    pub label: Option<Arc<Label>>,
}

impl<M: Mint> Engine<M> {
    /// Sets the label of a connection from now on; holds that it gets carry the label.
    pub fn introduce(&mut self, conn: ConnId, label: &Arc<Label>) {
        if let Some(conn) = self.conn(conn).and_then(|id| self.conns.get_mut(id)) {
            conn.label = Some(Arc::clone(label));
        }
    }

    /// From now on, [`Effect::Moved`] reports each change of this key's holders, or no longer does.
    pub fn watch(&mut self, key: Key<'_>, is_watched: bool) {
        self.keys.watch(key, is_watched);
    }

    /// The holders of a key; `None` if it is free.
    #[must_use]
    pub fn sight(&self, now: Moment, key: Key<'_>) -> Option<Sight> {
        let entry = self.keys.get(self.keys.find(key)?)?;
        let last = self.holders.get(entry.holders.first()?)?;
        Some(Sight {
            holders: entry.held,
            fence: last.token.fence(),
            since_micros: now.micros_since(last.since),
            label: last.label.clone(),
        })
    }

    /// Notes that the holders of a key, or the facts known about them, have changed. A key that is not watched costs
    /// one comparison.
    pub(super) fn note_move(&mut self, key: Id<KeyEntry>) {
        if let Some(entry) = self.keys.get(key).filter(|entry| entry.watched) {
            self.effects.push_back(Effect::Moved(entry.name.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{CAPS, Counting};
    use crate::{Answer, AutoRelease, Claim, Limit, Request, Seconds, Token, Ttl, Verdict};
    use rstest::rstest;
    use std::hash::RandomState;

    const NOW: Moment = Moment::from_micros(0);

    fn label(name: &str, value: &str) -> Arc<Label> {
        Arc::new(Label { name: name.into(), value: value.into() })
    }

    fn engine() -> Engine<Counting> {
        Engine::new(CAPS, Counting(0), RandomState::new())
    }

    fn key(name: &str) -> Key<'_> {
        Key::new(name.as_bytes()).unwrap()
    }

    fn acquire(engine: &mut Engine<Counting>, conn: ConnId, name: &str, claim: Claim) -> Verdict {
        let timeout = Seconds::new(60).unwrap();
        engine.ask(NOW, conn, Request::Acquire { key: key(name), claim, timeout, ttl: None })
    }

    fn token(verdict: Verdict) -> Token {
        let Verdict::Now(Answer::Granted(grant)) = verdict else { panic!("{verdict:?}") };
        grant.token
    }

    /// How often [`Effect::Moved`] reported the key `k`, and no other key.
    fn moves(engine: &mut Engine<Counting>) -> usize {
        let mut count = 0;
        while let Some(effect) = engine.take_effect() {
            if let Effect::Moved(name) = effect {
                assert_eq!(&*name, b"k");
                count += 1;
            }
        }
        count
    }

    fn seen(engine: &Engine<Counting>) -> Option<(u32, u64, String)> {
        let sight = engine.sight(NOW, key("k"))?;
        let value = sight.label.map(|label| label.value.to_string()).unwrap_or_default();
        Some((sight.holders, sight.fence, value))
    }

    #[test]
    fn a_watched_key_tells_of_each_change_and_another_one_of_none() {
        let mut engine = engine();
        let (one, two) = (engine.connect(1), engine.connect(2));
        engine.introduce(one, &label("one", "10.0.0.1:80"));
        engine.watch(key("k"), true);
        assert_eq!(seen(&engine), None);
        acquire(&mut engine, one, "other", Claim::LOCK);
        assert_eq!(moves(&mut engine), 0);
        let first = token(acquire(&mut engine, one, "k", Claim::LOCK));
        assert_eq!(moves(&mut engine), 1);
        assert_eq!(seen(&engine), Some((1, first.fence(), "10.0.0.1:80".to_owned())));
        assert_eq!(acquire(&mut engine, two, "k", Claim::LOCK), Verdict::Later);
        assert_eq!(moves(&mut engine), 0);
        // The end of the hold, and the grant to the next client.
        engine.ask(NOW, one, Request::Release { key: key("k"), token: Some(first) });
        assert!(moves(&mut engine) >= 1);
        let (holders, fence, value) = seen(&engine).unwrap();
        assert!(holders == 1 && fence > first.fence() && value.is_empty());
        engine.disconnect(NOW, two, AutoRelease::On);
        assert_eq!((moves(&mut engine), seen(&engine)), (1, None));
        engine.watch(key("k"), false);
        acquire(&mut engine, one, "k", Claim::LOCK);
        assert_eq!(moves(&mut engine), 0);
    }

    #[test]
    fn a_lease_that_runs_out_is_a_change() {
        let mut engine = engine();
        let one = engine.connect(1);
        acquire(&mut engine, one, "k", Claim::LOCK);
        engine.watch(key("k"), true);
        engine.advance(NOW.after(CAPS.default_ttl.span()));
        assert_eq!((moves(&mut engine), seen(&engine)), (1, None));
    }

    #[test]
    fn watchers_see_the_latest_reader_and_the_number_of_readers() {
        let mut engine = engine();
        let (one, two) = (engine.connect(1), engine.connect(2));
        engine.watch(key("k"), true);
        let first = token(acquire(&mut engine, one, "k", Claim::Shared));
        let second = token(acquire(&mut engine, two, "k", Claim::Shared));
        assert_eq!(seen(&engine), Some((2, second.fence(), String::new())));
        assert_eq!(moves(&mut engine), 2);
        engine.ask(NOW, one, Request::Release { key: key("k"), token: Some(first) });
        assert_eq!((moves(&mut engine), seen(&engine).unwrap().0), (1, 1));
    }

    /// A renewal changes nothing that is reported, whatever the label of its connection is.
    #[test]
    fn a_hold_keeps_the_label_of_its_grant() {
        let mut engine = engine();
        let (one, two) = (engine.connect(1), engine.connect(2));
        engine.introduce(one, &label("one", "old"));
        engine.introduce(two, &label("two", "new"));
        let token = Some(token(acquire(&mut engine, one, "k", Claim::LOCK)));
        engine.introduce(one, &label("one", "later"));
        engine.watch(key("k"), true);
        for conn in [one, two] {
            let renewal = Request::Renew { key: key("k"), token, ttl: Ttl::new(9) };
            assert!(matches!(engine.ask(NOW, conn, renewal), Verdict::Now(Answer::Renewed(_))));
        }
        assert_eq!((moves(&mut engine), seen(&engine).unwrap().2.as_str()), (0, "old"));
    }

    #[test]
    fn a_semaphore_counts_its_holders() {
        let mut engine = engine();
        let one = engine.connect(1);
        engine.watch(key("k"), true);
        let pool = Claim::Slot(Limit::new(3).unwrap());
        acquire(&mut engine, one, "k", pool);
        acquire(&mut engine, one, "k", pool);
        assert_eq!((moves(&mut engine), seen(&engine).unwrap().0), (2, 2));
    }

    #[rstest]
    #[case("name", "value")]
    #[case("", "value")]
    #[case("a b", "")]
    fn a_written_label_is_read_back(#[case] name: &str, #[case] value: &str) {
        let label = label(name, value);
        assert_eq!(Label::read(label.write().as_bytes()).as_ref(), Some(&*label));
    }

    #[test]
    fn text_without_a_line_end_is_no_label() {
        assert_eq!(Label::read(b"name"), None);
    }
}
