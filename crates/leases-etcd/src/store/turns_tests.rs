//! What becomes of a ticket whose turn comes to nothing, without etcd: it is not reached here.

use super::super::keys::{Front, Party, Share, Stage, Ticket};
use super::super::lines::Line;
use super::super::mine::Ends;
use super::super::mirror::Spot;
use super::super::txn::Session;
use super::super::{Engine, Settings};
use super::*;
use crate::sample::CAPS;
use leases::{AutoRelease, ConnId, Limit, Progress};
use rstest::rstest;
use std::time::Duration;
use tokio::sync::oneshot::{self, error::TryRecvError};

const KEY: &[u8] = b"k";
/// The ticket that waits, and when it was made.
const NONCE: u64 = 7;
const CREATE: i64 = 20;
/// The holder before it.
const HOLDER: u64 = 1;
const SESSION: Session = Session { lease: 1, revision: 1 };

struct Scene {
    engine: Engine,
    inner: Arc<Inner>,
    id: ConnId,
    waiter: oneshot::Receiver<End>,
}

impl Scene {
    /// One of ours waits behind a holder whose end is being written down together with its turn.
    fn new() -> Self {
        let settings = Settings { members: Vec::new(), prefix: String::new(), user: None };
        let mut engine = Engine::new(settings, CAPS);
        let inner = Arc::clone(&engine.inner);
        let id = engine.connect(1);
        let (wake, waiter) = oneshot::channel();
        {
            let mut state = inner.state();
            state.session = Some(SESSION);
            let mut line = Line::new(2, Limit::ONE);
            let spot = |nonce, create| Spot::read(nonce, create, b"w", Moment::default());
            line.mirror.read(CREATE, [spot(HOLDER, 10), spot(NONCE, CREATE)]);
            line.own.insert(CREATE, NONCE);
            state.lines.insert(KEY.into(), line);
            let conn = state.seats.conn(id).unwrap();
            (conn.busy, conn.blocked) = (true, Some(NONCE));
            state.keep(waiting(inner.front, id, wake));
            assert!(inner.next_in_line(&mut state, KEY, HOLDER).is_some());
        }
        Self { engine, inner, id, waiter }
    }

    fn is_known(&self) -> bool {
        self.inner.state().tickets.contains_key(NONCE)
    }
}

fn waiting(front: Front, conn: ConnId, wake: oneshot::Sender<End>) -> Mine {
    Mine {
        key: KEY.into(),
        nonce: NONCE,
        create: CREATE,
        revision: CREATE,
        ticket: Ticket::new(
            Stage::Waiting,
            Share::Alone,
            Party { front, serial: 1 },
            CAPS.default_ttl,
        ),
        place: Place::Waiting,
        conn,
        since: Moment::default(),
        ends: Ends::NEVER,
        wake: Some(wake),
        unwanted: false,
    }
}

/// What happens while its turn is being written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meanwhile {
    Nothing,
    SessionLost,
    /// And a line of the same key begins in the next session.
    NewLine,
    Draining,
    PeerGone,
}

/// Nobody can end its wait then. So when its turn comes to nothing it is told, and not left in a
/// queue that nobody looks at.
#[rstest]
#[case(Meanwhile::Nothing, None)]
#[case(Meanwhile::SessionLost, Some(Refusal::Unavailable))]
#[case(Meanwhile::NewLine, Some(Refusal::Unavailable))]
#[case(Meanwhile::Draining, Some(Refusal::Draining))]
#[case(Meanwhile::PeerGone, Some(Refusal::Draining))]
#[tokio::test]
async fn a_turn_that_fails_tells_the_waiter_why(
    #[case] meanwhile: Meanwhile,
    #[case] told: Option<Refusal>,
) {
    let mut scene = Scene::new();
    let now = Moment::default();
    match meanwhile {
        Meanwhile::Nothing => {}
        Meanwhile::SessionLost => scene.inner.lose(SESSION),
        Meanwhile::NewLine => {
            scene.inner.lose(SESSION);
            scene.inner.state().lines.insert(KEY.into(), Line::new(3, Limit::ONE));
        }
        Meanwhile::Draining => scene.engine.drain(now),
        Meanwhile::PeerGone => {
            scene.engine.cancel(now, scene.id);
            let left = scene.engine.disconnect(now, scene.id, AutoRelease::On);
            assert_eq!(left, Progress::Later);
        }
    }
    assert!(matches!(scene.waiter.try_recv(), Err(TryRecvError::Empty)));
    scene.inner.not_yet(NONCE);
    match told {
        None => {
            assert!(matches!(scene.waiter.try_recv(), Err(TryRecvError::Empty)));
            assert_eq!(scene.inner.state().tickets.get(NONCE).unwrap().place, Place::Waiting);
        }
        Some(told) => {
            let end = scene.waiter.try_recv();
            assert!(matches!(end, Ok(End::Refused(refusal)) if refusal == told), "{end:?}");
            assert!(!scene.is_known());
        }
    }
}

/// Its patience ends while it has its turn, which then comes to nothing.
#[tokio::test]
async fn patience_ends_during_a_turn() {
    let Scene { engine, inner, waiter, .. } = Scene::new();
    let waiting = Arc::clone(&inner);
    let task =
        tokio::spawn(async move { waiting.wait_turn(NONCE, waiter, Moment::default()).await });
    // It has found out that its time is over, and that it has its turn.
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert!(!task.is_finished());
    inner.not_yet(NONCE);
    let left_the_queue = async {
        while inner.state().tickets.contains_key(NONCE) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), left_the_queue).await.expect("it gives up");
    drop(engine);
}

/// A session that is lost takes the lines along: what is left in the tables has a wait that ended.
#[tokio::test]
async fn a_lost_session_ends_the_waits_of_its_lines() {
    let mut scene = Scene::new();
    scene.inner.not_yet(NONCE);
    scene.inner.lose(SESSION);
    let end = scene.waiter.try_recv();
    assert!(matches!(end, Ok(End::Refused(Refusal::Unavailable))), "{end:?}");
    assert!(!scene.is_known());
}
