//! Limits the share of the server's thread that lists of keys, holders and waiters may take, over TCP and over HTTP. All
//! code that reads many of them does so in small steps, through one gate for all connections: one step at a time, and
//! after each step the locks get the thread for four times as long. So lists get a fifth of it at most, however many
//! clients ask.

use std::time::Duration;
use tokio::sync::Mutex;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until};

/// The total time for each unit of time spent, including that unit.
const SHARE: u32 = 5;
/// How far steps may be ahead of the pace before they are delayed: as much as a timer can measure.
const BURST: Duration = Duration::from_millis(1);

/// The gate.
#[derive(Debug)]
pub(crate) struct Pace {
    /// When the time spent so far is made up for.
    even: Mutex<Instant>,
}

impl Pace {
    pub(crate) fn new() -> Self {
        Self { even: Mutex::new(Instant::now()) }
    }

    /// Does one small step when its time has come, and lets others be served afterwards.
    pub(crate) async fn step<T>(&self, step: impl FnOnce() -> T) -> T {
        let mut even = self.even.lock().await;
        if *even > Instant::now() + BURST {
            sleep_until(*even).await;
        }
        let start = Instant::now();
        let result = step();
        let rest = start.elapsed().saturating_mul(SHARE);
        *even = (*even).max(start).checked_add(rest).unwrap_or(start);
        drop(even);
        yield_now().await;
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn run<T>(test: impl Future<Output = T>) -> T {
        let builder = &mut tokio::runtime::Builder::new_current_thread();
        builder.enable_time().build().unwrap().block_on(test)
    }

    /// A step that takes at least this much time.
    fn spend(time: Duration) {
        let start = Instant::now();
        while start.elapsed() < time {}
    }

    #[test]
    fn many_together_get_no_more_than_their_share() {
        const STEP: Duration = Duration::from_millis(2);
        const STEPS: u32 = 20;
        let start = Instant::now();
        run(async {
            let pace = Arc::new(Pace::new());
            let tasks: Vec<_> = (0..STEPS)
                .map(|_| {
                    let pace = Arc::clone(&pace);
                    tokio::spawn(async move { pace.step(|| spend(STEP)).await })
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
        });
        // The last step does not wait for the pause after it.
        assert!(start.elapsed() >= STEP * SHARE * (STEPS - 1), "{:?}", start.elapsed());
    }
}
