//! Clients that are slow, dead, many, or hostile.

use crate::fewer;
use rstest::rstest;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;
use testbed::dflockd::{Daemon, Talker, fence, in_shell, is_on_etcd, token_of, until};

#[test]
fn a_client_that_does_not_read_is_dropped_and_costs_little() {
    let daemon = Daemon::start(&["--write-timeout", "1", "--max-locks", "5000"]);
    let mut talker = daemon.talk();
    talker.take_many((0..5000 / fewer()).map(|key| format!("key-{key}")), 3600);
    let before = testbed::status_kib(daemon.pid(), "VmRSS");
    let mut deaf = daemon.talk();
    // Half a megabyte each; what the kernel takes is soon used up.
    deaf.try_say(&b"stats\n_\n_\n".repeat(500 * fewer()));
    // Others are served meanwhile.
    assert_eq!(talker.ask("ping", "_", "_"), "ok");
    daemon.logged("write timeout");
    assert!(
        testbed::status_kib(daemon.pid(), "VmRSS") < before + 4096,
        "memory grows with unread replies"
    );
    daemon.until_stats("\"connections\":2,");
}

#[test]
fn a_flood_of_connects_leaves_nothing_behind() {
    let daemon = Daemon::start(&[]);
    daemon.until_stats("\"connections\":1,");
    let files = daemon.open_files();
    for round in 0..20 {
        let clients: Vec<TcpStream> =
            (0..100).map(|_| TcpStream::connect(daemon.address).unwrap()).collect();
        if round % 2 == 0 {
            for mut client in &clients {
                client.write_all(b"l\nk\n100\n").unwrap();
            }
        }
    }
    daemon.until_stats("\"connections\":1,\"locks\":[],\"semaphores\":[]");
    until("descriptors are closed", || daemon.open_files() <= files);
}

#[test]
fn ten_thousand_wait_for_one_key_in_order() {
    // etcd puts those who ask at the same moment into an order of its own.
    let (step, many) = if is_on_etcd() { (1, 100) } else { (1000, 10_000) };
    let daemon = Daemon::start(&[]);
    let mut holder = daemon.talk();
    let token = holder.take("k", "0 600");
    let mut waiters: Vec<TcpStream> = Vec::new();
    for place in 0..many {
        // From several addresses: one has not enough ports on every system.
        let mut stream = TcpStream::connect(daemon.address).unwrap();
        stream.write_all(b"l\nk\n600\n").unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        waiters.push(stream);
        let told = place + 1;
        if told / step * step == told {
            daemon.until_stats(&format!("\"waiters\":{}", place + 1));
        }
    }
    assert_eq!(holder.ask("r", "k", &token), "ok");
    let mut last = 0;
    for mut stream in waiters {
        let mut reply = [0; 39];
        stream.read_exact(&mut reply).unwrap();
        let next = fence(token_of(std::str::from_utf8(&reply).unwrap()).unwrap());
        assert!(next > last, "out of order");
        last = next;
        // Leaving hands it to the next.
    }
    daemon.until_stats("\"locks\":[],");
}

/// All of them vanish at once; the holder is not disturbed and nothing is left.
#[test]
fn waiters_that_vanish_leave_the_queue() {
    // With etcd each place in the queue is two writes, one after the other, and on a busy machine those of many take
    // longer than a client is kept waiting for etcd.
    let many = if is_on_etcd() { 200 } else { 2000 };
    let daemon = Daemon::start(&[]);
    let mut holder = daemon.talk();
    let token = holder.take("k", "0 600");
    let waiters: Vec<TcpStream> = (0..many)
        .map(|_| {
            let mut stream = TcpStream::connect(daemon.address).unwrap();
            stream.write_all(b"l\nk\n600\nping\n_\n_\n").unwrap();
            stream
        })
        .collect();
    daemon.until_stats(&format!("\"waiters\":{many}"));
    drop(waiters);
    daemon.until_stats("\"waiters\":0");
    assert_eq!(holder.ask("r", "k", &token), "ok");
}

/// A client has sent many requests behind one that waits. The server sees the end of the connection behind them all the
/// same; if the client has only closed its sending side, all requests are answered.
#[rstest]
fn the_end_is_seen_behind_many_pipelined_requests(#[values(true, false)] leaves: bool) {
    let daemon = Daemon::start(&[]);
    let mut holder = daemon.talk();
    let token = holder.take("k", "0 600");
    let mut waiter = daemon.talk();
    waiter.say(b"l\nk\n600\n");
    waiter.say(&b"ping\n_\n_\n".repeat(3000));
    if !leaves {
        waiter.half_close();
    }
    daemon.until_stats("\"waiters\":1");
    if leaves {
        drop(waiter);
        return daemon.until_stats("\"waiters\":0");
    }
    assert_eq!(holder.ask("r", "k", &token), "ok");
    assert!(waiter.line().starts_with("ok "));
    assert!((0..3000).all(|_| waiter.line() == "ok"));
    assert!(waiter.is_closed());
}

#[test]
fn without_descriptors_it_waits_instead_of_spinning() {
    let daemon = Daemon::run(&mut in_shell("ulimit -n 32; exec \"$0\" --port 0"));
    let mut clients: Vec<Talker> = (0..60).map(|_| daemon.talk()).collect();
    daemon.logged("no descriptors left");
    let before = daemon.cpu_ticks();
    std::thread::sleep(Duration::from_secs(1));
    assert!(daemon.cpu_ticks() - before < 30, "it spins");
    // Those inside are served; when they go, the others come in.
    assert_eq!(clients[0].ask("ping", "_", "_"), "ok");
    let mut outside = clients.pop().unwrap();
    drop(clients);
    assert_eq!(outside.ask("ping", "_", "_"), "ok");
}

#[test]
fn connections_over_the_cap_are_closed_without_a_byte() {
    let daemon = Daemon::start(&["--max-connections", "3"]);
    let mut inside: Vec<Talker> = (0..3).map(|_| daemon.talk()).collect();
    for talker in &mut inside {
        assert_eq!(talker.ask("ping", "_", "_"), "ok");
    }
    assert!(daemon.talk().is_closed());
    daemon.logged("max connections reached");
    inside.pop();
    until("a seat is free", || {
        let mut talker = daemon.talk();
        talker.try_say(b"ping\n_\n_\n") && talker.line() == "ok"
    });
}

#[test]
fn one_address_cannot_take_all_connections() {
    let daemon = Daemon::start(&["--max-connections-per-ip", "2", "--host", "0.0.0.0"]);
    let address = |last: u8| ([127, 0, 0, last], daemon.address.port()).into();
    // All of 127/8 is this machine; who connects to an address of it comes from 127.0.0.1.
    let mut inside = [Talker::connect(address(1)), Talker::connect(address(1))];
    for talker in &mut inside {
        assert_eq!(talker.ask("ping", "_", "_"), "ok");
    }
    assert!(Talker::connect(address(1)).is_closed());
    daemon.logged("max connections per address reached");
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&std::net::SocketAddr::from(([127, 0, 0, 9], 0)).into()).unwrap();
    socket
        .connect(&std::net::SocketAddr::from(([127, 0, 0, 1], daemon.address.port())).into())
        .unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut other = TcpStream::from(socket);
    other.write_all(b"ping\n_\n_\n").unwrap();
    let mut reply = [0; 3];
    other.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"ok\n");
}

/// The holder of very many keys goes: the server serves others meanwhile. Its own processor time counts, which programs
/// beside it do not change.
#[test]
fn the_end_of_a_great_holder_does_not_stop_the_server() {
    let daemon = Daemon::start(&["--max-locks", "200000"]);
    let mut talker = daemon.talk();
    talker.take_many((0..100_000 / fewer()).map(|key| format!("k{key}")), 3600);
    let mut other = daemon.talk();
    let before = daemon.cpu_ticks();
    drop(talker);
    assert_eq!(other.ask("ping", "_", "_"), "ok");
    let used = Duration::from_millis(10 * (daemon.cpu_ticks() - before));
    assert!(used < Duration::from_secs(10), "{used:?}");
    assert!(other.ask("l", "k999", "60").starts_with("ok "));
}

#[test]
fn hostile_bytes_are_answered_or_ended() {
    let daemon = Daemon::start(&["--read-timeout", "1"]);
    let garbage: [&[u8]; 6] = [
        b"\0\0\0\n\0\n\0\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n\n\n",
        &[b'\n'; 3],
        &[0xff; 4096],
        b"l\nk\n99999999999999999999999999 1\n",
    ];
    for bytes in garbage {
        let mut talker = daemon.talk();
        talker.say(bytes);
        assert_eq!(talker.line(), "error");
    }
    assert!(daemon.log().iter().all(|line| line.starts_with("time=")));
    // It reads for one second, and a busy machine may need longer.
    until("it serves", || daemon.talk().ask("ping", "_", "_") == "ok");
}

/// A server with nothing to do does nothing, however many leases run.
#[test]
fn held_keys_cost_no_work() {
    let daemon = Daemon::start(&["--max-locks", "200000"]);
    let mut talker = daemon.talk();
    talker.take_many((0..20_000 / fewer()).map(|key| format!("k{key}")), 3600);
    let work = || {
        let before = daemon.cpu_ticks();
        std::thread::sleep(Duration::from_secs(1));
        daemon.cpu_ticks() - before
    };
    // The best of several: what it had to do before may take a busy machine a while.
    assert!((0..5).any(|_| work() <= 5), "it works at rest");
}
