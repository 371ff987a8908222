//! The table of systems: where each Unix keeps its lock files, what they are called and what they
//! say. Data only; every profile works on every machine.
//!
//! Sources: FHS 3.0 section 5.9; the lock code of C-Kermit, Taylor UUCP, pppd, mgetty, HylaFAX,
//! RXTX, tip and cu of the BSDs and of illumos; locks(4) of Tru64; ttylock(3) of AIX.

use std::path::PathBuf;

/// The conventions of one system.
#[derive(Debug, PartialEq, Eq)]
pub struct System {
    /// What `--os` calls it.
    pub name: &'static str,
    /// Where its programs write locks.
    pub lock_dir: &'static str,
    /// The file names its programs look at, in the order they are written. A form that needs
    /// device numbers gives way to [`NameForm::Base`] where the node is gone.
    pub written: &'static [NameForm],
    /// What its programs put into the file.
    pub content: Content,
    /// How its programs spell device names in lock file names.
    pub case: Case,
    /// Groups of name beginnings that mean one line: `tty` and `cu` on macOS. What follows them is
    /// the unit.
    pub families: &'static [&'static [&'static str]],
    /// Whether a dial-out name is locked under the dial-in name too, as HP-UX programs do:
    /// the first member of the family is the dial-in name.
    pub dial_in_too: DialIn,
}

/// One convention for the name of a lock file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameForm {
    /// `LCK..` and the last part of the device name (FHS).
    Base,
    /// `LCK..` and the name below `/dev` with `_` for `/`; the same as `Base` outside directories.
    Underscore,
    /// The same with `:` for `/` (liblockdev).
    Colon,
    /// `LK.%03u.%03u.%03u`: major number of the file system, major and minor of the device (SVR4).
    Svr4,
    /// `LCK.%03u.%03u`: major and minor number of the device (gensio), where the kernel does not tell
    /// its own name of the device, by which all its nodes would meet.
    Numbers,
    /// `LCK..` and the node number 0 (this node), a dot and the last part (QNX).
    QnxNode,
}

/// What a lock file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// The pid in ten decimal digits, blanks in front, and a newline (HDB UUCP, FHS).
    Decimal,
    /// The pid as a four-byte integer in the machine's byte order (V2 UUCP).
    Binary,
    /// Pid and node number, both as in `Decimal`, with a blank between (QNX).
    DecimalAndNode,
}

/// How a system spells names in lock files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    /// As the device is called.
    FlockGuards,
    /// All lower case (SCO OpenServer 5).
    Lower,
}

/// Whether dial-out devices are locked under their dial-in names as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DialIn {
    /// Each name stands for itself.
    Apart,
    /// Both are written.
    Both,
}

const FHS_FORMS: &[NameForm] =
    &[NameForm::Base, NameForm::Underscore, NameForm::Colon, NameForm::Numbers];
const SVR4_FORMS: &[NameForm] = &[NameForm::Svr4];
const BASE_FORM: &[NameForm] = &[NameForm::Base];

/// Names on Linux before 2.4, when every serial line had a call-out device.
const LINUX_LINES: &[&[&str]] = &[&["ttyS", "cua"]];

const PLAIN: System = System {
    name: "generic",
    lock_dir: "/var/spool/lock",
    written: FHS_FORMS,
    content: Content::Decimal,
    case: Case::FlockGuards,
    families: &[],
    dial_in_too: DialIn::Apart,
};

/// Every system known, in the order `--help` names them.
pub const SYSTEMS: &[System] = &[
    System { name: "linux", lock_dir: "/var/lock", families: LINUX_LINES, ..PLAIN },
    System {
        name: "freebsd",
        written: BASE_FORM,
        families: &[&["ttyu", "cuau"], &["ttyU", "cuaU"], &["ttyd", "cuad"]],
        ..PLAIN
    },
    // Its uu_lock(3) is FreeBSD's; names of lines: sio(4), ucom(4).
    System {
        name: "dragonfly",
        written: BASE_FORM,
        families: &[&["ttyd", "cuaa"], &["ttyU", "cuaU"]],
        ..PLAIN
    },
    System { name: "netbsd", written: BASE_FORM, families: &[&["tty", "dty"]], ..PLAIN },
    System { name: "openbsd", written: BASE_FORM, families: &[&["tty", "cua"]], ..PLAIN },
    System { name: "macos", written: BASE_FORM, families: &[&["tty.", "cu."]], ..PLAIN },
    System { name: "solaris", lock_dir: "/var/spool/locks", written: SVR4_FORMS, ..PLAIN },
    System { name: "illumos", lock_dir: "/var/spool/locks", written: SVR4_FORMS, ..PLAIN },
    System { name: "aix", lock_dir: "/etc/locks", written: BASE_FORM, ..PLAIN },
    System {
        name: "hp-ux",
        lock_dir: "/var/spool/locks",
        written: BASE_FORM,
        content: Content::Binary,
        families: &[&["ttyd", "tty", "cul", "cuad", "cua", "culd"]],
        dial_in_too: DialIn::Both,
        ..PLAIN
    },
    System {
        name: "irix",
        lock_dir: "/var/spool/locks",
        written: BASE_FORM,
        families: &[&["ttyd", "ttym", "ttyf"]],
        ..PLAIN
    },
    System {
        name: "sco",
        lock_dir: "/usr/spool/uucp",
        written: BASE_FORM,
        case: Case::Lower,
        ..PLAIN
    },
    System { name: "unixware", lock_dir: "/var/spool/locks", written: SVR4_FORMS, ..PLAIN },
    System {
        name: "tru64",
        lock_dir: "/var/spool/locks",
        written: BASE_FORM,
        content: Content::Binary,
        ..PLAIN
    },
    System {
        name: "qnx",
        lock_dir: "/usr/spool/uucp",
        written: &[NameForm::QnxNode],
        content: Content::DecimalAndNode,
        ..PLAIN
    },
    PLAIN,
];

/// Every directory in which some program on some system has left lock files. Many are the same
/// directory under several names; they are told apart when they are opened.
pub const KNOWN_DIRECTORIES: &[&str] = &[
    "/var/lock",
    "/run/lock",
    "/var/lock/lockdev",
    "/var/lock/uucp",
    "/var/lock/modem",
    "/var/spool/lock",
    "/var/spool/locks",
    "/var/spool/uucp",
    "/usr/spool/lock",
    "/usr/spool/locks",
    "/usr/spool/uucp",
    "/usr/spool/uucp/LCK",
    "/usr/spool/kermit",
    "/etc/locks",
    "/etc/apcupsd",
    "/var/run",
    "/var/tmp",
    "/tmp",
];

/// Finds a system by the name that `--os` takes.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static System> {
    SYSTEMS.iter().find(|system| system.name == name)
}

/// The system this program was built for.
#[must_use]
pub fn native() -> &'static System {
    static GENERIC: System = PLAIN;
    by_name(std::env::consts::OS).unwrap_or(&GENERIC)
}

impl System {
    /// The directories searched when no option replaces them.
    #[must_use]
    pub fn default_search_dirs(&self) -> Vec<PathBuf> {
        KNOWN_DIRECTORIES.iter().map(PathBuf::from).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_system_has_its_own_name() {
        let mut names: Vec<_> = SYSTEMS.iter().map(|system| system.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), SYSTEMS.len());
    }

    #[test]
    fn every_lock_directory_is_searched_from_every_system() {
        for system in SYSTEMS {
            assert!(KNOWN_DIRECTORIES.contains(&system.lock_dir), "{}", system.name);
        }
    }

    #[test]
    fn this_machine_is_one_of_them() {
        assert_eq!(native().name, std::env::consts::OS);
    }
}
