//! The command line of `lfpd`: arguments to configuration, and the program's entry point.
//!
//! Reads no environment variable, and no file but `/etc/group`. Prints only where no client can see it.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, RangedU64ValueParser, TypedValueParser};
use clap::{CommandFactory, Parser};
use syslog::Facility;

use crate::limits::{
    CONNECTIONS, CONNECTIONS_MAX, CONNECTIONS_PER_USER, IDLE_TIMEOUT, WAIT_MAX_SECS,
};
use crate::log::{self, Log, Severity};
use crate::peer::{LockRight, Rule};
use crate::protocol::reply::{VERSION_CHARS, Version};
use crate::serve::authority::Authority;
use crate::serve::listener::Address;
use crate::serve::listener::{self, Listener};
use crate::serve::{Service, Settings, connection, wire};
use ttylock::{DeviceName, Dialect, Layout, STATE_DIR, Table};

/// Where device nodes are.
const DEV_DIR: &str = "/dev";

/// The exit code for help that could not be written (`EX_IOERR` in sysexits.h).
const OUTPUT_FAILED: u8 = 74;

/// The exit code for options that cannot be understood (`EX_USAGE` there).
const WRONG_USAGE: u8 = 64;

const EXAMPLES: &str = "\
Examples:
  lfpd --listen unix:/run/lfpd/lfpd.sock --listen 127.0.0.1:50001
  tcpsvd -l localhost -u uucp 127.0.0.1 50001 lfpd";

/// Serves the Lock File Protocol: to one client on standard input and output
/// (started by inetd), or to many clients (with --listen).
#[derive(Debug, Parser)]
#[command(name = "lfpd", version, disable_help_subcommand = true, verbatim_doc_comment)]
#[command(next_line_help = true, after_help = EXAMPLES)]
struct Options {
    /// Write lock files to this directory instead of the system's own
    #[arg(long, value_name = "DIR")]
    lock_dir: Option<PathBuf>,

    /// Search this directory for locks, instead of the built-in list (repeatable)
    #[arg(long, value_name = "DIR")]
    search_dir: Vec<PathBuf>,

    /// Follow this system's conventions for lock files [default: this one]
    #[arg(long, value_name = "NAME", value_parser = systems(), hide_possible_values = true)]
    os: Option<&'static Dialect>,

    /// Keep the start times of lock holders here
    #[arg(long, value_name = "DIR", default_value = STATE_DIR)]
    state_dir: PathBuf,

    /// Close a connection that was idle for this many seconds
    #[arg(long, value_name = "SECS", default_value_t = IDLE_TIMEOUT.as_secs(),
          value_parser = clap::value_parser!(u64).range(1..=WAIT_MAX_SECS.into()))]
    idle_timeout: u64,

    /// Listen on `127.0.0.1:PORT`, `[::1]:PORT` or `unix:PATH` (repeatable)
    #[arg(long, value_name = "ADDR")]
    listen: Vec<Address>,

    /// When listening: at most this many connections in all
    #[arg(long, value_name = "N", default_value_t = CONNECTIONS,
          value_parser = RangedU64ValueParser::<usize>::new().range(1..=CONNECTIONS_MAX))]
    max_connections: usize,

    /// When listening: at most this many connections of one user
    #[arg(long, value_name = "N", default_value_t = CONNECTIONS_PER_USER,
          value_parser = RangedU64ValueParser::<usize>::new().range(1..=CONNECTIONS_MAX))]
    max_per_user: usize,

    /// The version in the greeting
    #[arg(long, value_name = "TEXT", default_value = Version::ORIGINAL, value_parser = version)]
    banner_version: Version,

    /// Let any client name any process, as the original server did
    #[arg(long)]
    trust_pid: bool,

    /// Let processes lock devices that they may not open
    #[arg(long)]
    anyone: bool,

    /// When listening: lock ports for programs that open them without a lock
    #[arg(long)]
    watch_opens: bool,

    /// When listening: let nobody but its holder open a locked port
    #[arg(long, conflicts_with_all = ["trust_pid", "anyone"])]
    exclusive: bool,

    /// With --exclusive: do not make this port exclusive (repeatable)
    #[arg(long, value_name = "PORT", requires = "exclusive")]
    exclusive_except: Vec<DeviceName>,

    /// Let this group (name or number) release any lock by FORCE, as root may
    #[arg(long, value_name = "GROUP", value_parser = group)]
    force_group: Option<u32>,

    /// Log level: error, warning, notice, info or debug
    #[arg(long, value_name = "LEVEL", default_value = "info", hide_possible_values = true)]
    log_level: Severity,

    /// Log under this syslog facility: daemon, uucp, local0
    #[arg(long, value_name = "NAME", default_value = "daemon", value_parser = log::facility)]
    log_facility: Facility,
}

/// What holds where no option is given, as nearly always under inetd: then nothing is parsed, which takes as long as a
/// third of all that a session without commands does.
impl Default for Options {
    fn default() -> Self {
        Self {
            lock_dir: None,
            search_dir: Vec::new(),
            os: None,
            state_dir: PathBuf::from(STATE_DIR),
            idle_timeout: IDLE_TIMEOUT.as_secs(),
            listen: Vec::new(),
            max_connections: CONNECTIONS,
            max_per_user: CONNECTIONS_PER_USER,
            banner_version: Version::original(),
            trust_pid: false,
            anyone: false,
            watch_opens: false,
            exclusive: false,
            exclusive_except: Vec::new(),
            force_group: None,
            log_level: Severity::Info,
            log_facility: Facility::Daemon,
        }
    }
}

/// The program's options, for completions and for checks of the manual.
#[must_use]
pub fn command() -> clap::Command {
    Options::command()
}

/// Runs the program to its end. The arguments are with the program's name.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let descriptors = wire::make_safe();
    // A client whose lock cannot be written gets an answer; the session does not end by a signal.
    let _ = pidlockfile::catch_file_size_signal();
    pidlockfile::without_children();
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let options = match arguments.len() {
        0 | 1 => Ok(Options::default()),
        _ => Options::try_parse_from(arguments),
    };
    match options {
        Ok(options) => options.serve(descriptors),
        Err(error) if descriptors.lead_to_a_client() => {
            Log::new(Facility::Daemon, Severity::Error)
                .record(Severity::Error, &format_args!("cannot start: {}", error.kind()));
            ExitCode::from(WRONG_USAGE)
        }
        Err(error) if error.use_stderr() => {
            descriptors.explain(&error.to_string());
            ExitCode::from(WRONG_USAGE)
        }
        Err(text) => {
            let Err(error) = print(&text.to_string()) else { return ExitCode::SUCCESS };
            descriptors.explain(&format!("lfpd: standard output: {error}\n"));
            ExitCode::from(OUTPUT_FAILED)
        }
    }
}

/// Writes help or version to standard output. A reader that stops early (`| head`) is not a failure.
fn print(text: &str) -> io::Result<()> {
    let mut output = io::stdout().lock();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        outcome => outcome,
    }
}

impl Options {
    fn serve(self, descriptors: wire::Descriptors) -> ExitCode {
        log::catch_panics(self.log_facility, descriptors.standard_error);
        let log = Log::new(self.log_facility, self.log_level);
        let authority = self.authority();
        let idle_timeout = Duration::from_secs(self.idle_timeout);
        let version = self.banner_version.clone();
        let mut settings = Settings {
            idle_timeout,
            limit: self.max_connections,
            limit_per_user: self.max_per_user,
            ends_when_idle: false,
            watch_opens: self.watch_opens,
            exclusive_except: self.exclusive.then(|| self.exclusive_except.clone()),
        };
        let mut listeners = listener::from_systemd();
        if let Some(listener) = listener::from_inetd() {
            wire::close_input();
            listeners.push(listener);
            settings.ends_when_idle = true;
        }
        // A session reports it in its answers; a daemon that can lock nothing should not seem to work.
        let is_daemon = !(self.listen.is_empty() && listeners.is_empty());
        let opened =
            self.check_lock_dir(is_daemon).and_then(|()| open(&self.listen, &mut listeners));
        let mut service = Service::new(version, authority, Table::new(self.layout()), log);
        let served = match opened {
            Ok(()) if listeners.is_empty() && settings.watch_opens => daemon_only("--watch-opens"),
            Ok(()) if listeners.is_empty() && settings.exclusive_except.is_some() => {
                daemon_only("--exclusive")
            }
            Ok(()) if listeners.is_empty() => {
                connection::serve_stdio(&mut service, descriptors, idle_timeout);
                service.table.sweep_drafts();
                service.log_events();
                // The kernel closes everything at once, and faster.
                std::mem::forget(service);
                return ExitCode::SUCCESS;
            }
            #[cfg(target_os = "linux")]
            Ok(()) => crate::serve::listen::serve(&mut service, listeners, settings)
                .map_err(|error| format!("cannot serve: {error}")),
            #[cfg(not(target_os = "linux"))]
            Ok(()) => Ok(()),
            Err(complaint) => Err(complaint),
        };
        let Err(complaint) = served else { return ExitCode::SUCCESS };
        service.complain(&complaint);
        descriptors.explain(&format!("lfpd: {complaint}\n"));
        ExitCode::FAILURE
    }

    /// A directory that was named must be there. The system's own one may come later.
    fn check_lock_dir(&self, is_daemon: bool) -> Result<(), String> {
        let Some(lock_dir) = self.lock_dir.as_ref().filter(|_| is_daemon) else { return Ok(()) };
        let shown = lock_dir.display();
        match std::fs::metadata(lock_dir) {
            Ok(seen) if seen.is_dir() => Ok(()),
            Ok(_) => Err(format!("--lock-dir {shown} is not a directory")),
            Err(error) => Err(format!("--lock-dir {shown}: {error}")),
        }
    }

    fn authority(&self) -> Authority {
        Authority {
            rule: if self.trust_pid { Rule::Any } else { Rule::Own },
            access: if self.anyone { LockRight::Anyone } else { LockRight::OfDevice },
            dev_dir: PathBuf::from(DEV_DIR),
            force_group: self.force_group,
        }
    }

    fn layout(self) -> Layout {
        let system = self.os.unwrap_or_else(Dialect::native);
        let mut layout = Layout::of(system);
        if let Some(lock_dir) = self.lock_dir {
            layout.lock_dir = lock_dir;
        }
        if !self.search_dir.is_empty() {
            layout.search_dirs = self.search_dir;
        }
        layout.state_dir = self.state_dir;
        layout
    }
}

fn open(addresses: &[Address], listeners: &mut Vec<Listener>) -> Result<(), String> {
    if cfg!(not(target_os = "linux")) && !(addresses.is_empty() && listeners.is_empty()) {
        let why = "--listen and passed sockets need Linux";
        return Err(format!("{why}: let inetd start lfpd for each connection (nowait)"));
    }
    for address in addresses {
        let listener = Listener::at(address);
        listeners.push(listener.map_err(|error| format!("cannot listen on {address}: {error}"))?);
    }
    Ok(())
}

fn daemon_only(option: &str) -> Result<(), String> {
    Err(format!("{option} is for a daemon: it needs --listen"))
}

/// The systems by their names, which shells complete.
fn systems() -> impl TypedValueParser<Value = &'static Dialect> {
    let names = PossibleValuesParser::new(Dialect::systems().map(Dialect::name));
    names.try_map(|name| Dialect::by_name(&name).ok_or("no such system"))
}

fn version(text: &str) -> Result<Version, String> {
    Version::parse(text)
        .ok_or_else(|| format!("needs 1 to {VERSION_CHARS} characters of printable ASCII"))
}

/// The number of a group, by `/etc/group` and no other source: name services are code of others, and may take any time.
fn group(name: &str) -> Result<u32, String> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    let groups = std::fs::read_to_string("/etc/group").map_err(|error| error.to_string())?;
    group_in(&groups, name).ok_or_else(|| "no such group in /etc/group".to_owned())
}

/// Source: group(5), `name:password:number:members`.
fn group_in(groups: &str, name: &str) -> Option<u32> {
    let fields = groups.lines().map(|line| line.split(':'));
    fields.into_iter().find_map(|mut fields| {
        let is_it = fields.next() == Some(name);
        fields.nth(1).filter(|_| is_it)?.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `--help` and the manual say what clap gives.
    #[test]
    fn without_options_everything_is_as_if_nothing_were_parsed() {
        let parsed = Options::try_parse_from(["lfpd"]).unwrap();
        assert_eq!(format!("{parsed:?}"), format!("{:?}", Options::default()));
    }

    #[test]
    fn groups_are_found_by_name() {
        let groups = "root:x:0:\nadm:x:4:alice\nbroken\nbad:x:y:\n";
        assert_eq!(group_in(groups, "adm"), Some(4));
        assert_eq!(group_in(groups, "bad"), None);
        assert_eq!(group_in(groups, "broken"), None);
        assert_eq!(group_in(groups, "ad"), None);
        assert_eq!(group("20"), Ok(20));
    }
}
