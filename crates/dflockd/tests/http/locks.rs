//! Locks and semaphores over HTTP: every request and every error of its table, beside clients of the other port.

use crate::site::{Answer, Site, answer_of, token};
use rstest::rstest;
use serde_json::{Value, json};
use std::io::{Read, Write};
use testbed::dflockd::{fence, until};

/// A token that no server has given.
const STRANGE: &str = "000000000000000f00000000000000a0";

fn is(answer: &Answer, status: u16, body: &Value) {
    assert_eq!((answer.status, &answer.json()), (status, body), "{}", answer.text());
}

fn is_error(answer: &Answer, status: u16, word: &str) {
    let body = answer.json();
    assert_eq!((answer.status, body["error"].as_str()), (status, Some(word)), "{body}");
    assert_eq!(answer.header("content-type"), Some("application/json"));
}

fn is_empty(answer: &Answer) {
    assert_eq!((answer.status, answer.text()), (204, ""));
    assert_eq!(answer.header("content-type"), None);
}

#[test]
fn a_lock_is_taken_renewed_and_released() {
    let site = Site::start(&["--default-lease-ttl", "40"]);
    let [holder, other] = [site.session(), site.session()];
    let taken = holder.post("/v1/locks/deploy", &json!({"acquire_timeout_s": 10}));
    let token = token(&taken);
    let granted = json!({
        "status": "ok", "token": token, "lease_ttl_s": 40, "fence": fence(&token).to_string(),
    });
    is(&taken, 200, &granted);
    let busy = other.post("/v1/locks/deploy", &json!({"acquire_timeout_s": 0}));
    is(&busy, 200, &json!({"status": "timeout"}));
    let late = other.post("/v1/locks/deploy", &json!({"acquire_timeout_s": 1}));
    is(&late, 200, &json!({"status": "timeout"}));
    // Clients of the other port stand in the same line.
    assert_eq!(site.daemon.talk().ask("l", "deploy", "0"), "timeout");
    let renew = |body: Value| holder.post("/v1/locks/deploy/renew", &body);
    is(&renew(json!({"token": token, "lease_ttl_s": 60})), 200, &json!({"remaining_s": 60}));
    is(&renew(json!({"token": token, "lease_ttl_s": 0})), 200, &json!({"remaining_s": 40}));
    is(&renew(json!({"token": token})), 200, &json!({"remaining_s": 40}));
    is_error(&renew(json!({"token": STRANGE})), 404, "not_held");
    let release = |token: &str| holder.post("/v1/locks/deploy/release", &json!({"token": token}));
    is_error(&release(STRANGE), 404, "not_held");
    is_empty(&release(&token));
    is_error(&release(&token), 404, "not_held");
    let next = other.take("deploy");
    assert!(fence(&next) > fence(&token));
}

#[test]
fn a_semaphore_has_its_slots() {
    let site = Site::start(&[]);
    let session = site.session();
    let path = "/v1/semaphores/pool";
    let take = |limit: u64, timeout: u64| {
        let body = json!({"acquire_timeout_s": timeout, "limit": limit, "lease_ttl_s": 60});
        session.post(path, &body)
    };
    let taken = [take(2, 0), take(2, 0)];
    assert_eq!(taken.each_ref().map(|answer| answer.json()["slot"].clone()), [json!(0), json!(1)]);
    let tokens = taken.map(|answer| token(&answer));
    is(&take(2, 0), 200, &json!({"status": "timeout"}));
    is_error(&take(3, 0), 409, "limit_mismatch");
    let lock = session.post("/v1/locks/pool", &json!({"acquire_timeout_s": 0}));
    is_error(&lock, 409, "limit_mismatch");
    let renewed = session.post("/v1/semaphores/pool/renew", &json!({"token": tokens[0]}));
    is(&renewed, 200, &json!({"remaining_s": 33}));
    let enqueue = session.post("/v1/semaphores/pool/enqueue", &json!({"limit": 2}));
    is(&enqueue, 200, &json!({"status": "queued"}));
    let release = json!({"token": tokens[0]});
    is_empty(&session.post("/v1/semaphores/pool/release", &release));
    is_error(&session.post("/v1/semaphores/pool/release", &release), 404, "not_held");
    let got = session.post("/v1/semaphores/pool/wait", &json!({"timeout_s": 10}));
    assert_eq!((got.status, &got.json()["status"]), (200, &json!("ok")));
    assert_eq!(got.json()["slot"], 0);
    assert!(fence(&token(&got)) > fence(&tokens[1]));
    let held = site.get("/v1/locks/pool").json();
    let slots: Vec<_> = held["holders"].as_array().unwrap().iter().map(|it| &it["slot"]).collect();
    assert_eq!(slots, [1, 0]);
    // To the engine it is a lock.
    let one = json!({"acquire_timeout_s": 0, "limit": 1});
    assert_eq!(session.post("/v1/semaphores/one", &one).json()["slot"], 0);
}

#[test]
fn a_place_in_the_line_is_kept_between_two_requests() {
    let site = Site::start(&[]);
    let [first, second] = [site.session(), site.session()];
    let enqueue = |session: &crate::site::Session<'_>| {
        session.post("/v1/locks/k/enqueue", &json!({"lease_ttl_s": 50}))
    };
    let wait = |seconds: u64| second.post("/v1/locks/k/wait", &json!({"timeout_s": seconds}));
    is_error(&wait(0), 409, "not_enqueued");
    let acquired = enqueue(&first);
    let held = token(&acquired);
    assert_eq!(
        (&acquired.json()["status"], &acquired.json()["lease_ttl_s"]),
        (&json!("acquired"), &json!(50))
    );
    is_error(&enqueue(&first), 409, "already_enqueued");
    is(&enqueue(&second), 200, &json!({"status": "queued"}));
    is_error(&enqueue(&second), 409, "already_enqueued");
    // A client that comes later is behind it.
    let mut later = site.daemon.talk();
    later.say(b"l\nk\n600\n");
    site.daemon.until_stats("\"waiters\":2");
    is_empty(&first.post("/v1/locks/k/release", &json!({"token": held})));
    let got = wait(10);
    assert_eq!(got.json()["status"], "ok");
    is_empty(&second.post("/v1/locks/k/release", &json!({"token": token(&got)})));
    assert!(later.line().starts_with("ok "));
    // A wait that is over has lost its place.
    is(&enqueue(&second), 200, &json!({"status": "queued"}));
    is(&wait(0), 200, &json!({"status": "timeout"}));
    is_error(&wait(0), 409, "not_enqueued");
}

#[test]
fn a_grant_that_was_fetched_too_late() {
    let site = Site::start(&[]);
    let session = site.session();
    let body = json!({"lease_ttl_s": 1});
    assert_eq!(session.post("/v1/locks/k/enqueue", &body).json()["status"], "acquired");
    until("the lease is over", || site.get("/v1/locks/k").json()["held"] == 0);
    let wait = session.post("/v1/locks/k/wait", &json!({"timeout_s": 0}));
    is_error(&wait, 409, "lease_expired");
}

#[test]
fn limits_of_keys_and_waiters() {
    let site = Site::start(&["--max-locks", "1", "--max-waiters", "1"]);
    let [holder, waiter, third] = [site.session(), site.session(), site.session()];
    holder.take("k");
    is_error(&third.post("/v1/locks/j", &json!({"acquire_timeout_s": 0})), 503, "max_locks");
    let waiting = waiter.begin("/v1/locks/k", &json!({"acquire_timeout_s": 600}));
    site.daemon.until_stats("\"waiters\":1");
    is_error(&third.post("/v1/locks/k", &json!({"acquire_timeout_s": 9})), 503, "max_waiters");
    is_error(&third.post("/v1/locks/k/enqueue", &json!({})), 503, "max_waiters");
    is_empty(&holder.end());
    assert_eq!(answer_of(waiting).json()["status"], "ok");
}

/// Every request that is malformed, before anybody is asked.
#[rstest]
#[case::no_session("POST", "/v1/locks/k", "", r#"{"acquire_timeout_s":0}"#, 400, "bad_request")]
#[case::a_strange_session(
    "POST",
    "/v1/locks/k",
    "X-Dflockd-Session: 0123456789abcdef0123456789abcdef\r\n",
    r#"{"acquire_timeout_s":0}"#,
    410,
    "session_gone"
)]
#[case::no_session_at_all(
    "POST",
    "/v1/locks/k",
    "X-Dflockd-Session: x\r\n",
    r#"{"acquire_timeout_s":0}"#,
    410,
    "session_gone"
)]
#[case::release(
    "POST",
    "/v1/locks/k/release",
    "",
    r#"{"token":"000000000000000f00000000000000a0"}"#,
    400,
    "bad_request"
)]
#[case::no_body("POST", "/v1/locks/k?session=none", "", "", 400, "bad_request")]
#[case::unknown_member(
    "POST",
    "/v1/locks/k?session=none",
    "",
    r#"{"acquire_timeout_s":0,"wait":1}"#,
    400,
    "bad_request"
)]
#[case::a_fraction(
    "POST",
    "/v1/locks/k?session=none",
    "",
    r#"{"acquire_timeout_s":0.5}"#,
    400,
    "bad_request"
)]
#[case::too_long(
    "POST",
    "/v1/locks/k?session=none",
    "",
    r#"{"acquire_timeout_s":9223372037}"#,
    400,
    "bad_request"
)]
#[case::no_limit(
    "POST",
    "/v1/semaphores/k?session=none",
    "",
    r#"{"acquire_timeout_s":0}"#,
    400,
    "bad_request"
)]
#[case::a_shared_semaphore(
    "POST",
    "/v1/semaphores/k?session=none&shared=true",
    "",
    r#"{"acquire_timeout_s":0,"limit":1}"#,
    400,
    "bad_request"
)]
#[case::a_blank_in_the_key(
    "POST",
    "/v1/locks/a%20b?session=none",
    "",
    r#"{"acquire_timeout_s":0}"#,
    400,
    "bad_request"
)]
#[case::a_line_end_in_the_key(
    "POST",
    "/v1/locks/a%0ab?session=none",
    "",
    r#"{"acquire_timeout_s":0}"#,
    400,
    "bad_request"
)]
#[case::a_broken_key(
    "POST",
    "/v1/locks/a%2?session=none",
    "",
    r#"{"acquire_timeout_s":0}"#,
    400,
    "bad_request"
)]
#[case::no_key(
    "POST",
    "/v1/locks/?session=none",
    "",
    r#"{"acquire_timeout_s":0}"#,
    404,
    "not_found"
)]
#[case::a_place_without_session(
    "POST",
    "/v1/locks/k/enqueue?session=none",
    "",
    "{}",
    400,
    "bad_request"
)]
#[case::a_wait_without_session(
    "POST",
    "/v1/locks/k/wait?session=none",
    "",
    r#"{"timeout_s":0}"#,
    400,
    "bad_request"
)]
#[case::another_verb("POST", "/v1/locks/k/steal?session=none", "", "{}", 404, "not_found")]
#[case::another_method("PUT", "/v1/locks/k", "", "{}", 405, "method_not_allowed")]
#[case::get_of_a_verb("GET", "/v1/locks/k/renew", "", "", 405, "method_not_allowed")]
#[case::get_of_sessions("GET", "/v1/sessions", "", "", 405, "method_not_allowed")]
#[case::a_foreign_page(
    "POST",
    "/v1/locks/k?session=none",
    "Origin: http://evil.example\r\n",
    r#"{"acquire_timeout_s":0}"#,
    403,
    "wrong_origin"
)]
#[case::a_session_of_a_foreign_page(
    "POST",
    "/v1/sessions",
    "Origin: http://evil.example\r\n",
    "",
    403,
    "wrong_origin"
)]
#[case::a_ping_of_nothing(
    "POST",
    "/v1/sessions/0123456789abcdef0123456789abcdef/ping",
    "",
    "",
    410,
    "session_gone"
)]
#[case::the_end_of_nothing("DELETE", "/v1/sessions/x", "", "", 410, "session_gone")]
fn malformed_requests(
    #[case] method: &str,
    #[case] path: &str,
    #[case] headers: &str,
    #[case] body: &str,
    #[case] status: u16,
    #[case] word: &str,
) {
    let site = Site::start(&[]);
    is_error(&answer_of(site.send(method, path, headers, body)), status, word);
    assert_eq!(site.holders()["holders"], 0);
}

/// Bytes of a key come percent-decoded, and there are at most 256.
#[test]
fn keys_are_bytes() {
    let site = Site::start(&[]);
    let session = site.session();
    session.take("a%2Fb+c%c3%bc");
    assert_eq!(site.daemon.talk().ask("l", "a/b+cü", "0"), "timeout");
    session.take(&"k".repeat(256));
    let long = format!("/v1/locks/{}", "k".repeat(257));
    is_error(&session.post(&long, &json!({"acquire_timeout_s": 0})), 400, "bad_request");
}

#[rstest]
#[case::just_fits(4096, 200)]
#[case::too_long(4097, 413)]
fn bodies_are_bounded(#[case] length: usize, #[case] want: u16) {
    let site = Site::start(&[]);
    let body = r#"{"acquire_timeout_s":0}"#;
    let body = format!("{body}{}", " ".repeat(length - body.len()));
    assert_eq!(site.post("/v1/locks/k?session=none", "", &body).status, want);
    // In chunks, where no length tells it.
    let request = "POST /v1/locks/j?session=none HTTP/1.1\r\nHost: localhost\r\n\
                   Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n";
    let chunked = format!("{request}{length:x}\r\n{body}\r\n0\r\n\r\n");
    assert_eq!(site.say(chunked.as_bytes()).unwrap().status, want);
}

/// One `curl` in a cron line: a hold that belongs to no connection.
#[test]
fn a_hold_without_a_session() {
    let site = Site::start(&[]);
    let take = |body: &str| site.post("/v1/locks/nightly?session=none", "", body);
    let held = token(&take(r#"{"acquire_timeout_s":0,"lease_ttl_s":600}"#));
    is(&take(r#"{"acquire_timeout_s":0}"#), 200, &json!({"status": "timeout"}));
    let seen = site.get("/v1/locks/nightly").json();
    assert_eq!((&seen["held"], &seen["holders"][0]["connected"]), (&json!(1), &json!(false)));
    let body = format!("{{\"token\":\"{held}\",\"lease_ttl_s\":700}}");
    let renewed = site.post("/v1/locks/nightly/renew?session=none", "", &body);
    is(&renewed, 200, &json!({"remaining_s": 700}));
    // Those that wait are in the same line, and one that waits for nothing leaves no connection.
    let waiting = site.send(
        "POST",
        "/v1/locks/nightly?session=none",
        "",
        r#"{"acquire_timeout_s":600,"lease_ttl_s":1}"#,
    );
    site.daemon.until_stats("\"waiters\":1");
    let release = format!("{{\"token\":\"{held}\"}}");
    is_empty(&site.post("/v1/locks/nightly/release?session=none", "", &release));
    assert_eq!(answer_of(waiting).json()["lease_ttl_s"], 1);
    until("the lease ends", || site.get("/v1/locks/nightly").json()["held"] == 0);
    until("nobody is connected", || site.holders()["connections"] == 0);
}

#[test]
fn readers_share_a_lock() {
    let site = Site::start(&[]);
    let [one, two, writer] = [site.session(), site.session(), site.session()];
    let body = json!({"acquire_timeout_s": 0});
    for reader in [&one, &two] {
        assert_eq!(reader.post("/v1/locks/k?shared=true", &body).json()["status"], "ok");
    }
    is(&writer.post("/v1/locks/k?shared=false", &body), 200, &json!({"status": "timeout"}));
    let enqueued = writer.post("/v1/locks/k/enqueue?shared=true", &json!({}));
    assert_eq!(enqueued.json()["status"], "acquired");
    assert_eq!(site.get("/v1/locks/k").json()["held"], 3);
}

#[test]
fn who_has_a_key_and_who_waits() {
    let site = Site::start(&[]);
    let [holder, waiter] = [site.session(), site.session()];
    let free = site.get("/v1/locks/k").json();
    assert_eq!(
        (&free["key"], &free["held"], &free["holders"]),
        (&json!("k"), &json!(0), &json!([]))
    );
    assert_eq!(free.get("fence"), None);
    let named = format!("{}X-Dflockd-Name: web1 4711 {}\r\n", holder.header(), "x".repeat(300));
    let token = token(&site.post("/v1/locks/k", &named, r#"{"acquire_timeout_s":0}"#));
    let waiting = waiter.begin("/v1/locks/k", &json!({"acquire_timeout_s": 600}));
    site.daemon.until_stats("\"waiters\":1");
    let seen = site.get("/v1/semaphores/k").json();
    assert_eq!(
        (&seen["held"], &seen["waiters"], &seen["limit"]),
        (&json!(1), &json!(1), &json!(1))
    );
    assert_eq!(seen["fence"], fence(&token).to_string());
    let name = seen["holders"][0]["name"].as_str().unwrap();
    assert!(name.starts_with("web1 4711 x") && name.len() == 200, "{name}");
    assert_eq!(seen["holders"][0]["address"], "127.0.0.1");
    assert_eq!(seen["queue"].as_array().unwrap().len(), 1);
    let text = seen.to_string();
    assert!(!text.contains(&token[16..]) && !text.contains(&holder.id), "{text}");
    drop(waiting);
}

/// People see the name of a hold that belongs to no session, too.
#[test]
fn a_hold_without_a_session_has_its_name() {
    let site = Site::start(&[]);
    let body = r#"{"acquire_timeout_s":0}"#;
    site.post("/v1/locks/k?session=none", "X-Dflockd-Name: nightly at web1\r\n", body);
    for path in ["/v1/locks/k", "/v1/holders"] {
        let seen = site.get(path).json().to_string();
        assert!(seen.contains("\"name\":\"nightly at web1\""), "{path}: {seen}");
    }
}

/// What people read in an answer that refuses, where the word alone says too little.
#[rstest]
#[case("/v1/locks/a/b?session=none", "{}", "not_found", "%2F")]
#[case("/v1/sessions", r#"{"idle_timeout_s":60}"#, "bad_request", "has no members")]
#[case("/v1/sessions", "[]", "bad_request", "not a JSON object")]
#[case(
    "/v1/locks/k?sesion=none",
    r#"{"acquire_timeout_s":0}"#,
    "bad_request",
    "known are session, shared"
)]
#[case(
    "/v1/locks/k?session=none",
    r#"{"timeout":0}"#,
    "bad_request",
    "known are acquire_timeout_s, lease_ttl_s"
)]
#[case("/v1/semaphores/k?session=none", r#"{"n":2}"#, "bad_request", "lease_ttl_s, limit")]
fn a_refusal_says_what_is_wrong(
    #[case] path: &str,
    #[case] body: &str,
    #[case] word: &str,
    #[case] detail: &str,
) {
    let refused = Site::start(&[]).post(path, "", body).json();
    assert_eq!(refused["error"], word);
    assert!(refused["detail"].as_str().unwrap().contains(detail), "{refused}");
}

#[test]
fn a_key_is_watched() {
    let site = Site::start(&[]);
    let session = site.session();
    let watch = |tag: &str, seconds: u32| {
        site.send("GET", &format!("/v1/locks/k?watch={tag}&timeout_s={seconds}"), "", "")
    };
    let free = site.get("/v1/locks/k").json()["tag"].as_str().unwrap().to_owned();
    let same = answer_of(watch(&free, 0)).json();
    assert_eq!((&same["tag"], &same["held"]), (&json!(free), &json!(0)));
    let watching = watch(&free, 60);
    let token = session.take("k");
    let held = answer_of(watching).json();
    assert_eq!((&held["held"], &held["fence"]), (&json!(1), &json!(fence(&token).to_string())));
    assert_ne!(held["tag"], free);
    // The other port has the same tags.
    let line = site.daemon.talk().ask("watch", "k", "0");
    assert!(line.starts_with(&format!("held {} ", held["tag"].as_str().unwrap())), "{line}");
    // A client that has seen something else is answered at once.
    assert_eq!(answer_of(watch(&free, 60)).json()["held"], 1);
    is_error(&answer_of(watch("x", 60)), 400, "bad_request");
}

#[test]
fn watchers_are_limited() {
    let site = Site::start_leader(&["--max-watchers", "1"]);
    let tag = site.get("/v1/locks/k").json()["tag"].as_str().unwrap().to_owned();
    let path = format!("/v1/locks/k?watch={tag}");
    let watching = site.send("GET", &path, "", "");
    until("one watches", || site.get("/metrics").text().contains("\ndflockd_watchers 1\n"));
    is_error(&site.get(&path), 503, "max_waiters");
    // Who only looks does not watch.
    assert_eq!(site.get("/v1/locks/k").status, 200);
    drop(watching);
    until("another one may", || {
        answer_of(site.send("GET", &format!("{path}&timeout_s=0"), "", "")).status == 200
    });
}

/// At the server that has the locks.
#[test]
fn a_watcher_that_leaves_is_forgotten() {
    let site = Site::start_leader(&[]);
    let tag = site.get("/v1/locks/k").json()["tag"].as_str().unwrap().to_owned();
    let watching = site.send("GET", &format!("/v1/locks/k?watch={tag}"), "", "");
    let watchers = |count: u32| {
        let line = format!("\ndflockd_watchers {count}\n");
        until("so many watch", || site.get("/metrics").text().contains(&line));
    };
    watchers(1);
    drop(watching);
    watchers(0);
}

/// What the other port grants and releases is the same as here.
#[test]
fn one_line_with_the_other_port() {
    let site = Site::start(&[]);
    let session = site.session();
    let mut talker = site.daemon.talk();
    let theirs = talker.take("k", "0 60");
    let waiting = session.begin("/v1/locks/k", &json!({"acquire_timeout_s": 600}));
    site.daemon.until_stats("\"waiters\":1");
    let mut behind = site.daemon.talk();
    behind.say(b"l\nk\n600\n");
    site.daemon.until_stats("\"waiters\":2");
    assert_eq!(talker.ask("r", "k", &theirs), "ok");
    let ours = token(&answer_of(waiting));
    // A token is the right to release, whoever shows it.
    assert_eq!(talker.ask("r", "k", &ours), "ok");
    assert!(behind.line().starts_with("ok "));
}

/// A client that leaves during a wait gets no lock, and leaves its place to the next.
#[rstest]
#[case::in_a_session(false)]
#[case::without_a_session(true)]
fn a_client_that_leaves_gets_no_lock(#[case] is_alone: bool) {
    let site = Site::start(&[]);
    let [holder, session] = [site.session(), site.session()];
    let held = holder.take("k");
    let query = if is_alone { "?session=none" } else { "" };
    let header = if is_alone { String::new() } else { session.header() };
    let path = format!("/v1/locks/k{query}");
    let leaving = site.send("POST", &path, &header, r#"{"acquire_timeout_s":600}"#);
    site.daemon.until_stats("\"waiters\":1");
    drop(leaving);
    site.daemon.until_stats("\"waiters\":0");
    // One that only closes its sending side is told so.
    let mut closing = site.send("POST", &path, &header, r#"{"acquire_timeout_s":600}"#);
    site.daemon.until_stats("\"waiters\":1");
    closing.shutdown(std::net::Shutdown::Write).unwrap();
    let mut text = String::new();
    closing.read_to_string(&mut text).unwrap();
    assert!(
        text.starts_with("HTTP/1.1 408 ") && text.ends_with("{\"error\":\"client_canceled\"}"),
        "{text}"
    );
    site.daemon.until_stats("\"waiters\":0");
    is_empty(&holder.post("/v1/locks/k/release", &json!({"token": held})));
    assert_eq!(site.get("/v1/locks/k").json()["held"], 0);
    if !is_alone {
        session.take("k");
    }
}

/// Requests of one connection, one after the other, as a client with keep-alive sends them.
#[test]
fn requests_on_one_connection() {
    let site = Site::start(&[]);
    let session = site.session();
    let mut stream = site.connect();
    let mut ask = |path: &str, body: &str| {
        let (header, length) = (session.header(), body.len());
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n{header}\r\n{body}"
        );
        stream.write_all(request.as_bytes()).unwrap();
        crate::site::answer_on(&mut stream).unwrap()
    };
    for _ in 0..3 {
        let taken = ask("/v1/locks/k", r#"{"acquire_timeout_s":0}"#);
        let body = format!("{{\"token\":\"{}\"}}", token(&taken));
        assert_eq!(ask("/v1/locks/k/renew", &body).json()["remaining_s"], 33);
        assert_eq!(ask("/v1/locks/k/release", &body).status, 204);
    }
}
