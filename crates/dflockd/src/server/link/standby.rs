//! The standby's side: keeps the link to the leader, and passes its clients on over it.

use super::stream::LinkStream;
use super::{
    ADDRESS, CLIENT, COMMAND, HANDSHAKE, KEY, LEADER_SHOWS, Leader, RELEASE, SILENCE_OF_LEADER,
    STANDBY_SHOWS, TOKEN, configure, open_stream, proof, send_request, to_hex, watch_for_silence,
};
use crate::server::core::Shared;
use crate::server::transport::{Peer, Transport};
use h2::client::{Builder, Connection, SendRequest};
use hyper::body::Bytes;
use leases::journal::Record;
use leases::wire::status;
use leases::{Key, Seconds, Token};
use leases_etcd::{Contact, Observer, Seen};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring::default_provider};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, ready};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;

/// The pause between two attempts to link.
const RETRY: Duration = Duration::from_millis(100);
/// The time between two leaders that this server deposes.
const DEPOSE_EVERY: Duration = Duration::from_secs(10);
/// How long after a client has closed its sending side it is asked whether it still exists. Most have their answer by
/// then.
const PROBE: Duration = Duration::from_millis(100);
const BUFFER_BYTES: usize = 4096;
/// The longest answer of a leader: a proof and two addresses.
const ANSWER_BYTES: usize = 256;

/// Keeps the link to the leader, for as long as the server runs.
pub(in crate::server) async fn follow(shared: Arc<Shared>, observer: Observer) {
    let _it_is_the_first = shared.cluster.observer.set(observer.clone());
    let mut seen = observer.watch();
    let mut deposed = None;
    // Clients wait until etcd has answered for the first time.
    if *seen.borrow() == Seen::Unclear && seen.changed().await.is_err() {
        return;
    }
    loop {
        let last = seen.borrow_and_update().clone();
        match last {
            Seen::Other { contact, .. } => {
                tokio::select! {
                    () = keep_link(&contact, &shared, &observer, &seen, &mut deposed) => {}
                    () = is_succeeded(&contact, seen.clone()) => {
                        shared.cluster.set_elsewhere(Leader::Changing);
                    }
                }
                continue;
            }
            Seen::Unclear => shared.cluster.set_elsewhere(Leader::Unknown),
            // The leader is here as soon as the term has begun.
            Seen::Me => {}
        }
        if seen.changed().await.is_err() {
            return;
        }
    }
}

/// Keeps the link to this leader. Returns when this server no longer knows which one leads.
async fn keep_link(
    leader: &Contact,
    shared: &Shared,
    observer: &Observer,
    seen: &watch::Receiver<Seen>,
    deposed: &mut Option<Instant>,
) {
    let set = |leader| shared.cluster.set_elsewhere(leader);
    // Where the leader itself listens, if the last link was direct.
    let (mut direct, mut has_said) = (None, false);
    set(Leader::Changing);
    loop {
        let linked = timeout(HANDSHAKE, connect(leader)).await;
        match linked.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into())) {
            Ok(NewLink { link, mut connection, direct: reached }) => {
                let is_direct = reached.is_some();
                tracing::info!(leader = leader.address, is_direct, "linked to the leader");
                let silence = watch_for_silence(connection.ping_pong(), SILENCE_OF_LEADER, || {});
                set(Leader::Linked(link));
                (direct, has_said) = (reached, false);
                tokio::select! {
                    _ = connection => {}
                    () = silence => {}
                }
                tracing::warn!(leader = leader.address, "the link to the leader is lost");
                set(Leader::Changing);
            }
            Err(err) => {
                if !std::mem::replace(&mut has_said, true) {
                    tracing::warn!(leader = leader.address, %err, "cannot reach the leader");
                }
                let is_dead = match direct {
                    Some(address) => refuses(address).await,
                    None => false,
                };
                if is_dead && deposed.is_none_or(|last| last.elapsed() >= DEPOSE_EVERY) {
                    *deposed = Some(Instant::now());
                    let last = seen.borrow().clone();
                    if let Seen::Other { lease, contact } = last {
                        if contact == *leader {
                            tracing::warn!(leader = leader.address, "the leader has ended");
                            observer.depose(lease).await;
                        }
                    }
                }
            }
        }
        if *seen.borrow() == Seen::Unclear {
            return;
        }
        sleep(RETRY).await;
    }
}

/// Returns when another server leads.
async fn is_succeeded(leader: &Contact, mut seen: watch::Receiver<Seen>) {
    let is_another = |seen: &Seen| match seen {
        Seen::Other { contact, .. } => contact != leader,
        Seen::Me => true,
        Seen::Unclear => false,
    };
    let _ = seen.wait_for(is_another).await;
}

/// Whether nobody listens at this address. Silence would prove nothing.
async fn refuses(address: SocketAddr) -> bool {
    let tried = timeout(HANDSHAKE, TcpStream::connect(address)).await;
    tried.is_ok_and(|tried| tried.is_err_and(|err| err.kind() == ErrorKind::ConnectionRefused))
}

/// A new link.
struct NewLink {
    link: SendRequest<Bytes>,
    connection: Connection<Box<dyn Io>, Bytes>,
    /// The address of the leader's own socket, if nothing stands in between.
    direct: Option<SocketAddr>,
}

async fn connect(leader: &Contact) -> io::Result<NewLink> {
    let stream = TcpStream::connect(&leader.address).await?;
    stream.set_nodelay(true)?;
    let ends = [stream.local_addr()?, stream.peer_addr()?];
    let secret = &leader.secret;
    let (mut io, shown, wanted): (Box<dyn Io>, _, _) = if leader.is_tls {
        let name = ServerName::try_from("leader").map_err(io::Error::other)?;
        let stream = TlsConnector::from(tls_of_link()?).connect(name, stream).await?;
        let export = |label| {
            let session = stream.get_ref().1;
            session.export_keying_material([0; 32], label, Some(secret.as_bytes()))
        };
        let shown = proof(secret, Some(export(STANDBY_SHOWS).map_err(io::Error::other)?));
        let wanted = proof(secret, Some(export(LEADER_SHOWS).map_err(io::Error::other)?));
        (Box::new(stream), shown, wanted)
    } else {
        (Box::new(stream), proof(secret, None), proof(secret, None))
    };
    let frame = [COMMAND, b"\n", shown.as_bytes(), b"\n_\n"].concat();
    io.write_all(&frame).await?;
    io.flush().await?;
    let answer = read_answer(&mut io).await?;
    let Some(seen) = answer.strip_prefix(&format!("ok {wanted} ")) else {
        return Err(io::Error::new(ErrorKind::PermissionDenied, "it is not the leader"));
    };
    let direct = is_direct(ends, seen).then_some(ends[1]);
    let mut builder = Builder::new();
    let builder = configure!(builder).initial_max_send_streams(super::STREAMS as usize);
    let (link, connection) = builder.handshake(io).await.map_err(io::Error::other)?;
    Ok(NewLink { link, connection, direct })
}

/// The first line, and nothing of what follows it.
async fn read_answer(io: &mut (dyn Io + '_)) -> io::Result<String> {
    let mut answer = Vec::new();
    while answer.len() < ANSWER_BYTES {
        match io.read_u8().await? {
            b'\n' => break,
            byte => answer.push(byte),
        }
    }
    String::from_utf8(answer).map_err(io::Error::other)
}

/// Whether the connection has the same two addresses at the leader, who has seen these. `::ffff:192.0.2.1` and
/// `192.0.2.1` are one address.
fn is_direct(ends: [SocketAddr; 2], seen: &str) -> bool {
    let plain = |end: SocketAddr| (end.ip().to_canonical(), end.port());
    let seen = seen.split(' ').map(|end| Some(plain(end.parse().ok()?)));
    seen.eq(ends.map(|end| Some(plain(end))))
}

/// A connection to the leader.
trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// TLS 1.3 without certificates: what both sides show proves more.
fn tls_of_link() -> io::Result<Arc<ClientConfig>> {
    let provider = Arc::new(default_provider());
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
        .with_no_client_auth();
    Ok(Arc::new(config))
}

#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("only TLS 1.3".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// Releases holds that may be recorded though the term ended before any client knew of them. They would last as
/// long as their leases.
pub(in crate::server) async fn release_unknown(shared: Arc<Shared>, records: Vec<Record>) {
    for record in records {
        let Record::Granted(hold) = record else { continue };
        let Some(key) = Key::new(&hold.key) else { continue };
        let lease = Duration::from_secs(hold.ttl.span().count());
        let _it_is_over = timeout(lease, release_one_unknown(&shared, key, hold.token)).await;
    }
}

async fn release_one_unknown(shared: &Shared, key: Key<'_>, token: Token) {
    loop {
        match shared.cluster.leader().await {
            Leader::Here => {
                if shared.release_unknown(key, token).await.is_ok() {
                    return;
                }
            }
            Leader::Linked(link) => {
                let token = String::from_utf8_lossy(&token.digits()).into_owned();
                let headers = [(KEY, to_hex(key.bytes())), (TOKEN, token)];
                if let Ok((response, _sender)) = send_request(link, RELEASE, &headers).await {
                    if response.await.is_ok_and(|answer| answer.status().is_success()) {
                        return;
                    }
                }
            }
            Leader::Changing | Leader::Unknown => {}
        }
        sleep(RETRY).await;
    }
}

/// Passes a client on to the leader until one of the two ends.
pub(in crate::server) async fn pass(
    shared: &Shared,
    mut transport: Transport,
    peer: Peer,
    link: SendRequest<Bytes>,
) {
    let address = match peer {
        Peer::Tcp(address) => vec![(ADDRESS, address.to_string())],
        Peer::Unix => Vec::new(),
    };
    let Ok(stream) = open_stream(link, CLIENT, &address).await else {
        return send_away(&mut transport).await;
    };
    tracing::debug!(%peer, "client connected, and is passed on");
    let allowed = shared.settings.write_timeout;
    let passage = Passage {
        ends: Mutex::new(Ends { transport, stream, is_between_lines: true }),
        allowed: if allowed > Seconds::ZERO {
            Duration::from_secs(allowed.count())
        } else {
            Duration::MAX
        },
    };
    let parting = tokio::select! {
        biased;
        parting = passage.pass_down() => parting,
        parting = passage.pass_up() => parting,
        () = shared.kicked() => StreamParting::Kicked,
    };
    tracing::debug!(%peer, ?parting, "client left");
    let ends = passage.ends.into_inner().unwrap_or_else(PoisonError::into_inner);
    let Ends { mut transport, stream, is_between_lines } = ends;
    match parting {
        StreamParting::Deaf => {
            shared.note_write_timeout(peer, None);
            return stream.end_client().await;
        }
        StreamParting::Gone => return stream.end_client().await,
        // The client knows what has become of its request only if it was answered.
        StreamParting::Lost if is_between_lines => return send_away(&mut transport).await,
        StreamParting::Closed | StreamParting::Kicked | StreamParting::Lost => {}
    }
    transport.close_gently(&mut [0; BUFFER_BYTES]);
}

async fn send_away(transport: &mut Transport) {
    let mut answer = status::ERROR_DRAINING.to_vec();
    // A client that does not read it at once misses it.
    let _ = poll_fn(|cx| Poll::Ready(transport.poll_send(cx, &mut answer))).await;
    transport.close_gently(&mut [0; BUFFER_BYTES]);
}

/// Why a client is no longer passed on.
#[derive(Debug)]
enum StreamParting {
    /// The leader has ended the connection.
    Closed,
    /// The client is gone.
    Gone,
    /// The client accepts nothing.
    Deaf,
    /// The time for the shutdown is over.
    Kicked,
    /// The link is lost.
    Lost,
}

/// A client and its stream.
struct Ends {
    transport: Transport,
    stream: LinkStream,
    /// Whether the client has received whole lines.
    is_between_lines: bool,
}

/// What the two directions of one task share.
struct Passage {
    ends: Mutex<Ends>,
    /// How long a client may take to accept something.
    allowed: Duration,
}

impl Passage {
    fn ends(&self) -> MutexGuard<'_, Ends> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes answers on to the client.
    async fn pass_down(&self) -> StreamParting {
        let mut bytes = Vec::new();
        loop {
            let sent = poll_fn(|cx| self.ends().transport.poll_send(cx, &mut bytes));
            match timeout(self.allowed, sent).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return StreamParting::Gone,
                Err(_) => return StreamParting::Deaf,
            }
            let received = poll_fn(|cx| {
                append(&mut bytes, |buffer| self.ends().stream.poll_receive(cx, buffer))
            });
            match received.await {
                Ok(0) => return StreamParting::Closed,
                Ok(_) => self.ends().is_between_lines = bytes.ends_with(b"\n"),
                Err(_) => return StreamParting::Lost,
            }
        }
    }

    /// Passes requests on to the leader.
    async fn pass_up(&self) -> StreamParting {
        let mut bytes = Vec::new();
        loop {
            let received = poll_fn(|cx| {
                append(&mut bytes, |buffer| self.ends().transport.poll_receive(cx, buffer))
            });
            match received.await {
                Ok(0) => break self.ends().stream.finish(),
                Ok(_) => {}
                Err(_) => return StreamParting::Gone,
            }
            while !bytes.is_empty() {
                let sent = self.ends().stream.send(&bytes);
                let room = match sent {
                    Ok(0) => tokio::select! {
                        biased;
                        room = poll_fn(|cx| self.ends().stream.poll_room(cx)) => room,
                        // The client may leave while the leader does not read.
                        () = self.left() => return StreamParting::Gone,
                    },
                    sent => sent.map(|count| drop(bytes.drain(..count))),
                };
                if room.is_err() {
                    // The leader says why, or the link is lost: the other direction shows it.
                    self.gone().await;
                    return StreamParting::Gone;
                }
            }
        }
        self.gone().await;
        StreamParting::Gone
    }

    /// Returns when the client is gone, although bytes of it still wait for room.
    async fn left(&self) {
        // An error is an end as well.
        let _ = poll_fn(|cx| self.ends().transport.poll_end(cx)).await;
        self.gone().await;
    }

    /// Returns when the client is gone, which has already closed its sending side.
    async fn gone(&self) {
        sleep(PROBE).await;
        self.ends().transport.probe();
        poll_fn(|cx| self.ends().transport.poll_gone(cx)).await;
    }
}

/// Receives a piece, and appends it.
fn append(
    bytes: &mut Vec<u8>,
    receive: impl FnOnce(&mut [u8]) -> Poll<io::Result<usize>>,
) -> Poll<io::Result<usize>> {
    let mut buffer = [0; BUFFER_BYTES];
    let count = ready!(receive(&mut buffer))?;
    bytes.extend_from_slice(buffer.get(..count).unwrap_or_default());
    Poll::Ready(Ok(count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::direct("10.0.0.1:400", "10.0.0.2:6388", "10.0.0.1:400 10.0.0.2:6388", true)]
    #[case::an_ipv4_address_at_a_socket_for_both(
        "10.0.0.1:400",
        "10.0.0.2:6388",
        "[::ffff:10.0.0.1]:400 [::ffff:10.0.0.2]:6388",
        true
    )]
    #[case::ipv6("[fd00::1]:400", "[fd00::2]:6388", "[fd00::1]:400 [fd00::2]:6388", true)]
    #[case::a_balancer("10.0.0.1:400", "10.0.0.9:6388", "10.0.0.9:500 10.0.0.2:6388", false)]
    #[case::a_tunnel_on_each_host(
        "127.0.0.1:400",
        "127.0.0.1:6388",
        "127.0.0.1:500 127.0.0.1:6388",
        false
    )]
    #[case::a_published_port(
        "10.0.0.1:400",
        "10.0.0.2:6388",
        "10.0.0.1:400 172.17.0.2:6388",
        false
    )]
    #[case::another_port("10.0.0.1:400", "10.0.0.2:7000", "10.0.0.1:400 10.0.0.2:6388", false)]
    #[case::a_translated_sender(
        "10.0.0.1:400",
        "10.0.0.2:6388",
        "172.17.0.1:400 10.0.0.2:6388",
        false
    )]
    #[case::one_address("10.0.0.1:400", "10.0.0.2:6388", "10.0.0.1:400", false)]
    #[case::three(
        "10.0.0.1:400",
        "10.0.0.2:6388",
        "10.0.0.1:400 10.0.0.2:6388 10.0.0.2:6388",
        false
    )]
    #[case::nothing("10.0.0.1:400", "10.0.0.2:6388", "", false)]
    fn a_link_is_direct_if_both_ends_see_the_same_addresses(
        #[case] own: SocketAddr,
        #[case] peer: SocketAddr,
        #[case] seen: &str,
        #[case] want: bool,
    ) {
        assert_eq!(is_direct([own, peer], seen), want);
    }
}
