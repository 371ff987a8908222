//! Reasons to refuse a lock that are not lock files: `flock(2)` on the port, and too many locks.

use std::time::Instant;

use pidlockfile::{Pid, process};

use super::{Stop, Table};
use crate::device::node::{Node, ResolvedDevice};
use crate::limits::LOCK_FILES_OF_A_USER;
use crate::lock::backoff::Contention;
use crate::lock::directories::Place;
use crate::lock::flock::{self, Completeness, Sight};
use crate::lock::open::{self, Openness};
use crate::lock::{Cause, Weight};

/// As many records are read to tell how many are one user's.
const RECORDS_COUNTED: usize = 4096;

impl Table {
    /// A device that is not there may be locked, as one that was unplugged is unlocked; but not
    /// without end, for anybody can invent names.
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

    /// One user must not fill the lock directory: it may hold no more than a thousand files. What
    /// counts is what is on record: files that others put into the directory cost nothing here.
    pub(super) fn refuse_one_too_many(&mut self, pid: Pid) -> Result<(), Stop> {
        if self.records().has_room_for_all(LOCK_FILES_OF_A_USER) {
            return Ok(());
        }
        let uid = process::owner(pid);
        // A daemon knows who asks for one that is not there.
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

    /// Programs that lock the open port leave no file; the kernel's list shows them. Where that
    /// changes too fast to show all, it may not a moment later.
    pub(super) fn refuse_flock(
        &mut self,
        resolved: &ResolvedDevice,
        asking: Pid,
        contention: Contention,
    ) -> Result<(), Stop> {
        let Some(node) = resolved.node else { return Ok(()) };
        let asked = self.asked.unwrap_or_else(Instant::now);
        match self.flocks.holders(&node, asked) {
            Ok(None) => Err(Stop::NotYet(Cause::Reading)),
            Ok(Some(Sight { holders, completeness })) => {
                // A program of one session would say it in each.
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

    /// The kernel has too many locks to tell all of them, or they change too fast: whoever has the
    /// port open may have locked it as well.
    pub(super) fn refuse_open(
        &mut self,
        device: &str,
        node: &Node,
        asking: Pid,
        most_of: Option<u32>,
    ) -> Result<(), Stop> {
        let who = match open::openness(node, asking) {
            Openness::Closed => return Ok(()),
            Openness::Open(pid) => {
                self.blocker = Some(self.identify(pid));
                format!("pid {pid} has it open")
            }
            Openness::Untold => "it cannot be told who has it open".to_owned(),
        };
        let too_many = flock::too_many(most_of);
        let text = format!("{device} is busy: {too_many}, and {who}");
        self.say(Weight::Warning, text);
        Err(Stop::Busy)
    }

    pub(super) fn busy_by_flock(&mut self, device: &str, holder: flock::Holder) -> Stop {
        if let flock::Holder::Process(pid) = holder {
            self.blocker = Some(self.identify(pid));
        }
        self.say(Weight::Info, format!("{device} is busy: flock held by {holder}"));
        Stop::Busy
    }

    /// What cannot be seen is said once, not guessed.
    pub(super) fn say_unseen(&mut self, which: impl FnOnce() -> Option<String>) {
        if std::mem::replace(&mut self.said_unseen, true) {
            return;
        }
        if let Some(which) = which() {
            self.say(Weight::Warning, format!("flock holders cannot be seen {which}"));
        }
    }
}
