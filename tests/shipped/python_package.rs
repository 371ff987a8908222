//! The Python package `lfp-serial` with the real pyserial, against the real service, as ordinary
//! users in a lock directory that only root may write.

use rstest::rstest;
use testbed::{Process, SOCKET, Sandbox, User, comes};

const PORT: &str = "/dev/ttyW0";
const LOCK: &str = "/run/lock/LCK..ttyW0";

fn sandbox() -> Sandbox {
    sandbox_with_lock_dir("0755")
}

fn sandbox_with_lock_dir(mode: &str) -> Sandbox {
    let root = env!("CARGO_MANIFEST_DIR");
    Sandbox::layout()
        .port("ttyW0")
        .port_with_mode("ttyW1", 0o600)
        .installed()
        .lock_dir(mode, "root:root")
        .bring("python", format!("{root}/python/lfp-serial/src"))
        .bring("serialx", testbed::peer("serialx-1.15.1", ""))
        .bring("serialx-compat", testbed::peer("serialx-compat-1.15.1", ""))
        .bring("not-pyserial", testbed::peer("serial-0.0.97", ""))
        .bring("python-tools", testbed::peer("python-tools", ""))
        .enter()
}

fn serve(sandbox: &Sandbox) -> Process<'_> {
    sandbox.serve(User::Lfpd, &[])
}

fn python<'a>(sandbox: &'a Sandbox, script: &str) -> testbed::Command<'a> {
    let command = sandbox.command("/usr/bin/python3").args(["-c", script]);
    let command = command.env("PATH", "/run/test/bin:/usr/bin:/bin");
    // typing_extensions, which serialx needs, is among the tools.
    let path = ["python", "serialx", "python-tools"].map(|name| format!("/run/test/{name}"));
    command.env("PYTHONPATH", &path.join(":")).env("PYTHONDONTWRITEBYTECODE", "1")
}

/// Holds the port until a line comes, and says what there is to say.
const WITH: &str = "
import lfp_serial, sys
with lfp_serial.lock('/dev/ttyW0') as lock:
    print('HELD', lock.device, flush=True)
    sys.stdin.readline()
print('FREE', flush=True)
sys.stdin.readline()
";

const PYSERIAL: &str = "
import lfp_serial, serial, sys
port = serial.serial_for_url('lfp:///dev/ttyW0', 9600)
print('HELD', port.port, flush=True)
sys.stdin.readline()
port.close()
print('FREE', flush=True)
sys.stdin.readline()
";

/// The address is assigned later, as pyserial's own tests do it.
const ASSIGNED: &str = "
import lfp_serial, serial, sys
port = serial.serial_for_url('lfp:///dev/ttyW1', 9600, do_not_open=True)
port.port = 'lfp:///dev/ttyW0?timeout=0'
port.open()
print('HELD', port.port, flush=True)
sys.stdin.readline()
port.close()
print('FREE', flush=True)
sys.stdin.readline()
";

const AIO: &str = "
import asyncio, lfp_serial.aio, sys
async def main():
    async with lfp_serial.aio.lock('/dev/ttyW0') as lock:
        print('HELD', lock.device, flush=True)
        sys.stdin.readline()
    print('FREE', flush=True)
    sys.stdin.readline()
asyncio.run(main())
";

const SERIALX: &str = "
import lfp_serial, serialx, sys
with serialx.serial_for_url('lfp:///dev/ttyW0', baudrate=9600) as port:
    print('HELD', port.path, flush=True)
    sys.stdin.readline()
print('FREE', flush=True)
sys.stdin.readline()
";

const SERIALX_ASYNC: &str = "
import asyncio, lfp_serial, serialx, sys
async def main():
    async with serialx.async_serial_for_url('lfp:///dev/ttyW0', baudrate=9600) as port:
        print('HELD /dev/ttyW0', flush=True)
        sys.stdin.readline()
    print('FREE', flush=True)
    sys.stdin.readline()
asyncio.run(main())
";

/// serialx under pyserial's name.
const SERIALX_COMPAT: &str = "
import sys
sys.path.insert(0, '/run/test/serialx-compat')
import lfp_serial, serial
assert 'serialx' in serial.Serial.__mro__[1].__module__, serial
with serial.serial_for_url('lfp:///dev/ttyW0', 9600) as port:
    print('HELD', port.port, flush=True)
    sys.stdin.readline()
print('FREE', flush=True)
sys.stdin.readline()
";

/// Alice's program holds the port until it reads a line, and nobody else gets the port meanwhile.
fn hold_and_let_go(sandbox: &Sandbox, script: &str, other: &str) {
    let mut alice = python(sandbox, script).user(User::Alice).spawn();
    alice.expect("HELD /dev/ttyW0");
    let lock = sandbox.read(LOCK).unwrap();
    assert_eq!(String::from_utf8_lossy(&lock), format!("{:10}\n", alice.pid()));
    let minicom = sandbox.command("minicom").args(["-D", PORT]).user(User::Bob).run();
    assert!(minicom.said("Device /dev/ttyW0 is locked."), "{minicom}");
    let end = python(sandbox, other).user(User::Bob).run();
    let held = format!("held by pid {} alice", alice.pid());
    assert!(end.code() == 1 && end.said(&held), "{end}");
    alice.type_in("\n");
    alice.expect("FREE");
    assert!(sandbox.read(LOCK).is_none());
}

#[rstest]
#[case::with_statement(WITH)]
#[case::pyserial(PYSERIAL)]
#[case::pyserial_assigned(ASSIGNED)]
#[case::asyncio(AIO)]
#[case::serialx(SERIALX)]
#[case::serialx_async(SERIALX_ASYNC)]
#[case::serialx_compat(SERIALX_COMPAT)]
#[ignore = "needs root: tests/run"]
fn a_port_is_this_process_s_until_it_lets_go(#[case] script: &str) {
    let sandbox = sandbox();
    let _daemon = serve(&sandbox);
    hold_and_let_go(&sandbox, script, script);
    let mut bob = python(&sandbox, script).user(User::Bob).spawn();
    bob.expect("HELD");
    bob.kill();
    assert!(comes(|| sandbox.read(LOCK).is_none()), "a killed process has nothing");
}

#[test]
#[ignore = "needs root: tests/run"]
fn the_first_waiter_gets_it_next() {
    let sandbox = sandbox();
    let _daemon = serve(&sandbox);
    let mut alice = python(&sandbox, PYSERIAL).user(User::Alice).spawn();
    alice.expect("HELD");
    let waits = PYSERIAL.replace("ttyW0'", "ttyW0?timeout=60'");
    let short = PYSERIAL.replace("ttyW0'", "ttyW0?timeout=0.2'");
    let end = python(&sandbox, &short).user(User::Bob).run();
    assert!(end.code() == 1 && end.said("held by"), "{end}");
    let mut bob = python(&sandbox, &waits).user(User::Bob).spawn();
    alice.type_in("\n");
    bob.expect("HELD");
}

const AT_ONCE: &str = "
import lfp_serial
with lfp_serial.lock('/dev/ttyW0') as lock:
    print('HELD', lock.device)
print('FREE')
";

/// Whatever the module `serial` is, and whether there is one.
#[rstest]
#[case::pyserial("import sys")]
#[case::another_package("import sys; sys.path.insert(0, '/run/test/not-pyserial')")]
#[case::serialx_compat("import sys; sys.path.insert(0, '/run/test/serialx-compat')")]
#[case::one_that_breaks("import sys; sys.path.insert(0, '/tmp/broken')")]
#[case::none("import sys; sys.modules['serial'] = sys.modules['serialx'] = None")]
#[case::a_handler_that_is_there(
    "import sys, serialx; serialx.register_uri_handler(scheme='lfp://', unique_scheme='lfp://', sync_cls=serialx.Serial, async_transport_cls=serialx.SerialTransport)"
)]
#[case::an_older_serialx("import sys, serialx; del serialx.register_uri_handler")]
#[ignore = "needs root: tests/run"]
fn the_import_never_fails(#[case] begin: &str) {
    let sandbox = sandbox();
    let _daemon = serve(&sandbox);
    let broken = "mkdir -p /tmp/broken && echo 'raise RuntimeError(1)' >/tmp/broken/serial.py";
    sandbox.shell(User::Root, broken).expect(0);
    let end = python(&sandbox, &format!("{begin}\n{AT_ONCE}")).user(User::Alice).run();
    assert_eq!(end.output(), "HELD /dev/ttyW0\nFREE\n", "{end}");
}

/// A task that is cancelled while it waits leaves the queue at once, though its process lives.
#[rstest]
#[case::while_it_waits("0.2")]
#[case::at_once("0.001")]
#[ignore = "needs root: tests/run"]
fn a_cancelled_task_leaves_the_queue(#[case] after: &str) {
    let sandbox = sandbox();
    let _daemon = serve(&sandbox);
    let mut alice = python(&sandbox, WITH).user(User::Alice).spawn();
    alice.expect("HELD");
    let script = format!(
        "
import asyncio, lfp_serial.aio, sys, threading
async def main():
    async def hold(): await lfp_serial.aio.lock('/dev/ttyW0', timeout=600)
    try: await asyncio.wait_for(hold(), {after})
    except asyncio.TimeoutError: pass
    while threading.active_count() > 1: await asyncio.sleep(0)
    print('LEFT', flush=True)
    # The loop goes on, and the process stays.
    print(await asyncio.to_thread(sys.stdin.readline))
asyncio.run(main())
"
    );
    let mut bob = python(&sandbox, &script).user(User::Bob).spawn();
    bob.expect("LEFT");
    alice.type_in("\n");
    alice.expect("FREE");
    let end = python(&sandbox, &AT_ONCE.replace("0')", "0', timeout=20)")).user(User::Alice).run();
    assert_eq!(end.output(), "HELD /dev/ttyW0\nFREE\n", "{end}");
    assert!(sandbox.read(LOCK).is_none(), "nobody has it");
    bob.type_in("\n");
}

/// A port that was granted before the task heard of it is released when the task is cancelled.
#[test]
#[ignore = "needs root: tests/run"]
fn a_cancelled_task_keeps_no_port() {
    let sandbox = sandbox();
    let _daemon = serve(&sandbox);
    let script = "
import asyncio, lfp_serial.aio, os
LOCK = '/run/lock/LCK..ttyW0'
async def main():
    async def hold(): await lfp_serial.aio.lock('/dev/ttyW0')
    task = asyncio.create_task(hold())
    await asyncio.sleep(0)
    # The loop stands still, so the task cannot hear of the grant.
    while not os.path.exists(LOCK): pass
    task.cancel()
    try: await task
    except asyncio.CancelledError: print('cancelled')
    async def released():
        while os.path.exists(LOCK): await asyncio.sleep(0)
    await asyncio.wait_for(released(), 20)
    print('released')
asyncio.run(main())
";
    let end = python(&sandbox, script).user(User::Alice).run();
    assert_eq!(end.output(), "cancelled\nreleased\n", "{end}");
}

/// A transport that is closed and forgotten, or that fails to open, releases its lock; so does one whose loop has ended.
#[rstest]
#[case::closed("await port.open(); port.schedule_close(); await asyncio.wait_for(released(), 20)")]
#[case::aborted("await port.open(); port.abort(); await port.wait_closed()")]
#[case::loop_ends("await port.open(); port.schedule_close()")]
#[case::never_closed("await port.open()")]
#[case::does_not_open("port._connect_kwargs['byte_size'] = 99; await port.open()")]
#[ignore = "needs root: tests/run"]
fn a_transport_of_serialx_releases_its_lock(#[case] uses: &str) {
    let sandbox = sandbox();
    let _daemon = serve(&sandbox);
    let script = format!(
        "
import asyncio, gc, lfp_serial, os, serialx, time
async def released():
    while os.path.exists('/run/lock/LCK..ttyW0'): await asyncio.sleep(0)
async def main():
    port = serialx.async_serial_for_url('lfp:///dev/ttyW0', baudrate=9600)
    try: {uses}
    except serialx.UnsupportedSetting: pass
asyncio.run(main())
deadline = time.monotonic() + 20
while os.path.exists('/run/lock/LCK..ttyW0') and time.monotonic() < deadline:
    gc.collect()
print(os.path.exists('/run/lock/LCK..ttyW0'))
"
    );
    let end = python(&sandbox, &script).user(User::Alice).run();
    assert!(end.output().ends_with("False\n"), "{end}");
}

/// A session of a super-server answers WAIT with 202.
const WITHOUT_QUEUE: &str = "
import lfp_serial, socket, threading
server = socket.socket(socket.AF_UNIX)
server.bind('/tmp/service')
server.listen()
def serve():
    stream = server.accept()[0].makefile('rwb')
    stream.write(b'220 ready\\r\\n')
    for answer in (b'202 no', b'450 busy', b'200 okay'):
        stream.flush()
        print(stream.readline().decode().split()[0], flush=True)
        stream.write(answer + b'\\r\\n')
    stream.flush()
threading.Thread(target=serve).start()
print('HELD', lfp_serial.lock('/dev/ttyW0', timeout=60, server='/tmp/service').device)
";

#[test]
#[ignore = "needs root: tests/run"]
fn python_asks_a_service_without_a_queue_again() {
    let end = python(&sandbox(), WITHOUT_QUEUE).run();
    assert_eq!(end.output(), "WAIT\nLOCK\nLOCK\nHELD /dev/ttyW0\n", "{end}");
}

/// What goes wrong, and the exception that says so.
const FAILURES: [(&str, &str); 17] = [
    ("lfp_serial.lock('/etc/passwd')", "ValueError"),
    ("lfp_serial.lock('/dev/../etc/passwd')", "ValueError"),
    ("lfp_serial.lock('/dev/tty W0')", "ValueError"),
    ("lfp_serial.lock('/dev/ttyW0\\n1')", "ValueError"),
    ("lfp_serial.lock('/dev/ttyW1')", "Denied"),
    ("lfp_serial.lock('/dev/ttyW0', server='/run/nobody')", "NoService"),
    ("serial.serial_for_url('lfp:///dev/ttyW9')", "SerialException"),
    ("serial.serial_for_url('lfp://ttyW0/x')", "SerialException"),
    ("serial.serial_for_url('lfp:///dev/ttyW0?speed=9')", "SerialException"),
    ("lfp_serial.lock('/dev/ttyW0', timeout=float('nan'))", "ValueError"),
    ("lfp_serial.lock('/dev/ttyW0', timeout=-1)", "ValueError"),
    ("lfp_serial.lock('/dev/ttyW0', timeout=float('inf'))", "ValueError"),
    ("serial.serial_for_url('lfp:///dev/ttyW0?timeout=nan')", "SerialException"),
    ("serial.serial_for_url('lfp:///dev/ttyW0?timeout=soon')", "SerialException"),
    ("serial.serial_for_url('lfp:///dev/ttyW0?timeout')", "SerialException"),
    ("os.symlink('/etc/passwd', '/tmp/x') or lfp_serial.lock('/tmp/x')", "ValueError"),
    ("lfp_serial.lock('ttyW0') and lfp_serial.lock('/dev/ttyW0')", "Busy"),
];

#[test]
#[ignore = "needs root: tests/run"]
fn failures_raise_the_usual_exceptions_and_leave_no_lock() {
    let sandbox = sandbox();
    let _daemon = serve(&sandbox);
    for (call, exception) in FAILURES {
        let script = format!(
            "import lfp_serial, os, serial\n\
             try: {call}\n\
             except Exception as error: print(type(error).__name__, flush=True)\n\
             else: print('NOTHING')"
        );
        let end = python(&sandbox, &script).user(User::Alice).run();
        assert!(end.code() == 0 && end.output() == format!("{exception}\n"), "{end}");
        assert!(comes(|| sandbox.locks().is_empty()), "{call}: {:?}", sandbox.locks());
    }
}

/// In the words of the command, so that they are found together.
#[test]
#[ignore = "needs root: tests/run"]
fn a_denial_names_the_group_that_lfp_names() {
    let sandbox = sandbox();
    let _daemon = serve(&sandbox);
    let words = "you may not read and write it; members of its group dialout may";
    let end = sandbox.command(testbed::LFP).args(["run", "ttyW1", "true"]).user(User::Alice).run();
    assert!(end.said(words), "{end}");
    let script =
        "import lfp_serial\ntry: lfp_serial.lock('/dev/ttyW1')\nexcept Exception as e: print(e)";
    let end = python(&sandbox, script).user(User::Alice).run();
    assert_eq!(end.output(), format!("[Errno 13] the service denies it: {words}: '/dev/ttyW1'\n"));
}

/// The error says where no service listens, and what may be missing.
#[test]
#[ignore = "needs root: tests/run"]
fn without_a_service_the_error_asks_whether_lfpd_runs() {
    let sandbox = sandbox();
    let command = python(&sandbox, WITH).env("PATH", "/usr/bin:/bin");
    let end = command.user(User::Alice).run();
    let words = format!("{SOCKET}: No such file or directory (is lfpd running?)");
    for words in [&*words, "/dev/ttyW0", "to start it: "] {
        assert!(end.code() == 1 && end.said(words), "{words}: {end}");
    }
}

/// Where users may write the lock directory, as on Debian, ports are locked without the service, as `lfp` does it.
#[rstest]
#[case::at_once(WITH, None)]
#[case::waits(WITH, Some("lock('/dev/ttyW0', timeout=0.2)"))]
#[case::pyserial(PYSERIAL, None)]
#[case::asyncio(AIO, Some("lock('/dev/ttyW0', timeout=1.2)"))]
#[ignore = "needs root: tests/run"]
fn without_a_service_the_lock_files_are_used(#[case] script: &str, #[case] other: Option<&str>) {
    let sandbox = sandbox_with_lock_dir("1777");
    let other = script.replace("lock('/dev/ttyW0')", other.unwrap_or("lock('/dev/ttyW0')"));
    hold_and_let_go(&sandbox, script, &other);
    // A service that is there is not passed by, whatever is wrong with it.
    let silent = "import socket; s = socket.socket(socket.AF_UNIX); s.bind('/run/lfpd/lfpd.sock'); s.listen(); \
                  print('listens', flush=True); peer = s.accept(); peer[0].sendall(b'421 later\\r\\n'); input()";
    let mut service = sandbox.command("/usr/bin/python3").args(["-c", silent]).spawn();
    service.expect("listens");
    let end = python(&sandbox, &other).run();
    assert!(end.code() == 1 && end.said("/dev/ttyW0") && sandbox.read(LOCK).is_none(), "{end}");
}

/// Nobody says that there is no service where only the device is missing.
#[rstest]
#[ignore = "needs root: tests/run"]
fn a_device_that_is_away_can_be_locked(#[values(false, true)] is_served: bool) {
    let sandbox = if is_served { sandbox() } else { sandbox_with_lock_dir("1777") };
    let _daemon = is_served.then(|| serve(&sandbox));
    let script = "import lfp_serial\nwith lfp_serial.lock('/dev/ttyW9'): print('held')";
    let end = python(&sandbox, script).run().expect(0);
    assert_eq!(end.output(), "held\n", "{end}");
}

/// A link anywhere leads to its port, as with `lfp`, and tenths of seconds count in a timeout.
#[test]
#[ignore = "needs root: tests/run"]
fn links_and_short_timeouts() {
    let sandbox = sandbox();
    let _daemon = serve(&sandbox);
    let mut alice = python(&sandbox, WITH).user(User::Alice).spawn();
    alice.expect("HELD");
    let script = "
import lfp_serial, os, time
os.symlink('/dev/ttyW0', '/tmp/probe')
os.chdir('/tmp')
def waited(name):
    begin = time.monotonic()
    try: lfp_serial.lock(name, timeout=0.2)
    except lfp_serial.Busy: return time.monotonic() - begin
for name in '/tmp/probe', './probe', b'/tmp/probe':
    # Until the machine is not too busy for it.
    while not 0.2 <= waited(name) < 0.9: pass
    print('busy', flush=True)
";
    let end = python(&sandbox, script).user(User::Bob).run();
    assert_eq!(end.output(), "busy\nbusy\nbusy\n", "{end}");
}

/// Types are complete (`mypy --strict`), and the wheel and the sources are such that the Python Package Index takes.
#[rstest]
#[case::lfp_serial("lfp-serial")]
#[case::dflock("dflock")]
#[ignore = "needs programs: tests/run"]
fn the_package_is_typed_and_its_wheel_is_valid(#[case] package: &str) {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let peers = std::env::var_os("LFPD_PEERS").map_or(root.join("target/peers"), Into::into);
    let path = ["python-tools", "serialx-1.15.1"].map(|name| peers.join(name));
    let path = std::env::join_paths(path).unwrap();
    let place = tempfile::tempdir().unwrap();
    let script = "set -e; cp -r \"$0\" source; cd source
        python3 -m mypy --strict src
        pip() { python3 -m pip \"$@\" --quiet --no-deps --disable-pip-version-check; }
        pip wheel -w .. .
        pip install --root-user-action ignore --target ../backend 'setuptools>=77' 'packaging>=24.2'
        PYTHONPATH=../backend python3 -c 'from setuptools import build_meta; build_meta.build_sdist(\"..\")'
        python3 -m twine check --strict ../*.whl ../*.tar.gz
        python3 -m zipfile -l ../*.whl; python3 -m tarfile -l ../*.tar.gz";
    let told = std::process::Command::new("sh")
        .args(["-ec", script])
        .arg(root.join("python").join(package))
        .current_dir(place.path())
        .env("PATH", "/usr/bin:/bin")
        .env("PYTHONPATH", path)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(told.status.success(), "{text}{}", String::from_utf8_lossy(&told.stderr));
    for part in ["no issues found", "LICENSE-MIT", "py.typed"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(text.matches("PASSED").count(), 2, "{text}");
    assert!(!text.contains("/tests/"), "tests that need the server of the workspace: {text}");
}

/// While a process is stopped in the gate, nothing is released: that is said, and done the second time. Nobody is told of
/// a lock that was released by force.
#[rstest]
#[case::through_the_service("0755")]
#[case::through_the_command("1777")]
#[ignore = "needs root: tests/run"]
fn python_releases_a_lock_again_that_was_not_released(#[case] mode: &str) {
    let sandbox = sandbox_with_lock_dir(mode);
    let daemon = serve(&sandbox);
    let script = "
import lfp_serial, sys, time
def locked():
    lock = lfp_serial.lock('/dev/ttyW0')
    print('HELD', flush=True)
    sys.stdin.readline()
    return lock
lock = locked()
try: lock.release()
except lfp_serial.NotReleased as error: print(error, flush=True)
sys.stdin.readline()
lock.release()
print('FREE', flush=True)
lock = locked()
while True:
    # On a busy machine, the service may not see in time that there is no lock.
    try: print(lock.release(), 'IS LEFT', flush=True); break
    except lfp_serial.NotReleased: time.sleep(0.01)
";
    if mode == "1777" {
        daemon.kill();
        sandbox.shell(User::Root, "rm /run/lfpd/lfpd.sock").expect(0);
    }
    let mut program = python(&sandbox, script).spawn();
    program.expect("HELD");
    let inside = sandbox.in_the_gate();
    program.type_in("\n");
    program.expect("another process is changing the lock");
    assert_eq!(sandbox.locked_by("ttyW0"), Some(program.pid()));
    inside.kill();
    program.type_in("\n");
    program.expect("FREE\nHELD");
    sandbox.command("/run/test/bin/lfp").args(["unlock", "--force", PORT]).run().expect(0);
    program.type_in("\n");
    program.expect("None IS LEFT");
}

/// A child that was forked neither has the lock nor releases it.
#[test]
#[ignore = "needs root: tests/run"]
fn a_child_does_not_let_go_of_its_parents_lock() {
    let sandbox = sandbox();
    let _daemon = serve(&sandbox);
    let script = "
import lfp_serial, os
lock = lfp_serial.lock('/dev/ttyW0')
if os.fork() == 0:
    lock.release()
    os._exit(0)
os.wait()
print(open('/run/lock/LCK..ttyW0').read().strip() == str(os.getpid()), flush=True)
lock.release()
lock.release()
print(os.path.exists('/run/lock/LCK..ttyW0'), flush=True)
";
    let end = python(&sandbox, script).user(User::Alice).run();
    assert_eq!(end.output(), "True\nFalse\n", "{end}");
}
