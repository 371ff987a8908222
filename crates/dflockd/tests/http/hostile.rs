//! Clients that send malformed requests, are slow or many, never read, or are hostile.

use crate::site::{Site, answer_of, ask_on, to_end};
use rstest::rstest;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::{Duration, Instant};
use testbed::dflockd::{Daemon, free_port, in_shell, is_on_etcd, until};

/// As in the program: connections that have made no request.
const CONNECTIONS: usize = 64;
/// All HTTP connections of a server with 300 descriptors.
const ALL_CONNECTIONS: usize = CONNECTIONS + (300 - 128) / 4;

/// A server with 300 descriptors.
fn small_site() -> Site {
    let port = free_port();
    let mut command = in_shell("ulimit -n 300; exec \"$0\" --port 0 --http-port \"$1\"");
    let daemon = Daemon::run(command.arg(port.to_string()));
    daemon.logged("HTTP listening");
    Site { daemon, http: ([127, 0, 0, 1], port).into() }
}

/// A status, or 0 where the connection may also just end.
#[rstest]
#[case::garbage(b"\0\xff\0\xff\r\n\r\n", 400)]
#[case::lock_protocol(b"l\nk\n0\n", 400)]
#[case::tls_hello(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400)]
#[case::http_2(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 0)]
#[case::no_version(b"GET /health\r\n\r\n", 400)]
#[case::other_version(b"GET /health HTTP/3.0\r\nHost: localhost\r\n\r\n", 0)]
#[case::blank_in_target(b"GET /he alth HTTP/1.1\r\nHost: localhost\r\n\r\n", 400)]
#[case::header_without_colon(b"GET /health HTTP/1.1\r\nHost localhost\r\n\r\n", 400)]
#[case::blank_in_header_name(b"GET /health HTTP/1.1\r\nHost : localhost\r\n\r\n", 400)]
#[case::nul_in_header(b"GET /health HTTP/1.1\r\nHost: local\0host\r\n\r\n", 400)]
#[case::bad_length(b"GET /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n", 400)]
#[case::two_lengths(
    b"GET /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    400
)]
#[case::unknown_coding(
    b"GET /health HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: nonsense\r\n\r\n",
    400
)]
#[case::connect(b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n", 404)]
#[case::star(b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 404)]
fn malformed_requests(#[case] bytes: &[u8], #[case] want: u16) {
    let site = Site::start(&[]);
    let mut stream = site.connect();
    stream.write_all(bytes).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let answer = String::from_utf8(to_end(stream)).unwrap();
    let status = answer.split(' ').nth(1).map_or(0, |word| word.parse().unwrap());
    assert!(status == want || want == 0 && status != 200, "{answer}");
    assert_eq!(site.get("/health").status, 200);
}

#[rstest]
#[case::length("Content-Length: 4\r\n", "body", 413)]
#[case::great_length("Content-Length: 99999999999\r\n", "body", 413)]
#[case::chunks("Transfer-Encoding: chunked\r\n", "4\r\nbody\r\n0\r\n\r\n", 413)]
#[case::expected("Content-Length: 4\r\nExpect: 100-continue\r\n", "", 413)]
#[case::both("Content-Length: 4\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n", 0)]
#[case::none("Content-Length: 0\r\n", "", 200)]
fn a_request_with_a_body_is_refused(#[case] headers: &str, #[case] body: &str, #[case] want: u16) {
    let site = Site::start(&[]);
    let second = "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let request =
        format!("GET /v1/stats HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n{body}{second}");
    let mut stream = site.connect();
    stream.write_all(request.as_bytes()).unwrap();
    let answers = String::from_utf8(to_end(stream)).unwrap();
    let count = answers.matches("HTTP/1.1 ").count();
    if want == 200 {
        assert_eq!(count, 2, "{answers}");
    } else {
        // What follows is not taken for a request.
        assert_eq!(count, 1, "{answers}");
        assert!(!answers.contains("{\"status\":\"ok\"}"), "{answers}");
    }
    assert!(want == 0 || answers.starts_with(&format!("HTTP/1.1 {want} ")), "{answers}");
}

#[rstest]
#[case::one_long("X: ", 20_000, 431)]
#[case::endless("X: ", 5_000_000, 431)]
#[case::just_fits("X: ", 15_000, 200)]
fn the_head_is_bounded(#[case] header: &str, #[case] length: usize, #[case] want: u16) {
    let site = Site::start(&[]);
    // Pages of the program itself, which come in as it runs, are no cost of the head.
    let before = testbed::status_kib(site.daemon.pid(), "RssAnon");
    let filler = "x".repeat(length);
    let head = format!(
        "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{header}{filler}\r\n\r\n"
    );
    let mut stream = site.connect();
    let sent = stream.write_all(head.as_bytes());
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    let answer = String::from_utf8(answer).unwrap();
    // A client that continues to send may find the connection reset before it has read the answer.
    let is_cut = sent.is_err() || read.is_err();
    let wanted = answer.starts_with(&format!("HTTP/1.1 {want} "));
    assert!(wanted || (want != 200 && is_cut && answer.is_empty()), "{answer}");
    assert!(testbed::status_kib(site.daemon.pid(), "RssAnon") < before + 2048);
    assert_eq!(site.get("/health").status, 200);
}

#[test]
fn the_number_of_headers_is_bounded() {
    let site = Site::start(&[]);
    // Beside Host and Connection.
    let ask = |count: usize| site.ask("GET", "/health", &"X: y\r\n".repeat(count)).status;
    assert_eq!((ask(62), ask(63)), (200, 431));
}

/// Silence, an unfinished head, a head byte by byte, silence after an answer, and an answer that
/// nobody takes: all of them end, and none before the ten seconds of the manual.
#[test]
fn slow_clients_are_let_go_in_time() {
    let site = Site::start(&["--max-locks", "8000"]);
    // The longest keys there are, of signs that need six times the room.
    let _holder = site.hold((0..8000).map(|key| format!("{}{key:04}", "<".repeat(252))));
    let before = testbed::status_kib(site.daemon.pid(), "VmRSS");
    let start = Instant::now();
    let silent = site.connect();
    let mut unfinished = site.connect();
    unfinished.write_all(b"GET /health HTTP/1.1\r\nHost: loc").unwrap();
    let mut kept = site.connect();
    kept.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut deaf = site.connect();
    deaf.write_all(b"GET /v1/stats HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut dripping = site.connect();
    let drips = std::thread::spawn(move || {
        dripping.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: ").unwrap();
        (0..200).any(|_| {
            // The pause is what makes such a client.
            std::thread::sleep(Duration::from_millis(300));
            dripping.write_all(b"x").is_err()
        })
    });
    // The deaf one's answer is twelve megabytes; it is not kept for it.
    let is_steady = || {
        let growth = testbed::status_kib(site.daemon.pid(), "VmRSS").saturating_sub(before);
        // What comes from etcd in one piece, its whole table now and then, is larger than any answer.
        assert!(is_on_etcd() || growth < 4096, "{growth} KiB");
    };
    is_steady();
    for (name, stream) in [("silent", silent), ("unfinished", unfinished), ("kept", kept)] {
        to_end(stream);
        assert!(start.elapsed() >= Duration::from_secs(9), "{name}: {:?}", start.elapsed());
    }
    assert!(drips.join().unwrap(), "the dripping one stays");
    until("the deaf one is let go", || {
        site.get("/metrics").text().contains("\ndflockd_http_connections 1\n")
    });
    let mut rest = Vec::new();
    let _ = deaf.read_to_end(&mut rest);
    assert!(rest.len() < 9_000_000, "it got all: {}", rest.len());
    is_steady();
}

/// A body that stops, and one that comes byte by byte: both are given up after ten seconds, and nothing is held.
#[test]
fn a_slow_body_is_given_up() {
    let site = Site::start(&[]);
    let start = Instant::now();
    let begin = |key: &str| {
        let mut stream = site.connect();
        let head = format!(
            "POST /v1/locks/{key}?session=none HTTP/1.1\r\nHost: localhost\r\nContent-Length: 400\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(b"{\"acquire_timeout_s\":0}").unwrap();
        stream
    };
    let (stopped, mut dripping) = (begin("stopped"), begin("dripping"));
    let answers = dripping.try_clone().unwrap();
    let drips = std::thread::spawn(move || {
        (0..200).any(|_| {
            // The pause is what makes such a client.
            std::thread::sleep(Duration::from_millis(300));
            dripping.write_all(b" ").is_err()
        })
    });
    for (name, stream) in [("stopped", stopped), ("dripping", answers)] {
        let answer = answer_of(stream);
        assert_eq!(answer.status, 408, "{name}");
        assert_eq!(answer.json()["error"], "client_canceled", "{name}");
        assert!(start.elapsed() >= Duration::from_secs(9), "{name}: {:?}", start.elapsed());
    }
    assert!(drips.join().unwrap(), "the connection of the dripping one is closed");
    assert_eq!(site.holders()["holders"], 0);
}

/// Endless half-open connections push out each other: a client that asks gets an answer, the locks are served, and
/// nothing piles up.
#[test]
fn a_flood_of_half_open_connections_keeps_nobody_out() {
    let site = Site::start(&[]);
    let mut locks = site.daemon.talk();
    assert_eq!(locks.ask("ping", "_", "_"), "ok");
    let files = site.daemon.open_files();
    let mut flood = Vec::new();
    for round in 0..10 {
        for place in 0..100 {
            let mut stream = site.connect();
            if place % 2 == 0 {
                let _ = stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ");
            }
            flood.push(stream);
        }
        assert_eq!(site.get("/health").status, 200, "round {round}");
        assert_eq!(locks.ask("ping", "_", "_"), "ok", "round {round}");
        until("descriptors are given back", || site.daemon.open_files() <= files + CONNECTIONS + 1);
    }
    let metrics = site.get("/metrics");
    let pushed = metrics
        .text()
        .lines()
        .find_map(|line| line.strip_prefix("dflockd_http_connections_pushed_out_total "));
    assert!(pushed.unwrap().parse::<usize>().unwrap() >= 1000 - CONNECTIONS);
    drop(flood);
    until("all are gone", || {
        site.get("/metrics").text().contains("\ndflockd_http_connections 1\n")
    });
    until("no descriptor is left", || site.daemon.open_files() <= files + 1);
}

/// A client takes its answer slowly, and another one was slow with its next request, while silent ones come and go.
#[test]
fn an_answer_under_way_is_not_cut_off() {
    let site = Site::start(&["--max-locks", "8000"]);
    let _holder = site.hold((0..8000).map(|key| format!("{}{key:04}", "<".repeat(252))));
    let (mut slow, mut idle) = (site.connect(), site.connect());
    assert_eq!(ask_on(&mut idle, "/health").expect("it is served").status, 200);
    let request = "GET /v1/stats HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    slow.write_all(request.as_bytes()).unwrap();
    let mut first = [0; 1000];
    slow.read_exact(&mut first).unwrap();
    // Each of these comes in after those before it.
    let mut flood: Vec<_> = (0..CONNECTIONS * 2).map(|_| site.connect()).collect();
    flood.drain(..CONNECTIONS).for_each(|pushed_out| drop(to_end(pushed_out)));
    assert_eq!(ask_on(&mut idle, "/health").expect("it is still there").status, 200);
    let answer = to_end(slow);
    assert!(answer.ends_with(b"\r\n0\r\n\r\n"), "{}", answer.len());
}

/// The same while others ask without the secret, which is answered after a pause, or for little.
#[rstest]
#[case::a_wrong_secret(
    "GET /v1/stats HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer x\r\n\r\n"
)]
#[case::no_page("GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n")]
#[case::a_body("GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n")]
#[case::an_open_page("GET /page.js HTTP/1.1\r\nHost: localhost\r\n\r\n")]
#[case::little_by_right(
    "GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer sesame\r\n\r\n"
)]
fn short_requests_cut_off_no_long_answer(#[case] request: &str) {
    let mut secret = tempfile::NamedTempFile::new().unwrap();
    secret.write_all(b"sesame").unwrap();
    let path = secret.path().to_str().unwrap();
    let site = Site::start(&["--auth-token-file", path, "--max-locks", "8000"]);
    let mut holder = site.daemon.talk();
    assert_eq!(holder.ask("auth", "_", "sesame"), "ok");
    // The longest keys there are, of signs that need six times the room.
    holder.take_many((0..8000).map(|key| format!("{}{key:04}", "<".repeat(252))), 3600);
    let mut slow = site.connect();
    let wanted = "GET /v1/stats HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer sesame\r\n";
    slow.write_all(format!("{wanted}Connection: close\r\n\r\n").as_bytes()).unwrap();
    slow.read_exact(&mut [0; 1000]).unwrap();
    let mut flood = Vec::new();
    for _ in 0..CONNECTIONS * 2 {
        let mut stream = site.connect();
        // It may have been closed already.
        let _ = stream.write_all(request.as_bytes());
        flood.push(stream);
    }
    // All have come in.
    let accepted = format!("\ndflockd_http_connections_accepted_total {}\n", CONNECTIONS * 2 + 2);
    let metrics = site.ask("GET", "/metrics", "Authorization: Bearer sesame\r\n");
    assert!(metrics.text().contains(&accepted), "{}", metrics.text());
    let answer = to_end(slow);
    assert!(answer.ends_with(b"\r\n0\r\n\r\n"), "{}", answer.len());
}

/// A client that asks again and again keeps its connection while silent ones come and go.
#[test]
fn a_connection_in_use_is_not_pushed_out() {
    let site = small_site();
    let mut used = site.connect();
    let mut flood = Vec::new();
    for _ in 0..10 {
        flood.extend((0..CONNECTIONS / 2).map(|_| site.connect()));
        let all = format!("\ndflockd_http_connections_accepted_total {}\n", flood.len() + 1);
        until("all have come in", || {
            let answer = ask_on(&mut used, "/metrics").expect("it is still there");
            answer.text().contains(&all)
        });
    }
    // One that does not ask any more has to go for others that have asked, long before its silence is too long; in the
    // best of several, since a machine that stands still is as silent.
    assert!((0..5).any(|_| {
        let mut idle = site.connect();
        assert_eq!(ask_on(&mut idle, "/health").expect("a new one is served").status, 200);
        let since = Instant::now();
        flood.extend((0..ALL_CONNECTIONS).map(|_| {
            let mut asked = site.connect();
            assert_eq!(ask_on(&mut asked, "/health").expect("a new one is served").status, 200);
            asked
        }));
        to_end(idle);
        since.elapsed() < Duration::from_secs(9)
    }));
}
