//! A client with a secret for some keys, beside others that read every key there is: nothing of what
//! they read comes to it, and nobody's answers are torn.

use crate::site::Site;
use serde_json::Value;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use testbed::dflockd::Talker;

const KEYS: usize = 1000;
const WORKERS: usize = 8;
const READERS: usize = 5;
/// Bodies that each reader reads.
const BODIES: usize = 15;
const HEADER: &str = "Authorization: Bearer all\r\n";

fn known(site: &Site, secret: &str) -> Talker {
    let mut talker = site.daemon.talk();
    assert_eq!(talker.ask("auth", "_", secret), "ok");
    talker
}

/// Every key has its place in a body, and nothing else is in it.
fn check(body: &str) {
    let value: Value = serde_json::from_str(body).unwrap_or_else(|err| panic!("{err}: {body}"));
    let names = value["locks"].as_array().unwrap().iter().map(|lock| lock["key"].as_str().unwrap());
    let count = names.filter(|name| name.starts_with("others/")).count();
    assert_eq!(count, KEYS);
}

/// Takes, renews and gives back its own locks, and sends a `ping` behind each request.
fn worker(site: &Site, number: usize, readers: &AtomicUsize, begin: &Barrier) {
    let mut talker = known(site, "work");
    let key = format!("jobs/{number}");
    let mut ask = |command: &str, arg: &str| {
        talker.say(format!("{command}\n{key}\n{arg}\nping\n_\n_\n").as_bytes());
        let reply = talker.line();
        assert_eq!(talker.line(), "ok", "after {command}: {reply}");
        reply
    };
    // Every key is known before bodies are read: see `wire::stats`.
    let reply = ask("l", "0");
    assert_eq!(ask("r", &reply[3..35]), "ok");
    begin.wait();
    let is_token = |text: &str| text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit());
    while readers.load(Ordering::Relaxed) > 0 {
        let reply = ask("l", "0 33");
        let words: Vec<&str> = reply.split(' ').collect();
        let token = match words[..] {
            ["ok", token, "33"] if is_token(token) => token,
            _ => panic!("{reply}"),
        };
        assert_eq!(ask("n", token), "ok 33");
        assert_eq!(ask("r", token), "ok");
        assert_eq!(ask("stats", "_"), "error_auth");
    }
}

fn read_bodies(site: &Site, number: usize) {
    let mut talker = known(site, "all");
    for round in 0..BODIES {
        let detail = if (number + round) % 2 == 0 { "long" } else { "_" };
        let reply = talker.ask("stats", detail, "_");
        check(reply.strip_prefix("ok ").unwrap_or_else(|| panic!("{reply}")));
        assert_eq!(talker.ask("ping", "_", "_"), "ok");
    }
}

fn read_pages(site: &Site) {
    for _ in 0..BODIES {
        check(site.ask("GET", "/v1/stats", HEADER).text());
        let holders = site.ask("GET", "/v1/holders?key=others/", HEADER);
        assert_eq!((holders.status, holders.json().is_object()), (200, true));
        assert!(site.ask("GET", "/", HEADER).text().ends_with("</html>\n"));
    }
}

#[test]
fn no_reader_gets_the_answer_of_another() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(path("full"), "all\n").unwrap();
    std::fs::write(path("some"), "jobs/ work\n").unwrap();
    let site = Site::start(&[
        "--auth-token-file",
        &path("full"),
        "--auth-prefix-file",
        &path("some"),
        "--max-locks",
        "5000",
    ]);
    let mut holder = known(&site, "all");
    for first in (0..KEYS).step_by(100) {
        let frame = |key: usize| format!("l\nothers/key-{key}\n0 3600\n");
        holder.say((first..first + 100).map(frame).collect::<String>().as_bytes());
        (0..100).for_each(|_| assert!(holder.line().starts_with("ok ")));
    }
    let (readers, begin) = (AtomicUsize::new(READERS), Barrier::new(WORKERS + READERS));
    std::thread::scope(|scope| {
        let (site, readers, begin) = (&site, &readers, &begin);
        for number in 0..WORKERS {
            scope.spawn(move || worker(site, number, readers, begin));
        }
        for number in 0..READERS {
            scope.spawn(move || {
                begin.wait();
                let read = std::panic::AssertUnwindSafe(|| match number {
                    0 => read_pages(site),
                    number => read_bodies(site, number),
                });
                let result = std::panic::catch_unwind(read);
                readers.fetch_sub(1, Ordering::Relaxed);
                result.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            });
        }
    });
}
