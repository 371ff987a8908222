//! A command under a wrapper, as real processes: exit codes, signals, what it inherits, and what
//! becomes of it when one of the two is killed.
//!
//! Starts itself again as the wrapper (`hold`, `wait FILE`), which starts itself again as the
//! process that stands by; so it has a `main` of its own.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test program")]

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Output, Stdio};
use std::time::{Duration, Instant};

use nix::fcntl::OFlag;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use wrapcmd::{Form, Signals, Standby, exit, take_over};

/// What this program ends with when it stood by and was never told.
const UNTOLD: u8 = 99;

const LIMIT: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    if let Some((refusal, _)) = take_over(std::env::args_os().skip(1)) {
        eprintln!("test: {refusal}");
        return ExitCode::from(refusal.code().unwrap_or(UNTOLD));
    }
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    match words.split_first() {
        Some((word, command)) if word == "hold" => ExitCode::from(hold(command, None)),
        Some((word, rest)) if word == "wait" => {
            let (file, command) = rest.split_first().unwrap();
            ExitCode::from(hold(command, Some(Path::new(file))))
        }
        _ => all_tests(&words),
    }
}

/// The wrapper. Goes on as soon as the file is there.
fn hold(command: &[OsString], until: Option<&Path>) -> u8 {
    let signals = Signals::catch().unwrap();
    let standby = Standby::start("a name", command, Form::Text, &signals).unwrap();
    let pid = standby.pid();
    while until.is_some_and(|file| !file.exists()) {
        signals.pause(None, Some(Duration::from_millis(5)));
        match signals.ending() {
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

type Test = fn(&Scratch);

const TESTS: [(&str, Test); 16] = [
    ("the_exit_code_passes", the_exit_code_passes),
    (
        "a_command_that_cannot_run_ends_with_126_or_127",
        a_command_that_cannot_run_ends_with_126_or_127,
    ),
    ("the_command_is_the_process_that_stood_by", the_command_is_the_process_that_stood_by),
    ("arguments_input_and_output_are_its_own", arguments_input_and_output_are_its_own),
    (
        "a_command_inherits_no_descriptor_and_no_signal_mask",
        a_command_inherits_no_descriptor_and_no_signal_mask,
    ),
    ("signals_are_handed_on", signals_are_handed_on),
    ("a_signal_may_end_it", a_signal_may_end_it),
    ("a_stop_is_no_end", a_stop_is_no_end),
    ("a_terminals_signal_comes_once", a_terminals_signal_comes_once),
    ("a_job_is_stopped_and_goes_on_as_a_whole", a_job_is_stopped_and_goes_on_as_a_whole),
    ("an_ignored_signal_stays_ignored", an_ignored_signal_stays_ignored),
    ("a_caller_that_ignores_children_learns_the_code", ignored_children),
    ("a_signal_ends_the_wait", a_signal_ends_the_wait),
    ("without_its_wrapper_it_never_runs", without_its_wrapper_it_never_runs),
    ("a_killed_standby_ends_the_wait", a_killed_standby_ends_the_wait),
    ("another_child_ends_nothing", another_child_ends_nothing),
];

/// What `cargo test` hands to every test program: the wish for a list, or filters.
fn all_tests(words: &[OsString]) -> ExitCode {
    let words: Vec<&str> = words.iter().map(|word| word.to_str().unwrap()).collect();
    let list = words.contains(&"--list");
    let filters: Vec<&&str> = words.iter().filter(|word| !word.starts_with('-')).collect();
    for (name, test) in TESTS {
        if list {
            println!("{name}: test");
        } else if filters.is_empty() || filters.iter().any(|filter| name.contains(**filter)) {
            println!("test {name} ...");
            test(&Scratch { directory: tempfile::tempdir().unwrap() });
        }
    }
    println!("test result: ok");
    ExitCode::SUCCESS
}

/// A directory of its own for each test.
struct Scratch {
    directory: tempfile::TempDir,
}

impl Scratch {
    fn at(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn command(&self, program: &str, words: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(words).current_dir(self.directory.path()).stdin(Stdio::null());
        command.env("SELF", std::env::current_exe().unwrap());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn ours(&self, words: &[&str]) -> Command {
        let ours = std::env::current_exe().unwrap();
        self.command(ours.to_str().unwrap(), words)
    }

    fn run(&self, words: &[&str]) -> (u8, String, String) {
        told(&self.ours(words).output().unwrap())
    }

    /// Waits until a file is there with a whole line in it.
    fn wait_for(&self, name: &str) -> String {
        until(name, || fs::read_to_string(self.at(name)).ok().filter(|text| text.ends_with('\n')))
    }

    fn is_empty(&self) -> bool {
        fs::read_dir(self.directory.path()).unwrap().next().is_none()
    }
}

fn until<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = condition() {
            return found;
        }
        assert!(begin.elapsed() < LIMIT, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn told(output: &Output) -> (u8, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let code = exit::End::of(output.status).unwrap().code();
    (code, text(&output.stdout), text(&output.stderr))
}

fn end(child: Child) -> (u8, String, String) {
    told(&child.wait_with_output().unwrap())
}

fn number(child: &Child) -> Pid {
    Pid::from_raw(child.id().try_into().unwrap())
}

/// The process that stands by for this wrapper, once it does.
fn standby_of(wrapper: &Child) -> Pid {
    let pid = wrapper.id();
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
        let ran = scratch.run(&["hold", "sh", "-c", script]);
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
        let ran = scratch.run(&["hold", command]);
        assert_eq!(ran, (code, String::new(), format!("test: {command}: {words}\n")));
    }
}

fn the_command_is_the_process_that_stood_by(scratch: &Scratch) {
    let script = "[ $NUMBER = $$ ] && printf %s \"$HELD\"";
    assert_eq!(scratch.run(&["hold", "sh", "-c", script]), (0, "a=b\nc".into(), String::new()));
}

fn arguments_input_and_output_are_its_own(scratch: &Scratch) {
    let line = "printf 'in\\n' | \"$SELF\" hold sh -c 'cat; printf \"%s|\" \"$@\"; echo err >&2' \
                x 'a b' '' --json -- '*'";
    let ran = told(&scratch.command("sh", &["-c", line]).output().unwrap());
    assert_eq!(ran, (0, "in\na b||--json|--|*|".into(), "err\n".into()));
}

fn a_command_inherits_no_descriptor_and_no_signal_mask(scratch: &Scratch) {
    let looks: [&[&str]; 2] = [&["/proc/self/fd"], &["^Sig[BIC]", "/proc/self/status"]];
    for (program, look) in ["ls", "grep"].into_iter().zip(looks) {
        let plain = told(&scratch.command(program, look).output().unwrap());
        let held = scratch.run(&[&["hold", program], look].concat());
        assert_eq!((held.0, masks(&held.1)), (0, masks(&plain.1)), "{look:?}");
        assert!(plain.1.lines().count() >= 3, "{plain:?}");
    }
}

/// Signals 32 and 33 are the C library's own, which it ignores in what it starts.
fn masks(text: &str) -> Vec<String> {
    const C_LIBRARY: u64 = 0b11 << 31;
    let line = |line: &str| match line.split_once(":\t") {
        Some((name, mask)) => {
            format!("{name} {:x}", u64::from_str_radix(mask, 16).unwrap() & !C_LIBRARY)
        }
        None => line.to_owned(),
    };
    text.lines().map(line).collect()
}

fn signals_are_handed_on(scratch: &Scratch) {
    for name in ["HUP", "INT", "QUIT", "TERM", "ALRM", "USR1", "USR2"] {
        let script = format!(
            "trap 'echo heard; exit 9' {name}; echo x >{name}; while :; do sleep 0.02; done"
        );
        let wrapper = scratch.ours(&["hold", "sh", "-c", &script]).spawn().unwrap();
        scratch.wait_for(name);
        kill(number(&wrapper), format!("SIG{name}").parse::<Signal>().unwrap()).unwrap();
        assert_eq!(end(wrapper), (9, "heard\n".into(), String::new()), "{name}");
    }
}

fn a_signal_may_end_it(scratch: &Scratch) {
    let script = "echo x >ready; exec sleep 100";
    let wrapper = scratch.ours(&["hold", "sh", "-c", script]).spawn().unwrap();
    scratch.wait_for("ready");
    kill(number(&wrapper), Signal::SIGTERM).unwrap();
    assert_eq!(end(wrapper).0, 143);
}

/// Whether a process is in this state (proc_pid_stat(5)).
fn state(pid: Pid, letter: char) -> Option<()> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.contains(&format!(") {letter} ")).then_some(())
}

/// Both are news of a child (SIGCHLD).
fn a_stop_is_no_end(scratch: &Scratch) {
    let script = "echo $$ >ready; while [ ! -e go ]; do sleep 0.02; done; exit 5";
    let wrapper = scratch.ours(&["hold", "sh", "-c", script]).spawn().unwrap();
    let command = Pid::from_raw(scratch.wait_for("ready").trim().parse().unwrap());
    kill(command, Signal::SIGSTOP).unwrap();
    until("a stopped command", || state(command, 'T'));
    kill(command, Signal::SIGCONT).unwrap();
    fs::write(scratch.at("go"), "").unwrap();
    assert_eq!(end(wrapper).0, 5);
}

/// script(1) makes a terminal; its ^C goes to the whole foreground process group.
fn a_terminals_signal_comes_once(scratch: &Scratch) {
    let inner = "\"$SELF\" hold sh -c 'trap \"echo heard >>heard\" INT; echo x >ready; n=0; \
                 while [ $n -lt 40 ]; do sleep 0.02; n=$((n+1)); done'";
    let mut command = scratch.command("script", &["-qefc", inner, "/dev/null"]);
    let mut child =
        command.stdin(Stdio::piped()).spawn().expect("script(1) is in the package bsdutils");
    scratch.wait_for("ready");
    child.stdin.as_mut().unwrap().write_all(&[3]).unwrap();
    let ran = end(child);
    assert_eq!(fs::read_to_string(scratch.at("heard")).unwrap(), "heard\n", "{ran:?}");
}

/// A shell with job control: Ctrl-Z, and `fg`.
fn a_job_is_stopped_and_goes_on_as_a_whole(scratch: &Scratch) {
    let words = ["-qefc", "exec bash --norc --noprofile -i", "/dev/null"];
    let mut shell = scratch
        .command("script", &words)
        .stdin(Stdio::piped())
        .spawn()
        .expect("script(1) is in the package bsdutils");
    let mut keys = shell.stdin.take().unwrap();
    let mut type_in = |text: &str| keys.write_all(text.as_bytes()).unwrap();
    type_in(
        // It starts nothing: a process that waits for a child to begin (vfork(2)) does not stop.
        "mkfifo go; \"$SELF\" hold sh -c 'echo $PPID $$ >both; read x <go; exit 5'\n",
    );
    let both = scratch.wait_for("both");
    let mut both = both.split_whitespace().map(|pid| Pid::from_raw(pid.parse().unwrap()));
    let (wrapper, command) = (both.next().unwrap(), both.next().unwrap());
    type_in("\x1a");
    until("a stopped command", || state(command, 'T'));
    until("a stopped wrapper", || state(wrapper, 'T'));
    type_in("fg\n");
    // Without waiting for a reader: none may come (fifo(7)).
    let mut fifo = fs::File::options();
    fifo.write(true).custom_flags(OFlag::O_NONBLOCK.bits());
    let mut go = until("a reader", || fifo.open(scratch.at("go")).ok());
    go.write_all(b"\n").unwrap();
    type_in("echo $? >code\n");
    assert_eq!(scratch.wait_for("code"), "5\n");
    type_in("exit 0\n");
    drop(keys);
    assert_eq!(end(shell).0, 0);
}

fn an_ignored_signal_stays_ignored(scratch: &Scratch) {
    let line = "trap '' HUP; exec \"$SELF\" wait go grep ^SigIgn /proc/self/status";
    let wrapper = scratch.command("sh", &["-c", line]).spawn().unwrap();
    standby_of(&wrapper);
    kill(number(&wrapper), Signal::SIGHUP).unwrap();
    fs::write(scratch.at("go"), "").unwrap();
    let (code, out, err) = end(wrapper);
    assert!(code == 0 && out.ends_with("1\n"), "{code} {out} {err}");
}

fn ignored_children(scratch: &Scratch) {
    let ours = std::env::current_exe().unwrap();
    let words = ["--ignore-signal=CHLD", ours.to_str().unwrap(), "hold", "sh", "-c", "exit 6"];
    assert_eq!(told(&scratch.command("env", &words).output().unwrap()).0, 6);
}

fn a_signal_ends_the_wait(scratch: &Scratch) {
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        let wrapper = scratch.ours(&["wait", "go", "touch", "ran"]).spawn().unwrap();
        let standby = standby_of(&wrapper);
        kill(number(&wrapper), signal).unwrap();
        assert_eq!(end(wrapper).0, exit::by_signal(signal as i32));
        assert!(kill(standby, None).is_err(), "somebody still stands by");
    }
    assert!(scratch.is_empty());
}

fn without_its_wrapper_it_never_runs(scratch: &Scratch) {
    let mut wrapper = scratch.ours(&["wait", "go", "touch", "ran"]).spawn().unwrap();
    let standby = standby_of(&wrapper);
    wrapper.kill().unwrap();
    wrapper.wait().unwrap();
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
        let (code, out, err) = told(&scratch.command("sh", &["-c", &line]).output().unwrap());
        assert_eq!((code, out.as_str()), (UNTOLD, ""), "{words}: {err}");
    }
    assert!(scratch.is_empty());
}

fn a_killed_standby_ends_the_wait(scratch: &Scratch) {
    let wrapper = scratch.ours(&["wait", "go", "touch", "ran"]).spawn().unwrap();
    kill(standby_of(&wrapper), Signal::SIGKILL).unwrap();
    assert_eq!(end(wrapper).0, 137);
    assert!(scratch.is_empty());
}

/// A shell that becomes the wrapper leaves it its children in the background.
fn another_child_ends_nothing(scratch: &Scratch) {
    let line = "sh -c 'while [ ! -e end ]; do sleep 0.02; done' & echo $! >other
                exec \"$SELF\" wait go sh -c 'exit 6'";
    let wrapper = scratch.command("sh", &["-c", line]).spawn().unwrap();
    let other: u32 = scratch.wait_for("other").trim().parse().unwrap();
    standby_of(&wrapper);
    fs::write(scratch.at("end"), "").unwrap();
    until("the other child's end", || {
        let stat = fs::read_to_string(format!("/proc/{other}/stat")).unwrap();
        stat.contains(") Z ").then_some(())
    });
    until("the signal to be heard", || {
        let status = fs::read_to_string(format!("/proc/{}/status", wrapper.id())).unwrap();
        let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:\t")).unwrap();
        let chld = 1 << (Signal::SIGCHLD as i32 - 1);
        (u64::from_str_radix(pending, 16).unwrap() & chld == 0).then_some(())
    });
    fs::write(scratch.at("go"), "").unwrap();
    let ran = end(wrapper);
    assert_eq!(ran.0, 6, "{ran:?}");
}
