//! The programs: how each is run, and what it does. Data only.
//!
//! `{dev}` stands for the port, `{lock}` for the lock file that FHS has programs use for it. A command is a line with blanks
//! between its words; a word with blanks of its own stands between single quotes.

use testbed::User;

use crate::bench::Mark;

/// One program, and what is known of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Program {
    /// What people call it.
    pub(crate) name: &'static str,
    /// Its command, which takes the port and keeps it.
    pub(crate) command: &'static str,
    /// For a server that takes the port for its clients: the server. Then `command` is a client.
    pub(crate) server: &'static str,
    /// A file that has to be compiled before: its path, and the command that makes it.
    pub(crate) compiled: Option<(&'static str, &'static str)>,
    /// Files it needs, by path and content.
    pub(crate) files: &'static [(&'static str, &'static str)],
    /// Who runs it.
    pub(crate) user: User,
    /// What it must have for input.
    pub(crate) input: Input,
    /// How one sees that it has the port.
    pub(crate) mark: Mark,
    /// The text by which it says that it has the port, if it opens and closes the port a few times before.
    pub(crate) says: Option<&'static str>,
    /// How one sees that it waits for the port: a file, and what it says in it.
    pub(crate) waits: Option<(&'static str, &'static str)>,
    /// What it does.
    pub(crate) row: Row,
}

/// What a program must have for input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    /// A pipe that stays open.
    Pipe,
    /// A terminal of its own.
    Terminal,
}

/// What happened in the four scenes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// (a) `lfpd` has the port, the program is started.
    pub(crate) lfpd_holds: Deed,
    /// (b) the program has the port: LOCK.
    pub(crate) program_holds: u32,
    /// (c) the program was killed with SIGKILL: LOCK.
    pub(crate) program_killed: u32,
    /// (d) the process `lfpd` locked for has died, the program is started.
    pub(crate) holder_died: Deed,
}

/// What a program did about the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    /// Took it.
    Starts,
    /// Took it although `lfpd` had it, and left `lfpd`'s lock file alone.
    StartsBesides,
    /// Took it although `lfpd` had it, and removed `lfpd`'s lock file.
    Steals,
    /// Ended with this code after saying this.
    Refuses(i32, &'static str),
    /// Did not, as long as the dead lock was there, and took it once `lfpd` had removed that
    /// (on UNLOCK, or with its next LOCK).
    StartsWhenCleared,
    /// Told its client this.
    TellsClient(&'static str),
    /// Keeps waiting, and says this in its log.
    Waits(&'static str),
}

const USUAL: Program = Program {
    name: "",
    command: "",
    server: "",
    compiled: None,
    files: &[],
    user: User::Root,
    input: Input::Pipe,
    mark: Mark::LockFile,
    says: None,
    waits: None,
    row: Row {
        lfpd_holds: Deed::Starts,
        program_holds: 450,
        program_killed: 200,
        holder_died: Deed::Starts,
    },
};

const fn refuses(code: i32, says: &'static str) -> Row {
    Row { lfpd_holds: Deed::Refuses(code, says), ..USUAL.row }
}

/// Programs that never look whether the process behind a lock file is alive.
const fn refuses_for_ever(code: i32, says: &'static str) -> Row {
    Row { lfpd_holds: Deed::Refuses(code, says), holder_died: Deed::StartsWhenCleared, ..USUAL.row }
}

/// Programs that use flock(2) on the port, and do not know of lock files.
const FLOCK: Program = Program {
    mark: Mark::Flock,
    row: Row { lfpd_holds: Deed::StartsBesides, ..USUAL.row },
    ..USUAL
};

pub(crate) const MINICOM: Program = Program {
    name: "minicom",
    command: "minicom -D {dev} -b 9600",
    row: refuses(1, "Device /dev/ttyW0 is locked."),
    ..USUAL
};

/// It looks at no lock file, and makes none.
pub(crate) const MINICOM_O: Program = Program {
    name: "minicom -o",
    command: "minicom -o -D {dev} -b 9600",
    mark: Mark::Open,
    row: Row { lfpd_holds: Deed::StartsBesides, program_holds: 200, ..USUAL.row },
    ..USUAL
};

pub(crate) const CU: Program = Program {
    name: "cu (Taylor UUCP)",
    command: "cu -l {dev} -s 9600",
    row: refuses(1, "cu: /dev/ttyW0: Line in use"),
    ..USUAL
};

pub(crate) const KERMIT: Program = Program {
    name: "C-Kermit",
    command: "kermit -l {dev} -b 9600 -C 'pause 600, exit'",
    row: refuses(1, "can't open device"),
    ..USUAL
};

pub(crate) const PPPD: Program = Program {
    name: "pppd",
    // The connect script keeps it before the line discipline, which a pseudo-terminal lacks.
    command: "pppd {dev} 9600 lock local noauth nodetach logfd 2 connect 'sleep 600'",
    row: refuses(6, "is locked by pid"),
    ..USUAL
};

pub(crate) const MGETTY: Program = Program {
    name: "mgetty",
    // It locks while it talks to the modem; one that never answers gives it long to talk.
    command: "mgetty -x 9 {dev}",
    waits: Some(("/var/log/mgetty/mg_{name}.log", "dialout in progress: 'sleep 1000'!")),
    row: Row { lfpd_holds: Deed::Waits("dialout in progress: 'sleep 1000'!"), ..USUAL.row },
    ..USUAL
};

pub(crate) const SER2NET: Program = Program {
    name: "ser2net",
    // Locks are its default for serial ports, but not for what it knows for a pseudo-terminal.
    server: "ser2net -n -d -c /tmp/ser2net.yaml",
    command: "socat - TCP:127.0.0.1:3000",
    files: &[(
        "/tmp/ser2net.yaml",
        "%YAML 1.1\n---\nconnection: &one\n  accepter: tcp,127.0.0.1,3000\n  \
         connector: serialdev(nouucplock=false),{dev},9600n81,local\n",
    )],
    row: Row {
        lfpd_holds: Deed::TellsClient("Device open failure: Object was already in use"),
        ..USUAL.row
    },
    ..USUAL
};

pub(crate) const GENSIOT: Program = Program {
    name: "gensiot",
    command: "gensiot -i stdio(self) serialdev(nouucplock=false),{dev},9600n81,local",
    row: refuses(1, "Object was already in use"),
    ..USUAL
};

pub(crate) const MICROCOM: Program = Program {
    name: "microcom",
    command: "microcom -p {dev}",
    row: refuses_for_ever(3, "Exitcode 3 - lockfile for port exists"),
    ..USUAL
};

pub(crate) const BUSYBOX: Program = Program {
    name: "busybox microcom",
    command: "busybox microcom -s 9600 {dev}",
    row: refuses_for_ever(1, "microcom: can't create '/var/lock/LCK..ttyW0': File exists"),
    ..USUAL
};

pub(crate) const RXTX: Program = Program {
    name: "RXTX (Java)",
    compiled: Some((
        "/tmp/HoldPort.class",
        "javac -cp /usr/share/java/RXTXcomm.jar -d /tmp /run/test/programs/HoldPort.java",
    )),
    command: "java -Xint -Djava.library.path=/usr/lib/jni -cp /usr/share/java/RXTXcomm.jar:/tmp HoldPort {dev}",
    // It opens every port that it looks for, to see whether it is there.
    says: Some("OPENED"),
    row: refuses(4, "NO SUCH PORT"),
    ..USUAL
};

pub(crate) const QT: Program = Program {
    name: "QtSerialPort (ordinary user)",
    command: "/usr/bin/python3 /run/test/programs/hold_qt.py {dev}",
    user: User::Alice,
    // It would break the dead lock, but may not remove the service's file from the directory.
    row: refuses_for_ever(1, "Permission error while locking the device"),
    ..USUAL
};

pub(crate) const QT_AS_ROOT: Program = Program {
    name: "QtSerialPort (root)",
    user: User::Root,
    // Takes any lock without its own second line for one whose process is gone.
    row: Row { lfpd_holds: Deed::Steals, ..USUAL.row },
    ..QT
};

pub(crate) const GAMMU: Program = Program {
    name: "gammu",
    command: "gammu -c /tmp/gammurc identify",
    files: &[("/tmp/gammurc", "[gammu]\nport = {dev}\nconnection = at9600\nuse_locking = yes\n")],
    row: refuses(103, "Error opening device, it is locked."),
    ..USUAL
};

pub(crate) const GNOKII: Program = Program {
    name: "gnokii",
    command: "gnokii --config /tmp/gnokiirc --identify",
    files: &[(
        "/tmp/gnokiirc",
        "[global]\nport = {dev}\nmodel = AT\nconnection = serial\nuse_locking = yes\n",
    )],
    row: refuses(255, "Device already locked"),
    ..USUAL
};

pub(crate) const APCUPSD: Program = Program {
    name: "apcupsd",
    command: "apcupsd -b -f /tmp/apcupsd.conf",
    files: &[(
        "/tmp/apcupsd.conf",
        "UPSCABLE smart\nUPSTYPE apcsmart\nDEVICE {dev}\nLOCKFILE /var/lock\n\
         SCRIPTDIR /etc/apcupsd\nPWRFAILDIR /tmp\nNOLOGINDIR /tmp\nNETSERVER off\n\
         STATFILE /tmp/status\nEVENTSFILE /tmp/events\n",
    )],
    row: refuses(1, "Unable to create UPS lock file."),
    ..USUAL
};

pub(crate) const SOCAT: Program = Program {
    name: "socat -L",
    command: "socat -u -L {lock} - {dev},raw",
    // Its lock file has mode 0600, and what cannot be read is never taken for dead.
    row: Row { program_killed: 450, ..refuses_for_ever(1, "could not obtain lock") },
    ..USUAL
};

pub(crate) const PICOCOM: Program =
    Program { name: "picocom", command: "picocom -b 9600 {dev}", ..FLOCK };

pub(crate) const TIO: Program =
    Program { name: "tio", command: "tio -b 9600 {dev}", input: Input::Terminal, ..FLOCK };

pub(crate) const MINITERM: Program = Program {
    name: "miniterm (pyserial)",
    command: "/usr/bin/python3 -m serial.tools.miniterm {dev} 9600",
    input: Input::Terminal,
    ..FLOCK
};

pub(crate) const PYSERIAL: Program = Program {
    name: "pyserial, exclusive=True",
    command: "/usr/bin/python3 /run/test/programs/hold_pyserial.py {dev}",
    ..FLOCK
};

/// tio that ends instead of waiting for a port that it may not open.
pub(crate) const TIO_ONCE: Program = Program { command: "tio -n -b 9600 {dev}", ..TIO };

pub(crate) const PYSERIAL_PLAIN: Program = Program {
    name: "pyserial",
    command: "/usr/bin/python3 -c 'import serial, sys; port = serial.Serial(sys.argv[1]); sys.stdin.read()' {dev}",
    mark: Mark::Open,
    ..FLOCK
};

pub(crate) const RUST: Program =
    Program { name: "serialport (Rust)", command: "/run/test/hold-serialport {dev}", ..FLOCK };

/// A program that locks by the library before it opens the port.
pub(crate) const LOCKED: Program = Program {
    name: "lfp and serialport (Rust)",
    command: "/run/test/locked {dev}",
    mark: Mark::LockFile,
    ..FLOCK
};

pub(crate) const LOCKED_ASYNC: Program = Program {
    name: "lfp and tokio-serial (Rust)",
    command: "/run/test/locked {dev} async",
    ..LOCKED
};

pub(crate) const NODE: Program = Program {
    name: "serialport (Node)",
    command: "node /run/test/programs/hold_serialport.js {dev}",
    ..FLOCK
};

/// Home Assistant's library.
pub(crate) const SERIALX: Program = Program {
    name: "serialx",
    command: "env PYTHONPATH=/run/test/serialx:/run/test/python-tools \
              /usr/bin/python3 /run/test/programs/hold_serialx.py {dev}",
    ..FLOCK
};

/// There is no board that answers; it asks until it is killed.
pub(crate) const ESPTOOL: Program = Program {
    name: "esptool",
    command: "env PYTHONPATH=/run/test/esptool PYTHONDONTWRITEBYTECODE=1 /usr/bin/python3 -m esptool --port {dev} \
              --before no-reset --connect-attempts 0 chip-id",
    ..FLOCK
};

/// Debian's descendant of the library that arduino-cli uses. Both set the exclusive mode, and take no lock.
pub(crate) const GO: Program = Program {
    name: "go-serial (Go)",
    compiled: Some((
        "/tmp/hold-go",
        "env HOME=/tmp GO111MODULE=off GOPATH=/usr/share/gocode go build -o /tmp/hold-go /run/test/programs/hold_serial.go",
    )),
    command: "/tmp/hold-go {dev}",
    mark: Mark::Open,
    row: Row { program_holds: 200, ..FLOCK.row },
    ..FLOCK
};

pub(crate) const SOCAT_PLAIN: Program =
    Program { name: "socat", command: "socat - {dev},raw", mark: Mark::Open, ..FLOCK };

pub(crate) const SHELL: Program =
    Program { name: "a shell", command: "sh -c 'exec cat <$0' {dev}", mark: Mark::Open, ..FLOCK };

/// A program that no library can be loaded into.
pub(crate) const STATIC: Program = Program {
    name: "a static C program",
    compiled: Some(("/tmp/hold", "cc -static -o /tmp/hold /run/test/programs/hold.c")),
    command: "/tmp/hold {dev}",
    mark: Mark::Open,
    ..FLOCK
};

/// A program that calls no C library. Its code is the error's number.
pub(crate) const RAW: Program = Program {
    name: "a static program without libc",
    compiled: Some((
        "/tmp/hold-raw",
        "cc -static -nostdlib -fno-stack-protector -o /tmp/hold-raw /run/test/programs/hold_raw.c",
    )),
    command: "/tmp/hold-raw {dev}",
    ..STATIC
};

/// There is no board that answers; it asks for a while.
pub(crate) const AVRDUDE: Program = Program {
    name: "avrdude",
    command: "avrdude -p m328p -c arduino -x attempts=999 -P {dev}",
    mark: Mark::Open,
    ..FLOCK
};

/// Without a terminal of its own. Where the port is refused, it ends and says nothing.
pub(crate) const SCREEN: Program = Program {
    name: "screen",
    command: "sh -c 'SCREENDIR=$(mktemp -d) && export SCREENDIR && exec screen -D -m $0 9600' {dev}",
    mark: Mark::Open,
    ..FLOCK
};

/// Every row of the table, in its order.
pub(crate) const ALL: &[Program] = &[
    MINICOM, CU, KERMIT, PPPD, MGETTY, SER2NET, GENSIOT, MICROCOM, BUSYBOX, RXTX, QT, QT_AS_ROOT,
    GAMMU, GNOKII, APCUPSD, SOCAT, PICOCOM, TIO, MINITERM, PYSERIAL, SERIALX, ESPTOOL, NODE, RUST,
    MINICOM_O, GO,
];
