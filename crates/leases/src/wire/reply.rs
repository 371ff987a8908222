//! Answer → bytes: every word that the server sends is in this file; it never contains a path, an errno or an
//! address. Pure.

use crate::{Answer, Grant, MAX_KEYS, Refusal, Seconds, Token};

/// Longest reply but for `stats` and `watch`: status, and a token and a lease for each key.
pub const MAX_REPLY_BYTES: usize = 16 + 48 * MAX_KEYS;

/// Whole replies, newline included.
pub mod status {
    /// Success without more to say.
    pub const OK: &[u8] = b"ok\n";
    /// The beginning of the reply to `stats`, before the body.
    pub const OK_BODY: &[u8] = b"ok ";
    /// The reply to `ping` with the key line `hello`: the numbers in the tokens of this server are fences, and it
    /// sends the line `lost` to a client that understands it.
    pub const HELLO: &[u8] = b"ok fences lost\n";
    /// The same to a client that wants to know its slots: it is told them.
    pub const HELLO_SLOTS: &[u8] = b"ok fences lost slots\n";
    /// An error without a word of its own.
    pub const ERROR: &[u8] = b"error\n";
    /// Not authenticated.
    pub const ERROR_AUTH: &[u8] = b"error_auth\n";
    /// The server is shutting down.
    pub const ERROR_DRAINING: &[u8] = b"error_draining\n";
}

/// Appends the reply to `out`. A client that asked for it is told the slot of each grant that has one.
pub fn push_answer(out: &mut Vec<u8>, answer: &Answer, has_slots: bool) {
    match answer {
        Answer::Granted(_) | Answer::All(_) => push_grants(out, b"ok", answer.grants(), has_slots),
        Answer::Acquired(_) => push_grants(out, b"acquired", answer.grants(), has_slots),
        Answer::Queued => out.extend_from_slice(b"queued\n"),
        Answer::TimedOut => out.extend_from_slice(b"timeout\n"),
        Answer::Released => out.extend_from_slice(status::OK),
        Answer::Renewed(ttl) => push_seconds(out, ttl.span()),
        Answer::Refused(refusal) => {
            out.extend_from_slice(refusal_status(*refusal).as_bytes());
            out.push(b'\n');
        }
    }
}

/// Appends the line that an administrator has taken the hold of this token away. It answers no request.
pub fn push_lost(out: &mut Vec<u8>, token: Token) {
    out.extend_from_slice(&[b"lost ".as_slice(), &token.digits(), b"\n"].concat());
}

/// Appends the reply to `grace`: this many seconds, or as long as the lease lasts.
pub fn push_grace(out: &mut Vec<u8>, grace: Option<Seconds>) {
    match grace {
        Some(grace) => push_seconds(out, grace),
        None => out.extend_from_slice(b"ok lease\n"),
    }
}

/// The line of a refusal, without its end.
#[must_use]
pub const fn refusal_status(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::MaxLocks => "error_max_locks",
        Refusal::MaxWaiters => "error_max_waiters",
        Refusal::LimitMismatch => "error_limit_mismatch",
        Refusal::NotEnqueued => "error_not_enqueued",
        Refusal::AlreadyEnqueued => "error_already_enqueued",
        Refusal::LeaseExpired => "error_lease_expired",
        Refusal::NotHeld | Refusal::NoSpace => "error",
        Refusal::Draining => "error_draining",
    }
}

fn push_grants(out: &mut Vec<u8>, word: &[u8], grants: &[Grant], has_slots: bool) {
    out.extend_from_slice(word);
    for grant in grants {
        out.push(b' ');
        out.extend_from_slice(&grant.token.digits());
        out.push(b' ');
        push_number(out, grant.ttl.span().count());
        if let Some(slot) = grant.slot.filter(|_| has_slots) {
            out.push(b' ');
            push_number(out, slot.into());
        }
    }
    out.push(b'\n');
}

fn push_seconds(out: &mut Vec<u8>, seconds: Seconds) {
    out.extend_from_slice(b"ok ");
    push_number(out, seconds.count());
    out.push(b'\n');
}

/// Appends a number in decimal.
fn push_number(out: &mut Vec<u8>, number: u64) {
    if number >= 10 {
        push_number(out, number / 10);
    }
    out.push(b'0' + u8::try_from(number % 10).unwrap_or_default());
}
