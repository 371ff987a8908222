//! One private machine: namespaces, `/dev`, `/run/lock`, pseudo-terminals. Root makes it with the host's users; anybody
//! else in a user namespace, whose users the host's `/etc/subuid` lends.

use std::cell::Cell;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use crate::ground::listing;
use crate::peers::workspace;
use crate::process::{Command, End, Process, User};
use crate::programs::program;
use crate::service::TMPFILES;
use crate::until::{LIMIT, until};

/// What a sandbox is to contain. Made by [`Sandbox::layout`].
#[derive(Debug, Default)]
pub struct Layout {
    furniture: Vec<[String; 3]>,
    /// Names and access modes.
    ports: Vec<(String, u32)>,
}

/// A pseudo-terminal that stands for a serial port. The test keeps the far end open.
#[derive(Debug)]
struct Port {
    name: String,
    far_end: fs::File,
}

impl Layout {
    /// A real character device `/dev/NAME`: subdirectories are made. Anybody may open it.
    #[must_use]
    pub fn port(self, name: &str) -> Self {
        self.port_with_mode(name, 0o666)
    }

    /// The same with an access mode; owner root, group dialout.
    #[must_use]
    pub fn port_with_mode(mut self, name: &str, mode: u32) -> Self {
        self.ports.push((name.into(), mode));
        self
    }

    /// A symbolic link `/dev/NAME` to `target`, as seen from the link.
    #[must_use]
    pub fn link(mut self, name: &str, target: &str) -> Self {
        self.furniture.push(["link".into(), name.into(), target.into()]);
        self
    }

    /// A file or directory of the host, as `/run/test/NAME`. Programs that may lie under a
    /// hidden `/tmp` or `/run`, such as the ones under test, must be brought.
    #[must_use]
    pub fn bring(mut self, name: &str, path: impl AsRef<Path>) -> Self {
        let path = path.as_ref().canonicalize().expect("a path to bring");
        let kind = if path.is_dir() { "directory" } else { "file" };
        // As fstab(5) writes it.
        let path =
            path.to_str().expect("a path in UTF-8").replace('\\', "\\134").replace(' ', "\\040");
        self.furniture.push([kind.into(), name.into(), path]);
        self
    }

    /// The mode, such as "0755", and the owner, such as "root:root", of `/run/lock`.
    /// Debian's default is 1777.
    #[must_use]
    pub fn lock_dir(mut self, mode: &str, owner: &str) -> Self {
        self.furniture.push(["lock".into(), mode.into(), owner.into()]);
        self
    }

    /// Makes the sandbox.
    ///
    /// # Panics
    /// When it cannot be made: an ordinary user needs user namespaces, and 65,536 users in `/etc/subuid`.
    #[must_use]
    pub fn enter(self) -> Sandbox {
        let support = workspace().join("tests/support");
        let layout = self
            .bring("etc", support.join("etc"))
            .bring("programs", workspace().join("tests/programs"));
        let is_installed = layout.furniture.iter().any(|[_, name, _]| name == TMPFILES);
        let mut keeper = std::process::Command::new("unshare")
            .args(user_namespace(&["--user", "--map-root-user", "--map-auto"]))
            .args(["--mount", "--pid", "--net", "--ipc", "--uts", "--fork"])
            .args(["--kill-child", "--mount-proc", "/bin/sh"])
            .arg(support.join("src/enter.sh"))
            .args(layout.furniture.iter().flatten())
            .env_clear()
            .env("PATH", PATH)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .expect("unshare (package util-linux)");
        let mut answers = BufReader::new(keeper.stdout.take().expect("its output"));
        let mut expect = |keeper: &mut Child, line: &str| {
            let mut answer = String::new();
            answers.read_line(&mut answer).expect("its answer");
            if answer != line {
                let mut why = String::new();
                let _ = keeper.stderr.take().map(|mut stream| stream.read_to_string(&mut why));
                panic!("the sandbox could not be made: {answer}{why}");
            }
        };
        expect(&mut keeper, "ports\n");
        let first = first_process(&keeper);
        let multiplexer = PathBuf::from(format!("/proc/{first}/root/run/test/pts/ptmx"));
        let mut ports = Vec::new();
        let mut input = keeper.stdin.as_ref().expect("its input");
        for (name, mode) in layout.ports {
            let (far_end, number) = terminal_of(&multiplexer);
            writeln!(input, "{number} {name} {mode:o}").expect("a port to place");
            ports.push(Port { name, far_end });
        }
        writeln!(input, "end").expect("the end of the ports");
        expect(&mut keeper, "ready\n");
        let sandbox = Sandbox { keeper, first, ports, started: Cell::new(0) };
        if is_installed {
            let tmpfiles = format!("/run/test/{TMPFILES}");
            sandbox.command("systemd-tmpfiles").args(["--create", &tmpfiles]).run().expect(0);
        }
        sandbox
    }
}

/// The arguments, where a user namespace is needed.
fn user_namespace<'a>(arguments: &'a [&'a str]) -> &'a [&'a str] {
    if nix::unistd::geteuid().is_root() { &[] } else { arguments }
}

/// A pseudo-terminal of the file system that has this multiplexer, and its number there.
fn terminal_of(multiplexer: &Path) -> (fs::File, u32) {
    let mut options = fs::OpenOptions::new();
    options.read(true).write(true).custom_flags(nix::libc::O_NOCTTY);
    let far_end = options.open(multiplexer).expect("a pseudo-terminal");
    rustix::pty::unlockpt(&far_end).expect("its other end");
    let name = rustix::pty::ptsname(&far_end, Vec::new()).expect("its name");
    let number = name.to_str().ok().and_then(|it| it.rsplit('/').next()?.parse().ok());
    (far_end, number.expect("its number"))
}

/// Where `lfpd` is in a sandbox that it was brought to.
pub const LFPD: &str = "/run/test/lfpd";

/// What programs in a sandbox find programs by.
pub(crate) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// `unshare` forks once; its child is pid 1 of the sandbox.
fn first_process(keeper: &Child) -> u32 {
    let children = format!("/proc/{0}/task/{0}/children", keeper.id());
    until(LIMIT, || fs::read_to_string(&children).ok()?.split_whitespace().next()?.parse().ok())
        .expect("the sandbox's first process")
}

/// One private machine. It ends when this is dropped, or with the test.
#[derive(Debug)]
pub struct Sandbox {
    keeper: Child,
    first: u32,
    ports: Vec<Port>,
    started: Cell<u32>,
}

impl Sandbox {
    /// Begins with nothing but the usual nodes in `/dev`, loopback, and an empty `/run/lock`
    /// of mode 1777.
    #[must_use]
    pub fn layout() -> Layout {
        Layout::default()
    }

    /// The same with `lfpd`, as [`LFPD`].
    #[must_use]
    pub fn with_lfpd() -> Layout {
        Self::layout().bring("lfpd", program("lfpd", "lfpd", &[]))
    }

    /// A program to run in here. It is looked up in the sandbox's `PATH`.
    #[must_use]
    pub fn command(&self, program: &str) -> Command<'_> {
        Command::new(self, program)
    }

    /// A path of the sandbox as the test can open it.
    #[must_use]
    pub fn path(&self, inside: &str) -> PathBuf {
        let inside = inside.replacen("/var/lock", "/run/lock", 1);
        PathBuf::from(format!("/proc/{}/root{inside}", self.first))
    }

    /// The whole of a file in here, if there is one. Never follows a link out of the sandbox.
    #[must_use]
    pub fn read(&self, inside: &str) -> Option<Vec<u8>> {
        let mut content = Vec::new();
        fs::OpenOptions::new()
            .read(true)
            .custom_flags(nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK)
            .open(self.path(inside))
            .ok()?
            .read_to_end(&mut content)
            .ok()?;
        Some(content)
    }

    /// The same as text; empty where there is none.
    #[must_use]
    pub fn text(&self, inside: &str) -> String {
        String::from_utf8_lossy(&self.read(inside).unwrap_or_default()).into_owned()
    }

    /// The process that the lock file of a port names.
    #[must_use]
    pub fn locked_by(&self, port: &str) -> Option<u32> {
        self.text(&format!("/run/lock/LCK..{port}")).trim().parse().ok()
    }

    /// Runs a line of shell to its end, without input.
    #[must_use]
    pub fn shell(&self, user: User, line: &str) -> End {
        self.command("sh").args(["-c", line]).user(user).no_input().run()
    }

    /// A line of shell that says `ready`, when it has said it.
    #[must_use]
    pub fn ready(&self, user: User, line: &str) -> Process<'_> {
        let mut shell = self.command("sh").args(["-c", line]).user(user).spawn();
        shell.expect("ready");
        shell
    }

    /// A process of a user's that lives until it is killed.
    #[must_use]
    pub fn sleeper(&self, user: User) -> Process<'_> {
        self.command("sleep").arg("1000").user(user).spawn()
    }

    /// A process that has entered the gate, and stays there until it is killed.
    #[must_use]
    pub fn in_the_gate(&self) -> Process<'_> {
        let script = "import fcntl, time
            \rgate = open('/run/lfpd/gate')
            \rfcntl.flock(gate, fcntl.LOCK_EX)
            \rprint('inside', flush=True)
            \rtime.sleep(1000)";
        let mut inside = self.command("/usr/bin/python3").args(["-c", script]).spawn();
        inside.expect("inside");
        inside
    }

    /// Writes a file in here, whole, with this mode.
    pub fn write(&self, inside: &str, content: impl AsRef<[u8]>, mode: u32) {
        let path = self.path(inside);
        fs::write(&path, content).expect("a file in the sandbox");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("its mode");
    }

    /// The names in the lock directory, in order.
    #[must_use]
    pub fn locks(&self) -> Vec<String> {
        listing(&self.path("/run/lock"))
    }

    /// Where to read what programs sent to the port, and to write what they shall receive.
    ///
    /// # Panics
    /// When there is no such port.
    #[must_use]
    pub fn far_end(&self, port: &str) -> fs::File {
        let port = self.ports.iter().find(|it| it.name == port).expect("a port of the sandbox");
        port.far_end.try_clone().expect("one more descriptor")
    }

    /// Arguments for `nsenter` that lead into this sandbox.
    pub(crate) fn entrance(&self) -> Vec<String> {
        let target = format!("--target={}", self.first);
        let rest = ["--mount", "--pid", "--net", "--ipc", "--uts", "--wdns=/"];
        let all = user_namespace(&["--user"]).iter().chain(&rest).map(|it| (*it).to_owned());
        std::iter::once(target).chain(all).collect()
    }

    /// A number that no other program of this sandbox has.
    pub(crate) fn next_number(&self) -> u32 {
        self.started.set(self.started.get() + 1);
        self.started.get()
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
    }
}
