//! Both sides of the standby process, and the messages between them. The wrapper's: starts it, and attends the command
//! that it becomes. Its own: waits for the word to go, and then becomes the command.
//!
//! A wrapper can also continue in the background ([`Background`]): this program, started once more, takes the lock and
//! attends the command, while the first process returns as soon as the command has started.

use crate::exit::{End, StartError};
use crate::json::Form;
use crate::signals::{
    Signals, Woken, has_ended, is_ignored, let_through, pause, stop_here, was_stopped,
};
use crate::sys::{self, REAL_PATH};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, dup2_stdin};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// A process that waits for the word to become a command. Without the word it ends by itself and
/// the command never runs.
///
/// Fields drop in this order: the socket closes, which ends the process, and only then is it waited
/// for.
///
/// ```no_run
/// # fn main() -> std::io::Result<()> {
/// use wrapcmd::{Form, Signals, Standby};
///
/// let signals = Signals::catch()?;
/// let standby = Standby::start("hold", &["make".into(), "install".into()], Form::Text, &signals)?;
/// println!("the command will be process {}", standby.pid());
/// let running = standby.go(&[("HELD", "yes")]);
/// running.attend(&signals);
/// let code = running.end()?.follow();
/// # std::process::exit(code.into()) }
/// ```
#[derive(Debug)]
#[must_use]
pub struct Standby {
    word: OwnedFd,
    running: Running,
}

/// The command, or what would have become it. It is always waited for.
#[derive(Debug)]
#[must_use]
pub struct Running(Child);

impl Standby {
    /// Starts this very program again, under the name `program`, as a process
    /// that stands by; its `main` must begin with [`crate::take_over`]. It lets those signals
    /// through that `signals` holds off, and its end is among them from now on. `form` is that of its message if
    /// the command cannot be executed.
    ///
    /// # Errors
    /// No socket or no process can be had.
    pub fn start(
        program: &str,
        command: &[OsString],
        form: Form,
        signals: &Signals,
    ) -> io::Result<Self> {
        let (listen, word) = sys::line()?;
        // The child closes its end before it becomes the command.
        fcntl(&listen, FcntlArg::F_SETFD(FdFlag::empty()))?;
        let mut child = once_more(program, role(form))?;
        child.arg(listen.as_raw_fd().to_string()).arg(signals.newly_held()).args(command);
        let running = Running(child.spawn()?);
        if let Some(child) = running.number() {
            signals.expect(child);
        }
        Ok(Self { word, running })
    }

    /// The number of the process, which will be the command's.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.running.0.id()
    }

    /// Lets the process become the command, with these variables added to its environment. If it
    /// is dead already, that will be its exit code.
    pub fn go(self, additions: &[(&str, impl AsRef<str>)]) -> Running {
        let _ = File::from(self.word).write_all(&word(additions));
        self.running
    }

    /// Ends the process. Returns how it ended.
    ///
    /// # Errors
    /// As [`Running::end`].
    pub fn dismiss(self) -> io::Result<End> {
        drop(self.word);
        self.running.end()
    }
}

/// What is done beside a command while it runs.
pub trait Beside {
    /// Readable when there is work before its time; none as long as the time alone counts.
    fn bell(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Does the work. Returns after which time it is due again at the latest; none: when the bell rings.
    fn work(&mut self) -> Option<Duration>;
}

/// Work that nothing wakes before its time.
impl<W: FnMut() -> Option<Duration>> Beside for W {
    fn work(&mut self) -> Option<Duration> {
        self()
    }
}

impl Running {
    /// Waits until the command has ended, but does not reap it, so that it keeps its number. Hands it the signals that
    /// arrive meanwhile, and stops when a terminal has stopped it.
    ///
    /// What a terminal sends (Ctrl-C) it sends to the command as well, so that is not repeated.
    pub fn attend(&self, signals: &Signals) {
        self.attend_beside(signals, &mut || None);
    }

    /// [`Running::attend`], and does other work, which is due at the beginning.
    pub fn attend_beside(&self, signals: &Signals, beside: &mut dyn Beside) {
        let Some(pid) = self.number() else { return };
        let (mut due, mut rang) = (None, true);
        loop {
            signals.hand_on(pid);
            if was_stopped(pid) {
                stop_here();
                let _ = kill(pid, Signal::SIGCONT);
            }
            if has_ended(pid) {
                return;
            }
            if rang || due.is_some_and(|due| Instant::now() >= due) {
                due = beside.work().and_then(|time| Instant::now().checked_add(time));
            }
            let time = due.map(|due| due.saturating_duration_since(Instant::now()));
            rang = pause(Some(signals), beside.bell(), time) == Woken::Ready;
        }
    }

    /// Waits for the end. Returns how it ended.
    ///
    /// # Errors
    /// Somebody else has waited for the process.
    pub fn end(mut self) -> io::Result<End> {
        end_of(&mut self.0)
    }

    fn number(&self) -> Option<Pid> {
        i32::try_from(self.0.id()).ok().map(Pid::from_raw)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.wait();
    }
}

/// This very program, to be started again under the name `program`, with the argument that names its role. Its end
/// can be waited for ([`end_of`]).
pub(crate) fn once_more(program: &str, role: &str) -> io::Result<Command> {
    reap_children();
    let mut command = sys::itself()?;
    command.arg0(program).arg(role);
    Ok(command)
}

/// Waits for a child's end. Returns how it ended.
pub(crate) fn end_of(child: &mut Child) -> io::Result<End> {
    End::of(child.wait()?).ok_or_else(|| io::Error::other("neither ended nor killed"))
}

/// A caller may have had the kernel forget children (`signal(SIGCHLD, SIG_IGN)` survives
/// execve(2)); then nobody would learn the command's exit code. Any handler undoes that.
fn reap_children() {
    if is_ignored(Signal::SIGCHLD as i32) {
        let unused = Arc::new(AtomicBool::new(false));
        let _ = signal_hook::flag::register(Signal::SIGCHLD as i32, unused);
    }
}

/// The first argument of the process that stands by, by the form of its message if the command cannot be executed.
/// No program's command may be called so.
const TEXT_ROLE: &str = "exec-when-told";
const JSON_ROLE: &str = "exec-when-told-or-json";

/// The first argument of a process with messages of this form.
pub(crate) fn role(form: Form) -> &'static str {
    if form == Form::Json { JSON_ROLE } else { TEXT_ROLE }
}

/// To be called before anything else, with the arguments behind the program's name. If this
/// process is one that stands by ([`crate::Standby`]), waits for the word and becomes the command;
/// comes back only with the reason why not, and the form in which to report it. `None`: it is not one.
#[must_use]
pub fn take_over<S: AsRef<OsStr>>(
    mut words: impl Iterator<Item = S>,
) -> Option<(StartError, Form)> {
    let form = match words.next()?.as_ref().to_str()? {
        TEXT_ROLE => Form::Text,
        JSON_ROLE => Form::Json,
        _ => return None,
    };
    Some((stand_by(words), form))
}

fn stand_by<S: AsRef<OsStr>>(mut words: impl Iterator<Item = S>) -> StartError {
    let mut next = || words.next().map(|word| word.as_ref().to_owned());
    let (Some(descriptor), Some(held), Some(program)) = (next(), next(), next()) else {
        return StartError::WrapperEnded;
    };
    // It inherits no signal mask of ours. Let through at once, so that it can be ended.
    let descriptor = held.to_str().and_then(let_through).and(descriptor.to_str());
    let Some(additions) = descriptor.and_then(listen) else { return StartError::WrapperEnded };
    let mut command = Command::new(program);
    command.args(words).env_remove(REAL_PATH);
    match std::env::var_os(REAL_PATH) {
        Some(path) => command.env("PATH", path),
        None => command.env_remove("PATH"),
    };
    become_it(command, &additions)
}

/// Becomes the command (execve(2)), with these variables added to its environment; comes back
/// only with the reason why not.
pub fn execute<S: AsRef<OsStr>>(
    program: OsString,
    arguments: impl Iterator<Item = S>,
    additions: &[(impl AsRef<OsStr>, impl AsRef<OsStr>)],
) -> StartError {
    let mut command = Command::new(program);
    command.args(arguments);
    become_it(command, additions)
}

fn become_it(
    mut command: Command,
    additions: &[(impl AsRef<OsStr>, impl AsRef<OsStr>)],
) -> StartError {
    let error = command.envs(additions.iter().map(|(name, value)| (name, value))).exec();
    StartError::Command { program: command.get_program().to_owned(), error }
}

/// The word, with what to add to the environment: `NAME=VALUE` and NUL for each, and a last NUL
/// that shows that all of it has come.
pub(crate) fn word(additions: &[(&str, impl AsRef<str>)]) -> Vec<u8> {
    let mut text = String::new();
    for (name, value) in additions {
        text.extend([name, "=", value.as_ref(), "\0"]);
    }
    text.push('\0');
    text.into_bytes()
}

/// Reads [`word`]. `None`: the other side was gone before it had said it all.
fn heard(text: &str) -> Option<Vec<(String, String)>> {
    let all = text.strip_suffix('\0').filter(|all| all.is_empty() || all.ends_with('\0'))?;
    let additions = all.split_terminator('\0').map(|item| item.split_once('='));
    additions.map(|it| it.map(|(name, value)| (name.to_owned(), value.to_owned()))).collect()
}

/// Waits for the word. Nothing at all means that the wrapper is gone, so nothing is held. The descriptor was inherited
/// for us alone, so it is none of the standard ones.
fn listen(descriptor: &str) -> Option<Vec<(String, String)>> {
    let digits = descriptor.bytes().all(|byte| byte.is_ascii_digit());
    heard(&sys::hear(descriptor.parse().ok().filter(|number| digits && *number > 2)?)?)
}

/// The first argument of the process in the background. No program's command may be called so.
const IN_BACKGROUND: &str = "run-in-background";

/// The process in the background, as the one that started it sees it.
///
/// ```no_run
/// # fn main() -> std::io::Result<()> {
/// use wrapcmd::{Background, Signals};
///
/// let signals = Signals::catch()?;
/// match Background::start("job", &["make".into()], &signals)?.outcome(&signals)? {
///     None => println!("the command has begun"),
///     Some(end) => println!("it never began: {}", end.code()),
/// }
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use]
pub struct Background {
    report: File,
    child: Child,
}

impl Background {
    /// Starts this very program again, under the name `program`, with these arguments; its `main` must begin
    /// with [`crate::take_over`] and then ask [`in_background`].
    ///
    /// # Errors
    /// No socket or no process can be had.
    pub fn start(program: &str, words: &[OsString], signals: &Signals) -> io::Result<Self> {
        let (report, reporter) = sys::line()?;
        let mut child = once_more(program, IN_BACKGROUND)?;
        let child = child.arg(signals.newly_held()).args(words).stdin(reporter).spawn()?;
        Ok(Self { report: report.into(), child })
    }

    /// Waits until the command begins (`None`), or the process has ended before that. Hands it the signals that
    /// arrive meanwhile; what a terminal sends it gets anyway.
    ///
    /// # Errors
    /// Somebody else has waited for the process.
    pub fn outcome(mut self, signals: &Signals) -> io::Result<Option<End>> {
        let child = i32::try_from(self.child.id()).map(Pid::from_raw).map_err(io::Error::other)?;
        while pause(Some(signals), Some(self.report.as_fd()), None) != Woken::Ready {
            if signals.hand_on(child) {
                stop_here();
            }
        }
        if self.report.read(&mut [0])? > 0 {
            return Ok(None);
        }
        end_of(&mut self.child).map(Some)
    }
}

/// Whether this process is one in the background ([`Background`]), by the arguments behind the program's name:
/// then its own arguments, and the report that its command begins. Undoes what it inherited: standard input leads to
/// its caller, and to nothing (`/dev/null`) from here on.
#[must_use]
pub fn in_background<S: AsRef<OsStr>>(
    mut words: impl Iterator<Item = S>,
) -> Option<(Vec<OsString>, Began)> {
    words.next().filter(|word| word.as_ref() == IN_BACKGROUND)?;
    words.next()?.as_ref().to_str().and_then(let_through)?;
    let began = Began(io::stdin().as_fd().try_clone_to_owned().ok()?.into());
    dup2_stdin(File::open("/dev/null").ok()?).ok()?;
    sys::path_is_handed_on();
    Some((words.map(|word| word.as_ref().to_owned()).collect(), began))
}

/// Reports to a waiting caller that the command begins: one byte.
#[derive(Debug)]
#[must_use]
pub struct Began(File);

impl Began {
    /// Reports it.
    ///
    /// # Errors
    /// The caller that waits for it is gone.
    pub fn report(mut self) -> io::Result<()> {
        self.0.write_all(b"1")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_read_back_whole_or_not_at_all() {
        let tables: [&[(&str, &str)]; 4] =
            [&[], &[("A", "1")], &[("A", ""), ("B", "x=y")], &[("A", "a\nb")]];
        for additions in tables {
            let said = String::from_utf8(word(additions)).unwrap();
            let expected = additions.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect();
            assert_eq!(heard(&said), Some(expected), "{said:?}");
            for end in 0..said.len() {
                let cut = said.get(..end).unwrap_or_default();
                assert_eq!(heard(cut), None, "{cut:?}");
            }
        }
    }
}
