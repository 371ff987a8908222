//! Windows: there are no signals and no process groups. The console notifies the command of `dflock run` as well as
//! `dflock`, so nothing has to be passed on. A process cannot become another program, so the process between the two
//! stays; it ends the command when `dflock run` is gone.
//!
//! The processes of a command are found by their parents, as far as the processes between them still exist. Windows
//! names the parent of a process by number only, and another process may have that number by now. So the handles of a
//! family are kept until all of it has ended, which reserves their numbers, and a process that started before its
//! supposed parent is not of the family.

use std::env::var_os;
use std::ffi::OsStr;
use std::future::pending;
use std::process::{self, ExitStatus};
use std::sync::mpsc::channel;
use std::time::Duration;
use std::{io, thread};

use tokio::process::{Child, Command};
use tokio::signal::windows::{
    CtrlBreak, CtrlC, CtrlClose, CtrlLogoff, CtrlShutdown, ctrl_break, ctrl_c, ctrl_close,
    ctrl_logoff, ctrl_shutdown,
};
use winsafe::guard::CloseHandleGuard;
use winsafe::prelude::*;
use winsafe::{HPROCESS, HPROCESSLIST, co};
use wrapcmd::exit::End;

use crate::program::outcome::{Failure, Survivors};
use crate::{Leases, Loss};

/// An argument as the server is to have it: in UTF-8. Nothing for what is no Unicode text.
pub(in crate::program) fn bytes(argument: &OsStr) -> Option<&[u8]> {
    argument.to_str().map(str::as_bytes)
}

/// The user of this process, for people.
pub(in crate::program) fn user() -> String {
    named_by("USERNAME")
}

/// What this machine calls itself, for people.
pub(in crate::program) fn host() -> String {
    named_by("COMPUTERNAME")
}

fn named_by(variable: &str) -> String {
    var_os(variable).unwrap_or_default().to_string_lossy().into_owned()
}

/// What asks the program to end, as something to wait for. After the last three Windows leaves it some
/// seconds.
pub(in crate::program) struct Endings {
    c: CtrlC,
    pause: CtrlBreak,
    close: CtrlClose,
    logoff: CtrlLogoff,
    shutdown: CtrlShutdown,
}

impl Endings {
    /// From now on none of it ends the program by itself.
    pub(in crate::program) fn catch() -> io::Result<Self> {
        Ok(Self {
            c: ctrl_c()?,
            pause: ctrl_break()?,
            close: ctrl_close()?,
            logoff: ctrl_logoff()?,
            shutdown: ctrl_shutdown()?,
        })
    }

    /// May be given up and called again.
    pub(in crate::program) async fn next(&mut self) {
        tokio::select! {
            _ = self.c.recv() => {}
            _ = self.pause.recv() => {}
            _ = self.close.recv() => {}
            _ = self.logoff.recv() => {}
            _ = self.shutdown.recv() => {}
        }
    }
}

/// Never: no process is harder to end than others.
pub(in crate::program) async fn asked_to_end(_holds_some: bool) -> Result<u8, Failure> {
    pending().await
}

/// Never: a reader that has gone is found out by the next line.
pub(in crate::program) async fn output_closed() {
    pending().await
}

/// A running command.
pub(in crate::program) struct Attended {
    child: Child,
    /// Until it has been ended.
    family: Option<Family>,
    endings: Endings,
}

impl Attended {
    /// Starts the step before a command.
    pub(in crate::program) fn start(step: process::Command) -> io::Result<Self> {
        let endings = Endings::catch()?;
        let mut child = Command::from(step).spawn()?;
        let family = child.id().ok_or_else(|| io::ErrorKind::NotFound.into()).and_then(Family::of);
        if family.is_err() {
            let _ = child.start_kill();
        }
        Ok(Self { child, family: Some(family?), endings })
    }

    /// The exit code when the command has ended by now. What it has left running goes on; the command itself
    /// does not where it was the step that was ended.
    pub(in crate::program) fn end(&mut self, _leases: &Leases) -> Result<Option<u8>, Loss> {
        let code = match self.child.try_wait() {
            Ok(None) => return Ok(None),
            Ok(Some(status)) => End::of(status).map_or(1, End::code),
            Err(_) => 1,
        };
        self.end_family();
        Ok(Some(code))
    }

    /// Until there may be something new. May be given up and called again.
    pub(in crate::program) async fn pass_on_signal(&mut self) {
        tokio::select! {
            _ = self.child.wait() => {}
            () = self.endings.next() => {}
        }
    }

    /// Until this process is asked to end, once the command has. May be given up and called again.
    pub(in crate::program) async fn asked_to_end(&mut self) {
        self.endings.next().await;
    }

    /// Ends the command and what it started, at once: there is nothing that would ask it to end.
    pub(in crate::program) async fn stop(&mut self, _grace: Duration) -> Option<Survivors> {
        self.end_family();
        None
    }

    fn end_family(&mut self) {
        if let Some(family) = self.family.take() {
            family.end(ENDED);
        }
    }
}

/// The exit code of a process that is ended: what KILL gives on Unix.
const ENDED: u8 = 137;
/// How often to look for processes that the family started while it was being ended.
const MAX_ROUNDS: usize = 100;
/// What the end of one process may take before the others are seen to, in milliseconds.
const END_LIMIT_MS: u32 = 1000;

/// One process, by a handle that keeps its number.
struct Member {
    number: u32,
    /// In tenths of microseconds since 1601.
    began: u64,
    process: CloseHandleGuard<HPROCESS>,
}

impl Member {
    /// Nothing when there is no such process, or it is beyond our rights.
    fn of(number: u32, rights: co::PROCESS) -> Option<Self> {
        let rights = rights | co::PROCESS::QUERY_LIMITED_INFORMATION | co::PROCESS::SYNCHRONIZE;
        let process = HPROCESS::OpenProcess(rights, false, number).ok()?;
        // Numbers are multiples of four, and Windows ignores the last two bits.
        process.GetProcessId().ok().filter(|seen| *seen == number)?;
        let (began, ..) = process.GetProcessTimes().ok()?;
        let began = u64::from(began.dwHighDateTime) << 32 | u64::from(began.dwLowDateTime);
        Some(Self { number, began, process })
    }

    /// Whether that process may have started this one.
    fn may_descend_from(&self, parent: &Self) -> bool {
        self.began >= parent.began
    }

    /// Waits until it has ended, at most `limit_ms` milliseconds.
    fn has_ended_within(&self, limit_ms: Option<u32>) -> bool {
        self.process.WaitForSingleObject(limit_ms) == Ok(co::WAIT::OBJECT_0)
    }
}

/// A process that can be ended with all its family.
struct Family(Member);

impl Family {
    /// The caller has a handle of that process, so that the number is its own.
    ///
    /// # Errors
    /// It cannot be had, and so could not be ended.
    fn of(number: u32) -> io::Result<Self> {
        let first = Member::of(number, co::PROCESS::TERMINATE);
        first.map(Self).ok_or_else(|| io::ErrorKind::PermissionDenied.into())
    }

    /// Ends all of it, with that exit code.
    fn end(self, code: u8) {
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

/// The process that started this one, by a handle that shows its end.
pub(in crate::program) struct KillOnParentDeath(Member);

/// What the step waits for.
enum News {
    /// The command has ended, or cannot be waited for.
    Ended(io::Result<ExitStatus>),
    /// `dflock run` has.
    Orphaned,
}

impl KillOnParentDeath {
    /// `None` if that one has ended already: its number may belong to a later process.
    pub(in crate::program) fn of(parent: u32) -> Option<Self> {
        let parent = Member::of(parent, co::PROCESS::SYNCHRONIZE)?;
        let own = Member::of(process::id(), co::PROCESS::SYNCHRONIZE)?;
        let lives = !parent.has_ended_within(Some(0));
        (lives && own.may_descend_from(&parent)).then_some(Self(parent))
    }

    /// Runs the command and gives its exit code.
    pub(in crate::program) fn run(self, mut command: process::Command) -> io::Result<u8> {
        // The command has those itself, and it is for the command to end of them.
        let endings = Endings::catch()?;
        let mut child = command.spawn()?;
        let family = Family::of(child.id());
        let (send, news) = channel();
        let send_of_parent = send.clone();
        thread::spawn(move || send.send(News::Ended(child.wait())));
        thread::spawn(move || {
            self.0.has_ended_within(None);
            send_of_parent.send(News::Orphaned)
        });
        let code = match news.recv() {
            Ok(News::Ended(status)) => End::of(status?).map_or(1, End::code),
            Ok(News::Orphaned) | Err(_) => {
                family?.end(ENDED);
                ENDED
            }
        };
        drop(endings);
        Ok(code)
    }
}
