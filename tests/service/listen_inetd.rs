//! A real inetd that hands over its listening socket (`wait`): one daemon serves many clients,
//! ends when nobody needs it, and inetd starts the next one.

use std::net::TcpStream;

use testbed::{Client, LIMIT, Sandbox, in_network, network, peer, until};

const DONE: &str = "200 Command okay.";

fn connect(sandbox: &Sandbox) -> Client {
    let network = network(sandbox, 1);
    let connected = until(LIMIT, || {
        in_network(network.clone(), 0, || TcpStream::connect("127.0.0.1:50001").ok())
    });
    Client::new(connected.expect("inetd listens"))
}

/// How many daemons run in there.
fn daemons(sandbox: &Sandbox) -> usize {
    let end = sandbox.command("pgrep").args(["-c", "-x", "lfpd"]).run();
    end.output().trim().parse().unwrap_or(usize::MAX)
}

#[test]
#[ignore = "needs root: tests/run"]
fn one_daemon_after_the_other() {
    let inetd = peer("openbsd-inetd", "usr/sbin/inetd");
    let sandbox = Sandbox::with_lfpd().port("ttyS7").bring("inetd", inetd).enter();
    let line = "127.0.0.1:50001 stream tcp wait uucp /run/test/lfpd lfpd --idle-timeout 4\n";
    sandbox.write("/tmp/inetd.conf", line, 0o644);
    let _inetd = sandbox.command("/run/test/inetd").args(["-i", "/tmp/inetd.conf"]).spawn();
    for _ in 0..2 {
        let mut clients: Vec<Client> = (0..10).map(|_| connect(&sandbox).greeted()).collect();
        assert_eq!(daemons(&sandbox), 1);
        // A process that does not exist: the lock is stale from birth, and keeps no daemon.
        for client in &mut clients {
            assert_eq!(client.ask("lock ttyS7 99999999"), DONE);
            assert_eq!(client.ask("unlock ttyS7 99999999"), DONE);
        }
        assert!(clients.iter_mut().all(|client| client.ask("quit").starts_with("221 ")));
        let gone = until(LIMIT, || (daemons(&sandbox) == 0).then_some(()));
        assert!(gone.is_some(), "the daemon still runs");
    }
}
