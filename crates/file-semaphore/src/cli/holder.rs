//! The process in whose name a lock is taken, released or renewed: the one on the command line, or the caller.

use pidlockfile::Pid;
use pidlockfile::process::{NoCaller, of_caller};

use super::arguments::HolderArguments;
use crate::error::Error;
use crate::record::Holder;
use crate::stale::Here;

pub(super) const STARTER_ENDED: &str = "the process that started sema has ended: name the holder (--pid), or take the lock \
                                without an owner (--persist)";

/// The holder that a lock records.
pub(super) fn holder_to_record(holder: HolderArguments, here: &Here) -> Result<Holder, Error> {
    if !holder.persist {
        return named(holder.named.pid, here);
    }
    let taker = of_caller(|pid| pid).unwrap_or_else(|_| Pid::this());
    Ok(Holder::nobody(crate::sys::number(taker), here.host.as_deref()))
}

/// The process named on the command line, or the calling one.
pub(super) fn holder_named(pid: Option<Pid>, here: &Here) -> Result<Holder, Error> {
    let describe =
        |pid| Holder::of(pid, here).ok_or(Error::NoHolder { pid: crate::sys::number(pid) });
    match pid {
        Some(pid) => describe(pid),
        None => of_caller(describe).map_err(|none| match none {
            NoCaller::Outside => Error::NoHolder { pid: 0 },
            NoCaller::Ended => Error::Process { message: STARTER_ENDED },
        })?,
    }
}

/// The same for releasing, where a process that has ended may be named as well.
pub(super) fn holder_named_or_number(pid: Option<Pid>, here: &Here) -> Result<Holder, Error> {
    match holder_named(pid, here) {
        Err(Error::NoHolder { pid }) if pid != 0 => Ok(Holder::bare(pid)),
        other => other,
    }
}
