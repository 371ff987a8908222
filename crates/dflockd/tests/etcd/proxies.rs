//! Three servers that reach each other through proxies, as balancers and published ports of containers are: a proxy that
//! ends and starts again changes nothing for the leader, whose process lives.

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use rstest::rstest;
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
}

impl Site {
    fn start() -> Self {
        let store = cluster::shared();
        let [port, public, http] = [(); 3].map(|()| free_port());
        let proxy = Proxy::start(public, port);
        let [port, http_port] = [port, http].map(|port| port.to_string());
        let public = format!("127.0.0.1:{public}");
        let arguments = ["--port", &port, "--advertise", &public, "--http-port", &http_port];
        let leader = start(&store, &arguments);
        let others = [(); 2].map(|()| start(&store, &["--port", "0"]));
        for other in &others {
            other.logged("linked to the leader");
        }
        Self { proxy, leader, http: SocketAddr::from(([127, 0, 0, 1], http)), others }
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
    let mut site = Site::start();
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
    let site = Site::start();
    site.leader.signal(Signal::SIGKILL);
    until("another one leads", || site.others.iter().any(|it| times(it, "this server leads") > 0));
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
