//! The one table of lock-file dialects: for each system, and for each program with conventions of its own,
//! the directories, names and contents of its lock files. All code that writes, searches, lists or removes
//! lock files uses this table. Every row works on every machine. Pure.

pub(crate) mod content;
pub(crate) mod forms;

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use content::ContentForm;
use forms::NameForm;

/// The conventions of one system, or of a program with ways of its own.
///
/// ```
/// use ttylock::Dialect;
///
/// let directory = Dialect::by_name("freebsd").map(Dialect::lock_dir);
/// assert_eq!(directory, Some("/var/spool/lock".as_ref()));
/// ```
#[derive(Debug)]
pub struct Dialect {
    /// The name of the system for `--os`, or of the program.
    name: &'static str,
    of: Of,
    /// The source of these facts.
    source: &'static str,
    /// The directories in which its programs keep locks. Locks for a system are written into the first.
    directories: &'static [&'static str],
    /// The forms of the file names that its programs check, in the order in which they are written. If none of them
    /// has a name for the device (a form by numbers, and the node is gone), [`forms::BASE`] is written.
    pub(crate) forms: &'static [&'static NameForm],
    /// The forms that are written in addition if the kernel's own name of the device is unknown, under which all its
    /// nodes would meet.
    pub(crate) by_number: &'static [&'static NameForm],
    /// The content that its programs write into the file.
    pub(crate) content: ContentForm,
    /// Groups of name beginnings that mean one line: `tty` and `cu` on macOS. What follows them is
    /// the unit.
    pub(crate) families: &'static [&'static [&'static str]],
}

/// The owner of a dialect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Of {
    /// A system, whose locks can be written. They may exist on any machine: programs are ported, and directories shared.
    System,
    /// A system whose locks exist there alone. The row gives the reason: a form that is looked for costs calls with
    /// every lock.
    SystemAtHome,
    /// A program. Its locks are looked for, whatever the system.
    Program,
}

/// The values of the fields that a row leaves out.
const BLANK: Dialect = Dialect {
    name: "",
    of: Of::System,
    source: "",
    directories: &[],
    forms: &[],
    by_number: &[],
    content: ContentForm::Decimal,
    families: &[],
};

const FHS_FORMS: &[&NameForm] = &[&forms::BASE, &forms::UNDERSCORES, &forms::COLONS];

const GENERIC: Dialect = Dialect {
    name: "generic",
    source: "FHS 3.0, section 5.9, with the directory of the BSDs",
    directories: &["/var/spool/lock"],
    forms: FHS_FORMS,
    by_number: &[&forms::NUMBERS],
    ..BLANK
};

/// Every dialect known: the systems in the order in which `--help` names them, then the programs.
static DIALECTS: &[Dialect] = &[
    Dialect {
        name: "linux",
        source: "FHS 3.0, section 5.9; call-out names: Linux before 2.4",
        directories: &["/var/lock", "/run/lock", "/var/run/lock"],
        forms: FHS_FORMS,
        by_number: &[&forms::NUMBERS],
        families: &[&["ttyS", "cua"]],
        ..BLANK
    },
    Dialect {
        name: "freebsd",
        source: "uucplock(3), sio(4), uart(4)",
        directories: &["/var/spool/lock"],
        forms: &[&forms::BASE],
        families: &[&["ttyu", "cuau"], &["ttyU", "cuaU"], &["ttyd", "cuad"]],
        ..BLANK
    },
    Dialect {
        name: "dragonfly",
        source: "uu_lock(3), which is FreeBSD's; sio(4), ucom(4)",
        directories: &["/var/spool/lock"],
        forms: &[&forms::BASE],
        families: &[&["ttyd", "cuaa"], &["ttyU", "cuaU"]],
        ..BLANK
    },
    Dialect {
        name: "netbsd",
        source: "uucplock.c and pathnames.h of its tip(1)",
        directories: &["/var/spool/lock"],
        forms: &[&forms::BASE],
        families: &[&["tty", "dty"]],
        ..BLANK
    },
    Dialect {
        name: "openbsd",
        source: "uucplock.c of its cu(1)",
        directories: &["/var/spool/lock"],
        forms: &[&forms::BASE],
        families: &[&["tty", "cua"]],
        ..BLANK
    },
    Dialect {
        name: "macos",
        source: "C-Kermit's ckutio.c, RXTX",
        directories: &["/var/spool/lock", "/var/spool/uucp", "/var/lock"],
        forms: &[&forms::BASE],
        families: &[&["tty.", "cu."]],
        ..BLANK
    },
    Dialect {
        name: "solaris",
        source: "ulockf.c of its uucp; C-Kermit's ckutio.c",
        directories: &["/var/spool/locks"],
        forms: &[&forms::SVR4],
        ..BLANK
    },
    Dialect {
        name: "illumos",
        source: "usr/src/cmd/bnu/ulockf.c",
        directories: &["/var/spool/locks"],
        forms: &[&forms::SVR4],
        ..BLANK
    },
    Dialect {
        name: "aix",
        source: "ttylock(3)",
        directories: &["/etc/locks"],
        forms: &[&forms::BASE],
        ..BLANK
    },
    Dialect {
        name: "irix",
        source: "C-Kermit's ckutio.c; mgetty's policy.h",
        directories: &["/var/spool/locks", "/usr/spool/locks"],
        forms: &[&forms::BASE],
        families: &[&["ttyd", "ttym", "ttyf"]],
        ..BLANK
    },
    Dialect {
        name: "unixware",
        source: "C-Kermit's ckutio.c; Taylor UUCP",
        directories: &["/var/spool/locks"],
        forms: &[&forms::SVR4],
        ..BLANK
    },
    Dialect {
        name: "tru64",
        source: "locks(4)",
        directories: &["/var/spool/locks"],
        forms: &[&forms::BASE],
        content: ContentForm::Binary,
        ..BLANK
    },
    Dialect {
        name: "qnx",
        // Nodes are those of QNX's own network, and its programs run nowhere else.
        of: Of::SystemAtHome,
        source: "Taylor UUCP's lock.c",
        directories: &["/usr/spool/uucp"],
        forms: &[&forms::QNX_NODE],
        content: ContentForm::DecimalAndNode,
        ..BLANK
    },
    GENERIC,
    Dialect {
        name: "rxtx",
        of: Of::Program,
        source: "its SerialImp.h: where and under which names it looks before it takes a port",
        directories: &[
            "/var/lock",
            "/var/lock/modem",
            "/var/spool/lock",
            "/var/spool/locks",
            "/var/spool/uucp",
            "/usr/spool/locks",
            "/usr/spool/uucp",
            "/usr/spool/uucp/LCK",
            "/usr/spool/kermit",
            "/etc/locks",
        ],
        forms: &[&forms::BASE, &forms::SMALL, &forms::SHORT],
        ..BLANK
    },
    Dialect {
        name: "lockdev",
        of: Of::Program,
        source: "lockdev.c since 2010; the directory is Fedora's",
        directories: &["/var/lock", "/var/lock/lockdev"],
        forms: &[&forms::BASE, &forms::COLONS, &forms::SVR4],
        ..BLANK
    },
    Dialect {
        name: "lockdev 1.0.3",
        of: Of::Program,
        source: "its lockdev.c",
        directories: &["/var/lock"],
        forms: &[&forms::BASE, &forms::COLONS, &forms::CHARACTER_NUMBERS],
        ..BLANK
    },
    Dialect {
        name: "gensio",
        of: Of::Program,
        source: "uucplock.c of 2.7",
        directories: &["/var/lock", "/var/spool/locks"],
        forms: &[&forms::UNDERSCORES, &forms::NUMBERS],
        ..BLANK
    },
    Dialect {
        name: "minicom",
        of: Of::Program,
        source: "its configure script: the first of these that is there",
        directories: &["/var/lock", "/var/run"],
        forms: &[&forms::UNDERSCORES],
        ..BLANK
    },
    Dialect {
        name: "hylafax",
        of: Of::Program,
        source: "its configure script",
        directories: &["/var/lock/uucp", "/usr/spool/lock"],
        forms: &[&forms::BASE],
        ..BLANK
    },
    Dialect {
        name: "apcupsd",
        of: Of::Program,
        source: "its configure script, apcserial.c",
        directories: &["/var/lock", "/etc/apcupsd", "/var/tmp"],
        forms: &[&forms::BASE],
        content: ContentForm::ZeroPadded,
        ..BLANK
    },
    Dialect {
        name: "qt",
        of: Of::Program,
        source: "qserialport_unix.cpp and qlockfile.cpp",
        directories: &["/var/lock", "/tmp"],
        forms: &[&forms::UNDERSCORES],
        content: ContentForm::Line,
        ..BLANK
    },
];

/// The forms of the locks that exist on any machine, once each. They are found when they are first needed.
static MET_ANYWHERE: LazyLock<Vec<&'static NameForm>> = LazyLock::new(|| {
    let mut met: Vec<&NameForm> = Vec::new();
    let anywhere = DIALECTS.iter().filter(|dialect| dialect.of != Of::SystemAtHome);
    for form in anywhere.flat_map(Dialect::all_forms) {
        if !met.iter().any(|known| std::ptr::eq(*known, form)) {
            met.push(form);
        }
    }
    met
});

impl Dialect {
    /// The systems, in the order in which `--help` names them.
    pub fn systems() -> impl Iterator<Item = &'static Self> {
        DIALECTS.iter().filter(|dialect| dialect.of != Of::Program)
    }

    /// The dialect for an unknown system.
    pub(crate) fn generic() -> &'static Self {
        static UNKNOWN: Dialect = GENERIC;
        &UNKNOWN
    }

    /// Finds a system by the name that `--os` takes.
    #[must_use]
    pub fn by_name(name: &str) -> Option<&'static Self> {
        Self::systems().find(|system| system.name == name)
    }

    /// Every directory in which a program of any system leaves lock files. Several names may lead to the same
    /// directory; that is noticed when they are opened.
    #[must_use]
    pub fn known_directories() -> Vec<PathBuf> {
        // As text: two paths are compared part by part, some hundred times here.
        let mut known: Vec<&str> = Vec::new();
        for directory in DIALECTS.iter().flat_map(|dialect| dialect.directories) {
            if !known.contains(directory) {
                known.push(directory);
            }
        }
        known.into_iter().map(PathBuf::from).collect()
    }

    /// Those of them that nothing but locks is kept in: also what a program makes there on the way to a lock is
    /// part of one. Allocates nothing.
    pub fn lock_directories() -> impl Iterator<Item = &'static str> {
        let all = DIALECTS.iter().flat_map(|dialect| dialect.directories).copied();
        all.filter(|directory| ["lock", "locks"].contains(&forms::base(directory)))
    }

    /// What `--os` calls it.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The source of its facts.
    #[must_use]
    pub fn source(&self) -> &'static str {
        self.source
    }

    /// Where its programs write locks.
    #[must_use]
    pub fn lock_dir(&self) -> &'static Path {
        Path::new(self.directories.first().copied().unwrap_or_default())
    }

    /// The forms of the names under which a lock may be met on this system, its own first.
    pub(crate) fn forms_met(&self) -> impl Iterator<Item = &'static NameForm> + Clone {
        let is_own = |form: &&NameForm| self.all_forms().any(|own| std::ptr::eq(own, *form));
        self.all_forms().chain(MET_ANYWHERE.iter().copied().filter(move |form| !is_own(form)))
    }

    /// The forms of all dialects; some come more than once.
    pub(crate) fn forms_anywhere() -> impl Iterator<Item = &'static NameForm> {
        DIALECTS.iter().flat_map(Self::all_forms)
    }

    fn all_forms(&self) -> impl Iterator<Item = &'static NameForm> + Clone + use<> {
        self.forms.iter().chain(self.by_number).copied()
    }
}

#[cfg(test)]
mod tests;
