//! `/metrics`, as Prometheus' own tool reads it, and against what really happened.

use crate::site::Site;
use std::io::Write;
use std::process::{Command, Stdio};
use testbed::dflockd::until;
use testbed::peer;

/// What Prometheus' checker says: its parser and its rules of good names.
fn promtool(text: &str) -> Result<(), String> {
    let program = peer("prometheus", "usr/bin/promtool");
    let mut child = Command::new(program)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8(said).unwrap();
    if output.status.success() && said.is_empty() { Ok(()) } else { Err(said) }
}

fn value(text: &str, series: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{series} ")));
    line.unwrap_or_else(|| panic!("no {series} in\n{text}")).parse().unwrap()
}

#[test]
#[ignore = "needs programs: tests/run"]
fn prometheus_reads_the_metrics() {
    let site = Site::start(&[]);
    assert_eq!(promtool(site.get("/metrics").text()), Ok(()));
    let mut talker = site.daemon.talk();
    for key in ["a", "b"] {
        talker.take(key, "0");
    }
    assert_eq!(site.get("/nowhere").status, 404);
    let text = site.get("/metrics").text().to_owned();
    assert_eq!(promtool(&text), Ok(()));
    // The checker can say no.
    assert!(promtool("dflockd_grants 1\n").is_err());
    assert!(promtool(&text.replace(" histogram\n", " nonsense\n")).is_err());
}

/// At the server that decides about locks.
#[test]
fn metrics_count_what_happened() {
    let site = Site::start_leader(&["--max-locks", "4", "--max-waiters", "1"]);
    let session = site.session();
    let mut talker = site.daemon.talk();
    let token = talker.take("k", "0");
    assert_eq!(talker.ask("n", "k", &token), "ok 33");
    assert_eq!(talker.ask("l", "k", "0"), "timeout");
    assert_eq!(talker.ask("r", "k", &"0".repeat(32)), "error");
    assert_eq!(talker.ask("w", "k", "0"), "error_not_enqueued");
    assert_eq!(talker.ask("sl", "k", "0 2"), "error_limit_mismatch");
    assert_eq!(talker.ask("l", "k", "x"), "error");
    let mut waiter = site.daemon.talk();
    waiter.say(b"l\nk\n600\n");
    site.daemon.until_stats("\"waiters\":1");
    assert_eq!(talker.ask("l", "k", "5"), "error_max_waiters");
    assert!(talker.ask("sl", "pool", "0 5").starts_with("ok "));
    assert!(talker.ask("sl", "pool", "0 5").starts_with("ok "));
    let idle = talker.take("idle", "0");
    talker.take("short", "0 5");
    // As long as all are in use: an idle key would make room.
    assert_eq!(talker.ask("l", "fifth", "0"), "error_max_locks");
    assert_eq!(talker.ask("r", "idle", &idle), "ok");
    site.daemon.logged("lease expired");
    let text = site.get("/metrics").text().to_owned();
    for (series, want) in [
        ("dflockd_grants_total", 5.0),
        ("dflockd_renewals_total", 1.0),
        ("dflockd_releases_total{cause=\"token\"}", 1.0),
        ("dflockd_releases_total{cause=\"disconnect\"}", 0.0),
        ("dflockd_lease_expiries_total", 1.0),
        ("dflockd_wait_timeouts_total", 1.0),
        ("dflockd_refusals_total{status=\"error\"}", 1.0),
        ("dflockd_refusals_total{status=\"error_not_enqueued\"}", 1.0),
        ("dflockd_refusals_total{status=\"error_limit_mismatch\"}", 1.0),
        ("dflockd_refusals_total{status=\"error_max_waiters\"}", 1.0),
        ("dflockd_refusals_total{status=\"error_max_locks\"}", 1.0),
        ("dflockd_protocol_errors_total{code=\"4\"}", 1.0),
        ("dflockd_locks_held", 1.0),
        ("dflockd_lock_waiters", 1.0),
        ("dflockd_semaphore_holders", 2.0),
        ("dflockd_semaphore_waiters", 0.0),
        ("dflockd_keys{kind=\"lock\",state=\"in_use\"}", 1.0),
        ("dflockd_keys{kind=\"lock\",state=\"idle\"}", 2.0),
        ("dflockd_keys{kind=\"semaphore\",state=\"in_use\"}", 1.0),
        ("dflockd_keys{kind=\"semaphore\",state=\"idle\"}", 0.0),
        ("dflockd_connections", 3.0),
        ("dflockd_http_sessions", 1.0),
        ("dflockd_grant_wait_seconds_count", 5.0),
        ("dflockd_draining", 0.0),
        ("dflockd_ready", 1.0),
        ("dflockd_http_connections", 1.0),
    ] {
        assert!((value(&text, series) - want).abs() < 1e-9, "{series}: {}", value(&text, series));
    }
    assert_eq!(session.end().status, 204);
    // Without a wait a grant takes no time, unless etcd is asked.
    if !testbed::dflockd::is_on_etcd() {
        assert!(
            (value(&text, "dflockd_grant_wait_seconds_bucket{le=\"0.0001\"}") - 5.0).abs() < 1e-9
        );
        assert!(value(&text, "dflockd_grant_wait_seconds_sum").abs() < 1e-9);
    }
    // A grant after a wait is a slow one, and a connection that goes gives back what it had.
    assert_eq!(talker.ask("r", "k", &token), "ok");
    assert!(waiter.line().starts_with("ok "));
    drop((talker, waiter));
    until("all is given back", || {
        let text = site.get("/metrics").text().to_owned();
        value(&text, "dflockd_releases_total{cause=\"disconnect\"}") > 2.9
            && value(&text, "dflockd_grant_wait_seconds_sum") > 0.0
            && value(&text, "dflockd_connections") < 0.1
    });
    let text = site.get("/metrics").text().to_owned();
    assert!(value(&text, "dflockd_http_responses_total{code=\"200\"}") >= 2.0);
    assert!((value(&text, "dflockd_grant_wait_seconds_bucket{le=\"+Inf\"}") - 6.0).abs() < 1e-9);
}
