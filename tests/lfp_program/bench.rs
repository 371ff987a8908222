//! One small machine with a port, `lfp`, and a service where a test wants one.

use std::ops::Deref;

use testbed::{Command, End, LFPD, LIMIT, Layout, Process, Sandbox, User, comes, until};

/// The port of the machine.
pub(crate) const PORT: &str = "/dev/ttyW0";

/// A process that is gone.
pub(crate) const GONE: u32 = 4_000_000;

/// A machine, and what runs on it from the start.
pub(crate) struct Bench(Sandbox);

impl Deref for Bench {
    type Target = Sandbox;

    fn deref(&self) -> &Sandbox {
        &self.0
    }
}

impl Bench {
    /// A machine of this layout, with `lfp` and `lfpd`.
    pub(crate) fn of(layout: Layout) -> Self {
        let layout = layout
            .bring("lfp", testbed::program("lfp-cli", "lfp", &[]))
            .bring("lfpd", env!("CARGO_BIN_EXE_lfpd"));
        Self(layout.enter())
    }

    pub(crate) fn layout(mode: &str, owner: &str) -> Layout {
        Sandbox::layout().port("ttyW0").lock_dir(mode, owner)
    }

    /// Only the service's user may write the lock directory.
    pub(crate) fn closed() -> Self {
        Self::of(Self::layout("0755", "lfpd:lfpd"))
    }

    /// The same with a service, which ends with the machine.
    pub(crate) fn served() -> Self {
        let bench = Self::closed();
        std::mem::forget(bench.serve(User::Lfpd));
        bench
    }

    /// The same with a daemon.
    pub(crate) fn listening() -> Self {
        Self::closed().with_a_daemon()
    }

    /// With a daemon, which ends with the machine.
    pub(crate) fn with_a_daemon(self) -> Self {
        std::mem::forget(self.listen(User::Lfpd));
        self
    }

    /// Everybody may write the lock directory, as on Debian.
    pub(crate) fn open() -> Self {
        Self::of(Self::layout("1777", "root:root"))
    }

    /// A service on the usual Unix socket, started for each connection as systemd does it.
    pub(crate) fn serve(&self, user: User) -> Process<'_> {
        self.make_place(user, "0755");
        self.activate(user, "/run/lfpd/lfpd.sock")
    }

    pub(crate) fn make_place(&self, user: User, mode: &str) {
        let words = ["-d", "-m", mode, "-o", &user.uid().to_string(), "/run/lfpd"];
        self.command("install").args(words).run().expect(0);
    }

    /// A service that listens at this address, started for each connection.
    pub(crate) fn activate(&self, user: User, address: &str) -> Process<'_> {
        let words = ["--accept", "--inetd", "--listen", address, LFPD];
        let service = self.command("systemd-socket-activate").args(words);
        let mut service = service.user(user).spawn();
        service.expect("Listening on");
        self.shell(user, &format!("test ! -S {address} || chmod 0666 {address}")).expect(0);
        service
    }

    /// A service of one process for all, where clients can wait in line.
    pub(crate) fn listen(&self, user: User) -> Process<'_> {
        self.make_place(user, "0755");
        self.0.serve(user, &[])
    }

    /// `lfp` with these words, without input.
    pub(crate) fn lfp(&self, user: User, words: &[&str]) -> Command<'_> {
        self.command("/run/test/lfp").args(words).user(user).no_input()
    }

    /// What `lfp` shows of the holders. A busy machine may have no time for a whole search: then it is asked again.
    pub(crate) fn look(&self, user: User, words: &[&str]) -> End {
        let whole = until(LIMIT, || {
            let end = self.lfp(user, words).run();
            (!end.said("the search for holders was cut short")).then_some(end)
        });
        whole.expect("a search that comes to its end")
    }

    /// The same command, called by a shell.
    pub(crate) fn called(&self, user: User, words: &[&str]) -> Command<'_> {
        let sh = ["-c", "/run/test/lfp \"$@\"; exit $?", "sh"];
        self.command("sh").args(sh).args(words).user(user).no_input()
    }

    /// A line as a person types it, with `lfp` where the shell finds it.
    pub(crate) fn typed(&self, user: User, line: &str) -> Command<'_> {
        let line = format!("PATH=/run/test:$PATH; cd /tmp; {line}");
        self.command("sh").args(["-c", &line]).user(user)
    }

    /// A lock file that a user writes, with this pid.
    pub(crate) fn plant(&self, user: User, name: &str, pid: u32) {
        self.shell(user, &format!("printf '%10d\\n' {pid} >'/run/lock/{name}'")).expect(0);
    }

    /// A process that lives until it is killed, and has the lock of the port.
    pub(crate) fn holder(&self, user: User) -> Process<'_> {
        let holder = self.sleeper(user);
        let pid = holder.pid().to_string();
        self.lfp(User::Root, &["--direct", "lock", "--pid", &pid, PORT]).run().expect(0);
        holder
    }

    /// Waits until the lock is that of `sleep`, which its process becomes a moment after it has got it, and returns its
    /// pid.
    pub(crate) fn sleep_with_the_lock(&self) -> u32 {
        let words = format!("sleep\0{LONG}\0");
        let sleeper = until(LIMIT, || {
            let pid = self.locked_by("ttyW0")?;
            (self.text(&format!("/proc/{pid}/cmdline")) == words).then_some(pid)
        });
        sleeper.expect("a sleep that has the lock")
    }

    /// The children of a process.
    pub(crate) fn children(&self, pid: u32) -> Vec<u32> {
        let children = self.text(&format!("/proc/{pid}/task/{pid}/children"));
        children.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
    }

    /// Whether a process exists and is no zombie.
    pub(crate) fn runs(&self, pid: u32) -> bool {
        let stat = self.text(&format!("/proc/{pid}/stat"));
        stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
    }

    /// Waits until a process that `lfp` started waits for its lock, and returns its pid.
    pub(crate) fn waiting_child(&self, lfp: &Process<'_>) -> u32 {
        let child = until(LIMIT, || {
            let child = *self.children(lfp.pid()).first()?;
            let line = self.text(&format!("/proc/{child}/cmdline"));
            line.contains("exec-when-told").then_some(child)
        });
        child.unwrap_or_else(|| panic!("nobody waits for a lock: {}", lfp.output()))
    }

    pub(crate) fn wait_for(&self, what: &str, condition: impl FnMut() -> bool) {
        assert!(comes(condition), "waited in vain for {what}");
    }

    /// No lock of the port is left.
    pub(crate) fn assert_free(&self) {
        assert!(self.locks().is_empty(), "{:?}", self.locks());
    }
}

/// Longer than any of these tests waits on purpose.
pub(crate) const LONG: &str = "1000";
