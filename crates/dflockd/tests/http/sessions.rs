//! Sessions: how they begin and end, how many there may be, and who may use them.

use crate::site::{Answer, Site, answer_of, token};
use nix::sys::signal::Signal;
use serde_json::json;
use std::io::Write;
use std::time::{Duration, Instant};
use tempfile::NamedTempFile;
use testbed::dflockd::until;

fn is_error(answer: &Answer, status: u16, word: &str) {
    assert_eq!((answer.status, answer.json()["error"].as_str()), (status, Some(word)));
}

#[test]
fn a_session_begins_and_ends() {
    let site = Site::start(&["--http-session-idle-timeout", "17"]);
    let begun = site.post("/v1/sessions", "", "").json();
    let id = begun["session_id"].as_str().unwrap();
    assert!(
        id.len() == 32 && id.bytes().all(|it| it.is_ascii_digit() || (b'a'..=b'f').contains(&it))
    );
    assert_eq!((&begun["idle_timeout_s"], begun.as_object().unwrap().len()), (&json!(17), 2));
    let session = site.session();
    assert_ne!(session.id, id);
    // Each is a connection.
    assert_eq!(site.get("/v1/stats").json()["connections"], 2);
    let ping = format!("/v1/sessions/{id}/ping");
    assert_eq!((site.post(&ping, "", "").status, site.post(&ping, "", "").text()), (204, ""));
    session.take("k");
    session.take("j");
    assert_eq!(session.end().status, 204);
    // What it had is free when it is answered.
    assert_eq!(site.holders()["holders"], 0);
    is_error(&session.end(), 410, "session_gone");
    let taken = session.post("/v1/locks/k", &json!({"acquire_timeout_s": 0}));
    is_error(&taken, 410, "session_gone");
    assert_eq!(site.get("/v1/stats").json()["connections"], 1);
}

/// As many clients do with each request, whether it has members or not.
#[test]
fn an_empty_object_is_no_body() {
    let site = Site::start(&[]);
    let begun = site.post("/v1/sessions", "Content-Type: application/json\r\n", "{}");
    assert_eq!(begun.status, 200, "{}", begun.text());
    let path = format!("/v1/sessions/{}", begun.json()["session_id"].as_str().unwrap());
    assert_eq!(site.post(&format!("{path}/ping"), "", " {} ").status, 204);
    assert_eq!(answer_of(site.send("DELETE", &path, "", "{}")).status, 204);
}

/// A wait that is open, and another one that stands behind it.
#[test]
fn the_end_of_a_session_ends_its_waits() {
    let site = Site::start(&[]);
    let [holder, session] = [site.session(), site.session()];
    holder.take("k");
    let waits = [(); 2].map(|()| session.begin("/v1/locks/k", &json!({"acquire_timeout_s": 600})));
    site.daemon.until_stats("\"waiters\":1");
    // Other requests do not wait for it.
    let other = session.take("other");
    let renewed = session.post("/v1/locks/other/renew", &json!({"token": other}));
    assert_eq!(renewed.status, 200);
    assert_eq!(session.end().status, 204);
    for wait in waits {
        is_error(&answer_of(wait), 410, "session_gone");
    }
    let seen = site.holders();
    assert_eq!((&seen["holders"], &seen["waiters"]), (&json!(1), &json!(0)));
}

/// A session has one place in a line at a time; a second wait begins when the first is over.
#[test]
fn waits_of_a_session_come_one_after_the_other() {
    let site = Site::start(&[]);
    let [holder, session] = [site.session(), site.session()];
    let [k, j] = [holder.take("k"), holder.take("j")];
    let first = session.begin("/v1/locks/k", &json!({"acquire_timeout_s": 600}));
    site.daemon.until_stats("\"waiters\":1");
    let second = session.begin("/v1/locks/j", &json!({"acquire_timeout_s": 600}));
    let free = |key: &str, token: &str| {
        let path = format!("/v1/locks/{key}/release");
        assert_eq!(holder.post(&path, &json!({"token": token})).status, 204);
    };
    free("j", &j);
    free("k", &k);
    for answer in [first, second] {
        assert_eq!(answer_of(answer).json()["status"], "ok");
    }
}

/// Silence of twice the time that clients are told; requests, pings and a long wait are no silence.
#[test]
fn a_silent_session_ends() {
    let site = Site::start(&["--http-session-idle-timeout", "1"]);
    let [silent, waiting, pinged] = [site.session(), site.session(), site.session()];
    let begun = Instant::now();
    silent.take("k");
    let wait = waiting.begin("/v1/locks/k", &json!({"acquire_timeout_s": 600}));
    let ping = format!("/v1/sessions/{}/ping", pinged.id);
    until("the holder is silent for too long", || {
        assert_eq!(site.post(&ping, "", "").status, 204);
        site.get("/v1/locks/k").json()["waiters"] == 0
    });
    assert!(begun.elapsed() >= Duration::from_secs(2), "{:?}", begun.elapsed());
    // The lease was much longer.
    assert_eq!(answer_of(wait).json()["status"], "ok");
    is_error(&silent.end(), 410, "session_gone");
    until("all are silent", || site.get("/v1/stats").json()["connections"] == 0);
    assert_eq!(site.holders()["holders"], 0);
    is_error(&waiting.end(), 410, "session_gone");
}

/// A wait is longer than a session may be silent.
#[test]
fn a_session_lasts_as_long_as_its_wait() {
    let site = Site::start(&["--http-session-idle-timeout", "1"]);
    let _holder = {
        let mut talker = site.daemon.talk();
        talker.take("k", "0 60");
        talker
    };
    let session = site.session();
    let late = session.post("/v1/locks/k", &json!({"acquire_timeout_s": 4}));
    assert_eq!(late.json(), json!({"status": "timeout"}));
    assert_eq!(session.end().status, 204);
}

#[test]
fn an_administrator_ends_a_session() {
    let mut secret = NamedTempFile::new().unwrap();
    secret.write_all(b"admin").unwrap();
    let site = Site::start(&["--admin-token-file", secret.path().to_str().unwrap()]);
    let [holder, waiter] = [site.session(), site.session()];
    holder.take("k");
    let waiting = waiter.begin("/v1/locks/k", &json!({"acquire_timeout_s": 600}));
    site.daemon.until_stats("\"waiters\":1");
    let seen = site.get("/v1/locks/k").json();
    let kick = |who: &serde_json::Value| {
        let path = format!("/v1/admin/kick?connection={}", who["connection"]);
        site.ask("POST", &path, "Authorization: Bearer admin\r\n").status
    };
    assert_eq!(kick(&seen["queue"][0]), 200);
    is_error(&answer_of(waiting), 410, "session_gone");
    assert_eq!(kick(&seen["holders"][0]), 200);
    assert_eq!(site.holders()["holders"], 0);
    is_error(&holder.end(), 410, "session_gone");
}

#[test]
fn caps_on_sessions() {
    let site = Site::start(&["--http-max-sessions", "3", "--http-max-sessions-per-ip", "2"]);
    let [one, _two] = [site.session(), site.session()];
    is_error(&site.post("/v1/sessions", "", ""), 503, "max_sessions_per_ip");
    assert_eq!(one.end().status, 204);
    site.session();
    let site = Site::start(&["--http-max-sessions", "1"]);
    let one = site.session();
    is_error(&site.post("/v1/sessions", "", ""), 503, "max_sessions");
    // Clients of the other port have a limit of their own.
    assert_eq!(site.daemon.talk().ask("ping", "_", "_"), "ok");
    assert_eq!(one.end().status, 204);
    site.session();
}

#[test]
fn connections_have_a_cap_of_their_own() {
    let site = Site::start(&["--max-connections", "1"]);
    let [_one, _two] = [site.session(), site.session()];
    let mut talker = site.daemon.talk();
    assert_eq!(talker.ask("ping", "_", "_"), "ok");
    assert!(site.daemon.talk().is_closed());
}

#[test]
fn secrets_and_prefixes() {
    let [mut full, mut prefixes] = [(); 2].map(|()| NamedTempFile::new().unwrap());
    full.write_all(b"sesame").unwrap();
    prefixes.write_all(b"web/ tulip\n").unwrap();
    let site = Site::start(&[
        "--auth-token-file",
        full.path().to_str().unwrap(),
        "--auth-prefix-file",
        prefixes.path().to_str().unwrap(),
    ]);
    let bearer = |secret: &str| format!("Authorization: Bearer {secret}\r\n");
    let begun = Instant::now();
    is_error(&site.post("/v1/sessions", "", ""), 401, "unauthorized");
    let refused = site.post("/v1/sessions", &bearer("wrong"), "");
    is_error(&refused, 401, "unauthorized");
    assert_eq!(refused.header("www-authenticate"), Some("Bearer"));
    assert!(begun.elapsed() >= Duration::from_millis(200), "guessing is slow");
    let take = |key: &str, secret: &str| {
        let id = site.post("/v1/sessions", &bearer(secret), "").json()["session_id"].to_string();
        let headers = format!("{}X-Dflockd-Session: {}\r\n", bearer(secret), id.trim_matches('"'));
        site.post(&format!("/v1/locks/{key}"), &headers, r#"{"acquire_timeout_s":0}"#)
    };
    token(&take("db", "sesame"));
    token(&take("web%2Fa", "tulip"));
    is_error(&take("db2", "tulip"), 401, "unauthorized");
    for (key, secret, status) in
        [("web%2Fa", "tulip", 200), ("db", "tulip", 401), ("db", "sesame", 200), ("db", "", 401)]
    {
        let path = format!("/v1/locks/{key}");
        assert_eq!(site.ask("GET", &path, &bearer(secret)).status, status, "{key} {secret}");
    }
    // The number of a session is no key.
    let session = site.post("/v1/sessions", &bearer("tulip"), "").json()["session_id"].to_string();
    let path = format!("/v1/sessions/{}", session.trim_matches('"'));
    is_error(&site.post(&format!("{path}/ping"), "", ""), 401, "unauthorized");
    assert_eq!(site.post(&format!("{path}/ping"), &bearer("tulip"), "").status, 204);
    assert_eq!(site.ask("DELETE", &path, &bearer("tulip")).status, 204);
    assert_eq!(site.get("/v1/openapi.json").status, 200);
}

/// Those of the server that was asked, whichever has the locks.
#[test]
fn waits_end_when_the_server_shuts_down() {
    let site = Site::start(&["--shutdown-timeout", "60"]);
    let [holder, waiter] = [site.session(), site.session()];
    holder.take("k");
    let free = site.get("/v1/locks/free").json()["tag"].as_str().unwrap().to_owned();
    let watch = format!("/v1/locks/free?watch={free}");
    let waits = [
        waiter.begin("/v1/locks/k", &json!({"acquire_timeout_s": 600})),
        site.send("POST", "/v1/locks/k?session=none", "", r#"{"acquire_timeout_s":600}"#),
        site.send("GET", &watch, "", ""),
    ];
    site.daemon.until_stats("\"waiters\":2");
    site.daemon.signal(Signal::SIGTERM);
    for wait in waits {
        is_error(&answer_of(wait), 503, "draining");
    }
}
