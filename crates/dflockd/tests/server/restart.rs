//! The server dies or is restarted: all that clients were told is still true after the next start.

use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use rstest::rstest;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use testbed::dflockd::free_port;
use testbed::dflockd::{Daemon, Talker, in_shell, program, slot_of, token_of, until};

/// What a client knows of its token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    Held,
    Released,
    /// Its release was not answered.
    Unsure,
}

fn start(state: &Path, more: &[&str]) -> Daemon {
    let state = state.to_str().unwrap();
    let options = ["--state-dir", state, "--auto-release-on-disconnect=false"];
    Daemon::start(&[&options[..], more].concat())
}

/// Takes, renews and releases until the server is gone; says what is known of each token.
fn worker(mut talker: Talker, name: &str, done: &AtomicUsize) -> Story {
    let mut ask = |command: &str, key: &str, arg: &str| {
        done.fetch_add(1, Ordering::Relaxed);
        talker.try_ask(command, key, arg)
    };
    let mut story = Story::new();
    for round in 0.. {
        let key = format!("{name}-{}", round % 50);
        if let Some((token, Known::Held)) = story.get(&key).cloned() {
            if round % 3 == 0 {
                let Some(reply) = ask("n", &key, &format!("{token} 3600")) else { break };
                assert_eq!(reply, "ok 3600");
                continue;
            }
            story.insert(key.clone(), (token.clone(), Known::Unsure));
            let Some(reply) = ask("r", &key, &token) else { break };
            assert_eq!(reply, "ok");
            story.insert(key, (token, Known::Released));
            continue;
        }
        let Some(reply) = ask("l", &key, "0 3600") else { break };
        story.insert(key, (token_of(&reply).expect(&reply).to_owned(), Known::Held));
    }
    story
}

/// Key → its last token and what is known of it.
type Story = BTreeMap<String, (String, Known)>;

/// Kills from the environment for a long run.
fn kills() -> usize {
    std::env::var("DFLOCKD_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(3)
}

/// Each hold has the slot that its client was told, after each restart; a new one gets the lowest that nobody has.
#[rstest]
fn slots_stay(#[values(Signal::SIGKILL, Signal::SIGTERM)] signal: Signal) {
    let state = TempDir::new().unwrap();
    let mut daemon = start(state.path(), &["--shutdown-timeout", "1"]);
    let take = |talker: &mut Talker| talker.ask("sl", "pool", "0 4 600");
    let mut talker = daemon.talk();
    talker.ask("ping", "hello", "slots");
    let told = [(); 3].map(|()| take(&mut talker));
    assert_eq!(told.each_ref().map(|it| slot_of(it)), [0, 1, 2].map(Some));
    let [first, middle, last] = told.each_ref().map(|it| token_of(it).unwrap());
    assert_eq!(talker.ask("sr", "pool", first), "ok");
    assert_eq!(talker.ask("sn", "pool", middle), "ok 33");
    for want in [0, 3] {
        daemon.signal(signal);
        daemon.ended();
        daemon = start(state.path(), &["--shutdown-timeout", "1"]);
        let mut talker = daemon.talk();
        talker.ask("ping", "hello", "slots");
        // Over another connection it is the same hold.
        assert_eq!(talker.ask("sn", "pool", &format!("{last} 600")), "ok 600");
        assert_eq!(slot_of(&take(&mut talker)), Some(want));
        let stats = talker.ask("stats", "key", "pool");
        for slot in [1, 2, want] {
            assert_eq!(stats.matches(&format!("\"slot\":{slot},")).count(), 1, "{stats}");
        }
    }
}

#[rstest]
fn kill_under_load_forgets_nothing(#[values(&[], &["--state-sync"])] more: &[&str]) {
    let state = TempDir::new().unwrap();
    let mut greatest = String::new();
    let mut daemon = start(state.path(), more);
    for round in 0..kills() {
        let done = Arc::new(AtomicUsize::new(0));
        let workers: Vec<_> = (0..4)
            .map(|number| {
                // Before the others can make so much load that the server is killed.
                let talker = daemon.talk();
                let (name, done) = (format!("{round}-{number}"), Arc::clone(&done));
                std::thread::spawn(move || worker(talker, &name, &done))
            })
            .collect();
        until("there is load", || done.load(Ordering::Relaxed) > 300 + 37 * (round % 10));
        daemon.signal(Signal::SIGKILL);
        daemon.ended();
        let stories: Vec<Story> = workers.into_iter().map(|w| w.join().unwrap()).collect();
        daemon = start(state.path(), more);
        let mut talker = daemon.talk();
        let mut held = 0;
        for (key, (token, known)) in stories.iter().flatten() {
            let renewed = talker.ask("n", key, &format!("{token} 3600"));
            match known {
                Known::Held => assert_eq!(renewed, "ok 3600", "{key} is forgotten"),
                Known::Released => assert_eq!(renewed, "error", "{key} was given back"),
                Known::Unsure => {}
            }
            if renewed != "error" {
                held += 1;
                // Nobody else gets it; its holder can give it back.
                assert_eq!(talker.ask("l", key, "0"), "timeout");
                assert_eq!(talker.ask("r", key, token), "ok");
            }
            greatest = greatest.max(token[..16].to_owned());
        }
        assert!(held > 20, "{held}");
        let token = talker.take("fence", "0 60");
        assert!(token[..16] > *greatest, "fences grow");
        assert_eq!(talker.ask("r", "fence", &token), "ok");
        greatest = token[..16].to_owned();
    }
}

/// Holds that one client renews with one write: their keys and tokens.
type Batch = Vec<(String, String)>;

/// Renews a batch again and again until the server is gone.
fn renewer(mut talker: Talker, batch: &Batch, done: &AtomicUsize) {
    let frames = batch.iter().map(|(key, token)| format!("n\n{key}\n{token} 3600\n"));
    let frames = frames.collect::<String>();
    while talker.try_say(frames.as_bytes()) {
        for _ in batch {
            let line = talker.line();
            if line.is_empty() {
                return;
            }
            assert_eq!(line, "ok 3600", "a hold is forgotten");
        }
        done.fetch_add(1, Ordering::Relaxed);
    }
}

/// A kill can end a write between any two pages of it: no file looks damaged, and locks are granted at once.
#[test]
fn a_kill_during_a_large_commit_is_no_damage() {
    let state = TempDir::new().unwrap();
    let mut daemon = start(state.path(), &["--max-locks", "10000"]);
    let batches: [Batch; 4] = std::array::from_fn(|number| {
        let mut talker = daemon.talk();
        let keys = (0..500).map(|place| format!("{number}-{place}-{}", "k".repeat(200)));
        keys.map(|key| (key.clone(), talker.take(&key, "0 3600"))).collect()
    });
    for round in 0..kills() {
        let done = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for batch in &batches {
                let (talker, done) = (daemon.talk(), &done);
                scope.spawn(move || renewer(talker, batch, done));
            }
            until("there is load", || done.load(Ordering::Relaxed) > 2 + round % 10);
            daemon.signal(Signal::SIGKILL);
            daemon.ended();
        });
        daemon = start(state.path(), &["--max-locks", "10000"]);
        let reply = daemon.talk().ask("l", "new", "0");
        assert!(reply.starts_with("ok "), "round {round}: {reply}: {:?}", daemon.log());
        let damaged = daemon.log().into_iter().find(|line| line.contains("damaged"));
        assert_eq!(damaged, None, "round {round}");
        assert_eq!(daemon.talk().ask("r", "new", token_of(&reply).unwrap()), "ok");
    }
    daemon.logged("holds=2000");
}

/// A lease runs on over the restart, and ends when it would have ended. Readers share their lock with further readers,
/// and keep writers out.
#[test]
fn a_lease_ends_when_it_would_have() {
    let state = TempDir::new().unwrap();
    let mut daemon = start(state.path(), &[]);
    let token = daemon.talk().take("k", "0 9");
    let pool = daemon.talk().token("sl", "pool", "0 2 600");
    let mut readers = [(); 2].map(|()| daemon.talk().token("rl", "read", "0 600")).to_vec();
    daemon.signal(Signal::SIGKILL);
    daemon.ended();
    let daemon = start(state.path(), &[]);
    daemon.logged("holds=4");
    let mut rival = daemon.talk();
    assert_eq!(rival.ask("l", "k", "0"), "timeout");
    readers.push(rival.token("rl", "read", "0"));
    for token in readers {
        assert_eq!(rival.ask("l", "read", "0"), "timeout");
        assert_eq!(rival.ask("r", "read", &token), "ok");
    }
    assert!(rival.ask("l", "read", "0").starts_with("ok "));
    assert_eq!(rival.ask("sl", "pool", "0 3"), "error_limit_mismatch");
    assert!(rival.ask("sl", "pool", "0 2").starts_with("ok "));
    assert_eq!(rival.ask("sl", "pool", "0 2"), "timeout");
    assert_eq!(rival.ask("sr", "pool", &pool), "ok");
    // In its turn, after the lease and not before.
    assert!(rival.ask("l", "k", "40").starts_with("ok "));
    assert_eq!(rival.ask("n", "k", &token), "error");
}

/// With auto-release as usual: what was released by closing stays released.
#[test]
fn a_clean_restart_keeps_what_is_held() {
    let state = TempDir::new().unwrap();
    let path = state.path().to_str().unwrap();
    let mut daemon = Daemon::start(&["--state-dir", path, "--shutdown-timeout", "1"]);
    let mut gone = daemon.talk();
    gone.take("gone", "0 600");
    drop(gone);
    daemon.until_stats("\"locks\":[]");
    let mut holder = daemon.talk();
    let token = holder.take("k", "0 600");
    daemon.signal(Signal::SIGTERM);
    assert!(daemon.ended().success());
    drop(holder);
    let daemon = Daemon::start(&["--state-dir", path]);
    let mut talker = daemon.talk();
    assert!(talker.ask("l", "gone", "0").starts_with("ok "));
    // The server closed the connection at its end; its client still has its lock.
    assert_eq!(talker.ask("n", "k", &token), "ok 33");
}

#[test]
fn one_server_at_a_time() {
    let state = TempDir::new().unwrap();
    let daemon = start(state.path(), &[]);
    let who = format!("process {} uses this state directory", daemon.pid());
    refused(&["--state-dir", state.path().to_str().unwrap()], &who);
}

/// `ulimit -f 0`: words and an exit code, no end by SIGXFSZ.
#[test]
fn a_limit_on_the_size_of_files_is_a_refusal() {
    let state = TempDir::new().unwrap();
    let mut limited = in_shell("ulimit -f 0; exec \"$0\" --port 0 --state-dir \"$1\"");
    let output = limited.arg(state.path()).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("File too large"), "{stderr}");
}

/// A server that can write again continues with what was recorded: clients that were sent away find their holds, nobody
/// else got them meanwhile, and a grant that was not answered holds nothing.
#[test]
fn a_server_that_can_write_again_continues() {
    let state = TempDir::new().unwrap();
    let daemon = start(state.path(), &[]);
    let limit = |soft: &str| {
        let arguments =
            [format!("--fsize={soft}:unlimited"), "--pid".into(), daemon.pid().to_string()];
        assert!(Command::new("prlimit").args(arguments).status().unwrap().success());
    };
    let (mut holder, mut waiter) = (daemon.talk(), daemon.talk());
    let token = holder.take("k", "0 60");
    waiter.say(b"l\nk\n60\n");
    daemon.until_stats("\"waiters\":1");
    limit("0");
    let mut refused = daemon.talk();
    assert_eq!(refused.ask("l", "a", "0"), "error_draining");
    daemon.logged("File too large");
    assert_eq!((holder.line(), waiter.line()), ("error_draining".into(), "error_draining".into()));
    assert_eq!(daemon.talk().ask("n", "k", &token), "error_draining");
    limit("unlimited");
    until("it serves", || daemon.talk().ask("ping", "_", "_") == "ok");
    let mut client = daemon.talk();
    assert_eq!(client.ask("l", "k", "0"), "timeout");
    assert_eq!(client.ask("n", "k", &format!("{token} 60")), "ok 60");
    assert_eq!(client.ask("r", "k", &token), "ok");
    for key in ["k", "a"] {
        client.take(key, "0 60");
    }
}

/// Bytes of a file of holds that say how new it is.
const GENERATION: std::ops::Range<usize> = 40..48;

/// The file that counts.
fn newest(state: &Path) -> PathBuf {
    let generation = |path: &PathBuf| {
        let bytes = std::fs::read(path).unwrap();
        u64::from_be_bytes(bytes[GENERATION].try_into().unwrap())
    };
    let files = ["holds.0", "holds.1"].map(|name| state.join(name));
    files
        .into_iter()
        .filter(|path| path.metadata().unwrap().len() > 0)
        .max_by_key(generation)
        .unwrap()
}

/// Damage costs the time of the longest lease that may be missing, however often and in what way the
/// server is restarted meanwhile, and that is said each time.
#[rstest]
#[case::missing(|path: &Path| std::fs::remove_file(path).unwrap(), Signal::SIGKILL)]
#[case::a_bit(
    |path: &Path| {
        let mut bytes = std::fs::read(path).unwrap();
        bytes[120] ^= 4;
        std::fs::write(path, bytes).unwrap();
    },
    Signal::SIGTERM
)]
#[case::no_index(
    |path: &Path| std::fs::remove_file(path.with_file_name("index")).unwrap(),
    Signal::SIGKILL
)]
fn damage_is_said_and_waited_for(#[case] damage: fn(&Path), #[case] second_end: Signal) {
    before_a_lease_ends(|lease| {
        let state = TempDir::new().unwrap();
        let start = || {
            let port = free_port().to_string();
            let short = ["--default-lease-ttl", "1", "--shutdown-timeout", "1", "--http-port"];
            let daemon = start(state.path(), &[&short[..], &[&port]].concat());
            daemon.logged("HTTP listening");
            (daemon, SocketAddr::from(([127, 0, 0, 1], port.parse().unwrap())))
        };
        let (mut daemon, _) = start();
        daemon.talk().take("k", &lease.argument());
        daemon.signal(Signal::SIGKILL);
        daemon.ended();
        damage(&newest(state.path()));
        let words = ["state damaged; no grants", "state was damaged; no grants"];
        let (mut daemon, mut http) = start();
        for said in words {
            lease.lasts_until_logged(&daemon, said)?;
            let ready = testbed::dflockd::http(http, "GET /ready HTTP/1.1");
            let mut rival = daemon.talk();
            let answers = ["k", "other"].map(|key| rival.ask("l", key, "0"));
            lease.lasts()?;
            assert!(ready.contains("503") && ready.contains("state_damaged"), "{ready}");
            assert_eq!(answers, ["timeout", "timeout"]);
            drop(rival);
            daemon.signal(second_end);
            daemon.ended();
            (daemon, http) = start();
        }
        lease.lasts_until_logged(&daemon, words[1])?;
        assert!(daemon.talk().ask("l", "k", "50").starts_with("ok "));
        assert_eq!(lease.lasts(), None);
        assert!(daemon.talk().ask("l", "other", "50").starts_with("ok "));
        Some(())
    });
}

/// A lease that has just been asked for.
struct Lease {
    seconds: u64,
    begun: Instant,
}

impl Lease {
    /// What a lock is asked for with, at once.
    fn argument(&self) -> String {
        format!("0 {}", self.seconds)
    }

    /// None if it may be over.
    fn lasts(&self) -> Option<()> {
        (self.begun.elapsed() < Duration::from_secs(self.seconds)).then_some(())
    }

    /// What a server says while this lasts.
    fn lasts_until_logged(&self, daemon: &Daemon, text: &str) -> Option<()> {
        let is_said = || daemon.log().iter().any(|line| line.contains(text));
        until(text, || is_said() || self.lasts().is_none());
        self.lasts()
    }
}

/// Tells a story of what happens before a lease ends. If that comes too early on a busy machine, the story ends with None,
/// and is told again with a longer one.
fn before_a_lease_ends(story: impl Fn(&Lease) -> Option<()>) {
    let told =
        [5, 15, 45].iter().find_map(|&seconds| story(&Lease { seconds, begun: Instant::now() }));
    assert_eq!(told, Some(()), "each lease was over too early");
}

/// The machine is started anew, and then the server once more: the time of the longest lease is waited
/// for from the first start on, and that is said at both. By a boot id of its own in a namespace.
#[cfg(target_os = "linux")]
#[test]
#[ignore = "needs root: tests/run"]
fn another_boot_is_waited_for_over_restarts() {
    before_a_lease_ends(|lease| {
        let state = TempDir::new().unwrap();
        let boot = state.path().join("another");
        std::fs::write(&boot, "11111111-2222-3333-4444-555555555555\n").unwrap();
        let mut daemon = start(state.path(), &["--default-lease-ttl", "1"]);
        daemon.talk().take("k", &lease.argument());
        daemon.signal(Signal::SIGKILL);
        daemon.ended();
        let killed = Instant::now();
        let restart = || {
            let mut command = Command::new("unshare");
            let script = "mount --bind \"$0\" /proc/sys/kernel/random/boot_id && exec \"$@\"";
            command.args(["--mount", "sh", "-c", script]).arg(&boot);
            command.arg(env!("CARGO_BIN_EXE_dflockd"));
            command.args(["--port", "0", "--default-lease-ttl", "1", "--state-dir"]);
            Daemon::run(command.arg(state.path()))
        };
        for _ in 0..2 {
            let mut daemon = restart();
            lease.lasts_until_logged(&daemon, "machine restarted; no grants")?;
            let answer = daemon.talk().ask("l", "other", "0");
            lease.lasts()?;
            assert_eq!(answer, "timeout");
            daemon.signal(Signal::SIGKILL);
            daemon.ended();
        }
        assert!(restart().talk().ask("l", "other", "50").starts_with("ok "));
        let waited = killed.elapsed();
        assert!(waited >= Duration::from_secs(lease.seconds), "{waited:?}");
        Some(())
    });
}

/// What is no file is told of, by its name; nothing is waited for, and no link is followed.
#[rstest]
fn a_state_file_that_is_not_regular_is_refused(
    #[values("index", "holds.0", "holds.1", "owner")] name: &str,
    #[values("a FIFO", "a symbolic link", "a directory", "a socket")] what: &str,
) {
    let state = TempDir::new().unwrap();
    let victim = state.path().join("victim");
    std::fs::write(&victim, "mine").unwrap();
    let place = state.path().join(name);
    match what {
        "a FIFO" => nix::unistd::mkfifo(&place, Mode::S_IRWXU).unwrap(),
        "a symbolic link" => std::os::unix::fs::symlink(&victim, &place).unwrap(),
        "a directory" => std::fs::create_dir(&place).unwrap(),
        _ => drop(UnixListener::bind(&place).unwrap()),
    }
    refused(&["--state-dir", state.path().to_str().unwrap()], &format!("{name} is {what}, not a"));
    assert_eq!(std::fs::read(&victim).unwrap(), b"mine");
}

#[test]
fn a_state_path_of_the_wrong_kind_is_refused() {
    let dir = TempDir::new().unwrap();
    let fifo = dir.path().join("fifo");
    nix::unistd::mkfifo(&fifo, Mode::S_IRWXU).unwrap();
    let fifo = fifo.to_str().unwrap();
    refused(&["--state-dir", fifo], "Not a directory");
    refused(&["--state-dir", "/dev/null"], "Not a directory");
}

fn refused(arguments: &[&str], words: &str) {
    let mut child = program();
    let child = child.args(["--port", "0"]).args(arguments).stderr(Stdio::piped());
    let mut child = child.spawn().unwrap();
    until("it ends", || child.try_wait().unwrap().is_some());
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains(words), "{stderr}");
}

/// Without a record a restarted server can at least wait until old leases are over.
#[test]
fn a_startup_grace_grants_nothing() {
    before_a_lease_ends(|grace| {
        let daemon = Daemon::start(&["--startup-grace", &grace.seconds.to_string()]);
        let mut talker = daemon.talk();
        let refused =
            [("l", "0"), ("n", &"0".repeat(32))].map(|(verb, word)| talker.ask(verb, "k", word));
        let place = talker.ask("e", "other", "");
        let mut second = daemon.talk();
        second.say(b"l\nk\n60\n");
        let is_queued = || daemon.stats().contains("\"waiters\":1");
        until("it waits", || is_queued() || grace.lasts().is_none());
        grace.lasts()?;
        assert_eq!(refused, ["timeout", "error"]);
        assert_eq!(place, "queued");
        assert!(talker.ask("w", "other", "60").starts_with("ok "));
        assert!(second.line().starts_with("ok "));
        assert_eq!(Talker::connect(daemon.address).ask("l", "k", "0"), "timeout");
        Some(())
    });
}
