//! The engine's promises that need no model: budgets, forgetting, draining, what is watched and recorded, pieces of
//! `stats`.

#[cfg(test)]
#[path = "../src/sample_tests.rs"]
mod sample;

#[cfg(test)]
mod engine {
    use crate::sample::{CAPS, Counting, seconds};
    use leases::journal::{Record, RecordedHold, Recovered};
    use leases::wire::{StatsCursor, push_stats};
    use leases::{
        Answer, AutoRelease, Caps, Claim, ConnId, Cursor, Effect, Engine, Forced, Grant, Key, Keys,
        Label, LeaseStart, Limit, Moment, Progress, Refusal, Request, Seconds, Token, Ttl, Verdict,
    };
    use rstest::rstest;
    use std::hash::RandomState;
    use std::ops::ControlFlow;
    use std::sync::Arc;

    fn known(engine: &Engine) -> usize {
        let [locks, semaphores] = [engine.census().locks, engine.census().semaphores];
        locks.in_use + locks.idle + semaphores.in_use + semaphores.idle
    }

    fn held(engine: &Engine) -> usize {
        engine.census().locks.holders + engine.census().semaphores.holders
    }

    fn waiting(engine: &Engine) -> usize {
        engine.census().locks.waiters + engine.census().semaphores.waiters
    }

    fn at(millis: u64) -> Moment {
        Moment::from_micros(millis * 1000)
    }

    fn at_second(count: u64) -> Moment {
        at(count * 1000)
    }

    fn engine() -> Engine {
        engine_with(|_| {})
    }

    fn engine_with(change: impl FnOnce(&mut Caps)) -> Engine {
        let mut caps = CAPS;
        change(&mut caps);
        Engine::new(caps, Counting(0), RandomState::new())
    }

    fn acquire(
        engine: &mut Engine,
        now: Moment,
        conn: ConnId,
        key: &str,
        limit: u64,
        ttl: u64,
    ) -> Verdict {
        let request = Request::Acquire {
            key: Key::new(key.as_bytes()).unwrap(),
            claim: Claim::Slot(Limit::new(limit).unwrap()),
            timeout: seconds(1000),
            ttl: Ttl::new(ttl),
        };
        engine.ask(now, conn, request)
    }

    fn granted(verdict: Verdict) -> Grant {
        let Verdict::Now(Answer::Granted(grant)) = verdict else { panic!("{verdict:?}") };
        grant
    }

    fn release(engine: &mut Engine, now: Moment, conn: ConnId, key: &str, token: Token) {
        let key = Key::new(key.as_bytes()).unwrap();
        let verdict = engine.ask(now, conn, Request::Release { key, token: Some(token) });
        assert_eq!(verdict, Verdict::Now(Answer::Released));
    }

    /// An engine that knows the key `k`, which nobody has held since the beginning, and a connection.
    fn idle() -> (Engine, ConnId) {
        let mut engine = engine();
        let conn = engine.connect(1);
        let grant = granted(acquire(&mut engine, at(0), conn, "k", 1, 5));
        release(&mut engine, at(0), conn, "k", grant.token);
        (engine, conn)
    }

    /// The key of a connection's last request may be forgotten, and another may take its place in the table.
    #[test]
    fn a_request_is_about_the_key_that_it_names() {
        let mut engine = engine_with(|caps| caps.max_locks = 1);
        let [one, other] = [1, 2].map(|serial| engine.connect(serial));
        let first = granted(acquire(&mut engine, at(0), one, "a", 1, 60));
        release(&mut engine, at(0), one, "a", first.token);
        let held = granted(acquire(&mut engine, at(0), other, "b", 1, 60));
        let refused = Verdict::Now(Answer::Refused(Refusal::MaxLocks));
        assert_eq!(acquire(&mut engine, at(0), one, "a", 1, 60), refused);
        release(&mut engine, at(0), other, "b", held.token);
        granted(acquire(&mut engine, at(0), one, "a", 1, 60));
    }

    /// A thousand readers may wait for one writer: they get the lock in steps, in their order, and who comes between two
    /// steps is behind them. Some of them leave before their step.
    #[test]
    fn a_long_queue_is_served_in_steps() {
        const READERS: usize = 1000;
        let (mut engine, writer) = (engine_with(|caps| caps.max_entries = 5000), 1);
        let writer = engine.connect(writer);
        let grant = granted(acquire(&mut engine, at(0), writer, "k", 1, 60));
        let key = Key::new(b"k").unwrap();
        let share =
            Request::Acquire { key, claim: Claim::Shared, timeout: seconds(1000), ttl: None };
        let mut readers = Vec::new();
        for serial in 0..READERS {
            let reader = engine.connect(serial as u64 + 2);
            assert_eq!(engine.ask(at(0), reader, share), Verdict::Later);
            readers.push(reader);
        }
        release(&mut engine, at(1), writer, "k", grant.token);
        let (late, next_writer) = (engine.connect(5001), engine.connect(5002));
        assert_eq!(engine.ask(at(1), late, share), Verdict::Later, "others are before it");
        assert_eq!(acquire(&mut engine, at(1), next_writer, "k", 1, 60), Verdict::Later);
        engine.cancel(at(1), readers[READERS - 1]);
        let (mut served, mut steps) = (Vec::new(), 0);
        loop {
            let before = served.len();
            while let Some(effect) = engine.take_effect() {
                let Effect::Answer(conn, Answer::Granted(_)) = effect else { panic!("{effect:?}") };
                served.push(conn);
            }
            assert!(served.len() - before <= 300, "{}", served.len() - before);
            if engine.next_deadline() > at(1) {
                break;
            }
            steps += 1;
            engine.advance(at(1));
        }
        readers[READERS - 1] = late;
        assert!(served == readers && steps >= 4, "{} in {steps}", served.len());
        assert_eq!((held(&engine), waiting(&engine)), (READERS, 1));
    }

    /// The queue that was to be served on ends meanwhile, and its key is forgotten.
    #[test]
    fn a_long_queue_may_end_before_it_is_served() {
        let mut engine = engine_with(|caps| (caps.max_entries, caps.max_locks) = (5000, 1));
        let writer = engine.connect(1);
        let grant = granted(acquire(&mut engine, at(0), writer, "k", 1, 60));
        let key = Key::new(b"k").unwrap();
        let share =
            Request::Acquire { key, claim: Claim::Shared, timeout: seconds(1000), ttl: None };
        let readers: Vec<ConnId> = (0..400).map(|serial| engine.connect(serial + 2)).collect();
        for reader in &readers {
            assert_eq!(engine.ask(at(0), *reader, share), Verdict::Later);
        }
        release(&mut engine, at(1), writer, "k", grant.token);
        for reader in readers.iter().rev() {
            engine.disconnect(at(1), *reader, AutoRelease::On);
        }
        assert_eq!((held(&engine), waiting(&engine)), (0, 0));
        let _other = granted(acquire(&mut engine, at(1), writer, "other", 1, 60));
        while engine.next_deadline() <= at(1) {
            engine.advance(at(1));
        }
        assert_eq!((held(&engine), known(&engine)), (1, 1));
    }

    /// Holds are taken away in steps, the oldest first, and none that begins in between.
    #[test]
    fn force_takes_the_holds_that_there_are_at_first() {
        const SLOTS: u64 = 10;
        let mut engine = engine();
        let conn = engine.connect(1);
        let first = granted(acquire(&mut engine, at(0), conn, "k", SLOTS, 60));
        for _ in 1..SLOTS {
            let _more = granted(acquire(&mut engine, at(0), conn, "k", SLOTS, 60));
        }
        let waiter = engine.connect(2);
        assert_eq!(acquire(&mut engine, at(0), waiter, "k", SLOTS, 60), Verdict::Later);
        let (mut forced, key) = (Forced::default(), Key::new(b"k").unwrap());
        assert_eq!(engine.force_release(at(1), key, &mut forced, 4), Progress::More);
        assert!(
            matches!(engine.take_effect(), Some(Effect::Taken(_, token)) if token == first.token)
        );
        // The waiter has one, and so has one that comes now.
        let _new = granted(acquire(&mut engine, at(1), waiter, "k", SLOTS, 60));
        assert_eq!(engine.force_release(at(1), key, &mut forced, 4), Progress::More);
        assert_eq!(engine.force_release(at(1), key, &mut forced, 4), Progress::Done);
        assert_eq!((forced.released(), held(&engine)), (10, 2));
        // Those that there are now; nothing where nobody holds.
        for want in [2, 0] {
            let mut forced = Forced::default();
            assert_eq!(engine.force_release(at(1), key, &mut forced, 4), Progress::Done);
            assert_eq!((forced.released(), held(&engine)), (want, 0));
        }
    }

    /// The search comes every five seconds and takes what has been idle for more than sixty.
    #[rstest]
    #[case(60_000, 1)]
    #[case(60_001, 0)]
    #[case(70_000, 0)]
    fn idle_keys_are_forgotten_after_their_time(#[case] now: u64, #[case] left: usize) {
        let (mut engine, _) = idle();
        engine.advance(at(now));
        assert_eq!(known(&engine), left);
    }

    /// Searches are no closer together than the interval.
    #[test]
    fn a_search_waits_for_its_interval() {
        let (mut engine, _) = idle();
        engine.advance(at(58_000));
        assert_eq!(engine.next_deadline(), at(63_000));
        engine.advance(at(62_999));
        assert_eq!(known(&engine), 1);
        engine.advance(at(63_000));
        assert_eq!((known(&engine), engine.next_deadline()), (0, Moment::NEVER));
    }

    #[test]
    fn a_used_key_is_not_forgotten() {
        let mut engine = engine();
        let conn = engine.connect(1);
        for second in 0..20 {
            let now = at(second * 50_000);
            engine.advance(now);
            let grant = granted(acquire(&mut engine, now, conn, "k", 1, 5));
            release(&mut engine, now, conn, "k", grant.token);
            assert_eq!(known(&engine), 1);
        }
    }

    /// A bogus token is no use of a key.
    #[test]
    fn a_bogus_token_does_not_keep_a_key() {
        let (mut engine, conn) = idle();
        let key = Key::new(b"k").unwrap();
        let token = Some(Token::new(1, 2));
        for second in 1..70 {
            let refused = Verdict::Now(Answer::Refused(Refusal::NotHeld));
            assert_eq!(
                engine.ask(at(second * 1000), conn, Request::Release { key, token }),
                refused
            );
        }
        engine.advance(at(70_000));
        assert_eq!(known(&engine), 0);
    }

    /// However small the pieces, the body is the same.
    #[test]
    fn stats_in_pieces() {
        let mut engine = engine();
        let conn = engine.connect(1);
        for key in 0..40 {
            let name = format!("k{key}");
            let grant = granted(acquire(&mut engine, at(0), conn, &name, 1 + key % 3, 500));
            if key % 4 == 0 {
                release(&mut engine, at(0), conn, &name, grant.token);
            }
        }
        let body = |room: usize| {
            let (mut cursor, mut out) = (StatsCursor::default(), String::new());
            loop {
                let piece = push_stats(&mut out, room, &mut cursor, 1, |place, note| {
                    engine.look_over(at(0), place, 7, |line| note(line))
                });
                if piece == Progress::Done {
                    return out;
                }
            }
        };
        let whole = body(usize::MAX);
        let value: serde_json::Value = serde_json::from_str(&whole).unwrap();
        let lengths = ["locks", "semaphores", "idle_locks", "idle_semaphores"]
            .map(|member| value[member].as_array().unwrap().len());
        assert_eq!(lengths.iter().sum::<usize>(), 40);
        assert!(lengths.iter().all(|&length| length > 0));
        for room in [1, 50, 100, 1000] {
            assert_eq!(body(room), whole);
        }
    }

    /// What was granted and never told goes, though auto-release is off; what was told stays.
    #[test]
    fn an_untold_grant_is_taken_back() {
        let mut engine = engine();
        let (holder, gone) = (engine.connect(1), engine.connect(2));
        let grant = granted(acquire(&mut engine, at(0), holder, "k", 1, 500));
        granted(acquire(&mut engine, at(0), gone, "told", 1, 500));
        assert_eq!(acquire(&mut engine, at(1), gone, "k", 1, 500), Verdict::Later);
        release(&mut engine, at(2), holder, "k", grant.token);
        let Some(Effect::Answer(_, Answer::Granted(untold))) = engine.take_effect() else {
            panic!("no grant")
        };
        engine.take_back(at(3), gone, untold.token);
        engine.disconnect(at(3), gone, AutoRelease::Off);
        assert_eq!(held(&engine), 1);
        granted(acquire(&mut engine, at(4), holder, "k", 1, 500));
    }

    /// A connection that has left gets nothing and breaks nothing. The next connection has the same place, and is not
    /// taken for it.
    #[test]
    fn a_gone_connection_is_refused_and_is_not_its_successor() {
        let mut engine = engine();
        let gone = engine.connect(1);
        engine.disconnect(at(0), gone, AutoRelease::On);
        let refused = Verdict::Now(Answer::Refused(Refusal::NotHeld));
        assert_eq!(acquire(&mut engine, at(1), gone, "k", 1, 5), refused);
        engine.cancel(at(1), gone);
        engine.disconnect(at(1), gone, AutoRelease::Off);
        let next = engine.connect(2);
        assert_eq!(next.place(), gone.place());
        granted(acquire(&mut engine, at(2), next, "k", 1, 500));
        assert_eq!(acquire(&mut engine, at(2), gone, "other", 1, 5), refused);
        engine.disconnect(at(2), gone, AutoRelease::On);
        assert_eq!(held(&engine), 1);
    }

    /// A full table makes room by forgetting what has been idle for longest.
    #[test]
    fn idle_keys_do_not_fill_the_table() {
        let mut engine = engine_with(|caps| caps.max_locks = 3);
        let conn = engine.connect(1);
        for key in ["a", "b", "c"] {
            let grant = granted(acquire(&mut engine, at(0), conn, key, 1, 5));
            release(&mut engine, at(0), conn, key, grant.token);
        }
        let again = granted(acquire(&mut engine, at(1), conn, "a", 1, 5));
        release(&mut engine, at(1), conn, "a", again.token);
        granted(acquire(&mut engine, at(2), conn, "d", 1, 5));
        assert_eq!(names(&engine), ["a", "c", "d"]);
        granted(acquire(&mut engine, at(2), conn, "e", 1, 5));
        granted(acquire(&mut engine, at(2), conn, "f", 1, 5));
        assert_eq!(names(&engine), ["d", "e", "f"]);
        let full = Verdict::Now(Answer::Refused(Refusal::MaxLocks));
        assert_eq!(acquire(&mut engine, at(2), conn, "g", 1, 5), full);
    }

    /// A request that is refused, or that times out at once, leaves its new key idle: other clients get the place.
    #[rstest]
    #[case::too_many_holds(|_: &mut Engine| {}, 1, Answer::Refused(Refusal::MaxLocks))]
    #[case::no_space(|engine: &mut Engine| engine.set_room(0), 1, Answer::Refused(Refusal::NoSpace))]
    #[case::too_many_waits(|engine: &mut Engine| engine.close(at(9_000)), 1, Answer::Refused(Refusal::MaxWaiters))]
    #[case::closed(|engine: &mut Engine| engine.close(at(9_000)), 0, Answer::TimedOut)]
    fn refused_requests_do_not_fill_the_table(
        #[case] prepare: fn(&mut Engine),
        #[case] timeout: u64,
        #[case] want: Answer,
    ) {
        let mut engine = engine_with(|caps| {
            caps.max_locks = 3;
            caps.max_entries_per_connection = 2;
        });
        let (greedy, other) = (engine.connect(1), engine.connect(2));
        for _ in 0..2 {
            granted(acquire(&mut engine, at(0), greedy, "pool", 2, 500));
        }
        prepare(&mut engine);
        let want = Verdict::Now(want);
        for key in [b"a", b"b", b"c"] {
            let (key, claim) = (Key::new(key).unwrap(), Claim::LOCK);
            let request = Request::Acquire { key, claim, timeout: seconds(timeout), ttl: None };
            assert_eq!(engine.ask(at(1), greedy, request), want);
            if timeout > 0 {
                let request = Request::Enqueue { key, claim, ttl: None };
                assert_eq!(engine.ask(at(1), greedy, request), want);
            }
        }
        engine.set_room(usize::MAX);
        // One of the two keys is known, and needs no second place.
        assert_eq!(acquire_all(&mut engine, at(9_000), other, "c d").grants().len(), 2);
        assert_eq!(names(&engine), ["c", "d", "pool"]);
    }

    fn names(engine: &Engine) -> Vec<String> {
        let mut names = Vec::new();
        let _ = engine.look_over(at(0), &mut Cursor::default(), u32::MAX, |line| {
            names.push(String::from_utf8(line.name.to_vec()).unwrap());
            ControlFlow::Continue(())
        });
        names.sort();
        names
    }

    /// One connection, and all of them together, can have so much and no more.
    #[test]
    fn holds_and_waits_are_bounded() {
        let mut engine = engine_with(|caps| {
            caps.max_entries = 5;
            caps.max_entries_per_connection = 3;
        });
        let (first, second) = (engine.connect(1), engine.connect(2));
        let tokens: Vec<Token> = (0..3)
            .map(|_| granted(acquire(&mut engine, at(0), first, "pool", 9, 5)).token)
            .collect();
        let full = |refusal| Verdict::Now(Answer::Refused(refusal));
        let more = acquire(&mut engine, at(0), first, "pool", 9, 5);
        assert_eq!(more, full(Refusal::MaxLocks));
        granted(acquire(&mut engine, at(0), second, "k", 1, 5));
        // A place in the queue and its record are two.
        let key = Key::new(b"k").unwrap();
        let enqueue = Request::Enqueue { key, claim: Claim::LOCK, ttl: None };
        assert_eq!(engine.ask(at(0), second, enqueue), full(Refusal::MaxWaiters));
        release(&mut engine, at(0), first, "pool", tokens[0]);
        assert_eq!(engine.ask(at(0), second, enqueue), Verdict::Now(Answer::Queued));
        assert_eq!(acquire(&mut engine, at(0), first, "k", 1, 5), full(Refusal::MaxWaiters));
        // Each client that goes leaves room.
        engine.disconnect(at(1), second, AutoRelease::On);
        granted(acquire(&mut engine, at(1), first, "k", 1, 5));
    }

    /// A client above its limit, by a hold that it inherited, can still ask whether a key is free.
    #[test]
    fn a_try_needs_no_room_for_an_entry() {
        let mut engine = engine_with(|caps| caps.max_entries_per_connection = 1);
        let (old, new) = (engine.connect(1), engine.connect(2));
        let grant = granted(acquire(&mut engine, at(0), old, "k", 1, 500));
        granted(acquire(&mut engine, at(0), new, "own", 1, 500));
        renew(&mut engine, at(1), new, "k", grant.token);
        gone(&mut engine, at(2), old);
        let (key, claim) = (Key::new(b"k").unwrap(), Claim::LOCK);
        let request = Request::Acquire { key, claim, timeout: Seconds::ZERO, ttl: None };
        assert_eq!(engine.ask(at(3), new, request), Verdict::Now(Answer::TimedOut));
        let full = Verdict::Now(Answer::Refused(Refusal::MaxWaiters));
        assert_eq!(acquire(&mut engine, at(3), new, "k", 1, 5), full);
    }

    fn share(engine: &mut Engine, now: Moment, conn: ConnId) -> Verdict {
        let (key, claim) = (Key::new(b"k").unwrap(), Claim::Shared);
        let request = Request::Acquire { key, claim, timeout: seconds(1000), ttl: None };
        engine.ask(now, conn, request)
    }

    fn answers(engine: &mut Engine) -> Vec<Answer> {
        let answer = |effect| match effect {
            Effect::Answer(_, answer) => Some(answer),
            Effect::Expired { .. } | Effect::Moved(_) | Effect::Taken(..) => None,
        };
        std::iter::from_fn(|| engine.take_effect()).filter_map(answer).collect()
    }

    /// The timer of a wait may be that of an earlier one. Whenever the engine is called again, what was due first comes
    /// first.
    #[test]
    fn a_lease_that_ends_before_a_wait_is_granted_to_it() {
        let mut engine = engine();
        let [holder, waiter] = [1, 2].map(|serial| engine.connect(serial));
        let first = granted(acquire(&mut engine, at(0), holder, "k", 1, 100));
        assert_eq!(acquire(&mut engine, at(0), waiter, "k", 1, 100), Verdict::Later);
        release(&mut engine, at(1), holder, "k", first.token);
        let [Answer::Granted(second)] = answers(&mut engine)[..] else { panic!("it is free") };
        release(&mut engine, at(2), waiter, "k", second.token);
        granted(acquire(&mut engine, at_second(500), holder, "k", 1, 700));
        assert_eq!(acquire(&mut engine, at_second(500), waiter, "k", 1, 100), Verdict::Later);
        assert_eq!(engine.next_deadline(), at_second(1000));
        engine.advance(at_second(2000));
        let answers = answers(&mut engine);
        assert!(matches!(answers[..], [Answer::Granted(_)]), "{answers:?}");
    }

    /// A drain ends the wait of the writer, and does not let the reader behind it in.
    #[test]
    fn a_drain_lets_no_reader_in() {
        let mut engine = engine();
        let conns: Vec<ConnId> = (0..3).map(|serial| engine.connect(serial)).collect();
        granted(share(&mut engine, at(0), conns[0]));
        assert_eq!(acquire(&mut engine, at(0), conns[1], "k", 1, 5), Verdict::Later);
        assert_eq!(share(&mut engine, at(0), conns[2]), Verdict::Later);
        engine.drain(at(1));
        let draining = Answer::Refused(Refusal::Draining);
        assert_eq!((answers(&mut engine), held(&engine)), (vec![draining.clone(), draining], 1));
    }

    /// While no further hold can be written down, readers follow a writer one after the other; all of them when
    /// that is over.
    #[test]
    fn readers_are_not_more_than_can_be_written_down() {
        let mut engine = engine();
        let conns: Vec<ConnId> = (0..4).map(|serial| engine.connect(serial)).collect();
        let writer = granted(acquire(&mut engine, at(0), conns[0], "k", 1, 500));
        for reader in &conns[1..] {
            assert_eq!(share(&mut engine, at(0), *reader), Verdict::Later);
        }
        engine.set_room(0);
        release(&mut engine, at(1), conns[0], "k", writer.token);
        let [Answer::Granted(first)] = answers(&mut engine)[..] else { panic!("one follows one") };
        release(&mut engine, at(2), conns[1], "k", first.token);
        assert_eq!((answers(&mut engine).len(), held(&engine), waiting(&engine)), (1, 1, 1));
        engine.set_room(usize::MAX);
        assert_eq!(engine.next_deadline(), Moment::default());
        engine.advance(at(3));
        assert_eq!((answers(&mut engine).len(), held(&engine), waiting(&engine)), (1, 2, 0));
    }

    /// Each of many readers finds its hold by its token, and what is written down brings all of them back.
    #[test]
    fn readers_are_recorded_and_restored() {
        let mut engine = engine();
        engine.record(LeaseStart::Grant);
        let conns: Vec<ConnId> = (0..100).map(|serial| engine.connect(serial)).collect();
        let tokens: Vec<Token> =
            conns.iter().map(|conn| granted(share(&mut engine, at(0), *conn)).token).collect();
        // Its fences go on where those of the first end.
        let mut second = Engine::new(CAPS, Counting(100), RandomState::new());
        for change in changes(&mut engine, at(0)) {
            let Record::Granted(hold) = change else { panic!("{change:?}") };
            assert_eq!(hold.claim, Claim::Shared);
            second.restore(at(0), &hold);
        }
        for engine in [&mut engine, &mut second] {
            let (reader, writer) = (engine.connect(200), engine.connect(201));
            granted(share(engine, at(1), reader));
            assert_eq!(acquire(engine, at(1), writer, "k", 1, 5), Verdict::Later);
            for token in tokens.iter().rev() {
                renew(engine, at(2), reader, "k", *token);
                release(engine, at(2), reader, "k", *token);
            }
            assert_eq!((held(engine), waiting(engine)), (1, 1));
            gone(engine, at(3), reader);
            assert!(matches!(answers(engine)[..], [Answer::Granted(_)]));
        }
    }

    /// Tells the engine that what changed is recorded, and returns the time that was left of each lease.
    fn recorded(engine: &mut Engine, now: Moment) -> Vec<u64> {
        let changed = changes(engine, now).into_iter().filter_map(|change| match change {
            Record::Granted(hold) | Record::Extended(hold) => Some(hold),
            Record::Ended(_) => None,
        });
        let changed: Vec<RecordedHold> = changed.collect();
        for hold in &changed {
            engine.start_lease(now, Key::new(&hold.key).unwrap(), hold.token);
        }
        changed.into_iter().map(|hold| hold.left_micros / 1_000_000).collect()
    }

    fn changes(engine: &mut Engine, now: Moment) -> Vec<Record> {
        let mut changes = Vec::new();
        engine.take_changes(now, &mut changes);
        changes
    }

    /// However long the record takes: the lease that a client is told of begins after it.
    #[test]
    fn a_lease_begins_when_it_is_recorded() {
        let mut engine = engine();
        engine.record(LeaseStart::Record);
        let (one, two) = (engine.connect(1), engine.connect(2));
        let grant = granted(acquire(&mut engine, at_second(0), one, "k", 1, 5));
        assert_eq!(acquire(&mut engine, at_second(9), two, "k", 1, 5), Verdict::Later);
        engine.advance(at_second(10));
        assert!(answers(&mut engine).is_empty(), "it was not recorded yet");
        assert_eq!(recorded(&mut engine, at_second(10)), [5]);
        // A renewal is not recorded when the lease before it would end.
        renew(&mut engine, at_second(14), one, "k", grant.token);
        engine.advance(at_second(16));
        assert!(answers(&mut engine).is_empty());
        assert_eq!(recorded(&mut engine, at_second(20)), [500]);
        engine.advance(at_second(519));
        assert!(answers(&mut engine).is_empty());
        engine.advance(at_second(520));
        assert!(matches!(answers(&mut engine)[..], [Answer::Granted(_)]));
    }

    /// A server that has taken the lead at second 0, with a hold of `k` that has 40 seconds left.
    fn restored() -> (Engine, RecordedHold) {
        let mut engine = engine();
        engine.record(LeaseStart::Record);
        let key = Key::new(b"k").unwrap();
        let (claim, ttl, token) = (Claim::LOCK, Ttl::new(40).unwrap(), Token::new(1, 7));
        let key = key.bytes().into();
        let hold = RecordedHold {
            key,
            claim,
            token,
            ttl,
            left_micros: 40_000_000,
            label: None,
            slot: None,
        };
        engine.restore(at_second(0), &hold);
        (engine, hold)
    }

    /// A server that takes the lead restores the time that was recorded last. So the time that is left of a hold that
    /// nobody renews is recorded, each time that a quarter is over.
    #[test]
    fn the_time_left_of_a_restored_hold_is_recorded() {
        let (mut engine, hold) = restored();
        for (now, left) in [(10, 30), (20, 20), (30, 10)] {
            engine.advance(at_second(now - 1));
            assert!(!engine.has_changes());
            engine.advance(at_second(now));
            assert_eq!(recorded(&mut engine, at_second(now)), [left]);
        }
        assert_eq!(held(&engine), 1);
        engine.advance(at_second(40));
        assert_eq!(held(&engine), 0);
        // One that is renewed needs no such record.
        engine.restore(at_second(50), &hold);
        let conn = engine.connect(1);
        renew(&mut engine, at_second(51), conn, "k", hold.token);
        recorded(&mut engine, at_second(51));
        engine.advance(at_second(300));
        assert!(!engine.has_changes() && held(&engine) == 1);
    }

    /// A note stops the lease until it is recorded. Between two notes a quarter of the lease passes all the same, so the
    /// hold of a dead client ends after four of them, however long each takes.
    #[test]
    fn slow_records_do_not_keep_a_restored_hold() {
        let (mut engine, _) = restored();
        let mut now = 0;
        for left in [30, 20, 10] {
            engine.advance(at_second(now + 9));
            assert!(!engine.has_changes(), "{left}");
            engine.advance(at_second(now + 10));
            // The record takes almost as long.
            now += 19;
            engine.advance(at_second(now));
            assert_eq!(recorded(&mut engine, at_second(now)), [left]);
        }
        engine.advance(at_second(now + 10));
        assert_eq!(held(&engine), 0);
    }

    /// Connections stay when the holds are restored from their record; nothing is released or answered.
    #[test]
    fn a_restart_keeps_connections_only() {
        let mut engine = engine();
        engine.record(LeaseStart::Record);
        let (one, two) = (engine.connect(1), engine.connect(2));
        let grant = granted(acquire(&mut engine, at(0), one, "k", 1, 5));
        assert_eq!(acquire(&mut engine, at(0), two, "k", 1, 5), Verdict::Later);
        engine.restart(Counting(10));
        assert_eq!((held(&engine), waiting(&engine), engine.has_changes()), (0, 0, false));
        assert!(answers(&mut engine).is_empty());
        gone(&mut engine, at(1), one);
        engine.cancel(at(1), two);
        let next = granted(acquire(&mut engine, at(1), two, "k", 1, 5));
        assert!(next.token.fence() > grant.token.fence());
        assert_ne!(engine.connect(3), two);
    }

    fn renew(engine: &mut Engine, now: Moment, conn: ConnId, key: &str, token: Token) {
        let key = Key::new(key.as_bytes()).unwrap();
        let request = Request::Renew { key, token: Some(token), ttl: Ttl::new(500) };
        let verdict = engine.ask(now, conn, request);
        assert_eq!(verdict, Verdict::Now(Answer::Renewed(Ttl::new(500).unwrap())));
    }

    fn gone(engine: &mut Engine, now: Moment, conn: ConnId) {
        engine.disconnect(now, conn, AutoRelease::On);
    }

    fn acquire_all(engine: &mut Engine, now: Moment, conn: ConnId, keys: &str) -> Answer {
        let keys = Keys::new(keys.as_bytes()).unwrap();
        let request = Request::AcquireAll { keys, ttl: Ttl::new(5) };
        let Verdict::Now(answer) = engine.ask(now, conn, request) else { panic!("it waits") };
        answer
    }

    /// A try for several keys that fails has taken no fence, told nobody anything and recorded nothing. Keys that are in use
    /// are the model's (`engine_model`).
    #[rstest]
    #[case::closed(|engine: &mut Engine| engine.close(at(9_000)), Answer::TimedOut)]
    #[case::draining(|engine: &mut Engine| engine.drain(at(0)), Answer::Refused(Refusal::Draining))]
    #[case::no_space(
        |engine: &mut Engine| engine.set_room(0),
        Answer::Refused(Refusal::NoSpace)
    )]
    #[case::too_many_holds(|engine: &mut Engine| {
        let conn = engine.connect(9);
        granted(acquire(engine, at(0), conn, "x", 1, 50));
        granted(acquire(engine, at(0), conn, "y", 1, 50));
    }, Answer::Refused(Refusal::MaxLocks))]
    fn all_or_none(#[case] prepare: fn(&mut Engine), #[case] want: Answer) {
        let mut engine = engine_with(|caps| caps.max_entries = 4);
        let conn = engine.connect(1);
        engine.record(LeaseStart::Grant);
        for key in [b"a", b"b", b"c"] {
            engine.watch(Key::new(key).unwrap(), true);
        }
        prepare(&mut engine);
        changes(&mut engine, at(0));
        while engine.take_effect().is_some() {}
        let before = (held(&engine), engine.counters().grants, known(&engine));
        assert_eq!(acquire_all(&mut engine, at(1), conn, "a b c"), want);
        assert_eq!((held(&engine), engine.counters().grants, known(&engine)), before);
        assert!(!engine.has_changes() && engine.take_effect().is_none());
        // The next fence is the next number.
        engine.set_room(usize::MAX);
        if let Verdict::Now(Answer::Granted(grant)) =
            acquire(&mut engine, at(9_000), conn, "a", 1, 5)
        {
            assert_eq!(grant.token.fence(), before.1 + 1);
        }
    }

    /// Each hold is one like any other: with a fence of its own, recorded, told of, and released by itself.
    #[test]
    fn locks_taken_by_one_request_are_separate_holds() {
        let mut engine = engine();
        let conn = engine.connect(1);
        engine.record(LeaseStart::Grant);
        engine.watch(Key::new(b"b").unwrap(), true);
        let Answer::All(grants) = acquire_all(&mut engine, at(0), conn, "b a") else { panic!() };
        let fences: Vec<u64> = grants.iter().map(|grant| grant.token.fence()).collect();
        assert_eq!(fences, [1, 2]);
        let recorded = changes(&mut engine, at(0)).into_iter().map(|change| {
            let Record::Granted(hold) = change else { panic!("{change:?}") };
            (hold.key.to_vec(), hold.token)
        });
        let recorded: Vec<_> = recorded.collect();
        let want = [(b"b".to_vec(), grants[0].token), (b"a".to_vec(), grants[1].token)];
        assert_eq!(recorded, want);
        assert_eq!(engine.take_effect(), Some(Effect::Moved(b"b"[..].into())));
        release(&mut engine, at(0), conn, "a", grants[1].token);
        assert_eq!(held(&engine), 1);
        gone(&mut engine, at(0), conn);
        assert_eq!((held(&engine), engine.counters().disconnect_releases), (0, 1));
    }

    fn label(name: &str, value: &str) -> Arc<Label> {
        Arc::new(Label::new(name, value))
    }

    /// How often [`Effect::Moved`] reported the key `k`, and no other key.
    fn moves(engine: &mut Engine) -> usize {
        let mut count = 0;
        while let Some(effect) = engine.take_effect() {
            if let Effect::Moved(name) = effect {
                assert_eq!(&*name, b"k");
                count += 1;
            }
        }
        count
    }

    /// What the holder of the only key `k` is called in the view of the key, and in its line of the list of all keys.
    fn holders_name(engine: &Engine, now: Moment) -> [String; 2] {
        let view = engine.view(now, Key::new(b"k").unwrap(), 0..1, 0..0).unwrap();
        let mut listed = String::new();
        let done = engine.look_over(now, &mut Cursor::default(), 100, |line| {
            listed.push_str(line.owner_name.unwrap_or_default());
            ControlFlow::Continue(())
        });
        assert_eq!(done, Progress::Done);
        let label = view.holders.into_iter().find_map(|holder| holder.label);
        [label.map(|label| label.name.to_string()).unwrap_or_default(), listed]
    }

    /// A hold that has no connection keeps the name that it was granted to; one that has a connection has its name.
    #[test]
    fn a_hold_whose_connection_has_ended_keeps_its_name() {
        let mut engine = engine();
        let conn = engine.connect(1);
        engine.introduce(conn, &label("nightly", ""));
        let grant = granted(acquire(&mut engine, at(0), conn, "k", 1, 33));
        assert_eq!(holders_name(&engine, at(0)), ["nightly", "nightly"]);
        engine.disconnect(at(1), conn, AutoRelease::Off);
        assert_eq!(holders_name(&engine, at(1)), ["nightly", "nightly"]);
        let unnamed = engine.connect(2);
        renew(&mut engine, at(2), unnamed, "k", grant.token);
        renew(&mut engine, at(3), unnamed, "k", grant.token);
        assert_eq!(holders_name(&engine, at(3)), ["", ""]);
    }

    fn seen(engine: &Engine) -> Option<(u32, u64, String)> {
        let sight = engine.sight(at(0), Key::new(b"k").unwrap())?;
        let value = sight.label.map(|label| label.value.to_string()).unwrap_or_default();
        Some((sight.holders, sight.fence, value))
    }

    /// An engine in which somebody watches the key `k`, and two connections.
    fn watched() -> (Engine, ConnId, ConnId) {
        let mut engine = engine();
        let (one, two) = (engine.connect(1), engine.connect(2));
        engine.watch(Key::new(b"k").unwrap(), true);
        (engine, one, two)
    }

    #[test]
    fn a_watched_key_tells_of_each_change_and_another_one_of_none() {
        let (mut engine, one, two) = watched();
        engine.introduce(one, &label("one", "10.0.0.1:80"));
        assert_eq!(seen(&engine), None);
        granted(acquire(&mut engine, at(0), one, "other", 1, 33));
        assert_eq!(moves(&mut engine), 0);
        let first = granted(acquire(&mut engine, at(0), one, "k", 1, 33)).token;
        assert_eq!(moves(&mut engine), 1);
        assert_eq!(seen(&engine), Some((1, first.fence(), "10.0.0.1:80".to_owned())));
        assert_eq!(acquire(&mut engine, at(0), two, "k", 1, 33), Verdict::Later);
        assert_eq!(moves(&mut engine), 0);
        // The end of the hold, and the grant to the next client.
        release(&mut engine, at(0), one, "k", first);
        assert!(moves(&mut engine) >= 1);
        let (holders, fence, value) = seen(&engine).unwrap();
        assert!(holders == 1 && fence > first.fence() && value.is_empty());
        gone(&mut engine, at(0), two);
        assert_eq!((moves(&mut engine), seen(&engine)), (1, None));
        engine.watch(Key::new(b"k").unwrap(), false);
        granted(acquire(&mut engine, at(0), one, "k", 1, 33));
        assert_eq!(moves(&mut engine), 0);
    }

    #[test]
    fn a_lease_that_runs_out_is_a_change() {
        let (mut engine, one, _) = watched();
        granted(acquire(&mut engine, at(0), one, "k", 1, 33));
        assert_eq!(moves(&mut engine), 1);
        engine.advance(at_second(33));
        assert_eq!((moves(&mut engine), seen(&engine)), (1, None));
    }

    /// A renewal changes nothing that is reported, whatever the label of its connection is.
    #[test]
    fn a_hold_keeps_the_label_of_its_grant() {
        let (mut engine, one, two) = watched();
        engine.introduce(one, &label("one", "old"));
        engine.introduce(two, &label("two", "new"));
        let token = granted(acquire(&mut engine, at(0), one, "k", 1, 33)).token;
        assert_eq!(moves(&mut engine), 1);
        engine.introduce(one, &label("one", "later"));
        for conn in [one, two] {
            renew(&mut engine, at(0), conn, "k", token);
        }
        assert_eq!((moves(&mut engine), seen(&engine).unwrap().2.as_str()), (0, "old"));
    }

    #[test]
    fn a_semaphore_counts_its_holders() {
        let (mut engine, one, _) = watched();
        for _ in 0..2 {
            granted(acquire(&mut engine, at(0), one, "k", 3, 33));
        }
        assert_eq!((moves(&mut engine), seen(&engine).unwrap().0), (2, 2));
    }

    #[test]
    fn a_view_names_holders_and_waiters_with_their_times() {
        const SECOND: u64 = 1_000_000;
        let mut engine = engine();
        let conns = [10, 20, 30].map(|serial| engine.connect(serial));
        for (conn, second) in conns.iter().zip(1..=3) {
            acquire(&mut engine, at_second(second), *conn, "busy", 1, 33);
        }
        let busy = Key::new(b"busy").unwrap();
        let view = engine.view(at_second(4), busy, 0..10, 0..10).unwrap();
        assert_eq!((view.name.as_slice(), view.limit), (b"busy".as_slice(), 1));
        assert_eq!((view.held, view.waiters), (1, 2));
        let [holder] = &view.holders[..] else { panic!("{view:?}") };
        assert_eq!((holder.serial, holder.since_micros), (10, 3 * SECOND));
        assert_eq!(holder.left_micros, Some(30 * SECOND));
        let waiting: Vec<_> = view.waiting.iter().map(|p| (p.serial, p.since_micros)).collect();
        assert_eq!(waiting, [(20, 2 * SECOND), (30, SECOND)]);
    }

    #[test]
    fn an_idle_or_unknown_key_is_not_viewed() {
        let mut engine = engine();
        let (conn, key) = (engine.connect(1), Key::new(b"k").unwrap());
        assert_eq!(engine.view(at(0), key, 0..10, 0..10), None);
        let grant = granted(acquire(&mut engine, at(0), conn, "k", 1, 33));
        assert!(engine.view(at(0), key, 0..10, 0..10).is_some());
        release(&mut engine, at(0), conn, "k", grant.token);
        assert_eq!(engine.view(at(0), key, 0..10, 0..10), None);
    }

    /// A grant, a renewal and the end of a hold, and a second engine that continues with the record.
    #[test]
    fn an_engine_continues_from_the_records_of_another_one() {
        let mut first = engine();
        first.record(LeaseStart::Grant);
        let conn = first.connect(1);
        first.introduce(conn, &label("al", "1"));
        let grant = granted(share(&mut first, at(0), conn));
        let [Record::Granted(recorded)] = &changes(&mut first, at(0))[..] else { panic!() };
        assert_eq!((recorded.token, recorded.left_micros), (grant.token, 33_000_000));

        renew(&mut first, at(5), conn, "k", grant.token);
        let [Record::Extended(kept)] = &changes(&mut first, at(1005))[..] else { panic!() };
        assert_eq!((kept.token, kept.left_micros), (grant.token, 499_000_000));

        let (mut second, key) = (engine(), Key::new(b"k").unwrap());
        let mut recovered = Recovered::default();
        recovered.holds = vec![kept.clone()];
        recovered.restore(at(7), &mut second);
        let view = second.view(at(7), key, 0..9, 0..9).unwrap();
        assert_eq!((view.held, view.holders[0].left_micros), (1, Some(kept.left_micros)));
        assert!(view.holders[0].is_reader);
        assert_eq!(second.sight(at(7), key).unwrap().label.as_deref(), kept.label.as_ref());
        assert_eq!(holders_name(&second, at(7)), ["al", "al"]);
        let other = second.connect(1);
        renew(&mut second, at(7), other, "k", grant.token);

        release(&mut first, at(1009), conn, "k", grant.token);
        assert_eq!(changes(&mut first, at(1009)), [Record::Ended(grant.token)]);
    }

    /// The slot of each holder, the earliest first.
    fn slots(engine: &Engine, now: Moment) -> Vec<Option<u32>> {
        let view = engine.view(now, Key::new(b"k").unwrap(), 0..99, 0..0).unwrap();
        view.holders.iter().rev().map(|holder| holder.slot).collect()
    }

    fn slot_of(answer: &Answer) -> Option<u32> {
        answer.grants()[0].slot
    }

    #[test]
    fn a_grant_gets_the_lowest_slot_that_is_free() {
        let (mut engine, now) = (engine(), at(0));
        let conn = engine.connect(1);
        let take = |engine: &mut Engine| granted(acquire(engine, now, conn, "k", 4, 33));
        let all: Vec<Grant> = (0..4).map(|_| take(&mut engine)).collect();
        assert_eq!(all.iter().map(|it| it.slot).collect::<Vec<_>>(), [0, 1, 2, 3].map(Some));
        release(&mut engine, now, conn, "k", all[2].token);
        release(&mut engine, now, conn, "k", all[0].token);
        assert_eq!(slots(&engine, now), [1, 3].map(Some));
        assert_eq!([(); 2].map(|()| take(&mut engine).slot), [0, 2].map(Some));
        // Who waited gets the one that became free.
        let waiter = engine.connect(2);
        assert_eq!(acquire(&mut engine, now, waiter, "k", 4, 33), Verdict::Later);
        release(&mut engine, now, conn, "k", all[3].token);
        let answers = answers(&mut engine);
        assert_eq!(answers.iter().map(slot_of).collect::<Vec<_>>(), [Some(3)]);
    }

    /// A lock has only one slot, and readers share it.
    #[test]
    fn a_lock_has_no_slot() {
        let mut engine = engine();
        let conn = engine.connect(1);
        assert_eq!(granted(share(&mut engine, at(0), conn)).slot, None);
        assert_eq!(granted(acquire(&mut engine, at(0), conn, "other", 1, 33)).slot, None);
        assert_eq!(slots(&engine, at(0)), [None]);
    }

    /// Its connection has ended, another one has renewed it, and another holder has come and gone.
    #[test]
    fn a_slot_stays_as_long_as_its_hold() {
        let mut engine = engine();
        let [one, two] = [1, 2].map(|serial| engine.connect(serial));
        let first = granted(acquire(&mut engine, at(0), one, "k", 3, 5));
        let second = granted(acquire(&mut engine, at(0), one, "k", 3, 5));
        engine.disconnect(at(1), one, AutoRelease::Off);
        release(&mut engine, at(2), two, "k", first.token);
        renew(&mut engine, at(3), two, "k", second.token);
        assert_eq!(slots(&engine, at(3)), [Some(1)]);
        assert_eq!(granted(acquire(&mut engine, at(3), two, "k", 3, 5)).slot, Some(0));
        // The lease of the first one is over; the slot of the second one is not.
        engine.advance(at(5004));
        assert_eq!(slots(&engine, at(5004)), [Some(1)]);
    }

    /// In each order of the record. Holds from before the slots get those that are left.
    #[rstest]
    #[case::known([Some(2), Some(0)], [Some(2), Some(0)], [1, 3])]
    #[case::one_from_before([None, Some(0)], [Some(1), Some(0)], [2, 3])]
    #[case::two_from_before([None, None], [Some(0), Some(1)], [2, 3])]
    // No server writes these.
    #[case::twice([Some(1), Some(1)], [Some(1), Some(0)], [2, 3])]
    #[case::greatest([Some(u32::MAX), None], [Some(u32::MAX), Some(0)], [1, 2])]
    fn slots_are_restored(
        #[case] recorded: [Option<u32>; 2],
        #[case] want: [Option<u32>; 2],
        #[case] next: [u32; 2],
        #[values(false, true)] reversed: bool,
    ) {
        let (_, hold) = restored();
        let claim = Claim::Slot(Limit::new(4).unwrap());
        let token = |number| Token::new(number, number);
        let hold =
            |(number, slot)| RecordedHold { claim, token: token(number), slot, ..hold.clone() };
        let mut recovered = Recovered::default();
        recovered.holds = (1..).zip(recorded).map(hold).collect();
        // Where both say the same, the first one counts.
        if reversed && recorded[0] != recorded[1] {
            recovered.holds.reverse();
        }
        let mut engine = Engine::new(CAPS, Counting(9), RandomState::new());
        engine.record(LeaseStart::Grant);
        recovered.restore(at(0), &mut engine);
        assert_eq!(slots(&engine, at(0)), want);
        let conn = engine.connect(1);
        let grants = next.map(|_| granted(acquire(&mut engine, at(0), conn, "k", 4, 33)));
        assert_eq!(grants.map(|grant| grant.slot), next.map(Some));
        let recorded = changes(&mut engine, at(0));
        let kept = recorded.iter().map(|record| match record {
            Record::Granted(kept) => kept.slot,
            Record::Extended(_) | Record::Ended(_) => panic!("{record:?}"),
        });
        assert_eq!(kept.collect::<Vec<_>>(), next.map(Some));
        // From now on it is in the record.
        renew(&mut engine, at(1), conn, "k", token(1));
        let [Record::Extended(kept)] = &changes(&mut engine, at(1))[..] else { panic!() };
        assert_eq!(kept.slot, want[0]);
    }

    #[test]
    fn a_name_that_is_no_key_is_no_hold() {
        let (mut engine, hold) = restored();
        engine.restore(at(0), &RecordedHold { key: b"two words".as_slice().into(), ..hold });
        assert_eq!(held(&engine), 1);
    }
}
