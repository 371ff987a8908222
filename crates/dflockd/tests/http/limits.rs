//! What one address may take of HTTP, and which web pages may use it.

use crate::site::{Site, ask_on, to_end};
use serde_json::json;
use std::time::Instant;
use testbed::dflockd::{PATIENCE, until};

/// One more may come for each second that goes by, also on a busy machine.
#[test]
fn requests_of_an_address_are_limited() {
    let site = Site::start(&["--http-rate-limit-per-ip", "1", "--http-rate-limit-burst", "5"]);
    let begun = Instant::now();
    let statuses: Vec<u16> = (0..8).map(|_| site.get("/v1/holders").status).collect();
    let allowed = statuses.iter().filter(|status| **status == 200).count();
    let most = 5 + usize::try_from(begun.elapsed().as_secs()).unwrap();
    assert!((5..=most).contains(&allowed), "{statuses:?}");
    let refused = || {
        let answer = site.get("/v1/holders");
        (answer.status == 429).then_some(answer)
    };
    let refused = testbed::until(PATIENCE, refused).expect("one too many");
    assert_eq!(refused.json(), json!({"error": "rate_limited"}));
    until("a session is refused", || site.post("/v1/sessions", "", "").status == 429);
    until("what is nowhere is refused", || site.get("/nowhere").status == 429);
    // Probes of a load balancer are always answered, and locks of the other port are not concerned.
    assert_eq!((site.get("/health").status, site.get("/ready").status), (200, 200));
    assert_eq!(site.daemon.talk().ask("ping", "_", "_"), "ok");
    until("a request is allowed again", || site.get("/v1/holders").status == 200);
}

#[test]
fn connections_of_an_address_are_limited() {
    let site = Site::start(&["--http-max-connections-per-ip", "2"]);
    let mut kept = [site.connect(), site.connect()];
    for stream in &mut kept {
        assert_eq!(ask_on(stream, "/health").unwrap().status, 200);
    }
    assert!(to_end(site.connect()).is_empty(), "a third one is closed");
    let [mut stays, goes] = kept;
    drop(goes);
    until("another one may come", || ask_on(&mut site.connect(), "/health").is_ok());
    assert_eq!(ask_on(&mut stays, "/health").unwrap().status, 200);
}

const ALLOW: &str = "access-control-allow-origin";

#[test]
fn pages_of_allowed_origins() {
    let site =
        Site::start(&["--http-cors-allowed-origins", "http://a.example, http://b.example:8080"]);
    let preflight = "Origin: http://a.example\r\nAccess-Control-Request-Method: POST\r\n";
    let answer = site.ask("OPTIONS", "/v1/locks/k", preflight);
    assert_eq!((answer.status, answer.text()), (204, ""));
    assert_eq!(answer.header(ALLOW), Some("http://a.example"));
    assert_eq!(answer.header("vary"), Some("Origin"));
    for (name, values) in [
        ("access-control-allow-methods", ["GET", "POST", "DELETE"]),
        ("access-control-allow-headers", ["Authorization", "X-Dflockd-Session", "X-Dflockd-Name"]),
    ] {
        let allowed = answer.header(name).unwrap();
        assert!(values.iter().all(|value| allowed.contains(value)), "{allowed}");
    }
    let take = |origin: &str| {
        let header = format!("Origin: {origin}\r\n");
        site.post("/v1/locks/k?session=none", &header, r#"{"acquire_timeout_s":0}"#)
    };
    let taken = take("http://b.example:8080");
    assert_eq!((taken.status, taken.header(ALLOW)), (200, Some("http://b.example:8080")));
    // Errors may be read, too.
    let wrong = site.post("/v1/sessions/x/ping", "Origin: http://a.example\r\n", "");
    assert_eq!((wrong.status, wrong.header(ALLOW)), (410, Some("http://a.example")));
    let strange = take("http://evil.example");
    assert_eq!((strange.status, strange.header(ALLOW)), (403, None));
    let strange = preflight.replace("a.example", "evil.example");
    assert_eq!(site.ask("OPTIONS", "/v1/locks/k", &strange).header(ALLOW), None);
    assert_eq!(site.get("/v1/holders").header(ALLOW), None);
}

#[test]
fn pages_of_all_origins() {
    let site = Site::start(&["--http-cors-allowed-origins", "*"]);
    let answer = site.post("/v1/sessions", "Origin: http://any.example\r\n", "");
    assert_eq!(
        (answer.status, answer.header(ALLOW), answer.header("vary")),
        (200, Some("*"), None)
    );
}

/// Without the option, no page of another origin is told anything.
#[test]
fn no_page_by_default() {
    let site = Site::start(&[]);
    let preflight = "Origin: http://a.example\r\nAccess-Control-Request-Method: POST\r\n";
    let answer = site.ask("OPTIONS", "/v1/sessions", preflight);
    assert_eq!((answer.status, answer.header(ALLOW)), (405, None));
}
