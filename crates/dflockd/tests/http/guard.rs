//! Which clients may ask: the secret, names on loopback, TLS.

use crate::site::{Site, to_end};
use rstest::rstest;
use std::io::Write as _;
use std::process::Command;
use std::time::{Duration, Instant};
use testbed::dflockd::pem;
use testbed::{LIMIT, until};

const SECRET: &[&str] = &["--auth-token", "sesame-open"];

#[rstest]
#[case::page("/", 200)]
#[case::style("/page.css", 200)]
#[case::script("/page.js", 200)]
#[case::icon("/icon.svg", 200)]
#[case::health("/health", 200)]
#[case::ready("/ready", 200)]
#[case::stats("/v1/stats", 401)]
#[case::holders("/v1/holders", 401)]
#[case::holders_with_bad_query("/v1/holders?x=1", 401)]
#[case::metrics("/metrics", 401)]
#[case::nowhere("/nowhere", 404)]
fn without_the_secret(#[case] path: &str, #[case] want: u16) {
    let site = Site::start(SECRET);
    let _holder = {
        let mut talker = site.daemon.talk();
        assert_eq!(talker.ask("auth", "_", "sesame-open"), "ok");
        talker.take("a-key-of-mine", "0");
        talker
    };
    for wrong in ["", "Authorization: Bearer sesame-opem\r\n", "Authorization: sesame-open\r\n"] {
        for method in ["GET", "HEAD"] {
            let answer = site.ask(method, path, wrong);
            assert_eq!(answer.status, want, "{wrong}");
            let challenge = (want == 401).then_some("Bearer");
            assert_eq!(answer.header("www-authenticate"), challenge);
            assert!(!answer.text().contains("a-key-of-mine") && !answer.text().contains("sesame"));
        }
    }
}

#[rstest]
#[case("/v1/stats")]
#[case("/v1/holders")]
#[case("/metrics")]
fn with_the_secret(#[case] path: &str) {
    let site = Site::start(SECRET);
    for right in ["Bearer sesame-open", "bearer  sesame-open "] {
        let answer = site.ask("GET", path, &format!("Authorization: {right}\r\n"));
        assert_eq!(answer.status, 200);
        assert!(!answer.text().contains("sesame"));
    }
}

/// Nobody is told whether it was nearly right, and nobody can try often.
#[test]
fn guessing_by_http_is_slow() {
    let site = Site::start(SECRET);
    let start = Instant::now();
    let wrong = ["Bearer x", "Bearer sesame-ope", "Basic c2VzYW1lOm9wZW4="];
    let answers =
        wrong.map(|shown| site.ask("GET", "/v1/stats", &format!("Authorization: {shown}\r\n")));
    assert!(start.elapsed() >= 3 * Duration::from_millis(100));
    for answer in answers {
        assert_eq!((answer.status, answer.text()), (401, "{\"error\":\"unauthorized\"}"));
    }
    site.daemon.logged("level=WARN msg=\"auth failed on the HTTP port\" address=127.0.0.1");
    let numbers = site.ask("GET", "/metrics", "Authorization: Bearer sesame-open\r\n");
    assert!(numbers.text().contains("\ndflockd_auth_failures_total 3\n"), "{}", numbers.text());
}

#[test]
fn the_log_has_no_secret_of_http() {
    let site = Site::start(&[SECRET, &["--debug"]].concat());
    site.ask("GET", "/v1/stats", "Authorization: Bearer sesame-open\r\n");
    site.ask("GET", "/v1/stats", "Authorization: Bearer sesame-opem\r\n");
    site.ask("GET", "/v1/stats?sesame-open", "");
    assert!(!site.daemon.log().join("\n").contains("sesame"));
}

fn status_for(site: &Site, head: &str) -> u16 {
    site.say(format!("{head}\r\nConnection: close\r\n\r\n").as_bytes()).unwrap().status
}

/// A page of a stranger's, whose name was made to point here, gets nothing.
#[rstest]
#[case::stranger("GET /v1/holders HTTP/1.1\r\nHost: evil.example", 421)]
#[case::stranger_in_http_1_0("GET /health HTTP/1.0\r\nHost: evil.example", 421)]
#[case::stranger_in_the_target("GET http://evil.example/health HTTP/1.1\r\nHost: localhost", 421)]
#[case::none("GET /health HTTP/1.1\r\nX: y", 400)]
#[case::two("GET /health HTTP/1.1\r\nHost: localhost\r\nHost: localhost", 400)]
#[case::localhost("GET /health HTTP/1.1\r\nHost: localhost:6389", 200)]
#[case::none_in_http_1_0("GET /health HTTP/1.0\r\nX: y", 200)]
#[case::in_the_target("GET http://localhost/health HTTP/1.1\r\nHost: localhost", 200)]
fn names_on_loopback(#[case] head: &str, #[case] want: u16) {
    assert_eq!(status_for(&Site::start(&[]), head), want);
}

/// On the network names are the administrator's affair.
#[test]
fn names_on_the_network() {
    let site = Site::start(&["--http-host", "0.0.0.0"]);
    assert_eq!(status_for(&site, "GET /health HTTP/1.1\r\nHost: locks.example"), 200);
    assert_eq!(status_for(&site, "GET /health HTTP/1.1\r\nX: y"), 400);
}

/// What curl prints of a path, with these options.
fn https(site: &Site, words: &[&str]) -> String {
    let (path, options) = words.split_first().unwrap();
    let url = format!("https://localhost:{}{path}", site.http.port());
    let output = Command::new("curl")
        .args(["-sS", "--max-time", "20", "--cacert", &pem("ca.pem"), "--noproxy", "*", &url])
        .args(options)
        .output()
        .expect("this test needs curl: run .ci/install");
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A client that never finishes its handshake keeps its seat until the time for reading is over, or until this.
#[test]
#[ignore = "needs programs: tests/run"]
fn an_administrator_ends_a_handshake() {
    let (cert, key) = (pem("cert.pem"), pem("key.pem"));
    let mut secret = tempfile::NamedTempFile::new().unwrap();
    secret.write_all(b"admin").unwrap();
    let tls = ["--tls-cert", &cert, "--tls-key", &key, "--read-timeout", "600"];
    let admin = ["--admin-token-file", secret.path().to_str().unwrap()];
    let site = Site::start(&[&tls[..], &admin].concat());
    let mut talker = site.daemon.talk();
    // The beginning of a record that never comes to its end.
    talker.say(&[0x16, 0x03, 0x01, 0x02, 0x00]);
    let words = ["-X", "POST", "-H", "Authorization: Bearer admin"];
    let kick = || {
        (1..9).any(|connection| {
            let path = format!("/v1/admin/kick?connection={connection}");
            https(&site, &[&[path.as_str()], &words[..]].concat()).contains("true")
        })
    };
    assert_eq!(until(LIMIT, || kick().then_some(())), Some(()));
    assert!(talker.is_closed());
}

/// A client that says nothing, and one that never finishes its handshake, keep their connections for ten seconds.
#[test]
fn a_handshake_that_does_not_end_is_given_up() {
    let (cert, key) = (pem("cert.pem"), pem("key.pem"));
    let site = Site::start(&["--tls-cert", &cert, "--tls-key", &key]);
    let start = Instant::now();
    let (silent, mut unfinished) = (site.connect(), site.connect());
    // The beginning of a record that never comes to its end.
    unfinished.write_all(&[0x16, 0x03, 0x01, 0x02, 0x00]).unwrap();
    for (name, stream) in [("silent", silent), ("unfinished", unfinished)] {
        assert!(to_end(stream).is_empty(), "{name}");
        assert!(start.elapsed() >= Duration::from_secs(9), "{name}: {:?}", start.elapsed());
    }
}

/// The secret must not go over the network in the clear where a certificate is at hand.
#[test]
#[ignore = "needs programs: tests/run"]
fn with_a_certificate_it_is_https() {
    let (cert, key) = (pem("cert.pem"), pem("key.pem"));
    let site = Site::start(&["--tls-cert", &cert, "--tls-key", &key]);
    assert_eq!(https(&site, &["/health"]), "{\"status\":\"ok\"}");
    // In the clear it says nothing but this.
    let plain = site.get("/health");
    assert_eq!((plain.status, plain.text()), (400, "{\"error\":\"this_port_speaks_https\"}"));
}

/// A browser that does not trust the certificate, for example. A flood of them does not fill the log, which gets one entry
/// in ten seconds.
#[test]
#[ignore = "needs programs: tests/run"]
fn failed_handshakes_are_logged_now_and_then() {
    let (cert, key) = (pem("cert.pem"), pem("key.pem"));
    let site = Site::start(&["--tls-cert", &cert, "--tls-key", &key]);
    let begun = Instant::now();
    for _ in 0..3 {
        let url = format!("https://localhost:{}/health", site.http.port());
        let status = Command::new("curl").args(["-s", &url]).status().unwrap();
        assert_eq!(status.code(), Some(60), "curl refuses the certificate");
    }
    site.daemon.logged("TLS handshake on the HTTP port failed");
    let log = site.daemon.log();
    let said = log.iter().filter(|line| line.contains("TLS handshake on the HTTP port failed"));
    let most = 1 + begun.elapsed().as_secs() / 10;
    assert!((1..=most).contains(&(said.count() as u64)), "{log:?}");
}
