//! The commands of administrators, `force-release` and `kick`, by the server's HTTP port and a secret of its
//! own; and the text of these requests and their answers.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use wrapcmd::Form;

use super::args::{Admin, ForceRelease, Kick, Reach};
use super::outcome::{Failure, answer, is_nobody};
use super::reach;
use super::wanted::answered;
use crate::connection::open_stream;
use crate::terms::seconds;
use crate::{Client, ClientError, Refusal, ServerAddress};

pub(super) async fn force_release(
    wish: &ForceRelease,
    reach: &Reach,
    client: &Client,
    form: Form,
) -> Result<(), Failure> {
    let key = reach::key(&wish.key)?;
    let path = format!("/v1/admin/release?key={}", escaped(key.as_bytes()));
    let door = Door { admin: &wish.admin, reach, client, form };
    let mut outcome = Err(Failure::Client(ClientError::NoServer));
    for server in client.servers_of(&key) {
        outcome = door.post(server, &path, ["not_held", "nobody holds it"]).await;
        let is_away = matches!(outcome, Err(Failure::Client(ClientError::Connect { .. })));
        if !is_away && !matches!(outcome, Err(Failure::NoHttp(..))) {
            break;
        }
    }
    let body = outcome?;
    let released = body.get("released").and_then(Value::as_u64).unwrap_or(0);
    answer(form, || format!("released: {released}\n"), || json!({ "released": released }))
}

pub(super) async fn kick(
    wish: &Kick,
    reach: &Reach,
    client: &Client,
    form: Form,
) -> Result<(), Failure> {
    let [server] = client.servers() else {
        return Err(Failure::Usage(
            "a connection belongs to one server; give --server once".to_owned(),
        ));
    };
    let path = format!("/v1/admin/kick?connection={}", wish.connection);
    let door = Door { admin: &wish.admin, reach, client, form };
    door.post(server, &path, ["not_found", "there is no such connection"]).await?;
    let connection = wish.connection;
    answer(form, || format!("ended: connection {connection}\n"), || json!({ "kicked": true }))
}

/// A server need not have an HTTP port; its lock port may be in use meanwhile.
fn of_closed_port(failure: Failure) -> Failure {
    let Failure::Client(ClientError::Connect { server, error }) = failure else { return failure };
    match is_nobody(&error) {
        true => Failure::NoHttp(server, error),
        false => ClientError::Connect { server, error }.into(),
    }
}

/// The HTTP port of a server, as the administrator reaches it.
struct Door<'a> {
    admin: &'a Admin,
    reach: &'a Reach,
    client: &'a Client,
    form: Form,
}

impl Door<'_> {
    /// A 404 with this `word` means `nothing`; another HTTP server says 404 as well. If no answer comes soon, a message
    /// says so.
    async fn post(
        &self,
        server: &ServerAddress,
        path: &str,
        [word, nothing]: [&'static str; 2],
    ) -> Result<Value, Failure> {
        let ServerAddress::Tcp { host, .. } = server else {
            return Err(Failure::Usage("HTTP needs a host and port, not a Unix socket".to_owned()));
        };
        let server = ServerAddress::Tcp { host: host.clone(), port: self.admin.http_port };
        let file = self.admin.admin_token_file.as_deref();
        let Some(secret) = reach::token("--admin-token-file", file, "DFLOCK_ADMIN_TOKEN")? else {
            let words = "give --admin-token-file or DFLOCK_ADMIN_TOKEN";
            return Err(Failure::Settings(words.to_owned()));
        };
        let request = post_request(&server.to_string(), path, &secret);
        let answer = self.converse(&server, &request);
        let answered = answered(answer, &[&server], self.client, self.form).await;
        let (status, body) = answered.map_err(of_closed_port)?;
        match status {
            200 => Ok(serde_json::from_str(&body).unwrap_or(Value::Null)),
            401 => Err(ClientError::Refused(Refusal::Auth).into()),
            403 => Err(Failure::Settings("the server has no --admin-token-file".to_owned())),
            400 if body.contains("this_port_speaks_https") => {
                Err(Failure::Settings("the server's HTTP port speaks TLS; see --tls".to_owned()))
            }
            404 if body.contains(word) => Err(Failure::Nothing(nothing)),
            _ => Err(ClientError::protocol(&format!("status {status} {body}")).into()),
        }
    }

    /// The status and the body.
    async fn converse(
        &self,
        server: &ServerAddress,
        request: &[u8],
    ) -> Result<(u16, String), Failure> {
        let limit = seconds(self.reach.patience);
        let tls = reach::tls(self.reach)?;
        let mut stream = open_stream(server, tls.as_ref(), limit).await?;
        let mut answer = Vec::new();
        let conversation = async {
            stream.write_all(request).await?;
            stream.flush().await?;
            (&mut stream).take(MAX_ANSWER_BYTES).read_to_end(&mut answer).await
        };
        let outcome = timeout(limit, conversation).await.map_err(|_| ClientError::TimedOut)?;
        let heard = read_answer(&answer);
        // Some end a TLS connection without a farewell; what is whole is whole.
        if heard.is_none() {
            outcome.map_err(ClientError::Broken)?;
        }
        let words = "that port does not speak HTTP; see --http-port";
        heard.ok_or_else(|| ClientError::Protocol(words.to_owned()).into())
    }
}

/// No answer to such a request comes near this.
pub(super) const MAX_ANSWER_BYTES: u64 = 64 * 1024;

/// The bytes of a `POST` without a body.
pub(super) fn post_request(host: &str, path: &str, secret: &[u8]) -> Vec<u8> {
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Length: 0\r\n\
         Authorization: Bearer "
    );
    [head.as_bytes(), secret, b"\r\n\r\n"].concat()
}

/// Bytes as a value in a query.
pub(super) fn escaped(value: &[u8]) -> String {
    let mut text = String::with_capacity(value.len());
    for &byte in value {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

/// The status code, and the body as text. Nothing when that is no HTTP.
pub(super) fn read_answer(bytes: &[u8]) -> Option<(u16, String)> {
    let text = String::from_utf8_lossy(bytes);
    let (head, body) = text.split_once("\r\n\r\n")?;
    let digits = head.strip_prefix("HTTP/1.")?.get(2..5)?;
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    let status = is_number.then(|| digits.parse().ok()).flatten()?;
    Some((status, body.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::{escaped, post_request, read_answer};
    use rstest::rstest;

    #[test]
    fn a_post_request_has_host_length_and_secret() {
        let text =
            String::from_utf8(post_request("localhost:6389", "/v1/x?key=a", b"sesame")).unwrap();
        assert!(text.starts_with("POST /v1/x?key=a HTTP/1.1\r\nHost: localhost:6389\r\n"));
        assert!(text.ends_with("\r\nAuthorization: Bearer sesame\r\n\r\n"));
    }

    #[rstest]
    #[case(b"my-job_1.a~", "my-job_1.a~")]
    #[case(b"a/b&c=d e%", "a%2Fb%26c%3Dd%20e%25")]
    #[case(b"\r\n\0\xff", "%0D%0A%00%FF")]
    fn a_key_is_escaped_in_a_url(#[case] key: &[u8], #[case] text: &str) {
        assert_eq!(escaped(key), text);
    }

    #[rstest]
    #[case(b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n{\"released\":1}", Some((200, "{\"released\":1}")))]
    #[case(b"HTTP/1.0 404 Not Found\r\n\r\n", Some((404, "")))]
    #[case(b"HTTP/1.1 2+0 OK\r\n\r\n", None)]
    #[case(b"HTTP/1.1 20", None)]
    #[case(b"error\n", None)]
    #[case(b"", None)]
    fn an_answer_is_http(#[case] bytes: &[u8], #[case] want: Option<(u16, &str)>) {
        assert_eq!(read_answer(bytes), want.map(|(status, body)| (status, body.to_owned())));
    }
}
