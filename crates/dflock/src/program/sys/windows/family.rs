//! Windows: a process and all its descendants, as far as the processes between them still exist.
//!
//! Windows names the parent of a process by number only, and another process may have that number by now. So
//! the handles of a family are kept until all of it has ended, which reserves their numbers, and a process
//! that started before its supposed parent is not of the family.

use std::io;
use winsafe::guard::CloseHandleGuard;
use winsafe::prelude::*;
use winsafe::{HPROCESS, HPROCESSLIST, co};

/// The exit code of a process that is ended: what KILL gives on Unix.
pub(super) const ENDED: u8 = 137;
/// How often to look for processes that the family started while it was being ended.
const MAX_ROUNDS: usize = 100;
/// What the end of one process may take before the others are seen to, in milliseconds.
const END_LIMIT_MS: u32 = 1000;

/// One process, by a handle that keeps its number.
pub(super) struct Member {
    number: u32,
    /// In tenths of microseconds since 1601.
    began: u64,
    process: CloseHandleGuard<HPROCESS>,
}

impl Member {
    /// Nothing when there is no such process, or it is beyond our rights.
    pub(super) fn of(number: u32, rights: co::PROCESS) -> Option<Self> {
        let rights = rights | co::PROCESS::QUERY_LIMITED_INFORMATION | co::PROCESS::SYNCHRONIZE;
        let process = HPROCESS::OpenProcess(rights, false, number).ok()?;
        // Numbers are multiples of four, and the last two bits are not looked at.
        process.GetProcessId().ok().filter(|seen| *seen == number)?;
        let (began, ..) = process.GetProcessTimes().ok()?;
        let began = u64::from(began.dwHighDateTime) << 32 | u64::from(began.dwLowDateTime);
        Some(Self { number, began, process })
    }

    /// Whether that process may have started this one.
    pub(super) fn may_descend_from(&self, parent: &Self) -> bool {
        self.began >= parent.began
    }

    /// Waits until it has ended, at most so long.
    pub(super) fn has_ended_within(&self, limit_ms: Option<u32>) -> bool {
        self.process.WaitForSingleObject(limit_ms) == Ok(co::WAIT::OBJECT_0)
    }
}

/// A process that can be ended with all its family.
pub(super) struct Family(Member);

impl Family {
    /// The caller has a handle of that process, so that the number is its own.
    ///
    /// # Errors
    /// It cannot be had, and so could not be ended.
    pub(super) fn of(number: u32) -> io::Result<Self> {
        let first = Member::of(number, co::PROCESS::TERMINATE);
        first.map(Self).ok_or_else(|| io::ErrorKind::PermissionDenied.into())
    }

    /// Ends all of it, with that exit code.
    pub(super) fn end(self, code: u8) {
        let mut family = vec![self.0];
        let mut ended = 0;
        for _ in 0..MAX_ROUNDS {
            for member in family.iter().skip(ended) {
                let _ = member.process.TerminateProcess(code.into());
            }
            for member in family.iter().skip(ended) {
                let _ = member.has_ended_within(Some(END_LIMIT_MS));
            }
            ended = family.len();
            add_started(&mut family);
            if family.len() == ended {
                return;
            }
        }
    }
}

/// Adds the processes that the family has started.
fn add_started(family: &mut Vec<Member>) {
    let Ok(mut list) = HPROCESSLIST::CreateToolhelp32Snapshot(co::TH32CS::SNAPPROCESS, None) else {
        return;
    };
    let started = list.iter_processes().filter_map(|entry| {
        let entry = entry.ok()?;
        Some((entry.th32ProcessID, entry.th32ParentProcessID))
    });
    for (number, parent) in started.collect::<Vec<_>>() {
        let is_known = family.iter().any(|member| member.number == number);
        let Some(parent) = family.iter().find(|member| member.number == parent) else { continue };
        if is_known {
            continue;
        }
        let found = Member::of(number, co::PROCESS::TERMINATE);
        if let Some(found) = found.filter(|found| found.may_descend_from(parent)) {
            family.push(found);
        }
    }
}
