//! A `dflockd` with its HTTP side, and a client that sends bytes as they are.

use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
pub(crate) use testbed::dflockd::free_port;
use testbed::dflockd::{Daemon, PATIENCE, Talker};

pub(crate) struct Site {
    pub(crate) daemon: Daemon,
    pub(crate) http: SocketAddr,
}

/// One answer, whole.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    fn parse(bytes: &[u8]) -> Self {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
        let end = end.unwrap_or_else(|| panic!("no head: {:?}", String::from_utf8_lossy(bytes)));
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let mut answer = Self { status, head, body: bytes[end + 4..].to_vec() };
        if answer.header("transfer-encoding") == Some("chunked") && !answer.body.is_empty() {
            answer.body = unchunked(&answer.body);
        }
        answer
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let fields = self.head.lines().skip(1).filter_map(|line| line.split_once(':'));
        fields
            .into_iter()
            .find(|(n, _)| n.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.trim())
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

fn unchunked(mut rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    loop {
        let end = rest.windows(2).position(|two| two == b"\r\n").expect("a chunk's length");
        let length = std::str::from_utf8(&rest[..end]).unwrap();
        let length = usize::from_str_radix(length, 16).unwrap();
        if length == 0 {
            return body;
        }
        body.extend_from_slice(&rest[end + 2..end + 2 + length]);
        rest = &rest[end + 4 + length..];
    }
}

impl Site {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::start_by(Daemon::start, arguments)
    }

    /// A server that decides itself.
    pub(crate) fn start_leader(arguments: &[&str]) -> Self {
        Self::start_by(Daemon::start_leader, arguments)
    }

    fn start_by(start: fn(&[&str]) -> Daemon, arguments: &[&str]) -> Self {
        let port = free_port().to_string();
        let daemon = start(&[&["--http-port", &port], arguments].concat());
        let line = daemon.logged("msg=\"HTTP listening\"");
        let mut http: SocketAddr = line.split("addr=").nth(1).unwrap().trim().parse().unwrap();
        if http.ip().is_unspecified() {
            http.set_ip([127, 0, 0, 1].into());
        }
        Self { daemon, http }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.http)
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.http).expect("connect");
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Sends bytes and reads to the end of the connection; nothing when no answer came.
    pub(crate) fn say(&self, bytes: &[u8]) -> Option<Answer> {
        let mut stream = self.connect();
        // A server that refuses early may close before all is sent.
        let _ = stream.write_all(bytes);
        let answer = to_end(stream);
        (!answer.is_empty()).then(|| Answer::parse(&answer))
    }

    pub(crate) fn ask(&self, method: &str, path: &str, headers: &str) -> Answer {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n"
        );
        self.say(head.as_bytes()).expect("an answer")
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, "")
    }

    /// A request with a body, sent on a connection that stays.
    pub(crate) fn send(&self, method: &str, path: &str, headers: &str, body: &str) -> TcpStream {
        let mut stream = self.connect();
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
             Content-Length: {length}\r\n{headers}\r\n{body}"
        );
        // A server that refuses early may close before all is sent.
        let _ = stream.write_all(request.as_bytes());
        stream
    }

    pub(crate) fn post(&self, path: &str, headers: &str, body: &str) -> Answer {
        answer_of(self.send("POST", path, headers, body))
    }

    pub(crate) fn session(&self) -> Session<'_> {
        let answer = self.post("/v1/sessions", "", "");
        assert_eq!(answer.status, 200, "{}", answer.text());
        let id = answer.json()["session_id"].as_str().unwrap().to_owned();
        Session { site: self, id }
    }

    pub(crate) fn holders(&self) -> Value {
        self.get("/v1/holders").json()
    }

    /// Many keys, each with a long lease: by some connections that ask side by side, as one alone would
    /// wait for etcd at each key.
    pub(crate) fn hold(&self, names: impl Iterator<Item = String>) -> Vec<Talker> {
        let names: Vec<String> = names.collect();
        let each = names.len().div_ceil(16).max(500);
        std::thread::scope(|scope| {
            let holders: Vec<_> =
                names.chunks(each).map(|names| scope.spawn(|| self.hold_these(names))).collect();
            holders.into_iter().map(|holder| holder.join().unwrap()).collect()
        })
    }

    fn hold_these(&self, names: &[String]) -> Talker {
        let mut talker = self.daemon.talk();
        talker.take_many(names.iter().cloned(), 3600);
        talker
    }
}

/// A client with a session.
pub(crate) struct Session<'a> {
    site: &'a Site,
    pub(crate) id: String,
}

impl Session<'_> {
    pub(crate) fn header(&self) -> String {
        format!("X-Dflockd-Session: {}\r\n", self.id)
    }

    /// A request that is not answered yet.
    pub(crate) fn begin(&self, path: &str, body: &Value) -> TcpStream {
        self.site.send("POST", path, &self.header(), &body.to_string())
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        answer_of(self.begin(path, body))
    }

    /// Takes a lock that is free; its token.
    pub(crate) fn take(&self, key: &str) -> String {
        let body = json!({"acquire_timeout_s": 0, "lease_ttl_s": 60});
        let answer = self.post(&format!("/v1/locks/{key}"), &body);
        assert_eq!(answer.status, 200, "{}", answer.text());
        token(&answer)
    }

    pub(crate) fn end(&self) -> Answer {
        self.site.ask("DELETE", &format!("/v1/sessions/{}", self.id), "")
    }
}

/// The token of a grant.
pub(crate) fn token(answer: &Answer) -> String {
    answer.json()["token"].as_str().unwrap_or_else(|| panic!("{}", answer.text())).to_owned()
}

/// The answer that comes until the end of a connection.
pub(crate) fn answer_of(stream: TcpStream) -> Answer {
    Answer::parse(&to_end(stream))
}

/// One request and its answer on a connection that stays.
pub(crate) fn ask_on(stream: &mut TcpStream, path: &str) -> std::io::Result<Answer> {
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes())?;
    answer_on(stream)
}

/// Reads one answer by its length, on a connection that may stay open.
pub(crate) fn answer_on(stream: &mut TcpStream) -> std::io::Result<Answer> {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        bytes.push(byte[0]);
    }
    let mut answer = Answer::parse(&bytes);
    let length = answer.header("content-length");
    let length = length.map_or(0, |length| length.parse().unwrap());
    assert!(length > 0 || answer.status == 204, "{answer:?}");
    answer.body = vec![0; length];
    stream.read_exact(&mut answer.body)?;
    Ok(answer)
}

/// What comes until the end of the connection.
pub(crate) fn to_end(mut stream: TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Ok(_) => {}
        Err(err) if err.kind() == std::io::ErrorKind::ConnectionReset => {}
        Err(err) => panic!("the connection does not end: {err}"),
    }
    bytes
}
