//! Takes several semaphores, all or none, always in the same order, so that two callers never wait for each
//! other.

use std::time::Instant;

use crate::error::{Error, PathProblem};
use crate::record::Holder;
use crate::semaphore::{Guard, Patience, Semaphore, Wish};

/// Takes one after the other, in the order of directory and name, each in the name that `holder` gives for it. A failure
/// lets go of all.
pub(crate) fn acquire_many(
    semaphores: &[&Semaphore],
    wish: Wish<'_>,
    holder: &mut dyn FnMut(&Semaphore) -> Result<Holder, Error>,
) -> Result<Vec<Guard>, Error> {
    let begin = Instant::now();
    let key = |semaphore: &Semaphore| {
        let place = semaphore.files.directory.identity();
        (place, semaphore.files.place.name.as_os_str().to_owned())
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
        let timeout = wish.patience.timeout.map(|timeout| timeout.saturating_sub(begin.elapsed()));
        let wish = Wish { patience: Patience { timeout, ..wish.patience }, ..wish };
        guards.push((index, semaphore.take(wish, &mut || holder(semaphore))?));
    }
    guards.sort_by_key(|(index, _)| *index);
    Ok(guards.into_iter().map(|(_, guard)| guard).collect())
}
