//! Services that break locks of one directory at once: nobody is kept out of a free port, no stale lock goes to two, and
//! no live one is broken, whatever becomes of the state directory, which has the gate and the records.

use std::fs::{self, File, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use nix::fcntl::{Flock, FlockArg};
use rstest::rstest;
use testbed::{Client, Daemon, GONE, Ground, Holder, comes, own, program};

use crate::wire::{BUSY, DONE, Wire};

/// A user who has no say in it, as a uid.
const STRANGER: u32 = 65_534;

/// Makes stale locks, holds each by `flock(2)`, and makes those again that were broken.
const HELD_AND_STALE: &str = "
import fcntl, os, sys, time
kept = {}
def is_there(path, kept):
    try: return os.stat(path).st_ino == os.fstat(kept).st_ino
    except FileNotFoundError: return False
while True:
    for number in range(32):
        path = f'{sys.argv[1]}/LCK..ttyHeld{number}'
        if number in kept and is_there(path, kept[number]): continue
        try: made = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError: continue
        fcntl.flock(made, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(made, b'  99999999\\n')
        if number in kept: os.close(kept[number])
        elif len(kept) == 31: print('ALL THERE', flush=True)
        kept[number] = made
    time.sleep(0.001)
";

/// Directories that a stranger can reach. The lock directory has this mode.
fn open_to_strangers(ground: &Ground, mode: u32) {
    fs::set_permissions(ground.path(""), Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(ground.path("lock"), Permissions::from_mode(mode)).unwrap();
}

/// One user has 32 stale locks, and holds them while everybody breaks them: no free port is refused.
#[test]
#[ignore = "needs root: tests/run"]
fn stale_locks_that_a_stranger_holds_refuse_nobody_a_free_port() {
    let daemon = Daemon::start(&[]);
    open_to_strangers(&daemon.ground, 0o1777);
    let mut stranger = Command::new("/usr/bin/python3");
    stranger.args(["-c", HELD_AND_STALE]).arg(daemon.ground.path("lock"));
    let _stranger = Holder::speaking(stranger.uid(STRANGER));
    let (stop, asked, broken) = (AtomicBool::new(false), AtomicU32::new(0), AtomicU32::new(0));
    let break_all = |ask: &mut dyn FnMut(&str) -> String| {
        for number in (0..32).cycle() {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            asked.fetch_add(1, Ordering::Relaxed);
            if ask(&format!("lock ttyHeld{number} {}", own())) == DONE {
                broken.fetch_add(1, Ordering::Relaxed);
                // An UNLOCK is refused if another process stands still in the gate for a second.
                assert!(comes(|| ask(&format!("unlock ttyHeld{number} {}", own())) == DONE));
            }
        }
    };
    let answers: Vec<String> = std::thread::scope(|scope| {
        for _ in 0..2 {
            let mut client = daemon.on_unix().greeted();
            let wire = Wire::greeted(&daemon.ground);
            scope.spawn(move || break_all(&mut |line| client.ask(line)));
            scope.spawn(move || break_all(&mut |line| wire.ask(line)));
        }
        let (mut client, wire) = (daemon.on_unix().greeted(), Wire::greeted(&daemon.ground));
        let mut answers = Vec::new();
        for _ in 0..100 {
            answers.push(client.ask(&format!("lock ttyFree1 {}", own())));
            answers.push(wire.ask(&format!("lock ttyFree2 {}", own())));
            assert!(comes(|| client.ask(&format!("unlock ttyFree1 {}", own())) == DONE));
            assert!(comes(|| wire.ask(&format!("unlock ttyFree2 {}", own())) == DONE));
        }
        stop.store(true, Ordering::Relaxed);
        answers
    });
    let refused = answers.iter().filter(|answer| *answer != DONE).count();
    let (asked, broken) = (asked.into_inner(), broken.into_inner());
    println!(
        "{refused} of {} refused; of {asked} LOCKs of held files {broken} done",
        answers.len()
    );
    assert_eq!(refused, 0);
    assert!(asked > 0);
}

/// A service that the lock is asked from, for a process.
enum Asked {
    Session(Wire),
    Daemon(Client, Holder),
}

impl Asked {
    fn pid(&self) -> u32 {
        match self {
            Self::Session(wire) => wire.pid(),
            Self::Daemon(_, holder) => holder.pid(),
        }
    }

    fn say(&mut self, verb: &str, port: &str) {
        let line = format!("{verb} {port} {}", self.pid());
        match self {
            Self::Session(wire) => assert!(wire.send(format!("{line}\r\n").as_bytes())),
            Self::Daemon(client, _) => client.say(&line),
        }
    }

    fn hear(&mut self) -> String {
        match self {
            Self::Session(wire) => wire.receive().trim_end().to_owned(),
            Self::Daemon(client, _) => client.line(),
        }
    }

    fn ask(&mut self, verb: &str, port: &str) -> String {
        self.say(verb, port);
        self.hear()
    }
}

/// All ask for a port at once, whose lock is stale. Who has it then; nobody if each met another.
fn race(ground: &Ground, port: &str, all: &mut [Asked], meanwhile: impl FnOnce()) -> Option<usize> {
    let file = ground.path("lock").join(format!("LCK..{port}"));
    fs::write(&file, format!("{GONE:>10}\n")).unwrap();
    all.iter_mut().for_each(|asked| asked.say("lock", port));
    meanwhile();
    let answers: Vec<String> = all.iter_mut().map(Asked::hear).collect();
    assert!(answers.iter().all(|answer| [DONE, BUSY].contains(&&**answer)), "{answers:?}");
    let winners: Vec<usize> = (0..all.len()).filter(|which| answers[*which] == DONE).collect();
    assert!(winners.len() < 2, "{winners:?} have it");
    let winner = *winners.first()?;
    assert_eq!(fs::read_to_string(&file).unwrap(), format!("{:>10}\n", all[winner].pid()));
    for which in (0..all.len()).filter(|which| *which != winner) {
        assert_eq!(all[which].ask("lock", port), BUSY, "{which} takes it from {winner}");
    }
    assert_eq!(all[winner].ask("unlock", port), DONE);
    assert!(!file.exists());
    Some(winner)
}

/// The state directory is removed, or moved away, and another one comes: whoever has the old one open and whoever has the
/// new one break a stale lock together, and a lock that was taken before stays its holder's.
#[rstest]
fn a_state_directory_replaced_in_use_lets_in_one(#[values(true, false)] is_moved: bool) {
    let daemon = Daemon::start(&[]);
    let ground = &daemon.ground;
    let session = || Asked::Session(Wire::greeted(ground));
    let mut all = vec![Asked::Daemon(daemon.on_unix().greeted(), Holder::new())];
    all.extend((0..4).map(|_| session()));
    let mut live = session();
    assert_eq!(live.ask("lock", "ttyLive"), DONE);
    let mut won = 0;
    for round in 0..20 {
        let replace = || {
            if is_moved {
                fs::rename(ground.path("state"), ground.path(&format!("old{round}"))).unwrap();
            } else {
                // A session may make a file there meanwhile.
                let remove = || fs::remove_dir_all(ground.path("state")).map_err(|it| it.kind());
                while remove().is_err_and(|kind| kind == ErrorKind::DirectoryNotEmpty) {}
            }
            fs::create_dir(ground.path("state")).unwrap();
        };
        // These know the new one alone, if that comes before they ask.
        all.truncate(5);
        all.extend((0..2).map(|_| session()));
        let [first, second]: [&dyn Fn(); 2] =
            if round % 2 == 0 { [&replace, &|| ()] } else { [&|| (), &replace] };
        first();
        won += u32::from(race(ground, "ttyS1", &mut all, second).is_some());
        for asked in &mut all {
            assert_eq!(asked.ask("lock", "ttyLive"), BUSY, "round {round}");
        }
    }
    println!("{won} of 20 rounds were won");
    assert!(won > 0);
    assert_eq!(live.ask("unlock", "ttyLive"), DONE);
    assert_eq!(ground.locks(), [""; 0]);
}

/// Some services have a state directory, and the others have none.
#[rstest]
fn services_with_and_without_a_state_directory_let_in_one(#[values(0o755, 0o1777)] mode: u32) {
    let daemon = Daemon::start(&[]);
    let ground = &daemon.ground;
    fs::set_permissions(ground.path("lock"), Permissions::from_mode(mode)).unwrap();
    let stateless = || {
        let mut command = Command::new(program("lfpd", "lfpd", &[]));
        command.arg("--lock-dir").arg(ground.path("lock"));
        command.arg("--search-dir").arg(ground.path("other"));
        command.arg("--state-dir").arg(ground.path("none"));
        let wire = Wire::start(command);
        assert!(wire.receive().starts_with("220 "));
        Asked::Session(wire)
    };
    let mut all = vec![Asked::Daemon(daemon.on_unix().greeted(), Holder::new())];
    for _ in 0..3 {
        all.extend([Asked::Session(Wire::greeted(ground)), stateless()]);
    }
    let winners: Vec<usize> =
        (0..40).filter_map(|_| race(ground, "ttyS1", &mut all, || ())).collect();
    println!("{winners:?} of 0 to 6 have won; 2, 4 and 6 are without");
    assert!(!winners.is_empty());
    assert_eq!(ground.locks(), [""; 0]);
}

/// A container that shares only the lock directory, with a daemon of its own. Runs a script, which may ask a session and
/// the daemon.
fn container(ground: &Ground, script: &str) -> Holder {
    let serve = format!(
        "cd {root}; mkdir own; lfpd='{lfpd} --lock-dir lock --search-dir other --state-dir own'
         ask() {{ printf '%s\\r\\n' \"$1\" | $lfpd | sed -n '2s/^\\(...\\) .*/\\1/p'; }}
         $lfpd --listen unix:$PWD/own/socket & until [ -S own/socket ]; do sleep 0.01; done
         daemon() {{ printf '%s\\r\\n' \"$1\" | socat -t30 - UNIX-CONNECT:own/socket \
             | sed -n '2s/^\\(...\\) .*/\\1/p'; }}",
        root = ground.path("").display(),
        lfpd = program("lfpd", "lfpd", &[]).display(),
    );
    let mut container = Command::new("unshare");
    container.args(["--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c"]);
    Holder::of(container.arg(format!("{serve}\n{script}")))
}

/// Its numbers mean nothing on the other side, where no record is to be seen: only the `flock(2)` of the other daemon
/// shows that a lock is no stale one.
#[test]
#[ignore = "needs root: tests/run"]
fn a_container_that_shares_the_lock_directory_alone_breaks_no_lock_and_loses_none() {
    let daemon = Daemon::start(&[]);
    let ground = &daemon.ground;
    let holder = Holder::new();
    let mut client = daemon.on_unix().greeted();
    assert_eq!(client.ask(&format!("lock ttyOutside {}", holder.pid())), DONE);
    // A number that no process has outside.
    let script = "echo 4000000 >/proc/sys/kernel/ns_last_pid; sleep 1000 & holder=$!
         daemon \"lock ttyInside $holder\" >said
         for time in 1 2 3 4 5; do
             ask \"lock ttyOutside $$\"; daemon \"lock ttyOutside $$\"
             ask \"unlock ttyOutside $$\"
         done >>said; echo end >>said
         sleep 1000";
    let _container = container(ground, script);
    let said = || fs::read_to_string(ground.path("said")).unwrap_or_default();
    assert!(comes(|| said().ends_with("end\n")), "{}", said());
    assert_eq!(said(), format!("200\n{}end\n", "450\n".repeat(15)));
    for _ in 0..5 {
        assert_eq!(client.ask(&format!("lock ttyInside {}", own())), BUSY);
        let wire = Wire::greeted(ground);
        assert_eq!(wire.ask(&format!("lock ttyInside {}", own())), BUSY);
        assert_eq!(wire.ask(&format!("unlock ttyInside {}", own())), BUSY);
    }
    let mut locks = ground.locks();
    locks.retain(|name| name.starts_with("LCK.."));
    assert_eq!(locks, ["LCK..ttyInside", "LCK..ttyOutside"]);
}

/// The answer of a session to one line, under strace with this fault at the calls that open something in the state
/// directory.
fn asked_with(ground: &Ground, fault: &str, line: &str) -> String {
    let command = ground.command();
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "-o", "/dev/null", "-P"]).arg(ground.path("state"));
    strace.args(["-e", &format!("inject=open,openat,openat2:{fault}")]);
    strace.arg(command.get_program()).args(command.get_args());
    strace.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = strace.spawn().expect("strace");
    child.stdin.take().unwrap().write_all(line.as_bytes()).unwrap();
    let said = child.wait_with_output().unwrap().stdout;
    let said = String::from_utf8(said).unwrap();
    said.lines().nth(1).unwrap_or_default().get(..3).unwrap_or_default().to_owned()
}

/// The gate, which is there from now on.
fn gate(ground: &Ground) -> PathBuf {
    let path = ground.path("state/gate");
    File::create(&path).unwrap().set_permissions(Permissions::from_mode(0o600)).unwrap();
    path
}

/// Somebody is in the gate, and a service cannot open it, or the directory: it does not go on without it. Each call that
/// opens something there fails in turn.
#[rstest]
#[ignore = "needs programs: tests/run"]
fn a_service_that_cannot_open_the_gate_breaks_nothing(
    #[values("EMFILE", "ENFILE", "ENOMEM", "EIO")] error: &str,
) {
    let ground = Ground::new();
    let file = ground.path("lock/LCK..ttyS1");
    let stale = format!("{GONE:>10}\n");
    fs::write(&file, &stale).unwrap();
    let lock = format!("lock ttyS1 {}\n", own());
    let made = File::open(gate(&ground)).unwrap();
    let inside = Flock::lock(made, FlockArg::LockExclusiveNonblock).unwrap();
    for time in 1..=8 {
        let answer = asked_with(&ground, &format!("error={error}:when={time}"), &lock);
        assert_ne!(answer, "200", "{time}");
        assert_eq!(fs::read_to_string(&file).unwrap(), stale, "{time}");
    }
    assert_ne!(asked_with(&ground, &format!("error={error}"), &lock), "200", "each time");
    assert_eq!(ground.locks(), ["LCK..ttyS1"]);
    drop(inside);
    assert_eq!(asked_with(&ground, "delay_enter=1", &lock), "200", "without a fault");
}

/// What has the name of the gate is not one: another user's file, or no file at all. Nothing is broken then, neither a
/// lock that is going to be written nor one in a searched directory, which only its maker's `flock(2)` shows to be alive.
#[rstest]
#[case::a_strangers(|gate: &Path| std::os::unix::fs::chown(gate, Some(STRANGER), None).unwrap())]
#[case::open_to_others(|gate: &Path| fs::set_permissions(gate, Permissions::from_mode(0o666)).unwrap())]
#[case::a_directory(|gate: &Path| {
    fs::remove_file(gate).unwrap();
    fs::create_dir(gate).unwrap();
})]
#[ignore = "needs root: tests/run"]
fn what_is_no_gate_is_not_passed_by(
    #[case] spoil: fn(&Path),
    #[values("lock", "other")] directory: &str,
) {
    let ground = Ground::new();
    let file = ground.path(directory).join("LCK..ttyS1");
    let stale = format!("{GONE:>10}\n");
    let plant = || fs::write(&file, &stale).unwrap();
    let mut session = Asked::Session(Wire::greeted(&ground));
    plant();
    assert_eq!(session.ask("lock", "ttyS1"), DONE);
    assert_eq!(session.ask("unlock", "ttyS1"), DONE);
    spoil(&gate(&ground));
    plant();
    let made = File::open(&file).unwrap();
    let _maker =
        (directory == "other").then(|| Flock::lock(made, FlockArg::LockExclusiveNonblock).unwrap());
    assert_eq!(session.ask("lock", "ttyS1"), BUSY);
    assert_eq!(fs::read_to_string(&file).unwrap(), stale);
    assert_eq!(ground.locks().len(), usize::from(directory == "lock"));
}
