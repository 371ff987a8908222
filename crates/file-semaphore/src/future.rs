//! Waiting in an async program: a future, whatever the runtime. The wait itself is a thread's, which
//! ends when the future is dropped.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::error::Error;
use crate::semaphore::{Cancel, Guard, Semaphore};

/// A semaphore that is about to be taken. Dropping this ends the wait; what was taken in that moment
/// is released.
///
/// A guard may be dropped anywhere, but dropping it touches files: as quick as the file system is.
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Acquiring {
    state: Arc<Mutex<State>>,
    cancel: Option<Cancel>,
}

#[derive(Debug)]
enum State {
    /// Nobody has asked yet.
    New { semaphore: Semaphore, tag: Option<String> },
    /// A thread waits.
    Waiting(Waker),
    /// It has an answer.
    Done(Box<Result<Guard, Error>>),
    /// Which was handed out.
    Over,
}

impl Semaphore {
    /// [`acquire`](Self::acquire) as a future; the wait begins when it is polled first.
    ///
    /// ```
    /// # use file_semaphore::{Error, Semaphore};
    /// async fn rebuild(index: &Semaphore) -> Result<(), Error> {
    ///     let held = index.acquire_async(Some("rebuild")).await?;
    ///     held.release()
    /// }
    /// ```
    pub fn acquire_async(&self, tag: Option<&str>) -> Acquiring {
        let state = State::New { semaphore: self.clone(), tag: tag.map(str::to_owned) };
        Acquiring { state: Arc::new(Mutex::new(state)), cancel: None }
    }
}

impl Future for Acquiring {
    type Output = Result<Guard, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let shared = Arc::clone(&self.state);
        let mut state = locked(&shared);
        match std::mem::replace(&mut *state, State::Over) {
            State::New { semaphore, tag } => match begin(&shared, semaphore, tag) {
                Ok(cancel) => {
                    *state = State::Waiting(context.waker().clone());
                    self.cancel = Some(cancel);
                    Poll::Pending
                }
                Err(error) => Poll::Ready(Err(error)),
            },
            State::Waiting(_) => {
                *state = State::Waiting(context.waker().clone());
                Poll::Pending
            }
            State::Done(result) => Poll::Ready(*result),
            State::Over => Poll::Ready(Err(Error::Cancelled)),
        }
    }
}

impl Drop for Acquiring {
    fn drop(&mut self) {
        if let Some(cancel) = &self.cancel {
            cancel.cancel();
        }
    }
}

fn begin(
    state: &Arc<Mutex<State>>,
    semaphore: Semaphore,
    tag: Option<String>,
) -> Result<Cancel, Error> {
    let cancel = Cancel::new()?;
    let (ended, state) = (cancel.clone(), Arc::clone(state));
    let wait = move || {
        let request = semaphore.request().cancelled_by(&ended);
        let result = match tag.as_deref() {
            Some(tag) => request.tag(tag).acquire(),
            None => request.acquire(),
        };
        // Who dropped the future wants nothing any more: then the guard goes with the state.
        let before = std::mem::replace(&mut *locked(&state), State::Done(Box::new(result)));
        if let State::Waiting(waker) = before {
            waker.wake();
        }
    };
    let thread = std::thread::Builder::new().name("file-semaphore".to_owned()).spawn(wait);
    thread.map_err(|_| Error::Process { message: "no thread can be had" })?;
    Ok(cancel)
}

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::task::Wake;
    use std::thread::Thread;
    use std::time::{Duration, Instant};

    use super::*;

    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    fn block_on<F: Future + Unpin>(mut future: F) -> F::Output {
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        loop {
            match Pin::new(&mut future).poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(output) => return output,
                Poll::Pending => std::thread::park_timeout(Duration::from_secs(20)),
            }
        }
    }

    #[test]
    fn a_future_takes_it_when_it_is_free() {
        let scratch = tempfile::tempdir().unwrap();
        let semaphore = Semaphore::open(scratch.path().join("a")).unwrap();
        let held = block_on(semaphore.acquire_async(Some("first"))).unwrap();
        assert_eq!(held.info().tag(), Some("first"));
        let waiter = semaphore.clone();
        let thread = std::thread::spawn(move || block_on(waiter.acquire_async(None)).unwrap());
        let deadline = Instant::now() + Duration::from_secs(20);
        // On Windows there is no line.
        let queue = scratch.path().join("a.queue");
        while cfg!(unix) && !queue.exists() && Instant::now() < deadline {
            std::thread::yield_now();
        }
        held.release().unwrap();
        assert!(thread.join().unwrap().still_held().unwrap());
    }

    /// On Windows there is no line.
    #[cfg(unix)]
    #[test]
    fn a_future_that_is_dropped_leaves_the_line() {
        let scratch = tempfile::tempdir().unwrap();
        let semaphore = Semaphore::open(scratch.path().join("a")).unwrap();
        let held = semaphore.try_acquire(None).unwrap();
        let mut future = semaphore.acquire_async(None);
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut context = Context::from_waker(&waker);
        assert!(Pin::new(&mut future).poll(&mut context).is_pending());
        let ticket = scratch.path().join("a.queue");
        let deadline = Instant::now() + Duration::from_secs(20);
        while !ticket.exists() && Instant::now() < deadline {
            std::thread::yield_now();
        }
        drop(future);
        while ticket.exists() && Instant::now() < deadline {
            std::thread::yield_now();
        }
        assert!(!ticket.exists());
        held.release().unwrap();
        assert!(semaphore.try_acquire(None).is_ok());
    }
}
