//! Conversations of the reference over HTTP. The sources of its version 2 are public, and its own tests say what each request
//! is answered; it was not run here. One line is one request: client, method, path, body, status, and members of the answer.
//! `@NAME` stands for the session of a client in a path, and for the token of its latest grant in a body.

use crate::site::{Answer, Site, answer_of};
use rstest::rstest;
use serde_json::Value;
use std::collections::HashMap;
use std::fmt::Write as _;
use testbed::dflockd::is_on_etcd;

/// A client, by its name in the conversation.
#[derive(Default)]
struct Client {
    session: String,
    token: String,
}

fn ask(site: &Site, clients: &mut HashMap<String, Client>, line: &str) {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [name, method, path, body, status, members] = words[..] else { panic!("{line}") };
    let (mut path, mut body) = (path.to_owned(), body.trim_matches('-').to_owned());
    for (name, client) in &*clients {
        path = path.replace(&format!("@{name}"), &client.session);
        body = body.replace(&format!("@{name}"), &client.token);
    }
    let mut headers = String::new();
    if name != "nobody" && path != "/v1/sessions" {
        let session = clients.get(name).filter(|it| !it.session.is_empty());
        let session = session.map_or(name, |client| &client.session);
        let _it_cannot_fail = write!(headers, "X-Dflockd-Session: {session}\r\n");
    }
    let answer = answer_of(site.send(method, &path, &headers, &body));
    judge(&answer, status.parse().unwrap(), members, line);
    let client = clients.entry(name.to_owned()).or_default();
    let body = if answer.body.is_empty() { Value::Null } else { answer.json() };
    for (member, place) in [("session_id", &mut client.session), ("token", &mut client.token)] {
        if let Some(text) = body[member].as_str() {
            text.clone_into(place);
        }
    }
}

/// Of a grant, whatever its token is; an error has no more members than the one that is named, and a detail.
fn judge(answer: &Answer, status: u16, members: &str, line: &str) {
    assert_eq!(answer.status, status, "{line}: {}", answer.text());
    if members == "-" {
        return assert_eq!(answer.text(), "", "{line}");
    }
    let (want, got) = (serde_json::from_str::<Value>(members).unwrap(), answer.json());
    for (name, value) in want.as_object().unwrap() {
        assert!(got[name] == *value || (value == "*" && got[name].is_string()), "{line}: {got}");
    }
    let more = got.as_object().unwrap().keys().find(|name| {
        !want.as_object().unwrap().contains_key(*name)
            && !["detail", "fence", "slot", "idle_timeout_s"].contains(&name.as_str())
    });
    assert_eq!(more, None, "{line}: {got}");
}

#[rstest]
#[case::sessions(
    r#"a POST /v1/sessions - 200 {"session_id":"*","idle_timeout_s":20}
       nobody POST /v1/sessions/@a/ping - 204 -
       nobody DELETE /v1/sessions/@a - 204 -
       nobody DELETE /v1/sessions/@a - 410 {"error":"session_gone"}
       nobody POST /v1/sessions/@a/ping - 410 {"error":"session_gone"}"#
)]
#[case::acquire_and_release(
    r#"a POST /v1/sessions - 200 {"session_id":"*"}
       a POST /v1/locks/foo {"acquire_timeout_s":1} 200 {"status":"ok","token":"*","lease_ttl_s":33}
       a POST /v1/locks/foo/release {"token":"@a"} 204 -
       a POST /v1/locks/foo/release {"token":"@a"} 404 {"error":"not_held"}"#
)]
#[case::timeout(
    r#"a POST /v1/sessions - 200 {"session_id":"*"}
       b POST /v1/sessions - 200 {"session_id":"*"}
       a POST /v1/locks/k {"acquire_timeout_s":1} 200 {"status":"ok","token":"*","lease_ttl_s":33}
       b POST /v1/locks/k {"acquire_timeout_s":1} 200 {"status":"timeout"}"#
)]
#[case::renew(
    r#"a POST /v1/sessions - 200 {"session_id":"*"}
       a POST /v1/locks/k {"acquire_timeout_s":1} 200 {"status":"ok","token":"*","lease_ttl_s":33}
       a POST /v1/locks/k/renew {"token":"@a","lease_ttl_s":60} 200 {"remaining_s":60}
       a POST /v1/locks/k/renew {"token":"@a"} 200 {"remaining_s":33}
       a POST /v1/locks/j/renew {"token":"@a"} 404 {"error":"not_held"}"#
)]
#[case::enqueue_and_wait(
    r#"a POST /v1/sessions - 200 {"session_id":"*"}
       b POST /v1/sessions - 200 {"session_id":"*"}
       a POST /v1/locks/k {"acquire_timeout_s":1,"lease_ttl_s":30} 200 {"status":"ok","token":"*","lease_ttl_s":30}
       b POST /v1/locks/k/enqueue {"lease_ttl_s":30} 200 {"status":"queued"}
       a POST /v1/locks/k/release {"token":"@a"} 204 -
       b POST /v1/locks/k/wait {"timeout_s":5} 200 {"status":"ok","token":"*","lease_ttl_s":30}"#
)]
#[case::a_body_that_may_be_missing(
    r#"a POST /v1/sessions - 200 {"session_id":"*"}
       a POST /v1/locks/k/enqueue - 200 {"status":"acquired","token":"*","lease_ttl_s":33}
       a POST /v1/locks/k/enqueue - 409 {"error":"already_enqueued"}"#
)]
#[case::a_wait_that_ends(
    r#"a POST /v1/sessions - 200 {"session_id":"*"}
       b POST /v1/sessions - 200 {"session_id":"*"}
       a POST /v1/locks/k {"acquire_timeout_s":1} 200 {"status":"ok","token":"*","lease_ttl_s":33}
       b POST /v1/locks/k/wait {"timeout_s":1} 409 {"error":"not_enqueued"}
       b POST /v1/locks/k/enqueue {} 200 {"status":"queued"}
       b POST /v1/locks/k/wait {"timeout_s":1} 200 {"status":"timeout"}"#
)]
#[case::a_semaphore(
    r#"a POST /v1/sessions - 200 {"session_id":"*"}
       a POST /v1/semaphores/s {"acquire_timeout_s":1,"limit":2,"lease_ttl_s":30} 200 {"status":"ok","token":"*","lease_ttl_s":30}
       a POST /v1/semaphores/s {"acquire_timeout_s":1,"limit":2,"lease_ttl_s":30} 200 {"status":"ok","token":"*","lease_ttl_s":30}
       a POST /v1/semaphores/s {"acquire_timeout_s":1,"limit":2} 200 {"status":"timeout"}
       a POST /v1/semaphores/s {"acquire_timeout_s":1,"limit":3} 409 {"error":"limit_mismatch"}
       a POST /v1/semaphores/s/renew {"token":"@a","lease_ttl_s":90} 200 {"remaining_s":90}
       a POST /v1/semaphores/s/enqueue {"limit":2,"lease_ttl_s":30} 200 {"status":"queued"}
       a POST /v1/semaphores/s/release {"token":"@a"} 204 -
       a POST /v1/semaphores/s/wait {"timeout_s":5} 200 {"status":"ok","token":"*","lease_ttl_s":30}"#
)]
#[case::the_end_of_a_session_frees_its_locks(
    r#"a POST /v1/sessions - 200 {"session_id":"*"}
       b POST /v1/sessions - 200 {"session_id":"*"}
       a POST /v1/locks/k {"acquire_timeout_s":1,"lease_ttl_s":30} 200 {"status":"ok","token":"*","lease_ttl_s":30}
       nobody DELETE /v1/sessions/@a - 204 -
       b POST /v1/locks/k {"acquire_timeout_s":1} 200 {"status":"ok","token":"*","lease_ttl_s":33}"#
)]
#[case::after_the_end_of_a_session(
    r#"a POST /v1/sessions - 200 {"session_id":"*"}
       nobody DELETE /v1/sessions/@a - 204 -
       a POST /v1/locks/k {"acquire_timeout_s":1} 410 {"error":"session_gone"}
       a POST /v1/locks/k/enqueue {} 410 {"error":"session_gone"}
       a POST /v1/locks/k/wait {"timeout_s":1} 410 {"error":"session_gone"}
       a POST /v1/locks/k/renew {"token":"x"} 410 {"error":"session_gone"}
       a POST /v1/locks/k/release {"token":"x"} 410 {"error":"session_gone"}
       a POST /v1/semaphores/k {"acquire_timeout_s":1,"limit":1} 410 {"error":"session_gone"}
       a POST /v1/locks/k {not_json 410 {"error":"session_gone"}
       nobody POST /v1/sessions/@a/ping - 410 {"error":"session_gone"}"#
)]
#[case::bad_requests(
    r#"a POST /v1/sessions - 200 {"session_id":"*"}
       a POST /v1/locks/bad%20key {"acquire_timeout_s":1} 400 {"error":"bad_request"}
       nobody POST /v1/locks/k {"acquire_timeout_s":1} 400 {"error":"bad_request"}
       00000000000000000000000000000000 POST /v1/locks/k {"acquire_timeout_s":1} 410 {"error":"session_gone"}
       00000000000000000000000000000000 POST /v1/locks/bad%20key {"acquire_timeout_s":1} 400 {"error":"bad_request"}
       a POST /v1/locks/k/release {not_json 400 {"error":"bad_request"}
       a POST /v1/locks/k/release {"token":""} 400 {"error":"bad_request"}
       a POST /v1/locks/k/release {"token":"x","force":1} 400 {"error":"bad_request"}
       a POST /v1/locks/k {"acquire_timeout_s":1}{} 400 {"error":"bad_request"}
       a POST /v1/locks/k {"acquire_timeout_s":-1} 400 {"error":"bad_request"}
       a POST /v1/locks/k {"acquire_timeout_s":9223372037} 400 {"error":"bad_request"}
       a POST /v1/semaphores/k {"acquire_timeout_s":1,"limit":0} 400 {"error":"bad_request"}
       a POST /v1/semaphores/k/enqueue - 400 {"error":"bad_request"}
       a PUT /v1/locks/k {} 405 {"error":"method_not_allowed"}
       a POST /v1/nothing {} 404 {"error":"not_found"}
       a POST /v1/locks/one/two/three {} 404 {"error":"not_found"}"#
)]
fn conversations_of_the_reference(#[case] lines: &str, #[values(false, true)] is_other: bool) {
    let dir = tempfile::tempdir().unwrap();
    // Two ways to have locks in each run: in memory and in a directory; over a standby and at the leader.
    let site = match (is_other, is_on_etcd()) {
        (false, _) => Site::start(&[]),
        (true, false) => Site::start(&["--state-dir", dir.path().to_str().unwrap()]),
        (true, true) => Site::start_leader(&[]),
    };
    let mut clients = HashMap::new();
    for line in lines.lines() {
        ask(&site, &mut clients, line);
    }
}
