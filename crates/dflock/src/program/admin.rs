//! The commands of administrators, `force-release` and `kick`, by the server's HTTP port and a secret of its
//! own.

use super::args::{Admin, ForceRelease, Kick, Reach};
use super::http;
use super::outcome::{Failure, is_nobody};
use super::{answer, holder, reach, seconds};
use crate::transport;
use crate::{Client, ClientError, Refusal, ServerAddress};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use wrapcmd::Form;

pub(super) async fn force_release(
    wish: &ForceRelease,
    reach: &Reach,
    client: &Client,
    form: Form,
) -> Result<(), Failure> {
    let key = reach::key(&wish.key)?;
    let path = format!("/v1/admin/release?key={}", http::escaped(key.as_bytes()));
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
    /// A 404 with this `word` means `nothing`; another HTTP server says 404 as well. If no answer comes soon, the user is
    /// told.
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
        let request = http::post_request(&server.to_string(), path, &secret);
        let answer = self.converse(&server, &request);
        let answered = holder::answered(answer, &[&server], self.client, self.form).await;
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
        let mut stream = transport::open(server, tls.as_ref(), limit).await?;
        let mut answer = Vec::new();
        let conversation = async {
            stream.write_all(request).await?;
            stream.flush().await?;
            (&mut stream).take(http::MAX_ANSWER_BYTES).read_to_end(&mut answer).await
        };
        let outcome = timeout(limit, conversation).await.map_err(|_| ClientError::TimedOut)?;
        let heard = http::read_answer(&answer);
        // Some end a TLS connection without a farewell; what is whole is whole.
        if heard.is_none() {
            outcome.map_err(ClientError::Broken)?;
        }
        let words = "that port does not speak HTTP; see --http-port";
        heard.ok_or_else(|| ClientError::Protocol(words.to_owned()).into())
    }
}
