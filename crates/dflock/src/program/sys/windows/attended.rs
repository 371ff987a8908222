//! Windows: attends a running command, and the process between it and `dflock run`.

use super::endings::Endings;
use super::family::{ENDED, Family};
use crate::program::outcome::Survivors;
use crate::{Leases, Loss};
use std::io;
use std::time::Duration;
use tokio::process::{Child, Command};
use wrapcmd::exit::End;

/// A running command.
pub(in crate::program) struct Attended {
    child: Child,
    /// Until it has been ended.
    family: Option<Family>,
    endings: Endings,
}

impl Attended {
    /// Starts the step before a command.
    pub(in crate::program) fn start(step: std::process::Command) -> io::Result<Self> {
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
    pub(in crate::program) async fn stirred(&mut self) {
        tokio::select! {
            _ = self.child.wait() => {}
            () = self.endings.next() => {}
        }
    }

    /// Until this process is asked to end, once the command has. May be given up and called again.
    pub(in crate::program) async fn told_to_end(&mut self) {
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
