//! `lfpd` in a sandbox, started for one connection as inetd would: on descriptors 0 and 1.

use std::net::TcpStream;
use std::ops::{Deref, DerefMut};
use std::os::fd::OwnedFd;

use crate::client::Client;
use crate::network::connect_in;
use crate::process::{Process, User};
use crate::sandbox::{LFPD, Sandbox};

/// A conversation, and the process at its other end.
#[derive(Debug)]
pub struct Session<'a> {
    /// The client's end.
    pub client: Client,
    /// The service's process.
    pub process: Process<'a>,
}

impl<'a> Session<'a> {
    /// Starts the program as one user on a TCP connection of another's inside the sandbox, and takes the greeting. On a
    /// Unix socket it could not tell what the test, outside its pid namespace, means by a number.
    #[must_use]
    pub fn start(sandbox: &'a Sandbox, server: User, options: &[&str], client: User) -> Self {
        let mut session =
            Self::on(sandbox, server, options, connect_in(sandbox, "127.0.0.1", client));
        session.client = session.client.greeted();
        session
    }

    /// The same on a connection that the test made; the greeting is not taken.
    #[must_use]
    pub fn on(
        sandbox: &'a Sandbox,
        server: User,
        options: &[&str],
        (client, theirs): (TcpStream, OwnedFd),
    ) -> Self {
        let command = sandbox.command(LFPD).args(options).user(server);
        Self { client: Client::new(client), process: command.on_connection(theirs).spawn() }
    }
}

impl Deref for Session<'_> {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl DerefMut for Session<'_> {
    fn deref_mut(&mut self) -> &mut Client {
        &mut self.client
    }
}
