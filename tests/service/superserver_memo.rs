//! The memo's scenario, typed into the real telnet against the real super-servers, each set up
//! with the file that this project ships for it (only the program's path differs).

use std::fs;
use std::path::Path;

use rstest::rstest;
use testbed::{LFPD, LIMIT, Process, Sandbox, User, peer, until};

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
        other => panic!("{other}"),
    }
}

/// The addresses at which the sandbox listens on the port, as `/proc/net/tcp` and `tcp6` write.
fn listeners(sandbox: &Sandbox) -> Vec<String> {
    let tables = ["/proc/1/net/tcp", "/proc/1/net/tcp6"]
        .map(|path| String::from_utf8(sandbox.read(path).unwrap_or_default()).unwrap_or_default());
    let rows = tables.iter().flat_map(|table| table.lines().skip(1));
    rows.filter_map(|row| {
        let words: Vec<&str> = row.split_whitespace().collect();
        let (address, port) = words.get(1)?.split_once(':')?;
        (port == "C351" && *words.get(3)? == "0A").then(|| address.to_owned())
    })
    .collect()
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
        "socat"
    )]
    name: &str,
) {
    let layout = match name {
        "openbsd-inetd" => Sandbox::with_lfpd().bring("inetd", peer(name, "usr/sbin/inetd")),
        "inetutils-inetd" => {
            Sandbox::with_lfpd().bring("inetd", peer(name, "usr/sbin/inetutils-inetd"))
        }
        "xinetd" => Sandbox::with_lfpd().bring("inetd", peer(name, "usr/sbin/xinetd")),
        _ => Sandbox::with_lfpd(),
    };
    let sandbox = layout.port("ttyS1").enter();
    let mut server = start(name, &sandbox);
    let up = until(LIMIT, || (!listeners(&sandbox).is_empty() || !server.runs()).then_some(()));
    assert!(up.is_some() && server.runs(), "{name} does not listen: {}", server.output());
    // Only this host can even connect.
    assert_eq!(listeners(&sandbox), ["0100007F"], "{name}");

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
    let file = if name == "xinetd" { "usr/sbin/xinetd" } else { "usr/sbin/inetd" };
    let sandbox = Sandbox::with_lfpd().bring("inetd", peer(name, file)).enter();
    let mut server = start(name, &sandbox);
    let up = until(LIMIT, || (!listeners(&sandbox).is_empty() || !server.runs()).then_some(()));
    assert!(up.is_some() && server.runs(), "{name} does not listen: {}", server.output());
    let alices = sandbox.command("sleep").arg("1000").user(User::Alice).spawn();
    let words = ["127.0.0.1", "50001"];
    let mut telnet = sandbox.command("telnet").args(words).user(User::Alice).on_terminal().spawn();
    telnet.expect("220 ");
    telnet.type_in("lock ttyS1 1\r");
    telnet.expect("550 : Permission denied.");
    telnet.type_in(&format!("lock ttyS1 {}\r", alices.pid()));
    telnet.expect("200 Command okay.");
    telnet.type_in("quit\r");
    telnet.expect("Connection closed by foreign host.");
    assert_eq!(sandbox.locks(), ["LCK..ttyS1"]);
}
