//! STAT for many clients at once, for clients that are gone, and beside very many kernel locks. Alone in its program:
//! such locks slow every other test down. What is measured is processor time, which other programs do not lengthen.

use std::fs::File;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::resource::{Usage, UsageWho, getrusage};
use testbed::{Daemon, cpu_ticks, many_descriptors};

/// The clients that ask at once.
const CLIENTS: usize = 200;

/// The processor time that an answer may take, in hundredths of a second.
const BOUND: u64 = 200;

/// A search by `lfp` ends after two seconds and one read of the list. Without a limit it takes half a minute.
const SEARCH_BOUND: i64 = 8;

/// One test at a time: each measures.
fn alone() -> MutexGuard<'static, ()> {
    static TEST: Mutex<()> = Mutex::new(());
    TEST.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How many descriptors of the daemon are sockets.
fn sockets(daemon: &Daemon) -> usize {
    let descriptors = std::fs::read_dir(format!("/proc/{}/fd", daemon.pid()));
    let target = |link: std::fs::DirEntry| std::fs::read_link(link.path()).ok();
    let links = descriptors.into_iter().flatten().flatten().filter_map(target);
    links.filter(|target| target.to_string_lossy().starts_with("socket:")).count()
}

/// Locks of many ranges of many files: OFD locks, which the kernel lists one by one.
fn lock_ranges(files: usize, ranges: i64) -> std::io::Result<Vec<File>> {
    let mut locked = Vec::new();
    for _ in 0..files {
        let file = tempfile::tempfile()?;
        for start in 0..ranges {
            let range = nix::libc::flock {
                l_type: i16::try_from(nix::libc::F_WRLCK).unwrap_or_default(),
                l_whence: i16::try_from(nix::libc::SEEK_SET).unwrap_or_default(),
                l_start: 2 * start,
                l_len: 1,
                l_pid: 0,
            };
            fcntl(&file, FcntlArg::F_OFD_SETLK(&range))?;
        }
        locked.push(file);
    }
    Ok(locked)
}

#[test]
fn clients_that_ask_and_die_leave_no_connection() {
    let _alone = alone();
    let daemon = Daemon::start(&[]);
    // A daemon that serves has all sockets of its own, and has closed the connection that only tried whether it listens.
    let mut first = daemon.on_unix().greeted();
    assert_eq!(first.ask("noop"), "200 Command okay.");
    let before = sockets(&daemon);
    let mut asking: Vec<_> = (0..CLIENTS).map(|_| daemon.on_unix().greeted()).collect();
    asking.iter_mut().for_each(|client| client.say("stat"));
    drop(asking);
    // The daemon hears of their ends before it hears of what is sent later.
    let is_done = |_| first.ask("noop") == "200 Command okay." && sockets(&daemon) == before;
    assert!((0..10).any(is_done), "{} instead of {before} sockets", sockets(&daemon));
}

#[test]
fn equal_questions_share_one_search() {
    let _alone = alone();
    let daemon = Daemon::start(&[]);
    let mut asking: Vec<_> = (0..CLIENTS).map(|_| daemon.on_unix().greeted()).collect();
    let before = cpu_ticks(daemon.pid());
    for client in &mut asking[..CLIENTS / 10] {
        client.lines("stat");
    }
    let between = cpu_ticks(daemon.pid());
    asking.iter_mut().for_each(|client| client.say("stat"));
    for client in &mut asking {
        assert_eq!(client.rest_of_answer().last().map(String::as_str), Some("211 End of status."));
    }
    let (each, shared) = (between - before, cpu_ticks(daemon.pid()) - between);
    assert!(shared < each, "all at once: {shared}, a tenth of them one after another: {each}");
}

/// The kernel's list is too long to be read in time, and other clients ask about other ports meanwhile.
#[test]
fn beside_very_many_kernel_locks_an_answer_is_in_time_and_incomplete() -> std::io::Result<()> {
    let _alone = alone();
    many_descriptors();
    let daemon = Daemon::start(&[]);
    let lfp = testbed::program("lfp-cli", "lfp", &[]);
    let _locks = lock_ranges(1000, 200)?;
    let mut others: Vec<_> = (0..8).map(|_| daemon.on_unix().greeted()).collect();
    let mut asking = daemon.on_unix().greeted();
    for (number, other) in (1..).zip(&mut others) {
        other.say(&format!("stat ttyS{number}"));
    }
    let before = cpu_ticks(daemon.pid());
    asking.say("stat null");
    let answer = asking.rest_of_answer();
    let time = cpu_ticks(daemon.pid()) - before;
    assert!(time < BOUND, "{time}: {answer:?}");
    assert!(answer[0].ends_with(" incomplete=yes"), "{answer:?}");
    let before = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let who = Command::new(lfp).args(["--direct", "who", "--json", "null"]).output()?;
    let after = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let time = |usage: Usage| (usage.user_time() + usage.system_time()).tv_sec();
    assert!(time(after) - time(before) < SEARCH_BOUND, "{after:?}");
    assert!(who.stdout.starts_with(br#"{"complete":false,"#), "{}", who.status);
    Ok(())
}
