//! What administrators may do, with a secret of their own.

use crate::site::Site;
use rstest::rstest;
use std::io::Write;
use tempfile::NamedTempFile;
use testbed::dflockd::{Daemon, in_shell};

fn secret(text: &str) -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

fn site() -> (Site, [NamedTempFile; 3]) {
    let files = [secret("full"), secret("admin"), secret("numbers")];
    let paths = files.each_ref().map(|file| file.path().to_str().unwrap().to_owned());
    let site = Site::start(&[
        "--auth-token-file",
        &paths[0],
        "--admin-token-file",
        &paths[1],
        "--metrics-token-file",
        &paths[2],
    ]);
    (site, files)
}

const ADMIN: &str = "Authorization: Bearer admin\r\n";

#[rstest]
#[case("POST", "/v1/admin/release?key=k", "full", 401)]
#[case("POST", "/v1/admin/release?key=k", "numbers", 401)]
#[case("POST", "/v1/admin/kick?connection=1", "", 401)]
#[case("GET", "/v1/admin/release?key=k", "admin", 405)]
#[case("HEAD", "/v1/admin/release?key=k", "admin", 405)]
#[case("PUT", "/v1/admin/release?key=k", "admin", 405)]
#[case("DELETE", "/v1/admin/kick?connection=1", "admin", 405)]
#[case("POST", "/v1/admin/release", "admin", 400)]
#[case("POST", "/v1/admin/kick?connection=x", "admin", 400)]
#[case("POST", "/v1/admin/release?key=a%2Fb", "admin", 404)]
#[case("POST", "/v1/admin/kick?connection=9", "admin", 404)]
#[case("GET", "/metrics", "numbers", 200)]
#[case("GET", "/metrics", "admin", 200)]
#[case("GET", "/v1/stats", "numbers", 401)]
#[case("GET", "/v1/holders", "admin", 200)]
fn each_secret_opens_its_own(
    #[case] method: &str,
    #[case] path: &str,
    #[case] secret: &str,
    #[case] want: u16,
) {
    let (site, _files) = site();
    let header = format!("Authorization: Bearer {secret}\r\n");
    assert_eq!(site.ask(method, path, &header).status, want);
    // Only the first one is a secret for locks.
    let expected = if secret == "full" { "ok" } else { "error_auth" };
    assert_eq!(site.daemon.talk().ask("auth", "_", secret), expected);
}

#[test]
fn without_an_admin_secret_nobody_is_administrator() {
    let site = Site::start(&[]);
    assert_eq!(site.ask("POST", "/v1/admin/release?key=k", "").status, 403);
    assert_eq!(site.ask("POST", "/v1/admin/release?key=k", ADMIN).status, 403);
}

/// Clients may say who they are; people read it where they look for holders.
#[test]
fn names_and_values_are_shown() {
    let site = Site::start(&[]);
    let mut holder = site.daemon.talk();
    assert_eq!(holder.ask("name", "_", "web1 4711 \u{1b}[31mbackup"), "ok");
    assert_eq!(holder.ask("value", "_", "<i>10.0.0.7:8080"), "ok");
    holder.take("k", "0 600");
    let mut waiter = site.daemon.talk();
    assert_eq!(waiter.ask("name", "_", &"x".repeat(250)), "ok");
    waiter.say(b"l\nk\n600\n");
    site.daemon.until_stats("\"waiters\":1");
    let long = site.daemon.talk().ask("stats", "long", "_");
    assert!(long.contains("\"owner\":\"web1 4711 \\u001b[31mbackup\""), "{long}");
    assert!(!site.daemon.stats().contains("owner\":"));
    let holders = site.holders();
    assert_eq!(holders["keys"][0]["holders"][0]["name"], "web1 4711 \u{1b}[31mbackup");
    assert_eq!(holders["keys"][0]["holders"][0]["value"], "<i>10.0.0.7:8080");
    assert_eq!(holders["keys"][0]["queue"][0]["name"], "x".repeat(200));
    assert_eq!(holders["keys"][0]["queue"][0].get("value"), None);
}

/// Clients take all the descriptors there are: the HTTP side still answers.
#[test]
fn health_is_told_when_no_descriptor_is_left() {
    let port = crate::site::free_port();
    let mut command = in_shell("ulimit -n 300; exec \"$0\" --port 0 --http-port \"$1\"");
    let daemon = Daemon::run(command.arg(port.to_string()));
    daemon.logged("HTTP listening");
    let site = Site { daemon, http: ([127, 0, 0, 1], port).into() };
    let mut clients: Vec<_> = (0..400).map(|_| site.daemon.talk()).collect();
    site.daemon.logged("no descriptors left");
    assert_eq!(clients[0].ask("ping", "_", "_"), "ok");
    for path in ["/health", "/ready", "/metrics"] {
        assert_eq!(site.get(path).status, 200);
    }
    // Those outside come in when others go.
    let mut last = clients.pop().unwrap();
    drop(clients);
    assert_eq!(last.ask("ping", "_", "_"), "ok");
}
