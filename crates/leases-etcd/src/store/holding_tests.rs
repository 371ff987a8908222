//! A renewal whose answer is under way when the lease or the grace before it ends.

use super::super::Engine;
use super::super::both_stores::{Clock, front};
use super::super::stand_in::Etcd;
use crate::sample::{CAPS, take};
use leases::{
    Answer, AutoRelease, Caps, ConnId, Effect, Key, Progress, Request, Seconds, Token, Ttl, Verdict,
};
use rstest::rstest;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const KEY: &[u8] = b"k";
/// More turns of the loop than anything takes.
const TURNS: usize = 200;

struct Scene {
    clock: Arc<Clock>,
    etcd: Etcd,
    front: Engine,
    id: ConnId,
}

impl Scene {
    fn new(grace_s: u64) -> Self {
        let (clock, etcd) = (Arc::new(Clock::default()), Etcd::default());
        let caps = Caps { disconnect_grace: Seconds::new(grace_s).unwrap(), ..CAPS };
        let mut front = front(caps, &clock, &etcd);
        let id = front.connect(1);
        Self { clock, etcd, front, id }
    }

    fn ask(&mut self, request: Request<'_>) {
        assert_eq!(self.front.ask(self.front.inner.now(), self.id, request), Verdict::Later);
    }

    /// Lets all that is under way come to its end, or to where it waits.
    async fn answer(&mut self) -> Option<Answer> {
        let mut found = None;
        for _ in 0..TURNS {
            tokio::task::yield_now().await;
            while let Some(effect) = self.front.take_effect() {
                if let Effect::Answer(_, answer) = effect {
                    found = Some(answer);
                }
            }
        }
        found
    }

    async fn take(&mut self, ttl_s: u64) -> Token {
        self.ask(take(KEY, ttl_s));
        let Some(Answer::Granted(grant)) = self.answer().await else { panic!() };
        grant.token
    }

    fn renew(&mut self, token: Token, ttl_s: u64) {
        let (key, token) = (Key::new(KEY).unwrap(), Some(token));
        self.ask(Request::Renew { key, token, ttl: Ttl::new(ttl_s) });
    }

    /// What was to end the hold within the next 200 ms comes before the answer to its renewal.
    async fn renew_across_an_end(&mut self, token: Token, ttl_s: u64) {
        let arrive = self.etcd.delay_next_answer();
        self.renew(token, ttl_s);
        assert_eq!(self.answer().await, None);
        self.pass(200).await;
        assert!(self.is_held(token));
        arrive.send(()).unwrap();
        assert_eq!(self.answer().await, Some(Answer::Renewed(Ttl::new(ttl_s).unwrap())));
    }

    /// Whether etcd has the hold.
    fn is_held(&self, token: Token) -> bool {
        self.etcd.has(&self.front.inner.names.ticket(KEY, token.salt()))
    }

    /// Another connection follows.
    async fn reconnect(&mut self) {
        let (now, old) = (self.front.inner.now(), self.id);
        while self.front.disconnect(now, old, AutoRelease::On) != Progress::Done {
            assert_eq!(self.answer().await, None);
        }
        self.id = self.front.connect(2);
    }

    /// Time goes on, and the front-end does what is due.
    async fn pass(&mut self, millis: u64) {
        self.clock.0.fetch_add(millis, Ordering::Relaxed);
        self.front.advance(self.front.inner.now());
        assert_eq!(self.answer().await, None);
    }
}

/// etcd has it from the moment when it is written down, not from the answer. So the end of the old lease finds a
/// ticket that was changed by this front-end itself, and must not end the new lease.
#[rstest]
#[case::longer(1, 6)]
#[case::as_long(2, 2)]
#[case::shorter(3, 2)]
#[tokio::test]
async fn a_renewal_crosses_the_end_of_the_lease(#[case] old_s: u64, #[case] new_s: u64) {
    let mut scene = Scene::new(0);
    let token = scene.take(old_s).await;
    scene.pass(old_s * 1000 - 100).await;

    scene.renew_across_an_end(token, new_s).await;

    // From when the answer arrived.
    scene.pass(new_s * 1000 - 1).await;
    assert!(scene.is_held(token));
    scene.pass(1).await;
    assert!(!scene.is_held(token));
}

#[tokio::test]
async fn a_renewal_crosses_the_end_of_the_grace() {
    let mut scene = Scene::new(2);
    let token = scene.take(60).await;
    scene.reconnect().await;
    scene.pass(1900).await;

    scene.renew_across_an_end(token, 5).await;
    scene.pass(4999).await;
    assert!(scene.is_held(token));
    scene.pass(1).await;
    assert!(!scene.is_held(token));
}

/// Both connections are known to the same front-end, and both their answers are under way.
#[tokio::test]
async fn a_renewal_crosses_the_end_of_the_owner() {
    let mut scene = Scene::new(2);
    let token = scene.take(2).await;
    let owner = scene.id;
    scene.id = scene.front.connect(2);

    let arrive = scene.etcd.delay_next_answer();
    scene.renew(token, 5);
    assert_eq!(scene.answer().await, None);
    let now = scene.front.inner.now();
    while scene.front.disconnect(now, owner, AutoRelease::On) != Progress::Done {
        assert_eq!(scene.answer().await, None);
    }
    arrive.send(()).unwrap();
    assert_eq!(scene.answer().await, Some(Answer::Renewed(Ttl::new(5).unwrap())));
    // It has the hold from its owner, without a grace, and for its own lease.
    scene.pass(4999).await;
    assert!(scene.is_held(token));
    scene.pass(1).await;
    assert!(!scene.is_held(token));
}
