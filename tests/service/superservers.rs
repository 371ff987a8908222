//! Every way to start the service for a TCP port: each real super-server, set up with the file that this project ships for
//! it (only the program's path differs), and the service's own `--listen`. Each holds all conversations of
//! `tests/transcripts`; the memo's scenario is also typed into the real telnet.

use std::io::Write;
use std::net::TcpStream;

use rstest::rstest;
use testbed::{
    Client, LFPD, LIMIT, Process, Sandbox, TRANSCRIPTS, TcpSocket, Transcript, User, comes,
    in_network, network, peer, shipped, until,
};

use crate::wire::DONE;

/// A shipped file as it is, but with the program where it is here.
fn config(file: &str) -> String {
    let text = shipped(file);
    assert!(text.contains("/usr/sbin/lfpd"), "{file} names the program");
    text.replace("/usr/sbin/lfpd", LFPD)
}

/// The super-servers, as an administrator would start them.
fn start<'a>(name: &str, sandbox: &'a Sandbox) -> Process<'a> {
    const CONFIG: &str = "/tmp/inetd.conf";
    const XCONFIG: &str = "/tmp/xinetd.conf";
    // One daemon for many clients, which inetd starts again when there is none (`wait`).
    let waits = "127.0.0.1:50001 stream tcp wait uucp /run/test/lfpd lfpd --idle-timeout 9\n";
    let is_waiting = name == "inetd-wait";
    let inetd = if is_waiting { waits.to_owned() } else { config("inetd.conf.example") };
    sandbox.write(CONFIG, inetd, 0o644);
    sandbox.write(XCONFIG, config("xinetd.d/lfpd"), 0o644);
    let exec = format!("EXEC:{LFPD},nofork,su=uucp");
    let (user, words): (_, &[&str]) = match name {
        "openbsd-inetd" | "inetd-wait" => (User::Root, &["/run/test/inetd", "-i", CONFIG]),
        "inetutils-inetd" => (User::Root, &["/run/test/inetd", "-d", CONFIG]),
        "xinetd" => (User::Root, &["/run/test/inetd", "-dontfork", "-f", XCONFIG]),
        "systemd-socket-activate" => {
            (User::Uucp, &[name, "--listen=127.0.0.1:50001", "--accept", "--inetd", LFPD])
        }
        // -l: it would ask a name server for the name, and there is none here.
        "tcpsvd" => {
            (User::Root, &[name, "-l", "localhost", "-u", "uucp", "127.0.0.1", "50001", LFPD])
        }
        "tcpserver" => (User::Root, &[name, "-u", "10", "-g", "10", "127.0.0.1", "50001", LFPD]),
        "socat" => (User::Root, &[name, "TCP-LISTEN:50001,bind=127.0.0.1,reuseaddr,fork", &exec]),
        "--listen" => (User::Uucp, &[LFPD, name, "127.0.0.1:50001"]),
        other => panic!("{other}"),
    };
    sandbox.command(words[0]).args(&words[1..]).user(user).spawn()
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

fn connect(sandbox: &Sandbox) -> Client {
    let connected = || TcpStream::connect("127.0.0.1:50001").ok();
    let stream = until(LIMIT, || in_network(network(sandbox, 1), 0, connected));
    Client::new(stream.expect("a listener"))
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
    let _server = listening(name, &sandbox);
    for (conversation, text) in TRANSCRIPTS {
        // The sandbox's first process: alive, and root's as the client is.
        let transcript = Transcript::read_at(text, "testbed", 1);
        for piece in [usize::MAX, 7] {
            let mut client = connect(&sandbox);
            for bytes in transcript.sent().chunks(piece) {
                // After QUIT the service does not listen any more.
                let _ = client.stream.get_mut().write_all(bytes);
            }
            client.end_input();
            let said = client.rest();
            assert_eq!(said, transcript.answered(usize::MAX), "{conversation} by {piece} bytes");
            // What one round leaves behind would be in the way of the next.
            sandbox.shell(User::Root, "rm -f /run/lock/*").expect(0);
        }
    }
}

#[rstest]
#[ignore = "needs namespaces: tests/run"]
fn the_memos_scenario_typed_into_telnet(#[values("openbsd-inetd", "--listen")] name: &str) {
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
        assert!(comes(|| sandbox.locks().is_empty()), "released");
        telnet.type_in("quit\r");
        telnet.expect("221 Thank you for using the Lock File service on testbed");
        telnet.expect("Connection closed by foreign host.");
        assert_eq!(telnet.output().matches("200 Command okay.").count(), 2, "{}", telnet.output());
    }
    assert!(server.runs(), "{name} ended: {}", server.output());
}

/// How many daemons run in there.
fn daemons(sandbox: &Sandbox) -> usize {
    let processes = std::fs::read_dir(sandbox.path("/proc")).unwrap().flatten();
    let names = processes.map(|it| std::fs::read_to_string(it.path().join("comm")));
    names.filter(|name| name.as_ref().is_ok_and(|it| it == "lfpd\n")).count()
}

/// One daemon serves many clients, ends when nobody needs it, and inetd starts the next one.
#[test]
#[ignore = "needs root: tests/run"]
fn one_daemon_after_the_other() {
    let sandbox = machine("inetd-wait");
    let _inetd = listening("inetd-wait", &sandbox);
    for _ in 0..2 {
        let mut clients: Vec<Client> = (0..10).map(|_| connect(&sandbox).greeted()).collect();
        assert_eq!(daemons(&sandbox), 1);
        // A process that does not exist: the lock is stale from birth, and keeps no daemon.
        for client in &mut clients {
            assert_eq!(client.ask("lock ttyS1 99999999"), DONE);
            assert_eq!(client.ask("unlock ttyS1 99999999"), DONE);
        }
        assert!(clients.iter_mut().all(|client| client.ask("quit").starts_with("221 ")));
        assert!(comes(|| daemons(&sandbox) == 0), "the end of the daemon");
    }
}
