//! A client over HTTP, with the words of the lock protocol: for tests that have clients of both kinds.

use super::PATIENCE;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

/// A client with a session, which ends when this is dropped.
pub struct HttpTalker {
    server: SocketAddr,
    session: String,
}

/// Status and body.
type Answer = (u16, String);

/// Sends a request, and reads nothing.
fn begin(
    server: SocketAddr,
    method: &str,
    path: &str,
    session: &str,
    body: &str,
) -> Option<TcpStream> {
    let mut stream = TcpStream::connect_timeout(&server, PATIENCE).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
         Content-Length: {length}\r\nX-Dflockd-Session: {session}\r\n\r\n{body}"
    );
    stream.write_all(head.as_bytes()).ok()?;
    Some(stream)
}

fn request(
    server: SocketAddr,
    method: &str,
    path: &str,
    session: &str,
    body: &str,
) -> Option<Answer> {
    let mut stream = begin(server, method, path, session, body)?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, body.to_owned()))
}

/// The text or number of a member of a flat object.
fn member<'a>(object: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = object.split_once(&format!("\"{name}\":"))?;
    Some(rest.split([',', '}']).next()?.trim_matches('"'))
}

/// The path and the body of a request in the words of the lock protocol.
fn translated(command: &str, key: &str, arg: &str) -> (String, String) {
    let words: Vec<&str> = arg.split(' ').collect();
    let number = |place: usize| words.get(place).copied().unwrap_or("0");
    match command {
        "l" | "rl" => {
            let shared = command == "rl";
            let (timeout, ttl) = (number(0), number(1));
            (
                format!("/v1/locks/{key}?shared={shared}"),
                format!("{{\"acquire_timeout_s\":{timeout},\"lease_ttl_s\":{ttl}}}"),
            )
        }
        "sl" => {
            let (timeout, limit, ttl) = (number(0), number(1), number(2));
            (
                format!("/v1/semaphores/{key}"),
                format!(
                    "{{\"acquire_timeout_s\":{timeout},\"limit\":{limit},\"lease_ttl_s\":{ttl}}}"
                ),
            )
        }
        "r" | "sr" => {
            (format!("/v1/locks/{key}/release"), format!("{{\"token\":\"{}\"}}", words[0]))
        }
        "n" | "sn" => (
            format!("/v1/locks/{key}/renew"),
            format!("{{\"token\":\"{}\",\"lease_ttl_s\":{}}}", words[0], number(1)),
        ),
        _ => panic!("{command}"),
    }
}

impl HttpTalker {
    /// A client of the server whose HTTP port this is. Without a session it has no answers.
    pub fn connect(server: SocketAddr) -> Self {
        let opened = request(server, "POST", "/v1/sessions", "", "");
        let session = opened.and_then(|(_, body)| Some(member(&body, "session_id")?.to_owned()));
        Self { server, session: session.unwrap_or_default() }
    }

    /// Whether it has a session.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        !self.session.is_empty()
    }

    /// Sends a request, and closes its connection before the answer.
    ///
    /// # Panics
    /// As [`Self::try_ask`].
    pub fn cut_off(&self, command: &str, key: &str, arg: &str) {
        let (path, body) = translated(command, key, arg);
        drop(begin(self.server, "POST", &path, &self.session, &body));
    }

    /// Says nothing any more, as a client that was killed. The session ends by its silence.
    pub fn fall_silent(mut self) {
        self.session.clear();
    }

    /// One request of `l`, `rl`, `sl`, `r`, `sr`, `n` or `sn`, and its answer in the words of the lock protocol; nothing
    /// if no whole answer comes, or if it leaves open what became of the request.
    ///
    /// # Panics
    /// The request is not one of these, or is answered in other words.
    pub fn try_ask(&self, command: &str, key: &str, arg: &str) -> Option<String> {
        let (path, body) = translated(command, key, arg);
        let (status, answer) = request(self.server, "POST", &path, &self.session, &body)?;
        let get = |name| member(&answer, name);
        match (status, get("status"), get("error")) {
            (200, Some("ok"), _) => {
                let slot = get("slot").map(|slot| format!(" {slot}")).unwrap_or_default();
                Some(format!("ok {} {}{slot}", get("token")?, get("lease_ttl_s")?))
            }
            (200, Some("timeout"), _) => Some("timeout".to_owned()),
            (200, None, _) => Some(format!("ok {}", get("remaining_s")?)),
            (204, ..) => Some("ok".to_owned()),
            (404, _, Some("not_held")) => Some("error".to_owned()),
            (408 | 410 | 503, ..) => None,
            _ => panic!("{command} {key} {arg}: {status} {answer}"),
        }
    }
}

impl Drop for HttpTalker {
    fn drop(&mut self) {
        if self.session.is_empty() {
            return;
        }
        let path = format!("/v1/sessions/{}", self.session);
        let _it_may_be_gone = request(self.server, "DELETE", &path, "", "");
    }
}
