//! Threads of one program that open and close one port at the same time: none of them has it open without its lock.

use rstest::rstest;
use testbed::{LIMIT, User};

use crate::ground::{Ground, LOCK, number, say};

/// Opens and closes the port as it is told line by line; `slow` is an opening that waits for `y` or `n`, in a thread.
const PROGRAM: &str = "
import os, sys, errno, threading
fds = []
def do(word):
    more = os.O_SYNC if word == 'slow' else 0
    try:
        if word == 'close': os.close(fds.pop())
        else: fds.append(os.open('/dev/ttyW0', os.O_RDWR | os.O_NOCTTY | more))
        print('did', word, flush=True)
    except OSError as error: print(errno.errorcode[error.errno], word, flush=True)
for line in sys.stdin:
    word = line.strip()
    if word in 'yn':
        with open('/tmp/carrier', 'w') as carrier: carrier.write(word)
    elif word == 'slow': threading.Thread(target=do, args=[word]).start()
    else: do(word)
";

/// One thread waits in open(2), as for a carrier, while another closes the only descriptor that there is.
#[rstest]
#[case::it_comes_to_be_open("y", "did slow", true)]
#[case::it_fails("n", "EIO slow", false)]
#[ignore = "needs namespaces: tests/run"]
fn a_port_stays_locked_while_another_thread_opens_it(
    #[case] carrier: &str,
    #[case] outcome: &str,
    #[case] stays: bool,
    #[values(false, true)] is_first: bool,
) {
    let ground = Ground::with_library("held");
    ground.sandbox.command("mkfifo").args(["-m", "666", "/tmp/carrier"]).run().expect(0);
    let _daemon = ground.serve();
    let alice = ground.preloaded_with("held", &["/usr/bin/python3", "-c", PROGRAM]);
    let mut alice = alice.user(User::Alice).env("LFP_PORTS", "must:/dev/ttyW0").spawn();
    // The slow one has the lock, or finds it.
    if is_first {
        alice.type_in("slow\n");
        alice.expect("waits");
    }
    assert_eq!(say(&mut alice, "open"), "did open");
    if !is_first {
        alice.type_in("slow\n");
        alice.expect("waits");
    }
    assert_eq!(say(&mut alice, "close"), "did close");
    assert!(ground.sandbox.read(LOCK).is_some(), "{}", alice.output());
    alice.type_in(&format!("{carrier}\n"));
    alice.expect(outcome);
    if stays {
        assert!(ground.sandbox.read(LOCK).is_some(), "{}", alice.output());
        assert_eq!(say(&mut alice, "close"), "did close");
    }
    assert!(ground.sandbox.read(LOCK).is_none(), "{}", alice.output());
}

/// Two threads, `count` times each: says what is wrong, and `done`.
const THREADS: &str = "
import os, sys, errno, threading, time, random
def use():
    for _ in range(int(sys.argv[1])):
        try: fd = os.open('/dev/ttyW0', os.O_RDWR | os.O_NOCTTY)
        except OSError as error:
            print(errno.errorcode[error.errno], flush=True)
            continue
        time.sleep(random.random() / 2000)
        if 'LCK..ttyW0' not in os.listdir('/run/lock'): print('no lock', flush=True)
        os.close(fd)
        time.sleep(random.random() / 2000)
threads = [threading.Thread(target=use) for _ in range(2)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print('done', 'LCK..ttyW0' in os.listdir('/run/lock'))
";

/// Each finds the port locked by the other one at any moment of that one's opening and closing.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn threads_that_open_and_close_a_port_are_not_in_each_others_way() {
    let ground = Ground::new();
    let _daemon = ground.serve();
    let count = number::<u32>("LFP_TEST_OPENINGS", 200).to_string();
    let words = ["/usr/bin/python3", "-c", THREADS, &count];
    let alice = ground.preloaded(&words).user(User::Alice).env("LFP_PORTS", "must:/dev/ttyW0");
    // Each opening and each close is a request of its own.
    assert_eq!(alice.limit(3 * LIMIT).run().output(), "done False\n");
}
