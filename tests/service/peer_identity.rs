//! Which clients may speak, and which pid they may name: every row of the contract with real users, real processes
//! and real connections.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;

use rstest::rstest;
use testbed::{
    Client, LFPD, LIMIT, Process, Sandbox, Session, Syslog, User, comes, connect_in, connect_to,
    in_network, network, until,
};

use crate::machine::{SOCKET, answer, codes, daemon, numbered, waiter, with_syslog};

/// A pid that no process can have.
const GONE: u32 = testbed::GONE.unsigned_abs();

/// Whatever the service runs as and however the client came: its own pid and those that do not
/// exist, root any, for LOCK and for UNLOCK.
#[rstest]
#[ignore = "needs root: tests/run"]
fn over_tcp(
    #[values(User::Root, User::Uucp, User::Lfpd)] server: User,
    #[values("127.0.0.1", "127.255.255.254", "::1", "::ffff:127.0.0.1")] address: &str,
) {
    let sandbox = Sandbox::with_lfpd().enter();
    let [alices, bobs] = [User::Alice, User::Bob].map(|user| sandbox.sleeper(user));
    for (client, pid, allowed) in [
        (User::Alice, alices.pid(), true),
        (User::Alice, bobs.pid(), false),
        (User::Alice, 1, false),
        (User::Alice, GONE, true),
        (User::Bob, alices.pid(), false),
        (User::Bob, bobs.pid(), true),
        (User::Root, alices.pid(), true),
        (User::Root, 1, true),
        (User::Root, GONE, true),
    ] {
        // The mapped address only shows at the service's end; a client has no use for it.
        let target = address.trim_start_matches("::ffff:");
        let ends = if target == address {
            connect_in(&sandbox, address, client)
        } else {
            let dual = in_network(network(&sandbox, 1), 0, || TcpListener::bind("[::]:0").unwrap());
            connect_to(network(&sandbox, 1), dual, target, client)
        };
        let mut talk = Session::on(&sandbox, server, &[], ends);
        assert!(talk.line().starts_with("220 "), "{client:?}");
        let code = if allowed { "200" } else { "550" };
        for verb in ["lock", "unlock"] {
            let reply = talk.code(&format!("{verb} ttyS1 {pid}"));
            assert_eq!(reply, code, "{client:?} {verb} {pid} from {address}");
        }
    }
    assert!(sandbox.locks().is_empty());
}

/// Mounts `/proc` so that it hides what other users' processes do (1), or that they exist (2).
fn hide(sandbox: &Sandbox, hidepid: u32) {
    let options = format!("remount,hidepid={hidepid}");
    sandbox.command("mount").args(["-o", &options, "/proc"]).run().expect(0);
}

/// Unlocking for somebody else fails before it is looked at whether there is a lock.
#[test]
#[ignore = "needs root: tests/run"]
fn a_user_does_not_unlock_for_another() {
    let sandbox = Sandbox::with_lfpd().enter();
    let alices = sandbox.sleeper(User::Alice);
    let talk = |user| Session::start(&sandbox, User::Uucp, &[], user);
    let line = format!("lock ttyS1 {}", alices.pid());
    assert_eq!(talk(User::Alice).code(&line), "200");
    assert_eq!(talk(User::Bob).code(&format!("un{line}")), "550");
    assert_eq!(talk(User::Bob).code(&format!("unlock ttyS1 {GONE}")), "450");
    assert_eq!(sandbox.locks(), ["LCK..ttyS1"]);
    assert_eq!(talk(User::Alice).code(&format!("un{line}")), "200");
    assert!(sandbox.locks().is_empty());
}

#[test]
#[ignore = "needs root: tests/run"]
fn trust_pid_lets_anybody_name_any() {
    let sandbox = Sandbox::with_lfpd().enter();
    let mut talk = Session::start(&sandbox, User::Uucp, &["--trust-pid"], User::Alice);
    assert_eq!(talk.code("lock ttyS1 1"), "200");
    assert_eq!(talk.code("unlock ttyS1 1"), "200");
}

/// Where `/proc` hides processes from the service, nobody but root may name one that exists: it
/// cannot be told whose it is.
#[test]
#[ignore = "needs root: tests/run"]
fn hidden_processes_are_nobodys() {
    let (sandbox, syslog) = with_syslog();
    let alices = sandbox.sleeper(User::Alice);
    hide(&sandbox, 2);
    let mut talk = Session::start(&sandbox, User::Uucp, &[], User::Alice);
    assert_eq!(talk.code(&format!("lock ttyS1 {}", alices.pid())), "550");
    assert!(syslog.line().contains("hidepid"));
    assert_eq!(talk.code(&format!("lock ttyS1 {GONE}")), "200");
    let mut talk = Session::start(&sandbox, User::Uucp, &[], User::Root);
    assert_eq!(talk.code(&format!("lock ttyS2 {}", alices.pid())), "200");
}

/// Where `/proc` shows the user of a process and nothing else, it cannot be told what the process may open.
#[rstest]
#[case::of_others(User::Alice, "550")]
#[case::of_root(User::Root, "200")]
#[ignore = "needs root: tests/run"]
fn a_process_with_hidden_rights_gets_no_device(#[case] client: User, #[case] code: &str) {
    let sandbox = Sandbox::with_lfpd().port_with_mode("ttyS4", 0o660).enter();
    let syslog = Syslog::open(&sandbox);
    hide(&sandbox, 1);
    let sleeper = sandbox.sleeper(client);
    let mut talk = Session::start(&sandbox, User::Uucp, &[], client);
    assert_eq!(talk.code(&format!("lock ttyS4 {}", sleeper.pid())), code);
    assert!(code == "200" || syslog.line().contains("hidepid"));
}

/// A lock in a directory that is open to everybody counts if it is of the process that it names. If `/proc` hides that
/// process, it counts too.
#[rstest]
#[ignore = "needs root: tests/run"]
fn a_lock_in_tmp_of_a_hidden_process_counts(#[values(0, 1, 2)] hidepid: u32) {
    let sandbox = Sandbox::with_lfpd().enter();
    hide(&sandbox, hidepid);
    let holder = sandbox.sleeper(User::Alice);
    let claim = format!("printf '%10d\\n' {} >/tmp/LCK..ttyS1", holder.pid());
    sandbox.shell(User::Alice, &claim).expect(0);
    let mut talk = Session::start(&sandbox, User::Uucp, &[], User::Bob);
    assert_eq!(talk.code(&format!("lock ttyS1 {GONE}")), "450");
}

/// Without netlink (older containers forbid it) the tables in `/proc/net` tell the same.
#[rstest]
#[ignore = "needs root: tests/run"]
fn without_netlink(#[values("127.0.0.1", "::1")] address: &str) {
    let sandbox = Sandbox::with_lfpd().enter();
    let alices = sandbox.sleeper(User::Alice);
    let (client, theirs) = connect_in(&sandbox, address, User::Alice);
    let forbidden = ["-qq", "-o", "/tmp/trace", "-e", "inject=socket:error=EAFNOSUPPORT", LFPD];
    let process =
        sandbox.command("strace").args(forbidden).user(User::Uucp).on_connection(theirs).spawn();
    let mut talk = Session { client: Client::new(client), process };
    assert!(talk.line().starts_with("220 "));
    assert_eq!(talk.code("lock ttyS1 1"), "550");
    assert_eq!(talk.code(&format!("lock ttyS1 {}", alices.pid())), "200");
    let trace = String::from_utf8(sandbox.read("/tmp/trace").unwrap()).unwrap();
    assert!(trace.contains("INJECTED") && trace.contains("AF_NETLINK"), "{trace}");
}

/// A super-server's socket, in place of the daemon's.
fn listen_for_all(sandbox: &Sandbox) -> UnixListener {
    let path = sandbox.path(SOCKET);
    let listener = UnixListener::bind(&path).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
    listener
}

/// On a Unix socket the kernel says who connected.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn over_a_unix_socket() {
    let sandbox = Sandbox::with_lfpd().enter();
    let listener = listen_for_all(&sandbox);
    let alices = sandbox.sleeper(User::Alice);
    // For a process that is gone no lock is taken, but it can be released.
    for (pid, code, then) in [(alices.pid(), "200", "200"), (1, "550", "550"), (GONE, "550", "450")]
    {
        let words = ["-", &format!("UNIX-CONNECT:{SOCKET}")];
        let mut client = sandbox.command("socat").args(words).user(User::Alice).spawn();
        let (theirs, _) = listener.accept().unwrap();
        let server = sandbox.command(LFPD).user(User::Uucp).on_connection(theirs).spawn();
        client.expect("220 ");
        client.type_in(&format!("lock ttyS1 {pid}\nunlock ttyS1 {pid}\nquit\n"));
        client.expect("221 ");
        assert_eq!(codes(&client.output()), [code, then]);
        assert!(server.wait(LIMIT).code() == 0);
    }
}

/// A process that has ended but was not waited for can hold nothing, for any user and any client, like a process
/// that does not exist.
#[rstest]
#[ignore = "needs namespaces: tests/run"]
fn a_zombie_holds_nothing(
    #[values(User::Alice, User::Bob)] client: User,
    #[values(0, 1)] hidepid: u32,
) {
    let sandbox = Sandbox::with_lfpd().enter();
    let _daemon = daemon(&sandbox, &[]);
    hide(&sandbox, hidepid);
    // It ends when its parent takes note of nothing any more.
    let waits = "while read -r name </proc/$$/comm && [ $name != sleep ]; do :; done";
    let script = format!("({waits}) & echo is $! now; exec sleep 1000");
    let mut parent = sandbox.command("bash").args(["-c", &script]).user(User::Alice).spawn();
    parent.expect(" now");
    let zombie = parent.output().split(' ').nth(1).unwrap().to_owned();
    let status = format!("/proc/{zombie}/status");
    assert!(comes(|| sandbox.text(&status).contains("(zombie)")), "its end");
    for (verb, code) in [("lock", "550"), ("unlock", "450")] {
        assert_eq!(answer(&sandbox, client, &format!("{verb} ttyS1 {zombie}")), code);
    }
}

/// In a container every process has another number than here: the peer and those above it are
/// known under the numbers that they have there, and all others are refused.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn numbers_of_a_container_are_translated() {
    let (sandbox, syslog) = with_syslog();
    let _daemon = daemon(&sandbox, &[]);
    let script = format!(
        "sleep 1000 & ask() {{ (echo \"$1\"; echo quit) | socat -t30 - \
         UNIX-CONNECT:{SOCKET} | sed -n 's/^\\([0-9]*\\) .*/\\1/;2p'; }}; \
         ask \"lock ttyS1 $$\"; ask \"lock ttyS2 $!\"; ask 'lock ttyS3 500'; \
         ask \"unlock ttyS1 $$\"; ask \"lock ttyS1 $$\"; cat"
    );
    let unshare = ["--pid", "--fork", "--kill-child", "bash", "-c", &script];
    let mut container = sandbox.command("unshare").args(unshare).spawn();
    container.expect("200\n550\n550\n200\n200\n");
    assert_eq!(sandbox.locks(), ["LCK..ttyS1"]);
    // The lock names the process as it is numbered here, and its first process is not ours.
    let named = sandbox.locked_by("ttyS1").unwrap();
    let status = sandbox.text(&format!("/proc/{named}/status"));
    assert!(status.contains(&format!("NSpid:\t{named}\t1\n")), "{named}: {status}");
    assert_eq!(answer(&sandbox, User::Root, &format!("unlock ttyS1 {named}")), "200");
    let refusals = (0..8).map(|_| syslog.line()).filter(|line| line.contains("refused"));
    assert!(refusals.take(1).all(|line| line.contains("another pid namespace")));
}

/// Asks for itself, as a process of which the kernel tells much, or nothing that is text.
const ODD: &str = "
import ctypes, os, socket, sys
if sys.argv[1] == 'groups':
    os.setgroups(range(10 ** 9, 10 ** 9 + int(sys.argv[2])))
else:
    ctypes.CDLL(None).prctl(15, b'caf\\xe9', 0, 0, 0)
line = socket.socket(socket.AF_UNIX)
line.connect('/run/lfpd.sock')
words = line.makefile('rw')
words.write('lock ttyS1 %d\\nquit\\n' % os.getpid())
words.flush()
words.readline()
print(words.readline()[:3])
";

/// A peer counts as we do, however much is told of it: a process may be in 65,536 groups, and its name may be any bytes.
#[rstest]
#[case::in_many_groups("groups", "1600")]
#[case::in_as_many_as_can_be("groups", "65536")]
#[case::name_that_is_no_text("name", "")]
#[ignore = "needs root: tests/run"]
fn an_odd_peer_is_known(#[case] odd: &str, #[case] groups: &str) {
    let sandbox = Sandbox::with_lfpd().enter();
    let _daemon = daemon(&sandbox, &[]);
    let end = sandbox.command("python3").args(["-c", ODD, odd, groups]).run();
    assert_eq!((end.code(), end.output()), (0, "200\n"), "{end}");
}

/// Connects a hundred times, is greeted each time, and stays.
const CROWD: &str = "
import os, socket, sys
os.setgroups(range(10 ** 9, 10 ** 9 + 65536))
lines = []
for number in range(100):
    line = socket.socket(socket.AF_UNIX)
    line.connect('/run/lfpd.sock')
    assert line.recv(200).startswith(b'220 ')
    lines.append(line)
print('connected', flush=True)
sys.stdin.read()
";

/// Nothing is kept of the groups of a peer, and nobody reads them all to know where it counts processes.
#[rstest]
#[case::who_is_an_administrator(&["--force-group", "uucp"])]
#[case::no_matter(&[])]
#[ignore = "needs root: tests/run"]
fn a_peer_in_very_many_groups_costs_no_more(#[case] options: &[&str]) {
    let sandbox = Sandbox::with_lfpd().enter();
    let daemon = daemon(&sandbox, options);
    assert_eq!(answer(&sandbox, User::Root, "noop"), "200");
    let kib = || {
        let status = sandbox.text(&format!("/proc/{}/status", daemon.pid()));
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.split_whitespace().next().unwrap().parse::<u32>().unwrap()
    };
    let before = kib();
    let mut crowd = sandbox.command("python3").args(["-c", CROWD]).spawn();
    crowd.expect("connected");
    let grown = kib().saturating_sub(before);
    // The list of one peer is 256 KiB, for a moment.
    assert!(grown < 100 * 16, "{grown} KiB for 100 connections");
}

/// A user who may not open a device may not keep others from it.
#[rstest]
#[case::not_in_the_group(User::Bob, "", &[], "550")]
#[case::in_the_group(User::Alice, "", &[], "200")]
#[case::by_an_access_list(User::Bob, "u:bob:rw", &[], "200")]
#[case::kept_out_by_an_access_list(User::Alice, "u:alice:r", &[], "550")]
#[case::anyone(User::Bob, "", &["--anyone"], "200")]
#[ignore = "needs root: tests/run"]
fn without_the_right_to_open_a_device_none_to_lock_it(
    #[case] user: User,
    #[case] access: &str,
    #[case] options: &[&str],
    #[case] code: &str,
) {
    let sandbox = Sandbox::with_lfpd().enter();
    let _daemon = daemon(&sandbox, options);
    let made = "mknod -m 660 /dev/ttyS9 c 4 73 && chown root:alice /dev/ttyS9";
    sandbox.shell(User::Root, made).expect(0);
    if !access.is_empty() {
        sandbox.shell(User::Root, &format!("setfacl -m {access} /dev/ttyS9")).expect(0);
    }
    let holder = sandbox.sleeper(user);
    assert_eq!(answer(&sandbox, user, &format!("lock ttyS9 {}", holder.pid())), code);
    assert_eq!(
        answer(&sandbox, user, &format!("wait ttyS9 {} 0", holder.pid())),
        if code == "200" { "450" } else { "550" }
    );
    // Root holds what it likes, and what is not there is anybody's.
    let roots = sandbox.sleeper(User::Root);
    let code = if code == "200" { "450" } else { "200" };
    assert_eq!(answer(&sandbox, User::Root, &format!("lock ttyS9 {}", roots.pid())), code);
    assert_eq!(answer(&sandbox, user, &format!("lock ttyS99 {}", holder.pid())), "200");
}

/// Root takes anybody's lock by force, and members of the group do; the log says from whom.
#[test]
#[ignore = "needs root: tests/run"]
fn force_is_for_root_and_the_group() {
    let (sandbox, syslog) = with_syslog();
    let _daemon = daemon(&sandbox, &["--force-group", "alice", "--log-level", "warning"]);
    let bobs = sandbox.sleeper(User::Bob);
    let lock = || {
        let line = format!("lock ttyS1 {}", bobs.pid());
        assert_eq!(answer(&sandbox, User::Bob, &line), "200");
    };
    let force = format!("force ttyS1 {}", bobs.pid());
    lock();
    assert_eq!(answer(&sandbox, User::Bob, &force), "550");
    assert_eq!(answer(&sandbox, User::Uucp, &force), "550");
    for (user, said) in [(User::Alice, "uid 1000"), (User::Root, "uid 0")] {
        assert_eq!(answer(&sandbox, user, &force), "200");
        let line = syslog.line();
        let taken = format!("took ttyS1 from pid {} of uid 1001 by force", bobs.pid());
        assert!(line.starts_with(said) && line.ends_with(&taken), "{line}");
        assert_eq!(answer(&sandbox, user, &force), "450");
        lock();
    }
    // On TCP nobody tells which process it is.
    let options = ["--force-group", "alice"];
    let mut talk = Session::start(&sandbox, User::Root, &options, User::Alice);
    assert_eq!(talk.code(&force), "550");
    assert_eq!(sandbox.locks(), ["LCK..ttyS1"]);
}

/// Connects, becomes a program with the set-group-ID bit, and has its child speak for it.
const TURNCOAT: &str = "
import os, socket, sys, time
line = socket.socket(socket.AF_UNIX)
line.connect('/run/lfpd.sock')
if os.fork():
    os.execv('/home/sleep', ['sleep', '1000'])
while 'sleep' not in open('/proc/%d/comm' % os.getppid()).read():
    time.sleep(0.01)
print('changed', flush=True)
sys.stdin.readline()
words = line.makefile('rw')
words.write(sys.argv[1] + '\\nquit\\n')
words.flush()
print(words.read(), flush=True)
os.kill(os.getppid(), 9)
";

/// A peer's groups are those it had when it connected, whatever runs under its number now, also where
/// nobody had looked at it before it changed.
#[rstest]
#[ignore = "needs namespaces: tests/run"]
fn a_setgid_program_is_not_in_the_group_by_force(#[values(false, true)] before_the_look: bool) {
    let sandbox = Sandbox::with_lfpd().enter();
    let options = ["--force-group", "uucp"];
    let made = "cp /bin/sleep /home && chgrp uucp /home/sleep && chmod 2755 /home/sleep";
    sandbox.shell(User::Root, made).expect(0);
    let bobs = sandbox.sleeper(User::Bob);
    sandbox.write("/run/lock/LCK..ttyS1", format!("{:>10}\n", bobs.pid()), 0o444);
    let force = format!("force ttyS1 {}", bobs.pid());
    let turncoat = || {
        let words = ["-c", TURNCOAT, &force];
        let mut alice = sandbox.command("/usr/bin/python3").args(words).user(User::Alice).spawn();
        alice.expect("changed");
        alice
    };
    let refused = |mut alice: Process<'_>| {
        alice.type_in("\n");
        alice.expect("221 ");
        assert!(alice.output().contains("\n550 "), "{}", alice.output());
        assert_eq!(sandbox.locks(), ["LCK..ttyS1"]);
    };
    if before_the_look {
        let listener = listen_for_all(&sandbox);
        let alice = turncoat();
        let (theirs, _) = listener.accept().unwrap();
        let _session = sandbox.command(LFPD).args(options).on_connection(theirs).spawn();
        return refused(alice);
    }
    let _daemon = daemon(&sandbox, &options);
    refused(turncoat());
    // A member of the group by name may.
    let words = ["--reuid=alice", "--regid=alice", "--groups=uucp", "socat", "-t30", "-"];
    let member = sandbox.command("setpriv").args(words).arg(format!("UNIX-CONNECT:{SOCKET}"));
    let mut member = member.spawn();
    member.expect("220 ");
    member.type_in(&format!("{force}\n"));
    member.expect("200 ");
    member.type_in("quit\n");
    member.expect("221 ");
}

/// Connects as alice, joins `uucp` by a right that it had kept, and speaks then.
const LATE_MEMBER: &str = "
import os, socket, sys
os.setgroups([])
os.setresgid(1000, 1000, 1000)
os.setresuid(1000, 1000, 0)
line = socket.socket(socket.AF_UNIX)
line.connect('/run/lfpd.sock')
os.setresuid(0, 0, 0)
os.setgroups([10])
os.setresuid(1000, 1000, 1000)
print('changed', flush=True)
sys.stdin.readline()
words = line.makefile('rw')
words.write(sys.argv[1] + '\\nquit\\n')
words.flush()
print(words.read(), flush=True)
";

/// Groups that a process gets after it has connected give no right to use force.
#[test]
#[ignore = "needs root: tests/run"]
fn who_joins_the_group_after_connecting_may_not_use_force() {
    let sandbox = Sandbox::with_lfpd().enter();
    let bobs = sandbox.sleeper(User::Bob);
    sandbox.write("/run/lock/LCK..ttyS1", format!("{:>10}\n", bobs.pid()), 0o444);
    let listener = listen_for_all(&sandbox);
    let force = format!("force ttyS1 {}", bobs.pid());
    let mut late = sandbox.command("/usr/bin/python3").args(["-c", LATE_MEMBER, &force]).spawn();
    late.expect("changed");
    let (theirs, _) = listener.accept().unwrap();
    let options = ["--force-group", "uucp"];
    let _session = sandbox.command(LFPD).args(options).on_connection(theirs).spawn();
    late.type_in("\n");
    late.expect("221 ");
    assert!(late.output().contains("\n550 "), "{}", late.output());
    assert_eq!(sandbox.locks(), ["LCK..ttyS1"]);
}

/// A client that waited for a process that has ended does not get the lock for the next one that has
/// its number.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn a_number_that_was_given_out_again_is_not_believed() {
    let sandbox = Sandbox::with_lfpd().enter();
    let _daemon = daemon(&sandbox, &[]);
    let owner = sandbox.sleeper(User::Root);
    assert_eq!(answer(&sandbox, User::Root, &format!("lock ttyS1 {}", owner.pid())), "200");
    let alices = sandbox.sleeper(User::Alice);
    let number = alices.pid();
    let mut waiter = waiter(&sandbox, User::Alice, "ttyS1", number);
    alices.kill();
    let _bobs = numbered(&sandbox, "bob", &[number]);
    assert_eq!(answer(&sandbox, User::Root, &format!("unlock ttyS1 {}", owner.pid())), "200");
    waiter.expect("550 ");
    assert!(sandbox.locks().is_empty());
}

/// A lock for a number that nobody has yet is not the lock of the process that gets it.
#[test]
#[ignore = "needs root: tests/run"]
fn a_lock_for_an_unused_pid_does_not_pass_to_its_next_process() {
    const FORESEEN: u32 = 20_000;
    let sandbox = Sandbox::with_lfpd().enter();
    sandbox.shell(User::Root, "mkdir /run/lfpd").expect(0);
    let mut lfp = Session::start(&sandbox, User::Root, &[], User::Root);
    let other = sandbox.sleeper(User::Alice);
    assert_eq!(lfp.lock("ttyS1", FORESEEN), 200);
    let _late = numbered(&sandbox, "root", &[FORESEEN]);
    assert_eq!(lfp.lock("ttyS2", FORESEEN), 200, "it lives");
    assert_eq!(lfp.lock("ttyS2", other.pid()), 450, "and holds what it has locked");
    assert_eq!(lfp.lock("ttyS1", other.pid()), 200, "but not what was locked before it came");
}

/// Clients of these users who have said NOOP and stay; those without room are left out.
fn staying(sandbox: &Sandbox, users: impl IntoIterator<Item = u32>) -> Vec<Client> {
    let connect = || TcpStream::connect("127.0.0.1:7000").unwrap();
    let client = |uid| {
        let stream = in_network(network(sandbox, 1), uid, connect);
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let mut client = Client::new(stream);
        client.line().starts_with("220 ").then(|| {
            assert!(client.ask("noop").starts_with("200 "));
            client
        })
    };
    users.into_iter().filter_map(client).collect()
}

/// However many subordinate numbers a user has (alice from 100,000 on, in the sandbox), they count as that user, and some
/// places are for root. The numbers of root's containers, from 200,000 on, are not root.
#[test]
#[ignore = "needs root: tests/run"]
fn subordinate_users_take_no_places_from_others() {
    let sandbox = Sandbox::with_lfpd().enter();
    let limits = ["--max-connections", "16", "--max-per-user", "4"];
    let _daemon = daemon(&sandbox, &[&["--listen", "127.0.0.1:7000"][..], &limits].concat());
    let alices = staying(&sandbox, (0..8).map(|number| 100_000 + number % 4));
    assert_eq!(alices.len(), 4, "as many as one user may have");
    assert!(staying(&sandbox, [User::Alice.uid()]).is_empty(), "her own number is one of them");
    let of_containers = staying(&sandbox, 200_000..200_008);
    assert_eq!(of_containers.len(), 4);
    let bobs = staying(&sandbox, [User::Bob.uid(); 8]);
    assert_eq!(bobs.len(), 4);
    let others = staying(&sandbox, [User::Lfpd.uid(); 4]);
    assert_eq!(others.len(), 2, "two places are kept");
    let mut roots = staying(&sandbox, [0; 4]);
    assert_eq!(roots.len(), 2);
    assert!(roots[0].ask("lock ttyS1 1").starts_with("200 "));
}

/// What is locked for the processes of all of them counts together.
#[test]
#[ignore = "needs root: tests/run"]
fn subordinate_users_have_the_locks_of_one_user() {
    let sandbox = Sandbox::with_lfpd().enter();
    sandbox.shell(User::Root, "mkdir /run/lfpd").expect(0);
    let sleeper = |uid: u32| {
        let ids = [format!("--reuid={uid}"), format!("--regid={uid}"), "--clear-groups".to_owned()];
        sandbox.command("setpriv").args(ids).args(["sleep", "1000"]).spawn()
    };
    let sleepers = [sleeper(100_000), sleeper(100_001), sleeper(User::Bob.uid())];
    let runs = |it: &Process<'_>| sandbox.text(&format!("/proc/{}/comm", it.pid())) == "sleep\n";
    assert!(comes(|| sleepers.iter().all(runs)));
    let mut talk = Session::start(&sandbox, User::Root, &[], User::Root);
    let mut lock =
        |port: u32, by: &Process<'_>| talk.code(&format!("lock ttyB{port} {}", by.pid()));
    for port in 0..256 {
        assert_eq!(lock(port, &sleepers[usize::from(port % 2 == 1)]), "200", "{port}");
    }
    assert_eq!(lock(256, &sleepers[0]), "550");
    assert_eq!(lock(256, &sleepers[1]), "550");
    assert_eq!(lock(256, &sleepers[2]), "200");
}

/// The user that starts the program on a pipe or terminal is the peer.
#[rstest]
#[ignore = "needs namespaces: tests/run"]
fn started_by_hand(#[values(false, true)] on_terminal: bool) {
    let sandbox = Sandbox::with_lfpd().enter();
    let alices = sandbox.sleeper(User::Alice);
    let command = sandbox.command(LFPD).user(User::Alice);
    let mut lfpd = if on_terminal { command.on_terminal() } else { command }.spawn();
    lfpd.expect("220 ");
    lfpd.type_in("lock ttyS1 1\n");
    lfpd.expect("550 ");
    lfpd.type_in(&format!("lock ttyS1 {}\n", alices.pid()));
    lfpd.expect("200 ");
    lfpd.type_in("quit\n");
    lfpd.expect("221 ");
    assert!(lfpd.wait(LIMIT).code() == 0);
}

/// A client from another machine: its 550 and nothing else, whatever it says, and a log line.
#[test]
#[ignore = "needs root: tests/run"]
fn from_another_machine() {
    let (sandbox, syslog) = with_syslog();
    let remote = sandbox.command("unshare").args(["--net", "sleep", "1000"]).spawn();
    let pid = remote.pid().to_string();
    let other = until(LIMIT, || {
        let [own, other] = [1, remote.pid()].map(|pid| std::fs::read_link(network(&sandbox, pid)));
        (own.unwrap() != other.unwrap()).then(|| network(&sandbox, remote.pid()))
    });
    let link = format!(
        "set -e; ip link add near type veth peer name far netns {pid}; ip addr add 192.0.2.1/24 dev near; \
         ip link set near up; far() {{ nsenter --target={pid} --net ip \"$@\"; }}; \
         far addr add 192.0.2.2/24 dev far; far link set far up"
    );
    sandbox.shell(User::Root, &link).expect(0);
    refused(&sandbox, &syslog, other.unwrap(), "192.0.2.1", "192.0.2.2");
}

/// This host's own address, but not a loopback one: from there anybody could have been sent on.
#[rstest]
#[case::v4("192.0.2.7/32", "192.0.2.7")]
#[case::v6("2001:db8::7/128", "2001:db8::7")]
#[ignore = "needs root: tests/run"]
fn from_an_own_address_that_is_not_loopback(#[case] cidr: &str, #[case] address: &str) {
    let (sandbox, syslog) = with_syslog();
    // No waiting for a duplicate that cannot be.
    let words = ["addr", "add", cidr, "dev", "lo", "nodad"];
    sandbox.command("ip").args(words).run().expect(0);
    let own = network(&sandbox, 1);
    refused(&sandbox, &syslog, own, address, address);
}

fn refused(sandbox: &Sandbox, syslog: &Syslog, from: std::path::PathBuf, to: &str, shown: &str) {
    let listen = || TcpListener::bind((to, 0)).unwrap();
    let listener = in_network(network(sandbox, 1), 0, listen);
    // Root, and a client that speaks before it is spoken to.
    let (mut client, theirs) = connect_to(from, listener, to, User::Root);
    client.write_all(b"lock ttyS1 1\nquit\n").unwrap();
    let lfpd = sandbox.command(LFPD).args(["--trust-pid"]).on_connection(theirs).spawn();
    let mut said = Vec::new();
    // The service leaves what was said unread, which resets the connection behind its answer.
    let _ = client.read_to_end(&mut said);
    assert_eq!(String::from_utf8(said).unwrap(), "550 : Permission denied.\r\n");
    assert!(lfpd.wait(LIMIT).code() == 0);
    let line = syslog.line();
    assert!(line.starts_with("connection refused: ") && line.contains(shown), "{line}");
    assert!(syslog.silent());
    assert!(sandbox.locks().is_empty());
}

/// Input from a pipe does not make a remote client local: the socket tells.
#[test]
#[ignore = "needs root: tests/run"]
fn a_socket_on_either_descriptor_tells_who_it_is() {
    let sandbox = Sandbox::with_lfpd().enter();
    let alices = sandbox.sleeper(User::Alice);
    let (client, theirs) = connect_in(&sandbox, "127.0.0.1", User::Alice);
    let words = ["-c", "cat | /run/test/lfpd"];
    let process = sandbox.command("sh").args(words).on_connection(theirs).spawn();
    let mut talk = Session { client: Client::new(client), process };
    assert!(talk.line().starts_with("220 "));
    assert_eq!(talk.code("lock ttyS1 1"), "550");
    assert_eq!(talk.code(&format!("lock ttyS1 {}", alices.pid())), "200");
}
