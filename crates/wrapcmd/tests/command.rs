//! A command under a wrapper, as real processes: exit codes, signals, what it inherits, and what
//! becomes of it when one of the two is killed.
//!
//! Starts itself again as the wrapper (`hold`, `wait FILE`), which starts itself again as the
//! process that stands by; so it has a `main` of its own.

#![expect(clippy::unwrap_used, reason = "a test program")]

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use nix::fcntl::OFlag;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use testbed::local::{End, Running, SIGNAL_MASKS, Scratch, masks, run, start, until};
use testbed::run_tests;
use wrapcmd::{Form, Signals, Standby, exit, take_over};

/// What this program ends with when it stood by and was never told.
const UNTOLD: u8 = 99;

fn main() -> ExitCode {
    if let Some((error, _)) = take_over(std::env::args_os().skip(1)) {
        eprintln!("test: {error}");
        return ExitCode::from(error.code().unwrap_or(UNTOLD));
    }
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    match words.split_first() {
        Some((word, command)) if word == "hold" => ExitCode::from(hold(command, None)),
        Some((word, rest)) if word == "wait" => {
            let (file, command) = rest.split_first().unwrap();
            ExitCode::from(hold(command, Some(Path::new(file))))
        }
        _ => {
            run_tests(&TESTS, None);
            ExitCode::SUCCESS
        }
    }
}

/// The wrapper. Goes on as soon as the file is there.
fn hold(command: &[OsString], until: Option<&Path>) -> u8 {
    let signals = Signals::catch().unwrap();
    let standby = Standby::start("a name", command, Form::Text, &signals).unwrap();
    let pid = standby.pid();
    while until.is_some_and(|file| !file.exists()) {
        wrapcmd::pause(Some(&signals), None, Some(Duration::from_millis(5)));
        let ending = signals.ending().map(|number| Signal::try_from(number).unwrap());
        match ending {
            Some(Signal::SIGCHLD) => return standby.dismiss().unwrap().code(),
            Some(signal) => {
                let code = standby.dismiss().unwrap().code();
                assert!([UNTOLD, exit::by_signal(signal as i32)].contains(&code), "{code}");
                return exit::by_signal(signal as i32);
            }
            None => {}
        }
    }
    let running = standby.go(&[("HELD", "a=b\nc"), ("NUMBER", &pid.to_string())]);
    running.attend(&signals);
    let left = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    assert!(left.contains(") Z "), "its number is no longer its own: {left}");
    running.end().unwrap().code()
}

/// Tests with their names.
macro_rules! tests {
    ($($name:ident)*) => { [$((stringify!($name), || $name(&Scratch::new()))),*] };
}

const TESTS: [(&str, fn()); 15] = tests! {
    the_exit_code_passes
    a_command_that_cannot_run_ends_with_126_or_127
    the_command_is_the_process_that_stood_by
    arguments_input_and_output_are_its_own
    a_command_inherits_no_descriptor_and_no_signal_mask
    signals_are_handed_on
    a_stop_is_no_end
    a_terminals_signal_comes_once
    a_job_is_stopped_and_goes_on_as_a_whole
    an_ignored_signal_stays_ignored
    a_caller_that_ignores_children_learns_the_code
    a_signal_ends_the_wait
    without_its_wrapper_it_never_runs
    a_killed_standby_ends_the_wait
    another_child_ends_nothing
};

fn command(scratch: &Scratch, program: &str, words: &[&str]) -> Command {
    let mut command = scratch.command(program);
    command.args(words).env("SELF", std::env::current_exe().unwrap());
    command
}

/// This program as the wrapper.
fn wrapper(scratch: &Scratch, words: &[&str]) -> Running {
    let ours = std::env::current_exe().unwrap();
    start(&mut command(scratch, ours.to_str().unwrap(), words))
}

/// The exit code as a shell tells it, and what was said.
fn told(end: End) -> (i32, String, String) {
    (end.shell_code(), end.out, end.err)
}

fn ran(scratch: &Scratch, words: &[&str]) -> (i32, String, String) {
    told(wrapper(scratch, words).end())
}

fn done(scratch: &Scratch, program: &str, words: &[&str]) -> (i32, String, String) {
    told(run(&mut command(scratch, program, words)))
}

/// The process that stands by for this wrapper, once it does.
fn standby_of(wrapper: &Running) -> Pid {
    let pid = wrapper.pid();
    until("a process that stands by", || {
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
        children.split_whitespace().find_map(|child| {
            let line = fs::read_to_string(format!("/proc/{child}/cmdline")).ok()?;
            let stands_by = line.starts_with("a name\0exec-when-told\0");
            stands_by.then(|| Pid::from_raw(child.parse().unwrap()))
        })
    })
}

fn the_exit_code_passes(scratch: &Scratch) {
    let table = [
        ("exit 0", 0),
        ("exit 1", 1),
        ("exit 42", 42),
        ("exit 127", 127),
        ("exit 255", 255),
        ("kill -KILL $$", 137),
        ("kill -TERM $$", 143),
    ];
    for (script, code) in table {
        let ran = ran(scratch, &["hold", "sh", "-c", script]);
        assert_eq!(ran, (code, String::new(), String::new()), "{script}");
    }
}

fn a_command_that_cannot_run_ends_with_126_or_127(scratch: &Scratch) {
    fs::write(scratch.at("plain"), "text\n").unwrap();
    let table = [
        ("no-such-command-anywhere", 127, "command not found"),
        ("./missing", 127, "No such file or directory"),
        ("./plain", 126, "Permission denied"),
        ("/tmp", 126, "Permission denied"),
    ];
    for (command, code, words) in table {
        let ran = ran(scratch, &["hold", command]);
        assert_eq!(ran, (code, String::new(), format!("test: {command}: {words}\n")));
    }
}

fn the_command_is_the_process_that_stood_by(scratch: &Scratch) {
    let script = "[ $NUMBER = $$ ] && printf %s \"$HELD\"";
    assert_eq!(ran(scratch, &["hold", "sh", "-c", script]), (0, "a=b\nc".into(), String::new()));
}

fn arguments_input_and_output_are_its_own(scratch: &Scratch) {
    let line = "printf 'in\\n' | \"$SELF\" hold sh -c 'cat; printf \"%s|\" \"$@\"; echo err >&2' \
                x 'a b' '' --json -- '*'";
    let ran = done(scratch, "sh", &["-c", line]);
    assert_eq!(ran, (0, "in\na b||--json|--|*|".into(), "err\n".into()));
}

fn a_command_inherits_no_descriptor_and_no_signal_mask(scratch: &Scratch) {
    let looks: [&[&str]; 2] = [&["/proc/self/fd"], &[SIGNAL_MASKS, "/proc/self/status"]];
    for (program, look) in ["ls", "grep"].into_iter().zip(looks) {
        let plain = done(scratch, program, look);
        let held = ran(scratch, &[&["hold", program], look].concat());
        assert_eq!((held.0, masks(&held.1)), (0, masks(&plain.1)), "{look:?}");
        assert!(plain.1.lines().count() >= 3, "{plain:?}");
    }
}

fn signals_are_handed_on(scratch: &Scratch) {
    for name in ["HUP", "INT", "QUIT", "TERM", "ALRM", "USR1", "USR2"] {
        let script = format!(
            "trap 'echo heard; exit 9' {name}; echo x >{name}; while :; do sleep 0.02; done"
        );
        let wrapper = wrapper(scratch, &["hold", "sh", "-c", &script]);
        scratch.wait_for(name);
        wrapper.signal(format!("SIG{name}").parse::<Signal>().unwrap());
        assert_eq!(told(wrapper.end()), (9, "heard\n".into(), String::new()), "{name}");
    }
}

/// Whether a process is in this state (proc_pid_stat(5)).
fn state(pid: Pid, letter: char) -> Option<()> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.contains(&format!(") {letter} ")).then_some(())
}

/// Both are news of a child (SIGCHLD).
fn a_stop_is_no_end(scratch: &Scratch) {
    let script = "echo $$ >ready; while [ ! -e go ]; do sleep 0.02; done; exit 5";
    let wrapper = wrapper(scratch, &["hold", "sh", "-c", script]);
    let command = Pid::from_raw(scratch.wait_for("ready").trim().parse().unwrap());
    kill(command, Signal::SIGSTOP).unwrap();
    until("a stopped command", || state(command, 'T'));
    kill(command, Signal::SIGCONT).unwrap();
    fs::write(scratch.at("go"), "").unwrap();
    assert_eq!(told(wrapper.end()).0, 5);
}

/// script(1) makes a terminal; its ^C goes to the whole foreground process group.
fn a_terminals_signal_comes_once(scratch: &Scratch) {
    let inner = "\"$SELF\" hold sh -c 'trap \"echo heard >>heard\" INT; echo x >ready; \
                 until [ -e heard ]; do sleep 0.02; done; n=0; \
                 while [ $n -lt 20 ]; do sleep 0.02; n=$((n+1)); done'";
    let mut command = command(scratch, "script", &["-qefc", inner, "/dev/null"]);
    let mut child = start(command.stdin(Stdio::piped()));
    scratch.wait_for("ready");
    child.type_in(&[3]);
    let ran = told(child.end());
    assert_eq!(fs::read_to_string(scratch.at("heard")).unwrap(), "heard\n", "{ran:?}");
}

/// A shell with job control: Ctrl-Z, and `fg`.
fn a_job_is_stopped_and_goes_on_as_a_whole(scratch: &Scratch) {
    let words = ["-qefc", "exec bash --norc --noprofile -i", "/dev/null"];
    let mut shell = start(command(scratch, "script", &words).stdin(Stdio::piped()));
    let mut type_in = |text: &str| shell.type_in(text.as_bytes());
    type_in(
        // It starts nothing: a process that waits for a child to begin (vfork(2)) does not stop.
        "mkfifo go; \"$SELF\" hold sh -c 'echo $PPID $$ >both; read x <go; exit 5'\n",
    );
    let both = scratch.wait_for("both");
    let mut both = both.split_whitespace().map(|pid| Pid::from_raw(pid.parse().unwrap()));
    let (waiting, command) = (both.next().unwrap(), both.next().unwrap());
    type_in("\x1a");
    until("a stopped command", || state(command, 'T'));
    until("a stopped wrapper", || state(waiting, 'T'));
    type_in("fg\n");
    // Without waiting for a reader: none may come (fifo(7)).
    let mut fifo = fs::File::options();
    fifo.write(true).custom_flags(OFlag::O_NONBLOCK.bits());
    let mut go = until("a reader", || fifo.open(scratch.at("go")).ok());
    go.write_all(b"\n").unwrap();
    type_in("echo $? >code\n");
    assert_eq!(scratch.wait_for("code"), "5\n");
    type_in("exit 0\n");
    shell.end_input();
    assert_eq!(told(shell.end()).0, 0);
}

fn an_ignored_signal_stays_ignored(scratch: &Scratch) {
    let line = "trap '' HUP; exec \"$SELF\" wait go grep ^SigIgn /proc/self/status";
    let wrapper = start(&mut command(scratch, "sh", &["-c", line]));
    standby_of(&wrapper);
    wrapper.signal(Signal::SIGHUP);
    fs::write(scratch.at("go"), "").unwrap();
    let (code, out, err) = told(wrapper.end());
    assert!(code == 0 && out.ends_with("1\n"), "{code} {out} {err}");
}

fn a_caller_that_ignores_children_learns_the_code(scratch: &Scratch) {
    let ours = std::env::current_exe().unwrap();
    let words = ["--ignore-signal=CHLD", ours.to_str().unwrap(), "hold", "sh", "-c", "exit 6"];
    assert_eq!(done(scratch, "env", &words).0, 6);
}

fn a_signal_ends_the_wait(scratch: &Scratch) {
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        let wrapper = wrapper(scratch, &["wait", "go", "touch", "ran"]);
        let standby = standby_of(&wrapper);
        wrapper.signal(signal);
        assert_eq!(told(wrapper.end()).0, i32::from(exit::by_signal(signal as i32)));
        assert!(kill(standby, None).is_err(), "somebody still stands by");
    }
    assert!(scratch.files().is_empty());
}

fn without_its_wrapper_it_never_runs(scratch: &Scratch) {
    let mut wrapper = wrapper(scratch, &["wait", "go", "touch", "ran"]);
    let standby = standby_of(&wrapper);
    wrapper.signal(Signal::SIGKILL);
    wrapper.code();
    until("the end of the process that stood by", || {
        let stat = fs::read_to_string(format!("/proc/{standby}/stat")).unwrap_or_default();
        (stat.is_empty() || stat.contains(") Z ")).then_some(())
    });
    // Nor does anything else that is said so.
    let words =
        ["", "3", "3 x", "1  touch ran", "3  touch ran", "+3  touch ran", "3 1,x touch ran"];
    for words in words {
        let line = format!("exec \"$SELF\" exec-when-told {words} 3</dev/null");
        let line = line.replace("  ", " '' ");
        let (code, out, err) = done(scratch, "sh", &["-c", &line]);
        assert_eq!((code, out.as_str()), (UNTOLD.into(), ""), "{words}: {err}");
    }
    assert!(scratch.files().is_empty());
}

fn a_killed_standby_ends_the_wait(scratch: &Scratch) {
    let wrapper = wrapper(scratch, &["wait", "go", "touch", "ran"]);
    kill(standby_of(&wrapper), Signal::SIGKILL).unwrap();
    assert_eq!(told(wrapper.end()).0, 137);
    assert!(scratch.files().is_empty());
}

/// A shell that becomes the wrapper leaves it its children in the background.
fn another_child_ends_nothing(scratch: &Scratch) {
    let line = "sh -c 'while [ ! -e end ]; do sleep 0.02; done' & echo $! >other
                exec \"$SELF\" wait go sh -c 'exit 6'";
    let wrapper = start(&mut command(scratch, "sh", &["-c", line]));
    let other: u32 = scratch.wait_for("other").trim().parse().unwrap();
    standby_of(&wrapper);
    fs::write(scratch.at("end"), "").unwrap();
    until("the other child's end", || {
        let stat = fs::read_to_string(format!("/proc/{other}/stat")).unwrap();
        stat.contains(") Z ").then_some(())
    });
    until("the signal to be heard", || {
        let status = fs::read_to_string(format!("/proc/{}/status", wrapper.pid())).unwrap();
        let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:\t")).unwrap();
        let chld = 1 << (Signal::SIGCHLD as i32 - 1);
        (u64::from_str_radix(pending, 16).unwrap() & chld == 0).then_some(())
    });
    fs::write(scratch.at("go"), "").unwrap();
    let ran = told(wrapper.end());
    assert_eq!(ran.0, 6, "{ran:?}");
}
