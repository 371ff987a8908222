//! `sema run`: exit codes, signals, what is not leaked, and what a killed wrapper leaves. More about
//! the command under its wrapper is in the tests of the crate `wrapcmd`.

use std::fs;

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use rstest::rstest;
use testbed::local::{Running, SIGNAL_MASKS, Scratch, masks, run, until};

/// The command line may be that of flock(1).
#[rstest]
#[case::success(&["run", "a", "--", "sh", "-c", "exit 0"], 0)]
#[case::any_code(&["run", "a", "--", "sh", "-c", "exit 42"], 42)]
#[case::killed(&["run", "a", "--", "sh", "-c", "kill -KILL $$"], 137)]
#[case::without_dashes(&["run", "a", "sh", "-c", "exit 7", "--", "-n"], 7)]
#[case::a_line(&["run", "a", "-c", "true; exit 8"], 8)]
#[case::options_of_flock(&["run", "-w", "5", "-E", "9", "a", "sh", "-c", "exit 6"], 6)]
fn the_commands_exit_code_passes(#[case] words: &[&str], #[case] code: i32) {
    let scratch = Scratch::new();
    let ran = scratch.sema(words);
    assert_eq!((ran.shell_code(), ran.out.as_str(), ran.err.as_str()), (code, "", ""));
    assert_eq!(scratch.files(), [""; 0]);
}

/// cron sends a mail for every line, and for every other exit code.
#[test]
fn cron_hears_nothing_of_a_busy_lock() {
    let scratch = Scratch::new();
    scratch.write("a", "pid=1\ntimestamp=1\n");
    let ran = scratch.sema(&["run", "-n", "-q", "-E", "0", "a", "true"]);
    assert_eq!((ran.code, &*ran.out, &*ran.err), (0, "", ""), "{ran:?}");
}

#[rstest]
#[case::verbose("sema run -v -w 0.1 a true 2>&1 || true", true)]
#[case::nobody_reads_it("sema run -w 0.1 a true 2>&1 || true", false)]
#[case::on_a_terminal("script -qec 'sema run -w 0.1 a true' /dev/null || true", true)]
#[case::acquire("script -qec 'sema acquire -w 0.1 a' /dev/null || true", true)]
#[case::of_several("sema run -v -w 0.1 --with a b true 2>&1 || true", true)]
#[case::at_once("script -qec 'sema run -n a true' /dev/null || true", false)]
#[case::quiet("script -qec 'sema run -q -w 0.1 a true' /dev/null || true", false)]
fn a_waiter_is_told_the_holder_once(#[case] line: &str, #[case] told: bool) {
    let scratch = Scratch::new();
    scratch.write("a", "pid=1\ntimestamp=1\ntag=nightly\n");
    let ran = scratch.sh(line);
    let count = ran.out.matches("a: waiting: held by process 1 (nightly)").count();
    assert_eq!(count, usize::from(told), "{ran:?}");
    assert_eq!(ran.out.matches("waiting").count(), usize::from(told), "{ran:?}");
}

#[test]
fn verbose_tells_how_long_it_took() {
    let scratch = Scratch::new();
    let ran = scratch.sema(&["run", "--verbose", "a", "true", "x"]);
    let lines: Vec<&str> = ran.err.lines().collect();
    let time = lines[0].strip_prefix("sema: a: held after ").and_then(|it| it.strip_suffix(" s"));
    assert!(time.is_some_and(|time| time.parse::<f64>().is_ok()), "{ran:?}");
    assert_eq!(lines[1], "sema: a: running true x");
}

/// Each reader ends only when all three are in; a writer in between would keep them waiting.
#[test]
fn readers_are_in_together_and_a_writer_alone() {
    let scratch = Scratch::new();
    let script = "mkdir in.$$; while [ $(ls -d in.* | wc -l) -lt 3 ]; do sleep 0.01; done";
    let readers: Vec<_> =
        (0..3).map(|_| start(&scratch, &["run", "-s", "a", "sh", "-c", script])).collect();
    for reader in readers {
        assert_eq!(reader.end().code, 0);
    }
    let reader = start(&scratch, &["run", "-s", "a", "sh", "-c", "echo x >ready; exec sleep 100"]);
    scratch.wait_for("ready");
    for words in [&["try", "a"][..], &["run", "-n", "a", "true"], &["wait", "a", "-w", "0"]] {
        let ran = scratch.sema(words);
        assert_eq!(ran.code, 1, "{ran:?}");
        assert!(ran.err.contains("held by process"), "{ran:?}");
    }
    let status = scratch.sema(&["status", "a"]);
    assert!(status.out.starts_with("locked: true\nshared: 1\npid: "), "{status:?}");
    assert_eq!(status.code, 1);
    let list = scratch.sema(&["list", "."]);
    assert!(list.out.starts_with("a\t") && list.out.contains("\talive\tshared\t"), "{list:?}");
    let list = scratch.sema(&["list", ".", "--json"]).out;
    assert!(list.ends_with(",\"shared\":true}]\n"), "{list:?}");
    assert_eq!(scratch.sema(&["run", "-n", "-s", "a", "true"]).code, 0);
    // A writer that waits keeps new readers out, so that it gets its turn.
    let writer = start(&scratch, &["run", "a", "sh", "-c", "ls -d a.shared"]);
    until("a writer that waits", || scratch.at("a").exists().then_some(()));
    assert_eq!(scratch.sema(&["run", "-n", "-s", "a", "true"]).code, 1);
    reader.signal(Signal::SIGTERM);
    reader.end();
    let ran = writer.end();
    assert_eq!((ran.code, ran.out.as_str()), (2, ""), "no reader is there: {ran:?}");
    assert!(!scratch.at("a.shared").exists() && !scratch.at("a").exists());
}

/// Six loops of readers beside two of writers: a reader who goes in the moment in which he is looked
/// at, and the readers' directory with him, keeps nobody from his command.
#[test]
fn readers_who_come_and_go_are_no_error() {
    let scratch = Scratch::new();
    let part = |words: &str| {
        let script =
            format!("for i in $(seq 100); do sema run {words} a true || echo {words} $?; done");
        testbed::local::start(scratch.command("sh").args(["-c", &script]))
    };
    let parts: Vec<_> = (0..8).map(|part_of| part(if part_of < 6 { "-s" } else { "" })).collect();
    for part in parts {
        let ran = part.end_in(5 * testbed::LIMIT);
        assert_eq!((ran.out.as_str(), ran.err.as_str()), ("", ""), "{ran:?}");
    }
}

/// In whatever order they are named.
#[test]
fn several_locks_are_held_together_and_never_block_each_other() {
    let scratch = Scratch::new();
    scratch.write("n", "0\n");
    let script = "ls a b >/dev/null && read n <n; echo $((n + 1)) >n";
    let orders = [["a", "b"], ["b", "a"]];
    let both: Vec<_> = (0..10)
        .map(|index| {
            let [one, other] = orders[index % 2];
            start(&scratch, &["run", one, "--with", other, "-w", "50", "sh", "-c", script])
        })
        .collect();
    for child in both {
        assert_eq!(child.end().code, 0);
    }
    assert_eq!((scratch.read("n").as_str(), scratch.files()), ("10\n", vec!["n".to_owned()]));
    let twice = scratch.sema(&["run", "a", "--with", "./a", "true"]);
    assert_eq!(twice.code, 64, "{twice:?}");
    scratch.write("b", "pid=1\ntimestamp=1\n");
    let ran = scratch.sema(&["run", "-n", "a", "--with", "b", "true"]);
    assert!(ran.code == 1 && ran.err.contains("b: held by process 1"), "{ran:?}");
    assert_eq!(scratch.files(), ["b", "n"]);
}

#[test]
fn the_slot_is_in_the_environment() {
    let scratch = Scratch::new();
    scratch.sema(&["try", "a", "--slots", "3"]);
    let script = "echo $SEMA_SLOT; ls a.*";
    let ran = scratch.sema(&["run", "a", "--slots", "3", "--", "sh", "-c", script]);
    assert_eq!(ran.out, "2\na.1\na.2\n", "{ran:?}");
}

fn start(scratch: &Scratch, words: &[&str]) -> Running {
    testbed::local::start(scratch.command("sema").args(words))
}

/// The status is as without the wrapper. Ctrl-C goes to both processes.
#[rstest]
#[case::asked_to_end(Signal::SIGTERM, kill)]
#[case::ctrl_c(Signal::SIGINT, killpg)]
fn a_command_that_dies_of_the_signal_is_128_and_its_number(
    #[case] signal: Signal,
    #[case] send: fn(Pid, Signal) -> nix::Result<()>,
) {
    let scratch = Scratch::new();
    let child = start(&scratch, &["run", "a", "--", "sh", "-c", "echo x >ready; exec sleep 100"]);
    scratch.wait_for("ready");
    send(child.pid(), signal).unwrap();
    let ran = child.end();
    assert_eq!(ran.code, -(signal as i32), "{ran:?}");
    assert_eq!(scratch.files(), ["ready"]);
}

/// The letter of a process's state (proc_pid_stat(5)).
fn state(pid: Pid) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(") ").next()?.chars().next()
}

#[test]
fn the_command_inherits_no_descriptor_no_mask_and_no_ignored_signal() {
    let scratch = Scratch::new();
    scratch.sema(&["try", "a", "--slots", "2"]);
    let looks: [&[&str]; 2] =
        [&["ls", "/proc/self/fd"], &["grep", SIGNAL_MASKS, "/proc/self/status"]];
    for look in looks {
        let plain = run(scratch.command(look[0]).args(&look[1..]));
        let held = scratch.sema(&[&["run", "a", "--slots", "2", "--"], look].concat());
        assert_eq!(masks(&held.out), masks(&plain.out), "{held:?}");
        assert!(plain.out.lines().count() >= 3, "{plain:?}");
    }
}

/// glibc's posix_spawn ignores its own signals in what it starts, and that is handed on for ever.
/// The tests themselves may run like that, so the calls of the program are watched.
#[test]
#[ignore = "needs programs: tests/run"]
fn the_c_librarys_signals_are_not_ignored_in_the_command() {
    let scratch = Scratch::new();
    let mut strace = scratch.command("strace");
    strace.args(["-f", "-e", "trace=rt_sigaction,execve", "-o", "trace", "sema", "run", "a"]);
    let ran = run(strace.args(["true"]));
    assert_eq!(ran.code, 0, "{ran:?}");
    let trace = scratch.read("trace");
    assert!(trace.contains("/true\""), "the command is in it: {trace}");
    let ignored = trace.lines().filter(|line| {
        let own = ["SIGRTMIN,", "SIGRT_1,"].iter().any(|name| line.contains(name));
        own && line.contains("SIG_IGN")
    });
    assert_eq!(ignored.count(), 0, "{trace}");
}

#[test]
fn the_path_stays_as_it_is() {
    let scratch = Scratch::new();
    let ran = scratch.sh("PATH=\"$PATH:/tmp/$(printf '\\377')\"
         [ \"$(sema run a printenv PATH)\" = \"$PATH\" ]
         sema run a env | grep -c WRAPCMD || true");
    assert_eq!((ran.code, ran.out.as_str()), (0, "0\n"), "{ran:?}");
    let none =
        scratch.sh("env -u PATH $(command -v sema) run a /usr/bin/env | grep -c ^PATH= || true");
    assert_eq!(none.out, "0\n");
}

#[test]
fn a_daemon_left_behind_holds_neither_the_lock_nor_a_descriptor() {
    let scratch = Scratch::new();
    let script = "setsid sh -c 'echo $$ >daemon; kill -STOP $$' >/dev/null 2>&1 </dev/null &
                  while [ ! -s daemon ]; do sleep 0.01; done";
    let plain = scratch.sh(script);
    let expected = end_of_daemon(&scratch);
    let ran = scratch.sema(&["run", "a", "--", "sh", "-c", script]);
    assert_eq!(end_of_daemon(&scratch), expected);
    assert_eq!((plain.code, ran.code), (0, 0), "{ran:?}");
    assert_eq!(scratch.sema(&["try", "a"]).code, 0);
}

/// Ends the daemon, and tells what it had open. It has stopped itself: until then it opens files of its own.
fn end_of_daemon(scratch: &Scratch) -> Vec<std::path::PathBuf> {
    let daemon = Pid::from_raw(scratch.wait_for("daemon").trim().parse().unwrap());
    until("a daemon that stopped", || (state(daemon) == Some('T')).then_some(()));
    let fds = fs::read_dir(format!("/proc/{daemon}/fd")).unwrap();
    let mut links: Vec<_> = fds.map(|fd| fs::read_link(fd.unwrap().path()).unwrap()).collect();
    links.sort();
    kill(daemon, Signal::SIGKILL).unwrap();
    fs::remove_file(scratch.at("daemon")).unwrap();
    links
}

#[rstest]
#[case::alone(&["run", "a"])]
#[case::shared(&["run", "-s", "a"])]
fn a_killed_wrapper_leaves_a_lock_that_is_true_until_the_command_ends(#[case] words: &[&str]) {
    let scratch = Scratch::new();
    let script = "echo $$ >command; exec sleep 100";
    let mut wrapper = start(&scratch, &[words, &["--", "sh", "-c", script]].concat());
    let command: i32 = scratch.wait_for("command").trim().parse().unwrap();
    wrapper.signal(Signal::SIGKILL);
    // The pipes stay open in the command, so only the wrapper is waited for.
    wrapper.code();

    let status = scratch.sema(&["status", "a"]);
    assert!(
        status.out.contains(&format!("pid: {command}\n")) && status.out.contains("alive: true")
    );
    assert_eq!(scratch.sema(&["try", "a"]).code, 1, "the command is still at work");
    kill(Pid::from_raw(command), Signal::SIGKILL).unwrap();
    let ran = scratch.sema(&["acquire", "a", "--timeout", "30"]);
    assert_eq!(ran.code, 0, "stale as soon as the command is gone: {ran:?}");
    assert_eq!(scratch.files(), ["a", "command"]);
}

/// A job in the background that writes its number and waits for the file `go`.
const JOB: &str = "echo $$ >job; until [ -e go ]; do sleep 0.01; done";

#[test]
fn in_the_background_the_lock_is_the_jobs_when_run_returns() {
    let scratch = Scratch::new();
    let started = scratch.sh(&format!("sema run --bg a -- sh -c '{JOB}' >/dev/null 2>&1"));
    assert_eq!(started.code, 0, "{started:?}");
    let job = scratch.wait_for("job");
    let status = scratch.sema(&["status", "a"]);
    assert!(status.out.contains(&format!("pid: {job}")), "{job} {status:?}");
    scratch.write("go", "");
    assert_eq!(scratch.sema(&["wait", "a"]).code, 0);
    until("the lock to be released", || (scratch.files() == ["go", "job"]).then_some(()));
}

#[test]
fn in_the_background_no_more_run_than_there_are_slots() {
    let scratch = Scratch::new();
    let ran = scratch.sh(
        "i=0
         while [ $i -lt 12 ]; do
             sema run --bg --slots 3 a -- sh -c 'mkdir in.$SEMA_SLOT && sleep 0.02 && rmdir in.$SEMA_SLOT'
             sema status a --slots 3 | sed -n 's/^held: //p' >>held
             i=$((i + 1))
         done
         sema wait a --slots 3 --all -q
         ls -d in.* 2>/dev/null && exit 9
         sort -u held | tail -n 1; rm held",
    );
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{ran:?}");
    assert!(["1\n", "2\n", "3\n"].contains(&ran.out.as_str()), "{ran:?}");
    until("the last lock to be released", || scratch.files().is_empty().then_some(()));
}

/// The list of a loop is the loop's to read, and the job finds what any command finds.
#[test]
fn a_job_in_the_background_reads_nothing_and_inherits_what_a_command_does() {
    let scratch = Scratch::new();
    let ran = scratch.sh(&format!(
        "printf '1\\n2\\n' | while read n; do sema run --bg a -- cat; echo $n; done
         sema wait a -q
         job='printenv PATH; printenv WRAPCMD_PATH; grep {SIGNAL_MASKS} /proc/self/status; ls /proc/self/fd'
         sema run a -- sh -c \"$job\" >plain </dev/null
         sema run --bg a -- sh -c \"$job\" >job
         sema wait a -q",
    ));
    assert_eq!((ran.code, ran.out.as_str()), (0, "1\n2\n"), "{ran:?}");
    assert_eq!(scratch.read("job"), scratch.read("plain"));
}

#[rstest]
#[case::asked_to_end(Signal::SIGTERM)]
#[case::killed(Signal::SIGKILL)]
fn a_waiter_ended_before_its_turn_runs_nothing_in_the_background(#[case] signal: Signal) {
    let scratch = Scratch::new();
    assert_eq!(scratch.sema(&["try", "a"]).code, 0);
    let mut waiter = start(&scratch, &["run", "--bg", "a", "--", "touch", "ran"]);
    until("a waiter in line", || scratch.at("a.queue").exists().then_some(()));
    waiter.signal(signal);
    assert_eq!(waiter.code(), -(signal as i32));
    assert_eq!(scratch.sema(&["release", "a"]).code, 0);
    until("nobody to be left", || scratch.files().is_empty().then_some(()));
}

#[test]
fn run_renews_its_lock() {
    let scratch = Scratch::new();
    let script = "echo $$ >ready; exec sleep 100";
    let by_age = ["--stale", "9", "--stale-when", "age"];
    let words = [&["run", "a"], &by_age[..], &["--", "sh", "-c", script]].concat();
    let child = start(&scratch, &words);
    scratch.wait_for("ready");
    // Taken long ago, by what the file says and by its own time.
    let old = scratch.read("a").replace("timestamp=", "timestamp=1\nx=");
    scratch.write("a", old);
    let file = fs::File::options().append(true).open(scratch.at("a")).unwrap();
    file.set_modified(std::time::UNIX_EPOCH).unwrap();
    until("a renewed lock", || {
        let modified = fs::metadata(scratch.at("a")).unwrap().modified().unwrap();
        (modified > std::time::UNIX_EPOCH).then_some(())
    });
    assert_eq!(scratch.sema(&[&["try", "a"], &by_age[..]].concat()).code, 1);
    child.signal(Signal::SIGTERM);
    assert_eq!(child.end().shell_code(), 143);
}

#[test]
fn a_lock_taken_away_while_the_command_runs_is_told_at_once() {
    let scratch = Scratch::new();
    let words = ["run", "a", "--stale", "1", "--", "sh", "-c", "echo $$ >ready; exec sleep 100"];
    let child = start(&scratch, &words);
    scratch.wait_for("ready");
    fs::remove_file(scratch.at("a")).unwrap();
    until("the loss to be told", || child.complained().ends_with('\n').then_some(()));
    assert_eq!(child.complained(), "sema: a: lost while the command runs: not held\n");
    child.signal(Signal::SIGTERM);
    assert_eq!(child.end().code, 125);
}

#[test]
fn a_lock_taken_away_while_the_command_ran_is_told() {
    let scratch = Scratch::new();
    let script = "sema release a --force -q; exit 5";
    let ran = scratch.sema(&["run", "a", "--", "sh", "-c", script]);
    assert_eq!(ran.code, 125);
    assert!(ran.err.contains("lost while the command ran"), "{ran:?}");
}

/// `ulimit -f 0`: a refusal, no end by SIGXFSZ, and nothing half-written.
#[rstest]
#[case("sema try a", 3)]
#[case("sema acquire a", 3)]
#[case("sema run a -- true", 3)]
#[case("semats try-acquire a", 1)]
fn a_limit_on_the_size_of_files_is_a_refusal(#[case] line: &str, #[case] code: i32) {
    let scratch = Scratch::new();
    let ran = scratch.sh(&format!("ulimit -f 0; {line}; exit $?"));
    assert_eq!(ran.shell_code(), code, "{ran:?}");
    assert!((ran.err + &ran.out).contains("File too large"));
    assert_eq!(scratch.files(), [""; 0]);
}

#[test]
fn a_command_has_the_default_for_the_signal_of_large_files() {
    let scratch = Scratch::new();
    let ran = scratch.sema(&["run", "a", "--", "sh", "-c", "ulimit -f 0; echo x >large"]);
    assert_eq!(ran.shell_code(), 128 + 25, "{ran:?}");
}
