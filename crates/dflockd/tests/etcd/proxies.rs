//! Three servers that reach each other through proxies, as balancers and published ports of containers are: a proxy that
//! ends and starts again changes nothing for the leader, whose process lives, and HTTP is answered through it.

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use rstest::rstest;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use testbed::dflockd::etcd as cluster;
use testbed::dflockd::{Daemon, Store, free_port, pem, program_on, until};

/// Passes connections on to a server; ended when this is dropped.
struct Proxy {
    from: u16,
    to: u16,
    process: Option<Child>,
}

impl Proxy {
    fn start(from: u16, to: u16) -> Self {
        let mut proxy = Self { from, to, process: None };
        proxy.run();
        proxy
    }

    fn run(&mut self) {
        let listen = format!("TCP-LISTEN:{},bind=127.0.0.1,reuseaddr,fork", self.from);
        let connect = format!("TCP:127.0.0.1:{}", self.to);
        let mut command = Command::new("socat");
        // It serves each connection in a process of its own; all are in one group.
        command.args([listen, connect]).process_group(0).stderr(Stdio::null());
        self.process = Some(command.spawn().unwrap());
        until("the proxy listens", || TcpStream::connect(("127.0.0.1", self.from)).is_ok());
    }

    /// Its connections end, and new ones are refused.
    fn end(&mut self) {
        let Some(mut process) = self.process.take() else { return };
        let group = Pid::from_raw(i32::try_from(process.id()).unwrap());
        killpg(group, Signal::SIGKILL).unwrap();
        process.wait().unwrap();
        until("the proxy refuses", || TcpStream::connect(("127.0.0.1", self.from)).is_err());
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.end();
    }
}

fn start(store: &Store, arguments: &[&str]) -> Daemon {
    Daemon::run(program_on(store).args(arguments))
}

fn times(daemon: &Daemon, words: &str) -> usize {
    daemon.log().iter().filter(|line| line.contains(words)).count()
}

/// A leader that the others reach through a proxy, and the two others.
struct Site {
    proxy: Proxy,
    leader: Daemon,
    http: SocketAddr,
    others: [Daemon; 2],
    /// Of the first of these.
    other_http: SocketAddr,
}

impl Site {
    /// All with these options.
    fn start(arguments: &[&str]) -> Self {
        let store = cluster::shared();
        let [port, public, http, other_http] = [(); 4].map(|()| free_port());
        let proxy = Proxy::start(public, port);
        let port = port.to_string();
        let public = format!("127.0.0.1:{public}");
        let start = |words: &[&str], http: u16| {
            let http = http.to_string();
            let mut command = program_on(&store);
            Daemon::run(command.args(words).args(["--http-port", &http]).args(arguments))
        };
        let leader = start(&["--port", &port, "--advertise", &public], http);
        let others = [other_http, 0].map(|http| start(&["--port", "0"], http));
        for other in &others {
            other.logged("linked to the leader");
        }
        let [http, other_http] =
            [http, other_http].map(|it| SocketAddr::from(([127, 0, 0, 1], it)));
        Self { proxy, leader, http, others, other_http }
    }

    /// How often the leader has called etcd.
    fn calls(&self) -> u64 {
        let page = testbed::dflockd::http(self.http, "GET /metrics HTTP/1.1");
        let number = page.split("\ndflockd_etcd_calls_total ").nth(1).unwrap();
        number.lines().next().unwrap().trim().parse().unwrap()
    }
}

#[test]
#[ignore = "needs programs: tests/run"]
fn a_proxy_that_starts_again_deposes_nobody() {
    let mut site = Site::start(&[]);
    let mut holder = site.leader.talk();
    let token = holder.take("k", "0 600");
    let mut waiter = site.leader.talk();
    waiter.say(b"l\nk\n600\n");
    site.leader.until_stats("\"waiters\":1");
    for round in 1..=2 {
        site.proxy.end();
        for other in &site.others {
            until("the leader cannot be reached", || times(other, "cannot reach") >= round);
        }
        // Meanwhile its own clients are served. A server that was deposed would be succeeded after 0.2 s.
        let before = site.calls();
        until("it goes on with its record", || site.calls() > before + 3);
        assert_eq!(holder.ask("n", "k", &format!("{token} 600")), "ok 600");
        site.proxy.run();
        for other in &site.others {
            until("it is linked again", || times(other, "linked to the leader") > round);
        }
    }
    assert_eq!(holder.ask("r", "k", &token), "ok");
    assert!(waiter.line().starts_with("ok "));
    for other in &site.others {
        assert_eq!(times(other, "this server leads"), 0);
        assert_eq!(other.talk().ask("l", "k", "0"), "timeout");
    }
    for words in ["session lost", "leads again"] {
        assert_eq!(times(&site.leader, words), 0, "{:#?}", site.leader.log());
    }
}

/// The other servers find that out by etcd.
#[test]
#[ignore = "needs programs: tests/run"]
fn a_leader_behind_a_proxy_that_has_died_is_succeeded() {
    let site = Site::start(&[]);
    site.leader.signal(Signal::SIGKILL);
    until("another one leads", || site.others.iter().any(|it| times(it, "this server leads") > 0));
}

/// A client reads a long answer at a server that has it from the leader, and others ask there and at the leader without
/// the secret, which is answered after a pause.
#[test]
#[ignore = "needs programs: tests/run"]
fn a_flood_at_a_server_that_does_not_lead_cuts_off_no_answer() {
    /// Some six megabytes, more than waits on the way.
    const KEYS: usize = 4000;
    const HOLDERS: usize = 20;
    const FLOOD: usize = 130;
    let mut secret = tempfile::NamedTempFile::new().unwrap();
    secret.write_all(b"sesame").unwrap();
    let path = secret.path().to_str().unwrap();
    let site = Site::start(&["--auth-token-file", path, "--max-locks", "10000"]);
    let hold = &|first: usize| {
        let mut holder = site.others[0].talk();
        assert_eq!(holder.ask("auth", "_", "sesame"), "ok");
        // Long, and six times as long in JSON.
        let keys =
            (first..first + KEYS / HOLDERS).map(|key| format!("{}{key:04}", "<".repeat(252)));
        holder.take_many(keys, 600);
        holder
    };
    let _holders: Vec<_> = std::thread::scope(|scope| {
        let each = (0..KEYS).step_by(KEYS / HOLDERS);
        let holders: Vec<_> = each.map(|first| scope.spawn(move || hold(first))).collect();
        holders.into_iter().map(|holder| holder.join().unwrap()).collect()
    });
    let ask = |address: SocketAddr, secret: &str| {
        let mut stream = TcpStream::connect(address).unwrap();
        let head = "GET /v1/stats HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n";
        // It may have been closed already.
        let _ = write!(stream, "{head}Authorization: Bearer {secret}\r\n\r\n");
        stream
    };
    let mut slow = ask(site.other_http, "sesame");
    slow.read_exact(&mut [0; 1000]).unwrap();
    let flood = [site.http, site.other_http].map(|address| [(); FLOOD].map(|()| ask(address, "x")));
    // The last ones have come in when they are answered.
    for stream in flood.into_iter().filter_map(|streams| streams.into_iter().last()) {
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        assert!(line.starts_with("HTTP/1.1 401"), "{line}");
    }
    let mut rest = Vec::new();
    slow.read_to_end(&mut rest).unwrap();
    assert!(rest.ends_with(b"\r\n0\r\n\r\n"), "{}", rest.len());
}

/// Where nothing stands between, the other servers need not wait for the end of its session: 0.5 s instead of 3.
#[rstest]
#[case::by_its_address(&["--host", "127.0.0.1"], "127.0.0.1")]
#[case::by_a_name(&["--host", "127.0.0.1"], "localhost")]
#[case::at_a_socket_for_ipv4_and_ipv6(&["--host", "::"], "127.0.0.1")]
#[case::under_tls(&["--tls-cert", "cert.pem", "--tls-key", "key.pem"], "127.0.0.1")]
fn a_leader_that_has_died_is_succeeded_at_once(#[case] arguments: &[&str], #[case] host: &str) {
    let store = cluster::shared();
    let words = arguments
        .iter()
        .map(|word| if word.ends_with(".pem") { pem(word) } else { (*word).to_owned() });
    let (words, port) = (words.collect::<Vec<_>>(), free_port());
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let address = format!("{host}:{port}");
    let port = port.to_string();
    let leader = start(&store, &[&["--port", &port, "--advertise", &address], &words[..]].concat());
    let others = [(); 2].map(|()| start(&store, &[&["--port", "0"], &words[..]].concat()));
    for other in &others {
        other.logged("linked to the leader");
    }
    leader.signal(Signal::SIGKILL);
    until("another one leads", || others.iter().any(|it| times(it, "this server leads") > 0));
    assert!(others.iter().any(|it| times(it, "the leader has ended") > 0));
}
