//! The link between a server that does not lead, the *standby*, and the leader: one connection, in which each client of
//! the standby has a stream. The standby passes bytes on and decides nothing about locks.
//!
//! It is HTTP/2, because that has streams with flow control and is in the program anyway for etcd's gRPC. The standby
//! begins as a client with the request `link`, and shows that it knows the leader's secret, which is in etcd. Under TLS
//! the secret is not sent: both sides show a value that depends on it and on the keys of this very connection
//! (RFC 8446, 7.5), so nobody can stand in between, and a certificate may change at any time.
//!
//! The leader also says which two addresses the connection has at its end. If the standby has the same ones, the link is
//! *direct*: the socket that listens at this address is the leader's own, and once it refuses connections, the leader's
//! process has ended. A balancer, a tunnel or the published port of a container may refuse connections while the leader
//! lives.
//!
//! What ends a stream:
//! - The client has closed its sending side: the standby ends its side of the stream.
//! - The client is gone: trailers, or a reset with [`GONE`]. Only then the leader releases its holds.
//! - Anything else, above all the end of the link: it is not known what became of the client. Its holds stay.

pub(super) mod leader;
pub(super) mod place;
pub(super) mod standby;
pub(super) mod stream;

use h2::Reason;
use std::pin::pin;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// The command of the frame with which a standby begins.
pub(super) const COMMAND: &[u8] = b"link";

/// A client is gone: RFC 9113, 7: the connection behind a tunnel was reset or abnormally closed.
const GONE: Reason = Reason::CONNECT_ERROR;

/// The paths of streams.
const CLIENT: &str = "/client";
const HTTP: &str = "/http";
const RELEASE: &str = "/release";
const DRAINING: &str = "/draining";
/// The header with the client's address; none for a client of a Unix socket.
const ADDRESS: &str = "client-address";

/// The headers with the key and the token of a hold to release, in hexadecimal digits.
const KEY: &str = "key";
const TOKEN: &str = "token";

/// The bytes of a stream that are under way in one direction. A client that does not read stops only its own stream.
const STREAM_WINDOW: u32 = 64 * 1024;
/// The bytes of all streams.
const LINK_WINDOW: u32 = (1 << 31) - 1;
/// The number of streams.
const STREAMS: u32 = 1_000_000;
/// The deadline of the handshake.
const HANDSHAKE: Duration = Duration::from_secs(2);
/// How long the bytes of a client that is gone may be on their way. The leader ends a client that sends no more by
/// itself, unless it waits.
const FLUSH: Duration = Duration::from_secs(1);
/// The time between two signs of life.
const BEAT: Duration = Duration::from_millis(500);
/// How many beats a leader may be silent. By then another one may lead.
const SILENCE_OF_LEADER: u32 = 6;
/// The same of a standby. Its clients lose nothing while it stands still; what keeps their places in the lines is over
/// when this is.
const SILENCE_OF_STANDBY: u32 = 13;

/// Sets the limits of either side. Both are servers of ours, so no guard against a hostile peer may end the link.
macro_rules! configure {
    ($builder:expr) => {
        $builder
            .initial_window_size($crate::server::link::STREAM_WINDOW)
            .initial_connection_window_size($crate::server::link::LINK_WINDOW)
            .max_concurrent_streams($crate::server::link::STREAMS)
            .max_concurrent_reset_streams(1024)
            .max_local_error_reset_streams(None)
            .max_pending_accept_reset_streams(usize::MAX)
            .max_send_buffer_size($crate::server::link::STREAM_WINDOW as usize)
            .data_frame_budget(usize::MAX / 2)
    };
}
use configure;

/// What a side shows: the exported key of the connection, or without TLS the secret itself.
fn proof(secret: &str, exported: Option<[u8; 32]>) -> String {
    match exported {
        Some(key) => to_hex(&key),
        None => secret.to_owned(),
    }
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(digits: &str) -> Option<Vec<u8>> {
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.as_bytes().chunks(2).map(pair).collect()
}

/// The labels of the exported keys of the two sides.
const STANDBY_SHOWS: &[u8] = b"EXPORTER-dflockd-standby";
const LEADER_SHOWS: &[u8] = b"EXPORTER-dflockd-leader";

/// Calls `heard` at each sign of life, and returns when the other side has been silent for so many beats. They are counted
/// one by one: after a pause of this process, what came meanwhile is seen before the other side is found silent.
async fn watch_for_silence(ping: Option<h2::PingPong>, most: u32, mut heard: impl FnMut()) {
    let Some(mut ping) = ping else { return };
    loop {
        sleep(BEAT).await;
        let mut pong = pin!(ping.ping(h2::Ping::opaque()));
        let mut missed = 0;
        loop {
            match timeout(BEAT, &mut pong).await {
                Ok(Ok(_)) => {
                    heard();
                    break;
                }
                Ok(Err(_)) => return,
                Err(_) => missed += 1,
            }
            if missed == most {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests;
