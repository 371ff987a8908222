//! `lfpd` in a sandbox as its package leaves a machine, and its daemon there.

use std::os::unix::net::UnixStream;

use crate::client::Client;
use crate::peers::workspace;
use crate::process::{Command, Process, User};
use crate::programs::program;
use crate::sandbox::{LFPD, Layout, Sandbox};
use crate::until::{LIMIT, until};

/// The daemon's socket in a sandbox.
pub const SOCKET: &str = "/run/lfpd/lfpd.sock";

/// Where `lfp` is in a sandbox with the programs installed.
pub const LFP: &str = "/run/test/bin/lfp";

/// What [`Layout::installed`] brings for [`Layout::enter`] to be used.
pub(crate) const TMPFILES: &str = "tmpfiles.conf";

impl Layout {
    /// With `lfpd` as [`LFPD`], `lfp` as [`LFP`], and what the package's tmpfiles.d file makes. Only root and the service
    /// may write the lock directory, unless [`Layout::lock_dir`] says otherwise afterwards.
    #[must_use]
    pub fn installed(self) -> Self {
        self.lock_dir("0755", "root:root")
            .bring("lfpd", program("lfpd", "lfpd", &[]))
            .bring("bin/lfp", program("lfp-cli", "lfp", &[]))
            .bring(TMPFILES, workspace().join("etc/tmpfiles.d/lfpd.conf"))
    }
}

impl Sandbox {
    /// A daemon of this user's with these options. It listens on [`SOCKET`] when this returns.
    ///
    /// # Panics
    /// It does not come as far.
    #[must_use]
    pub fn serve(&self, user: User, options: &[&str]) -> Process<'_> {
        let mut daemon = self.serve_by(self.command(LFPD).args(options).user(user));
        assert!(daemon.runs(), "{}", daemon.output());
        daemon
    }

    /// The same by a command that takes further options of `lfpd`. It may have ended when this returns.
    ///
    /// # Panics
    /// It neither answers nor ends.
    #[must_use]
    pub fn serve_by<'a>(&'a self, command: Command<'a>) -> Process<'a> {
        let mut daemon = command.args(["--listen", &format!("unix:{SOCKET}")]).spawn();
        let came = until(LIMIT, || {
            let answers = self.client().is_some_and(|mut client| !client.line().is_empty());
            (answers || daemon.ended().is_some()).then_some(())
        });
        assert!(came.is_some(), "{}", daemon.output());
        daemon
    }

    /// A client of the daemon's, if it listens; the greeting is not taken.
    #[must_use]
    pub fn client(&self) -> Option<Client> {
        UnixStream::connect(self.path(SOCKET)).ok().map(Client::new)
    }
}
