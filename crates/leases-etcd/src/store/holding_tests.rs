//! A renewal whose answer is under way when the lease before it ends.

use super::super::Engine;
use super::super::both_stores::{Clock, front};
use super::super::stand_in::Etcd;
use crate::sample::{CAPS, take};
use leases::{Answer, ConnId, Effect, Key, Progress, Request, Ttl, Verdict};
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
    fn new() -> Self {
        let (clock, etcd) = (Arc::new(Clock::default()), Etcd::default());
        let mut front = front(CAPS, &clock, &etcd);
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

    /// Time goes on, and the front-end does what is due.
    async fn pass(&mut self, millis: u64) {
        self.clock.0.fetch_add(millis, Ordering::Relaxed);
        assert_eq!(self.front.advance(self.front.inner.now(), 1000), Progress::Done);
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
    let mut scene = Scene::new();
    scene.ask(take(KEY, old_s));
    let Some(Answer::Granted(grant)) = scene.answer().await else { panic!() };
    let name = scene.front.inner.names.ticket(KEY, grant.token.salt());
    scene.pass(old_s * 1000 - 100).await;

    let arrive = scene.etcd.delay_next_answer();
    let (key, token) = (Key::new(KEY).unwrap(), Some(grant.token));
    scene.ask(Request::Renew { key, token, ttl: Ttl::new(new_s) });
    assert_eq!(scene.answer().await, None);
    // The old lease ends.
    scene.pass(200).await;
    assert!(scene.etcd.has(&name));
    arrive.send(()).unwrap();
    assert_eq!(scene.answer().await, Some(Answer::Renewed(Ttl::new(new_s).unwrap())));

    // From when the answer arrived.
    scene.pass(new_s * 1000 - 1).await;
    assert!(scene.etcd.has(&name));
    scene.pass(1).await;
    assert!(!scene.etcd.has(&name));
}
