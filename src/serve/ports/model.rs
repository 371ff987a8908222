//! What `--exclusive` and `--watch-opens` ask for. Pure.

use ttylock::{DeviceName, ResolvedDevice};

/// Whether a daemon watches which processes open ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opens {
    /// No.
    Ignored,
    /// A port that is held open without a lock gets one.
    Watched,
}

/// Which ports a daemon makes exclusive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Exclusive {
    /// No port.
    #[default]
    Never,
    /// The ports locked through this daemon, except these.
    Locked {
        /// By any of their names.
        except: Vec<DeviceName>,
    },
}

impl Exclusive {
    /// Whether a port is made exclusive when it is locked. Pseudo-terminals are not: they keep the mode after the
    /// last close, and nothing would end it if the daemon were killed.
    pub(super) fn applies_to(&self, port: &ResolvedDevice) -> bool {
        let Self::Locked { except } = self else { return false };
        let is_exempt = |name: &str| except.iter().any(|it| it.as_str() == name);
        let device = port.node.and_then(|node| node.device);
        device.is_some_and(|device| !device.is_pseudo_terminal())
            && !port.every_name().any(is_exempt)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use ttylock::{Node, Numbers};

    use super::*;

    #[rstest]
    #[case::a_serial_port(4, "ttyS0", true)]
    #[case::an_adapter(188, "ttyUSB0", true)]
    #[case::exempt_by_its_own_name(188, "ttyUSB7", false)]
    #[case::exempt_by_a_link(188, "ttyUSB8", false)]
    #[case::a_pseudo_terminal(136, "pts/0", false)]
    fn only_serial_ports_without_exemption_are_made_exclusive(
        #[case] major: u64,
        #[case] name: &str,
        #[case] applies: bool,
    ) {
        let file_system = Numbers { major: 0, minor: 5 };
        let device = Some(Numbers { major, minor: 1 });
        let link = if name == "ttyUSB8" { "modem" } else { "other" };
        let port = ResolvedDevice {
            names: vec![name.to_owned()],
            links: vec![link.to_owned()],
            node: Some(Node { file_system, inode: 9, device }),
            access: None,
            kernel_name: None,
            namesakes: Vec::new(),
        };
        let except = ["/dev/ttyUSB7", "modem"].map(|it| it.parse().unwrap()).to_vec();
        assert_eq!(Exclusive::Locked { except }.applies_to(&port), applies);
        assert!(!Exclusive::Never.applies_to(&port));
        assert!(
            !Exclusive::Locked { except: Vec::new() }
                .applies_to(&ResolvedDevice { node: None, ..port })
        );
    }
}
