//! A conversation with `lfpd`, line by line, over any connection.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{Shutdown, setsockopt, shutdown, sockopt};
use nix::sys::time::{TimeVal, TimeValLike};

use crate::until::LIMIT;

/// A client. Whatever it sends or waits for has [`LIMIT`] to come about.
#[derive(Debug)]
pub struct Client {
    /// The connection, and what of it was read ahead.
    pub stream: BufReader<File>,
}

impl Client {
    /// On a connection that nobody has read from.
    ///
    /// # Panics
    /// It is no socket.
    #[must_use]
    pub fn new(connection: impl Into<OwnedFd>) -> Self {
        let connection = connection.into();
        let limit = i64::try_from(LIMIT.as_secs()).expect("a short time");
        let limit = TimeVal::seconds(limit);
        setsockopt(&connection, sockopt::ReceiveTimeout, &limit).expect("a time limit");
        setsockopt(&connection, sockopt::SendTimeout, &limit).expect("a time limit");
        Self { stream: BufReader::new(connection.into()) }
    }

    /// Takes the greeting.
    ///
    /// # Panics
    /// It is none.
    #[must_use]
    pub fn greeted(mut self) -> Self {
        let greeting = self.line();
        assert!(greeting.starts_with("220 "), "{greeting:?}");
        self
    }

    /// Sends these bytes.
    ///
    /// # Panics
    /// The service does not take them.
    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.get_mut().write_all(bytes).expect("a service that listens");
    }

    /// Sends one line, and leaves the answer.
    pub fn say(&mut self, line: &str) {
        self.send(format!("{line}\r\n").as_bytes());
    }

    /// Waits until something can be read, and leaves it.
    ///
    /// # Panics
    /// Nothing comes.
    pub fn is_spoken_to(&self) {
        let mut readable = [PollFd::new(self.stream.get_ref().as_fd(), PollFlags::POLLIN)];
        let limit = PollTimeout::try_from(LIMIT).expect("less than a month");
        assert_eq!(poll(&mut readable, limit), Ok(1), "a service that speaks");
    }

    /// Says no more, and goes on listening.
    pub fn end_input(&self) {
        // The service may have ended the connection.
        let _ = shutdown(self.stream.get_ref().as_raw_fd(), Shutdown::Write);
    }

    /// Ends the connection at once. A close alone may not end it: a process that another test starts at this moment has
    /// a copy of the descriptor until its execve(2).
    ///
    /// # Panics
    /// If it is no socket.
    pub fn leave(self) {
        shutdown(self.stream.get_ref().as_raw_fd(), Shutdown::Both).expect("a connection");
    }

    /// The next line without its end, or nothing at the end of the connection.
    ///
    /// # Panics
    /// None comes, or it ends otherwise than with CR LF.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        match self.stream.read_line(&mut line) {
            Ok(0) => String::new(),
            Ok(_) => line.strip_suffix("\r\n").expect("CR LF").to_owned(),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => String::new(),
            Err(error) => panic!("no line in time: {error}"),
        }
    }

    /// Sends one line, and returns the answer's only or first line.
    pub fn ask(&mut self, line: &str) -> String {
        self.say(line);
        self.line()
    }

    /// The first three characters of the answer.
    pub fn code(&mut self, line: &str) -> String {
        let answer = self.ask(line);
        answer.get(..3).unwrap_or_default().to_owned()
    }

    /// Asks for a lock: the reply code.
    pub fn lock(&mut self, device: &str, pid: u32) -> u32 {
        self.number(&format!("LOCK {device} {pid}"))
    }

    /// Gives a lock back: the reply code.
    pub fn unlock(&mut self, device: &str, pid: u32) -> u32 {
        self.number(&format!("UNLOCK {device} {pid}"))
    }

    fn number(&mut self, line: &str) -> u32 {
        let code = self.code(line);
        code.parse().unwrap_or_else(|_| panic!("{code:?} for {line}"))
    }

    /// Sends one line, and returns all lines of the answer.
    pub fn lines(&mut self, line: &str) -> Vec<String> {
        self.say(line);
        self.rest_of_answer()
    }

    /// All lines of an answer that was asked for before.
    ///
    /// # Panics
    /// The connection ends in the middle of it.
    pub fn rest_of_answer(&mut self) -> Vec<String> {
        let mut lines = vec![self.line()];
        let code = lines[0].get(..3).unwrap_or_default().to_owned();
        if lines[0].as_bytes().get(3) == Some(&b'-') {
            while !lines.last().unwrap().starts_with(&format!("{code} ")) {
                let line = self.line();
                assert!(!line.is_empty(), "cut answer: {lines:?}");
                lines.push(line);
            }
        }
        lines
    }

    /// All that still comes until the service closes.
    ///
    /// # Panics
    /// It is no text.
    pub fn rest(&mut self) -> String {
        let mut rest = Vec::new();
        let _ = self.stream.read_to_end(&mut rest);
        String::from_utf8(rest).unwrap()
    }
}
