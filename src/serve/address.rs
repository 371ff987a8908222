//! Where a daemon listens, as it is written: `127.0.0.1:50001`, `[::1]:50001`, `unix:PATH`. Never an
//! address that other hosts can reach. Text in, address out.
//!
//! Pure.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

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
    use rstest::rstest;

    use super::*;

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
