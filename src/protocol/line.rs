//! Cuts a stream of bytes into lines, and removes telnet's option bytes. Pure.
//!
//! Holds at most one line of [`LINE_BYTES`], whatever arrives, and gives the same lines however the stream
//! was cut into packets. Never looks at the content of a line.

use crate::limits::{ECHO_CHARS, LINE_BYTES};

/// Takes bytes, gives lines. Feed it with [`Framer::next_line`] until it asks for more.
/// Between two lines it holds no memory.
#[derive(Clone, Debug, Default)]
pub struct Framer {
    line: Vec<u8>,
    /// Bytes of the line so far, also those that are no longer kept.
    length: usize,
    telnet: Telnet,
}

/// One line without its end (LF, or CR LF).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// A line within the limit.
    Whole(Vec<u8>),
    /// The beginning of a line that was longer than [`LINE_BYTES`].
    TooLong(Vec<u8>),
}

/// Where in a telnet sequence the stream stands. Source: RFC 854, RFC 855.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Telnet {
    #[default]
    Data,
    /// After IAC.
    Command,
    /// After IAC and WILL, WONT, DO or DONT: the option follows.
    Option,
    /// After IAC SB: everything up to IAC SE belongs to the option.
    Subnegotiation,
    /// After an IAC within a subnegotiation.
    SubnegotiationCommand,
}

const SE: u8 = 240;
const SB: u8 = 250;
const WILL: u8 = 251;
const DONT: u8 = 254;
const IAC: u8 = 255;

impl Framer {
    /// At the beginning of a stream.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes bytes off the front of `input` up to the end of one line, and gives that line;
    /// `None` when all bytes are taken and the line has not ended.
    pub fn next_line(&mut self, input: &mut &[u8]) -> Option<Line> {
        while let Some((&byte, rest)) = input.split_first() {
            *input = rest;
            match self.data(byte) {
                Some(b'\n') => return Some(self.end()),
                Some(byte) => self.keep(byte),
                None => {}
            }
        }
        None
    }

    /// The byte of text that this byte of the stream stands for, if any.
    fn data(&mut self, byte: u8) -> Option<u8> {
        let (next, data) = match (self.telnet, byte) {
            (Telnet::Data, IAC) => (Telnet::Command, None),
            // IAC IAC stands for the byte itself.
            (Telnet::Data, _) | (Telnet::Command, IAC) => (Telnet::Data, Some(byte)),
            (Telnet::Command, SB) => (Telnet::Subnegotiation, None),
            (Telnet::Command, WILL..=DONT) => (Telnet::Option, None),
            (Telnet::Command, _) | (Telnet::Option, _) => (Telnet::Data, None),
            (Telnet::Subnegotiation, IAC) => (Telnet::SubnegotiationCommand, None),
            (Telnet::SubnegotiationCommand, SE) => (Telnet::Data, None),
            (Telnet::Subnegotiation | Telnet::SubnegotiationCommand, _) => {
                (Telnet::Subnegotiation, None)
            }
        };
        self.telnet = next;
        data
    }

    fn keep(&mut self, byte: u8) {
        self.length = self.length.saturating_add(1);
        // The end of the line needs one byte of the limit.
        if self.length < LINE_BYTES {
            self.line.push(byte);
        }
    }

    fn end(&mut self) -> Line {
        let fits = self.length < LINE_BYTES;
        self.length = 0;
        let mut line = std::mem::take(&mut self.line);
        if fits {
            if line.last() == Some(&b'\r') {
                line.pop();
            }
            return Line::Whole(line);
        }
        line.truncate(ECHO_CHARS);
        Line::TooLong(line)
    }
}
