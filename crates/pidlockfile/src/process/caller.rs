//! The process that started this one, on Unix. For programs that take a lock on behalf of their caller.

use nix::errno::Errno;
use nix::unistd::{Pid as Number, getpid, getppid, getsid};

use super::system::{is_in_first_namespace, stat};
use super::{NoCaller, Pid};

/// Programs that run as the first process of a container and adopt its orphans.
const ADOPTERS: [&str; 9] = [
    "init",
    "systemd",
    "tini",
    "docker-init",
    "dumb-init",
    "catatonit",
    "s6-svscan",
    "runit",
    "podman-init",
];

/// Looks at the process that started this one. What `look` saw was that process: it had not ended afterwards.
///
/// The kernel does not remember that process: when a parent ends, its children get another (the first process, or a
/// "subreaper", prctl(2)), and getppid(2) names that one.
///
/// An adopting process differs from one that started this by its session: a child is in its parent's, or leads
/// one of its own (setsid(2)). The first process of the machine counts as one that adopts, and so do the
/// well-known ones of containers. A script that is a container's first process and
/// adopts an orphan of its own session cannot be distinguished from one that started it.
///
/// # Errors
/// [`NoCaller`].
pub fn of_caller<T>(look: impl FnOnce(Pid) -> T) -> Result<T, NoCaller> {
    let parent = getppid();
    let pid = Pid::new(parent.as_raw().into()).ok_or(NoCaller::Outside)?;
    let seen = look(pid);
    let adopted = is_of_another_session(parent) || is_an_adopter(pid);
    // Asked last: while it is the same, the process had not ended, so nobody else had its number.
    if adopted || getppid() != parent { Err(NoCaller::Ended) } else { Ok(seen) }
}

/// A session that was begun outside of this pid namespace has the number 0 (getsid(2)).
fn is_of_another_session(parent: Number) -> bool {
    let Ok(own) = getsid(None) else { return false };
    match getsid(Some(parent)) {
        Ok(theirs) => theirs != own && own != getpid(),
        // Some systems do not show another session's number.
        Err(Errno::EPERM) => own != getpid(),
        Err(errno) => errno == Errno::ESRCH,
    }
}

fn is_an_adopter(pid: Pid) -> bool {
    let name = || stat(pid).map(|stat| stat.name);
    let known = || name().is_some_and(|name| ADOPTERS.contains(&name.as_str()));
    pid.as_raw() == 1 && (is_in_first_namespace() || known())
}
