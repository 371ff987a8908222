//! Every path and method, and what the answers say.

use crate::great;
use crate::site::{Site, free_port};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::Stdio;
use testbed::dflockd::{Daemon, PATIENCE, in_shell, until};

const JSON: &str = "application/json";

/// Path, status of GET, type.
const PATHS: [(&str, u16, &str); 19] = [
    ("/", 200, "text/html; charset=utf-8"),
    ("/page.css", 200, "text/css; charset=utf-8"),
    ("/page.js", 200, "text/javascript; charset=utf-8"),
    ("/icon.svg", 200, "image/svg+xml"),
    ("/health", 200, JSON),
    ("/ready", 200, JSON),
    ("/v1/stats", 200, JSON),
    ("/v1/holders", 200, JSON),
    ("/v1/holders?key=a%2Fb&limit=3", 200, JSON),
    ("/v1/holders?limit=1001", 400, JSON),
    ("/v1/holders?nonsense=1", 400, JSON),
    ("/metrics", 200, "text/plain; version=0.0.4; charset=utf-8"),
    ("/nowhere", 404, JSON),
    ("/v1/openapi.json", 200, JSON),
    ("/v1/locks", 404, JSON),
    ("/health/", 404, JSON),
    ("/Health", 404, JSON),
    ("/%68ealth", 404, JSON),
    ("/page.css/../health", 404, JSON),
];
const OTHER_METHODS: [&str; 7] = ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"];

#[test]
fn every_path_and_method() {
    let site = Site::start(&[]);
    for (path, status, content_type) in PATHS {
        let get = site.get(path);
        assert_eq!(
            (get.status, get.header("content-type")),
            (status, Some(content_type)),
            "{path}"
        );
        assert!(!get.body.is_empty(), "{path}");
        let length = get.header("content-length").unwrap();
        assert_eq!(length, get.body.len().to_string(), "{path}");
        let head = site.ask("HEAD", path, "");
        assert_eq!((head.status, head.header("content-type")), (status, Some(content_type)));
        assert!(head.body.is_empty(), "{path}");
        assert!(head.header("content-length").is_some(), "{path}");
        for method in OTHER_METHODS {
            let answer = site.ask(method, path, "");
            let (want, allow) = match status {
                404 => (404, None),
                _ => (405, Some("GET, HEAD")),
            };
            assert_eq!((answer.status, answer.header("allow")), (want, allow), "{method} {path}");
            assert!(answer.json()["error"].is_string(), "{method} {path}");
        }
    }
}

/// No answer may be kept, framed, or taken for another type, and nothing but the page may run.
#[test]
fn every_answer_has_the_headers_that_protect_it() {
    let site = Site::start(&[]);
    for (path, ..) in PATHS {
        for method in ["GET", "HEAD", "POST"] {
            let answer = site.ask(method, path, "");
            assert_eq!(answer.header("cache-control"), Some("no-store"), "{method} {path}");
            assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
            assert_eq!(answer.header("x-frame-options"), Some("DENY"));
            assert_eq!(answer.header("referrer-policy"), Some("no-referrer"));
            assert_eq!(answer.header("cross-origin-resource-policy"), Some("same-origin"));
            assert_eq!(answer.header("access-control-allow-origin"), None);
            let policy = answer.header("content-security-policy").unwrap();
            assert!(policy.starts_with("default-src 'none';"), "{policy}");
            for loose in ["unsafe", "*", "http:", "https:", "data:", "blob:"] {
                assert!(!policy.contains(loose), "{policy}");
            }
            for strict in ["frame-ancestors 'none'", "base-uri 'none'"] {
                assert!(policy.contains(strict), "{policy}");
            }
            let may_run = policy.contains("script-src 'self'");
            assert_eq!(may_run, path == "/" && method != "POST", "{method} {path}");
            assert!(!may_run || policy.contains("form-action 'none'"), "{policy}");
        }
    }
}

#[test]
fn without_a_port_there_is_no_http() {
    let daemon = Daemon::start(&["--http-host", "127.0.0.1"]);
    assert_eq!(daemon.talk().ask("ping", "_", "_"), "ok");
    assert!(!daemon.log().iter().any(|line| line.contains("HTTP")));
}

/// The service manager's socket is for locks; HTTP has its own port beside it.
#[test]
fn beside_a_socket_of_the_service_manager() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let port = free_port();
    let script = "exec 3<&0 </dev/null
        LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" --port 1 --http-port \"$1\"";
    let mut command = in_shell(script);
    command.arg(port.to_string()).stdin(Stdio::from(OwnedFd::from(listener)));
    let daemon = Daemon::run(&mut command);
    assert_eq!(daemon.address, address);
    daemon.logged("msg=\"HTTP listening\"");
    let site = Site { daemon, http: ([127, 0, 0, 1], port).into() };
    let _holder = site.hold(["k".to_owned()].into_iter());
    assert_eq!(site.holders()["keys"][0]["key"], "k");
}

/// A body without its times, which differ from moment to moment.
fn timeless(body: &str) -> String {
    let is_time = |sign: char| sign.is_ascii_digit() || sign == '.';
    body.split_inclusive("_s\":").map(|part| part.trim_start_matches(is_time)).collect()
}

#[test]
fn stats_are_those_of_the_command() {
    let site = Site::start(&[]);
    let mut talker = site.daemon.talk();
    talker.take("lock", "0");
    let token = talker.take("idle", "0");
    assert_eq!(talker.ask("r", "idle", &token), "ok");
    assert!(talker.ask("sl", "sem", "0 3").starts_with("ok "));
    assert_eq!(site.daemon.talk().ask("ping", "_", "_"), "ok");
    site.daemon.talk().say(b"l\n<b>&\"\n0\n");
    site.daemon.until_stats("\"connections\":2");
    // The client of the command counts itself; a client of HTTP is no connection of the locks.
    let command = testbed::until(PATIENCE, || {
        let command = talker.ask("stats", "_", "_");
        command.contains("\"connections\":1,").then_some(command)
    });
    let command = command.expect("the last of the others has left");
    let command = command.strip_prefix("ok ").unwrap();
    assert!(command.contains("idle_s"), "{command}");
    assert_eq!(timeless(site.get("/v1/stats").text()), timeless(command));
}

/// In pieces, without a length, and with as many keys as a body may have.
#[test]
fn a_great_stats_body_is_whole() {
    let most = great().min(10_000);
    let site = Site::start(&["--max-locks", &great().to_string()]);
    let _holder = site.hold((0..great()).map(|key| format!("key-{key}")));
    let answer = site.get("/v1/stats");
    assert_eq!(answer.header("transfer-encoding"), Some("chunked"));
    assert_eq!(answer.json()["locks"].as_array().unwrap().len(), most);
    assert_eq!(answer.json().get("truncated").is_some(), most < great());
    let head = site.ask("HEAD", "/v1/stats", "");
    assert_eq!((head.status, head.body.len()), (200, 0));
    // One that does not know chunks gets it to the end of the connection.
    let old = site.say(b"GET /v1/stats HTTP/1.0\r\n\r\n").unwrap();
    assert_eq!(old.header("transfer-encoding"), None);
    assert_eq!(old.json()["locks"].as_array().unwrap().len(), most);
}

#[test]
fn holders_and_waiters_are_shown_in_order() {
    let site = Site::start(&[]);
    let mut holder = site.daemon.talk();
    let token = holder.take("deploy", "0 100");
    let mut waiters = [site.daemon.talk(), site.daemon.talk()];
    for (place, waiter) in waiters.iter_mut().enumerate() {
        waiter.say(b"l\ndeploy\n600\n");
        site.daemon.until_stats(&format!("\"waiters\":{}", place + 1));
    }
    assert!(holder.ask("sl", "pool", "0 3").starts_with("ok "));
    assert!(holder.ask("sl", "pool", "0 3").starts_with("ok "));
    until("those who asked for the stats have left", || site.holders()["connections"] == 3);
    let seen = site.holders();
    let totals = ["keys_in_use", "holders", "waiters", "matching", "shown", "connections"];
    let totals = totals.map(|name| seen[name].as_u64().unwrap());
    assert_eq!(totals, [2, 3, 2, 2, 2, 3]);
    assert_eq!(seen["draining"], false);
    let [deploy, pool] = seen["keys"].as_array().unwrap().as_slice() else { panic!("{seen}") };
    assert_eq!(
        (&deploy["key"], &deploy["limit"], &deploy["held"]),
        (&json!("deploy"), &json!(1), &json!(1))
    );
    let first = &deploy["holders"][0];
    assert_eq!((&first["address"], &first["connected"]), (&json!("127.0.0.1"), &json!(true)));
    assert_eq!(first.get("reader"), None);
    assert!(first["held_s"].as_f64().unwrap() < 60.0);
    let left = first["lease_left_s"].as_f64().unwrap();
    assert!(left > 40.0 && left <= 100.0, "{left}");
    let queue = |seen: &Value| -> Vec<u64> {
        let key = &seen["keys"][0];
        key["queue"].as_array().unwrap().iter().map(|w| w["connection"].as_u64().unwrap()).collect()
    };
    let [next, last] = queue(&seen)[..] else { panic!("{seen}") };
    assert!(next < last, "they came in this order");
    assert_eq!(
        (&pool["limit"], &pool["held"], &pool["waiters"]),
        (&json!(3), &json!(2), &json!(0))
    );
    assert_eq!(pool["holders"].as_array().unwrap().len(), 2);
    assert_eq!(holder.ask("r", "deploy", &token), "ok");
    assert!(waiters[0].line().starts_with("ok "));
    let seen = site.holders();
    let deploy = seen["keys"].as_array().unwrap().iter().find(|k| k["key"] == "deploy").unwrap();
    assert_eq!((&deploy["holders"][0]["connection"], queue(&seen)), (&json!(next), vec![last]));
}

/// A hold that stayed when its connection went.
#[test]
fn a_holder_that_is_gone_is_shown_as_such() {
    let site = Site::start(&["--auto-release-on-disconnect=false"]);
    assert!(site.daemon.talk().ask("rl", "k", "0 600").starts_with("ok "));
    until("the connection is gone", || {
        let holder = site.holders()["keys"][0]["holders"][0].clone();
        assert_eq!(holder["reader"], true);
        holder["connected"] == false && holder["address"].is_null()
    });
}

#[test]
fn a_great_table_is_cut_and_says_so() {
    let site = Site::start(&["--max-locks", "5000"]);
    // The longest keys there are, of signs that need six times the room.
    let name = |key| format!("{}{key:04}", "<".repeat(252));
    let _holder = site.hold((0..5000).map(name));
    let seen = |query: &str| {
        let answer = site.get(&format!("/v1/holders{query}"));
        assert!(answer.body.len() < 600 * 1024, "{}", answer.body.len());
        let value = answer.json();
        let keys = value["keys"].as_array().unwrap().len();
        assert_eq!(value["shown"].as_u64().unwrap(), keys as u64);
        (keys, value["matching"].as_u64().unwrap())
    };
    // The table of etcd is read now and then, and may be some moments old.
    until("all keys are seen", || seen("") == (200, 5000));
    assert_eq!(seen("?limit=7"), (7, 5000));
    assert_eq!(seen("?limit=0"), (0, 5000));
    let (most, matching) = seen("?limit=1000");
    assert!(most > 200 && most < 1000, "{most}");
    assert_eq!(matching, 5000);
    assert_eq!(seen("?key=123"), (10 + 5, 15));
    assert_eq!(seen("?key=%3C4999"), (1, 1));
    assert_eq!(seen("?key=nobody"), (0, 0));
}

/// A long queue and many holders of one key are cut as well.
#[test]
fn many_parties_of_one_key_are_cut() {
    let site = Site::start(&[]);
    let mut holder = site.daemon.talk();
    for _ in 0..30 {
        assert!(holder.ask("sl", "pool", "0 30").starts_with("ok "));
    }
    let mut waiters: Vec<_> = (0..25).map(|_| site.daemon.talk()).collect();
    for waiter in &mut waiters {
        waiter.say(b"sl\npool\n600 30\n");
    }
    site.daemon.until_stats("\"waiters\":25");
    let key = site.holders()["keys"][0].clone();
    let count = |name: &str| key[name].as_array().unwrap().len();
    assert_eq!((&key["held"], &key["waiters"]), (&json!(30), &json!(25)));
    assert_eq!((count("holders"), count("queue")), (20, 20));
}

/// A client that knows a token may release, so no answer here contains one.
#[test]
fn no_token_is_ever_shown() {
    let site = Site::start(&["--debug"]);
    let mut talker = site.daemon.talk();
    let mut tokens = vec![talker.take("lock", "0")];
    tokens.push(talker.token("sl", "pool", "0 2"));
    for (path, ..) in PATHS {
        let answer = site.get(path);
        for token in &tokens {
            assert!(!answer.text().contains(&token[16..]), "{path}");
            assert!(!answer.text().contains(&token[..16]), "{path}");
        }
    }
    assert_eq!(site.holders()["holders"], 2);
}

#[test]
fn draining_is_told_until_the_last_client_has_left() {
    let mut site = Site::start(&[]);
    let mut client = site.daemon.talk();
    let token = client.take("k", "0");
    assert_eq!(site.get("/ready").json(), json!({"status": "ready"}));
    // Connections of the HTTP side are no reason to stay.
    let idle = site.connect();
    let mut kept = site.connect();
    kept.write_all(b"GET /ready HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut start = [0; 15];
    kept.read_exact(&mut start).unwrap();
    assert_eq!(&start, b"HTTP/1.1 200 OK");
    site.daemon.signal(Signal::SIGTERM);
    site.daemon.logged("shutting down");
    until("readiness ends", || site.get("/ready").status == 503);
    let ready = site.get("/ready");
    assert_eq!((ready.status, ready.json()), (503, json!({"status": "draining"})));
    assert_eq!(site.ask("HEAD", "/ready", "").status, 503);
    assert_eq!(site.get("/health").status, 200);
    assert_eq!(site.get("/").status, 200);
    assert!(site.get("/metrics").text().contains("\ndflockd_draining 1\n"));
    assert_eq!(site.holders()["holders"], json!(1));
    assert_eq!(site.holders()["draining"], json!(true));
    assert!(TcpStream::connect(site.daemon.address).is_err(), "nobody new comes");
    assert_eq!(client.ask("r", "k", &token), "ok");
    drop(client);
    assert_eq!(site.daemon.ended().code(), Some(0));
    drop((idle, kept));
}
