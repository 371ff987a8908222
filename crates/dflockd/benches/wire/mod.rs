//! A client for measurements: whole lines over a blocking socket.

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// What a step of a measurement gives, or why there is none.
pub(crate) type Outcome<T> = Result<T, Box<dyn Error>>;

/// A connection to a server.
pub(crate) struct Wire(BufReader<TcpStream>);

impl Wire {
    pub(crate) fn open(server: SocketAddr) -> Outcome<Self> {
        let stream = TcpStream::connect(server)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        Ok(Self(BufReader::new(stream)))
    }

    pub(crate) fn say(&mut self, requests: &str) -> Outcome<()> {
        Ok(self.0.get_mut().write_all(requests.as_bytes())?)
    }

    /// Reads one line, which must begin like this.
    pub(crate) fn hear(&mut self, start: &str) -> Outcome<()> {
        let mut line = String::new();
        self.0.read_line(&mut line)?;
        if line.starts_with(start) { Ok(()) } else { Err(format!("answer {line:?}").into()) }
    }

    /// Takes `count` keys, `held/0` and so on, for so many seconds.
    pub(crate) fn hold(&mut self, count: usize, lease_s: u32) -> Outcome<()> {
        const BATCH: usize = 1_000;
        for first in (0..count).step_by(BATCH) {
            let last = count.min(first + BATCH);
            let frames = (first..last).map(|n| format!("l\nheld/{n}\n0 {lease_s}\n"));
            self.say(&frames.collect::<String>())?;
            (first..last).try_for_each(|_| self.hear("ok "))?;
        }
        Ok(())
    }
}
