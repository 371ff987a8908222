//! The hidden runtime, and how a thread waits for a future of the asynchronous client.
//!
//! One thread of the runtime serves sockets, timers and the tasks that keep leases. The calling thread polls its own
//! future, so that callbacks run on the thread of their caller, and so that a call inside another runtime works, too.

use crate::error::ClientError;
use std::future::pending;
use std::io;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use tokio::runtime::{Builder, Handle};
use tokio::task::unconstrained;

/// The runtime of the process with this number. A child process that was forked has no thread for it, and gets one of
/// its own.
static RUNTIME: Mutex<Option<(u32, Handle)>> = Mutex::new(None);

fn runtime() -> io::Result<Handle> {
    let mut runtime = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    let process = std::process::id();
    if let Some((_, handle)) = runtime.as_ref().filter(|(owner, _)| *owner == process) {
        return Ok(handle.clone());
    }
    let new = Builder::new_current_thread().enable_all().build()?;
    let handle = new.handle().clone();
    let serve = move || new.block_on(pending::<()>());
    thread::Builder::new().name("dflock".to_owned()).spawn(serve)?;
    *runtime = Some((process, handle.clone()));
    Ok(handle)
}

/// Wakes a thread that is parked.
struct Parked(Thread);

impl Wake for Parked {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Blocks the thread until the future is ready.
pub(super) fn wait<T>(
    future: impl Future<Output = Result<T, ClientError>>,
) -> Result<T, ClientError> {
    let runtime = runtime()?;
    let _inside = runtime.enter();
    // Inside a task of another runtime, its budget would never be refilled.
    let mut future = pin!(unconstrained(future));
    let waker = Waker::from(Arc::new(Parked(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(outcome) => return outcome,
            Poll::Pending => thread::park(),
        }
    }
}
