//! Reasons to refuse a lock that are not lock files: `flock(2)` on the port, and too many locks.

use std::time::Instant;

use pidlockfile::Pid;
use pidlockfile::process::{self, ProcessIdentity};

use super::{Stop, Table};
use crate::device::node::{Node, ResolvedDevice};
use crate::limits::LOCK_FILES_OF_A_USER;
use crate::lock::backoff::Contention;
use crate::lock::directories::Place;
use crate::lock::flock::{self, Completeness, Sight};
use crate::lock::open::{self, Openness};
use crate::lock::{Cause, Weight};

/// The most records that are read to count those of one user.
const RECORDS_COUNTED: usize = 4096;

impl Table {
    /// A missing device may be locked, just as an unplugged one may be unlocked. But there is a limit, because users
    /// can invent names.
    pub(super) fn refuse_invented(
        &mut self,
        resolved: &ResolvedDevice,
        own: &Place,
    ) -> Result<(), Stop> {
        if resolved.is_device() || !own.is_crowded() {
            return Ok(());
        }
        let (device, dir) = (resolved.real(), own.path.display());
        let text = format!("refused {device}: there is no such device, and {dir} is full of locks");
        self.say(Weight::Notice, text);
        Err(Stop::Denied)
    }

    /// One user must not fill the lock directory: a user may have at most a thousand files. Only recorded files
    /// count, not files that others put into the directory.
    pub(super) fn refuse_one_too_many(&mut self, pid: Pid) -> Result<(), Stop> {
        if self.records().has_room_for_all(LOCK_FILES_OF_A_USER) {
            return Ok(());
        }
        let uid = process::owner(pid);
        // A daemon knows which user asks for a missing process.
        if uid == Some(0) || (uid.is_none() && self.guards.is_a_daemons()) {
            return Ok(());
        }
        if self.records().count_of(uid, RECORDS_COUNTED) < LOCK_FILES_OF_A_USER {
            return Ok(());
        }
        let who =
            uid.map_or_else(|| "processes that are gone".to_owned(), |uid| format!("uid {uid}"));
        let text = format!("refused pid {pid}: {who} has {LOCK_FILES_OF_A_USER} lock files");
        self.say(Weight::Notice, text);
        Err(Stop::Denied)
    }

    /// Programs that lock the open port leave no file, but the kernel's list shows them. If the list changes too fast
    /// to be read completely, the caller tries again a moment later.
    pub(super) fn refuse_flock(
        &mut self,
        resolved: &ResolvedDevice,
        asking: Pid,
        contention: Contention,
        asked: Instant,
    ) -> Result<(), Stop> {
        let Some(node) = resolved.node else { return Ok(()) };
        match self.flocks.holders(&node, asked) {
            Ok(None) => Err(Stop::NotYet(Cause::Reading)),
            Ok(Some(Sight { holders, completeness })) => {
                // A process for one session would report it in each session.
                if self.guards.is_a_daemons() {
                    let others = || (!flock::sees_all()).then(|| "of other pid namespaces".into());
                    self.say_unseen(others);
                }
                let own = flock::Holder::Process(asking);
                if let Some(holder) = holders.into_iter().find(|holder| *holder != own) {
                    return Err(self.busy_by_flock(resolved.real(), holder));
                }
                match (completeness, contention) {
                    (Completeness::Whole, _) => Ok(()),
                    (Completeness::Changing(_), Contention::ComesBack) => {
                        Err(Stop::NotYet(Cause::Breaking))
                    }
                    (Completeness::Changing(most_of), Contention::Decides)
                    | (Completeness::Cut(most_of), _) => {
                        self.refuse_open(resolved.real(), &node, asking, most_of)
                    }
                }
            }
            Err(error) => {
                self.say_unseen(|| Some(format!("in /proc/locks: {error}")));
                Ok(())
            }
        }
    }

    /// The kernel's list is too long to be read, or changes too fast: a process that has the port open may also have
    /// locked it.
    pub(super) fn refuse_open(
        &mut self,
        device: &str,
        node: &Node,
        asking: Pid,
        most_of: Option<u32>,
    ) -> Result<(), Stop> {
        let (blocker, who) = match open::openness(node, asking) {
            Openness::Closed => return Ok(()),
            Openness::Open(pid) => (Some(self.identify(pid)), format!("pid {pid} has it open")),
            Openness::Untold => (None, "it is not known which processes have it open".to_owned()),
        };
        let too_many = flock::too_many(most_of);
        let text = format!("{device} is busy: {too_many}, and {who}");
        self.say(Weight::Warning, text);
        Err(Stop::Busy(blocker))
    }

    pub(super) fn busy_by_flock(&mut self, device: &str, holder: flock::Holder) -> Stop {
        self.say(Weight::Info, format!("{device} is busy: flock held by {holder}"));
        Stop::Busy(self.process_of(holder))
    }

    /// The process that holds a flock, if it is visible.
    pub(super) fn process_of(&mut self, holder: flock::Holder) -> Option<ProcessIdentity> {
        match holder {
            flock::Holder::Process(pid) => Some(self.identify(pid)),
            flock::Holder::Unseen => None,
        }
    }

    /// Reports once what cannot be seen.
    pub(super) fn say_unseen(&mut self, which: impl FnOnce() -> Option<String>) {
        if std::mem::replace(&mut self.said_unseen, true) {
            return;
        }
        if let Some(which) = which() {
            self.say(Weight::Warning, format!("flock holders cannot be seen {which}"));
        }
    }
}
