//! Sessions and the end of a server that has the locks in memory or in a directory.

use crate::site::{Site, answer_of, token};
use nix::sys::signal::Signal;
use rstest::rstest;
use serde_json::json;
use testbed::dflockd::until;

fn is_error(answer: &crate::site::Answer, status: u16, word: &str) {
    assert_eq!((answer.status, answer.json()["error"].as_str()), (status, Some(word)));
}

#[test]
fn a_server_that_shuts_down_lets_holders_finish() {
    let mut site = Site::start(&["--shutdown-timeout", "60"]);
    let [holder, waiter, other] = [site.session(), site.session(), site.session()];
    let held = holder.take("k");
    let waiting = waiter.begin("/v1/locks/k", &json!({"acquire_timeout_s": 600}));
    site.daemon.until_stats("\"waiters\":1");
    site.daemon.signal(Signal::SIGTERM);
    is_error(&answer_of(waiting), 503, "draining");
    is_error(&other.post("/v1/locks/j", &json!({"acquire_timeout_s": 0})), 503, "draining");
    is_error(&site.post("/v1/sessions", "", ""), 503, "draining");
    let watch =
        format!("/v1/locks/k?watch={}", site.get("/v1/locks/k").json()["tag"].as_str().unwrap());
    is_error(&site.get(&watch), 503, "draining");
    assert_eq!(waiter.end().status, 204);
    assert_eq!(holder.post("/v1/locks/k/release", &json!({"token": held})).status, 204);
    // Two sessions are left, which have nothing.
    assert_eq!(site.daemon.ended().code(), Some(0));
}

/// How a session comes to have nothing, for which the end of the server would wait.
#[derive(Clone, Copy, PartialEq)]
enum Left {
    NeverTook,
    ReleasedBefore,
    /// Another client released its hold.
    ReleasedByToken,
    LeaseEnds,
    TakenAway,
    ReleasedAtLast,
}

/// Nobody would hear of its end. The server waits for clients without a limit here.
#[rstest]
#[case(Left::NeverTook)]
#[case(Left::ReleasedBefore)]
#[case(Left::ReleasedByToken)]
#[case(Left::LeaseEnds)]
#[case(Left::TakenAway)]
#[case(Left::ReleasedAtLast)]
fn a_session_that_has_nothing_does_not_delay_the_end(#[case] how: Left) {
    let secret = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&secret, "admin").unwrap();
    let path = secret.path().to_str().unwrap();
    let options = ["--shutdown-timeout", "0", "--http-session-idle-timeout", "600"];
    let mut site = Site::start(&[&options[..], &["--admin-token-file", path]].concat());
    let session = site.session();
    let mut talker = site.daemon.talk();
    let lease = if how == Left::LeaseEnds { 2 } else { 600 };
    let body = json!({"acquire_timeout_s": 0, "lease_ttl_s": lease});
    let held = (how != Left::NeverTook).then(|| token(&session.post("/v1/locks/k", &body)));
    let release = || session.post("/v1/locks/k/release", &json!({"token": held})).status;
    if how == Left::ReleasedBefore {
        assert_eq!(release(), 204);
    }
    // A client for which it waits.
    assert_eq!(talker.ask("ping", "_", "_"), "ok");
    site.daemon.signal(Signal::SIGTERM);
    until("it shuts down", || site.get("/ready").status == 503);
    if how == Left::ReleasedByToken {
        assert_eq!(talker.ask("r", "k", held.as_deref().unwrap()), "ok");
    }
    drop(talker);
    if how == Left::TakenAway {
        let admin = "Authorization: Bearer admin\r\n";
        assert_eq!(site.ask("POST", "/v1/admin/release?key=k", admin).status, 200);
    }
    if how == Left::ReleasedAtLast {
        assert_eq!(release(), 204);
    }
    assert_eq!(site.daemon.ended().code(), Some(0));
}

/// A restart keeps the holds, and no session.
#[test]
fn a_restart_keeps_holds() {
    let dir = tempfile::tempdir().unwrap();
    let arguments = ["--state-dir", dir.path().to_str().unwrap(), "--shutdown-timeout", "1"];
    let mut site = Site::start(&arguments);
    let session = site.session();
    let held = session.take("k");
    let id = session.id;
    let ended = site.session();
    ended.take("free");
    assert_eq!(ended.end().status, 204);
    site.daemon.signal(Signal::SIGTERM);
    assert_eq!(site.daemon.ended().code(), Some(0));
    let site = Site::start(&arguments);
    let header = format!("X-Dflockd-Session: {id}\r\n");
    is_error(&site.post("/v1/locks/j", &header, r#"{"acquire_timeout_s":0}"#), 410, "session_gone");
    let new = site.session();
    let busy = new.post("/v1/locks/k", &json!({"acquire_timeout_s": 0}));
    assert_eq!(busy.json(), json!({"status": "timeout"}));
    assert_eq!(new.post("/v1/locks/k/renew", &json!({"token": held})).json()["remaining_s"], 33);
    new.take("free");
}
