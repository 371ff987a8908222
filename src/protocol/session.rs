//! One session from greeting to goodbye, as a state machine: what to say, what to ask, when to close. Pure.
//!
//! Holds no descriptor, clock, process or file, and decides nothing about them.

use super::command::{self, Command, Demand, Refusal, Waiting};
use super::line::{Framer, Line};
use super::reply::{Echo, Identity, Reply};
use super::status::Report;
use ttylock::{DeviceName, Outcome};

/// One client's session.
///
/// Call [`Session::next`] with the bytes that have arrived and do what the [`Step`] says:
///
/// 1. The first step is the greeting, before any byte has arrived; or, for a peer who may not
///    speak ([`Session::refuse`]), the refusal.
/// 2. A question ([`Step::Change`], [`Step::Status`]) is answered with [`Session::answer`] or [`Session::report`] before
///    the next step. An answer nobody asked for is ignored; a question left open is asked again.
/// 3. A [`Step::Send`] that fails changes nothing: go on, for what has arrived is still obeyed.
/// 4. [`Step::Receive`]: all bytes are taken; bring more. At the end of the input, drop the
///    session: an unfinished line does nothing.
/// 5. [`Session::dismiss`] at any time (idle too long, shutting down) says so and closes.
/// 6. After [`Step::Close`] there is nothing but [`Step::Close`].
#[derive(Clone, Debug)]
pub struct Session {
    identity: Identity,
    waiting: Waiting,
    framer: Framer,
    state: State,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Send these bytes, in one write.
    Send(String),
    /// Change the lock, if the peer may ask for that and for the processes that it names, then [`Session::answer`].
    Change(Demand),
    /// Find the holders of this device, or of any, then [`Session::report`].
    Status(Option<DeviceName>),
    /// The client is a web browser: tell the log, then [`Session::dismiss`].
    Http,
    /// Bring more bytes.
    Receive,
    /// Close the connection.
    Close,
}

#[derive(Clone, Debug)]
enum State {
    /// Something is to be said before the next line is looked at.
    Saying(Reply, Afterwards),
    Listening,
    /// This question is to be answered: a change, a status, or a browser's request, which ends the session.
    Asking(Step),
    Closed,
}

#[derive(Clone, Copy, Debug)]
enum Afterwards {
    Listen,
    Close,
}

impl Session {
    /// A session with a peer that may speak.
    #[must_use]
    pub fn admit(identity: Identity) -> Self {
        Self::saying(identity, Reply::Greeting, Afterwards::Listen)
    }

    /// A session with a peer that may not: one 550, and the end.
    #[must_use]
    pub fn refuse(identity: Identity) -> Self {
        Self::saying(identity, Reply::Denied, Afterwards::Close)
    }

    fn saying(identity: Identity, reply: Reply, afterwards: Afterwards) -> Self {
        let (waiting, framer) = (Waiting::NotOffered, Framer::new());
        Self { identity, waiting, framer, state: State::Saying(reply, afterwards) }
    }

    /// The same session with WAIT among its commands, for a service that can keep the order
    /// among several who wait.
    #[must_use]
    pub fn offering_to_wait(self) -> Self {
        Self { waiting: Waiting::Offered, ..self }
    }

    /// The client is gone: a STAT or a LOCK that is being answered is given up. False for other requests.
    pub fn give_up(&mut self) -> bool {
        let gives_up =
            matches!(self.state, State::Asking(Step::Status(_) | Step::Change(Demand::Lock(_))));
        if gives_up {
            self.state = State::Listening;
        }
        gives_up
    }

    /// What to do next, with the bytes that have arrived: those it needs are taken off the front.
    pub fn next(&mut self, input: &mut &[u8]) -> Step {
        if matches!(self.state, State::Listening) {
            match self.framer.next_line(input) {
                Some(line) => self.state = judge(&line, self.waiting),
                None => return Step::Receive,
            }
        }
        match &self.state {
            State::Saying(reply, afterwards) => {
                let step = Step::Send(reply.encode(&self.identity));
                self.state = match afterwards {
                    Afterwards::Listen => State::Listening,
                    Afterwards::Close => State::Closed,
                };
                step
            }
            State::Asking(question) => question.clone(),
            State::Listening => Step::Receive,
            State::Closed => Step::Close,
        }
    }

    /// Answers [`Step::Change`].
    pub fn answer(&mut self, outcome: Outcome) {
        if matches!(self.state, State::Asking(Step::Change(_))) {
            let reply = match outcome {
                Outcome::Done => Reply::Okay,
                Outcome::Busy => Reply::Busy,
                Outcome::Denied => Reply::Denied,
            };
            self.state = State::Saying(reply, Afterwards::Listen);
        }
    }

    /// Answers [`Step::Status`]; `None` when the device is none that may be asked about.
    pub fn report(&mut self, report: Option<Report>) {
        if matches!(self.state, State::Asking(Step::Status(_))) {
            let reply = report.map_or(Reply::Denied, Reply::Status);
            self.state = State::Saying(reply, Afterwards::Listen);
        }
    }

    /// The service ends the session: 421, and close.
    pub fn dismiss(&mut self) {
        if !matches!(self.state, State::Closed) {
            self.state = State::Saying(Reply::Closing, Afterwards::Close);
        }
    }
}

/// What a line leads to.
fn judge(line: &Line, waiting: Waiting) -> State {
    let text = match line {
        Line::TooLong(beginning) if command::is_http(beginning) => {
            return State::Asking(Step::Http);
        }
        Line::TooLong(beginning) => return not_understood(beginning),
        Line::Whole(text) => text,
    };
    match command::parse(text, waiting) {
        Ok(Command::Change(demand)) => State::Asking(Step::Change(demand)),
        Ok(Command::Status(device)) => State::Asking(Step::Status(device)),
        Ok(Command::Help) => State::Saying(Reply::Help(waiting), Afterwards::Listen),
        Ok(Command::Noop) => State::Saying(Reply::Okay, Afterwards::Listen),
        Ok(Command::Quit) => State::Saying(Reply::Goodbye, Afterwards::Close),
        Err(Refusal::NotUnderstood) => not_understood(text),
        Err(Refusal::NotImplemented) => State::Saying(Reply::NotImplemented, Afterwards::Listen),
        Err(Refusal::Http) => State::Asking(Step::Http),
        Err(Refusal::NotAllowed) => State::Saying(Reply::Denied, Afterwards::Listen),
    }
}

fn not_understood(line: &[u8]) -> State {
    State::Saying(Reply::NotUnderstood(Echo::of(line)), Afterwards::Listen)
}
