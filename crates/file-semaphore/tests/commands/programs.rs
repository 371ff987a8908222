//! `sema` and `semats` as a script sees them: every command, its words and its exit codes.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use nix::sys::signal::Signal;
use nix::unistd::Pid;
use rstest::rstest;
use testbed::local::{End, NOBODY, Scratch, now, run, start, until};

#[test]
fn try_records_the_calling_shell_and_release_from_it_is_the_owners() {
    let scratch = Scratch::new();
    let ran = scratch.sh("sema try a --tag deploy >said
         grep -qx \"pid=$$\" a && grep -qx tag=deploy a
         sema try a >/dev/null 2>&1 && exit 90
         sh -c 'sema release a; exit $?' 2>denied && exit 91
         test -e a
         sema release a
         test ! -e a");
    assert_eq!((ran.code, ran.out.as_str()), (0, "status: released\n"), "{ran:?}");
    let said = scratch.read("said");
    assert!(said.starts_with("status: acquired\npid: ") && said.ends_with("tag: deploy\n"));
    assert!(scratch.read("denied").contains("not held by you but by process"));
}

#[test]
fn a_shell_that_becomes_its_last_command_still_releases() {
    let scratch = Scratch::new();
    for shell in ["sh", "bash"] {
        let mut command = scratch.command(shell);
        command.args([
            "-c",
            "sema try a -q && sema status a | grep '^alive: true' && exec sema release a",
        ]);
        let ran = run(&mut command);
        assert_eq!((ran.code, ran.out.as_str()), (0, "alive: true\nstatus: released\n"), "{ran:?}");
    }
}

#[rstest]
#[case::no_directory("no/xyz", "try", "the parent directory does not exist")]
#[case::obstacle("xyz", "try", "not a regular file")]
#[case::refused_by_the_system(
    "/proc/xyz",
    "try",
    "a temporary file for it cannot be prepared: No such"
)]
#[case::not_held("free.xyz", "release", "not held")]
#[case::traversal("../xyz", "status", "path traversal")]
#[case::run("no/xyz", "run -- true", "the parent directory does not exist")]
fn a_message_names_the_path_once(#[case] path: &str, #[case] words: &str, #[case] reason: &str) {
    let scratch = Scratch::new();
    fs::create_dir(scratch.at("xyz")).unwrap();
    let mut words: Vec<&str> = words.split(' ').collect();
    words.insert(1, path);
    let ran = scratch.sema(&words);
    assert!(ran.err.starts_with(&format!("sema: {path}: {reason}")), "{ran:?}");
    assert_eq!(ran.err.matches("xyz").count(), 1, "{ran:?}");
    let semats = scratch.semats(&["try-acquire", path]);
    assert!(semats.err.matches("xyz").count() <= 1, "{semats:?}");
}

/// Where it is another file than the one that was named, that is said.
#[test]
fn a_message_names_what_is_in_the_way_of_what_was_named() {
    let scratch = Scratch::new();
    fs::create_dir(scratch.at("a.2")).unwrap();
    let ran = scratch.sh("sema try a --slots 2 -q; sema try a --slots 2 2>&1 || true");
    assert_eq!(ran.out, "sema: a: not a regular file: \"./a.2\"\n", "{ran:?}");
}

/// A failure has its code and its words, and changes nothing. The lock `a` is held by process 1, and there is no `b`.
#[rstest]
#[case::no_command("sema", 64, "")]
#[case::unknown_command("sema grab b", 64, "")]
#[case::no_path("sema try", 64, "")]
#[case::empty_path("sema try ", 64, "")]
#[case::traversal("sema try ../b", 64, "")]
#[case::no_name("sema try sub/", 64, "")]
#[case::bad_timeout("sema acquire b --timeout soon", 64, "")]
#[case::bad_slots("sema try b --slots 0", 64, "")]
#[case::dead_holder("sema try b --pid 4194305", 64, "")]
#[case::force_with_slots(
    "sema release b --force --slots 2",
    64,
    "--force releases one slot: name it, as in --slots 4 --slot 2 --force"
)]
#[case::slot_without_slots(
    "sema release b --slot 3",
    64,
    "--slot needs --slots, the number of all slots, as in --slots 4 --slot 3"
)]
#[case::slot_beyond_slots(
    "sema release b --slots 2 --slot 3",
    64,
    "--slot 3: there are 2 slots (--slots 2); choose one of 1 to 2"
)]
#[case::slot_for_slots("sema try b --slot 2", 64, "the option for this is '--slots'")]
#[case::limit_for_slots("sema run b --limit 2 true", 64, "the option for this is '--slots'")]
#[case::switch_with_a_value(
    "sema try b --shared=false",
    64,
    "'--shared' takes no value: leave it out"
)]
#[case::switch_with_true(
    "sema try b --shared=true",
    64,
    "'--shared' takes no value: write it alone"
)]
#[case::no_fork_of_flock(
    "sema run b -F true",
    64,
    "no option is needed: signals reach COMMAND, and its exit code is"
)]
#[case::no_fork_spelled_out(
    "sema run b --no-fork true",
    64,
    "no option is needed: signals reach COMMAND"
)]
#[case::unlock_of_flock(
    "sema run b -u true",
    64,
    "no option is needed: the lock ends when COMMAND ends"
)]
#[case::unlock_spelled_out(
    "sema run b --unlock true",
    64,
    "no option is needed: the lock ends when"
)]
#[case::close_of_flock(
    "sema run b --close true",
    64,
    "no option is needed: what COMMAND starts does not hold the lock"
)]
#[case::run_without_command("sema run b", 64, "")]
#[case::run_with_both("sema run -n -w 1 b true", 64, "")]
#[case::run_shared_slots("sema run -s --slots 2 b true", 64, "")]
#[case::json_of_the_command("sema run --slots many a touch ran --json", 64, "")]
#[case::run_with_no_code("sema run -E 256 b true", 64, "")]
#[case::no_directory("sema try missing/b", 3, "")]
#[case::directory_in_the_way("sema try sub", 3, "")]
#[case::release_of_a_directory("sema release sub --force", 3, "")]
#[case::status_of_a_directory("sema status sub", 3, "")]
#[case::list_of_nothing("sema list missing", 3, "")]
#[case::wait_for_a_fifo("sema wait fifo", 3, "")]
#[case::try_a_fifo("sema try fifo", 3, "")]
#[case::release_of_a_text("sema release text", 3, "")]
#[case::never_a_lock_run("sema run text -- true", 3, "not a lock file: pid is missing")]
#[case::never_a_lock_acquire("sema acquire text", 3, "not a lock file: pid is missing")]
#[case::never_a_lock_try("sema try text", 3, "not a lock file: pid is missing")]
#[case::never_a_lock_wait("sema wait text", 3, "not a lock file: pid is missing")]
#[case::never_a_lock_wait_all("sema wait text --all", 3, "not a lock file: pid is missing")]
#[case::not_found("sema run b -- no-such-command", 127, "sema: no-such-command: ")]
#[case::not_executable("sema run b -- ./text", 126, "sema: ./text: ")]
#[case::held("sema try a", 1, "sema: a: held by process 1")]
#[case::not_held("sema release b", 1, "sema: b: not held\n")]
#[case::not_held_by_force("sema release b --force", 1, "sema: b: not held\n")]
#[case::held_by_another("sema release a", 1, "sema: a: not held by you but by process 1")]
#[case::run_timed_out("sema run a --timeout 0.1 -- touch ran", 1, "s, held by process 1")]
#[case::run_at_once("sema run -n a true", 1, "sema: a: held by process 1")]
#[case::run_without_time("sema run a -t 0 true", 1, "sema: a: held by process 1")]
#[case::acquire_without_time("sema acquire a -t 0", 1, "sema: a: held by process 1")]
#[case::wait_without_time("sema wait a -t 0", 1, "sema: a: held by process 1")]
#[case::own_code("sema run -n -E 75 a true", 75, "held by process 1")]
#[case::own_code_of_a_timeout("sema run -w 0.05 -E 76 a true", 76, "timed out")]
#[case::own_code_is_not_for_others("sema run -n -E 75 no/a true", 3, "parent")]
#[case::bg_held("sema run --bg -w 0.05 a true", 1, "timed out")]
#[case::bg_at_once("sema run --bg -n -E 75 a true", 75, "held by process 1")]
#[case::bg_bad_path("sema run --bg no/a true", 3, "parent directory")]
#[case::bg_not_found("sema run --bg a no-such-command", 127, "no-such-command: command not found")]
#[case::bg_a_directory("sema run --bg a ./", 126, "./: Permission denied")]
#[case::bg_not_executable("sema run --bg a ./a", 126, "./a: Permission denied")]
#[case::bg_no_such_file("sema run --bg a ./b", 127, "./b: No such file or directory")]
#[case::semats_traversal("semats acquire ../a", 1, "status: failed\ntype: PATH_TRAVERSAL\n")]
#[case::semats_anywhere("semats release x/../a", 1, "status: failed\ntype: PATH_TRAVERSAL\n")]
#[case::semats_no_directory("semats status no/a", 1, "status: failed\ntype: INVALID_PATH\n")]
#[case::semats_parse_error("semats status text", 1, "status: failed\ntype: PARSE_ERROR\n")]
#[case::semats_of_release("semats release text", 1, "status: failed\ntype: PARSE_ERROR\n")]
#[case::semats_io_error("semats acquire sub", 1, "status: failed\ntype: IO_ERROR\n")]
#[case::semats_traversal_of_try("semats try-acquire /tmp/../x", 1, "traversal")]
#[case::semats_no_directory_of_acquire("semats acquire missing/a", 1, "parent directory")]
#[case::semats_unknown_command("semats grab a", 1, "Error: Unknown command: grab")]
#[case::semats_empty_path("semats try-acquire ", 1, "path is required")]
fn a_failure_has_its_code_and_changes_nothing(
    #[case] line: &str,
    #[case] code: i32,
    #[case] said: &str,
) {
    let scratch = Scratch::new();
    fs::create_dir(scratch.at("sub")).unwrap();
    nix::unistd::mkfifo(&scratch.at("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    scratch.write("text", "myhost.example\n");
    scratch.write("a", "pid=1\ntimestamp=1\n");
    let words: Vec<&str> = line.split(' ').collect();
    let ran = run(scratch.command(words[0]).args(&words[1..]));
    assert_eq!(ran.code, code, "{ran:?}");
    let told = if code == 64 { &ran.err } else { &format!("{}{}", ran.err, ran.out) };
    assert!(!told.is_empty() && told.contains(said), "{ran:?}");
    assert!(ran.out.is_empty() || code != 64, "{ran:?}");
    assert_eq!(scratch.files(), ["a", "fifo", "sub", "text"]);
    assert_eq!(scratch.read("text"), "myhost.example\n");
}

/// The promise of the documents, for every program and command that takes a lock or waits for it.
#[rstest]
fn what_is_no_lock_is_refused_at_once(
    #[values(
        "pid=abc\ntimestamp=1\n",
        "pid=5\n",
        "5",
        "{\"pid\":5}",
        "\0\0\0\0",
        "pid=5\ntimesta",
        "",
        "pid=99999999999999999999\ntimestamp=1\n"
    )]
    content: &str,
) {
    let scratch = Scratch::new();
    scratch.write("a", content);
    let file = fs::File::options().write(true).open(scratch.at("a")).unwrap();
    file.set_modified(std::time::SystemTime::now() - std::time::Duration::from_secs(5)).unwrap();
    for line in ["sema try a", "sema acquire a", "sema run a true", "sema wait a"] {
        let words: Vec<&str> = line.split(' ').collect();
        let ran = run(scratch.command(words[0]).args(&words[1..]));
        assert!(ran.code == 3 && ran.err.starts_with("sema: a: not a lock file: "), "{ran:?}");
        assert!(ran.err.ends_with("; if no program needs it, remove it: sema release --force\n"));
        assert!(!ran.err.contains("18446744073709551615"), "{ran:?}");
    }
    for line in ["semats try-acquire a", "semats acquire a", "semats status a"] {
        let words: Vec<&str> = line.split(' ').collect();
        let ran = run(scratch.command(words[0]).args(&words[1..]));
        let said = ran.out.clone() + &ran.err;
        assert!(ran.code == 1 && said.contains("type: PARSE_ERROR\n"), "{ran:?}");
    }
    assert_eq!(scratch.read("a"), content);
    let listed = scratch.sema(&["list", "."]);
    let is_fragment = ["\0\0\0\0", "pid=5\n", "pid=5\ntimesta", ""].contains(&content);
    assert_eq!(listed.out.contains("\tinvalid\t"), is_fragment, "{listed:?}");
}

#[test]
fn json_is_one_object_on_one_line_with_the_same_members() {
    let scratch = Scratch::new();
    let us = std::process::id();
    let taken = scratch.sema(&["try", "a", "--json", "--tag", "t"]);
    assert!(taken.out.starts_with(&format!("{{\"status\":\"acquired\",\"pid\":{us},")));
    let denied = scratch.sema(&["try", "a", "--json"]);
    assert_eq!((denied.code, denied.err.as_str()), (1, ""));
    assert!(denied.out.contains("\"type\":\"ALREADY_LOCKED\""));
    assert!(denied.out.contains(&format!("\"holderPid\":{us},\"lockedSince\":")));
    let checked = scratch.sh("sema status a --json | python3 -c 'import json,sys; print(json.load(sys.stdin)[\"tag\"])'; sema list . --json | python3 -c 'import json,sys; print(json.load(sys.stdin)[0][\"name\"])'");
    assert_eq!(checked.out, "t\na\n", "{checked:?}");
    scratch.sema(&["try", "b"]);
    for words in [["status", "b", "--json"], ["list", ".", "--json"]] {
        let ran = scratch.sema(&words);
        assert!(ran.out.contains("\"tag\":null"), "{ran:?}");
    }
}

#[test]
fn quiet_leaves_the_exit_code_alone_to_speak() {
    let scratch = Scratch::new();
    for (words, code) in [
        (&["try", "a", "-q"][..], 0),
        (&["try", "a", "--quiet"], 1),
        (&["status", "a", "-q"], 1),
        (&["acquire", "a", "--timeout", "0", "-q"], 1),
        (&["release", "a", "-q"], 0),
        (&["release", "a", "-q"], 1),
        (&["wait", "a", "-q"], 0),
    ] {
        let ran = scratch.sema(words);
        assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (code, "", ""), "{words:?}");
    }
}

#[test]
fn mode_is_the_files_whatever_the_umask() {
    let scratch = Scratch::new();
    let ran =
        scratch.sh("umask 077; sema try a -q; umask 0; sema try b --mode 600 -q; stat -c %a a b");
    assert_eq!(ran.out, "644\n600\n");
}

#[test]
fn slots_are_counted_and_named() {
    let scratch = Scratch::new();
    for slot in 1..=3 {
        let ran = scratch.sema(&["try", "a", "--slots", "3"]);
        assert!(ran.out.starts_with(&format!("status: acquired\nslot: {slot}\n")), "{ran:?}");
    }
    assert_eq!(scratch.sema(&["try", "a", "--slots", "3"]).code, 1);
    assert_eq!(scratch.files(), ["a.1", "a.2", "a.3"]);
    let full = scratch.sema(&["status", "a", "--slots", "3"]);
    assert!(full.out.starts_with("locked: true\nslots: 3\nheld: 3\nslot: 1\npid: "));
    assert_eq!(full.code, 1);
    let release =
        |words: &[&str]| scratch.sema(&[&["release", "a", "--slots", "3"], words].concat()).code;
    assert_eq!(release(&["--slot", "2"]), 0);
    assert_eq!(scratch.files(), ["a.1", "a.3"]);
    assert_eq!((release(&["--slot", "2"]), release(&["--slot", "4"])), (1, 64));
    assert_eq!((release(&[]), scratch.files()), (0, vec!["a.3".to_owned()]));
    assert_eq!(scratch.sema(&["wait", "a", "--slots", "3"]).out, "status: free\n");
    assert_eq!(scratch.sema(&["status", "a", "--slots", "3"]).code, 0);
    assert_eq!(release(&["--force", "--slot", "3"]), 0);
    assert_eq!(scratch.files(), [""; 0]);
}

/// Readers are calling shells, as holders are.
#[test]
fn try_and_acquire_share_in_the_name_of_the_shell() {
    let scratch = Scratch::new();
    let ran = scratch.sh("sema acquire -s a -q
         sh -c 'sema try -s a -q && sema touch a -q && sema try a -q || echo alone $?
                sema release a -q; sema release a -q 2>/dev/null || echo again $?'
         sema try a -q || echo alone $?
         sema try -s a -q --timeout 1 2>/dev/null || echo usage $?
         sema try -s a -q --slots 2 2>/dev/null || echo slots $?
         sema release a -q
         sema try a -q
         sema acquire -s a -q --timeout 0.01 || echo held $?");
    assert_eq!(ran.out, "alone 1\nagain 1\nalone 1\nusage 64\nslots 64\nheld 1\n", "{ran:?}");
    // The last holder is dead, and so are readers who never said a word.
    assert_eq!(scratch.sh("sema try -s a -q").code, 0);
    assert_eq!(scratch.sema(&["try", "a"]).code, 0);
    assert_eq!(scratch.sema(&["release", "a"]).code, 0);
    assert_eq!(scratch.files(), Vec::<String>::new());
}

#[test]
fn force_releases_all_readers() {
    let scratch = Scratch::new();
    for _ in 0..3 {
        assert_eq!(scratch.sema(&["try", "-s", "a", "--persist"]).code, 0);
    }
    assert_eq!(scratch.sema(&["try", "a"]).code, 1);
    assert_eq!(scratch.sema(&["release", "a", "--force"]).code, 0);
    assert_eq!(scratch.sema(&["release", "a", "--force"]).code, 1);
    assert_eq!(scratch.sema(&["try", "a"]).code, 0);
    assert_eq!(scratch.files(), ["a"]);
}

/// As `sem --wait`.
#[test]
fn wait_for_all_waits_for_the_last_slot_and_the_last_reader() {
    let scratch = Scratch::new();
    let wait = |words: &[&str]| {
        let all = ["wait", "a", "--timeout", "0"];
        scratch.sema(&[&all[..], words].concat()).code
    };
    assert_eq!(wait(&["--slots", "2", "--all"]), 0);
    for _ in 0..2 {
        assert_eq!(scratch.sema(&["try", "a", "--slots", "2"]).code, 0);
    }
    let mut command = scratch.command("sema");
    let waiter = start(command.args(["wait", "a", "--slots", "2", "--all"]));
    wait_for_descriptor(waiter.pid(), "anon_inode:inotify");
    assert_eq!(scratch.sema(&["release", "a.1"]).code, 0);
    assert_eq!((wait(&["--slots", "2"]), wait(&["--slots", "2", "--all"])), (0, 1));
    assert_eq!(scratch.sema(&["release", "a.2"]).code, 0);
    assert_eq!(waiter.end().code, 0);
    assert_eq!(scratch.sema(&["try", "-s", "b", "--persist"]).code, 0);
    assert_eq!(scratch.sema(&["wait", "b", "--all", "--timeout", "0"]).code, 1);
}

/// Like flock(1): its status shows the signal, so that bash ends its script at Ctrl-C.
#[rstest]
fn a_waiter_dies_of_a_signal_in_silence_and_leaves_nothing(
    #[values(
        Signal::SIGTERM,
        Signal::SIGINT,
        Signal::SIGHUP,
        Signal::SIGQUIT,
        Signal::SIGALRM,
        Signal::SIGUSR1
    )]
    signal: Signal,
    #[values("a", "a.shared/1-0123456789abcdef")] held: &str,
) {
    let scratch = Scratch::new();
    fs::create_dir(scratch.at("a.shared")).unwrap();
    scratch.write(held, "pid=1\ntimestamp=1\n");
    let before = scratch.files();
    let lines =
        ["semats acquire a", "sema acquire a", "sema acquire a -q", "sema wait a", "sema run a id"];
    // semats has no shared locks.
    for line in &lines[usize::from(held != "a")..] {
        let mut words = line.split(' ');
        let waiter = start(scratch.command(words.next().unwrap()).args(words));
        match *line {
            "sema wait a" => wait_for_descriptor(waiter.pid(), "anon_inode:inotify"),
            _ => wait_until_blocked(waiter.pid()),
        }
        waiter.signal(signal);
        let ran = waiter.end();
        assert_eq!(ran.code, -(signal as i32), "{line}: {ran:?}");
        assert_eq!((&*ran.out, &*ran.err, scratch.files()), ("", "", before.clone()), "{line}");
    }
}

/// Until the program has turned its signals into something to wait for.
fn wait_until_blocked(pid: Pid) {
    wait_for_descriptor(pid, "anon_inode:[signalfd]");
}

/// Until the program waits for the ticket before its own.
fn wait_for_thread(pid: Pid) {
    until("a thread", || (!waited_for(pid).is_empty()).then_some(()));
}

/// The inodes of the tickets that threads of a process wait for.
fn waited_for(pid: Pid) -> Vec<u64> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
    let names = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter_map(|name| name.trim().strip_prefix("ticket ")?.parse().ok()).collect()
}

fn wait_for_descriptor(pid: Pid, kind: &str) {
    until("a program that waits", || {
        let fds = fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
        let links = fds.filter_map(|fd| fs::read_link(fd.ok()?.path()).ok());
        links.into_iter().any(|link| link.ends_with(kind)).then_some(())
    });
}

/// Who will be gone in a moment is told so when a lock is taken in its name.
#[rstest]
#[case::pipe_in_a_substitution("x=$(sema acquire a --json | cat)", true)]
#[case::brackets("(sema try a -q; :)", true)]
#[case::timeout("timeout 9 sema try a", true)]
#[case::xargs("echo a | xargs -n 1 sema try", true)]
#[case::background("{ sema try a; :; } & wait $!", true)]
#[case::named("x=$(sema acquire a --json --pid $$ | cat)", false)]
#[case::without_owner("x=$(sema acquire a --json --persist | cat)", false)]
#[case::plainly("sema try a", false)]
#[case::pipe("sema try a | cat", false)]
#[case::substitution("x=$(sema acquire a --json); :", false)]
#[case::a_script_of_its_own("sh -c 'sema try a; :'", false)]
fn a_holder_that_ends_early_is_told(#[case] line: &str, #[case] told: bool) {
    for shell in ["sh", "bash"] {
        let scratch = Scratch::new();
        let ran = run(scratch.command(shell).args(["-c", &format!("{line}; :")]));
        assert_eq!(ran.code, 0, "{ran:?}");
        let warning = "the lock ends with it";
        assert_eq!(ran.err.contains(warning), told, "{shell}: {ran:?}");
        assert_eq!(ran.err.contains("--pid $$") && ran.err.contains("--persist"), told);
    }
}

#[test]
fn a_lock_without_an_owner_is_released_by_name() {
    let scratch = Scratch::new();
    let taken = scratch.sh("x=$(sema acquire a --json --persist --tag step | cat)");
    assert_eq!((taken.code, taken.err.as_str()), (0, ""), "{taken:?}");
    assert!(scratch.read("a").contains("\nowner=none\n"));
    let denied = scratch.sema(&["try", "a"]);
    assert_eq!(denied.code, 1);
    assert!(denied.err.contains("without an owner: held until somebody releases it"), "{denied:?}");
    let old = scratch.read("a").replace("timestamp=", "timestamp=1\nx=");
    scratch.write("a", old);
    age(&scratch, "a", 7200);
    assert_eq!(scratch.sema(&["try", "a"]).code, 1, "it has nobody who could die");
    assert_eq!(scratch.sh("(sema release a)").code, 0);
    assert_eq!(scratch.files(), Vec::<String>::new());
}

/// The subshell waits until the shell that began it is gone, and becomes `sema` then: another process has
/// adopted it, and must not have the lock.
#[rstest]
#[case::try_at_once("try")]
#[case::acquire("acquire")]
fn an_orphan_takes_nothing_for_its_adopter(#[case] command: &str) {
    let scratch = Scratch::new();
    let orphan = format!(
        "( while kill -0 $$ 2>/dev/null; do sleep 0.01; done
           exec sema {command} free.lock >said 2>&1 ) >/dev/null 2>&1 &"
    );
    assert_eq!(run(scratch.command("setsid").args(["sh", "-c", &orphan])).code, 0);
    let said = scratch.wait_for("said");
    assert!(said.contains("the process that started sema has ended"), "{said}");
    assert_eq!(scratch.files(), ["said"]);
}

/// Bytes in, bytes out; what is printed is text, from which bash makes the bytes again.
#[rstest]
#[case::try_and_list(
    "sema try $n --tag x >&2; sema list . | cut -f1,6; sema try $n -q || echo $?; sema release $n",
    "caf\\xe9\tx\n1\nstatus: released\n"
)]
#[case::json(
    "sema try $n -q; sema list . --json | cut -d, -f1; sema release $n -q",
    "[{\"name\":\"caf\\\\xe9\"\n"
)]
#[case::message("sema release $n 2>&1 || echo $?", "sema: caf\\xe9: not held\n1\n")]
#[case::slots(
    "sema try $n --slots 2 -q; sema list . | cut -f1; sema release $n --slots 2 -q",
    "caf\\xe9.1\n"
)]
#[case::shared("sema run -s $n -- sema status $n | grep shared", "shared: 1\n")]
#[case::run("sema run $n -- sema status $n | sed 1q", "locked: true\n")]
#[case::swept(
    "sh -c 'sema try $0 -q' $n; : >$n.4194305.0123456789abcdef.tmp; sema clean .",
    "cleaned: true\nlocks: 1\ntemporaries: 1\n"
)]
#[case::link("ln -s $n link; sema try link -q; sema release $n; rm link", "status: released\n")]
#[case::of_the_other_tool("semats status $n | sed 1q", "locked: false\n")]
#[case::printed_twice(
    "sema try $n -q; x=$(sema list . | cut -f1); sema release $(bash -c 'printf %b $0' $x) -q",
    ""
)]
fn a_name_need_not_be_text(#[case] script: &str, #[case] out: &str) {
    let scratch = Scratch::new();
    let ran = scratch.sh(&format!("n=$(printf 'caf\\351'); {script}"));
    assert_eq!((ran.code, ran.out.as_str()), (0, out), "{ran:?}");
    assert_eq!(scratch.files(), Vec::<String>::new());
}

/// Tickets have the lock's bytes, in their names and in what they say.
#[test]
fn waiters_for_a_name_that_is_no_text_take_turns() {
    let scratch = Scratch::new();
    let ran = scratch.sh("n=$(printf 'caf\\351'); sema try $n -q
         place() { stat -c %i $n.queue 2>/dev/null || true; }
         for i in 1 2 3; do
             before=$(place)
             sema run $n -- sh -c \"echo $i >>order\" & last=$!
             until [ \"$(place)\" != \"$before\" ]; do sleep 0.01; done
         done
         kill -KILL $last
         sema release $n -q; wait; cat order; rm order; sema clean . -q");
    assert_eq!((ran.code, ran.out.as_str()), (0, "1\n2\n"), "{ran:?}");
    assert_eq!(scratch.files(), Vec::<String>::new());
}

/// Dates a file back by this many seconds, or ahead by a negative number.
pub(crate) fn age(scratch: &Scratch, name: &str, seconds: i64) {
    let file = fs::File::options().append(true).open(scratch.at(name)).unwrap();
    let (now, by) =
        (std::time::SystemTime::now(), std::time::Duration::from_secs(seconds.unsigned_abs()));
    file.set_modified(if seconds < 0 { now + by } else { now - by }).unwrap();
}

/// A holder that is gone, of which only the number is known. Its lock is stale when it is old; a time that lies in the
/// future is replaced by the file's.
#[rstest]
#[case::ahead_by_a_second(|| now() + 1, 7200, "stale: false\nage: 0")]
#[case::ahead_by_a_day(|| now() + 86_400, 7200, "stale: true\nage: 72")]
#[case::ahead_by_a_century(|| now() + 3_155_760_000, 7200, "stale: true\nage: 72")]
#[case::milliseconds(|| now() * 1000, 7200, "stale: true\nage: 72")]
#[case::milliseconds_of_a_new_file(|| now() * 1000, 5, "stale: false\nage: ")]
#[case::beyond_every_clock(|| u64::MAX, 7200, "stale: true\nage: 72")]
#[case::ahead_like_its_file(|| now() + 86_400, -86_400, "stale: true\nage: unknown")]
#[case::before_1970(|| 0, 7200, "stale: true\nage: 1")]
fn a_time_in_the_future_is_replaced_by_the_time_of_the_file(
    #[case] timestamp: fn() -> u64,
    #[case] file: i64,
    #[case] answer: &str,
) {
    let scratch = Scratch::new();
    scratch.write("a", format!("pid={}\ntimestamp={}\n", 4_194_303, timestamp()));
    age(&scratch, "a", file);
    let status = scratch.sema(&["status", "a"]);
    assert!(status.out.contains(answer), "{status:?}");
    let taken = scratch.sema(&["try", "a"]);
    assert_eq!(taken.code == 0, answer.starts_with("stale: true"), "{taken:?}");
}

#[test]
fn touch_keeps_a_lock_from_counting_as_old() {
    let scratch = Scratch::new();
    scratch.sema(&["try", "a"]);
    let words = scratch.read("a");
    let since = words.lines().find(|line| line.starts_with("timestamp=")).unwrap();
    scratch.write("a", words.replace(since, &format!("timestamp={}", now() - 7200)));
    age(&scratch, "a", 7200);
    let by_age = ["status", "a", "--stale-when", "age"];
    assert!(scratch.sema(&by_age).out.contains("stale: true\n"));
    let touched = scratch.sema(&["touch", "a"]);
    assert_eq!((touched.code, touched.out.as_str()), (0, "status: renewed\n"), "{touched:?}");
    assert!(scratch.sema(&by_age).out.contains("stale: false\nage: 72"));
    let others = scratch.sh("sema touch a || exit $?");
    assert_eq!(others.code, 1, "only its holder renews it: {others:?}");
    assert_eq!(scratch.sema(&["touch", "b"]).err, "sema: b: not held\n");
    // The original tools' locks are as old as they say.
    scratch.write("c", format!("pid={}\ntimestamp=1\n", std::process::id()));
    assert!(scratch.sema(&["status", "c", "--stale-when", "age"]).out.contains("stale: true\n"));
}

/// The kernel gives each user few inotify instances.
#[test]
fn only_the_first_in_line_has_an_inotify_instance() {
    let scratch = Scratch::new();
    scratch.write("a", "pid=1\ntimestamp=1\n");
    let wait = || start(scratch.command("sema").args(["acquire", "a"]));
    let mut waiters = vec![wait()];
    wait_for_descriptor(waiters[0].pid(), "anon_inode:inotify");
    for _ in 0..3 {
        waiters.push(wait());
        wait_for_thread(waiters.last().unwrap().pid());
    }
    for waiter in &waiters[1..] {
        let fds = fs::read_dir(format!("/proc/{}/fd", waiter.pid())).unwrap();
        // One that is open for a moment may be gone again.
        let links: Vec<_> = fds.filter_map(|fd| fs::read_link(fd.ok()?.path()).ok()).collect();
        assert!(!links.iter().any(|link| link.ends_with("anon_inode:inotify")), "{links:?}");
    }
}

/// Nothing ends a thread that waits for another process's ticket but the end of that.
#[test]
fn waits_that_time_out_share_one_thread_for_each_ticket() {
    let scratch = Scratch::new();
    scratch.write("a", "pid=1\ntimestamp=1\n");
    let first = start(scratch.command("sema").args(["acquire", "a"]));
    wait_for_descriptor(first.pid(), "anon_inode:inotify");
    let inode = std::os::unix::fs::MetadataExt::ino(&fs::metadata(scratch.at("a.queue")).unwrap());
    let semaphore = file_semaphore::Semaphore::open(scratch.at("a")).unwrap();
    let waiting = || waited_for(Pid::this()).into_iter().filter(|ticket| *ticket == inode).count();
    for _ in 0..20 {
        let request = semaphore.request().timeout(std::time::Duration::from_millis(5));
        assert!(matches!(request.acquire(), Err(file_semaphore::Error::TimedOut { .. })));
        // On a busy machine it begins later than the wait ends.
        until("one thread", || (waiting() == 1).then_some(()));
    }
    drop(first);
    until("the thread's end", || (waiting() == 0).then_some(()));
}

/// Ctrl-Z in one terminal must not keep all others waiting.
#[test]
fn a_stopped_waiter_loses_its_turn() {
    let scratch = Scratch::new();
    scratch.sema(&["try", "a"]);
    let wait = || start(scratch.command("sema").args(["acquire", "a"]));
    let mut first = wait();
    until("the first in line", || scratch.at("a.queue").exists().then_some(()));
    let ticket =
        || std::os::unix::fs::MetadataExt::ino(&fs::metadata(scratch.at("a.queue")).unwrap());
    let of_the_first = ticket();
    first.signal(Signal::SIGSTOP);
    let mut second = wait();
    until("the second in line", || (ticket() != of_the_first).then_some(()));
    scratch.sema(&["release", "a"]);
    assert_eq!(second.code(), 0);
    scratch.sema(&["release", "a"]);
    first.signal(Signal::SIGCONT);
    assert_eq!(first.code(), 0);
    scratch.sema(&["release", "a"]);
    assert_eq!(scratch.files(), Vec::<String>::new());
}

#[test]
fn waiters_notice_that_their_directory_was_moved() {
    let scratch = Scratch::new();
    for (words, at_once) in
        [(&["acquire", "d/a"][..], 1), (&["wait", "d/a"], 1), (&["run", "d/a", "--", "true"], 2)]
    {
        fs::create_dir(scratch.at("d")).unwrap();
        scratch.write("d/a", "pid=1\ntimestamp=1\n");
        let mut waiters = Vec::new();
        for _ in 0..at_once {
            let mut command = scratch.command("sema");
            let child = start(command.args(words));
            match waiters.len() {
                0 => wait_for_descriptor(child.pid(), "anon_inode:inotify"),
                _ => wait_for_thread(child.pid()),
            }
            waiters.push(child);
        }
        fs::rename(scratch.at("d"), scratch.at("e")).unwrap();
        for waiter in waiters {
            let ran = waiter.end();
            assert_eq!(ran.code, 3, "{ran:?}");
            assert!(ran.err.contains("the parent directory was moved or replaced"), "{ran:?}");
        }
        fs::remove_dir_all(scratch.at("e")).unwrap();
    }
}

#[test]
fn nohup_keeps_a_waiter_waiting() {
    let scratch = Scratch::new();
    scratch.write("a", "pid=1\ntimestamp=1\n");
    let mut command = scratch.command("sh");
    let child = start(command.args(["-c", "trap '' HUP; exec sema acquire a"]));
    wait_until_blocked(child.pid());
    child.signal(Signal::SIGHUP);
    fs::remove_file(scratch.at("a")).unwrap();
    assert_eq!(child.end().code, 0);
}

/// A person sees what the columns are; a script gets nothing but locks.
#[test]
#[ignore = "needs programs: tests/run"]
fn list_has_a_header_on_a_terminal_only() {
    let scratch = Scratch::new();
    scratch.sema(&["try", "a"]);
    let shown = scratch.sh("script -qec 'sema list .' /dev/null; sema list .");
    let lines: Vec<&str> = shown.out.lines().collect();
    assert!(lines[0].starts_with("name\tpid\tholder"), "{shown:?}");
    assert!(lines.len() == 3 && lines[1..].iter().all(|line| line.starts_with("a\t")), "{shown:?}");
}

#[test]
fn other_numbers_of_slots_are_told() {
    let scratch = Scratch::new();
    let told = "do all users give the same --slots?";
    assert_eq!(scratch.sema(&["try", "a", "--slots", "3"]).err, "");
    assert_eq!(scratch.sema(&["try", "a", "--slots", "3"]).err, "");
    let forgotten = scratch.sema(&["try", "a"]);
    assert!(forgotten.err.contains("a.1 is held") && forgotten.err.contains(told), "{forgotten:?}");
    let plain = scratch.sema(&["try", "a", "--slots", "3"]);
    assert!(plain.err.contains("a is held") && plain.err.contains(told), "{plain:?}");
    scratch.sema(&["release", "a"]);
    let fewer = scratch.sema(&["status", "a", "--slots", "2"]);
    assert!(fewer.err.contains("a.3 is held") && fewer.err.contains(told), "{fewer:?}");
}

#[test]
#[ignore = "needs root: tests/run"]
fn a_directory_is_listed_and_cleaned_whole() {
    let scratch = Scratch::new();
    scratch.sema(&["try", "live"]);
    scratch.write("dead", format!("pid={NOBODY}\ntimestamp=1\n"));
    scratch.write("gone.4194305.0123456789abcdef.tmp", "");
    scratch.write("notes", "hello\n");
    let stale = scratch.sema(&["list", ".", "--only-stale"]);
    assert!(stale.out.starts_with("dead\t") && stale.out.lines().count() == 1, "{stale:?}");
    let cleaned = scratch.sema(&["clean", "."]);
    assert_eq!(cleaned.out, "cleaned: true\nlocks: 1\ntemporaries: 1\n");
    assert_eq!(scratch.files(), ["live", "notes"]);
    fs::set_permissions(scratch.at("notes"), fs::Permissions::from_mode(0o0)).unwrap();
    let mut list = scratch.command("setpriv");
    // For somebody else, whom the test's own directory lets in.
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o755)).unwrap();
    list.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "sema", "list", "."]);
    let seen = run(&mut list);
    assert!(seen.out.contains("notes\t-\tunknown\theld\t"), "{seen:?}");
}

#[rstest]
#[case::option(&["try", "--slost", "2", "a", "--json"], 64, "USAGE", "unexpected argument '--slost' found; a similar argument exists: '--slots'")]
#[case::command(&["lock", "a", "--json"], 64, "USAGE", "unrecognized subcommand 'lock'; the command for this is 'sema acquire'")]
#[case::nothing_to_run(&["run", "a", "--json"], 64, "USAGE", "the following required arguments were not provided: <COMMAND>...")]
#[case::contradiction(&["try", "a", "--json", "--shared", "--slots", "2"], 64, "USAGE", "--shared and --slots cannot be used together")]
#[case::slot(&["release", "a", "--json", "--slot", "2"], 64, "USAGE", "--slot needs --slots, the number of all slots, as in --slots 4 --slot 2")]
#[case::no_such_command(&["run", "a", "--json", "no-such-command"], 127, "NOT_FOUND", "no-such-command: command not found")]
#[case::not_executable(&["run", "a", "--json", "/dev/null"], 126, "NOT_EXECUTABLE", "/dev/null: Permission denied")]
fn every_failure_is_one_object(
    #[case] words: &[&str],
    #[case] code: i32,
    #[case] kind: &str,
    #[case] message: &str,
) {
    let ran = Scratch::new().sema(words);
    let word = kind.to_ascii_lowercase();
    let object = format!(
        "{{\"status\":\"failed\",\"type\":\"{kind}\",\"error\":\"{word}\",\"message\":\"{message}\"}}\n"
    );
    assert_eq!((ran.code, &*ran.out, &*ran.err), (code, &*object, ""));
}

#[test]
fn a_name_that_is_too_long_is_called_so() {
    let scratch = Scratch::new();
    for (length, code) in [(223, 0), (224, 64), (300, 64)] {
        let ran = scratch.sema(&["try", &"n".repeat(length)]);
        assert_eq!(ran.code, code, "{ran:?}");
        assert_eq!(ran.err.contains("longer than 223 bytes"), code == 64, "{ran:?}");
    }
}

#[test]
fn clean_sweeps_the_stale_and_temporary_files_of_the_dead() {
    let scratch = Scratch::new();
    let us = std::process::id();
    let living = format!("a.{us}.0123456789abcdef.tmp");
    for program in [Scratch::sema as fn(&Scratch, &[&str]) -> _, Scratch::semats] {
        scratch.write("a", format!("pid={NOBODY}\ntimestamp=1\n"));
        scratch.write("a.4194305.0123456789abcdef.tmp", "");
        scratch.write(&living, "");
        let ran = program(&scratch, &["clean", "a"]);
        assert!(ran.out.starts_with("cleaned: true\n"), "{ran:?}");
        assert_eq!(scratch.files(), [living.as_str()]);
        let again = program(&scratch, &["clean", "a"]);
        assert!(again.out.starts_with("cleaned: false\n") && again.code == 0);
    }
}

#[test]
fn the_shell_and_python_of_the_documents_read_and_write_our_files() {
    let scratch = Scratch::new();
    let ran = scratch.sh(
        r#"
        # Written by the shell, as the protocol document shows it.
        echo "pid=$$" > my.lock
        echo "timestamp=$(date +%s)" >> my.lock
        echo "tag=shell-script" >> my.lock
        sema status my.lock | head -4 >seen || true
        printf 'locked: true\npid: %s\ntimestamp: %s\ntag: shell-script\n' "$$" "$(sed -n 's/^timestamp=//p' my.lock)" >expected
        cmp seen expected
        semats status my.lock --json >/dev/null
        sema release my.lock -q
        # Written by us, read by Python as there.
        sema try my.lock --tag 'a=b c' -q
        python3 - <<'END'
def parse_lock_file(path):
    with open(path) as f:
        info = {}
        for line in f:
            if '=' in line:
                key, value = line.strip().split('=', 1)
                info[key] = value
    return info

info = parse_lock_file('my.lock')
print(info['tag'], info['pid'].isdigit(), info['timestamp'].isdigit())
END
        "#,
    );
    assert_eq!((ran.code, ran.out.as_str()), (0, "a=b c True True\n"), "{ran:?}");
}

/// Its rules of parsing, line by line, in the language of the tool; and a lock as it writes one.
#[test]
#[ignore = "needs programs: tests/run"]
fn the_typescript_tools_rules_read_and_write_our_files() {
    let scratch = Scratch::new();
    scratch.write(
        "tool.js",
        r#"
        const fs = require("fs");
        const parse = text => {
            const info = {};
            for (const line of text.split(/\r?\n/)) {
                const equals = line.indexOf("=");
                if (line.trim() === "" || equals < 0) continue;
                info[line.slice(0, equals).trim()] = line.slice(equals + 1).trim();
            }
            for (const key of ["pid", "timestamp"])
                if (!/^[0-9]+$/.test(info[key] ?? "")) throw new Error(`${key} of ${JSON.stringify(text)}`);
            return { pid: Number(info.pid), timestamp: Number(info.timestamp), tag: info.tag };
        };
        const [action, path, pid] = process.argv.slice(2);
        if (action === "read") {
            const lock = parse(fs.readFileSync(path, "utf8"));
            const age = Date.now() / 1000 - lock.timestamp;
            console.log(lock.pid === Number(pid), age > -5 && age < 3600, lock.tag);
        } else {
            const draft = `${path}.${pid}.0123456789abcdef.tmp`;
            const now = Math.floor(Date.now() / 1000);
            fs.writeFileSync(draft, `pid=${pid}\ntimestamp=${now}\ntag=npm build\n`, { mode: 0o600 });
            fs.renameSync(draft, path);
        }
        "#,
    );
    let ran = scratch.sh(r#"
        sema try a --tag 'é=b' -q; node tool.js read a $$; sema release a -q
        semats try-acquire a --tag c >/dev/null; node tool.js read a $(sed -n s/^pid=//p a)
        semats release a --force >/dev/null
        sema try b --slots 2 -q; node tool.js read b.1 $$
        sema try c -s --tag reader -q; node tool.js read c.shared/* $$
        sema run d --tag run -- sh -c 'node tool.js read d $$'
        node tool.js write e $$
        sema status e | sed -n 's/^locked: //p;s/^tag: //p'
        semats status e --json | tr -d '\n ' | grep -o '"tag":"[^"]*"'
        sema try e -q || echo busy
        sema release e -q
        "#);
    let read = ["é=b", "c", "undefined", "reader", "run"].map(|tag| format!("true true {tag}\n"));
    let written = "true\nnpm build\n\"tag\":\"npmbuild\"\nbusy\n";
    assert_eq!((ran.code, ran.out), (0, read.concat() + written), "{}", ran.err);
}

#[test]
fn a_tag_in_a_hostile_file_moves_no_terminal() {
    let scratch = Scratch::new();
    scratch.write("a", "pid=1\ntimestamp=1\ntag=x\u{1b}[2J\u{9b}2Jy\n");
    for words in [&["status", "a"][..], &["list", "."], &["try", "a"]] {
        let ran = scratch.sema(words);
        assert!(!(ran.out + &ran.err).chars().any(|c| c.is_control() && c != '\n' && c != '\t'));
    }
}

#[test]
fn bash_parses_its_completions() {
    let scratch = Scratch::new();
    let syntax = scratch.sh("sema completions bash >c; bash -n c; complete() { :; }; echo good");
    assert_eq!(syntax.out, "good\n", "{syntax:?}");
}

/// A full disk is told in words and in the exit code; where a lock was taken or let go, the deed
/// counts, and the words alone must do.
#[rstest]
#[case("sema --help", 3)]
#[case("sema run --help", 3)]
#[case("sema --version", 3)]
#[case("sema completions fish", 3)]
#[case("sema status b", 3)]
#[case("sema list . --json", 3)]
#[case("sema clean b", 3)]
#[case("sema status a", 1)]
#[case("sema try a --json", 1)]
#[case("sema try b", 0)]
#[case("sema release a --force", 0)]
#[case("semats --help", 1)]
#[case("semats status a", 1)]
#[case("semats clean a --json", 1)]
#[case("semats try-acquire b", 0)]
fn a_full_disk_is_not_silent(#[case] line: &str, #[case] code: i32) {
    let scratch = Scratch::new();
    scratch.write("a", "pid=1\ntimestamp=1\n");
    let ran = scratch.sh(&format!("exec {line} >/dev/full"));
    let words = line.split(' ').next().unwrap().to_owned() + ": standard output: No space left";
    assert_eq!(ran.code, code, "{ran:?}");
    assert!(ran.err.contains(&words), "{ran:?}");
    // A reader who has had enough is no failure. What counts here is said by the other tests.
    let ran = scratch.sh(&format!("({line}; echo $? >code) 2>err | true; cat err"));
    assert!(!ran.out.contains("standard output") && !ran.out.contains("panicked"), "{ran:?}");
}

/// A copy of `sema` in here, for users who may not reach the other one. Made by another process: one that
/// a test of another thread starts would have it open for writing for a moment, and then nobody can run it.
pub(crate) fn bring_sema(scratch: &Scratch) {
    let copied = scratch.sh("cp \"$(command -v sema)\" sema");
    assert_eq!(copied.code, 0, "{copied:?}");
}

/// A script as somebody without rights, in a directory open to all like /tmp.
fn as_nobody(scratch: &Scratch, script: &str) -> End {
    let open = fs::set_permissions(scratch.path(), PermissionsExt::from_mode(0o1777));
    assert!(open.is_ok());
    bring_sema(scratch);
    let mut command = scratch.command("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", script]);
    run(&mut command)
}

#[test]
#[ignore = "needs root: tests/run"]
fn not_permitted_means_alive() {
    let scratch = Scratch::new();
    scratch.write("a", "pid=1\ntimestamp=1\n");
    let ran =
        as_nobody(&scratch, "./sema status a | grep -E '^(alive|stale)'; ./sema try a -q; echo $?");
    assert_eq!(ran.out, "alive: true\nstale: false\n1\n", "{ran:?}");
}

#[test]
#[ignore = "needs root: tests/run"]
fn a_lock_that_may_not_be_read_is_held() {
    let scratch = Scratch::new();
    scratch.sema(&["try", "a", "--mode", "600"]);
    let ran =
        as_nobody(&scratch, "./sema try a; echo $?; ./sema status a; ./sema release a; echo $?");
    assert!(
        ran.out.starts_with("1\nlocked: true\nalive: unknown\n") && ran.out.ends_with("\n1\n"),
        "{ran:?}"
    );
    assert!(ran.err.contains("held by somebody"), "{ran:?}");
}

#[test]
fn a_waiter_notices_a_holder_that_dies_without_a_word() {
    let scratch = Scratch::new();
    let ran = scratch.sh("sleep 100 & sema try a -q --pid $!
         (kill -KILL $!) &
         sema acquire a --timeout 30 --tag next");
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(scratch.read("a").contains("tag=next"));
}

// semats

#[test]
fn semats_takes_shows_and_releases() {
    let scratch = Scratch::new();
    let taken = scratch.semats(&["try-acquire", "a", "--tag", "npm build"]);
    assert_eq!(taken.code, 0);
    let text = scratch.read("a");
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 3, "no more than the original writes: {text}");
    let pid = lines[0].strip_prefix("pid=").unwrap();
    let since = lines[1].strip_prefix("timestamp=").unwrap();
    let said = format!("status: acquired\npid: {pid}\ntimestamp: {since}\ntag: npm build\n");
    assert_eq!(taken.out, said);

    let status = scratch.semats(&["status", "a"]);
    let info = format!("{{\"pid\":{pid},\"timestamp\":{since},\"tag\":\"npm build\"}}");
    let shown =
        format!("locked: true\ninfo: {info}\nisStale: false\nisOwnedByCurrentProcess: false\n");
    assert_eq!((status.code, status.out), (0, shown));

    let denied = scratch.semats(&["release", "a"]);
    assert_eq!((denied.code, denied.out.as_str()), (1, ""));
    assert!(denied.err.starts_with("status: failed\ntype: PERMISSION_DENIED\nmessage: "));
    assert!(denied.err.contains(&format!("holderPid: {pid}\n")));
    let released = scratch.semats(&["release", "-f", "a"]);
    assert_eq!((released.code, released.out.as_str()), (0, "status: released\n"));
    assert_eq!(scratch.files(), Vec::<String>::new());
}

#[test]
fn semats_json_is_indented_by_two() {
    let scratch = Scratch::new();
    scratch.write("a", format!("pid=7\ntimestamp={}\ntag=x\n", now()));
    let ran = scratch.semats(&["-j", "status", "a"]);
    let expected = format!(
        "{{\n  \"locked\": true,\n  \"info\": {{\n    \"pid\": 7,\n    \"timestamp\": {},\n    \"tag\": \"x\"\n  }},\n  \"isStale\": false,\n  \"isOwnedByCurrentProcess\": false\n}}\n",
        scratch.read("a").lines().nth(1).unwrap().strip_prefix("timestamp=").unwrap()
    );
    assert_eq!(ran.out, expected);
    let free = scratch.semats(&["status", "free", "--json"]);
    assert!(free.out.contains("\"info\": null"));
    let denied = scratch.semats(&["try-acquire", "a", "--json"]);
    assert_eq!((denied.code, denied.err.as_str()), (1, ""));
    assert!(denied.out.starts_with(
        "{\n  \"status\": \"failed\",\n  \"type\": \"ALREADY_LOCKED\",\n  \"message\": "
    ));
}

#[test]
fn semats_reports_try_acquire_on_output_and_the_others_on_error() {
    let scratch = Scratch::new();
    scratch.write("a", format!("pid=1\ntimestamp={}\n", now()));
    let tried = scratch.semats(&["try-acquire", "a"]);
    assert!(
        tried.out.starts_with("status: failed\ntype: ALREADY_LOCKED\n") && tried.err.is_empty()
    );
    assert!(tried.out.contains("\nholderPid: 1\nlockedSince: "));
    let waited = scratch.semats(&["acquire", "a", "--timeout", "60"]);
    assert!(waited.err.starts_with("status: failed\ntype: TIMEOUT\n") && waited.out.is_empty());
    assert_eq!((tried.code, waited.code), (1, 1));
    let missing = scratch.semats(&["release", "b"]);
    assert_eq!(missing.err, "status: failed\ntype: NOT_LOCKED\nmessage: not held\n");
}

#[test]
fn semats_has_help_and_a_version() {
    let scratch = Scratch::new();
    let help = scratch.semats(&["--help"]);
    assert!(help.out.contains("Usage:") && help.out.contains("Commands:"));
    let none = scratch.semats(&[]);
    assert_eq!((help.code, none.code), (0, 1));
    assert_eq!(help.out, none.out);
    let version = scratch.semats(&["--version"]).out;
    assert_eq!(version, concat!("semats ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[rstest]
#[case::gone_and_old(NOBODY, 3700, true)]
#[case::gone_and_young(NOBODY, 60, false)]
#[case::alive_and_old(1, 3700, false)]
fn semats_follows_the_rule_of_both(#[case] pid: u32, #[case] age: u64, #[case] stale: bool) {
    let scratch = Scratch::new();
    scratch.write("a", format!("pid={pid}\ntimestamp={}\n", now() - age));
    let status = scratch.semats(&["status", "a"]);
    assert!(status.out.contains(&format!("isStale: {stale}\n")), "{status:?}");
    assert_eq!(scratch.semats(&["try-acquire", "a"]).code == 0, stale);
}

#[test]
fn semats_is_verbose_on_request() {
    let scratch = Scratch::new();
    let ran = scratch.semats(&["try-acquire", "a", "--verbose"]);
    assert!(ran.err.starts_with("[INFO] "));
}
