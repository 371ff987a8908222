//! Every way to start the service for a TCP port: each real super-server, set up with the file that this project ships for
//! it (only the program's path differs), and the service's own `--listen`. Each holds all conversations of
//! `tests/transcripts`, and the memo's scenario typed into the real telnet.

use std::fs;
use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::path::Path;

use rstest::rstest;
use testbed::{
    Client, LFPD, LIMIT, Process, Sandbox, TRANSCRIPTS, TcpSocket, Transcript, User, in_network,
    network, peer, until,
};

const DONE: &str = "200 Command okay.";

/// A shipped file as it is, but with the program where it is here.
fn shipped(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{file}: {error}"));
    assert!(text.contains("/usr/sbin/lfpd"), "{file} names the program");
    text.replace("/usr/sbin/lfpd", LFPD)
}

/// The super-servers, as an administrator would start them.
fn start<'a>(name: &str, sandbox: &'a Sandbox) -> Process<'a> {
    match name {
        "openbsd-inetd" | "inetutils-inetd" => {
            sandbox.write("/tmp/inetd.conf", shipped("inetd.conf.example"), 0o644);
            let foreground = if name == "openbsd-inetd" { "-i" } else { "-d" };
            sandbox.command("/run/test/inetd").args([foreground, "/tmp/inetd.conf"]).spawn()
        }
        "xinetd" => {
            sandbox.write("/tmp/xinetd.conf", shipped("xinetd.d/lfpd"), 0o644);
            let words = ["-dontfork", "-f", "/tmp/xinetd.conf"];
            sandbox.command("/run/test/inetd").args(words).spawn()
        }
        "systemd-socket-activate" => {
            let words = ["--listen=127.0.0.1:50001", "--accept", "--inetd", LFPD];
            sandbox.command("systemd-socket-activate").args(words).user(User::Uucp).spawn()
        }
        "tcpsvd" => {
            // -l: it would ask a name server for the name, and there is none here.
            let words = ["-l", "localhost", "-u", "uucp", "127.0.0.1", "50001", LFPD];
            sandbox.command("tcpsvd").args(words).spawn()
        }
        "tcpserver" => {
            let words = ["-u", "10", "-g", "10", "127.0.0.1", "50001", LFPD];
            sandbox.command("tcpserver").args(words).spawn()
        }
        "socat" => {
            let listen = "TCP-LISTEN:50001,bind=127.0.0.1,reuseaddr,fork";
            let exec = format!("EXEC:{LFPD},nofork,su=uucp");
            sandbox.command("socat").args([listen, &exec]).spawn()
        }
        "--listen" => {
            let words = ["--listen", "127.0.0.1:50001"];
            sandbox.command(LFPD).args(words).user(User::Uucp).spawn()
        }
        // One daemon for many clients, which inetd starts again when there is none (`wait`).
        "inetd-wait" => {
            let line =
                "127.0.0.1:50001 stream tcp wait uucp /run/test/lfpd lfpd --idle-timeout 9\n";
            sandbox.write("/tmp/inetd.conf", line, 0o644);
            sandbox.command("/run/test/inetd").args(["-i", "/tmp/inetd.conf"]).spawn()
        }
        other => panic!("{other}"),
    }
}

/// A machine with a port, and with this super-server.
fn machine(name: &str) -> Sandbox {
    let program = match name {
        "openbsd-inetd" | "inetd-wait" => Some(("openbsd-inetd", "usr/sbin/inetd")),
        "inetutils-inetd" => Some((name, "usr/sbin/inetutils-inetd")),
        "xinetd" => Some((name, "usr/sbin/xinetd")),
        _ => None,
    };
    let layout = Sandbox::with_lfpd().port("ttyS1");
    match program {
        Some((package, file)) => layout.bring("inetd", peer(package, file)).enter(),
        None => layout.enter(),
    }
}

/// The super-server, when it listens. Only this host can even connect.
fn listening<'a>(name: &str, sandbox: &'a Sandbox) -> Process<'a> {
    let mut server = start(name, sandbox);
    let up = until(LIMIT, || (!listeners(sandbox).is_empty() || !server.runs()).then_some(()));
    assert!(up.is_some() && server.runs(), "{name} does not listen: {}", server.output());
    assert_eq!(listeners(sandbox), ["0100007F"], "{name}");
    server
}

fn connect(sandbox: &Sandbox) -> TcpStream {
    let connected = || TcpStream::connect("127.0.0.1:50001").ok();
    until(LIMIT, || in_network(network(sandbox, 1), 0, connected)).expect("a listener")
}

/// The addresses at which the sandbox listens on the port, as `/proc/net/tcp` and `tcp6` write.
fn listeners(sandbox: &Sandbox) -> Vec<String> {
    let tables = ["/proc/1/net/tcp", "/proc/1/net/tcp6"]
        .map(|path| String::from_utf8(sandbox.read(path).unwrap_or_default()).unwrap_or_default());
    let sockets = tables.iter().flat_map(|table| TcpSocket::of_table(table));
    sockets
        .filter(|it| it.port == 50001 && it.state == TcpSocket::LISTEN)
        .map(|it| it.address)
        .collect()
}

/// All at once, and in pieces that end in the middle of lines.
#[rstest]
#[ignore = "needs root: tests/run"]
fn every_conversation_is_held_by_every_server(
    #[values(
        "openbsd-inetd",
        "inetd-wait",
        "inetutils-inetd",
        "xinetd",
        "systemd-socket-activate",
        "tcpsvd",
        "tcpserver",
        "socat",
        "--listen"
    )]
    name: &str,
) {
    let sandbox = machine(name);
    let server = listening(name, &sandbox);
    for (conversation, text) in TRANSCRIPTS {
        // The sandbox's first process: alive, and root's as the client is.
        let transcript = Transcript::read_at(text, "testbed", 1);
        let sent = transcript.sent();
        for piece in [sent.len(), 7] {
            let mut stream = connect(&sandbox);
            for bytes in sent.chunks(piece) {
                // After QUIT the service does not listen any more.
                let _ = stream.write_all(bytes);
            }
            let _ = stream.shutdown(Shutdown::Write);
            let said = Client::new(stream).rest();
            let told = || format!("{conversation} in pieces of {piece}: {}", server.output());
            assert_eq!(said, transcript.answered(sent.len()), "{}", told());
            // What one round leaves behind would be in the way of the next.
            for file in sandbox.locks() {
                fs::remove_file(sandbox.path("/run/lock").join(file)).unwrap();
            }
        }
    }
}

#[rstest]
#[ignore = "needs namespaces: tests/run"]
fn the_memos_scenario_typed_into_telnet(
    #[values(
        "openbsd-inetd",
        "inetutils-inetd",
        "xinetd",
        "systemd-socket-activate",
        "tcpsvd",
        "tcpserver",
        "socat",
        "--listen"
    )]
    name: &str,
) {
    let sandbox = machine(name);
    let mut server = listening(name, &sandbox);

    // Twice, since nothing may be left that hinders the next client.
    for _ in 0..2 {
        let words = ["127.0.0.1", "50001"];
        let mut telnet =
            sandbox.command("telnet").args(words).user(User::Alice).on_terminal().spawn();
        telnet.expect("Connected to 127.0.0.1.");
        telnet.expect("Escape character is '^]'.");
        telnet.expect("220 testbed Lock File Server (Version rxtx-1.5-9) ready");
        telnet.type_in("lock /dev/ttyS1 1234\r");
        telnet.expect("200 Command okay.");
        assert_eq!(sandbox.read("/run/lock/LCK..ttyS1").as_deref(), Some(&b"      1234\n"[..]));
        telnet.type_in("unlock /dev/ttyS1 1234\r");
        let released = until(LIMIT, || sandbox.locks().is_empty().then_some(()));
        assert!(released.is_some(), "{:?}", sandbox.locks());
        telnet.type_in("quit\r");
        telnet.expect("221 Thank you for using the Lock File service on testbed");
        telnet.expect("Connection closed by foreign host.");
        assert_eq!(telnet.output().matches("200 Command okay.").count(), 2, "{}", telnet.output());
    }
    assert!(server.runs(), "{name} ended: {}", server.output());
}

/// The service behind inetd knows who is at the other end: a user's own pid, and not root's.
#[rstest]
#[ignore = "needs namespaces: tests/run"]
fn behind_inetd_pids_have_owners(#[values("openbsd-inetd", "xinetd")] name: &str) {
    let sandbox = machine(name);
    let _server = listening(name, &sandbox);
    let alices = sandbox.command("sleep").arg("1000").user(User::Alice).spawn();
    let words = ["127.0.0.1", "50001"];
    let mut telnet = sandbox.command("telnet").args(words).user(User::Alice).on_terminal().spawn();
    telnet.expect("220 ");
    telnet.type_in("lock ttyS2 1\r");
    telnet.expect("550 : Permission denied.");
    telnet.type_in(&format!("lock ttyS2 {}\r", alices.pid()));
    telnet.expect("200 Command okay.");
    telnet.type_in("quit\r");
    telnet.expect("Connection closed by foreign host.");
    assert_eq!(sandbox.locks(), ["LCK..ttyS2"]);
}

/// How many daemons run in there.
fn daemons(sandbox: &Sandbox) -> usize {
    let end = sandbox.command("pgrep").args(["-c", "-x", "lfpd"]).run();
    end.output().trim().parse().unwrap_or(usize::MAX)
}

/// One daemon serves many clients, ends when nobody needs it, and inetd starts the next one.
#[test]
#[ignore = "needs root: tests/run"]
fn one_daemon_after_the_other() {
    let sandbox = machine("inetd-wait");
    let _inetd = listening("inetd-wait", &sandbox);
    for _ in 0..2 {
        let mut clients: Vec<Client> =
            (0..10).map(|_| Client::new(connect(&sandbox)).greeted()).collect();
        assert_eq!(daemons(&sandbox), 1);
        // A process that does not exist: the lock is stale from birth, and keeps no daemon.
        for client in &mut clients {
            assert_eq!(client.ask("lock ttyS1 99999999"), DONE);
            assert_eq!(client.ask("unlock ttyS1 99999999"), DONE);
        }
        assert!(clients.iter_mut().all(|client| client.ask("quit").starts_with("221 ")));
        let gone = until(LIMIT, || (daemons(&sandbox) == 0).then_some(()));
        assert!(gone.is_some(), "the daemon still runs");
    }
}
