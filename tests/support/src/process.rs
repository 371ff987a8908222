//! Programs in a sandbox: their user, input, time limit and end.

use std::fmt;
use std::fs::{self, File};
use std::io::{ErrorKind, IsTerminal, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ExitStatus, Stdio};
use std::str::FromStr;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, pipe2};
use rustix::process::{PidfdFlags, pidfd_open, pidfd_send_signal};

use crate::peers::advice;
use crate::sandbox::{PATH, Sandbox};
use crate::signal::wait_until_stopped;
use crate::until::{LIMIT, until};

/// Writes its pid, and the end of the line, to the file of the first argument, unless the program of the second is
/// missing, and becomes the rest of them.
const START: &str = r#"
    command -v "$2" >/dev/null || exit 127
    echo $$ >"$1"
    shift 2
    exec "$@"
"#;

/// How long the output of an ended program may take to arrive: on a terminal, whose kernel hands it on in its own
/// time, and in a pipe, which has it at once.
const DRAIN: (Duration, Duration) = (Duration::from_secs(2), LIMIT);

/// The users of a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    /// uid 0.
    Root,
    /// uid 10: owns the locks on many systems.
    Uucp,
    /// The same, with the one capability that removes other users' files in a sticky directory.
    UucpWithFowner,
    /// uid 990: the service's own user where there is no `uucp`.
    Lfpd,
    /// The same, with the one capability that removes other users' files in a sticky directory.
    LfpdWithFowner,
    /// The same, with the capabilities that its unit would give it for `--exclusive`.
    LfpdExclusive,
    /// The same, with the group and the capability that its unit would give it for `--watch-opens`.
    LfpdWatching,
    /// uid 1000, an ordinary user who may open serial ports (group dialout).
    Alice,
    /// uid 1001, another one.
    Bob,
}

impl User {
    /// The uid in the sandbox.
    #[must_use]
    pub fn uid(self) -> u32 {
        self.facts().0
    }

    /// The uid, the name, the groups for setpriv(1), and the capabilities.
    fn facts(self) -> (u32, &'static str, &'static str, &'static str) {
        let own = "--init-groups";
        match self {
            Self::Root => (0, "root", own, ""),
            Self::Uucp => (10, "uucp", own, ""),
            Self::UucpWithFowner => (10, "uucp", own, "+fowner"),
            Self::Lfpd => (990, "lfpd", own, ""),
            Self::LfpdWithFowner => (990, "lfpd", own, "+fowner"),
            Self::LfpdExclusive => (990, "lfpd", own, "+sys_ptrace,+dac_read_search"),
            Self::LfpdWatching => (990, "lfpd", "--groups=dialout", "+sys_admin"),
            Self::Alice => (1000, "alice", own, ""),
            Self::Bob => (1001, "bob", own, ""),
        }
    }

    fn home(self) -> String {
        let (uid, name, ..) = self.facts();
        if uid < 1000 { "/tmp".to_owned() } else { format!("/home/{name}") }
    }

    /// `setpriv` and its arguments; none for root.
    fn change(self) -> Vec<String> {
        let (uid, name, groups, capabilities) = self.facts();
        if uid == 0 {
            return Vec::new();
        }
        let mut line = format!("setpriv --reuid={name} --regid={name} {groups}");
        if !capabilities.is_empty() {
            line += &format!(" --inh-caps=-all,{capabilities} --ambient-caps={capabilities}");
        }
        line.split(' ').map(str::to_owned).collect()
    }
}

#[derive(Debug)]
enum Input {
    /// A pipe that stays open as long as the [`Process`], or until [`Process::end_input`].
    Held,
    /// End of file at once.
    Nothing,
    /// A terminal of its own, also for its output; stays open.
    Terminal,
    /// A descriptor of the test's, for both input and output, as a super-server hands over.
    Connection(OwnedFd),
}

/// A program about to be run in a sandbox.
#[derive(Debug)]
pub struct Command<'a> {
    sandbox: &'a Sandbox,
    words: Vec<String>,
    settings: Vec<(String, String)>,
    user: User,
    input: Input,
    limit: Duration,
}

impl<'a> Command<'a> {
    pub(crate) fn new(sandbox: &'a Sandbox, program: &str) -> Self {
        let words = vec![program.to_owned()];
        let (user, input, limit) = (User::Root, Input::Held, LIMIT);
        Self { sandbox, words, settings: Vec::new(), user, input, limit }
    }

    /// One more argument.
    #[must_use]
    pub fn arg(mut self, word: impl AsRef<str>) -> Self {
        self.words.push(word.as_ref().to_owned());
        self
    }

    /// More arguments.
    #[must_use]
    pub fn args<S: AsRef<str>>(mut self, words: impl IntoIterator<Item = S>) -> Self {
        self.words.extend(words.into_iter().map(|word| word.as_ref().to_owned()));
        self
    }

    /// An environment variable; besides these there are only PATH, HOME, TERM and LC_ALL.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The user that runs it: root unless said otherwise.
    #[must_use]
    pub fn user(mut self, user: User) -> Self {
        self.user = user;
        self
    }

    /// No input, instead of a pipe that stays open.
    #[must_use]
    pub fn no_input(mut self) -> Self {
        self.input = Input::Nothing;
        self
    }

    /// A terminal as input and output.
    #[must_use]
    pub fn on_terminal(mut self) -> Self {
        self.input = Input::Terminal;
        self
    }

    /// The connection as descriptors 0 and 1, as from inetd.
    #[must_use]
    pub fn on_connection(mut self, connection: impl Into<OwnedFd>) -> Self {
        self.input = Input::Connection(connection.into());
        self
    }

    /// How long [`Command::run`] lets it run: [`LIMIT`] unless said otherwise.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Runs it to its end.
    ///
    /// # Panics
    /// When it is not there, or does not end within its time limit (it is killed then).
    #[must_use]
    pub fn run(self) -> End {
        let limit = self.limit;
        self.spawn().wait(limit)
    }

    /// Starts it. Killed when the [`Process`] is dropped.
    ///
    /// # Panics
    /// When it is not there.
    #[must_use]
    pub fn spawn(self) -> Process<'a> {
        let pid_file = format!("/run/test/pids/{}", self.sandbox.next_number());
        let mut command = std::process::Command::new("nsenter");
        command
            .args(self.sandbox.entrance())
            .args(["--", "setsid", "/bin/sh", "-c"])
            .args([START, "sh", &pid_file, &self.words[0]])
            .args(self.user.change())
            .args(&self.words)
            .env_clear()
            .env("PATH", PATH)
            .env("HOME", self.user.home())
            .env("TERM", "vt100")
            .env("LC_ALL", "C.UTF-8")
            .envs(self.settings)
            .process_group(0);
        let (keep, output) = connect(&mut command, self.input);
        let child = command.spawn().expect("nsenter (package util-linux)");
        drop(command); // its copies of our pipes
        let output = Output::collect(output);
        let mut process = Process {
            sandbox: self.sandbox,
            name: self.words.join(" "),
            child,
            pid: 0,
            handle: None,
            keep,
            output,
        };
        let told = || self.sandbox.text(&pid_file).strip_suffix('\n')?.parse().ok();
        let known = until(LIMIT, || {
            told().or_else(|| {
                let _ended = process.child.try_wait().expect("a child")?;
                // It may have begun and ended since we looked.
                Some(told().unwrap_or(0))
            })
        });
        process.pid = known.expect("a process that starts");
        assert!(process.pid != 0, "{}\n{}", advice(&self.words[0]), process.output());
        // Until then it is root's, and programs that look at it see the shell or setpriv(1).
        let line = format!("/proc/{}/cmdline", process.pid);
        let is_changed = self.user == User::Root;
        let has_become_it = || {
            let line = self.sandbox.read(&line).unwrap_or_default();
            let line = String::from_utf8_lossy(&line);
            // Empty where it has ended, and for an instant of execve(2).
            let is_it = !line.is_empty()
                && !line.contains(&pid_file)
                && (is_changed || !line.starts_with("setpriv"));
            (is_it || process.child.try_wait().expect("a child").is_some()).then_some(())
        };
        until(LIMIT, has_become_it).expect("a process that becomes the program");
        process.handle = process.handle();
        process
    }
}

/// Gives the command its input and output. What is returned first must stay open; the second
/// is where its output can be read.
fn connect(command: &mut std::process::Command, input: Input) -> (Option<File>, File) {
    let (read, write) = pipe2(OFlag::O_CLOEXEC).expect("a pipe");
    let copy = |fd: &OwnedFd| fd.try_clone().expect("one more descriptor");
    match input {
        Input::Held => {
            let (theirs, ours) = pipe2(OFlag::O_CLOEXEC).expect("a pipe");
            command.stdin(theirs).stdout(copy(&write)).stderr(write);
            (Some(ours.into()), read.into())
        }
        Input::Nothing => {
            command.stdin(Stdio::null()).stdout(copy(&write)).stderr(write);
            (None, read.into())
        }
        Input::Connection(connection) => {
            command.stdin(copy(&connection)).stdout(connection).stderr(write);
            (None, read.into())
        }
        Input::Terminal => {
            let terminal = crate::pseudo_terminal();
            command.stdin(copy(&terminal.slave)).stdout(copy(&terminal.slave));
            command.stderr(terminal.slave);
            (Some(copy(&terminal.master).into()), terminal.master.into())
        }
    }
}

/// What a program has printed, and where more of it comes from.
#[derive(Debug)]
struct Output {
    bytes: Mutex<Vec<u8>>,
    source: File,
}

impl Output {
    /// Reads all in the background, so that no program ever waits for the test.
    fn collect(source: File) -> Arc<Self> {
        let all = Arc::new(Self { bytes: Mutex::default(), source });
        let sink = Arc::clone(&all);
        thread::spawn(move || while sink.take() {});
        all
    }

    /// Waits for a piece; `false` at the end.
    fn take(&self) -> bool {
        self.poll(PollTimeout::NONE);
        let mut piece = [0; 4096];
        // Held from before it leaves the pipe: it is always in one of the two.
        let mut bytes = self.bytes.lock().expect("no panic while held");
        match (&self.source).read(&mut piece) {
            Ok(length @ 1..) => {
                bytes.extend_from_slice(&piece[..length]);
                true
            }
            Err(error) => error.kind() == ErrorKind::Interrupted,
            Ok(_) => false,
        }
    }

    /// Whether there is something to read.
    fn poll(&self, limit: PollTimeout) -> bool {
        let mut source = [PollFd::new(self.source.as_fd(), PollFlags::POLLIN)];
        let told = poll(&mut source, limit);
        let [source] = source;
        told.is_ok() && source.revents().is_some_and(|it| it.contains(PollFlags::POLLIN))
    }

    /// Waits until all that the ended program has printed is here. A child of its own may hold the other end.
    fn drain(self: &Arc<Self>) {
        let (limit, is_pipe) =
            if self.source.is_terminal() { (DRAIN.0, false) } else { (DRAIN.1, true) };
        until(limit, || {
            let is_empty = || {
                let _nobody_reads = self.bytes.lock().expect("no panic while held");
                !self.poll(PollTimeout::ZERO)
            };
            (Arc::strong_count(self) == 1 || is_pipe && is_empty()).then_some(())
        });
    }
}

/// A script for a shell that says each step when it is done, and does the next at a line of input.
#[must_use]
pub fn steps(steps: &[&str]) -> String {
    let step = |(n, step): (usize, &&str)| format!("{step}; echo {n}.; read line; ");
    steps.iter().enumerate().map(step).collect()
}

/// A program that runs in a sandbox.
#[derive(Debug)]
pub struct Process<'a> {
    sandbox: &'a Sandbox,
    name: String,
    /// `nsenter`, which waits for it.
    child: Child,
    pid: u32,
    /// None if it has ended before anybody looked.
    handle: Option<OwnedFd>,
    keep: Option<File>,
    output: Arc<Output>,
}

impl Process<'_> {
    /// Its pid as the sandbox counts.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// What it has printed so far, standard error included.
    #[must_use]
    pub fn output(&self) -> String {
        String::from_utf8_lossy(&self.output.bytes.lock().expect("no panic while held"))
            .into_owned()
    }

    /// Gives it input.
    pub fn type_in(&mut self, text: &str) {
        let keep = self.keep.as_mut().expect("an input to type into");
        keep.write_all(text.as_bytes()).expect("a program that reads");
    }

    /// Ends its input.
    pub fn end_input(&mut self) {
        self.keep = None;
    }

    /// Whether it has not ended.
    #[must_use]
    pub fn runs(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_none()
    }

    /// What became of it, if it has ended.
    pub fn ended(&mut self) -> Option<End> {
        let status = self.child.try_wait().expect("a child")?;
        self.output.drain();
        Some(End { name: self.name.clone(), status, output: self.output() })
    }

    /// Waits until it has printed this.
    ///
    /// # Panics
    /// When it has not within [`LIMIT`], or ends without.
    pub fn expect(&mut self, text: &str) {
        assert!(self.says(text), "{} did not say {text:?}:\n{}", self.name, self.output());
    }

    /// The same; false when it has not, or ends without.
    pub fn says(&mut self, text: &str) -> bool {
        let found = until(LIMIT, || {
            let ended = self.ended().is_some();
            if self.output().contains(text) { Some(true) } else { ended.then_some(false) }
        });
        found == Some(true)
    }

    /// Has a script of [`steps`] do the next one, and waits until it is done.
    pub fn go_on(&mut self, step: usize) {
        self.type_in("\n");
        self.expect(&format!("{step}."));
    }

    /// Sends a signal by name, such as "KILL", to it alone.
    pub fn signal(&self, name: &str) {
        let signal = Signal::from_str(&format!("SIG{name}")).expect("the name of a signal");
        assert!(self.send(signal), "{} is gone already", self.name);
        if signal == Signal::SIGSTOP {
            wait_until_stopped(&self.sandbox.path("/proc"), self.pid);
        }
    }

    /// False if it is gone.
    fn send(&self, signal: Signal) -> bool {
        let signal = rustix::process::Signal::from_named_raw(signal as i32).expect("a signal");
        self.handle.as_ref().is_some_and(|it| pidfd_send_signal(it, signal).is_ok())
    }

    /// By its number on this machine: `nsenter` has no other child.
    fn handle(&self) -> Option<OwnedFd> {
        let guide = self.child.id();
        let children = format!("/proc/{guide}/task/{guide}/children");
        let number = || fs::read_to_string(&children).ok()?.trim().parse().ok();
        let pid = number()?;
        let handle = pidfd_open(rustix::process::Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
        // As long as nobody has waited for it, the number is not another's.
        (number() == Some(pid)).then_some(handle)
    }

    /// Kills it with SIGKILL and waits until its pid is free.
    pub fn kill(mut self) {
        self.signal("KILL");
        assert!(self.is_gone(), "{} survived SIGKILL", self.name);
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// When it has not ended within `limit`.
    #[must_use]
    pub fn wait(mut self, limit: Duration) -> End {
        until(limit, || self.ended()).unwrap_or_else(|| {
            panic!("{} still runs after {limit:?}:\n{}", self.name, self.output())
        })
    }

    /// Waits for the end of a killed program. Where that was stopped, so is nsenter, which does what its child
    /// does: it has to go on in order to see the end. Nobody else has its number before it is waited for.
    fn is_gone(&mut self) -> bool {
        let guide = i32::try_from(self.child.id()).map(Pid::from_raw).expect("a pid");
        let ended = until(LIMIT, || {
            let _ = kill(guide, Signal::SIGCONT);
            self.child.try_wait().expect("a child")
        });
        ended.is_some()
    }
}

impl Drop for Process<'_> {
    fn drop(&mut self) {
        if self.runs() {
            self.send(Signal::SIGKILL);
            // Not its guide, nsenter, which must live to collect it: a zombie counts as alive.
            self.is_gone();
        }
    }
}

/// What became of a program.
#[derive(Debug)]
pub struct End {
    name: String,
    status: ExitStatus,
    output: String,
}

impl End {
    /// Its exit code, or -SIGNAL.
    #[must_use]
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| -self.status.signal().unwrap_or(0))
    }

    /// Checks the exit code.
    ///
    /// # Panics
    /// If it is another one.
    #[track_caller]
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(self.code(), code, "{self}");
        self
    }

    /// All it printed, standard error included.
    #[must_use]
    pub fn output(&self) -> &str {
        &self.output
    }

    /// Whether it printed this.
    #[must_use]
    pub fn said(&self, text: &str) -> bool {
        self.output.contains(text)
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ended with {} after saying:\n{}", self.name, self.code(), self.output)
    }
}
