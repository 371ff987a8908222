//! The names of temporary files, and who made them. Text in, values out. Pure.

use pidlockfile::Pid;

use crate::record::integer;

/// Who made a temporary file of this lock: `LOCK.PID.RANDOM.tmp`.
pub(crate) fn maker(name: &str, lock: &str) -> Option<Pid> {
    made_by(name.strip_prefix(lock)?.strip_prefix('.')?)
}

/// The part behind the lock's name: `PID.RANDOM.tmp`, as both this crate and the original
/// TypeScript tool write it.
fn made_by(rest: &str) -> Option<Pid> {
    let (pid, random) = rest.strip_suffix(".tmp")?.split_once('.')?;
    let good =
        (1..=64).contains(&random.len()) && random.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let number = integer(pid).filter(|_| good)?;
    Pid::new(i64::try_from(number).ok()?)
}

/// The lock to which a temporary file belongs, if it is one.
pub(crate) fn temporary_of(name: &str) -> Option<&str> {
    let (rest, random) = name.strip_suffix(".tmp")?.rsplit_once('.')?;
    let (lock, pid) = rest.rsplit_once('.').filter(|(lock, _)| !lock.is_empty())?;
    made_by(&format!("{pid}.{random}.tmp")).map(|_| lock)
}
