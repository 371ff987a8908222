//! Takes several semaphores, all or none, always in the same order, so that two callers never wait for each
//! other.

use std::time::{Duration, Instant};

use crate::error::{Error, PathProblem};
use crate::record::Holder;
use crate::semaphore::{Guard, Patience, Semaphore, Sharing};

impl Semaphore {
    /// Takes all of these semaphores for this process if all are free or stale, or none. The
    /// guards are in the order of the semaphores.
    ///
    /// ```
    /// use file_semaphore::Semaphore;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let scratch = tempfile::tempdir()?;
    /// let [a, b] = ["a", "b"].map(|name| Semaphore::open(scratch.path().join(name)));
    /// let (a, b) = (a?, b?);
    /// let both = Semaphore::try_acquire_many(&[&a, &b], Some("move"))?;
    /// assert!(a.try_acquire(None).is_err() && b.try_acquire(None).is_err());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`try_acquire`](Self::try_acquire), for the first that cannot be taken;
    /// [`Error::InvalidPath`] when two are the same.
    pub fn try_acquire_many(semaphores: &[&Self], tag: Option<&str>) -> Result<Vec<Guard>, Error> {
        in_order(semaphores, |semaphore| semaphore.try_acquire(tag))
    }

    /// Waits until it has taken all of these semaphores for this process; those that it has
    /// already are let go when it gives up.
    ///
    /// # Errors
    /// As [`acquire`](Self::acquire); [`Error::InvalidPath`] when two are the same.
    pub fn acquire_many(
        semaphores: &[&Self],
        tag: Option<&str>,
        timeout: Option<Duration>,
    ) -> Result<Vec<Guard>, Error> {
        let mut own = |semaphore: &Self| semaphore.inner.own_holder();
        let patience = Patience { timeout, ..Patience::default() };
        let wish = Wish { tag, patience, sharing: Sharing::Alone };
        Self::acquire_many_as(semaphores, &wish, &mut own)
    }

    pub(crate) fn acquire_many_as(
        semaphores: &[&Self],
        wish: &Wish<'_>,
        claimant: &mut dyn FnMut(&Self) -> Result<Holder, Error>,
    ) -> Result<Vec<Guard>, Error> {
        let begin = Instant::now();
        in_order(semaphores, |semaphore| {
            let timeout =
                wish.patience.timeout.map(|timeout| timeout.saturating_sub(begin.elapsed()));
            let patience = Patience { timeout, ..wish.patience };
            semaphore.acquire_as(wish.tag, &mut || claimant(semaphore), &patience, wish.sharing)
        })
    }
}

/// What several semaphores are taken for, and how.
pub(crate) struct Wish<'a> {
    pub(crate) tag: Option<&'a str>,
    pub(crate) patience: Patience<'a>,
    pub(crate) sharing: Sharing,
}

/// Takes one after the other, in the order of directory and name. A failure lets go of all.
fn in_order(
    semaphores: &[&Semaphore],
    mut take: impl FnMut(&Semaphore) -> Result<Guard, Error>,
) -> Result<Vec<Guard>, Error> {
    let key = |semaphore: &Semaphore| {
        let place = semaphore.inner.directory.identity();
        (place.device, place.inode, semaphore.inner.place.name.as_os_str().to_owned())
    };
    let mut sorted: Vec<(usize, &Semaphore)> = semaphores.iter().copied().enumerate().collect();
    sorted.sort_by_key(|(_, semaphore)| key(semaphore));
    let twice = sorted.windows(2).find_map(|pair| match pair {
        [(_, one), (_, other)] if key(one) == key(other) => Some(other.path()),
        _ => None,
    });
    if let Some(path) = twice {
        return Err(Error::InvalidPath { path, problem: PathProblem::Twice });
    }
    let mut guards = Vec::with_capacity(sorted.len());
    for (index, semaphore) in sorted {
        guards.push((index, take(semaphore)?));
    }
    guards.sort_by_key(|(index, _)| *index);
    Ok(guards.into_iter().map(|(_, guard)| guard).collect())
}
