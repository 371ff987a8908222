//! The connection to etcd, and its settings: one member at a time, the next one if it fails, and a deadline for every call.
//!
//! Each call is sent once, and an answer that comes after the deadline counts as none.
//!
//! A [`Presence`] is the lease of etcd by which others see that this server lives. It is for liveness alone: no promise
//! about a lock depends on it.

use super::rpc::auth_client::AuthClient;
use super::rpc::kv_client::KvClient;
use super::rpc::lease_client::LeaseClient;
use super::rpc::maintenance_client::MaintenanceClient;
use super::rpc::{
    AuthenticateRequest, LeaseGrantRequest, LeaseKeepAliveRequest, LeaseRevokeRequest,
    RangeRequest, RangeResponse, StatusRequest, StatusResponse, TxnRequest, TxnResponse,
};
use crate::{EtcdNumbers, EtcdOptions, EtcdTls, EtcdUser};
use std::future::Future;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use std::{fmt, io};
use tokio::sync::{Mutex, watch};
use tokio::time::sleep;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Error, Identity};
use tonic::{Code, IntoRequest, Request, Response, Status};

/// The deadline of one call. etcd elects a leader within one to two seconds; proposals to the old leader are lost
/// without an error.
const CALL: Duration = Duration::from_millis(1000);
/// The deadline of one call soon after a member was given up. A member that has not noticed yet that the leader is
/// gone forwards proposals to it, which nobody answers. Asking again sooner ends the pause sooner.
const CALL_AFTER_LOSS: Duration = Duration::from_millis(250);
/// How long the short deadline applies: somewhat longer than an election.
const ELECTION: Duration = Duration::from_secs(3);
/// The pause after the first attempt without a clear answer, and by how much each further one makes it longer. If it
/// doubled, the end of an election would be noticed late.
const PAUSE: Duration = Duration::from_millis(10);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The deadline of a login. Members check passwords with bcrypt, which is slow on purpose, and one after another.
const LOGIN: Duration = Duration::from_secs(5);

/// etcd's alarm that its members have reached their size limit (`--quota-backend-bytes`).
const NO_SPACE: &str = "alarm:NOSPACE";

/// Why a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// It may have had an effect, or may still have one. Another attempt may help.
    Unclear,
    /// etcd refused the call, without effect.
    Refused,
}

/// The member in use, and the connection to it.
#[derive(Default)]
struct InUse {
    /// The position of the member in the list.
    at: usize,
    /// When a member was given up, for the first time since the last success.
    given_up: Option<Instant>,
    generation: u64,
    channel: Option<Channel>,
    /// The token of the login, if etcd has users. All members know it.
    token: Option<MetadataValue<Ascii>>,
}

impl InUse {
    fn member(&self) -> Option<Member> {
        let channel = self.channel.clone()?;
        let limit = self.limit(Instant::now());
        Some(Member { channel, token: self.token.clone(), generation: self.generation, limit })
    }

    fn limit(&self, now: Instant) -> Duration {
        match self.given_up {
            Some(since) if now.duration_since(since) < ELECTION => CALL_AFTER_LOSS,
            Some(_) | None => CALL,
        }
    }

    /// Moves on to the next member. Giving up again does not extend the time of short deadlines; otherwise nobody
    /// would ever wait for a slow etcd.
    fn give_up(&mut self, now: Instant) {
        self.channel = None;
        self.at = self.at.wrapping_add(1);
        if self.limit(now) == CALL {
            self.given_up = Some(now);
        }
    }
}

pub(crate) struct Client {
    members: Vec<Endpoint>,
    user: Option<EtcdUser>,
    in_use: Mutex<InUse>,
    calls: AtomicU64,
    unclear: AtomicU64,
    /// Attempts since the last clear answer.
    failed: AtomicU32,
    /// etcd has raised the alarm that its members have no more space.
    full: AtomicBool,
}

/// A member, over a connection to it.
#[derive(Clone)]
struct Member {
    channel: Channel,
    token: Option<MetadataValue<Ascii>>,
    generation: u64,
    /// The deadline of a call.
    limit: Duration,
}

impl Member {
    /// Prepares a request for any member: with our token, and so that a member without a leader refuses it at once
    /// instead of keeping it waiting.
    fn request<T>(&self, message: impl IntoRequest<T>) -> Request<T> {
        let mut request = message.into_request();
        let metadata = request.metadata_mut();
        metadata.insert("hasleader", MetadataValue::from_static("true"));
        if let Some(token) = &self.token {
            metadata.insert("token", token.clone());
        }
        request
    }
}

impl Client {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            members: settings.members,
            user: settings.user,
            in_use: Mutex::new(InUse::default()),
            calls: AtomicU64::new(0),
            unclear: AtomicU64::new(0),
            failed: AtomicU32::new(0),
            full: AtomicBool::new(false),
        }
    }

    /// The addresses of all members.
    pub(crate) fn members(&self) -> String {
        let members: Vec<String> = self.members.iter().map(|it| it.uri().to_string()).collect();
        members.join(",")
    }

    /// The counters now; `session` and `leads` are for those that know the leader.
    pub(crate) fn numbers(&self) -> EtcdNumbers {
        EtcdNumbers {
            calls: self.calls.load(Ordering::Relaxed),
            unclear: self.unclear.load(Ordering::Relaxed),
            full: self.is_full(),
            ..EtcdNumbers::default()
        }
    }

    /// Whether etcd has no more space, by its last answer about that.
    pub(crate) fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    fn note_space(&self, full: bool) {
        match (self.full.swap(full, Ordering::Relaxed), full) {
            (false, true) => tracing::error!("etcd has no space: nothing new is granted"),
            (true, false) => tracing::info!("etcd has space again"),
            (true, true) | (false, false) => {}
        }
    }

    pub(crate) async fn range(&self, message: RangeRequest) -> Result<RangeResponse, Failure> {
        self.call(async |member: Member| {
            KvClient::new(member.channel.clone()).range(member.request(message)).await
        })
        .await
    }

    pub(crate) async fn txn(&self, message: TxnRequest) -> Result<TxnResponse, Failure> {
        self.call(async |member: Member| {
            KvClient::new(member.channel.clone()).txn(member.request(message)).await
        })
        .await
    }

    /// Makes a new lease, of the length [`PRESENCE`].
    pub(crate) async fn grant(&self) -> Result<i64, Failure> {
        let ttl = i64::try_from(PRESENCE.as_secs()).unwrap_or(i64::MAX);
        let message = LeaseGrantRequest { ttl, id: 0 };
        let answer = self
            .call(async |member: Member| {
                LeaseClient::new(member.channel.clone()).lease_grant(member.request(message)).await
            })
            .await?;
        if answer.error.is_empty() { Ok(answer.id) } else { Err(Failure::Refused) }
    }

    /// Ends a lease. It is refused if there is no such lease.
    pub(crate) async fn revoke(&self, id: i64) -> Result<(), Failure> {
        let message = LeaseRevokeRequest { id };
        self.call(async |member: Member| {
            LeaseClient::new(member.channel.clone()).lease_revoke(member.request(message)).await
        })
        .await
        .map(drop)
    }

    /// Keeps the lease alive; returns its seconds from now, or 0 if it is gone.
    pub(crate) async fn keep_alive(&self, id: i64) -> Result<i64, Failure> {
        let once = async |member: Member| {
            let stream = tokio_stream::once(LeaseKeepAliveRequest { id });
            let mut request = Request::new(stream);
            *request.metadata_mut() = member.request(()).into_parts().0;
            let mut answers =
                LeaseClient::new(member.channel.clone()).lease_keep_alive(request).await?;
            let first = answers.get_mut().message().await?;
            first.map(Response::new).ok_or_else(|| Status::unavailable("no answer"))
        };
        self.call(once).await.map(|answer| answer.ttl)
    }

    /// One attempt at one member, and after an unclear one the pause before the next. So callers may try again at once.
    async fn call<T, F>(&self, send: impl FnOnce(Member) -> F) -> Result<T, Failure>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let outcome = self.attempt(send).await;
        if matches!(outcome, Err(Failure::Unclear)) {
            let before = self.failed.fetch_add(1, Ordering::Relaxed);
            sleep(pause(before.saturating_add(1))).await;
        } else {
            self.failed.store(0, Ordering::Relaxed);
        }
        outcome
    }

    async fn attempt<T, F>(&self, send: impl FnOnce(Member) -> F) -> Result<T, Failure>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let member = self.member().await?;
        let (generation, limit) = (member.generation, member.limit);
        self.calls.fetch_add(1, Ordering::Relaxed);
        let begun = Instant::now();
        let status = match tokio::time::timeout(limit, send(member)).await {
            // If this process stood still, another server may have led since.
            Ok(Ok(answer)) if begun.elapsed() <= CALL => return Ok(answer.into_inner()),
            Ok(Ok(_)) => Status::deadline_exceeded("the answer is too old"),
            Ok(Err(status)) => status,
            Err(_) => Status::deadline_exceeded("no answer in time"),
        };
        let failure = classify(&status);
        tracing::debug!(code = ?status.code(), message = status.message(), ?failure, "etcd");
        if status.message().contains("database space exceeded") {
            self.note_space(true);
        } else if failure == Failure::Unclear {
            self.unclear.fetch_add(1, Ordering::Relaxed);
            self.give_up(generation, needs_login(&status)).await;
        }
        Err(failure)
    }

    /// The connection in use, or a new one.
    async fn member(&self) -> Result<Member, Failure> {
        let mut in_use = self.in_use.lock().await;
        let place = in_use.at.checked_rem(self.members.len()).unwrap_or(0);
        let endpoint = self.members.get(place).ok_or(Failure::Unclear)?;
        if in_use.channel.is_none() {
            in_use.channel = connect(endpoint).await;
            in_use.generation += 1;
        }
        if let Some(user) = self.user.as_ref().filter(|_| in_use.token.is_none()) {
            if let Some(channel) = in_use.channel.take() {
                let token = authenticate(channel.clone(), user).await;
                let name = &user.name;
                let token = token.inspect_err(
                    |why| tracing::warn!(user = name, member = %endpoint.uri(), "{why}"),
                );
                in_use.token = token.ok();
                in_use.channel = in_use.token.is_some().then_some(channel);
                in_use.generation += 1;
            }
        }
        if in_use.channel.is_none() {
            in_use.at = in_use.at.wrapping_add(1);
        }
        in_use.member().ok_or(Failure::Unclear)
    }

    /// Checks whether etcd has space, and moves to the leader if it is in the list and not in use yet. Through a
    /// follower, each write takes one hop more, and the follower learns that it is done only from the leader's next
    /// message. Calls under way are answered by the old connection.
    pub(crate) async fn go_to_leader(&self) {
        let (old, at) = {
            let in_use = self.in_use.lock().await;
            let Some(old) = in_use.member() else { return };
            (old, in_use.at.checked_rem(self.members.len()).unwrap_or(0))
        };
        let Some(status) = status_of(&old).await else { return };
        self.note_space(status.errors.iter().any(|alarm| alarm.contains(NO_SPACE)));
        if leads(&status) != Some(false) {
            return;
        }
        for (place, member) in self.members.iter().enumerate().filter(|(place, _)| *place != at) {
            let Some(channel) = connect(member).await else { continue };
            let new = Member { channel, ..old.clone() };
            if status_of(&new).await.as_ref().and_then(leads) == Some(true) {
                return self.go_over(place, new).await;
            }
        }
    }

    /// Uses this connection from now on, unless the present one has been given up meanwhile.
    async fn go_over(&self, place: usize, new: Member) {
        let mut in_use = self.in_use.lock().await;
        if in_use.generation == new.generation && in_use.channel.is_some() {
            in_use.at = place;
            in_use.channel = Some(new.channel);
            in_use.generation += 1;
        }
    }

    /// Makes the next call log in again, or go to the next member, unless another task has done so already.
    async fn give_up(&self, generation: u64, needs_login: bool) {
        let mut in_use = self.in_use.lock().await;
        if in_use.generation != generation || in_use.channel.is_none() {
        } else if needs_login {
            in_use.token = None;
        } else {
            in_use.give_up(Instant::now());
        }
    }
}

/// The token of this user, or why there is none. Reads the password each time, because it may have changed.
async fn authenticate(channel: Channel, user: &EtcdUser) -> Result<MetadataValue<Ascii>, String> {
    let file = &user.password_file;
    let password = std::fs::read_to_string(file)
        .map_err(|err| format!("no password for etcd: {}: {err}", file.display()))?;
    let message =
        AuthenticateRequest { name: user.name.clone(), password: password.trim().to_owned() };
    let mut auth = AuthClient::new(channel);
    let answer = tokio::time::timeout(LOGIN, auth.authenticate(message)).await;
    let answer = answer.map_err(|_| "etcd does not answer the login".to_owned())?;
    let refused = |status: Status| format!("etcd refuses the user: {}", status.message());
    let token = answer.map_err(refused)?.into_inner().token;
    token.parse().map_err(|_| "etcd gave a token that cannot be sent back".to_owned())
}

/// The pause after this many attempts without a clear answer.
fn pause(failed: u32) -> Duration {
    PAUSE.saturating_mul(failed).min(LONGEST_PAUSE)
}

async fn connect(member: &Endpoint) -> Option<Channel> {
    let made = tokio::time::timeout(CONNECT, member.connect()).await.ok()?;
    made.inspect_err(|err| {
        tracing::debug!(member = %member.uri(), err = %chain(err), "etcd does not answer");
    })
    .ok()
}

/// The status of the member at the other end.
async fn status_of(member: &Member) -> Option<StatusResponse> {
    let mut maintenance = MaintenanceClient::new(member.channel.clone());
    let request = member.request(StatusRequest {});
    Some(tokio::time::timeout(CALL, maintenance.status(request)).await.ok()?.ok()?.into_inner())
}

/// Whether a member is the leader; `None` if it knows no leader.
fn leads(status: &StatusResponse) -> Option<bool> {
    (status.leader != 0).then_some(status.leader == status.header.as_ref()?.member_id)
}

/// Whether a call with this status may have had an effect. It had none only if etcd says that it refused the call, for
/// a reason that does not go away. A token that is too old goes away: the next login brings another.
fn classify(status: &Status) -> Failure {
    match status.code() {
        Code::InvalidArgument if needs_login(status) => Failure::Unclear,
        Code::InvalidArgument
        | Code::NotFound
        | Code::PermissionDenied
        | Code::FailedPrecondition
        | Code::OutOfRange
        | Code::Unimplemented => Failure::Refused,
        Code::Ok
        | Code::Cancelled
        | Code::Unknown
        | Code::DeadlineExceeded
        | Code::AlreadyExists
        | Code::Aborted
        | Code::Internal
        | Code::Unauthenticated
        | Code::Unavailable
        | Code::DataLoss
        | Code::ResourceExhausted => Failure::Unclear,
    }
}

/// Whether another token may help.
fn needs_login(status: &Status) -> bool {
    let says = |words: &str| status.message().contains(words);
    says("invalid auth token") || says("revision of auth store is old")
}

/// How long a server may be silent before another one may take the lead: the length of its lease of etcd.
pub const PRESENCE: Duration = Duration::from_secs(3);
/// The time between two keep-alives.
const BEAT: Duration = Duration::from_millis(800);
/// The pause after a call that failed.
const RETRY: Duration = Duration::from_millis(100);
/// The time between two searches for etcd's leader, which also show whether etcd has space.
const SEARCH_EVERY: Duration = Duration::from_secs(2);

/// The present lease; none before the first one and after a loss. Kept alive until this is dropped.
#[derive(Debug)]
pub(crate) struct Presence(Arc<watch::Sender<Option<i64>>>);

impl Presence {
    /// Must be called on the runtime.
    pub(crate) fn start(client: &Arc<Client>) -> Self {
        let lease = Arc::new(watch::channel(None).0);
        tokio::spawn(keep(Arc::clone(client), Arc::downgrade(&lease)));
        tokio::spawn(search(Arc::clone(client), Arc::downgrade(&lease)));
        Self(lease)
    }

    /// The present lease.
    pub(crate) fn lease(&self) -> Option<i64> {
        *self.0.borrow()
    }

    /// The lease, as soon as there is one.
    pub(crate) async fn some_lease(&self) -> Option<i64> {
        *self.0.subscribe().wait_for(Option::is_some).await.ok()?
    }
}

/// Takes a lease and keeps it alive, again and again.
async fn keep(client: Arc<Client>, present: Weak<watch::Sender<Option<i64>>>) {
    while let Some(sender) = present.upgrade() {
        let lease = *sender.borrow();
        drop(sender);
        let next = renew(&client, lease).await;
        if let (Some(sender), Ok(next)) = (present.upgrade(), next) {
            sender.send_if_modified(|lease| std::mem::replace(lease, next) != next);
        }
        sleep(if matches!(next, Ok(Some(_))) { BEAT } else { RETRY }).await;
    }
}

/// Looks for etcd's leader. A member that does not answer must not delay the next beat.
async fn search(client: Arc<Client>, present: Weak<watch::Sender<Option<i64>>>) {
    while present.strong_count() > 0 {
        sleep(SEARCH_EVERY).await;
        client.go_to_leader().await;
    }
}

/// The lease after this beat.
async fn renew(client: &Client, lease: Option<i64>) -> Result<Option<i64>, Failure> {
    let Some(lease) = lease else { return client.grant().await.map(Some) };
    match client.keep_alive(lease).await {
        Ok(seconds) if seconds > 0 => Ok(Some(lease)),
        Ok(_) | Err(Failure::Refused) => {
            tracing::warn!("etcd session lost");
            Ok(None)
        }
        Err(Failure::Unclear) => Err(Failure::Unclear),
    }
}

/// The deadline of a connection attempt.
pub(crate) const CONNECT: Duration = Duration::from_millis(700);

/// A part of [`EtcdOptions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EtcdOption {
    /// The addresses of the members.
    Endpoints,
    /// The certificate of the authority that has signed those of the members.
    Authority,
    /// The certificate of this server.
    Certificate,
    /// The key of this server.
    Key,
    /// The certificate and the key together.
    Identity,
    /// The file with the password.
    PasswordFile,
}

/// Settings that cannot be used.
#[derive(Debug)]
#[non_exhaustive]
pub struct InvalidOption {
    /// The part that is wrong.
    pub option: EtcdOption,
    /// What is wrong with it.
    pub error: io::Error,
}

impl fmt::Display for InvalidOption {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(out)
    }
}

impl std::error::Error for InvalidOption {}

/// The settings of `--store etcd` with their files read, ready to connect.
#[derive(Clone)]
pub struct Settings {
    pub(crate) members: Vec<Endpoint>,
    pub(crate) prefix: String,
    pub(crate) user: Option<EtcdUser>,
}

impl Settings {
    /// Reads the files and parses the addresses; does not connect.
    ///
    /// # Errors
    /// A file cannot be read, or an address is invalid.
    pub fn open(options: &EtcdOptions) -> Result<Self, InvalidOption> {
        let tls = options.tls.as_ref().map(client_tls).transpose()?;
        if let Some(user) = &options.user {
            let found = std::fs::metadata(&user.password_file).map(drop);
            found.map_err(unreadable(EtcdOption::PasswordFile, &user.password_file))?;
        }
        let member = |address: &String| {
            let invalid = |option| {
                move |err: Error| InvalidOption { option, error: io::Error::other(chain(&err)) }
            };
            let scheme = if tls.is_some() { "https" } else { "http" };
            let endpoint = Endpoint::from_shared(format!("{scheme}://{address}"));
            let endpoint = endpoint.map_err(invalid(EtcdOption::Endpoints))?;
            let endpoint = endpoint.connect_timeout(CONNECT).tcp_nodelay(true);
            match &tls {
                // Only the certificate and its key are read before there is a connection.
                Some(tls) => {
                    endpoint.tls_config(tls.clone()).map_err(invalid(EtcdOption::Identity))
                }
                None => Ok(endpoint),
            }
        };
        Ok(Self {
            members: options.endpoints.iter().map(member).collect::<Result<_, _>>()?,
            prefix: options.prefix.clone(),
            user: options.user.clone(),
        })
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("etcd at")?;
        self.members.iter().try_for_each(|member| write!(out, " {}", member.uri()))
    }
}

fn unreadable(option: EtcdOption, path: &Path) -> impl FnOnce(io::Error) -> InvalidOption {
    move |err| {
        let error = io::Error::new(err.kind(), format!("{}: {err}", path.display()));
        InvalidOption { option, error }
    }
}

fn client_tls(tls: &EtcdTls) -> Result<ClientTlsConfig, InvalidOption> {
    let read = |option, path: &Path| std::fs::read(path).map_err(unreadable(option, path));
    let authority = Certificate::from_pem(read(EtcdOption::Authority, &tls.authority)?);
    let mut config = ClientTlsConfig::new().ca_certificate(authority);
    if let Some((cert, key)) = &tls.identity {
        let cert = read(EtcdOption::Certificate, cert)?;
        config = config.identity(Identity::from_pem(cert, read(EtcdOption::Key, key)?));
    }
    Ok(config)
}

/// An error and its causes, in one line.
pub(crate) fn chain(err: &dyn std::error::Error) -> String {
    let mut text = err.to_string();
    let mut next = err.source();
    while let Some(err) = next {
        text.push_str(": ");
        text.push_str(&err.to_string());
        next = err.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    /// Short deadlines end after the time of an election, even if more members are given up during it.
    #[test]
    fn calls_are_short_for_the_time_of_an_election() {
        let mut in_use = InUse::default();
        let begun = Instant::now();
        assert_eq!(in_use.limit(begun), CALL);
        in_use.give_up(begun);
        in_use.give_up(begun + ELECTION / 2);
        assert_eq!(in_use.limit(begun + ELECTION / 2), CALL_AFTER_LOSS);
        assert_eq!(in_use.limit(begun + ELECTION), CALL);
        in_use.give_up(begun + ELECTION);
        assert_eq!((in_use.limit(begun + ELECTION), in_use.at), (CALL_AFTER_LOSS, 3));
    }

    /// Of a member that refuses connections.
    fn client() -> Client {
        let members = vec![Endpoint::from_static("http://127.0.0.1:1")];
        Client::new(Settings { members, prefix: String::new(), user: None })
    }

    /// As if the member had accepted the connection.
    async fn connected(client: &Client) {
        client.in_use.lock().await.channel = Some(client.members[0].connect_lazy());
    }

    /// An answer from before a pause of this process says nothing about the present.
    #[tokio::test]
    async fn an_answer_that_is_too_old_counts_as_none() {
        let client = client();
        for (lasts, want) in [(Duration::ZERO, Ok(())), (CALL, Err(Failure::Unclear))] {
            connected(&client).await;
            let answer = async |_| {
                std::thread::sleep(lasts);
                Ok(Response::new(()))
            };
            assert_eq!(client.call(answer).await, want);
        }
    }

    /// A server whose etcd is away costs next to nothing, and one that misses an answer loses no time.
    #[tokio::test]
    async fn attempts_become_rarer_until_etcd_answers() {
        let client = client();
        for failed in 1..=8 {
            let begun = Instant::now();
            assert_eq!(client.revoke(1).await, Err(Failure::Unclear));
            assert!(begun.elapsed() >= pause(failed));
        }
        connected(&client).await;
        assert_eq!(client.call(async |_| Ok(Response::new(()))).await, Ok(()));
        assert_eq!(client.failed.load(Ordering::Relaxed), 0);
        let pauses = [1, 2, 10, 100, 101, u32::MAX].map(|failed| pause(failed).as_millis());
        assert_eq!(pauses, [10, 20, 100, 1000, 1000, 1000]);
    }

    #[rstest]
    #[case(Code::Unavailable, "etcdserver: no leader", Failure::Unclear)]
    #[case(Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded", Failure::Unclear)]
    #[case(Code::Unauthenticated, "etcdserver: invalid auth token", Failure::Unclear)]
    #[case(Code::InvalidArgument, "etcdserver: revision of auth store is old", Failure::Unclear)]
    #[case(Code::InvalidArgument, "etcdserver: duplicate key given", Failure::Refused)]
    #[case(Code::NotFound, "etcdserver: requested lease not found", Failure::Refused)]
    #[case(Code::DeadlineExceeded, "context deadline exceeded", Failure::Unclear)]
    fn an_error_tells_whether_another_attempt_may_help(
        #[case] code: Code,
        #[case] message: &str,
        #[case] want: Failure,
    ) {
        assert_eq!(classify(&Status::new(code, message)), want);
    }
}
