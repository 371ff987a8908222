//! A session: one task owns one connection to a server, and everything that is held over it.
//!
//! It waits for the first hold, and takes further ones that are free. It renews all of them well before their end,
//! reports to those who hold them if one is lost, and ends with the last. If its connection breaks, or stays silent, it
//! renews all holds over another one. A grant whose receiver no longer waits is released.
//!
//! A lease is lost in two ways, both in `lease.rs`: a server says so in the answer to a renewal (`heard`), or its time is
//! over before one has renewed it (`give_up`). Its `Lease` then resolves `lost`, and `dflock run` stops the command.

use super::connection::Connection;
use super::dialogue::{Grant, Place};
use super::error::ClientError;
use super::lease::{
    Holds, Lease, Order, Orders, Released, Renewal, Taken, Turn, answer, confirmed,
};
use super::route::Route;
use super::terms::{Proof, ServerAddress, Token, Wanted};
use super::timing::{Backoff, Schedule, TRIES_IN_TIME, share, was_waited_for};
use std::collections::HashMap;
use std::future::{pending, ready};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::{Handle, Id};
use tokio::sync::{Mutex as Turns, mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// A grant that needs no wait comes within this time, and a request that is given up earlier is still waited for until
/// then. A request that takes longer stands in the queue, and leaves the queue when it is given up.
const LINGER: Duration = Duration::from_secs(1);

/// The sessions of one client.
pub(super) struct Sessions {
    /// The newest of each runtime and server. The task of another runtime may never run again.
    shared: Mutex<HashMap<(Id, ServerAddress), mpsc::WeakUnboundedSender<Order>>>,
    /// Each session has a receiver, and so has everything that goes on after it: see [`Self::work`].
    alive: watch::Sender<()>,
}

impl Sessions {
    pub(super) fn new() -> Self {
        Self { shared: Mutex::default(), alive: watch::Sender::new(()) }
    }

    /// For leases that must not share a connection with the others of the client.
    pub(super) fn apart(&self) -> Self {
        Self { shared: Mutex::default(), alive: self.alive.clone() }
    }

    /// For work that goes on after a session: `ended` waits until the work drops this.
    pub(super) fn work(&self) -> watch::Receiver<()> {
        self.alive.subscribe()
    }

    /// Waits until none is left, and everything that was given up is released.
    #[cfg(feature = "cli")]
    pub(super) async fn ended(&self) {
        self.alive.closed().await;
    }

    fn of(&self, server: ServerAddress) -> Option<Orders> {
        let shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let orders = shared.get(&(Handle::current().id(), server))?.upgrade()?;
        (!orders.is_closed()).then_some(orders)
    }

    fn share(&self, server: ServerAddress, orders: &Orders) {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.retain(|_, orders| orders.strong_count() > 0);
        shared.insert((Handle::current().id(), server), orders.downgrade());
    }

    /// Takes these, all or none, over the present session. If there is none, if it cannot serve them now, or if they
    /// are in use and the caller may wait, takes them over a new one: `open` makes its connection, and says how long to
    /// wait.
    pub(super) async fn take(
        self: &Arc<Self>,
        route: &Arc<Route>,
        wanted: Vec<Wanted>,
        may_wait: bool,
        open: impl Future<Output = Result<(Connection, Duration), ClientError>>,
    ) -> Taken {
        match self.join(route, &wanted, None).await {
            Some(Ok(Some(leases))) => return Ok(Some(leases)),
            Some(Ok(None)) if !may_wait => return Ok(None),
            Some(Err(error)) if !error.is_passing() => return Err(error),
            // In use. Or that session has no connection at present.
            Some(Ok(None) | Err(_)) | None => {}
        }
        let (connection, wait) = open.await?;
        let (outcome, taken) = oneshot::channel();
        tokio::spawn(Session::new(self, route, connection).wait(wanted, wait, outcome));
        answer(taken).await
    }

    /// The answer of the session that there is, which is to take these, or to go on with what was granted to another.
    async fn join(
        &self,
        route: &Route,
        wanted: &[Wanted],
        granted: Option<Vec<Grant>>,
    ) -> Option<Taken> {
        let orders = self.of(route.first()?)?;
        let (outcome, taken) = oneshot::channel();
        orders.send(Order::Take { wanted: wanted.to_vec(), granted, outcome }).ok()?;
        Some(confirmed(taken.await.ok()?).await)
    }

    /// Joins the queue on this connection.
    pub(super) fn enqueue(
        self: &Arc<Self>,
        route: &Arc<Route>,
        wanted: Wanted,
        connection: Connection,
    ) -> (oneshot::Receiver<Taken>, oneshot::Sender<Turn>) {
        let (outcome, taken) = oneshot::channel();
        let (wait, turn) = oneshot::channel();
        tokio::spawn(Session::new(self, route, connection).enqueue([wanted], outcome, turn));
        (taken, wait)
    }
}

struct Session {
    sessions: Arc<Sessions>,
    route: Arc<Route>,
    connection: Connection,
    /// An answer is missing on the connection, which may be open nevertheless.
    is_silent: bool,
    /// Keys that were requested here for somebody who no longer waits for the answer.
    unanswered: Vec<Wanted>,
    /// Connections that have renewed some of the holds and fell silent then. The server would free these holds when they
    /// close, so they stay open until another one has renewed all.
    silent: Vec<Connection>,
    /// The last thing that was done was a renewal, so orders come before the next one.
    has_renewed: bool,
    holds: Holds,
}

enum Event {
    Due,
    /// The server has taken a hold away.
    News(Token),
    Closed,
    Order(Order),
}

/// The answer to a request, or another connection that was found before it came.
type Answer<T> = Result<Result<T, ClientError>, Anew>;

/// Another connection, where all holds were renewed.
struct Anew {
    connection: Connection,
    renewals: Vec<(Token, Renewal)>,
}

impl Session {
    fn new(sessions: &Arc<Sessions>, route: &Arc<Route>, connection: Connection) -> Self {
        Self {
            sessions: Arc::clone(sessions),
            route: Arc::clone(route),
            connection,
            is_silent: false,
            unanswered: Vec::new(),
            silent: Vec::new(),
            has_renewed: false,
            holds: Holds::new(Arc::clone(route), sessions.work()),
        }
    }

    async fn wait(mut self, wanted: Vec<Wanted>, wait: Duration, outcome: oneshot::Sender<Taken>) {
        let ask = async |connection: &mut Connection| ask(connection, &wanted, wait).await;
        self.begin(&wanted, outcome, ask).await;
        self.hold().await;
    }

    async fn enqueue(
        mut self,
        wanted: [Wanted; 1],
        outcome: oneshot::Sender<Taken>,
        turn: oneshot::Receiver<Turn>,
    ) {
        let [Wanted { key, kind, ttl }] = &wanted;
        let enqueue = async |connection: &mut Connection| {
            Ok(match connection.enqueue(key, *kind, *ttl).await? {
                Place::Granted(grant) => Some(vec![grant]),
                Place::Queued => None,
            })
        };
        self.begin(&wanted, outcome, enqueue).await;
        if let Some(Turn { timeout, outcome }) = self.turn(turn).await {
            let wait = async |connection: &mut Connection| {
                Ok(connection.wait(key, *kind, timeout).await?.map(|grant| vec![grant]))
            };
            self.begin(&wanted, outcome, wait).await;
        }
        self.hold().await;
    }

    /// The first request of a session, or the second for a place in the queue.
    async fn begin(
        &mut self,
        wanted: &[Wanted],
        mut outcome: oneshot::Sender<Taken>,
        request: impl AsyncFnOnce(&mut Connection) -> Result<Option<Vec<Grant>>, ClientError>,
    ) {
        let asked_at = Instant::now();
        let answer = tokio::select! {
            biased;
            answer = request(&mut self.connection) => answer,
            () = given_up(&mut outcome, asked_at) => {
                // The client leaves the queue. A grant that is on its way comes before the end.
                self.connection.close_sending().await;
                self.unanswered = wanted.to_vec();
                return;
            }
        };
        let taken = self.taken(wanted, answer, asked_at).await;
        let _ = outcome.send(taken);
    }

    /// Keeps the connection from being closed as idle, until the ticket is dropped or waits for its turn.
    async fn turn(&mut self, mut turn: oneshot::Receiver<Turn>) -> Option<Turn> {
        let pause = self.route.settings.read_timeout / TRIES_IN_TIME;
        while self.holds.is_empty() {
            tokio::select! {
                turn = &mut turn => return turn.ok(),
                () = sleep(pause) => {}
            }
            // A server that does not know the request has answered as well.
            if !matches!(self.connection.ping().await, Ok(()) | Err(ClientError::Refused(_))) {
                break;
            }
        }
        None
    }

    /// Holds what was granted, or leaves it to the session that there is. An answer that has not come yet may be a grant.
    async fn taken(
        &mut self,
        wanted: &[Wanted],
        answer: Result<Option<Vec<Grant>>, ClientError>,
        asked_at: Instant,
    ) -> Taken {
        self.unanswered = if self.connection.is_answered { Vec::new() } else { wanted.to_vec() };
        let Some(grants) = answer? else { return Ok(None) };
        // The present session renews them before this connection closes. They stay then, if the server hands holds
        // over.
        if self.holds.is_empty() && self.connection.hands_over() {
            let taken = self.sessions.join(&self.route, wanted, Some(grants.clone())).await;
            if let Some(taken) = taken {
                return taken;
            }
        }
        let is_prompt = !was_waited_for(asked_at, Instant::now());
        Ok(Some(self.keep(wanted, grants, Some(asked_at).filter(|_| is_prompt))))
    }

    /// Holds these. A grant after a wait is renewed before it is used, because the exact moment of the grant, and so
    /// the end of the lease, is unknown until then (`asked_at` is `None`). It may already be over, if this machine was
    /// suspended while the answer was in the socket. Leases that nobody receives are dropped, which orders their
    /// release.
    fn keep(
        &mut self,
        wanted: &[Wanted],
        grants: Vec<Grant>,
        asked_at: Option<Instant>,
    ) -> Vec<Lease> {
        let granted = wanted.iter().zip(grants);
        let leases = granted.map(|(wanted, grant)| self.holds.add(wanted, grant, asked_at));
        let leases = leases.collect();
        self.share();
        leases
    }

    /// Lets others of the client take more over this session.
    fn share(&self) {
        if let Some(server) = self.route.first() {
            self.sessions.share(server, &self.holds.orders);
        }
    }

    /// Until everything is released.
    async fn hold(mut self) {
        while !self.holds.is_empty() && !self.holds.is_detaching {
            let event = self.event().await;
            self.has_renewed = matches!(event, Event::Due);
            match event {
                Event::Due => self.renew().await,
                Event::News(token) => self.holds.urge(&token, Instant::now()),
                Event::Closed => self.reclaim().await,
                Event::Order(order) if self.holds.are_late() => self.holds.do_elsewhere(order),
                Event::Order(Order::Take { wanted, granted, outcome }) => {
                    if !outcome.is_closed() && self.holds.have_room() {
                        let taken = match granted {
                            None => self.take(&wanted).await,
                            Some(grants) => Ok(Some(self.keep(&wanted, grants, None))),
                        };
                        let _ = outcome.send(taken);
                    }
                }
                Event::Order(Order::Release { token, outcome }) => {
                    match self.holds.remove(&token) {
                        Ok(proof) => self.release(proof, outcome).await,
                        Err(error) => drop(outcome.send(Err(error))),
                    }
                }
                Event::Order(order) => self.holds.do_elsewhere(order),
            }
        }
        if !self.unanswered.is_empty() {
            self.holds.close_later(self.connection, self.unanswered);
        } else if self.holds.is_detaching {
            self.connection.answer_limit = self.route.settings.answer_limit;
            self.connection.close().await;
        }
    }

    /// What to do next. As long as holds are due, one renewal and one order take turns: a slow server may need all the
    /// time there is for renewals.
    async fn event(&mut self) -> Event {
        let Some(due_at) = self.holds.due_at() else {
            return Event::Order(self.holds.order().await);
        };
        let is_due = due_at <= Instant::now();
        tokio::select! {
            // A message that the server sends unasked before it closes is not the answer to a renewal.
            biased;
            news = self.connection.news() => news.map_or(Event::Closed, Event::News),
            () = ready(()), if is_due && !self.has_renewed => Event::Due,
            order = self.holds.order() => Event::Order(order),
            () = sleep_until(due_at) => Event::Due,
        }
    }

    /// One request. If its answer is late, another connection is looked for as well, in case only this one loses data.
    /// As long as the server may still receive our requests here, it has no reason to release the holds.
    async fn exchange<T>(
        &mut self,
        limit: Duration,
        request: impl AsyncFnOnce(&mut Connection) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        let answer = {
            let Self { connection, holds, route, silent, .. } = self;
            connection.answer_limit = limit;
            let mut answer = pin!(request(connection));
            match timeout(holds.patience(), answer.as_mut()).await {
                Ok(answer) => Ok(answer),
                Err(_) => {
                    route.prefer_next();
                    try_elsewhere(holds, route, silent, answer).await
                }
            }
        };
        match answer {
            Ok(answer) => {
                self.is_silent |= matches!(answer, Err(ClientError::TimedOut));
                answer
            }
            Err(anew) => {
                self.moved(anew);
                Err(ClientError::TimedOut)
            }
        }
    }

    /// Renews the hold that is due first.
    async fn renew(&mut self) {
        let Some((proof, ttl)) = self.holds.due() else { return };
        let Proof { key, kind, token } = &proof;
        let asked_at = Instant::now();
        let renew = async |connection: &mut Connection| {
            connection.renew(key, *kind, token, Some(ttl)).await
        };
        match self.exchange(Duration::MAX, renew).await {
            Ok(ttl) => self.holds.heard(token, Some((asked_at, ttl))),
            Err(error) if error.is_end_of_lease() => self.holds.heard(token, None),
            // If it is another connection by now, nothing is due.
            Err(ClientError::TimedOut) => {}
            Err(_) => self.reclaim().await,
        }
    }

    /// The connection cannot be used. Renews all holds over another one, for as long as their leases may last.
    async fn reclaim(&mut self) {
        if !self.is_silent {
            self.holds.broken();
        }
        let nothing = pin!(pending::<Result<(), ClientError>>());
        let Self { holds, route, silent, .. } = self;
        if let Err(anew) = try_elsewhere(holds, route, silent, nothing).await {
            self.moved(anew);
        }
    }

    fn moved(&mut self, anew: Anew) {
        let earlier = std::mem::replace(&mut self.connection, anew.connection);
        self.is_silent = false;
        self.holds.close_later(earlier, std::mem::take(&mut self.unanswered));
        for silent in self.silent.drain(..) {
            self.holds.close_later(silent, Vec::new());
        }
        for (token, renewal) in &anew.renewals {
            self.holds.heard(token, *renewal);
        }
        self.share();
    }

    async fn take(&mut self, wanted: &[Wanted]) -> Taken {
        let asked_at = Instant::now();
        let limit = self.route.settings.answer_limit;
        let take =
            async |connection: &mut Connection| ask(connection, wanted, Duration::ZERO).await;
        self.unanswered = wanted.to_vec();
        let answer = self.exchange(limit, take).await;
        self.taken(wanted, answer, asked_at).await
    }

    async fn release(&mut self, proof: Proof, outcome: Released) {
        let limit = self.route.release_share();
        let release = async |connection: &mut Connection| {
            connection.release(&proof.key, proof.kind, &proof.token).await
        };
        match self.exchange(limit, release).await {
            Err(error) if error.is_passing() => self.holds.release_elsewhere(proof, outcome),
            // If the holder has stopped waiting, nobody needs the result.
            released => drop(outcome.send(released)),
        }
    }
}

/// The request for these: all or none.
async fn ask(
    connection: &mut Connection,
    wanted: &[Wanted],
    wait: Duration,
) -> Result<Option<Vec<Grant>>, ClientError> {
    match wanted {
        [one] => {
            let grant = connection.acquire(&one.key, one.kind, wait, one.ttl).await?;
            Ok(grant.map(|grant| vec![grant]))
        }
        several => {
            let keys: Vec<_> = several.iter().map(|one| &one.key).collect();
            connection.acquire_all(&keys, several.first().and_then(|one| one.ttl)).await
        }
    }
}

/// Resolves when nobody awaits the outcome of a request, and the answer would have come if it needed no wait.
async fn given_up<T>(outcome: &mut oneshot::Sender<T>, asked_at: Instant) {
    outcome.closed().await;
    sleep_until(asked_at + LINGER).await;
}

/// Waits for an answer as long as something is held, and meanwhile looks for another connection to renew all holds. An
/// answer for which nobody can wait any longer is none.
///
/// If the first connection breaks while another one renews the holds, the other one has inherited those that it has
/// renewed, and they would end with it. So it is not given up: it renews the rest, or fails by itself. A connection
/// that fell silent stays open.
async fn try_elsewhere<T>(
    holds: &mut Holds,
    route: &Route,
    silent: &mut Vec<Connection>,
    answer: Pin<&mut impl Future<Output = Result<T, ClientError>>>,
) -> Answer<T> {
    let renewing = Turns::new(());
    let answer = async {
        let answer = answer.await;
        if matches!(answer, Err(ClientError::Broken(_))) {
            drop(renewing.lock().await);
        }
        answer
    };
    let held = holds.all_live();
    let either = async {
        tokio::select! {
            biased;
            answer = answer => Ok(answer),
            anew = renewed_anew(route, &held, &renewing, silent) => Err(anew),
        }
    };
    holds.attend(either).await.unwrap_or(Ok(Err(ClientError::TimedOut)))
}

/// Opens connections until one of them has renewed each of these whose time is not over, or a server says that there
/// is none. Those that have renewed some and fell silent are put aside.
async fn renewed_anew(
    route: &Route,
    held: &[(Proof, Schedule)],
    renewing: &Turns<()>,
    silent: &mut Vec<Connection>,
) -> Anew {
    let mut backoff = Backoff::new();
    loop {
        match ask_anew(route, held, renewing, silent).await {
            Ok(anew) => return anew,
            Err(_) => route.prefer_next(),
        }
        sleep(backoff.next()).await;
    }
}

/// The time until the next of them is given up is divided so that every server can be tried.
async fn ask_anew(
    route: &Route,
    held: &[(Proof, Schedule)],
    renewing: &Turns<()>,
    silent: &mut Vec<Connection>,
) -> Result<Anew, ClientError> {
    let mut connection = route.open().await?;
    let _renewing = renewing.lock().await;
    let mut renewals = Vec::new();
    for (Proof { key, kind, token }, schedule) in held {
        let asked_at = Instant::now();
        let ends = held.iter().map(|(_, it)| it.given_up_at()).filter(|end| *end > asked_at);
        let is_over = schedule.given_up_at() <= asked_at;
        let Some(end) = ends.min().filter(|_| !is_over) else { continue };
        let most = route.settings.answer_limit;
        connection.answer_limit = share(end, asked_at, route.width(), most);
        let renewal = match connection.renew(key, *kind, token, Some(schedule.granted)).await {
            Ok(ttl) => Some((asked_at, ttl)),
            Err(error) if error.is_end_of_lease() => None,
            Err(error) => {
                if matches!(error, ClientError::TimedOut) && !renewals.is_empty() {
                    silent.push(connection);
                }
                return Err(error);
            }
        };
        renewals.push((token.clone(), renewal));
    }
    Ok(Anew { connection, renewals })
}

#[cfg(test)]
mod tests {
    use super::Order;
    use crate::claim::Client;
    use crate::error::ClientError;
    use crate::lease::{Lease, Loss};
    use crate::settings::Settings;
    use crate::terms::{Key, Kind, Servers, Wanted};

    use std::time::Duration;
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::sync::oneshot;
    use tokio::time::timeout;

    /// A server's end of one connection, played by the test.
    struct Peer(BufReader<TcpStream>);

    impl Peer {
        /// The next client that goes on after it was told what the server can do.
        async fn accept(listener: &TcpListener) -> (Self, String) {
            loop {
                let mut peer = Self(BufReader::new(listener.accept().await.unwrap().0));
                if peer.request().await.is_some() {
                    peer.say("ok fences").await;
                    if let Some(request) = peer.request().await {
                        return (peer, request);
                    }
                }
            }
        }

        /// The three lines of a request in one. Nothing: the client has gone.
        async fn request(&mut self) -> Option<String> {
            let mut lines = String::new();
            for _ in 0..3 {
                self.0.read_line(&mut lines).await.ok().filter(|count| *count > 0)?;
            }
            Some(lines.trim_end().replace('\n', " "))
        }

        async fn say(&mut self, line: &str) {
            let _ = self.0.get_mut().write_all(format!("{line}\n").as_bytes()).await;
        }
    }

    async fn listener() -> TcpListener {
        TcpListener::bind("127.0.0.1:0").await.unwrap()
    }

    fn client(listener: &TcpListener, settings: Settings) -> Client {
        let server = listener.local_addr().unwrap().to_string().parse().unwrap();
        Client::new(Settings { servers: Servers::Shards(vec![server]), ..settings }).unwrap()
    }

    fn play(story: impl Future<Output = ()>) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let limited = async { timeout(Duration::from_secs(60), story).await };
        runtime.enable_all().build().unwrap().block_on(limited).expect("it ends in time");
    }

    /// The first lease of a client, and the server's end of its connection.
    async fn first(listener: &TcpListener, client: &Client, ttl_s: u64) -> (Lease, Peer) {
        let lock = client.lock("a").unwrap();
        let (taken, peer) = tokio::join!(lock.try_acquire(), async {
            let (mut peer, request) = Peer::accept(listener).await;
            assert_eq!(request, "l a 0");
            peer.say(&format!("ok first {ttl_s}")).await;
            peer
        });
        (taken.unwrap().unwrap(), peer)
    }

    /// The answer to a request comes after its session has lost its only hold, and has ended: the grant is given back.
    #[test]
    fn a_grant_that_comes_after_the_session_has_ended_is_given_back() {
        play(async {
            let listener = listener().await;
            let client = client(&listener, Settings::default());
            let (lease, mut peer) = first(&listener, &client, 1).await;
            let key = Key::new("b").unwrap();
            let wanted = vec![Wanted { key, kind: Kind::Lock, ttl: None }];
            let (outcome, taken) = oneshot::channel();
            assert!(lease.orders.send(Order::Take { wanted, granted: None, outcome }).is_ok());
            assert_eq!(peer.request().await.as_deref(), Some("l b 0"));
            assert!(matches!(taken.await, Ok(Err(ClientError::TimedOut))));
            assert_eq!(lease.lost().await, Loss::Unreachable);
            drop(lease);
            peer.say("ok late 33").await;
            let (mut another, request) = Peer::accept(&listener).await;
            assert_eq!(request, "r b late");
            another.say("ok").await;
            assert_eq!(peer.request().await, None, "the connection is closed then");
        });
    }

    /// A connection that loses a release leaves time for another one.
    #[test]
    fn a_release_is_repeated_until_a_connection_carries_it() {
        play(async {
            let listener = listener().await;
            let settings = Settings { answer_limit: Duration::from_secs(9), ..Settings::default() };
            let client = client(&listener, settings);
            let (lease, mut peer) = first(&listener, &client, 600).await;
            let (released, ()) = tokio::join!(lease.release(), async {
                assert_eq!(peer.request().await.as_deref(), Some("r a first"));
                drop(peer);
                let (_silent, request) = Peer::accept(&listener).await;
                assert_eq!(request, "r a first");
                let (mut another, request) = Peer::accept(&listener).await;
                assert_eq!(request, "r a first");
                another.say("ok").await;
            });
            released.unwrap();
        });
    }

    /// The holder of a lost lease may be stopping its work until the lease ends, and may keep the handle for ever.
    #[test]
    fn a_connection_is_kept_to_the_end_of_a_lost_lease_and_no_longer() {
        play(async {
            let listener = listener().await;
            let settings = Settings { margin: Duration::from_millis(400), ..Settings::default() };
            let client = client(&listener, settings);
            let (short, mut peer) = first(&listener, &client, 2).await;
            let lock = client.lock("b").unwrap();
            let (long, request) = tokio::join!(lock.try_acquire(), async {
                let request = peer.request().await;
                peer.say("ok second 600").await;
                request
            });
            let _long = long.unwrap().unwrap();
            assert_eq!(request.as_deref(), Some("l b 0"));
            let until = short.held_until().unwrap();
            assert_eq!(short.lost().await, Loss::Unreachable);
            let (mut another, request) = Peer::accept(&listener).await;
            assert_eq!(request, "n b second 600");
            another.say("ok 600").await;
            assert_eq!(peer.request().await.as_deref(), Some("n a first 2"));
            assert_eq!(peer.request().await, None);
            assert!(std::time::Instant::now() >= until, "the server would free it too early");
        });
    }
}
