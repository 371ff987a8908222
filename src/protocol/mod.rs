//! The Lock File Protocol: lines, commands, replies, and one session from greeting to goodbye, as a state machine: what to
//! say, what to ask, when to close. Pure.
//!
//! Everything here is bytes and answers in, bytes and questions out. It holds no descriptor, clock, process or file, and
//! decides nothing about them.

pub mod command;
pub mod reply;

use command::{Command, Framer, Line};
use reply::{Identity, Reply};

/// One client's session.
///
/// Call [`Session::next`] with the bytes that have arrived and do what the [`Step`] says:
///
/// 1. The first step is the greeting, before any byte has arrived; or, for a peer who may not
///    speak ([`Session::refuse`]), the refusal.
/// 2. A question ([`Step::Ask`]) is answered with [`Session::answer`] before the next step. An answer nobody asked for is
///    ignored; a question left open is asked again.
/// 3. A [`Step::Send`] that fails changes nothing: go on, for what has arrived is still obeyed.
/// 4. [`Step::Receive`]: all bytes are taken; bring more. At the end of the input, drop the
///    session: an unfinished line does nothing.
/// 5. [`Session::close`] at any time (idle too long, shutting down) says so and closes.
/// 6. After [`Step::Close`] there is nothing but [`Step::Close`].
#[derive(Clone, Debug)]
pub struct Session {
    identity: Identity,
    framer: Framer,
    state: State,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Send these bytes, in one write.
    Send(String),
    /// The client asks for this. Do it if the peer may, then call [`Session::answer`]. For a web browser, call
    /// [`Session::close`].
    Ask(Command),
    /// Bring more bytes.
    Receive,
    /// Close the connection.
    Close,
}

#[derive(Clone, Debug)]
enum State {
    /// This is to be said before the next line is read.
    Saying(String),
    /// This is to be said, and nothing after it.
    Ending(String),
    Listening,
    /// This is to be answered.
    Asking(Command),
    Closed,
}

impl Session {
    /// A session with a peer that may speak.
    #[must_use]
    pub fn admit(identity: Identity) -> Self {
        let state = State::Saying(Reply::Greeting.encode(&identity, b""));
        Self { identity, framer: Framer::new(), state }
    }

    /// A session with a peer that may not: one 550, and the end.
    #[must_use]
    pub fn refuse(identity: Identity) -> Self {
        let state = State::Ending(Reply::Denied.encode(&identity, b""));
        Self { identity, framer: Framer::new(), state }
    }

    /// The client is gone: a STAT or a LOCK that is being answered is cancelled. False for other requests.
    pub fn cancel_request(&mut self) -> bool {
        let is_cancelled =
            matches!(self.state, State::Asking(Command::Status(_) | Command::Lock(_)));
        if is_cancelled {
            self.state = State::Listening;
        }
        is_cancelled
    }

    /// What to do next, with the bytes that have arrived: those it needs are taken off the front.
    pub fn next(&mut self, input: &mut &[u8]) -> Step {
        if matches!(self.state, State::Listening) {
            match self.framer.next_line(input) {
                Some(line) => self.interpret(&line),
                None => return Step::Receive,
            }
        }
        let (step, state) = match std::mem::replace(&mut self.state, State::Closed) {
            State::Saying(line) => (Step::Send(line), State::Listening),
            State::Ending(line) => (Step::Send(line), State::Closed),
            State::Asking(command) => (Step::Ask(command.clone()), State::Asking(command)),
            State::Listening => (Step::Receive, State::Listening),
            State::Closed => (Step::Close, State::Closed),
        };
        self.state = state;
        step
    }

    /// Answers [`Step::Ask`].
    pub fn answer(&mut self, reply: &Reply) {
        if matches!(self.state, State::Asking(_)) {
            self.reply(reply, b"");
        }
    }

    /// The service ends the session: 421, and close.
    pub fn close(&mut self) {
        if !matches!(self.state, State::Closed) {
            self.reply(&Reply::Closing, b"");
        }
    }

    fn interpret(&mut self, line: &Line) {
        let (text, command) = match line {
            Line::Whole(text) => (text, command::parse(text, self.identity.waiting)),
            Line::TooLong(text) if command::is_http(text) => (text, Ok(Command::Http)),
            Line::TooLong(text) => (text, Err(Reply::NotUnderstood)),
        };
        match command {
            Ok(command) => self.state = State::Asking(command),
            Err(reply) => self.reply(&reply, text),
        }
    }

    fn reply(&mut self, reply: &Reply, line: &[u8]) {
        let text = reply.encode(&self.identity, line);
        let is_last = matches!(reply, Reply::Goodbye | Reply::Closing);
        self.state = if is_last { State::Ending(text) } else { State::Saying(text) };
    }
}
