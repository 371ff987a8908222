//! One small machine with a port, `lfp`, and a service where a test wants one.

use std::path::Path;

use testbed::{Command, End, LIMIT, Layout, Process, Sandbox, User, until};

/// The port of the machine.
pub(crate) const PORT: &str = "/dev/ttyW0";

/// A machine, and what runs on it from the start.
pub(crate) struct Bench {
    pub(crate) sandbox: Sandbox,
}

impl Bench {
    /// Only the service's user may write the lock directory.
    pub(crate) fn closed() -> Self {
        Self::with_lock_dir("0755", "lfpd:lfpd", &[])
    }

    /// The same with a service, which ends with the machine.
    pub(crate) fn served() -> Self {
        let bench = Self::closed();
        std::mem::forget(bench.serve(User::Lfpd));
        bench
    }

    /// As [`closed`](Self::closed) with one more program, as `/run/test/NAME`.
    pub(crate) fn closed_with(name: &str, program: &Path) -> Self {
        Self::with_lock_dir("0755", "lfpd:lfpd", &[(name, program)])
    }

    /// Everybody may write the lock directory, as on Debian.
    pub(crate) fn open() -> Self {
        Self::with_lock_dir("1777", "root:root", &[])
    }

    pub(crate) fn with_lock_dir(mode: &str, owner: &str, programs: &[(&str, &Path)]) -> Self {
        let layout = Sandbox::layout()
            .port("ttyW0")
            .lock_dir(mode, owner)
            .bring("lfp", testbed::program("lfp", "lfp", &["cli"]))
            .bring("lfpd", env!("CARGO_BIN_EXE_lfpd"));
        let bring = |layout: Layout, (name, path): &(&str, &Path)| layout.bring(name, path);
        Self { sandbox: programs.iter().fold(layout, bring).enter() }
    }

    /// A service on the usual Unix socket, started for each connection as systemd does it.
    pub(crate) fn serve(&self, user: User) -> Process<'_> {
        let owner = user.uid().to_string();
        let made = self.sandbox.command("install").args(["-d", "-o", &owner, "/run/lfpd"]).run();
        assert_eq!(made.code(), 0, "{made}");
        let words = ["--accept", "--inetd", "--listen=/run/lfpd/lfpd.sock", "/run/test/lfpd"];
        let mut service =
            self.sandbox.command("systemd-socket-activate").args(words).user(user).spawn();
        service.expect("Listening on");
        let opened = self.shell(User::Root, "chmod 0666 /run/lfpd/lfpd.sock");
        assert_eq!(opened.code(), 0, "{opened}");
        service
    }

    /// A service of one process for all, where clients can wait in line.
    pub(crate) fn listen(&self, user: User) -> Process<'_> {
        self.listen_for(user, PORT)
    }

    /// The same on a machine with another port.
    pub(crate) fn listen_for(&self, user: User, port: &str) -> Process<'_> {
        let owner = user.uid().to_string();
        let made = self.sandbox.command("install").args(["-d", "-o", &owner, "/run/lfpd"]).run();
        assert_eq!(made.code(), 0, "{made}");
        let words = ["--listen", "unix:/run/lfpd/lfpd.sock"];
        let service = self.sandbox.command("/run/test/lfpd").args(words).user(user).spawn();
        let server = ["--server", "/run/lfpd/lfpd.sock", "who", port];
        let asked = || self.lfp(User::Root, &server).run();
        let answered = until(LIMIT, || (asked().code() == 0).then_some(()));
        assert!(answered.is_some(), "{}: {}", service.output(), asked());
        service
    }

    /// `lfp` with these words, without input.
    pub(crate) fn lfp(&self, user: User, words: &[&str]) -> Command<'_> {
        self.sandbox.command("/run/test/lfp").args(words).user(user).no_input()
    }

    /// The same, called by a shell.
    pub(crate) fn called(&self, user: User, words: &[&str]) -> Command<'_> {
        let sh = ["-c", "/run/test/lfp \"$@\"; exit $?", "sh"];
        self.sandbox.command("sh").args(sh).args(words).user(user).no_input()
    }

    /// Runs a shell line to its end.
    pub(crate) fn shell(&self, user: User, line: &str) -> End {
        self.sandbox.command("sh").args(["-c", line]).user(user).no_input().run()
    }

    /// A process that lives until it is killed, with a lock in its name.
    pub(crate) fn holder(&self, user: User) -> Process<'_> {
        let holder = self.sandbox.command("sleep").arg("1000").user(user).spawn();
        let pid = holder.pid().to_string();
        let taken = self.lfp(User::Root, &["--direct", "lock", "--pid", &pid, PORT]).run();
        assert_eq!(taken.code(), 0, "{taken}");
        holder
    }

    /// The pid in the port's lock file.
    pub(crate) fn locked_by(&self) -> Option<u32> {
        let content = self.sandbox.read("/run/lock/LCK..ttyW0")?;
        String::from_utf8_lossy(&content).trim().parse().ok()
    }

    /// Waits until the lock is that of `sleep`, which its process becomes a moment after it has got it, and returns its
    /// pid.
    pub(crate) fn sleeper(&self) -> u32 {
        let words = format!("sleep\0{LONG}\0");
        let sleeper = until(LIMIT, || {
            let pid = self.locked_by()?;
            let line = self.sandbox.read(&format!("/proc/{pid}/cmdline"))?;
            (line == words.as_bytes()).then_some(pid)
        });
        assert!(sleeper.is_some(), "no sleep has the lock");
        sleeper.unwrap_or_default()
    }

    /// The children of a process.
    pub(crate) fn children(&self, pid: u32) -> Vec<u32> {
        let children = self.sandbox.read(&format!("/proc/{pid}/task/{pid}/children"));
        let children = children.unwrap_or_default();
        let text = String::from_utf8_lossy(&children).into_owned();
        text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
    }

    /// Whether a process exists and is no zombie.
    pub(crate) fn runs(&self, pid: u32) -> bool {
        let stat = self.sandbox.read(&format!("/proc/{pid}/stat")).unwrap_or_default();
        let stat = String::from_utf8_lossy(&stat).into_owned();
        stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
    }

    /// Waits until a process that `lfp` started waits for its lock, and returns its pid.
    pub(crate) fn waiting_child(&self, lfp: &Process<'_>) -> u32 {
        let child = until(LIMIT, || {
            let child = *self.children(lfp.pid()).first()?;
            let line = self.sandbox.read(&format!("/proc/{child}/cmdline"))?;
            String::from_utf8_lossy(&line).contains("exec-when-told").then_some(child)
        });
        assert!(child.is_some(), "nobody waits for a lock: {}", lfp.output());
        child.unwrap_or_default()
    }

    pub(crate) fn wait_for(&self, what: &str, mut condition: impl FnMut() -> bool) {
        let found = until(LIMIT, || condition().then_some(()));
        assert!(found.is_some(), "waited in vain for {what}");
    }

    /// No lock of the port is left.
    pub(crate) fn assert_free(&self) {
        assert!(self.sandbox.locks().is_empty(), "{:?}", self.sandbox.locks());
    }
}

/// Longer than any of these tests waits on purpose.
pub(crate) const LONG: &str = "1000";
