//! A machine with a closed lock directory, the service, and the library.

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Mutex;

use testbed::{Command, LIMIT, Layout, Process, Sandbox, User, until};

pub(crate) const PORT: &str = "/dev/ttyW0";
pub(crate) const OTHER_PORT: &str = "/dev/ttyW1";
pub(crate) const LOCK: &str = "/run/lock/LCK..ttyW0";
pub(crate) const LIBRARY: &str = "/run/test/liblfp_preload.so";

/// A program that opens and closes the port and other files, and makes and removes the lock file, as it is told line by
/// line; behind `thread`, in a thread.
pub(crate) const TOLD: &str = "
import os, sys, errno, threading
fds = []
def do(word):
    try:
        if word == 'open': fds.append(os.open('/dev/ttyW0', os.O_RDWR | os.O_NOCTTY))
        if word == 'close': os.close(fds.pop())
        if word == 'other': os.close(os.open('/dev/null', os.O_RDONLY))
        if word == 'take': os.close(os.open(LOCK, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
        if word == 'write': os.close(os.open(LOCK, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o644))
        if word == 'give': os.unlink(LOCK)
        if word == 'look': os.stat(LOCK)
        print('did', word, flush=True)
    except OSError as error: print(errno.errorcode[error.errno], word, flush=True)
LOCK = '/run/lock/LCK..ttyW0'
for line in sys.stdin:
    thread, _, word = line.strip().rpartition(' ')
    if thread: threading.Thread(target=do, args=[word]).start()
    else: do(word)
";

/// One line, and the answer to it.
pub(crate) fn say(program: &mut Process<'_>, word: &str) -> String {
    let before = program.output().lines().filter(|line| line.ends_with(word)).count();
    program.type_in(&format!("{word}\n"));
    let said = || {
        let output = program.output();
        let mut answers = output.lines().filter(|line| line.ends_with(word)).map(str::to_owned);
        answers.nth(before)
    };
    until(LIMIT, said).unwrap_or_default()
}

/// A program or library of these tests in C, compiled outside; each is compiled once, for the first test that asks.
#[expect(clippy::expect_used, reason = "a machine on which the tests cannot run")]
fn compiled(name: &str, options: &[&str]) -> PathBuf {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/preload/{name}.c"));
    let made =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    if !made.exists() {
        let mut compiler = std::process::Command::new("cc");
        compiler.args(["-w", "-O1", "-pthread"]).args(options).arg("-o");
        let end = compiler.arg(&made).arg(source).output();
        let end = end.expect("a compiler: run .ci/install (it reads .ci/packages)");
        assert!(end.status.success(), "{}", String::from_utf8_lossy(&end.stderr));
    }
    made
}

/// A number from the environment, or the usual one.
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
pub(crate) fn number<N: FromStr<Err: Debug>>(variable: &str, usual: N) -> N {
    std::env::var(variable).map_or(usual, |value| value.parse().unwrap())
}

pub(crate) struct Ground {
    pub(crate) sandbox: Sandbox,
}

impl Ground {
    pub(crate) fn new() -> Self {
        Self::with(&[])
    }

    /// With a service, which ends with the machine.
    pub(crate) fn served() -> Self {
        let ground = Self::new();
        std::mem::forget(ground.serve());
        ground
    }

    /// With more files or directories from outside, as `/run/test/NAME`: where they lie may be hidden in there.
    pub(crate) fn with(brought: &[(&str, &Path)]) -> Self {
        Self::with_ports(2, brought)
    }

    /// A ground with one of the programs in C, as `/tmp/NAME`.
    pub(crate) fn with_program(name: &str) -> Self {
        let ground = Self::with(&[(name, &compiled(name, &[]))]);
        let install = ["-m", "755", &format!("/run/test/{name}"), &format!("/tmp/{name}")];
        ground.sandbox.command("install").args(install).run().expect(0);
        ground
    }

    /// A ground with one of the libraries in C, for `preloaded_with`.
    pub(crate) fn with_library(name: &str) -> Self {
        Self::with(&[(name, &compiled(name, &["-shared", "-fPIC"]))])
    }

    /// The ports are `/dev/ttyW0` and so on.
    pub(crate) fn with_ports(ports: usize, brought: &[(&str, &Path)]) -> Self {
        let with_port = |layout: Layout, index| layout.port(&format!("ttyW{index}"));
        let sandbox = (0..ports)
            .fold(Sandbox::layout(), with_port)
            .installed()
            .bring("liblfp_preload.so", testbed::library("lfp-preload", "liblfp_preload"))
            .bring("lib/lfp/liblfp_preload.so", testbed::library("lfp-preload", "liblfp_preload"));
        Self {
            sandbox: brought.iter().fold(sandbox, |it, (name, path)| it.bring(name, path)).enter(),
        }
    }

    pub(crate) fn serve(&self) -> Process<'_> {
        self.sandbox.serve(User::Lfpd, &[])
    }

    /// The number in the port's lock file.
    pub(crate) fn holder(&self) -> Option<u32> {
        String::from_utf8(self.sandbox.read(LOCK)?).ok()?.trim().parse().ok()
    }

    pub(crate) fn python(&self, script: &str, user: User) -> Command<'_> {
        self.preloaded(&["/usr/bin/python3", "-c", script]).user(user)
    }

    pub(crate) fn shell(&self, script: &str, user: User) -> Command<'_> {
        self.preloaded(&["sh", "-c", script]).user(user)
    }

    /// A command with the library, and behind it one of `with_library`: to ours, that is the C library.
    pub(crate) fn preloaded_with(&self, name: &str, words: &[&str]) -> Command<'_> {
        let both = format!("LD_PRELOAD={LIBRARY}:/run/test/{name}");
        self.preloaded(&[&[both.as_str()], words].concat())
    }

    /// A command with the library; what leads into the sandbox is to do without.
    pub(crate) fn preloaded(&self, words: &[&str]) -> Command<'_> {
        // A busy machine is no service that hangs.
        let command = self.sandbox.command("env").env("LFP_TIMEOUT", "30");
        command.arg(format!("LD_PRELOAD={LIBRARY}")).args(words)
    }
}
