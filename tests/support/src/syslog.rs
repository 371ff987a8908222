//! The syslog of a sandbox, read by the test.

use std::fs::{Permissions, set_permissions};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;

use nix::sys::socket::{MsgFlags, recv};

use crate::sandbox::Sandbox;
use crate::until::{LIMIT, uninterrupted};

/// `/dev/log` of a sandbox.
#[derive(Debug)]
pub struct Syslog(UnixDatagram);

impl Syslog {
    /// Opens it, before the service is started.
    ///
    /// # Panics
    /// There is one already.
    #[must_use]
    pub fn open(sandbox: &Sandbox) -> Self {
        let path = sandbox.path("/dev/log");
        let socket = UnixDatagram::bind(&path).expect("/dev/log");
        set_permissions(&path, Permissions::from_mode(0o666)).expect("its mode");
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        Self(socket)
    }

    /// The next line as it came.
    ///
    /// # Panics
    /// None comes within [`LIMIT`].
    #[must_use]
    pub fn raw(&self) -> Vec<u8> {
        let mut line = vec![0; 65536];
        let length = uninterrupted(|| self.0.recv(&mut line)).expect("a line in time");
        line.truncate(length);
        line
    }

    /// The next line without priority and pid.
    ///
    /// # Panics
    /// None comes, or one of another form.
    #[must_use]
    pub fn line(&self) -> String {
        let raw = String::from_utf8(self.raw()).expect("text");
        let (_, line) = raw.split_once("]: ").unwrap_or_else(|| panic!("{raw:?}"));
        line.to_owned()
    }

    /// Whether nothing has come. To be asked when the service has ended, so that nothing can.
    #[must_use]
    pub fn silent(&self) -> bool {
        let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
        recv(self.0.as_raw_fd(), &mut [0; 1], flags).is_err()
    }
}

impl Drop for Syslog {
    /// A process that another test forks at this moment may have the socket open until it executes its program.
    fn drop(&mut self) {
        let _ = self.0.shutdown(Shutdown::Both);
    }
}
