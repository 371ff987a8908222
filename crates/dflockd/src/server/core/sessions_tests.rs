//! Sessions with time moved by hand, and requests whose clients leave at any moment.

use super::*;
use crate::sample::take;
use crate::server::Visit;
use crate::server::core::Shared;
use leases::{Answer, Claim, Key, Request, Token};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

const AUTO: AutoRelease = AutoRelease::On;

const fn at(seconds: u64) -> Moment {
    Moment::from_micros(seconds * 1_000_000)
}

/// A server whose sessions may be silent for 20 seconds.
fn shared() -> Shared {
    let mut settings = Settings::default();
    settings.http.session_idle = Seconds::new(10).unwrap();
    Shared::new(settings)
}

fn open(shared: &Shared, now: Moment) -> SessionId {
    shared.core().open_session(&shared.settings, now, None).unwrap()
}

fn is_there(shared: &Shared, id: SessionId) -> bool {
    shared.core().sessions.all.contains_key(&id)
}

#[test]
fn numbers_of_sessions_are_text_of_one_form() {
    let id = SessionId(0x00ab_u128 << 112 | 7);
    assert_eq!(id.to_string(), "00ab0000000000000000000000000007");
    assert!(SessionId::parse(id.to_string().as_bytes()) == Some(id));
    let long = "0".repeat(33);
    for wrong in ["", "7", "00AB0000000000000000000000000007", &long] {
        assert!(SessionId::parse(wrong.as_bytes()).is_none(), "{wrong}");
    }
}

#[test]
fn a_session_ends_when_it_was_silent_for_too_long() {
    let shared = shared();
    let [silent, asking, busy] = [(); 3].map(|()| open(&shared, at(0)));
    let end_idle = |now| shared.core().end_idle_sessions(now, AUTO);
    shared.core().sessions.begin_request(asking).unwrap();
    shared.core().sessions.end_request(at(13), asking);
    shared.core().sessions.begin_request(busy).unwrap();
    assert_eq!(shared.core().next_deadline(), at(20));
    assert!(!end_idle(at(19)));
    assert!(is_there(&shared, silent));
    assert!(end_idle(at(20)));
    assert!(!is_there(&shared, silent));
    // From the end of its last request.
    assert!(!end_idle(at(32)));
    assert!(end_idle(at(33)));
    assert!(!is_there(&shared, asking) && is_there(&shared, busy));
    // Never while a request is open, and then from its end.
    assert!(!end_idle(at(1000)));
    shared.core().sessions.end_request(at(1001), busy);
    assert!(!end_idle(at(1020)) && end_idle(at(1021)));
    assert_eq!(shared.core().connections.len(), 0);
    assert!(shared.core().sessions.due.is_empty());
}

/// However many are silent, others have their turn after a few of them.
#[test]
fn silent_sessions_end_in_small_steps() {
    let shared = shared();
    for _ in 0..1000 {
        open(&shared, at(0));
    }
    let mut turns = 0;
    while shared.core().end_idle_sessions(at(20), AUTO) {
        turns += 1;
        assert_eq!(shared.core().sessions.len(), 1000_usize.saturating_sub(turns * ENDED_PER_TURN));
    }
    assert_eq!(turns, 1000_usize.div_ceil(ENDED_PER_TURN));
}

#[test]
fn a_session_takes_its_holds_with_it() {
    let shared = shared();
    let [id, other] = [(); 2].map(|()| open(&shared, at(0)));
    let mut core = shared.core();
    let (conn, _) = core.sessions.begin_request(id).unwrap();
    core.ask(at(0), conn, take(b"k", 600)).unwrap();
    assert_eq!(core.engine.census().locks.holders, 1);
    assert!(core.end_session(at(1), id, AUTO) && !core.end_session(at(1), id, AUTO));
    assert_eq!((core.engine.census().locks.holders, core.connections.len()), (0, 1));
    // A request that is still open does no harm.
    core.sessions.end_request(at(2), id);
    core.end_term();
    assert!(core.sessions.all.is_empty() && core.connections.len() == 0);
    assert!(core.sessions.begin_request(other).is_none());
}

/// Polls a request once, of a client that has left or not.
fn poll<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> Poll<T> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

fn acquire(key: &'static str, seconds: u64) -> Request<'static> {
    let timeout = Seconds::new(seconds).unwrap();
    let key = Key::new(key.as_bytes()).unwrap();
    Request::Acquire { key, claim: Claim::LOCK, timeout, ttl: None }
}

/// A holder, and a session whose request waits for the same lock.
fn contended(shared: &Shared) -> (ConnId, Token, SessionId) {
    let (holder, _) = shared.core().admit(&shared.settings, None).unwrap();
    let verdict = shared.core().ask(shared.now(), holder, take(b"k", 600)).unwrap();
    let leases::Verdict::Now(Answer::Granted(grant)) = verdict else { panic!("{verdict:?}") };
    (holder, grant.token, open(shared, shared.now()))
}

/// Its client leaves, or its task ends, before it waits, while it waits, or when it has been granted the lock that the
/// client was not told of.
#[rstest::rstest]
#[case::in_the_line(false)]
#[case::granted_meanwhile(true)]
fn a_request_that_is_dropped_leaves_nothing(#[case] is_granted: bool) {
    let shared = shared();
    let (holder, token, id) = contended(&shared);
    {
        let visit = Visit::of(&shared, id).unwrap();
        let mut stays = |_: &mut Context<'_>| Poll::Pending;
        let mut asked = pin!(visit.ask(acquire("k", 60), false, &mut stays));
        assert!(poll(asked.as_mut()).is_pending());
        assert_eq!(shared.core().engine.census().locks.waiters, 1);
        if is_granted {
            let key = Key::new(b"k").unwrap();
            let release = Request::Release { key, token: Some(token) };
            shared.core().ask(shared.now(), holder, release).unwrap();
            assert_eq!(shared.core().engine.census().locks.waiters, 0);
        }
    }
    let census = shared.core().engine.census().locks;
    assert_eq!((census.holders, census.waiters), (usize::from(!is_granted), 0));
    // The session goes on.
    let visit = Visit::of(&shared, id).unwrap();
    let mut stays = |_: &mut Context<'_>| Poll::Pending;
    let answer = poll(pin!(visit.ask(acquire("j", 0), false, &mut stays)));
    assert!(matches!(answer, Poll::Ready(Ok(Answer::Granted(_)))), "{answer:?}");
}

/// The client has closed its connection while its free lock was granted.
#[test]
fn a_client_that_has_left_is_granted_nothing() {
    let shared = shared();
    let id = open(&shared, shared.now());
    let visit = Visit::of(&shared, id).unwrap();
    let mut left = |_: &mut Context<'_>| Poll::Ready(crate::server::Parting::Left);
    let answer = poll(pin!(visit.ask(acquire("k", 0), false, &mut left)));
    assert!(matches!(answer, Poll::Ready(Err(crate::server::Denied::Left))), "{answer:?}");
    assert_eq!(shared.core().engine.census().locks.holders, 0);
}

/// What a client knows from `e` is not taken back because it leaves during `w`: it may use it.
#[test]
fn a_hold_that_was_told_stays() {
    let shared = shared();
    let id = open(&shared, shared.now());
    let visit = Visit::of(&shared, id).unwrap();
    let (key, timeout) = (Key::new(b"k").unwrap(), Seconds::ZERO);
    let mut stays = |_: &mut Context<'_>| Poll::Pending;
    let enqueue = Request::Enqueue { key, claim: Claim::LOCK, ttl: None };
    let answer = poll(pin!(visit.ask(enqueue, false, &mut stays)));
    assert!(matches!(answer, Poll::Ready(Ok(Answer::Acquired(_)))), "{answer:?}");
    let mut left = |_: &mut Context<'_>| Poll::Ready(crate::server::Parting::Left);
    let answer = poll(pin!(visit.ask(Request::Wait { key, timeout }, false, &mut left)));
    assert!(answer.is_ready());
    assert_eq!(shared.core().engine.census().locks.holders, 1);
}
