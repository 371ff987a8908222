//! Locks over HTTP where several servers are one service: any of them takes the requests of any session, and a change of
//! the leader ends the sessions, but no hold.

use nix::sys::signal::Signal;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use testbed::dflockd::etcd::Cluster;
use testbed::dflockd::{Daemon, free_port, http, program_on, until};

struct Site {
    leader: Daemon,
    standby: Daemon,
    _cluster: Cluster,
}

impl Site {
    fn start() -> Self {
        let cluster = Cluster::start(&[]);
        let store = cluster.store();
        let start = || {
            let port = free_port().to_string();
            let mut command = program_on(&store);
            Daemon::run(command.args(["--port", "0", "--http-port", &port]))
        };
        let leader = start();
        let standby = start();
        standby.logged("linked to the leader");
        Self { leader, standby, _cluster: cluster }
    }
}

fn head(path: &str, session: &str, body: &str) -> String {
    let session = match session {
        "" => String::new(),
        id => format!("\r\nX-Dflockd-Session: {id}"),
    };
    format!("POST {path} HTTP/1.1{session}\r\nContent-Length: {}", body.len())
}

/// The status and the body. No session is an empty one.
fn post(server: SocketAddr, path: &str, session: &str, body: &str) -> String {
    let mut stream = begin(server, &head(path, session, body), body);
    let mut text = String::new();
    let _it_may_be_cut = stream.read_to_string(&mut text);
    let status = text.split(' ').nth(1).unwrap_or_default().to_owned();
    let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    format!("{status} {body}").trim_end().to_owned()
}

fn begin(server: SocketAddr, head: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server).unwrap();
    let request = format!("{head}\r\nHost: localhost\r\nConnection: close\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

fn session(server: SocketAddr) -> String {
    let answer = post(server, "/v1/sessions", "", "");
    word(&answer, "session_id")
}

/// The text of a member.
fn word(answer: &str, name: &str) -> String {
    let value = answer.split(&format!("\"{name}\":\"")).nth(1);
    value.unwrap_or_else(|| panic!("no {name}: {answer}")).split('"').next().unwrap().to_owned()
}

const TAKE: &str = r#"{"acquire_timeout_s":0,"lease_ttl_s":600}"#;
const WAIT: &str = r#"{"acquire_timeout_s":600}"#;

#[test]
#[ignore = "needs programs: tests/run"]
fn a_session_is_known_to_every_server() {
    let site = Site::start();
    let [leader, standby] = [&site.leader, &site.standby].map(Daemon::http_address);
    let id = session(standby);
    let token = word(&post(leader, "/v1/locks/k", &id, TAKE), "token");
    let body = format!("{{\"token\":\"{token}\",\"lease_ttl_s\":700}}");
    assert_eq!(post(standby, "/v1/locks/k/renew", &id, &body), "200 {\"remaining_s\":700}");
    let other = session(leader);
    assert_eq!(post(standby, "/v1/locks/k", &other, TAKE), "200 {\"status\":\"timeout\"}");
    // The address of a client is that of its connection, whatever it says itself.
    let seen = http(standby, "GET /v1/locks/k HTTP/1.1\r\nclient-address: 192.0.2.1");
    assert!(seen.contains("\"address\":\"127.0.0.1\""), "{seen}");
    // A client that leaves gives up its place, and so does one whose server is killed.
    let head = head("/v1/locks/k", &other, WAIT);
    let waiting = begin(standby, &head, WAIT);
    site.leader.until_stats("\"waiters\":1");
    waiting.shutdown(Shutdown::Both).unwrap();
    site.leader.until_stats("\"waiters\":0");
    let _waiting = begin(standby, &head, WAIT);
    site.leader.until_stats("\"waiters\":1");
    site.standby.signal(Signal::SIGKILL);
    site.leader.until_stats("\"waiters\":0");
    assert_eq!(post(leader, "/v1/locks/k", &other, TAKE), "200 {\"status\":\"timeout\"}");
    assert_eq!(post(leader, "/v1/locks/k/renew", &id, &body), "200 {\"remaining_s\":700}");
}

#[test]
#[ignore = "needs programs: tests/run"]
fn a_change_of_the_leader_ends_sessions_and_no_hold() {
    let site = Site::start();
    let standby = site.standby.http_address();
    let id = session(standby);
    let token = word(&post(standby, "/v1/locks/k", &id, TAKE), "token");
    let cron = word(&post(standby, "/v1/locks/cron?session=none", "", TAKE), "token");
    let (waiter, place) = (session(standby), standby);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| post(place, "/v1/locks/k", &waiter, WAIT));
        site.leader.until_stats("\"waiters\":1");
        site.leader.signal(Signal::SIGKILL);
        // The client is told that its wait is over; it does not know of the change.
        let answer = waiting.join().unwrap();
        assert!(answer.starts_with("503 ") || answer.starts_with("410 "), "{answer}");
    });
    let mut last = String::new();
    until("the other one leads", || {
        last = post(standby, "/v1/locks/k", &id, TAKE);
        !last.starts_with("503 ")
    });
    assert_eq!(last, "410 {\"error\":\"session_gone\"}");
    let next = session(standby);
    assert_eq!(post(standby, "/v1/locks/k", &next, TAKE), "200 {\"status\":\"timeout\"}");
    let body = format!("{{\"token\":\"{token}\",\"lease_ttl_s\":500}}");
    assert_eq!(post(standby, "/v1/locks/k/renew", &next, &body), "200 {\"remaining_s\":500}");
    let body = format!("{{\"token\":\"{token}\"}}");
    assert_eq!(post(standby, "/v1/locks/k/release", &next, &body), "204");
    let body = format!("{{\"token\":\"{cron}\"}}");
    assert_eq!(post(standby, "/v1/locks/cron/release", &next, &body), "204");
}
