//! A future that waits for a semaphore, for any async runtime. A thread does the waiting; it ends when the
//! future is dropped. The thread that it may have started for a waiter in front ([`Semaphore::acquire`]) ends with
//! that waiter.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::error::Error;
use crate::semaphore::{Cancel, Guard, Request, Semaphore, Sharing};
use crate::sys::guarded;

/// A semaphore that is about to be taken. Dropping this ends the wait; what was taken in that moment
/// is released.
///
/// A guard may be dropped anywhere, but dropping it touches files: as quick as the file system is.
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Acquiring {
    /// Until the wait begins.
    wanted: Option<Wanted>,
    answer: Arc<Mutex<Answer>>,
    cancel: Option<Cancel>,
}

/// The answer of the thread that waits.
#[derive(Debug, Default)]
struct Answer {
    result: Option<Result<Guard, Error>>,
    waker: Option<Waker>,
}

/// What is wanted, kept until then.
#[derive(Debug)]
struct Wanted {
    semaphore: Semaphore,
    tag: Option<String>,
    timeout: Option<Duration>,
    cancel: Option<Cancel>,
    sharing: Sharing,
}

impl Request<'_> {
    /// [`acquire`](Self::acquire) as a future, with what this says of tag, timeout, sharing and
    /// [`Cancel`]; the wait begins when it is polled first.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use file_semaphore::{Error, Semaphore};
    /// async fn search(index: &Semaphore) -> Result<(), Error> {
    ///     let request = index.request().shared().timeout(Duration::from_secs(5));
    ///     request.acquire_async().await?.release()
    /// }
    /// ```
    pub fn acquire_async(self) -> Acquiring {
        let wanted = Wanted {
            semaphore: self.semaphore.clone(),
            tag: self.tag.map(str::to_owned),
            timeout: self.timeout,
            cancel: self.cancel.cloned(),
            sharing: self.sharing,
        };
        Acquiring { wanted: Some(wanted), answer: Arc::default(), cancel: None }
    }
}

impl Semaphore {
    /// [`acquire`](Self::acquire) as a future; the wait begins when it is polled first. For a timeout,
    /// sharing, or a [`Cancel`]: [`Request::acquire_async`].
    ///
    /// ```
    /// # use file_semaphore::{Error, Semaphore};
    /// async fn rebuild(index: &Semaphore) -> Result<(), Error> {
    ///     let held = index.acquire_async(Some("rebuild")).await?;
    ///     held.release()
    /// }
    /// ```
    pub fn acquire_async(&self, tag: Option<&str>) -> Acquiring {
        let request = self.request();
        match tag {
            Some(tag) => request.tag(tag).acquire_async(),
            None => request.acquire_async(),
        }
    }
}

impl Future for Acquiring {
    type Output = Result<Guard, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(wanted) = self.wanted.take() {
            match begin(&self.answer, wanted) {
                Ok(cancel) => self.cancel = Some(cancel),
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        let mut answer = guarded(&self.answer);
        answer.waker = Some(context.waker().clone());
        answer.result.take().map_or(Poll::Pending, Poll::Ready)
    }
}

impl Drop for Acquiring {
    fn drop(&mut self) {
        if let Some(cancel) = &self.cancel {
            cancel.cancel();
        }
    }
}

fn begin(answer: &Arc<Mutex<Answer>>, wanted: Wanted) -> Result<Cancel, Error> {
    // Its own, as dropping the future ends nothing but this wait.
    let cancel = wanted.cancel.as_ref().map_or_else(Cancel::new, Cancel::follower)?;
    let (ended, answer) = (cancel.clone(), Arc::clone(answer));
    let wait = move || {
        let Wanted { semaphore, tag, timeout, sharing, cancel: _ } = &wanted;
        let (tag, timeout, sharing) = (tag.as_deref(), *timeout, *sharing);
        let result = Request { semaphore, tag, timeout, cancel: Some(&ended), sharing }.acquire();
        let mut answer = guarded(&answer);
        // If the future was dropped, the guard is not needed: it is dropped with the answer.
        answer.result = Some(result);
        let waker = answer.waker.take();
        drop(answer);
        if let Some(waker) = waker {
            waker.wake();
        }
    };
    let thread = std::thread::Builder::new().name("file-semaphore".to_owned()).spawn(wait);
    thread.map_err(|_| Error::Process { message: "no thread can be started" })?;
    Ok(cancel)
}

#[cfg(test)]
mod tests {
    use std::task::Wake;
    use std::thread::Thread;
    use std::time::Instant;

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

    #[test]
    fn a_future_has_the_timeout_of_its_request_and_shares() {
        let scratch = tempfile::tempdir().unwrap();
        let semaphore = Semaphore::open(scratch.path().join("a")).unwrap();
        let shared = || semaphore.request().shared().timeout(Duration::from_secs(20));
        let one = block_on(shared().acquire_async()).unwrap();
        let other = block_on(shared().tag("other").acquire_async()).unwrap();
        assert_eq!(other.info().tag(), Some("other"));
        let alone = semaphore.request().timeout(Duration::from_millis(20));
        assert!(matches!(block_on(alone.acquire_async()), Err(Error::TimedOut { .. })));
        drop((one, other));
        assert!(block_on(alone.acquire_async()).is_ok());
    }

    #[test]
    fn a_cancel_ends_its_futures_and_a_dropped_future_cancels_nothing_else() {
        let scratch = tempfile::tempdir().unwrap();
        let semaphore = Semaphore::open(scratch.path().join("a")).unwrap();
        let held = semaphore.try_acquire(None).unwrap();
        let cancel = Cancel::new().unwrap();
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut dropped = semaphore.request().cancelled_by(&cancel).acquire_async();
        assert!(Pin::new(&mut dropped).poll(&mut Context::from_waker(&waker)).is_pending());
        drop(dropped);
        assert!(!cancel.is_cancelled());
        let mut waits = semaphore.request().cancelled_by(&cancel).acquire_async();
        assert!(Pin::new(&mut waits).poll(&mut Context::from_waker(&waker)).is_pending());
        cancel.cancel();
        assert!(matches!(block_on(waits), Err(Error::Cancelled)));
        let late = semaphore.request().cancelled_by(&cancel).acquire_async();
        assert!(matches!(block_on(late), Err(Error::Cancelled)));
        held.release().unwrap();
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
