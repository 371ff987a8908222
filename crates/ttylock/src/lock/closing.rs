//! Closes duplicates of other processes' descriptors. The last close of a serial port waits until its bytes are sent,
//! up to half a minute, and that of a file in user space as long as its owner likes. Our close may be the last one if
//! the process closes its own descriptor meanwhile.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::limits::{CLOSINGS, CLOSINGS_OF_A_USER, THREAD_STACK};

/// A user; an unknown one counts as one user.
type User = Option<u32>;

/// How duplicates are closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closing {
    /// The thread that drops them closes them.
    AtOnce,
    /// Threads of their own close them, because other clients wait for this process. They are counted for the user
    /// whose process had the descriptor.
    Apart(Option<u32>),
}

/// The number of duplicates that are being closed, for each user.
static UNDERWAY: Mutex<BTreeMap<User, usize>> = Mutex::new(BTreeMap::new());

impl Closing {
    /// Whether another duplicate can be closed in this way: no user's closings delay those of other users.
    #[must_use]
    pub fn has_room(self) -> bool {
        let Self::Apart(user) = self else { return true };
        let underway = UNDERWAY.lock().unwrap_or_else(PoisonError::into_inner);
        let of_user = underway.get(&user).copied().unwrap_or_default();
        let all: usize = underway.values().sum();
        of_user < CLOSINGS_OF_A_USER && all < CLOSINGS
    }

    pub(super) fn close(self, descriptor: OwnedFd) {
        let Self::Apart(user) = self else { return drop(descriptor) };
        count(user, 1);
        let close = move || {
            drop(descriptor);
            count(user, -1);
        };
        let thread = thread::Builder::new().name("lfpd-close".to_owned());
        if thread.stack_size(THREAD_STACK).spawn(close).is_err() {
            // No thread could be started, so it was closed here.
            count(user, -1);
        }
    }
}

fn count(user: User, change: isize) {
    let mut underway = UNDERWAY.lock().unwrap_or_else(PoisonError::into_inner);
    let left = underway.get(&user).copied().unwrap_or_default().saturating_add_signed(change);
    if left == 0 {
        underway.remove(&user);
    } else {
        underway.insert(user, left);
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;

    /// A user with files that are never closed gets only a share of the threads.
    #[test]
    fn closings_are_bounded_for_each_user() {
        let (one, other) = (Some(4_294_967_002), Some(4_294_967_003));
        for _ in 0..CLOSINGS_OF_A_USER {
            assert!(Closing::Apart(one).has_room());
            count(one, 1);
        }
        assert!(!Closing::Apart(one).has_room() && Closing::Apart(other).has_room());
        assert!(Closing::AtOnce.has_room());
        count(one, -1);
        assert!(Closing::Apart(one).has_room());
        (1..CLOSINGS_OF_A_USER).for_each(|_| count(one, -1));
        assert!(!UNDERWAY.lock().unwrap().contains_key(&one));
    }
}
