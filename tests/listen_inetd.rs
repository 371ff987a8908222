//! A real inetd that hands over its listening socket (`wait`): one daemon serves many clients,
//! ends when nobody needs it, and inetd starts the next one.

#[cfg(test)]
mod daemon;
#[cfg(test)]
mod machine;

// What the daemon's own tests need besides.
#[cfg(test)]
mod conversation;

use std::net::TcpStream;

use daemon::Client;
use machine::{inside, layout, network};
use testbed::{LIMIT, Sandbox, peer, until};

const DONE: &str = "200 Command okay.";

#[expect(clippy::expect_used, reason = "a panic is how a test fails")]
fn connect(sandbox: &Sandbox) -> Client {
    let network = network(sandbox, 1);
    let connected =
        until(LIMIT, || inside(network.clone(), 0, || TcpStream::connect("127.0.0.1:50001").ok()));
    let stream = connected.expect("inetd listens");
    stream.set_read_timeout(Some(LIMIT)).expect("a time limit");
    Client::new(stream.into())
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
    let sandbox = layout().port("ttyS7").bring("inetd", inetd).enter();
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
