//! The command line, with the examples and exit codes at the end of its help. Words in, values out.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, CommandFactory, Parser, Subcommand};
use nix::sys::signal::Signal;
use pidlockfile::Pid;
use ttylock::DeviceName;
use wrapcmd::usage::{pid, seconds};
use wrapcmd::{Form, Shell};

use super::devices::device;
use super::outcome::exit;
use crate::client::Address;
use crate::client::broker::Route;

/// The heading of the options that say whom to ask. They are the same for all commands.
const CONNECTION: &str = "Connection";

/// Shows, takes and releases the locks of serial ports.
#[derive(Debug, Parser)]
#[command(name = "lfp", version, after_help = examples::ALL, max_term_width = 100)]
pub(super) struct Options {
    /// Ask this service: unix:PATH, a path, or a loopback ADDRESS:PORT
    /// [default: /run/lfpd/lfpd.sock, then 127.0.0.1:50001]
    #[arg(long, value_name = "ADDR", global = true, conflicts_with = "direct", help_heading = CONNECTION)]
    server: Option<Address>,

    /// Ask no service; use the lock files themselves
    #[arg(long, global = true, help_heading = CONNECTION)]
    direct: bool,

    /// Print JSON instead of text, also if it fails: one value on one line
    #[arg(long, global = true)]
    json: bool,

    /// Print no answer, and no message if another process has the device: the exit code says it
    #[arg(short, long, global = true)]
    quiet: bool,

    #[command(subcommand)]
    pub(super) action: Action,
}

#[derive(Debug, Subcommand)]
pub(super) enum Action {
    /// Show which processes hold these devices, and how
    #[command(after_help = examples::WHO)]
    Who(WhoArguments),
    /// Hold a device while a command runs
    #[command(after_help = examples::RUN)]
    Run(RunArguments),
    /// Show every holder on this machine
    #[command(after_help = examples::LIST)]
    List(ListArguments),
    /// Lock a device for a process, or name the holder
    #[command(after_help = examples::LOCK)]
    Lock(LockArguments),
    /// Release a device for a process
    #[command(after_help = examples::UNLOCK)]
    Unlock(UnlockArguments),
    /// Take a device for a process as soon as it is free
    #[command(after_help = examples::WAIT)]
    Wait(WaitArguments),
    /// Ask the holder under `lfp run --yield-on` to release a device
    #[command(after_help = examples::ASK)]
    Ask(AskArguments),
    /// Hand a device from one process to another, without a gap
    #[command(after_help = examples::PASS)]
    Pass(PassArguments),
    /// Remove the locks of processes that are gone
    #[command(after_help = examples::CLEAN)]
    Clean,
    /// Run a command with its locks taken through the service
    #[command(after_help = examples::SHIM)]
    Shim(ShimArguments),
    /// Make a program lock through the service for every user
    #[command(after_help = examples::ADOPT)]
    Adopt(AdoptArguments),
    /// Print the completions of a shell
    #[command(hide = true)]
    Completions { shell: Shell },
}

#[derive(Args, Debug)]
pub(super) struct LockTarget {
    /// /dev/NAME or NAME
    #[arg(value_name = "DEVICE", value_parser = device)]
    pub(super) device: DeviceName,

    /// The process that holds the lock [default: the shell or program that called lfp]
    #[arg(long, value_name = "PID", value_parser = pid)]
    pub(super) pid: Option<Pid>,

    #[command(flatten)]
    busy: BusyCode,
}

#[derive(Args, Debug)]
pub(super) struct LockArguments {
    #[command(flatten)]
    pub(super) target: LockTarget,

    #[command(flatten)]
    pub(super) presence: Presence,
}

/// Whether the device must be there.
#[derive(Args, Clone, Copy, Debug)]
pub(super) struct Presence {
    /// Lock DEVICE even if there is no such device yet
    #[arg(long)]
    pub(super) absent: bool,
}

#[derive(Args, Debug)]
pub(super) struct UnlockArguments {
    #[command(flatten)]
    pub(super) target: LockTarget,

    /// Release the lock of any process: for root and the group of `lfpd --force-group`
    #[arg(long)]
    pub(super) force: bool,

    /// Send the holder this signal first
    #[arg(long, value_name = "SIGNAL", value_parser = signal, requires = "force")]
    pub(super) signal: Option<Signal>,

    /// Wait this many seconds for the holder to release it
    #[arg(long, value_name = "SECS", value_parser = seconds, requires = "force")]
    pub(super) grace: Option<Duration>,
}

#[derive(Args, Debug)]
pub(super) struct AskArguments {
    /// /dev/NAME or NAME
    #[arg(value_name = "DEVICE", value_parser = device)]
    pub(super) device: DeviceName,

    /// Wait this many seconds for the holder to release it
    #[arg(short, long, value_name = "SECS", value_parser = seconds, default_value = "5")]
    pub(super) timeout: Duration,

    #[command(flatten)]
    busy: BusyCode,
}

#[derive(Args, Debug)]
pub(super) struct PassArguments {
    #[command(flatten)]
    pub(super) target: LockTarget,

    /// The process that gets the lock
    #[arg(long, value_name = "PID", value_parser = pid)]
    pub(super) to: Pid,
}

#[derive(Args, Debug)]
pub(super) struct WaitArguments {
    #[command(flatten)]
    pub(super) lock: LockArguments,

    /// Give up after this many seconds, such as 10 or 0.5 [default: never]
    #[arg(short, long, value_name = "SECS", value_parser = seconds)]
    pub(super) timeout: Option<Duration>,
}

#[derive(Args, Debug)]
pub(super) struct WhoArguments {
    /// /dev/NAME or NAME [default: every device with a holder]
    #[arg(value_name = "DEVICE", value_parser = device)]
    pub(super) devices: Vec<DeviceName>,

    #[command(flatten)]
    pub(super) repeat: Repeat,
}

#[derive(Args, Debug)]
pub(super) struct ListArguments {
    /// Show free devices too
    #[arg(short, long)]
    pub(super) all: bool,

    #[command(flatten)]
    pub(super) repeat: Repeat,
}

/// Whether to show it again and again.
#[derive(Args, Clone, Copy, Debug)]
pub(super) struct Repeat {
    /// Show the table again whenever it changes
    #[arg(short, long, conflicts_with = "quiet")]
    pub(super) watch: bool,
}

#[derive(Args, Debug)]
pub(super) struct BusyCode {
    /// The exit code if another process has the device
    #[arg(short = 'E', long = "conflict-exit-code", value_name = "CODE", default_value_t = exit::BUSY)]
    code: u8,
}

#[derive(Args, Debug)]
pub(super) struct ToRun {
    /// What to run, with its arguments
    #[arg(
        value_name = "COMMAND",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub(super) words: Vec<OsString>,
}

#[derive(Args, Debug)]
pub(super) struct RunArguments {
    /// /dev/NAME or NAME
    #[arg(value_name = "DEVICE", value_parser = device)]
    pub(super) device: DeviceName,

    /// Hold this device as well: all of them, or none
    #[arg(short, long = "also", value_name = "DEVICE", value_parser = device)]
    pub(super) also: Vec<DeviceName>,

    /// Wait for the device, for this many seconds [default: do not wait]
    #[arg(short, long, value_name = "SECS", value_parser = seconds)]
    pub(super) timeout: Option<Duration>,

    #[command(flatten)]
    pub(super) presence: Presence,

    /// Send the command this signal when another process waits for the device
    #[arg(long, value_name = "SIGNAL", value_parser = signal, conflicts_with = "no_fork")]
    pub(super) yield_on: Option<Signal>,

    /// While the command has the device open, have the kernel refuse it to all other programs (TIOCEXCL)
    #[arg(long, conflicts_with = "no_fork")]
    pub(super) exclusive: bool,

    /// Become the command instead of waiting for its end, so that the process number stays
    #[arg(long)]
    pub(super) no_fork: bool,

    /// Turn the command's lock files into locks of the service, so that it gets the port
    /// [default: where liblfp_preload.so is installed and can be loaded into COMMAND]
    #[arg(long, conflicts_with = "no_shim")]
    pub(super) shim: bool,

    /// Do not use liblfp_preload.so, even if it is installed
    #[arg(long)]
    pub(super) no_shim: bool,

    /// With --shim, let programs that make no lock files lock every serial port they open
    #[arg(long, requires = "shim")]
    pub(super) ports: bool,

    #[command(flatten)]
    busy: BusyCode,

    #[command(flatten)]
    pub(super) command: ToRun,
}

#[derive(Args, Debug)]
pub(super) struct ShimArguments {
    /// Let programs that make no lock files lock every serial port they open
    #[arg(long)]
    pub(super) ports: bool,

    /// Treat this device as a serial port too
    #[arg(long, value_name = "DEVICE", value_parser = device, requires = "ports")]
    pub(super) also: Vec<DeviceName>,

    /// Have the kernel refuse these ports to all other programs while they are open (TIOCEXCL)
    #[arg(long, requires = "ports")]
    pub(super) exclusive: bool,

    /// Wait in line for a busy port, for this many seconds [default: do not wait]
    #[arg(long, value_name = "SECS", value_parser = seconds, requires = "ports")]
    pub(super) wait: Option<Duration>,

    /// If the library cannot be loaded into COMMAND, run COMMAND without it
    #[arg(long)]
    pub(super) or_plain: bool,

    #[command(flatten)]
    pub(super) command: ToRun,
}

#[derive(Args, Debug)]
pub(super) struct AdoptArguments {
    /// The name of a program in PATH
    #[arg(value_name = "PROGRAM", value_parser = program)]
    pub(super) program: String,

    /// Let it lock every serial port it opens (default)
    #[arg(long)]
    ports: bool,

    /// Turn its lock files into locks of the service, but lock no ports that it only opens
    #[arg(long, conflicts_with = "ports")]
    pub(super) files: bool,

    /// Remove the script again: the program starts as before
    #[arg(long, conflicts_with_all = ["ports", "files"])]
    pub(super) undo: bool,
}

/// The program's options, for completions and for checks of the manual.
#[must_use]
pub fn command() -> clap::Command {
    Options::command()
}

impl Action {
    pub(super) fn code_for_busy(&self) -> u8 {
        match self {
            Self::Lock(asked) => asked.target.busy.code,
            Self::Unlock(asked) => asked.target.busy.code,
            Self::Ask(asked) => asked.busy.code,
            Self::Pass(asked) => asked.target.busy.code,
            Self::Wait(asked) => asked.lock.target.busy.code,
            Self::Run(asked) => asked.busy.code,
            Self::Who(_)
            | Self::List(_)
            | Self::Shim(_)
            | Self::Adopt(_)
            | Self::Clean
            | Self::Completions { .. } => exit::BUSY,
        }
    }
}

impl Options {
    pub(super) fn route(&self) -> Route {
        match &self.server {
            Some(address) => Route::Server(address.clone()),
            None if self.direct => Route::Direct,
            None => Route::Usual,
        }
    }

    pub(super) fn form(&self) -> Form {
        match (self.quiet, self.json) {
            (true, _) => Form::Quiet,
            (false, true) => Form::Json,
            (false, false) => Form::Text,
        }
    }
}

/// The name of a program, without a directory.
pub(super) fn program(text: &str) -> Result<String, &'static str> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_+.".contains(&byte);
    let is_name = !text.is_empty() && !text.starts_with(['.', '-']) && text.bytes().all(fits);
    is_name.then(|| text.to_owned()).ok_or("needs the name of a program, without a directory")
}

/// `TERM`, `SIGTERM` or a number, in any case.
pub(super) fn signal(text: &str) -> Result<Signal, &'static str> {
    let name = text.to_ascii_uppercase();
    let name = if name.starts_with("SIG") { name } else { format!("SIG{name}") };
    let number = || Signal::try_from(text.parse::<i32>().ok()?).ok();
    name.parse().ok().or_else(number).ok_or("needs a signal, such as TERM, SIGUSR1 or 10")
}

/// The end of `--help`: two examples for each command, and the exit codes.
mod examples {
    pub(super) const ALL: &str = "\
Examples:
  lfp who /dev/ttyUSB0                            which program has the port
  lfp run /dev/ttyUSB0 -- picocom /dev/ttyUSB0    run a program under the lock

The manual: man lfp

Exit codes:
  0   done
  1   busy, or not held; -E changes it
  64  wrong usage
  66  no such device
  69  no service can be reached, or it does not answer
  71  the system refused something
  74  the output could not be written
  75  timed out
  77  not permitted; clean: stale locks were left
run exits with the code of the command, 128+n when signal n ended it, 126 when
it cannot be executed and 127 when it is not found.";

    pub(super) const LOCK: &str = "\
Examples:
  lfp lock /dev/ttyUSB0               for this shell, until it ends
  lfp lock /dev/ttyUSB0 --pid 4711    for another process of yours";

    pub(super) const UNLOCK: &str = "\
Examples:
  lfp unlock /dev/ttyUSB0
  sudo lfp unlock --force --signal TERM --grace 5 /dev/ttyUSB0";

    pub(super) const ASK: &str = "\
Examples:
  lfp ask /dev/ttyUSB0
  lfp ask --timeout 60 /dev/ttyUSB0";

    pub(super) const PASS: &str = "\
Examples:
  lfp pass /dev/ttyUSB0 --to 4711
  lfp pass /dev/ttyUSB0 --pid $$ --to $!";

    pub(super) const WAIT: &str = "\
Examples:
  lfp wait --timeout 60 /dev/ttyS0 || exit
  lfp wait /dev/ttyS0 && echo AT >/dev/ttyS0; lfp unlock /dev/ttyS0";

    pub(super) const WHO: &str = "\
Examples:
  sudo lfp who /dev/ttyUSB0           also programs without a lock
  lfp who -q ttyUSB0 && echo in use   for scripts";

    pub(super) const LIST: &str = "\
Examples:
  lfp list --all                      every port, in use or free
  lfp --json list                     for programs";

    pub(super) const RUN: &str = "\
Examples:
  lfp run /dev/ttyUSB0 -- picocom -b 115200 /dev/ttyUSB0
  lfp run --timeout 30 /dev/ttyACM0 -- arduino-cli upload -p /dev/ttyACM0";

    pub(super) const SHIM: &str = "\
Examples:
  lfp shim -- gammu identify
  lfp shim --ports -- make flash";

    pub(super) const ADOPT: &str = "\
Examples:
  sudo lfp adopt minicom
  sudo lfp adopt --undo minicom";

    pub(super) const CLEAN: &str = "\
Examples:
  lfp clean
  sudo lfp clean                      also the locks of other users";
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[test]
    fn clap_finds_no_fault() {
        command().debug_assert();
    }

    #[rstest]
    #[case::after_dashes(&["lfp", "run", "ttyS0", "--", "picocom", "-b", "9600"])]
    #[case::without_dashes(&["lfp", "run", "ttyS0", "picocom", "-b", "9600"])]
    fn a_command_keeps_its_own_options(#[case] words: &[&str]) {
        let Action::Run(run) = Options::try_parse_from(words).unwrap().action else {
            panic!("not run");
        };
        assert_eq!(run.command.words, ["picocom", "-b", "9600"]);
    }

    #[rstest]
    #[case::no_action(&["lfp"])]
    #[case::unknown(&["lfp", "steal", "ttyS0"])]
    #[case::no_device(&["lfp", "lock"])]
    #[case::quiet_watch(&["lfp", "who", "-q", "-w"])]
    #[case::outside(&["lfp", "who", "/etc/passwd"])]
    #[case::climbs(&["lfp", "lock", "../ttyS0"])]
    #[case::two_devices(&["lfp", "lock", "ttyS0", "ttyS1"])]
    #[case::signal_of_nothing(&["lfp", "unlock", "--signal", "TERM", "ttyS0"])]
    #[case::no_signal(&["lfp", "unlock", "--force", "--signal", "NONE", "ttyS0"])]
    #[case::pid_zero(&["lfp", "lock", "ttyS0", "--pid", "0"])]
    #[case::pid_plus(&["lfp", "lock", "ttyS0", "--pid", "+5"])]
    #[case::no_command(&["lfp", "run", "ttyS0"])]
    #[case::code(&["lfp", "run", "-E", "256", "ttyS0", "true"])]
    #[case::two_routes(&["lfp", "--direct", "--server", "/x", "list"])]
    #[case::elsewhere(&["lfp", "--server", "192.0.2.1:50001", "list"])]
    fn invalid_command_lines_are_refused(#[case] words: &[&str]) {
        let error = Options::try_parse_from(words).unwrap_err();
        assert!(error.use_stderr());
    }
}
