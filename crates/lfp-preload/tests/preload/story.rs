//! Users in ten ways, ten on each port, with kills at random, while one user without rights floods the service with
//! connections and the kernel's list with locks: no program that locks has a port beside another one, and none has a
//! port without its lock.
//!
//! It runs for seconds with twenty users; `LFP_TEST_SECONDS` and `LFP_TEST_USERS` make it longer and more crowded,
//! `LFP_TEST_LOCKS` is the number of kernel locks that the flood holds.

use testbed::{Command, LFP, LIMIT, User, comes};

use crate::ground::{Ground, number};

/// Takes the port in one way, round after round, and says what was wrong. Inside, a record lock is the witness: it ends
/// with its process, before the service can notice that.
const WORKER: &str = "
import errno, fcntl, os, random, signal, subprocess, sys, time
way, port, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
device, lock, lfp = '/dev/' + port, '/run/lock/LCK..' + port, '/run/test/bin/lfp'
# The library hides a program's own lock; it leaves a path alone that climbs.
seen = '/run/lock/../lock/LCK..' + port
witness = os.open('/tmp/inside/' + port, os.O_RDWR)
def inside(dies=False):
    try: fcntl.lockf(witness, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError: print('DOUBLE', way, port, flush=True)
    try: named = int(open(seen).read().split()[0])
    except (OSError, ValueError, IndexError) as error: named = error
    if named != os.getpid(): print('WITHOUT', way, port, named, flush=True)
    time.sleep(random.random() / 100)
    if dies: os.kill(os.getpid(), signal.SIGKILL)
    fcntl.lockf(witness, fcntl.LOCK_UN)
def call(*words): return subprocess.call([lfp, *words], stderr=subprocess.DEVNULL)
def flocked(dies):
    fd = os.open(device, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
    try:
        if way != 'open': fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # It asks for no lock file, so it has no part in the promise; the others must go round it.
        if way == 'bare': time.sleep(random.random() / 100)
        else: inside(dies)
    finally: os.close(fd)
    if way == 'bare': time.sleep(random.random())
def passed(dies):
    there, here = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(here)
            if os.read(there, 1) == b'+': inside(dies)
        finally: os._exit(0)
    os.close(there)
    has = call('pass', device, '--to', str(child)) == 0
    os.write(here, b'+' if has else b'-')
    os.close(here)
    os.waitpid(child, 0)
    if not has: call('unlock', device)
    return has
def once(dies=False):
    if way == 'file':
        os.close(os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
        inside(dies)
        os.unlink(lock)
    elif way in ('lock', 'wait', 'direct', 'pass'):
        direct = ['--direct'] if way == 'direct' else []
        words = ['wait', '--timeout', '5'] if way == 'wait' else ['lock']
        if call(*direct, *words, device): return False
        if way == 'pass': return passed(dies)
        inside(dies)
        call(*direct, 'unlock', device)
    elif way in ('run', 'runflock'):
        within = [sys.executable, '-c', script, 'in' + way, port, '0']
        return call('run', '--timeout', '5', device, '--', *within) == 0
    else: flocked(dies)
    return True
if way == 'inrun': inside(); sys.exit()
if way == 'inrunflock':
    try: flocked(False)
    except BlockingIOError: sys.exit(1)
    sys.exit()
script = os.environ['WORKER']
had, end = 0, time.monotonic() + seconds
while time.monotonic() < end:
    try:
        if not way.startswith('run') and random.random() < 0.1:
            child = os.fork()
            if child == 0:
                try: once(dies=True)
                finally: os._exit(0)
            os.waitpid(child, 0)
        elif once():
            had += 1
            # Who asks without waiting has no turn while somebody waits.
            if way in ('wait', 'run', 'runflock'): time.sleep(random.random())
        else: time.sleep(random.random())
        # It reads the kernel's list itself, and the kernel serves one reader at a time.
        if way == 'direct': time.sleep(seconds / 20 * random.random())
    except OSError as error:
        if error.errno not in (errno.EBUSY, errno.EEXIST, errno.EACCES, errno.EAGAIN): print('ODD', way, error, flush=True)
        time.sleep(random.random() / 2)
print('had', way, had, flush=True)
";

/// Thousands of locks, of which some change all the time, and connections without end.
const FLOOD: &str = "
import fcntl, os, socket, sys, threading, time
# The kernel searches the locks of a file one by one: a thousand in each.
for number in range(int(sys.argv[1])):
    if number % 1000 == 0: file = os.open(f'/home/bob/locks{number}', os.O_CREAT | os.O_RDWR)
    fcntl.lockf(file, fcntl.LOCK_EX, 1, 2 * (number % 1000))
def change():
    while True:
        for number in range(0, 200, 2):
            fcntl.lockf(file, fcntl.LOCK_UN, 1, number)
            fcntl.lockf(file, fcntl.LOCK_EX, 1, number)
        time.sleep(0.001)
threading.Thread(target=change, daemon=True).start()
print('flooding', flush=True)
while True:
    peers = []
    for number in range(30):
        peer = socket.socket(socket.AF_UNIX)
        peer.setblocking(False)
        try: peer.connect('/run/lfpd/lfpd.sock'); peer.send(b'STAT\\r\\n')
        except OSError: pass
        peers.append(peer)
    time.sleep(0.05)
    for peer in peers: peer.close()
";

const WAYS: [&str; 10] =
    ["open", "flock", "file", "lock", "wait", "pass", "run", "runflock", "direct", "bare"];

fn worker<'a>(ground: &'a Ground, way: &str, port: &str, seconds: &str) -> Command<'a> {
    let bare = || ground.sandbox.command("/usr/bin/python3").args(["-c", WORKER]);
    let command = match way {
        "bare" => bare().user(User::Alice),
        // Only root may write the lock directory.
        "direct" => bare(),
        _ => ground.python(WORKER, User::Alice),
    };
    let command = command.args([way, port, seconds]);
    // Its port is locked by being opened, with the usual limit of time.
    let command = command.env("LFP_PORTS", &format!("1:/dev/{port}")).env("LFP_TIMEOUT", "");
    command.env("WORKER", WORKER)
}

#[test]
#[ignore = "needs namespaces: tests/run"]
fn nobody_has_a_port_twice_or_without_its_lock_while_the_service_is_flooded() {
    let time = std::time::Duration::from_secs(number("LFP_TEST_SECONDS", 20));
    let seconds = time.as_secs().to_string();
    let locks = number("LFP_TEST_LOCKS", 5000).to_string();
    let users = number("LFP_TEST_USERS", 20);
    let ports = usize::div_ceil(users, WAYS.len());
    let ground = Ground::with_ports(ports, &[]);
    assert!(ground.sandbox.path(LFP).exists());
    let prepare = "mkdir -m 777 /tmp/inside; for port in $(seq 0 $1); do \
                   install -m 666 /dev/null /tmp/inside/ttyW$port; done";
    ground.sandbox.command("sh").args(["-ec", prepare, "sh", &ports.to_string()]).run().expect(0);
    let daemon = ground.serve();
    let descriptors = format!("/proc/{}/fd", daemon.pid());
    let connections = || {
        let listed = ground.sandbox.command("ls").args(["-l", &descriptors]).run();
        listed.output().matches("socket:").count()
    };
    let before = connections();
    let flood = ground.sandbox.command("/usr/bin/python3").args(["-c", FLOOD, &locks]);
    let mut flood = flood.user(User::Bob).spawn();
    flood.expect("flooding");
    let mut workers = Vec::new();
    for (index, way) in WAYS.into_iter().cycle().take(users).enumerate() {
        let port = format!("ttyW{}", index / WAYS.len());
        workers.push(worker(&ground, way, &port, &seconds).spawn());
    }
    let ends: Vec<_> = workers.into_iter().map(|worker| worker.wait(time + LIMIT)).collect();
    flood.kill();
    let mut had = std::collections::BTreeMap::<String, u32>::new();
    for end in &ends {
        let output = end.output();
        for sign in ["DOUBLE", "WITHOUT", "ODD", "Traceback"] {
            assert!(!output.contains(sign), "{end}");
        }
        for words in output.lines().filter_map(|line| line.strip_prefix("had ")) {
            let (way, number) = words.split_once(' ').unwrap();
            *had.entry(way.to_owned()).or_default() += number.parse::<u32>().unwrap();
        }
    }
    println!("{had:?}");
    assert!(had.len() == WAYS.len() && had.values().sum::<u32>() > 0, "{had:?}");
    assert!(comes(|| connections() <= before), "{} sockets, {before} before", connections());
    // Nobody removes the file of a process that took it without the service, and was killed.
    let is_free = || {
        let _ = ground.sandbox.command(LFP).arg("clean").run();
        ground.sandbox.locks().is_empty()
    };
    assert!(comes(is_free), "{:?}", ground.sandbox.locks());
}
