//! Serves one connection on descriptors 0 and 1, for inetd and similar programs.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use super::connection::{Connection, Phase};
use super::pace::CHECK_EVERY;
use super::service::Service;
use super::wire::{Descriptors, Wire};
use crate::limits::READ_BYTES;

/// Serves the one client until it or the service ends the session.
pub(crate) fn serve(service: &mut Service, descriptors: Descriptors, idle_timeout: Duration) {
    let mut opened = Instant::now();
    let wire = Wire::Standard(descriptors);
    let client = service.welcome(wire.as_fd(), 0);
    let mut connection = Connection::new(wire, client, opened);
    connection.greet(service, opened);
    let mut buffer = [0; READ_BYTES];
    loop {
        match &connection.phase {
            Phase::Reading | Phase::Sending(_) => {
                if !wait(&connection, idle_timeout) && !connection.drop_replies() {
                    return connection.end(&service.farewell());
                }
            }
            Phase::Searching(device) => {
                let survey = service.survey(device.as_ref());
                service.report(&mut connection.client, survey);
            }
            Phase::Retrying(moment) => {
                std::thread::sleep(moment.saturating_duration_since(Instant::now()));
            }
            Phase::Pausing(_) if connection.is_endless(idle_timeout, Instant::now()) => {
                return connection.end(&service.farewell());
            }
            Phase::Pausing(_) => {}
            // With one client there is nobody to wait among, and WAIT is not offered.
            Phase::Waiting | Phase::Over => return connection.wire.close(),
        }
        let now = Instant::now();
        if now.saturating_duration_since(opened) >= CHECK_EVERY {
            service.table.reopen();
            opened = now;
        }
        connection.turn(service, &mut buffer, now);
    }
}

/// Waits for the client. False if it has been idle too long.
fn wait(connection: &Connection, idle_timeout: Duration) -> bool {
    let deadline = connection.moment(idle_timeout);
    // Checked before each read: single bytes do not keep a session.
    deadline.is_none_or(|deadline| Instant::now() < deadline) && connection.wait(deadline)
}
