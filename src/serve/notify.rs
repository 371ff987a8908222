//! Reports to systemd that the daemon is ready and that it is alive: sd_notify(3), and the watchdog of
//! sd_watchdog_enabled(3), which restarts a daemon that hangs, for example in a file system that does not
//! answer. Does nothing without systemd.

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

/// Where systemd listens, and how often it wants to hear of us.
#[derive(Debug)]
pub(super) struct Notify {
    to: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<(Duration, Instant)>,
}

impl Notify {
    /// As the environment says, which systemd has set.
    pub(super) fn from_env(now: Instant) -> Self {
        let to = std::env::var_os("NOTIFY_SOCKET").and_then(|name| {
            let socket = UnixDatagram::unbound().ok()?;
            socket.set_nonblocking(true).ok()?;
            Some((socket, address(&name)?))
        });
        let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
        let ours = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let every = number("WATCHDOG_USEC").filter(|_| ours && to.is_some());
        // Twice as often as it must be.
        let watchdog = every.map(|every| (Duration::from_micros(every / 2), now));
        Self { to, watchdog }
    }

    pub(super) fn ready(&self) {
        self.say("READY=1");
    }

    /// What `systemctl status` shows: one line, or nothing.
    pub(super) fn status(&self, text: &str) {
        self.say(&format!("STATUS={text}"));
    }

    /// When it has to be said again that the daemon is alive.
    pub(super) fn next_moment(&self) -> Option<Instant> {
        self.watchdog.map(|(_, moment)| moment)
    }

    /// Says it, if it is time to. To be called between two pieces of work.
    pub(super) fn alive(&mut self, now: Instant) {
        if let Some((every, moment)) = self.watchdog {
            if moment <= now {
                self.say("WATCHDOG=1");
                self.watchdog = now.checked_add(every).map(|next| (every, next));
            }
        }
    }

    fn say(&self, line: &str) {
        if let Some((socket, address)) = &self.to {
            // Without a message in time, systemd does what the unit says.
            let _ = socket.send_to_addr(line.as_bytes(), address);
        }
    }
}

/// A path, or with an at sign the name of an abstract socket.
fn address(name: &OsStr) -> Option<SocketAddr> {
    match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name).ok(),
        [b'/', ..] => SocketAddr::from_pathname(name).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_paths_or_abstract() {
        let path = address(OsStr::new("/run/systemd/notify"));
        assert!(path.is_some_and(|path| path.as_pathname().is_some()));
        let hidden = address(OsStr::new("@/org/x"));
        assert!(hidden.is_some_and(|hidden| hidden.as_abstract_name() == Some(b"/org/x")));
        assert!(address(OsStr::new("vsock:2:1234")).is_none());
        assert!(address(OsStr::new("")).is_none());
    }
}
