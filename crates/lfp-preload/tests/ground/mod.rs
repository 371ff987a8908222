//! A machine with a closed lock directory, the service, and the library.

#![allow(dead_code, clippy::allow_attributes, reason = "each test program uses its own part")]

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Mutex;

use testbed::{Command, LIMIT, Layout, Process, Sandbox, User, until};

pub(crate) const PORT: &str = "/dev/ttyW0";
pub(crate) const OTHER_PORT: &str = "/dev/ttyW1";
pub(crate) const LOCK: &str = "/run/lock/LCK..ttyW0";
pub(crate) const LIBRARY: &str = "/run/test/liblfp_preload.so";
pub(crate) const LFP: &str = "/run/test/bin/lfp";
const SOCKET: &str = "/run/lfpd/lfpd.sock";

/// A program of these tests in C, compiled outside; each is compiled once, for the first test that asks.
#[expect(clippy::expect_used, reason = "a machine on which the tests cannot run")]
pub(crate) fn compiled(name: &str) -> PathBuf {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/{name}.c"));
    let made =
        Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    if !made.exists() {
        let mut compiler = std::process::Command::new("cc");
        let end = compiler.args(["-w", "-O1", "-pthread", "-o"]).arg(&made).arg(source).output();
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

    /// With more files or directories from outside, as `/run/test/NAME`: where they lie may be hidden in there.
    pub(crate) fn with(brought: &[(&str, &Path)]) -> Self {
        Self::with_ports(2, brought)
    }

    /// The ports are `/dev/ttyW0` and so on.
    pub(crate) fn with_ports(ports: usize, brought: &[(&str, &Path)]) -> Self {
        let etc = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../etc/tmpfiles.d/lfpd.conf");
        let with_port = |layout: Layout, index| layout.port(&format!("ttyW{index}"));
        let sandbox = (0..ports)
            .fold(Sandbox::layout(), with_port)
            .lock_dir("0755", "root:root")
            .bring("lfpd", testbed::program("lfpd", "lfpd", &[]))
            .bring("liblfp_preload.so", testbed::library("lfp-preload", "liblfp_preload"))
            .bring("bin/lfp", testbed::program("lfp", "lfp", &["cli"]))
            .bring("lib/lfp/liblfp_preload.so", testbed::library("lfp-preload", "liblfp_preload"))
            .bring("tmpfiles.conf", etc);
        let sandbox = brought.iter().fold(sandbox, |it, (name, path)| it.bring(name, path)).enter();
        let end = sandbox.command("systemd-tmpfiles").args(["--create", "/run/test/tmpfiles.conf"]);
        let end = end.run();
        assert_eq!(end.code(), 0, "{end}");
        Self { sandbox }
    }

    pub(crate) fn serve(&self) -> Process<'_> {
        self.serve_by(User::Lfpd)
    }

    pub(crate) fn serve_by(&self, user: User) -> Process<'_> {
        let listen = format!("unix:{SOCKET}");
        let command = self.sandbox.command("/run/test/lfpd").args(["--listen", &listen]);
        let daemon = command.user(user).spawn();
        let listens = until(LIMIT, || self.sandbox.path(SOCKET).exists().then_some(()));
        assert!(listens.is_some(), "{}", daemon.output());
        daemon
    }

    pub(crate) fn python(&self, script: &str, user: User) -> Command<'_> {
        self.preloaded(&["/usr/bin/python3", "-c", script]).user(user)
    }

    pub(crate) fn shell(&self, script: &str, user: User) -> Command<'_> {
        self.preloaded(&["sh", "-c", script]).user(user)
    }

    /// A command with the library; what leads into the sandbox is to do without.
    pub(crate) fn preloaded(&self, words: &[&str]) -> Command<'_> {
        // A busy machine is no service that hangs.
        let command = self.sandbox.command("env").env("LFP_TIMEOUT", "30");
        command.arg(format!("LD_PRELOAD={LIBRARY}")).args(words)
    }
}
