//! Options, environment, exit codes, and the sockets it can listen on.

use rstest::rstest;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Output, Stdio};
use testbed::dflockd::{Daemon, PATIENCE, in_shell, program, until};

fn output(arguments: &[&str]) -> Output {
    program().args(arguments).output().unwrap()
}

/// What is wrong with the files of TLS is said in words, and of which file.
#[rstest]
#[case::cert_of_nothing("hello\n", None, "a.pem: no certificate in it")]
#[case::cert_damaged(
    "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    None,
    "a.pem: the certificate is damaged"
)]
#[case::cert_of_no_letters(
    "-----BEGIN CERTIFICATE-----\n!!!!\n-----END CERTIFICATE-----\n",
    None,
    "a.pem: not a PEM file"
)]
#[case::cert_cut("-----BEGIN CERTIFICATE-----\nAAAA\n", None, "a.pem: the end is missing")]
#[case::key_of_nothing(CERT, Some("hello\n"), "b.pem: it contains nothing of this kind")]
#[case::key_of_no_kind(
    CERT,
    Some("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"),
    "b.pem: this kind of key is not supported"
)]
#[case::key_of_another(include_str!("tls/ca.pem"), None, "b.pem: not the key of the certificate in ")]
fn files_of_tls(#[case] cert: &str, #[case] key: Option<&str>, #[case] said: &str) {
    let dir = tempfile::tempdir().unwrap();
    let [a, b] = ["a.pem", "b.pem"].map(|name| dir.path().join(name));
    std::fs::write(&a, cert).unwrap();
    std::fs::write(&b, key.unwrap_or(include_str!("tls/key.pem"))).unwrap();
    let mut server = program();
    let output = server.arg("--tls-cert").arg(&a).arg("--tls-key").arg(&b).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && text.contains(said), "{text}");
    assert!(!text.contains(['(', '[']), "{text}");
}

const CERT: &str = include_str!("tls/cert.pem");

#[rstest]
#[case::unknown_flag(&["--nonsense"], "flag provided but not defined: -nonsense")]
#[case::no_value(&["--port"], "flag needs an argument: -port")]
#[case::no_number(&["--port", "x"], "invalid value \"x\" for flag -port")]
#[case::no_switch(&["--debug=maybe"], "invalid value \"maybe\" for flag -debug")]
#[case::bad_syntax(&["---port", "1"], "bad flag syntax: ---port")]
#[case::port_too_high(&["--port", "65536"], "configuration error: --port must be 0 to 65535")]
#[case::port_negative(&["--port", "-1"], "configuration error: --port must be 0 to 65535")]
#[case::http_port_too_high(&["--http-port", "65536"], "--http-port must be 0 to 65535")]
#[case::no_such_http_host(
    &["--port", "0", "--http-port", "1", "--http-host", "256.256.256.256"],
    "--http-host and --http-port: listen 256.256.256.256:1"
)]
#[case::zero_lease(&["--default-lease-ttl", "0"], "configuration error: --default-lease-ttl must be > 0")]
#[case::zero_sweep(&["--lease-sweep-interval", "0"], "--lease-sweep-interval must be > 0")]
#[case::zero_gc(&["--gc-interval=0"], "--gc-interval must be > 0")]
#[case::zero_idle(&["--gc-max-idle=0"], "--gc-max-idle must be > 0")]
#[case::zero_locks(&["--max-locks=0"], "--max-locks must be > 0")]
#[case::negative_waiters(&["--max-waiters=-1"], "--max-waiters must be >= 0")]
#[case::negative_connections(&["--max-connections=-1"], "--max-connections must be >= 0")]
#[case::zero_read_timeout(&["--read-timeout=0"], "--read-timeout must be > 0")]
#[case::negative_write_timeout(&["--write-timeout=-1"], "--write-timeout must be >= 0")]
#[case::negative_shutdown(&["--shutdown-timeout=-1"], "--shutdown-timeout must be >= 0")]
#[case::endless_timeout(&["--read-timeout=9223372037"], "--read-timeout must be <= 9223372036")]
#[case::cert_alone(&["--tls-cert", "x"], "both --tls-cert and --tls-key must be provided together")]
#[case::key_alone(&["--tls-key", "x"], "both --tls-cert and --tls-key must be provided together")]
#[case::no_such_cert(
    &["--tls-cert", "/nowhere", "--tls-key", "/nowhere"],
    "--tls-cert and --tls-key: /nowhere: No such file"
)]
#[case::switch_apart(&["--debug", "false"], "unexpected argument: false\ntip: write --debug=false\n")]
#[case::switch_wrong(&["--debug=maybe"], "needs true or false, as in --debug=false")]
#[case::no_whole_number(&["--max-locks", "many"], "-max-locks: needs a whole number")]
#[case::no_state_directory(&["--state-dir", "/dev/null/x"], "--state-dir /dev/null/x: ")]
#[case::no_socket_directory(&["--port", "0", "--unix-socket", "/nowhere/x"], "--unix-socket /nowhere/x: ")]
#[case::no_such_prefixes(&["--auth-prefix-file", "/nowhere"], "--auth-prefix-file /nowhere: No such file")]
#[case::no_such_admin(&["--admin-token-file", "/nowhere"], "--admin-token-file /nowhere: No such file")]
#[case::no_such_metrics(&["--metrics-token-file", "/nowhere"], "--metrics-token-file /nowhere: No such")]
#[case::sync_without_state(&["--state-sync"], "--state-sync needs --state-dir")]
#[case::absent_option(&["--max-subscriptions", "9"], "publish and listen are not supported, as in version 2 of the reference; leave it out")]
#[case::a_word_too_many(&["--port", "0", "more"], "unexpected argument: more")]
#[case::no_such_secret(&["--auth-token-file", "/nowhere"], "--auth-token-file /nowhere: No such file")]
#[case::empty_secret(&["--auth-token-file", "/dev/null"], "contains no auth token")]
#[case::newline_in_secret(&["--auth-token", "a\nb"], "must not contain a newline")]
#[case::no_such_host(
    &["--host", "256.256.256.256", "--port", "0"],
    "--host and --port: listen 256.256.256.256"
)]
#[case::no_such_store(&["--store", "redis"], "--store must be memory or etcd")]
#[case::no_endpoint(&["--store=etcd", "--etcd-endpoints", " , "], "--etcd-endpoints must name")]
#[case::https(&["--store=etcd", "--etcd-endpoints", "https://a:1"], "https needs --etcd-ca")]
#[case::no_address(&["--store=etcd", "--etcd-endpoints", "not an address"], "--etcd-endpoints: ")]
#[case::etcd_cert_alone(&["--store=etcd", "--etcd-cert", "c"], "--etcd-cert and --etcd-key")]
#[case::no_ca(&["--store=etcd", "--etcd-cert", "c", "--etcd-key", "k"], "--etcd-cert needs --etcd-ca")]
#[case::no_such_ca(&["--store=etcd", "--etcd-ca", "/nowhere"], "--etcd-ca: /nowhere: No such")]
#[case::no_such_etcd_cert(
    &["--store=etcd", "--etcd-ca", "/dev/null", "--etcd-cert", "/nowhere", "--etcd-key", "/dev/null"],
    "--etcd-cert: /nowhere: No such"
)]
// The file of the first option that has the same beginning is not the one that is wrong.
#[case::no_such_etcd_key(
    &["--store=etcd", "--etcd-ca", "/dev/null", "--etcd-cert", "/dev/null", "--etcd-key", "/dev/null/x"],
    "--etcd-key: /dev/null/x: Not a directory"
)]
#[case::no_etcd_cert_in_the_file(
    &["--store=etcd", "--etcd-ca", "/dev/null", "--etcd-cert", "/dev/null", "--etcd-key", "/dev/null"],
    "--etcd-cert and --etcd-key: "
)]
#[case::user_alone(&["--store=etcd", "--etcd-user", "u"], "--etcd-user and --etcd-password-file")]
#[case::no_such_password(
    &["--store=etcd", "--etcd-user", "u", "--etcd-password-file", "/nowhere"],
    "--etcd-password-file: /nowhere: No such"
)]
#[case::no_prefix(&["--store=etcd", "--etcd-prefix="], "--etcd-prefix")]
fn a_bad_configuration_ends_with_one(#[case] arguments: &[&str], #[case] message: &str) {
    let output = output(arguments);
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains(message) && stderr.contains("configuration error: "), "{stderr}");
    assert!(output.stdout.is_empty());
}

#[test]
fn help_shows_every_option_in_eighty_columns() {
    for word in ["--help", "-h", "-help"] {
        let output = output(&[word]);
        assert_eq!((output.status.code(), output.stderr), (Some(0), Vec::new()));
        let shown = String::from_utf8(output.stdout).unwrap();
        for flag in dflockd::config::FLAGS {
            assert!(shown.contains(&format!("  --{}", flag.name)), "{}", flag.name);
        }
        let long: Vec<_> = shown.lines().filter(|line| line.chars().count() > 80).collect();
        assert!(long.is_empty() && shown.contains("\nExamples:\n"), "{long:#?}");
    }
}

#[test]
fn the_version_is_one_line_on_standard_output() {
    for word in ["--version", "-version", "--version=true"] {
        let output = output(&[word]);
        assert_eq!(output.status.code(), Some(0));
        assert_eq!(output.stdout, format!("dflockd {}\n", env!("CARGO_PKG_VERSION")).as_bytes());
    }
}

/// One line names all addresses that other machines can reach, if no secret is set.
#[rstest]
#[case::all(&["--host", "0.0.0.0"], 1)]
#[case::all_of_both(&["--host", ""], 1)]
#[case::http(&["--http-host", "0.0.0.0"], 1)]
#[case::this_machine(&[], 0)]
#[case::this_machine_too(&["--host", "127.0.0.2"], 0)]
#[case::with_a_secret(&["--host", "0.0.0.0", "--auth-token", "sesame"], 0)]
fn a_server_for_other_machines_warns_without_a_secret(
    #[case] arguments: &[&str],
    #[case] lines: usize,
) {
    const TEXT: &str = "every machine that reaches this server may use it";
    let http_port = testbed::dflockd::free_port().to_string();
    let daemon = Daemon::start(&[arguments, &["--http-port", &http_port]].concat());
    let is_http = arguments.contains(&"--http-host");
    let port = if is_http { http_port } else { daemon.address.port().to_string() };
    if lines > 0 {
        let line = daemon.logged(TEXT);
        assert!(line.contains("level=WARN") && line.contains("--auth-token-file"), "{line}");
        assert!(line.contains(&format!(":{port}")), "{line}");
    }
    daemon.talk();
    daemon.logged("listening");
    daemon.signal(nix::sys::signal::Signal::SIGHUP);
    daemon.logged("read again");
    assert_eq!(daemon.log().iter().filter(|line| line.contains(TEXT)).count(), lines);
}

/// The configuration may be right: another program has the place.
#[rstest]
#[case::of_locks(&["--port"])]
#[case::of_http(&["--port", "0", "--http-port"])]
fn a_taken_port_ends_it_with_one(#[case] options: &[&str]) {
    let taken = testbed::dflockd::listen_on_free_port("127.0.0.1");
    let port = taken.local_addr().unwrap().port().to_string();
    let output = output(&[options, &[&port]].concat());
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8(output.stderr).unwrap();
    let want = format!(
        "cannot start: another program listens on 127.0.0.1:{port}, perhaps another dflockd: end it, or choose \
         another {}\n",
        options[options.len() - 1]
    );
    assert!(stderr.ends_with(&want) && !stderr.contains("configuration"), "{stderr}");
}

#[test]
fn a_taken_socket_ends_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let _taken = UnixListener::bind(&path).unwrap();
    let path = path.to_str().unwrap();
    let output = output(&["--port", "0", "--unix-socket", path]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    let want = format!("cannot start: --unix-socket {path}: another program listens there");
    assert!(stderr.contains(&want), "{stderr}");
}

/// The manual page and the table of options say the same.
#[test]
fn the_manual_page_has_every_option_and_variable() {
    let page = include_str!("../../man/dflockd.8").replace("\\-", "-");
    for flag in dflockd::config::FLAGS {
        assert!(page.contains(&format!("--{}", flag.name)), "--{}", flag.name);
        for variable in flag.env {
            assert!(page.contains(variable), "{variable}");
        }
    }
}

#[rstest]
#[case::default(&[], None, 33)]
#[case::flag(&["--default-lease-ttl", "5"], None, 5)]
#[case::one_dash(&["-default-lease-ttl", "5"], None, 5)]
#[case::with_sign(&["--default-lease-ttl=5"], None, 5)]
#[case::last_one_counts(&["-default-lease-ttl=5", "-default-lease-ttl=6"], None, 6)]
#[case::hexadecimal(&["--default-lease-ttl", "0x10"], None, 16)]
#[case::environment(&[], Some("7"), 7)]
#[case::flag_over_environment(&["--default-lease-ttl", "5"], Some("7"), 5)]
#[case::empty_environment(&[], Some(""), 33)]
#[case::bad_environment_is_passed_over(&[], Some("7s"), 33)]
#[case::hexadecimal_environment_is_passed_over(&[], Some("0x7"), 33)]
fn precedence(#[case] arguments: &[&str], #[case] environment: Option<&str>, #[case] want: u64) {
    let mut command = program();
    command.args(["--port", "0"]).args(arguments);
    if let Some(value) = environment {
        command.env("DFLOCKD_DEFAULT_LEASE_TTL_S", value);
    }
    let daemon = Daemon::run(&mut command);
    let reply = daemon.talk().ask("l", "k", "0");
    assert!(reply.ends_with(&format!(" {want}")), "{reply}");
}

#[rstest]
#[case::flag(&["--auth-token", "t1"], &[("DFLOCKD_AUTH_TOKEN", "t2")], "t1")]
#[case::flag_file(&["--auth-token-file", "FILE"], &[("DFLOCKD_AUTH_TOKEN", "t2")], "from file")]
#[case::flag_over_flag_file(&["--auth-token-file", "FILE", "--auth-token", "t1"], &[], "t1")]
#[case::environment(&[], &[("DFLOCKD_AUTH_TOKEN", "t2"), ("DFLOCKD_AUTH_TOKEN_FILE", "FILE")], "t2")]
#[case::environment_file(&[], &[("DFLOCKD_AUTH_TOKEN_FILE", "FILE")], "from file")]
fn precedence_of_the_secret(
    #[case] arguments: &[&str],
    #[case] environment: &[(&str, &str)],
    #[case] want: &str,
) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("secret");
    std::fs::write(&path, "\n  from file \n").unwrap();
    let path = path.to_str().unwrap();
    let mut command = program();
    command.args(["--port", "0"]);
    command.args(arguments.iter().map(|word| word.replace("FILE", path)));
    for (name, value) in environment {
        command.env(name, if *value == "FILE" { path } else { value });
    }
    let daemon = Daemon::run(&mut command);
    assert_eq!(daemon.talk().ask("auth", "_", want), "ok");
}

#[rstest]
#[case("127.0.0.1", "127.0.0.1:")]
#[case("localhost", ":")]
#[case("::1", "[::1]:")]
#[case("[::1]", "[::1]:")]
fn the_server_listens_on_the_given_host(#[case] host: &str, #[case] want: &str) {
    let daemon = Daemon::start(&["--host", host]);
    assert!(daemon.address.to_string().contains(want), "{}", daemon.address);
    assert_eq!(daemon.talk().ask("ping", "_", "_"), "ok");
}

fn ask_unix(path: &std::path::Path, text: &str) -> String {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    line
}

#[test]
fn a_unix_socket_beside_the_port() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("dflockd.sock");
    let daemon = Daemon::start(&["--unix-socket", path.to_str().unwrap()]);
    daemon.logged("addr=unix:");
    assert_eq!(ask_unix(&path, "ping\n_\n_\n"), "ok\n");
    let mut holder = daemon.talk();
    let token = holder.take("k", "0");
    // The end of a waiting peer is seen here, too; a half-closed one is answered.
    let mut gone = UnixStream::connect(&path).unwrap();
    gone.write_all(b"l\nk\n600\n").unwrap();
    daemon.until_stats("\"waiters\":1");
    drop(gone);
    daemon.until_stats("\"waiters\":0");
    let mut half = UnixStream::connect(&path).unwrap();
    half.write_all(b"l\nk\n600\n").unwrap();
    half.shutdown(Shutdown::Write).unwrap();
    daemon.until_stats("\"waiters\":1");
    assert_eq!(holder.ask("r", "k", &token), "ok");
    let mut reply = String::new();
    half.read_to_string(&mut reply).unwrap();
    assert!(reply.starts_with("ok "), "{reply:?}");
}

#[test]
fn a_left_over_unix_socket_is_replaced_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("dflockd.sock");
    drop(UnixListener::bind(&path).unwrap());
    // A process that another test is starting has it until it executes its program.
    until("nobody listens any more", || UnixStream::connect(&path).is_err());
    let arguments = ["--unix-socket", path.to_str().unwrap()];
    let daemon = Daemon::start(&arguments);
    daemon.logged("addr=unix:");
    assert_eq!(ask_unix(&path, "ping\n_\n_\n"), "ok\n");
    // Somebody listens there: no.
    assert_eq!(output(&[&["--port", "0"], arguments.as_slice()].concat()).status.code(), Some(1));
    assert_eq!(ask_unix(&path, "ping\n_\n_\n"), "ok\n");
    drop(daemon);
    let file = dir.path().join("notes");
    std::fs::write(&file, "mine").unwrap();
    let refused = output(&["--port", "0", "--unix-socket", file.to_str().unwrap()]);
    assert_eq!(refused.status.code(), Some(1));
    assert_eq!(std::fs::read(&file).unwrap(), b"mine");
}

/// As systemd does it: the socket is descriptor 3, and two variables say so.
fn passed(socket: OwnedFd) -> Daemon {
    let script = "exec 3<&0 </dev/null; LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" --port 1";
    Daemon::run(in_shell(script).stdin(Stdio::from(socket)))
}

#[test]
fn a_passed_unix_socket_is_used_instead_of_the_address() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("passed.sock");
    let daemon = passed(UnixListener::bind(&path).unwrap().into());
    daemon.logged("addr=unix:");
    assert_eq!(ask_unix(&path, "ping\n_\n_\n"), "ok\n");
}

/// The soft limit of open files is for programs that use select(2).
#[test]
fn the_soft_limit_of_descriptors_is_raised() {
    let daemon = Daemon::run(&mut in_shell("ulimit -Sn 50; exec \"$0\" --port 0"));
    let mut clients: Vec<_> = (0..80).map(|_| daemon.talk()).collect();
    until("all are served", || clients.iter_mut().all(|c| c.ask("ping", "_", "_") == "ok"));
}
