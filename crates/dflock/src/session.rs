//! A session: one task owns one connection to a server, and everything that is held over it.
//!
//! It waits for the first hold, and takes further ones that are free. It renews all of them well before their end,
//! reports to those who hold them if one is lost, and ends with the last. If its connection breaks, or stays silent, it
//! renews all holds over another one. An answer that its receiver no longer awaits is given back.

use super::address::ServerAddress;
use super::backoff::Backoff;
use super::connection::Connection;
use super::dialogue::{Grace, Grant, Place};
use super::error::ClientError;
use super::holds::{Hold, Holds, Renewal, refuse};
use super::lease::{Lease, Order, Orders, Released, Taken};
use super::line::was_waited_for;
use super::route::Route;
use super::schedule::{RENEWALS_PER_LEASE, share};
use super::terms::{Proof, Token, Wanted};
use super::ticket::{Entry, Ticket, Turn};
use std::future::pending;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::{Handle, Id};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// A grant that needs no wait comes within this time. A client that asked longer ago waits in line, and leaves the
/// line by closing the connection.
const LINGER: Duration = Duration::from_secs(1);

/// The sessions of one client.
pub(super) struct Sessions {
    /// The newest of each runtime and server. The task of another runtime may never run again.
    shared: Mutex<Vec<(Id, ServerAddress, mpsc::WeakUnboundedSender<Order>)>>,
    /// Each session has a receiver, and so has everything that goes on after it.
    alive: watch::Sender<()>,
}

impl Sessions {
    pub(super) fn new() -> Self {
        Self { shared: Mutex::default(), alive: watch::Sender::new(()) }
    }

    /// Waits until none is left, and everything that was given up is released.
    #[cfg(feature = "cli")]
    pub(super) async fn ended(&self) {
        self.alive.closed().await;
    }

    fn of(&self, server: &ServerAddress) -> Option<Orders> {
        let runtime = Handle::current().id();
        let shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        let mut orders = shared
            .iter()
            .filter(|(id, its, _)| *id == runtime && its == server)
            .filter_map(|(_, _, orders)| orders.upgrade());
        orders.find(|orders| !orders.is_closed())
    }

    fn share(&self, server: ServerAddress, orders: &Orders) {
        let runtime = Handle::current().id();
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.retain(|(id, its, orders)| {
            (*id != runtime || *its != server) && orders.strong_count() > 0
        });
        shared.push((runtime, server, orders.downgrade()));
    }
}

/// A request for these, all or none, over a session of the client.
pub(super) struct Wish {
    pub(super) sessions: Arc<Sessions>,
    pub(super) route: Arc<Route>,
    pub(super) wanted: Vec<Wanted>,
}

impl Wish {
    /// Takes them over the session that there is, or else, if it may wait, over a new one: with a connection that `open`
    /// makes, and for as long as `open` says.
    pub(super) async fn take(
        self,
        may_wait: bool,
        open: impl Future<Output = Result<(Connection, Duration), ClientError>>,
    ) -> Taken {
        match self.join().await {
            Some(Ok(Some(leases))) => return Ok(Some(leases)),
            Some(Ok(None)) if !may_wait => return Ok(None),
            Some(Err(error)) if !error.is_passing() => return Err(error),
            // In use. Or that session has no connection at present.
            Some(Ok(None) | Err(_)) | None => {}
        }
        let (connection, wait) = open.await?;
        self.wait(connection, wait, true).await
    }

    /// The answer of the session that there is.
    async fn join(&self) -> Option<Taken> {
        let orders = self.sessions.of(&self.route.server()?)?;
        let (outcome, taken) = oneshot::channel();
        orders.send(Order::Take { wanted: self.wanted.clone(), outcome }).ok()?;
        taken.await.ok()
    }

    /// Asks on a connection of its own, and waits there.
    pub(super) async fn wait(
        self,
        connection: Connection,
        wait: Duration,
        is_shared: bool,
    ) -> Taken {
        let (outcome, taken) = oneshot::channel();
        tokio::spawn(Session::new(&self, connection, is_shared).wait(self.wanted, wait, outcome));
        taken.await.unwrap_or_else(|_| Err(ClientError::closed()))
    }

    /// Joins the line on a connection of its own.
    pub(super) async fn enqueue(self, connection: Connection) -> Result<Entry, ClientError> {
        let (outcome, entry) = oneshot::channel();
        tokio::spawn(Session::new(&self, connection, true).enqueue(self.wanted, outcome));
        entry.await.unwrap_or_else(|_| Err(ClientError::closed()))
    }
}

struct Session {
    sessions: Arc<Sessions>,
    route: Arc<Route>,
    connection: Connection,
    /// An answer is missing on the connection, which may be open nevertheless.
    is_silent: bool,
    /// Earlier connections. A server that resumes would free what it knows there when they close, and until the end of
    /// a lost lease its holder may still be stopping its work.
    earlier: Vec<Connection>,
    holds: Holds,
    /// Whether others of the client may take more over it.
    is_shared: bool,
}

enum Event {
    Due,
    /// The server has taken a hold away.
    News(Token),
    Closed,
    Order(Order),
}

/// What comes of a request.
enum Answer<T> {
    Heard(Result<T, ClientError>),
    /// Nothing, and another connection was found meanwhile.
    Moved(Anew),
    /// Nothing, and nothing is held any more.
    Gone,
}

/// Another connection, where all holds were renewed.
struct Anew {
    connection: Connection,
    renewals: Vec<(Token, Renewal)>,
}

impl Session {
    fn new(wish: &Wish, connection: Connection, is_shared: bool) -> Self {
        let Wish { sessions, route, .. } = wish;
        Self {
            sessions: Arc::clone(sessions),
            route: Arc::clone(route),
            connection,
            is_silent: false,
            earlier: Vec::new(),
            holds: Holds::new(Arc::clone(route), sessions.alive.subscribe()),
            is_shared,
        }
    }

    /// From the first request on.
    async fn wait(
        mut self,
        wanted: Vec<Wanted>,
        wait: Duration,
        mut outcome: oneshot::Sender<Taken>,
    ) {
        let asked_at = Instant::now();
        let answer = tokio::select! {
            biased;
            answer = ask(&mut self.connection, &wanted, wait) => answer,
            () = given_up(&mut outcome, asked_at) => return,
        };
        let taken = self.taken(&wanted, answer, asked_at).await;
        let _ = outcome.send(taken);
        self.hold().await;
    }

    async fn enqueue(
        mut self,
        wanted: Vec<Wanted>,
        mut outcome: oneshot::Sender<Result<Entry, ClientError>>,
    ) {
        let Some(one) = wanted.first() else { return };
        let asked_at = Instant::now();
        let place = tokio::select! {
            biased;
            place = self.connection.enqueue(&one.key, one.kind, one.ttl) => place,
            () = given_up(&mut outcome, asked_at) => return,
        };
        match place {
            Ok(Place::Granted(grant)) => {
                let lease = self.taken(&wanted, Ok(Some(vec![grant])), asked_at).await;
                let entry = lease.and_then(|leases| one_of(leases).ok_or_else(ClientError::closed));
                let _ = outcome.send(entry.map(Entry::Acquired));
                self.hold().await;
            }
            Ok(Place::Queued) => {
                let (ticket, inbox) = Ticket::new();
                let _ = outcome.send(Ok(Entry::Queued(ticket)));
                self.stay_in_line(&wanted, inbox).await;
            }
            Err(error) => {
                let _ = outcome.send(Err(error));
            }
        }
    }

    /// Keeps the connection from being closed as idle, until the ticket is dropped or waits for its turn.
    async fn stay_in_line(mut self, wanted: &[Wanted], mut inbox: mpsc::Receiver<Turn>) {
        let Some(one) = wanted.first() else { return };
        let pause = self.route.settings.read_timeout / RENEWALS_PER_LEASE;
        let mut turn = loop {
            tokio::select! {
                turn = inbox.recv() => match turn {
                    Some(turn) => break turn,
                    None => return,
                },
                () = sleep(pause) => {}
            }
            if self.connection.ping().await.is_err() {
                return;
            }
        };
        let asked_at = Instant::now();
        let grant = tokio::select! {
            biased;
            grant = self.connection.wait(&one.key, one.kind, turn.timeout) => grant,
            () = given_up(&mut turn.outcome, asked_at) => return,
        };
        let answer = grant.map(|grant| grant.map(|grant| vec![grant]));
        let taken = self.taken(wanted, answer, asked_at).await;
        let _ = turn.outcome.send(taken.map(one_of));
        self.hold().await;
    }

    /// Holds what was granted, or leaves it to the session that there is.
    async fn taken(
        &mut self,
        wanted: &[Wanted],
        answer: Result<Option<Vec<Grant>>, ClientError>,
        asked_at: Instant,
    ) -> Taken {
        let Some(grants) = answer? else { return Ok(None) };
        if let Some(taken) = self.adopted(wanted, &grants).await {
            return taken;
        }
        let is_prompt = !was_waited_for(asked_at.into_std(), now());
        self.keep(wanted, grants, Some(asked_at).filter(|_| is_prompt)).await
    }

    /// Leaves them to the session that there is, so that the client needs one connection. What that session renews
    /// stays when this connection closes, but not on every server.
    async fn adopted(&self, wanted: &[Wanted], grants: &[Grant]) -> Option<Taken> {
        if !self.is_shared || !self.holds.is_empty() || !self.connection.hands_over() {
            return None;
        }
        let (wanted, grants) = (wanted.to_vec(), grants.to_vec());
        let orders = self.sessions.of(&self.route.server()?)?;
        let (outcome, taken) = oneshot::channel();
        orders.send(Order::Adopt { wanted, grants, outcome }).ok()?;
        taken.await.ok()
    }

    /// Holds these. A grant after a wait is renewed before it is used, because the exact moment of the grant, and so
    /// the end of the lease, is unknown until then (`asked_at` is `None`). It may already be over, if this machine was
    /// suspended while the answer was in the socket. Leases that nobody receives are dropped, which orders their
    /// release.
    async fn keep(
        &mut self,
        wanted: &[Wanted],
        grants: Vec<Grant>,
        asked_at: Option<Instant>,
    ) -> Taken {
        let (supposed, is_urgent) = (asked_at.unwrap_or_else(Instant::now), asked_at.is_none());
        let granted = wanted.iter().zip(grants);
        let leases: Vec<Lease> = granted
            .map(|(wanted, grant)| self.holds.add(wanted, grant, supposed, is_urgent))
            .collect();
        self.share();
        if is_urgent {
            self.renew().await;
        }
        match leases.iter().find_map(Lease::loss) {
            Some(loss) => Err(loss.into_error()),
            None => Ok(Some(leases)),
        }
    }

    /// Lets others of the client take more over this session.
    fn share(&self) {
        if let (true, Some(server)) = (self.is_shared, self.route.server()) {
            self.sessions.share(server, self.holds.orders());
        }
    }

    /// Until everything is released.
    async fn hold(mut self) {
        while !self.holds.is_empty() {
            match self.event().await {
                Event::Due => self.renew().await,
                Event::News(token) => self.holds.urge(&token, now()),
                Event::Closed => self.reclaim().await,
                Event::Order(Order::Take { wanted, outcome }) => self.take(&wanted, outcome).await,
                Event::Order(Order::Adopt { wanted, grants, outcome }) => {
                    self.adopt(&wanted, grants, outcome).await;
                }
                Event::Order(Order::Renew { token, since }) => self.holds.urge(&token, since),
                Event::Order(Order::Release { token, outcome }) => {
                    self.release(&token, outcome).await;
                }
                Event::Order(Order::Detach { token, outcome }) => {
                    return self.detach(&token, outcome).await;
                }
            }
        }
    }

    async fn event(&mut self) -> Event {
        let Some(due_at) = self.holds.due_at() else {
            return Event::Order(self.holds.order().await);
        };
        tokio::select! {
            // A message that the server sends unasked before it closes is not the answer to a renewal.
            biased;
            news = self.connection.news() => news.map_or(Event::Closed, Event::News),
            () = sleep_until(due_at) => Event::Due,
            order = self.holds.order() => Event::Order(order),
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
            let Self { connection, holds, route, .. } = self;
            connection.set_answer_limit(limit);
            let mut answer = pin!(request(connection));
            match timeout(holds.patience(), answer.as_mut()).await {
                Ok(answer) => Answer::Heard(answer),
                Err(_) => {
                    route.turn();
                    look_elsewhere(holds, route, answer).await
                }
            }
        };
        match answer {
            Answer::Heard(answer) => {
                self.is_silent |= matches!(answer, Err(ClientError::Silent));
                answer
            }
            Answer::Moved(anew) => {
                self.moved(anew);
                Err(ClientError::Silent)
            }
            Answer::Gone => {
                self.is_silent = true;
                Err(ClientError::Silent)
            }
        }
    }

    /// Renews what is due.
    async fn renew(&mut self) {
        while let Some((proof, ttl)) = self.holds.due() {
            let Proof { key, kind, token } = &proof;
            let asked_at = Instant::now();
            let renew = async |connection: &mut Connection| {
                connection.renew(key, *kind, token, Some(ttl)).await
            };
            match self.exchange(Duration::MAX, renew).await {
                Ok(ttl) => self.holds.heard(token, Some((asked_at, ttl))),
                Err(error) if error.is_end_of_lease() => self.holds.heard(token, None),
                // If it is another connection by now, nothing is due.
                Err(ClientError::Silent) => {}
                Err(_) => self.reclaim().await,
            }
        }
    }

    /// The connection cannot be used. Renews all holds over another one, for as long as their leases may last.
    async fn reclaim(&mut self) {
        if !self.is_silent {
            self.holds.broken();
        }
        let nothing = pin!(pending::<Result<(), ClientError>>());
        if let Answer::Moved(anew) = look_elsewhere(&mut self.holds, &self.route, nothing).await {
            self.moved(anew);
        }
    }

    fn moved(&mut self, anew: Anew) {
        let earlier = std::mem::replace(&mut self.connection, anew.connection);
        self.is_silent = false;
        if self.holds.have_lost() {
            self.earlier.push(earlier);
        } else {
            self.earlier.clear();
        }
        anew.renewals.iter().for_each(|(token, renewal)| self.holds.heard(token, *renewal));
        self.share();
    }

    async fn take(&mut self, wanted: &[Wanted], outcome: oneshot::Sender<Taken>) {
        if outcome.is_closed() || !self.holds.have_room() {
            return;
        }
        let asked_at = Instant::now();
        let limit = self.route.settings.answer_limit;
        let take =
            async |connection: &mut Connection| ask(connection, wanted, Duration::ZERO).await;
        let answer = self.exchange(limit, take).await;
        let taken = self.taken(wanted, answer, asked_at).await;
        let _ = outcome.send(taken);
    }

    async fn adopt(
        &mut self,
        wanted: &[Wanted],
        grants: Vec<Grant>,
        outcome: oneshot::Sender<Taken>,
    ) {
        if self.holds.have_room() {
            let taken = self.keep(wanted, grants, None).await;
            let _ = outcome.send(taken);
        }
    }

    /// Releases a hold. A lost one is refused.
    async fn release(&mut self, token: &Token, outcome: Option<Released>) {
        let hold = self.holds.remove(token).filter(|hold| hold.loss.is_none());
        let Some(Hold { proof, .. }) = hold else { return refuse(outcome) };
        let limit = self.route.settings.answer_limit / RENEWALS_PER_LEASE;
        let release = async |connection: &mut Connection| {
            connection.release(&proof.key, proof.kind, &proof.token).await
        };
        match (self.exchange(limit, release).await, outcome) {
            (Err(error), outcome) if error.is_passing() => self.holds.let_go(proof, outcome, error),
            (released, Some(outcome)) => {
                // If the holder has stopped waiting, nobody needs the result.
                let _ = outcome.send(released);
            }
            (_, None) => {}
        }
    }

    /// Leaves the only hold at the server. If the server does not keep it, or nobody wants it, it is released.
    async fn detach(mut self, token: &Token, outcome: oneshot::Sender<Result<Grant, ClientError>>) {
        let Some(hold) = self.holds.remove(token) else { return };
        let Self { connection, route, holds, .. } = self;
        let left = match hold.loss {
            Some(loss) => Err(loss.into_error()),
            None => left(connection, &route, &hold).await,
        };
        let is_over = matches!(left, Err(ClientError::GivenUp { .. }));
        let is_left = left.is_ok();
        let Hold { proof, grant, .. } = hold;
        let is_heard = outcome.send(left.map(|()| grant)).is_ok();
        if !(is_over || is_left && is_heard) {
            holds.let_go(proof, None, ClientError::closed());
        }
    }
}

/// Closes the connection of a hold, if the server keeps the hold then.
async fn left(mut connection: Connection, route: &Route, hold: &Hold) -> Result<(), ClientError> {
    let Hold { proof, grant, .. } = hold;
    match connection.grace().await? {
        Some(Grace::For(after)) if after < grant.ttl => {
            connection.release(&proof.key, proof.kind, &proof.token).await?;
            Err(ClientError::GivenUp { after })
        }
        Some(Grace::For(_) | Grace::Lease) => {
            connection.close().await;
            Ok(())
        }
        None => {
            // Such a server knows no delay: it has released the hold by now, or will not before the lease ends.
            connection.close().await;
            match route.renew(proof, Some(grant.ttl)).await {
                Err(error) if error.is_not_held() => {
                    Err(ClientError::GivenUp { after: Duration::ZERO })
                }
                renewed => renewed.map(drop),
            }
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

fn one_of(leases: Option<Vec<Lease>>) -> Option<Lease> {
    leases?.pop()
}

/// Waits for an answer as long as something is held, and meanwhile looks for another connection to renew all holds.
async fn look_elsewhere<T>(
    holds: &mut Holds,
    route: &Route,
    mut answer: Pin<&mut impl Future<Output = Result<T, ClientError>>>,
) -> Answer<T> {
    while let Some(end) = holds.given_up_at() {
        let held = holds.proofs();
        let either = async {
            tokio::select! {
                biased;
                answer = answer.as_mut() => Answer::Heard(answer),
                anew = renewed_anew(route, &held, end) => Answer::Moved(anew),
            }
        };
        if let Some(answer) = holds.attend(either).await {
            return answer;
        }
    }
    Answer::Gone
}

/// Opens connections until one of them has renewed each of these, or was told that there is none. The time is divided
/// so that every server can be tried.
async fn renewed_anew(route: &Route, held: &[(Proof, Duration)], end: Instant) -> Anew {
    let mut backoff = Backoff::new();
    loop {
        match ask_anew(route, held, end).await {
            Ok(anew) => return anew,
            Err(_) => route.turn(),
        }
        sleep(backoff.next()).await;
    }
}

async fn ask_anew(
    route: &Route,
    held: &[(Proof, Duration)],
    end: Instant,
) -> Result<Anew, ClientError> {
    let mut connection = route.open().await?;
    let mut renewals = Vec::new();
    for (Proof { key, kind, token }, ttl) in held {
        let asked_at = Instant::now();
        let most = route.settings.answer_limit;
        let limit = share(end.into_std(), asked_at.into_std(), route.width(), most);
        connection.set_answer_limit(limit);
        let renewal = match connection.renew(key, *kind, token, Some(*ttl)).await {
            Ok(ttl) => Some((asked_at, ttl)),
            Err(error) if error.is_end_of_lease() => None,
            Err(error) => return Err(error),
        };
        renewals.push((token.clone(), renewal));
    }
    Ok(Anew { connection, renewals })
}

fn now() -> std::time::Instant {
    Instant::now().into_std()
}
