//! What the library owes to a service that hangs in the middle of a request never ends a lock that the program
//! has taken since.

use rstest::rstest;
use testbed::{Process, User, comes};

use crate::ground::{Ground, LOCK, TOLD, say};

/// A service that keeps one lock file, and is told by words what to do with its requests: one word for each, and the
/// last word for all further ones. `now` obeys, `break` obeys after it has removed the lock, `busy` refuses, `end`
/// breaks off, and `later` obeys when a line comes in, whether or not anybody still waits for the answer.
const SERVICE: &str = "
import os, socket, sys, threading
path, words = sys.argv[1], sys.argv[2:]
service = socket.socket(socket.AF_UNIX)
service.bind(path)
os.chmod(path, 0o666)
service.listen(9)
def obey(line):
    verb, _, pid = line.split()
    if verb == 'LOCK':
        if os.path.exists('/run/lock/LCK..ttyW0'): return '450 busy'
        with open('/run/lock/LCK..ttyW0', 'w') as lock: lock.write('%10d\\n' % int(pid))
    elif os.path.exists('/run/lock/LCK..ttyW0'): os.unlink('/run/lock/LCK..ttyW0')
    else: return '550 none'
    return '200 done'
def serve(peer):
    peer.sendall(b'220 words\\r\\n')
    for line in peer.makefile():
        word = words.pop(0) if words[1:] else words[0]
        print(word, line.strip(), flush=True)
        if word == 'later': sys.stdin.readline()
        if word == 'break': os.unlink('/run/lock/LCK..ttyW0')
        if word == 'end': return peer.shutdown(socket.SHUT_RDWR)
        answer = '450 busy' if word == 'busy' else obey(line)
        print('answers', answer, flush=True)
        try: peer.sendall((answer + '\\r\\n').encode())
        except OSError: pass
print('listens', flush=True)
while True: threading.Thread(target=serve, args=[service.accept()[0]], daemon=True).start()
";

fn service<'s>(ground: &'s Ground, words: &[&str]) -> Process<'s> {
    service_of(ground, User::Root, "/tmp/words.sock", words)
}

/// Such a service of any user, at any path.
pub(crate) fn service_of<'s>(
    ground: &'s Ground,
    user: User,
    path: &str,
    words: &[&str],
) -> Process<'s> {
    let python = ground.sandbox.command("/usr/bin/python3").args(["-c", SERVICE, path]);
    let mut service = python.args(words).user(user).spawn();
    service.expect("listens");
    service
}

fn alice<'s>(ground: &'s Ground, timeout: &str) -> Process<'s> {
    let command = ground.python(TOLD, User::Alice).env("LFP_PORTS", "1:/dev/ttyW0");
    command.env("LFP_SERVER", "/tmp/words.sock").env("LFP_TIMEOUT", timeout).spawn()
}

/// What the service was asked, in order, and what it answered, when that is so much. What it says may be here later
/// than its answer.
fn asked(service: &Process<'_>, count: usize) -> Vec<String> {
    let words = |line: &str| line.split(' ').take(2).collect::<Vec<_>>().join(" ");
    let asked = || service.output().lines().skip(1).map(words).collect::<Vec<_>>();
    let _ = comes(|| asked().len() >= count);
    asked()
}

/// The release that was not answered may be obeyed at any moment: it is not to end the next lock.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn a_lock_whose_release_is_in_doubt_is_not_taken_again() {
    let ground = Ground::new();
    let mut service = service(&ground, &["now", "later", "now"]);
    let mut alice = alice(&ground, "3");
    assert_eq!(say(&mut alice, "take"), "did take");
    assert_eq!(say(&mut alice, "give"), "did give", "it is told again");
    assert_eq!(asked(&service, 3), ["now LOCK", "answers 200", "later UNLOCK"]);
    assert_eq!(say(&mut alice, "take"), "EEXIST take", "somebody else could get it as well");
    service.type_in("obey\n");
    assert!(
        comes(|| say(&mut alice, "take") == "did take"),
        "{}{}",
        alice.output(),
        service.output()
    );
    assert!(ground.sandbox.read(LOCK).is_some(), "{}", service.output());
    let has_obeyed = || service.output().ends_with("answers 200 done\n");
    assert!(comes(has_obeyed), "{}", service.output());
}

/// While one thread pays, another one opens the port.
#[test]
#[ignore = "needs root: tests/run"]
fn a_port_is_not_opened_by_a_lock_that_another_thread_releases() {
    let ground = Ground::new();
    let mut service = service(&ground, &["now", "later", "now"]);
    let mut alice = alice(&ground, "30");
    assert_eq!(say(&mut alice, "open"), "did open");
    alice.type_in("thread close\n");
    service.expect("later UNLOCK");
    alice.type_in("open\n");
    // The first thread sleeps until the other has paid, or has the port already.
    let call = || ground.sandbox.read(&format!("/proc/{}/syscall", alice.pid()));
    let sleeps = |call: Vec<u8>| SLEEPS.iter().any(|number| call.starts_with(number.as_bytes()));
    let waits = || call().is_some_and(sleeps);
    let has_opened = || alice.output().matches("did open").count() == 2;
    assert!(comes(|| waits() || has_opened()), "{}", alice.output());
    service.type_in("obey\n");
    let is_done = || has_opened() && alice.output().contains("did close");
    assert!(comes(is_done), "{}", alice.output());
    assert!(ground.sandbox.read(LOCK).is_some(), "{}{}", alice.output(), service.output());
    assert!(!alice.output().contains("no lock"), "{}", alice.output());
}

/// nanosleep(2) and clock_nanosleep(2), on x86-64 and elsewhere.
const SLEEPS: [&str; 4] = ["35 ", "230 ", "101 ", "115 "];

/// The service could not release it just then.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn a_release_that_failed_is_tried_again() {
    let ground = Ground::new();
    let service = service(&ground, &["now", "busy", "now"]);
    let mut alice = alice(&ground, "30");
    assert_eq!(say(&mut alice, "open"), "did open");
    assert_eq!(say(&mut alice, "close"), "did close");
    let is_free = || say(&mut alice, "other") == "did other" && ground.sandbox.read(LOCK).is_none();
    assert!(comes(is_free), "{}{}", alice.output(), service.output());
}

/// Not at every close(2) of the program.
#[rstest]
#[case::it_cannot_release_it("busy")]
#[case::it_breaks_off("end")]
#[ignore = "needs namespaces: tests/run"]
fn a_release_that_keeps_failing_is_sent_once_a_second(#[case] word: &str) {
    let ground = Ground::new();
    let service = service(&ground, &["now", word]);
    let mut alice = alice(&ground, "30");
    assert_eq!(say(&mut alice, "open"), "did open");
    let begin = std::time::Instant::now();
    assert_eq!(say(&mut alice, "close"), "did close");
    for _ in 0..40 {
        assert_eq!(say(&mut alice, "other"), "did other");
    }
    let told = service.output().matches("UNLOCK").count();
    let most = begin.elapsed().as_secs() + 2;
    assert!((1..=most).contains(&u64::try_from(told).unwrap()), "{told} times, not {most}");
}

/// A program writes its lock file once more, and the service does not answer: the lock is not given back for that.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn a_lock_that_is_written_again_is_not_given_back() {
    let ground = Ground::new();
    let mut service = service(&ground, &["now", "later", "now"]);
    let mut alice = alice(&ground, "3");
    assert_eq!(say(&mut alice, "take"), "did take");
    assert_eq!(say(&mut alice, "write"), "EACCES write");
    service.type_in("obey\n");
    service.expect("answers 450");
    // The pause is over when it is asked again.
    let is_asked = || {
        say(&mut alice, "open");
        say(&mut alice, "close");
        service.output().lines().count() > 5
    };
    assert!(comes(is_asked), "{}{}", alice.output(), service.output());
    assert!(!service.output().contains("UNLOCK"), "{}", service.output());
    assert!(ground.sandbox.read(LOCK).is_some());
}

/// A lock file that names this process may be an earlier one's of the same number, which is for the service to
/// judge.
#[rstest]
#[case::it_is_dead(&["break", "now"], &["break LOCK", "answers 200", "now UNLOCK", "answers 200"])]
#[case::it_lives(&["now"], &["now LOCK", "answers 450"])]
#[ignore = "needs namespaces: tests/run"]
fn a_lock_file_that_names_this_process_is_judged_by_the_service(
    #[case] words: &[&str],
    #[case] expected: &[&str],
) {
    let ground = Ground::new();
    let service = service(&ground, words);
    let mut alice = alice(&ground, "30");
    assert_eq!(say(&mut alice, "other"), "did other");
    ground.sandbox.write(LOCK, format!("{:>10}\n", alice.pid()), 0o644);
    assert_eq!(say(&mut alice, "open"), "did open");
    assert_eq!(say(&mut alice, "close"), "did close");
    assert_eq!(asked(&service, expected.len()), expected, "{}", alice.output());
}

/// The service may obey a LOCK after the program has stopped waiting for the answer. The lock is then given back.
#[rstest]
#[case::of_a_port("open", &["lfp: no lock for /dev/ttyW0: the service has not answered in time", "EBUSY open"])]
#[case::of_a_lock_file("take", &["EACCES take"])]
#[ignore = "needs namespaces: tests/run"]
fn a_lock_that_comes_too_late_is_given_back(#[case] word: &str, #[case] answers: &[&str]) {
    let ground = Ground::new();
    let mut service = service(&ground, &["later", "now"]);
    let mut alice = alice(&ground, "3");
    alice.type_in(&format!("{word}\n"));
    answers.iter().for_each(|answer| alice.expect(answer));
    service.expect(&format!("later LOCK ttyW0 {}", alice.pid()));
    service.type_in("obey\n");
    let is_given_back = || {
        alice.type_in("other\n");
        service.output().ends_with(&format!("now UNLOCK ttyW0 {}\nanswers 200 done\n", alice.pid()))
    };
    assert!(comes(is_given_back), "{}{}", alice.output(), service.output());
    assert!(ground.sandbox.read(LOCK).is_none());
}
