//! Joins a session with those who answer its questions: the peer, the lock table, the journal.
//!
//! Reads and writes no connection: `stdio` does that for the one on descriptors 0 and 1.

pub mod stdio;

use std::os::fd::BorrowedFd;

use crate::device::name::DeviceName;
use crate::journal::{Journal, Severity};
use crate::lock::table::Table;
use crate::lock::{Answer, Outcome, Request};
use crate::peer::{Peer, Rule, Stranger, Verdict};
use crate::protocol::reply::{Identity, Version};
use crate::protocol::session::{Session, Standing, Step};
use crate::protocol::status::{Report, Scope};

/// What all clients of one process share.
#[derive(Debug)]
pub struct Service {
    identity: Identity,
    rule: Rule,
    table: Table,
    journal: Journal,
}

/// One client: its session, and who it is.
#[derive(Debug)]
pub struct Client {
    session: Session,
    peer: Result<Peer, Stranger>,
}

/// What a connection is to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Need {
    /// Send these bytes, in one write.
    Send(String),
    /// Bring more bytes.
    Receive,
    /// Close the connection.
    Close,
}

impl Service {
    /// A service under this host's name.
    #[must_use]
    pub fn new(version: Version, rule: Rule, table: Table, journal: Journal) -> Self {
        let host = nix::unistd::gethostname().unwrap_or_default();
        let identity = Identity::new(host.as_encoded_bytes(), version);
        Self { identity, rule, table, journal }
    }

    /// Looks at a new connection, before anything is said on it.
    pub fn welcome(&mut self, stream: BorrowedFd<'_>) -> Client {
        let peer = Peer::of(stream);
        let session = match &peer {
            Ok(_) => Session::admit(self.identity.clone()),
            Err(stranger) => {
                let line = format_args!("connection refused: {stranger}");
                self.journal.record(Severity::Warning, &line);
                Session::refuse(self.identity.clone())
            }
        };
        Client { session, peer }
    }

    /// Goes on with a client until its connection has something to do. The bytes that are needed
    /// are taken off the front of `input`.
    pub fn attend(&mut self, client: &mut Client, input: &mut &[u8]) -> Need {
        loop {
            match client.session.next(input) {
                Step::Send(line) => return Need::Send(line),
                Step::Receive => return Need::Receive,
                Step::Close => return Need::Close,
                Step::MayName(request) => {
                    let standing = self.standing(&client.peer, &request);
                    client.session.vouch(standing);
                }
                Step::Lock(request) => {
                    let answer = self.table.lock(&request);
                    client.session.answer(self.told(&client.peer, answer));
                }
                Step::Unlock(request) => {
                    let answer = self.table.unlock(&request);
                    client.session.answer(self.told(&client.peer, answer));
                }
                // Not offered by a service that has one client only.
                Step::Wait(..) => client.session.answer(Outcome::Busy),
                Step::Survey(device) => client.session.report(Some(self.survey(device.as_ref()))),
            }
        }
    }

    /// Looks who holds a device, or any.
    fn survey(&mut self, device: Option<&DeviceName>) -> Report {
        let (scope, holders) = match device {
            Some(device) => (Scope::Device, self.table.holders(device)),
            None => (Scope::All, self.table.all_holders()),
        };
        Report::new(scope, &holders, user_name)
    }

    fn standing(&mut self, peer: &Result<Peer, Stranger>, request: &Request) -> Standing {
        let Ok(peer) = peer else { return Standing::MayNot };
        let Request { device, pid } = request;
        let verdict = peer.may_name(*pid, self.rule);
        if verdict == Verdict::MayName {
            return Standing::MayName;
        }
        let device = device.as_str();
        let line = format_args!("{peer}: refused to name process {pid} for {device}: {verdict}");
        self.journal.record(Severity::Notice, &line);
        Standing::MayNot
    }

    /// Tells the journal what happened, and returns what the client is told.
    fn told(&mut self, peer: &Result<Peer, Stranger>, answer: Answer) -> Outcome {
        if let Ok(peer) = peer {
            for event in answer.events {
                let line = format_args!("{peer}: {}", event.text);
                self.journal.record(event.weight.into(), &line);
            }
        }
        answer.outcome
    }
}

impl Client {
    /// The service ends the session: the next [`Need`] says so, and then it closes.
    pub fn dismiss(&mut self) {
        self.session.dismiss();
    }
}

fn user_name(uid: u32) -> Option<String> {
    Some(users::get_user_by_uid(uid)?.name().to_string_lossy().into_owned())
}
