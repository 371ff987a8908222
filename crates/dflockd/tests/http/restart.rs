//! Sessions and the end of a server that has the locks in memory or in a directory.

use crate::site::{Site, answer_of};
use nix::sys::signal::Signal;
use serde_json::json;

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
    assert_eq!(holder.post("/v1/locks/k/release", &json!({"token": held})).status, 204);
    for session in [holder, waiter, other] {
        assert_eq!(session.end().status, 204);
    }
    // Nobody is left.
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
