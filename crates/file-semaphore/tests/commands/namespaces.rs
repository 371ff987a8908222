//! Stale locks for real: a process number used again, another boot, another pid namespace.
//! Needs root (pid namespaces) and util-linux (unshare).

use std::process::{Child, Command};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rstest::rstest;
use testbed::local::{End, Scratch, now, run, until};

/// A script as the first process of a pid namespace of its own, with its own /proc.
fn in_namespace(scratch: &Scratch, script: &str) -> End {
    let mut command = scratch.command("unshare");
    command.args(["--pid", "--fork", "--mount-proc", "sh", "-eu", "-c", script]);
    run(&mut command)
}

#[test]
#[ignore = "needs root: tests/run"]
fn a_number_used_again_is_another_process() {
    let scratch = Scratch::new();
    // The kernel gives out the next number after ns_last_pid: the holder's number goes to a
    // process that has nothing to do with the lock.
    let ran = in_namespace(
        &scratch,
        "sleep 100 & holder=$!
         sema try a -q --pid $holder
         kill -KILL $holder; wait $holder || true
         n=0
         while [ $n -lt 50 ]; do
             echo $((holder - 1)) >/proc/sys/kernel/ns_last_pid; sleep 100 & other=$!
             # Start times count hundredths of seconds: not in the holder's own.
             if [ $other = $holder ]; then
                 grep -qx \"start=$(cut -d' ' -f22 /proc/$other/stat)\" a || break
             fi
             kill -KILL $other; wait $other || true; n=$((n + 1))
         done
         [ $other = $holder ]
         grep -qx pid=$other a
         sema status a | sed -n '/^alive/p;/^stale/p' || true
         sema try a -q --tag taken
         kill -KILL $other",
    );
    assert_eq!((ran.code, ran.out.as_str()), (0, "alive: false\nstale: true\n"), "{ran:?}");
    assert!(scratch.read("a").contains("tag=taken\n"));
}

/// The first process of a container adopts what is left of another session, and gets no lock by that.
#[test]
#[ignore = "needs root: tests/run"]
fn the_first_process_of_a_container_gets_no_lock_of_an_orphan() {
    let scratch = Scratch::new();
    let ran = in_namespace(
        &scratch,
        "orphan() {
             setsid sh -c '( while kill -0 $$; do sleep 0.01; done
                             exec sema $0 >>said ) 2>>complaints &' \"$1\"
         }
         sema try -q --persist nobodys
         orphan 'try a'
         until grep has.ended complaints; do sleep 0.01; done
         orphan 'release nobodys'
         until grep released said; do sleep 0.01; done",
    );
    assert!(ran.out.contains("the process that started sema has ended"), "{ran:?}");
    assert_eq!(scratch.files(), ["complaints", "said"]);
}

#[test]
fn a_lock_of_another_boot_is_broken_at_once() {
    let scratch = Scratch::new();
    // Alive by number, by start time and by age: only the boot tells.
    let ran = scratch.sh("sema try a -q --pid $$
         sed -i 's/^boot=.*/boot=00000000-0000-4000-8000-000000000000/' a
         sema status a | sed -n '/^alive/p;/^stale/p' || true
         sema try a -q && grep -c 00000000-0000-4000 a || true");
    assert_eq!(ran.out, "alive: false\nstale: true\n0\n", "{ran:?}");
}

/// Whether this is the machine's own pid namespace (PROC_PID_INIT_INO), to which the processes of
/// all containers belong as well.
fn all_is_seen() -> bool {
    let namespace = std::fs::read_link("/proc/self/ns/pid").unwrap();
    namespace.to_str() == Some("pid:[4026531836]")
}

/// A container: pid, mount, host name and time namespaces of its own.
fn container(scratch: &Scratch, host: &str, script: &str) -> Command {
    let mut command = scratch.command("unshare");
    command.args(["--pid", "--fork", "--mount-proc", "--uts", "--ipc", "--time", "--boottime"]);
    let script = format!("hostname {host}; {script}");
    command.args(["86400", "sh", "-eu", "-c", &script]);
    command
}

fn in_container(scratch: &Scratch, host: &str, script: &str) -> End {
    run(&mut container(scratch, host, script))
}

/// The volume is kept, the container is gone: its first process was killed with all others.
#[test]
#[ignore = "needs root: tests/run"]
fn a_killed_containers_lock_is_free_at_once_where_all_processes_are_seen() {
    let scratch = Scratch::new();
    let ran = in_container(&scratch, "web", "sema try a --tag inside -q --pid $$");
    assert_eq!(ran.code, 0, "{ran:?}");
    let words = scratch.read("a");
    let status = scratch.sema(&["status", "a"]);
    let taken = scratch.sema(&["try", "a"]);
    if all_is_seen() {
        assert!(status.out.contains("alive: false\nstale: true\n"), "{status:?}");
        assert_eq!(taken.code, 0, "{taken:?}");
    } else {
        assert!(status.out.contains("alive: unknown\nstale: false\n"), "{status:?}");
        assert_eq!((taken.code, scratch.read("a")), (1, words));
    }
}

#[test]
#[ignore = "needs root: tests/run"]
fn a_containers_live_lock_is_found_out_outside() {
    let scratch = Scratch::new();
    let mut container = holding_container(&scratch);
    let words = scratch.read("a").replace(&timestamp(&scratch.read("a")), "timestamp=1");
    scratch.write("a", &words);
    for when in ["dead", "host"] {
        let status = scratch.sema(&["status", "a", "--stale-when", when]);
        assert!(status.out.contains("alive: true\nstale: false\n"), "{status:?}");
        assert_eq!(scratch.sema(&["try", "a", "--stale-when", when]).code, 1);
    }
    let (first, _) = first_process(&container);
    kill(first, Signal::SIGKILL).unwrap();
    container.wait().unwrap();
}

/// The first process of the namespace that `unshare` made, and its pid namespace, kept open.
fn first_process(unshare: &Child) -> (Pid, std::fs::File) {
    let id = unshare.id();
    let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
    let first = children.trim();
    let namespace = std::fs::File::open(format!("/proc/{first}/ns/pid")).unwrap();
    (Pid::from_raw(first.parse().unwrap()), namespace)
}

/// Seen from the next container, which sees its own processes only.
#[rstest]
#[case::started_anew("web", "dead", 0, false)]
#[case::started_anew_and_told_so("web", "host", 0, true)]
#[case::of_another_name("cache", "host", 0, false)]
#[case::by_age_and_young("web", "age", 0, false)]
#[case::by_age_and_old("cache", "age", 7200, true)]
#[ignore = "needs root: tests/run"]
fn a_killed_containers_lock_is_taken_in_the_next_by_rule(
    #[case] host: &str,
    #[case] when: &str,
    #[case] age: i64,
    #[case] taken: bool,
) {
    let scratch = Scratch::new();
    let _pinned = kill_a_holding_container(&scratch);
    let words = scratch.read("a");
    let aged =
        words.replace(&timestamp(&words), &format!("timestamp={}", now() - age.unsigned_abs()));
    scratch.write("a", aged);
    crate::programs::age(&scratch, "a", age);
    let script = format!("sema try a -q --stale-when {when} || echo $?; grep -c ^boot= a");
    let ran = in_container(&scratch, host, &script);
    assert_eq!(ran.out, if taken { "1\n" } else { "1\n1\n" }, "{ran:?}");
    if !taken {
        let ran = in_container(&scratch, host, "sema try a || true; sema status a || true");
        assert!(ran.err.contains("cannot be seen from here: see --stale-when"), "{ran:?}");
        assert!(ran.out.contains("host: web\nalive: unknown\nstale: false\n"), "{ran:?}");
    }
}

/// A container whose first process holds the lock.
fn holding_container(scratch: &Scratch) -> Child {
    let script = "sema try a -q --pid $$; echo ready >ready; exec sleep 100";
    let container = container(scratch, "web", script).spawn().unwrap();
    scratch.wait_for("ready");
    container
}

/// A container that took the lock and was killed. Its pid namespace is kept open, as the next
/// namespace may get the number of one that is gone; then its processes are told apart by their
/// start times, and the lock is free at once.
fn kill_a_holding_container(scratch: &Scratch) -> std::fs::File {
    let mut container = holding_container(scratch);
    let (first, namespace) = first_process(&container);
    kill(first, Signal::SIGKILL).unwrap();
    container.wait().unwrap();
    namespace
}

#[test]
#[ignore = "needs root: tests/run"]
fn a_reboot_ends_every_container() {
    let scratch = Scratch::new();
    let ran = in_container(&scratch, "web", "sema try a -q --pid $$; hostname >host");
    assert_eq!(ran.code, 0, "{ran:?}");
    let ours = nix::unistd::gethostname().unwrap().into_string().unwrap();
    let rebooted = "boot=00000000-0000-4000-8000-000000000000";
    let words = scratch.read("a").replace("host=web", &format!("host={ours}"));
    let boot = words.lines().find(|line| line.starts_with("boot=")).unwrap();
    scratch.write("a", words.replace(boot, rebooted));
    assert_eq!(scratch.sema(&["try", "a"]).code, 0, "{words}");
}

/// `CLOCK_BOOTTIME`, and with it every start time in /proc, is shifted in a time namespace.
#[test]
#[ignore = "needs root: tests/run"]
fn time_namespaces_do_not_hide_a_live_holder() {
    let scratch = Scratch::new();
    let shifted = "unshare --time --boottime 100000 --fork";
    let ran = scratch.sh(&format!(
        "sleep 100 & holder=$!
         sema try out -q --pid $holder
         {shifted} sema try in -q --pid $holder
         {shifted} sh -c 'sema try out || echo $?; sema status out | grep alive'
         sema try in || echo $?; sema status in | grep alive
         [ \"$(grep ^start= in)\" = \"$(grep ^start= out)\" ]
         kill $holder"
    ));
    assert_eq!((ran.code, ran.out.as_str()), (0, "1\nalive: true\n1\nalive: true\n"), "{ran:?}");
}

#[test]
fn a_zombie_holds_nothing() {
    let scratch = Scratch::new();
    let mut child = scratch.command("sh").args(["-c", "sema try a -q; :"]).spawn().unwrap();
    let stat = format!("/proc/{}/stat", child.id());
    until("a zombie", || std::fs::read_to_string(&stat).ok()?.contains(") Z ").then_some(()));
    let status = scratch.sema(&["status", "a"]);
    assert!(status.out.contains("alive: false\nstale: true\n"), "{status:?}");
    let zombie = child.id().to_string();
    assert_eq!(scratch.sema(&["try", "b", "--pid", &zombie]).code, 64, "it can hold nothing");
    assert_eq!(scratch.sema(&["try", "a"]).code, 0);
    child.wait().unwrap();
}

#[test]
#[ignore = "needs root: tests/run"]
fn a_lock_from_outside_cannot_be_judged_inside_a_container() {
    let scratch = Scratch::new();
    scratch.sema(&["try", "a", "--tag", "outside"]);
    let words = scratch.read("a");
    // Inside, our number is most likely free: the hottest bug of this field steals the lock.
    let ran = in_namespace(&scratch, "sema try a -q || echo $?; sema status a | grep ^alive");
    assert_eq!(ran.out, "1\nalive: unknown\n", "{ran:?}");
    let ran = in_namespace(&scratch, "sema clean a | head -1; sema release a -q || echo $?");
    assert_eq!(ran.out, "cleaned: false\n1\n", "{ran:?}");
    assert_eq!(scratch.read("a"), words);
}

#[test]
#[ignore = "needs root: tests/run"]
fn the_same_number_in_another_namespace_is_no_owner() {
    let scratch = Scratch::new();
    // In both namespaces the script is process 1.
    assert_eq!(in_namespace(&scratch, "sema try a -q; grep -qx pid=1 a").code, 0);
    let ran = in_namespace(&scratch, "sema release a || echo $?; grep -x pid=1 a");
    assert_eq!(ran.out, "1\npid=1\n", "{ran:?}");
}

#[test]
#[ignore = "needs root: tests/run"]
fn a_caller_outside_the_namespace_must_name_a_holder() {
    let scratch = Scratch::new();
    let mut command = scratch.command("unshare");
    command.args(["--pid", "--fork", "--mount-proc", "sema", "try", "a"]);
    let ran = run(&mut command);
    assert_eq!(ran.code, 64);
    assert!(ran.err.contains("outside this pid namespace"), "{ran:?}");
    assert_eq!(scratch.files(), Vec::<String>::new());
}

/// `unshare --pid --fork` alone: the new namespace still sees the old one's /proc, where the
/// numbers mean other processes.
#[test]
#[ignore = "needs root: tests/run"]
fn a_proc_of_another_namespace_is_not_believed() {
    let scratch = Scratch::new();
    let mut command = scratch.command("unshare");
    let script = "sleep 100 & holder=$!
         sema try a -q --pid $holder
         grep -c ^start= a || true
         sema try a -q || echo $?
         sema status a | sed -n '/^alive/p;/^stale/p' || true
         sema release a -q --pid $holder && sema try a -q && sema release a
         sema run a -- sh -c 'sema status a | grep ^alive; exit 4' || echo $?
         kill -KILL $holder";
    command.args(["--pid", "--fork", "sh", "-eu", "-c", script]);
    let ran = run(&mut command);
    let said = "0\n1\nalive: true\nstale: false\nstatus: released\nalive: true\n4\n";
    assert_eq!((ran.code, ran.out.as_str()), (0, said), "{ran:?}");
    assert_eq!(scratch.files(), Vec::<String>::new());
}

#[test]
#[ignore = "needs root: tests/run"]
fn locks_and_run_work_inside_a_container() {
    let scratch = Scratch::new();
    let script = "sema try a -q; sema try a -q || echo $?; sema release a
        sema run a -- sh -c 'exit 4' || echo $?; ls";
    let ran = in_namespace(&scratch, script);
    assert_eq!(ran.out, "1\nstatus: released\n4\n", "{ran:?}");
}

fn timestamp(words: &str) -> String {
    words.lines().find(|line| line.starts_with("timestamp=")).unwrap().to_owned()
}

/// Locks are files; only to start a command something of /proc is needed, and that is said.
#[test]
#[ignore = "needs root: tests/run"]
fn without_proc_locks_are_taken_and_run_says_what_is_missing() {
    let scratch = Scratch::new();
    let script = "umount -l /proc; sema try a -q; sema release a -q; sema run a true || echo $?";
    let ran = run(scratch.command("unshare").args(["--mount", "sh", "-eu", "-c", script]));
    assert_eq!(ran.out, "3\n", "{ran:?}");
    assert!(ran.err.contains("run needs /proc, which is not mounted"), "{ran:?}");
    assert_eq!(scratch.files(), Vec::<String>::new());
}
