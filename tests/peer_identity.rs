//! Who may speak, and which pid they may name: every row of the contract with real users, real
//! processes and real connections.

#[cfg(test)]
mod machine;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;

use machine::{GONE, LFPD, Syslog, Talk, connect, connect_to, inside, layout, network};
use rstest::rstest;
use testbed::{LIMIT, User};

/// Whatever the service runs as and however the client came: its own pid and those that do not
/// exist, root any, for LOCK and for UNLOCK.
#[rstest]
fn over_tcp(
    #[values(User::Root, User::Uucp, User::Lfpd)] server: User,
    #[values("127.0.0.1", "127.255.255.254", "::1", "::ffff:127.0.0.1")] address: &str,
) {
    let sandbox = layout().enter();
    let [alices, bobs] = [User::Alice, User::Bob]
        .map(|user| sandbox.command("sleep").arg("1000").user(user).spawn());
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
            connect(&sandbox, address, client)
        } else {
            let dual = inside(network(&sandbox, 1), 0, || TcpListener::bind("[::]:0").unwrap());
            connect_to(network(&sandbox, 1), dual, target, client)
        };
        let mut talk = Talk::start(&sandbox, server, &[], ends);
        assert!(talk.line().starts_with("220 "), "{client:?}");
        let code = if allowed { "200" } else { "550" };
        for verb in ["lock", "unlock"] {
            let reply = talk.ask(&format!("{verb} ttyS1 {pid}"));
            assert_eq!(reply, code, "{client:?} {verb} {pid} from {address}");
        }
    }
    assert!(sandbox.locks().is_empty());
}

/// Unlocking for somebody else fails before it is looked at whether there is a lock.
#[test]
fn nobody_unlocks_for_another() {
    let sandbox = layout().enter();
    let alices = sandbox.command("sleep").arg("1000").user(User::Alice).spawn();
    let talk = |user| {
        let mut talk = Talk::start(&sandbox, User::Uucp, &[], connect(&sandbox, "127.0.0.1", user));
        assert!(talk.line().starts_with("220 "));
        talk
    };
    let line = format!("lock ttyS1 {}", alices.pid());
    assert_eq!(talk(User::Alice).ask(&line), "200");
    assert_eq!(talk(User::Bob).ask(&format!("un{line}")), "550");
    assert_eq!(talk(User::Bob).ask(&format!("unlock ttyS1 {GONE}")), "450");
    assert_eq!(sandbox.locks(), ["LCK..ttyS1"]);
    assert_eq!(talk(User::Alice).ask(&format!("un{line}")), "200");
    assert!(sandbox.locks().is_empty());
}

#[test]
fn trust_pid_lets_anybody_name_any() {
    let sandbox = layout().enter();
    let ends = connect(&sandbox, "127.0.0.1", User::Alice);
    let mut talk = Talk::start(&sandbox, User::Uucp, &["--trust-pid"], ends);
    assert!(talk.line().starts_with("220 "));
    assert_eq!(talk.ask("lock ttyS1 1"), "200");
    assert_eq!(talk.ask("unlock ttyS1 1"), "200");
}

/// Where `/proc` hides processes from the service, nobody but root may name one that exists: it
/// cannot be told whose it is.
#[test]
fn hidden_processes_are_nobodys() {
    let sandbox = layout().enter();
    let syslog = Syslog::open(&sandbox);
    let alices = sandbox.command("sleep").arg("1000").user(User::Alice).spawn();
    let hide = ["-o", "remount,hidepid=2", "/proc"];
    assert!(sandbox.command("mount").args(hide).run().code() == 0);
    let ends = connect(&sandbox, "127.0.0.1", User::Alice);
    let mut talk = Talk::start(&sandbox, User::Uucp, &[], ends);
    assert!(talk.line().starts_with("220 "));
    assert_eq!(talk.ask(&format!("lock ttyS1 {}", alices.pid())), "550");
    assert!(syslog.line().contains("hidepid"));
    assert_eq!(talk.ask(&format!("lock ttyS1 {GONE}")), "200");
    let mut talk =
        Talk::start(&sandbox, User::Uucp, &[], connect(&sandbox, "127.0.0.1", User::Root));
    assert!(talk.line().starts_with("220 "));
    assert_eq!(talk.ask(&format!("lock ttyS2 {}", alices.pid())), "200");
}

/// Without netlink (older containers forbid it) the tables in `/proc/net` tell the same.
#[rstest]
fn without_netlink(#[values("127.0.0.1", "::1")] address: &str) {
    let sandbox = layout().enter();
    let alices = sandbox.command("sleep").arg("1000").user(User::Alice).spawn();
    let (client, theirs) = connect(&sandbox, address, User::Alice);
    let forbidden = ["-qq", "-o", "/tmp/trace", "-e", "inject=socket:error=EAFNOSUPPORT", LFPD];
    let process =
        sandbox.command("strace").args(forbidden).user(User::Uucp).on_connection(theirs).spawn();
    let mut talk = Talk { stream: std::io::BufReader::new(client), process };
    assert!(talk.line().starts_with("220 "));
    assert_eq!(talk.ask("lock ttyS1 1"), "550");
    assert_eq!(talk.ask(&format!("lock ttyS1 {}", alices.pid())), "200");
    let trace = String::from_utf8(sandbox.read("/tmp/trace").unwrap()).unwrap();
    assert!(trace.contains("INJECTED") && trace.contains("AF_NETLINK"), "{trace}");
}

/// On a Unix socket the kernel says who connected.
#[test]
fn over_a_unix_socket() {
    let sandbox = layout().enter();
    let path = sandbox.path("/tmp/lfpd.sock");
    let listener = UnixListener::bind(&path).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
    let alices = sandbox.command("sleep").arg("1000").user(User::Alice).spawn();
    for (pid, code) in [(alices.pid(), "200"), (1, "550"), (GONE, "200")] {
        let words = ["-", "UNIX-CONNECT:/tmp/lfpd.sock"];
        let mut client = sandbox.command("socat").args(words).user(User::Alice).spawn();
        let (theirs, _) = listener.accept().unwrap();
        let server = sandbox.command(LFPD).user(User::Uucp).on_connection(theirs).spawn();
        client.expect("220 ");
        for verb in ["lock", "unlock"] {
            client.type_in(&format!("{verb} ttyS1 {pid}\n"));
        }
        client.type_in("quit\n");
        client.expect("221 ");
        let codes: Vec<String> =
            client.output().lines().map(|line| line.chars().take(3).collect()).collect();
        assert_eq!(codes, ["220", code, code, "221"]);
        assert!(server.wait(LIMIT).code() == 0);
    }
}

/// Whoever starts the program on a pipe or terminal is the peer.
#[rstest]
fn started_by_hand(#[values(false, true)] on_terminal: bool) {
    let sandbox = layout().enter();
    let alices = sandbox.command("sleep").arg("1000").user(User::Alice).spawn();
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
fn from_another_machine() {
    let sandbox = layout().enter();
    let syslog = Syslog::open(&sandbox);
    let remote = sandbox.command("unshare").args(["--net", "sleep", "1000"]).spawn();
    let pid = remote.pid().to_string();
    let other = testbed::until(LIMIT, || {
        let [own, other] = [1, remote.pid()].map(|pid| std::fs::read_link(network(&sandbox, pid)));
        (own.unwrap() != other.unwrap()).then(|| network(&sandbox, remote.pid()))
    });
    let ip = |words: &str| {
        let end = sandbox.command("ip").args(words.split(' ')).run();
        assert!(end.code() == 0, "ip {words}: {end}");
    };
    ip(&format!("link add near type veth peer name far netns {pid}"));
    ip("addr add 192.0.2.1/24 dev near");
    ip("link set near up");
    let far = format!("--target={pid}");
    for words in ["addr add 192.0.2.2/24 dev far", "link set far up"] {
        let end = sandbox
            .command("nsenter")
            .args([far.as_str(), "--net", "ip"])
            .args(words.split(' '))
            .run();
        assert!(end.code() == 0, "{end}");
    }
    refused(&sandbox, &syslog, other.unwrap(), "192.0.2.1", "192.0.2.2");
}

/// This host's own address, but not a loopback one: from there anybody could have been sent on.
#[rstest]
#[case::v4("192.0.2.7/32", "192.0.2.7", "192.0.2.7")]
#[case::v6("2001:db8::7/128", "2001:db8::7", "2001:db8::7")]
fn from_an_own_address_that_is_not_loopback(
    #[case] cidr: &str,
    #[case] address: &str,
    #[case] shown: &str,
) {
    let sandbox = layout().enter();
    let syslog = Syslog::open(&sandbox);
    let mut words = vec!["addr", "add", cidr, "dev", "lo"];
    if cidr.contains("::") {
        // No waiting for a duplicate that cannot be.
        words.push("nodad");
    }
    assert!(sandbox.command("ip").args(words).run().code() == 0);
    let own = network(&sandbox, 1);
    refused(&sandbox, &syslog, own, address, shown);
}

#[expect(clippy::unwrap_used, reason = "a panic is how a test fails")]
fn refused(
    sandbox: &testbed::Sandbox,
    syslog: &Syslog,
    from: std::path::PathBuf,
    to: &str,
    shown: &str,
) {
    let listener = {
        let to = to.to_owned();
        inside(network(sandbox, 1), 0, move || TcpListener::bind((to.as_str(), 0)).unwrap())
    };
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
fn a_socket_on_either_descriptor_tells_who_it_is() {
    let sandbox = layout().enter();
    let alices = sandbox.command("sleep").arg("1000").user(User::Alice).spawn();
    let (client, theirs) = connect(&sandbox, "127.0.0.1", User::Alice);
    let words = ["-c", "cat | /run/test/lfpd"];
    let process = sandbox.command("sh").args(words).on_connection(theirs).spawn();
    let mut talk = Talk { stream: std::io::BufReader::new(client), process };
    assert!(talk.line().starts_with("220 "));
    assert_eq!(talk.ask("lock ttyS1 1"), "550");
    assert_eq!(talk.ask(&format!("lock ttyS1 {}", alices.pid())), "200");
}
