//! A service that is busy is not taken for none: no program opens a port without its lock while other programs have
//! theirs from that service.

use std::time::{Duration, Instant};

use rstest::rstest;
use testbed::{Process, User, comes};

use crate::ground::Ground;

/// A service that does what it is told with each connection.
const SERVICE: &str = "
import os, socket, sys, time
what, LOCK = sys.argv[1], '/run/lock/LCK..ttyW0'
service = socket.socket(socket.AF_UNIX)
service.bind('/tmp/busy.sock')
os.chmod('/tmp/busy.sock', 0o666)
if what == 'refuses': service.close()
else: service.listen(0 if what == 'full' else 9)
others = []
for number in range(2 if what == 'full' else 0):
    others.append(socket.socket(socket.AF_UNIX))
    others[-1].setblocking(False)
    try: others[-1].connect('/tmp/busy.sock')
    except BlockingIOError: pass
print('listens', flush=True)
if what in ('full', 'refuses'): sys.stdin.readline()
def serve(peer):
    global what
    if what == 'silent': return others.append(peer)
    if what == 'crowded': return peer.sendall(b'421 later\\r\\n')
    if what == 'hangs-up': return
    peer.sendall(b'220 busy\\r\\n')
    for line in peer.makefile():
        verb = line.split()[0]
        print(line.strip(), flush=True)
        if verb == 'LOCK' and what in ('slow', 'busy'): time.sleep(3)
        if verb == 'LOCK' and what == 'slow': open(LOCK, 'w').write('%10d\\n' % int(line.split()[2]))
        if verb == 'UNLOCK' and os.path.exists(LOCK): os.unlink(LOCK)
        if verb == 'LOCK' and what in ('busy', 'released'): answer = b'450 : File busy'
        elif verb == 'LOCK' and what == 'denies': answer = b'550 Denied.'
        elif verb == 'STAT':
            answer = b'211-holders=0 shown=0\\r\\n211 End of status.'
            if what == 'released': what = 'free'
        else: answer = b'200 Command okay.'
        peer.sendall(answer + b'\\r\\n')
while True:
    peer = service.accept()[0]
    try: serve(peer)
    except OSError: pass
    peer = None
";

/// Opens the port or makes its lock file, says what came of it, and gives it back.
const OPEN: &str = "
import os, errno
try: fd = os.open('/dev/ttyW0', os.O_RDWR | os.O_NOCTTY); print('opened'); os.close(fd)
except OSError as error: print(errno.errorcode[error.errno])
";
/// Of a port that this user may only read: it cannot be locked for him.
const READ: &str = "
import os
os.open('/dev/ttyW0', os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK); print('opened')
";
const TAKE: &str = "
import os, errno
try: os.close(os.open('/run/lock/LCK..ttyW0', os.O_CREAT | os.O_EXCL | os.O_WRONLY)); print('taken')
except OSError as error: print(errno.errorcode[error.errno])
";

/// QtSerialPort puts its lock into `/tmp` if it may not write the lock directory; RXTX makes a file there first.
const ASK: &str = "import os; print(os.access('/run/lock', os.W_OK))";
const TRY: &str = "
import os, errno
try: os.close(os.open('/run/lock/tmpXYZ', os.O_CREAT | os.O_EXCL | os.O_WRONLY)); print('made')
except OSError as error: print(errno.errorcode[error.errno])
";

fn service<'s>(ground: &'s Ground, what: &str) -> Process<'s> {
    let python = ground.sandbox.command("/usr/bin/python3");
    let mut service = python.args(["-c", SERVICE, what]).spawn();
    service.expect("listens");
    service
}

const SILENT: &str = "lfp: no lock for /dev/ttyW0: the service has not answered in time\n";
const DENIED: &str = "lfp: no lock for /dev/ttyW0: the service denies it\n";
const ABSENT: &str = "lfp: no lock for /dev/ttyW0: the service does not answer\n";

/// The empty limit is the usual one, ten seconds.
#[rstest]
#[case::slow(OPEN, "slow", "", "opened\n", 3)]
#[case::slow_and_held(OPEN, "busy", "", "EBUSY\n", 3)]
#[case::held_until_it_was_asked_who_has_it(OPEN, "released", "", "opened\n", 0)]
#[case::slow_for_a_lock_file(TAKE, "slow", "", "taken\n", 3)]
#[case::slow_and_held_as_a_lock_file(TAKE, "busy", "", "EEXIST\n", 3)]
#[case::never_greets(OPEN, "silent", "", &format!("{SILENT}EBUSY\n"), 10)]
#[case::a_full_queue(OPEN, "full", "2", &format!("{SILENT}EBUSY\n"), 2)]
#[case::too_many_clients(OPEN, "crowded", "2", &format!("{SILENT}EBUSY\n"), 1)]
#[case::hangs_up(OPEN, "hangs-up", "2", &format!("{SILENT}EBUSY\n"), 1)]
#[case::too_slow(OPEN, "slow", "2", &format!("{SILENT}EBUSY\n"), 2)]
#[case::refuses(OPEN, "refuses", "", &format!("{ABSENT}opened\n"), 0)]
#[case::denies(OPEN, "denies", "", &format!("{DENIED}ENOLCK\n"), 0)]
#[case::denies_to_a_reader(READ, "denies", "", &format!("{DENIED}opened\n"), 0)]
#[case::a_directory_behind_a_silent_service(ASK, "silent", "2", "True\n", 2)]
#[case::a_directory_without_a_service(ASK, "refuses", "2", "False\n", 0)]
#[case::a_temporary_behind_a_silent_service(TRY, "silent", "2", "EBUSY\n", 2)]
#[case::a_temporary_without_a_service(TRY, "refuses", "2", "EACCES\n", 0)]
#[ignore = "needs namespaces: tests/run"]
fn only_a_service_that_is_not_there_counts_as_none(
    #[case] program: &str,
    #[case] what: &str,
    #[case] limit: &str,
    #[case] expected: &str,
    #[case] seconds: u64,
) {
    let ground = Ground::new();
    if program == READ {
        ground.sandbox.command("chmod").args(["0644", "/dev/ttyW0"]).run().expect(0);
    }
    let service = service(&ground, what);
    let begin = Instant::now();
    let alice = ground.python(program, User::Alice).env("LFP_PORTS", "1:/dev/ttyW0");
    let end = alice.env("LFP_SERVER", "/tmp/busy.sock").env("LFP_TIMEOUT", limit).run();
    let took = begin.elapsed();
    assert_eq!(end.output(), expected, "{end}{}", service.output());
    let [least, most] = [seconds, seconds + 20].map(Duration::from_secs);
    assert!((least..most).contains(&took), "{took:?}");
    let has_asked = ["slow", "busy", "denies", "released"].contains(&what);
    let says = |text: &str, expected| {
        let is_so = || service.output().contains(text) == expected;
        assert!(comes(is_so), "{text}: {}", service.output());
    };
    says("LOCK ttyW0", has_asked);
    // Whatever it has locked, or may have locked, is released.
    says("UNLOCK ttyW0", expected == "opened\n" && has_asked);
}
