//! Locks over HTTP where several servers are one service: any of them takes the requests of any session, and a change of
//! the leader ends the sessions, but no hold.

use nix::sys::signal::Signal;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::Command;
use testbed::dflockd::etcd::Cluster;
use testbed::dflockd::{Daemon, free_port, http, pem, program_on, until};

struct Site {
    leader: Daemon,
    standby: Daemon,
    _cluster: Cluster,
}

impl Site {
    fn start(arguments: &[&str]) -> Self {
        let cluster = Cluster::start(&[]);
        let store = cluster.store();
        let start = || {
            let port = free_port().to_string();
            let mut command = program_on(&store);
            Daemon::run(command.args(["--port", "0", "--http-port", &port]).args(arguments))
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

/// The status and the body of a request under TLS, with these options of curl.
fn curl(server: SocketAddr, path: &str, options: &[&str]) -> String {
    let output = Command::new("curl")
        .args(["-sS", "--max-time", "20", "--noproxy", "*", "--cacert", &pem("ca.pem")])
        .args([
            "--write-out",
            "\n%{http_code}",
            &format!("https://localhost:{}{path}", server.port()),
        ])
        .args(options)
        .output()
        .expect("this test needs curl: run .ci/install");
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let (body, status) = text.rsplit_once('\n').unwrap();
    format!("{status} {body}").trim_end().to_owned()
}

const TAKE: &str = r#"{"acquire_timeout_s":0,"lease_ttl_s":600}"#;
const WAIT: &str = r#"{"acquire_timeout_s":600}"#;

#[test]
#[ignore = "needs programs: tests/run"]
fn a_session_is_known_to_every_server() {
    let site = Site::start(&[]);
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
    let site = Site::start(&[]);
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

/// The server that is asked decides who may ask, whichever has the locks. What it says to the leader about its client is
/// its own word, not the client's.
#[test]
#[ignore = "needs programs: tests/run"]
fn a_standby_under_tls_checks_its_clients() {
    let [mut full, mut prefixes] = [(); 2].map(|()| tempfile::NamedTempFile::new().unwrap());
    full.write_all(b"sesame\n").unwrap();
    prefixes.write_all(b"web/ tulip\n").unwrap();
    let (cert, key) = (pem("cert.pem"), pem("key.pem"));
    let [full, prefixes] = [&full, &prefixes].map(|file| file.path().to_str().unwrap());
    let tls = ["--tls-cert", &cert, "--tls-key", &key];
    let secrets = ["--auth-token-file", full, "--auth-prefix-file", prefixes];
    let site = Site::start(&[&tls[..], &secrets].concat());
    let [leader, standby] = [&site.leader, &site.standby].map(Daemon::http_address);
    let take = |server, path: &str, options: &[&str]| {
        curl(server, path, &[&["-d", TAKE], options].concat())
    };
    let (sesame, tulip) = ("Authorization: Bearer sesame", "Authorization: Bearer tulip");
    let web = "/v1/locks/web%2Fa?session=none";
    for (path, options, want) in [
        (web, &[][..], "401 {\"error\":\"unauthorized\""),
        (web, &["-H", "Authorization: Bearer sesam"], "401 {\"error\":\"unauthorized\""),
        ("/v1/locks/db?session=none", &["-H", tulip], "401 {\"error\":\"unauthorized\""),
        (web, &["-H", sesame, "-H", "Host: evil.example"], "421 {\"error\":\"wrong_host\""),
        (
            web,
            &["-H", sesame, "-H", "Origin: https://evil.example"],
            "403 {\"error\":\"wrong_origin\"",
        ),
    ] {
        let answer = take(standby, path, options);
        assert!(answer.starts_with(want), "{path} {options:?}: {answer}");
    }
    let long = format!("{TAKE}{}", " ".repeat(4096));
    let refused = curl(standby, web, &["-H", sesame, "-d", &long]);
    assert!(refused.starts_with("413 {\"error\":\"body_refused\""), "{refused}");
    let plain = http(standby, "GET /v1/locks/k HTTP/1.1");
    assert!(plain.contains("{\"error\":\"this_port_speaks_https\""), "{plain}");
    assert!(curl(leader, "/v1/locks/web%2Fa", &["-H", sesame]).contains("\"held\":0"));
    // Words of a server to the leader are not a client's to say.
    let draining = ["-H", tulip, "-H", "draining: 1", "-H", "client-address: 192.0.2.1"];
    let token = word(&take(standby, web, &draining), "token");
    let begun = curl(
        standby,
        "/v1/sessions",
        &["-X", "POST", "-H", sesame, "-H", "client-address: 192.0.2.1"],
    );
    let session = format!("X-Dflockd-Session: {}", word(&begun, "session_id"));
    let at_leader = ["-H", sesame, "-H", &session, "-H", "draining: 1"];
    assert!(take(leader, "/v1/locks/db", &at_leader).starts_with("200 "));
    let seen = curl(leader, "/v1/locks/db", &["-H", sesame]);
    assert!(seen.contains("\"address\":\"127.0.0.1\""), "{seen}");
    let named = format!("{{\"token\":\"{token}\"}}");
    for (server, verb, want) in
        [(leader, "renew", "200 {\"remaining_s\":33}"), (standby, "release", "204")]
    {
        let path = format!("/v1/locks/web%2Fa/{verb}?session=none");
        assert_eq!(curl(server, &path, &["-H", tulip, "-d", &named]), want);
    }
}
