//! Listening sockets: opened by a daemon, or passed by systemd or inetd. Also the addresses of a daemon as text:
//! `127.0.0.1:50001`, `[::1]:50001`, `unix:PATH`. Never an address that other hosts can reach.
//!
//! Never takes a Unix socket from a daemon that is running.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::{fmt, io};

use nix::fcntl::AT_FDCWD;
use nix::sys::socket::{self, Backlog, SockType, sockopt};
use nix::sys::stat::{FchmodatFlags, Mode, fchmodat};

/// An open listening socket.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: OwnedFd,
    /// Whether we made it, or it was handed over.
    pub origin: SocketOrigin,
}

/// Where a listening socket comes from.
#[derive(Debug)]
pub(crate) enum SocketOrigin {
    /// Opened here; a Unix socket with its file, which goes when the daemon ends in order.
    Ours(Option<SocketFile>),
    /// Handed over by a super-server, which goes on listening when the daemon has ended.
    HandedOver,
}

/// The name of a Unix socket: which file it is, so that no other is ever removed.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

/// As many waiting connections as the kernel allows. The C library's `SOMAXCONN` may be less: 128 in musl.
#[cfg(any(target_os = "linux", target_os = "freebsd"))]
const BACKLOG: Backlog = Backlog::MAXALLOWABLE;
#[cfg(not(any(target_os = "linux", target_os = "freebsd")))]
const BACKLOG: Backlog = Backlog::MAXCONN;

/// Listens on a Unix socket. A socket file to which nobody can connect was left by a daemon that was killed, and is
/// replaced.
fn listen_unix(path: &Path) -> io::Result<(UnixListener, SocketFile)> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
        Ok(file) if !file.file_type().is_socket() => {
            let text = "the file there is not a socket";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
        }
        Ok(_) => match UnixStream::connect(path) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                std::fs::remove_file(path)?;
            }
            // A full backlog is a sign of life too.
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            Ok(_) | Err(_) => return Err(io::ErrorKind::AddrInUse.into()),
        },
    }
    let listener = UnixListener::bind(path)?;
    // All may connect. The process's umask is not touched: other threads make files and directories with it.
    fchmodat(AT_FDCWD, path, Mode::from_bits_truncate(0o666), FchmodatFlags::NoFollowSymlink)?;
    let file = std::fs::symlink_metadata(path)?;
    let file = SocketFile { path: path.to_owned(), device: file.dev(), inode: file.ino() };
    Ok((listener, file))
}

impl SocketFile {
    /// Removes the socket's name, if it is still this socket's.
    pub(crate) fn remove(&self) {
        let seen = std::fs::symlink_metadata(&self.path);
        if seen.is_ok_and(|seen| (seen.dev(), seen.ino()) == (self.device, self.inode)) {
            // What stays is found to be left over by the next one.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl Listener {
    /// Begins to listen.
    ///
    /// # Errors
    /// The system's, or [`io::ErrorKind::AddrInUse`] when somebody listens there already.
    pub(crate) fn at(address: &Address) -> io::Result<Self> {
        let (socket, file) = match address {
            Address::Loopback(address) => (OwnedFd::from(TcpListener::bind(address)?), None),
            Address::Unix(path) => {
                let (listener, file) = listen_unix(path)?;
                (listener.into(), Some(file))
            }
        };
        // The standard library asks for room for 128 waiting connections.
        socket::listen(&socket, BACKLOG)?;
        Ok(Self { socket, origin: SocketOrigin::Ours(file) })
    }

    /// A socket that was handed over, if it is a listening stream socket.
    #[must_use]
    pub(crate) fn handed_over(socket: OwnedFd) -> Option<Self> {
        is_listening(&socket).then_some(Self { socket, origin: SocketOrigin::HandedOver })
    }

    /// The next connection, without waiting if [`Listener::never_wait`] was called.
    ///
    /// # Errors
    /// The system's; [`io::ErrorKind::WouldBlock`] when there is none.
    #[cfg(target_os = "linux")]
    pub(crate) fn accept(&self) -> io::Result<OwnedFd> {
        use rustix::net::{SocketFlags, accept_with};
        Ok(accept_with(&self.socket, SocketFlags::CLOEXEC)?)
    }

    /// Makes [`Listener::accept`] never wait.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn never_wait(&self) -> io::Result<()> {
        Ok(rustix::io::ioctl_fionbio(&self.socket, true)?)
    }
}

/// Whether it is a listening stream socket. A connection, which nearly every session under inetd has, shows it first.
fn is_listening(socket: &impl AsFd) -> bool {
    socket::getsockopt(socket, sockopt::AcceptConn) == Ok(true)
        && socket::getsockopt(socket, sockopt::SockType) == Ok(SockType::Stream)
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Every listening socket that systemd handed over (sd_listen_fds(3)). A connection that it
/// handed over (`Accept=yes`) is none; it is on descriptor 0 as well.
#[must_use]
pub(crate) fn from_systemd() -> Vec<Listener> {
    let mut handed = listenfd::ListenFd::from_env();
    (0..handed.len())
        .filter_map(|place| {
            let tcp = handed.take_tcp_listener(place).ok().flatten().map(OwnedFd::from);
            let unix = || handed.take_unix_listener(place).ok().flatten().map(OwnedFd::from);
            tcp.or_else(unix)
        })
        .filter_map(Listener::handed_over)
        .collect()
}

/// The listening socket that inetd handed over as descriptor 0 (`wait`), if it is one.
#[must_use]
pub(crate) fn from_inetd() -> Option<Listener> {
    // Not by `io::stdin()`, which makes a buffer.
    let input = rustix::stdio::stdin();
    let socket = is_listening(&input).then(|| input.try_clone_to_owned().ok());
    Listener::handed_over(socket??)
}

/// An address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    /// TCP on loopback.
    Loopback(SocketAddr),
    /// A Unix socket: made with mode 0666, for everybody on this host may ask, as on loopback;
    /// the rights of each client depend on its user. The directory's mode can keep users out.
    Unix(PathBuf),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            let path = PathBuf::from(path);
            let named = path.is_absolute() && path.file_name().is_some();
            return named.then_some(Self::Unix(path)).ok_or("needs unix:/ABSOLUTE/PATH".to_owned());
        }
        let address: SocketAddr =
            text.parse().map_err(|_| "needs ADDRESS:PORT, [ADDRESS]:PORT or unix:PATH")?;
        if !address.ip().is_loopback() {
            return Err("is not a loopback address, and the protocol has no passwords".to_owned());
        }
        Ok(Self::Loopback(address))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Loopback(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use rstest::rstest;

    use super::*;

    fn connects(path: &Path) -> bool {
        UnixStream::connect(path).is_ok()
    }

    #[test]
    fn a_unix_socket_is_open_to_all_and_goes_with_its_daemon() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("socket");
        let listener = Listener::at(&Address::Unix(path.clone())).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o666);
        assert!(connects(&path));
        let SocketOrigin::Ours(Some(file)) = &listener.origin else { panic!("a file") };
        file.remove();
        assert!(!path.exists());
        // What has the name now is another's.
        std::fs::write(&path, "x").unwrap();
        file.remove();
        assert!(path.exists());
    }

    #[rstest]
    #[case::file(|path: &Path| std::fs::write(path, "precious").unwrap())]
    #[case::link(|path: &Path| std::os::unix::fs::symlink("/nowhere", path).unwrap())]
    #[case::directory(|path: &Path| std::fs::create_dir(path).unwrap())]
    fn a_file_that_is_no_socket_stays(#[case] plant: fn(&Path)) {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("socket");
        plant(&path);
        let refused = Listener::at(&Address::Unix(path.clone()));
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert!(std::fs::symlink_metadata(&path).is_ok());
    }

    #[rstest]
    #[case::v4("127.0.0.1:50001")]
    #[case::v4_other("127.8.9.1:0")]
    #[case::v6("[::1]:50001")]
    #[case::unix("unix:/run/lfpd/socket")]
    fn addresses(#[case] text: &str) {
        assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
    }

    #[rstest]
    #[case::all("0.0.0.0:50001")]
    #[case::all_v6("[::]:50001")]
    #[case::other("192.0.2.1:50001")]
    #[case::mapped("[::ffff:192.0.2.1]:50001")]
    #[case::name("localhost:50001")]
    #[case::no_port("127.0.0.1")]
    #[case::bad_port("127.0.0.1:65536")]
    #[case::relative("unix:socket")]
    #[case::no_path("unix:")]
    #[case::directory("unix:/")]
    #[case::empty("")]
    fn no_addresses(#[case] text: &str) {
        assert!(text.parse::<Address>().is_err());
    }
}
