//! Stale locks for real: a process number used again, another boot, another pid namespace, and a
//! clock that jumps. Needs root (pid namespaces) and util-linux (unshare).

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod scratch;

use rstest::rstest;
use scratch::{NOBODY, Ran, Scratch, finish, now};

/// A script as the first process of a pid namespace of its own, with its own /proc.
fn in_namespace(scratch: &Scratch, script: &str) -> Ran {
    let mut command = scratch.command("unshare");
    command.args(["--pid", "--fork", "--mount-proc", "sh", "-eu", "-c", script]);
    finish(&mut command)
}

#[test]
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
    assert_eq!((ran.code(), ran.out.as_str()), (0, "alive: false\nstale: true\n"), "{ran:?}");
    assert!(scratch.read("a").contains("tag=taken\n"));
}

#[test]
fn a_live_holder_of_the_same_namespace_keeps_its_lock() {
    let scratch = Scratch::new();
    let ran = in_namespace(&scratch, "sema try a -q; sema try a -q || echo $?; sema release a");
    assert_eq!(ran.out, "1\nstatus: released\n", "{ran:?}");
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

#[test]
fn a_lock_from_inside_a_container_cannot_be_judged_outside() {
    let scratch = Scratch::new();
    // Pid 1 or so of a namespace that is gone when we look: nothing here can tell that.
    let ran = in_namespace(&scratch, "sema try a --tag inside -q");
    assert_eq!(ran.code(), 0, "{ran:?}");
    let words = scratch.read("a");
    let status = scratch.sema(&["status", "a"]);
    assert!(status.out.contains("alive: unknown\nstale: false\n"), "{status:?}");
    assert_eq!(scratch.sema(&["try", "a"]).code(), 1);
    assert_eq!(scratch.read("a"), words);

    let aged = words.replace(&timestamp(&words), &format!("timestamp={}", now() - 7200));
    scratch.write("a", &aged);
    assert_eq!(scratch.sema(&["try", "a"]).code(), 1, "old, and still not to be judged");
    assert_eq!(scratch.semats(&["try-acquire", "a"]).code(), 1);
    assert_eq!(scratch.sema(&["clean", "a"]).out, "cleaned: false\nlocks: 0\ntemporaries: 0\n");
    assert_eq!(scratch.sema(&["try", "a", "--stale-when", "age"]).code(), 0);
}

#[test]
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
fn the_same_number_in_another_namespace_is_no_owner() {
    let scratch = Scratch::new();
    // In both namespaces the script is process 1.
    assert_eq!(in_namespace(&scratch, "sema try a -q; grep -qx pid=1 a").code(), 0);
    let ran = in_namespace(&scratch, "sema release a || echo $?; grep -x pid=1 a");
    assert_eq!(ran.out, "1\npid=1\n", "{ran:?}");
}

#[test]
fn a_caller_outside_the_namespace_must_name_a_holder() {
    let scratch = Scratch::new();
    let mut command = scratch.command("unshare");
    command.args(["--pid", "--fork", "--mount-proc", "sema", "try", "a"]);
    let ran = finish(&mut command);
    assert_eq!(ran.code(), 2);
    assert!(ran.err.contains("outside this pid namespace"), "{ran:?}");
    assert_eq!(scratch.files(), Vec::<String>::new());
}

/// `unshare --pid --fork` alone: the new namespace still sees the old one's /proc, where the
/// numbers mean other processes.
#[test]
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
    let ran = finish(&mut command);
    let said = "0\n1\nalive: true\nstale: false\nstatus: released\nalive: true\n4\n";
    assert_eq!((ran.code(), ran.out.as_str()), (0, said), "{ran:?}");
    assert_eq!(scratch.files(), Vec::<String>::new());
}

#[test]
fn run_works_inside_a_container() {
    let scratch = Scratch::new();
    let ran = in_namespace(&scratch, "sema run a -- sh -c 'exit 4' || echo $?; ls");
    assert_eq!(ran.out, "4\n", "{ran:?}");
}

/// What a clock that jumps makes of a lock: its age. Exact locks do not care; the bare ones of the
/// original tools are never older than they are, and never younger than nothing.
#[rstest]
#[case::exact_and_a_day_ahead(true, 86_400, false)]
#[case::exact_and_a_year_old(true, -31_536_000, false)]
#[case::bare_alive_and_ahead(false, 86_400, false)]
#[case::bare_alive_and_old(false, -86_400, false)]
fn a_clock_that_jumps_frees_no_live_holder(
    #[case] exact: bool,
    #[case] offset: i64,
    #[case] stale: bool,
) {
    let scratch = Scratch::new();
    scratch.sema(&["try", "a"]);
    let words = scratch.read("a");
    let jumped = format!("timestamp={}", now().checked_add_signed(offset).unwrap());
    let mut words = words.replace(&timestamp(&words), &jumped);
    if !exact {
        words = words.lines().take(2).map(|line| format!("{line}\n")).collect();
    }
    scratch.write("a", &words);
    assert_eq!(scratch.sema(&["try", "a"]).code() == 0, stale);
    assert_eq!(scratch.semats(&["try-acquire", "a"]).code() == 0, stale);
}

#[rstest]
#[case::exact_dead_and_ahead(86_400)]
#[case::exact_dead_and_just_now(0)]
#[case::exact_dead_and_old(-86_400)]
fn a_clock_that_jumps_keeps_no_dead_holder(#[case] offset: i64) {
    let scratch = Scratch::new();
    let ran = scratch.sh("sleep 100 & sema try a -q --pid $!; kill -KILL $!; wait $! || true");
    assert_eq!(ran.code(), 0, "{ran:?}");
    let words = scratch.read("a");
    let jumped = format!("timestamp={}", now().checked_add_signed(offset).unwrap());
    scratch.write("a", words.replace(&timestamp(&words), &jumped));
    assert_eq!(scratch.sema(&["try", "a"]).code(), 0);
}

#[rstest]
#[case::ahead(86_400, false)]
#[case::an_hour(-3600, false)]
#[case::older(-3700, true)]
fn a_bare_lock_of_the_dead_is_stale_when_it_is_old(#[case] offset: i64, #[case] stale: bool) {
    let scratch = Scratch::new();
    let time = now().checked_add_signed(offset).unwrap();
    // At exactly an hour a second may pass before it is judged.
    let time = if offset == -3600 { time + 30 } else { time };
    scratch.write("a", format!("pid={NOBODY}\ntimestamp={time}\n"));
    assert_eq!(scratch.semats(&["try-acquire", "a"]).code() == 0, stale);
    scratch.write("b", format!("pid={NOBODY}\ntimestamp={time}\n"));
    assert_eq!(scratch.sema(&["try", "b"]).code() == 0, stale);
}

#[test]
fn a_shell_that_has_ended_held_nothing() {
    let scratch = Scratch::new();
    assert_eq!(scratch.sh("sema try a -q; :").code(), 0);
    assert!(scratch.sema(&["status", "a"]).out.contains("alive: false\nstale: true\n"));
    assert_eq!(scratch.sema(&["try", "a"]).code(), 0);
}

fn timestamp(words: &str) -> String {
    words.lines().find(|line| line.starts_with("timestamp=")).unwrap().to_owned()
}
