//! How many system calls the service makes for a LOCK and the UNLOCK after it. The count is the same on every
//! machine, however busy: the time goes into calls, and a question asked twice is an extra call.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime};

use rstest::rstest;
use testbed::{Client, LFPD, LIMIT, Sandbox, Session, User, connect_in, until};

const TRACE: &str = "/tmp/own/trace";
const PAIRS: usize = 40;

/// As many calls as a pair may take; a lock is two files here. It is 58 where the directories that
/// are searched are four, as on Debian. Each file gets its mode when its maker holds it; the node that was
/// judged is kept open while its access list is read; and the holder is asked for by its identity, before
/// the lock is taken and before it is given back. A release asks whether the lock is being passed on.
const MOST: usize = 58;

/// Directories that have just changed are read again with every request.
fn let_directories_settle(sandbox: &Sandbox) {
    let paths = ["/dev", "/run", "/run/lfpd", "/tmp", "/var/tmp"].map(|path| sandbox.path(path));
    let is_settled = |path: &std::path::PathBuf| {
        let changed = std::fs::metadata(path).unwrap();
        let (seconds, nanoseconds) = (changed.ctime(), changed.ctime_nsec());
        let changed = Duration::new(seconds.try_into().unwrap(), nanoseconds.try_into().unwrap());
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        now > changed + ttylock::for_tests::SETTLED
    };
    let settled = until(LIMIT, || paths.iter().all(is_settled).then_some(()));
    settled.expect("directories at rest");
}

/// The calls of each pair. Left out is what depends on others: a debug build's look at every
/// descriptor that it closes, a log that nobody reads, how long the kernel's list of locks is, and
/// the waiting for a client that is slow.
fn pairs(trace: &str) -> Vec<Vec<&str>> {
    let mut pairs: Vec<Vec<&str>> = Vec::new();
    // The calls that read the list and close it, while it is open. It is read twice at once.
    let mut lists: Vec<[String; 2]> = Vec::new();
    for line in trace.lines() {
        if line.contains("\"lock ") {
            pairs.push(Vec::new());
        }
        let in_vain = line.starts_with("read(0, ") && line.contains("EAGAIN");
        let waits = in_vain || line.starts_with("poll([{fd=0, ");
        let of_list = lists.iter().position(|calls| calls.iter().any(|it| line.starts_with(it)));
        let of_others = line.contains("F_GETFD") || line.contains("\"/dev/log\"");
        if let (Some(pair), false) = (pairs.last_mut(), waits || of_list.is_some() || of_others) {
            pair.push(line);
        }
        if line.contains("\"/proc/locks\"") {
            let (_, descriptor) = line.rsplit_once(" = ").unwrap();
            lists.push([format!("pread64({descriptor}, "), format!("close({descriptor})")]);
        } else if let Some(list) = of_list.filter(|_| line.starts_with("close(")) {
            lists.swap_remove(list);
        }
    }
    // What is after the last one is the end of the session.
    pairs.pop();
    pairs
}

/// One in the middle: now and then directories are opened anew.
fn usual(mut pairs: Vec<Vec<&str>>) -> Vec<&str> {
    pairs.sort_by_key(Vec::len);
    pairs.swap_remove(pairs.len() / 2)
}

fn by_name<'t>(pair: &[&'t str]) -> BTreeMap<&'t str, usize> {
    let mut times = BTreeMap::new();
    for line in pair {
        let name = line.split_once('(').map_or(*line, |(name, _)| name);
        *times.entry(name).or_default() += 1;
    }
    times
}

#[rstest]
#[case::of_a_plain_device("ttyS9", 0)]
#[case::of_a_pseudo_terminal("ttyW0", 0)]
// Anybody may make files in a lock directory that is open to all.
#[case::beside_the_files_of_strangers("ttyS9", 5000)]
#[ignore = "needs root: tests/run"]
fn a_lock_and_unlock_take_a_bounded_number_of_calls(#[case] port: &str, #[case] strangers: usize) {
    let sandbox = Sandbox::with_lfpd().port("ttyW0").enter();
    let prepare = format!(
        "mknod -m 666 /dev/ttyS9 c 4 73; install -d -o uucp /run/lfpd /tmp/own; \
         seq -f /run/lock/LCK..stranger%g {strangers} | xargs -r touch"
    );
    let prepare = prepare.as_str();
    assert_eq!(sandbox.command("sh").args(["-ec", prepare]).run().code(), 0);
    let holder = sandbox.command("sleep").arg("1000").user(User::Alice).spawn();
    let (client, theirs) = connect_in(&sandbox, "127.0.0.1", User::Alice);
    let_directories_settle(&sandbox);
    let words = ["-qq", "-o", TRACE, LFPD];
    let process =
        sandbox.command("strace").args(words).user(User::Uucp).on_connection(theirs).spawn();
    let mut talk = Session { client: Client::new(client), process };
    assert!(talk.line().starts_with("220 "));
    for _ in 0..PAIRS {
        for verb in ["lock", "unlock"] {
            assert_eq!(talk.code(&format!("{verb} {port} {}", holder.pid())), "200");
        }
    }
    assert_eq!(talk.code("quit"), "221");
    let whole = until(LIMIT, || {
        let trace = String::from_utf8(sandbox.read(TRACE)?).ok()?;
        trace.contains("exit_group(").then_some(trace)
    });
    let trace = whole.expect("a trace to its end");
    let pair = usual(pairs(&trace));
    println!("{port}: {} calls: {:?}", pair.len(), by_name(&pair));
    assert!(
        !by_name(&pair).contains_key("getdents64"),
        "no directory is read:\n{}",
        pair.join("\n")
    );
    assert!(pair.len() <= MOST, "{} calls:\n{}", pair.len(), pair.join("\n"));
}
