//! The ports that this process has locked by opening them, and those that it has closed while the service did
//! not answer: these are released as soon as it answers.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use pidlockfile::Pid;
use rustix::process::{getpid, getppid};
use ttylock::DeviceName;

use crate::held::{Held, Key};
use crate::service::{Service, may_answer};

static TAKEN: Held = Held::new();

/// Whether there was ever a port, in this process or in one that it descends from.
static ANY: AtomicBool = AtomicBool::new(false);

/// The process that is paying. What it closes on the way pays nothing.
static PAYS: AtomicU32 = AtomicU32::new(0);

/// From now on it has this one.
pub(crate) fn add(number: u64, name: &DeviceName) {
    ANY.store(true, Ordering::Release);
    TAKEN.insert(key(number), name, parent());
}

/// Whether it has the port.
pub(crate) fn has(number: u64) -> bool {
    !none() && TAKEN.contains(key(number))
}

/// Whether it has the port for the service, and for the program no more.
pub(crate) fn owes(number: u64) -> bool {
    !none() && TAKEN.owes(key(number))
}

/// Whether it has the port, which it has no more: the lock goes on as a lock file's.
pub(crate) fn gives_up(number: u64) -> bool {
    TAKEN.remove(key(number))
}

/// Whether there can be nothing to release at all, for close(2): one read where this process has never had
/// a port, nor one that it descends from.
pub(crate) fn none() -> bool {
    !ANY.load(Ordering::Acquire)
}

/// The port has been closed: the service is to be told, now or later.
pub(crate) fn closed(number: u64) {
    TAKEN.turns(key(number));
}

/// The lock may be this process's without being asked for any more.
pub(crate) fn owe(number: u64, name: &DeviceName) {
    ANY.store(true, Ordering::Release);
    TAKEN.owe(key(number), name, parent());
}

/// Pays what is owed, if the service may answer. To be called where a port is opened or something closed.
pub(crate) fn pay() {
    let own = this();
    if none() || !TAKEN.owes_anything(own) || !may_answer() {
        return;
    }
    if PAYS.swap(own, Ordering::AcqRel) == own {
        return;
    }
    let mut service = Service::reach();
    while let Some((key, name)) = service.is_some().then(|| TAKEN.forgive(own)).flatten() {
        if service.as_mut().and_then(|service| service.unlock(&name, Pid::this())).is_none() {
            owe(key.device, &name);
            break;
        }
    }
    PAYS.store(0, Ordering::Release);
}

fn key(device: u64) -> Key {
    Key { process: this(), device }
}

fn this() -> u32 {
    getpid().as_raw_nonzero().get().unsigned_abs()
}

fn parent() -> u32 {
    getppid().map_or(0, |parent| parent.as_raw_nonzero().get().unsigned_abs())
}
