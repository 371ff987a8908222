//! Answer → bytes: every word that the server says is in this file, and never a path, errno or peer. Pure.

use crate::{Answer, Grant, Refusal, Seconds, Ttl};

/// Longest reply but for `stats`: status, token, lease.
pub const MAX_REPLY_BYTES: usize = 64;

/// Whole replies, newline included.
pub mod status {
    /// Success without more to say.
    pub const OK: &[u8] = b"ok\n";
    /// What the `stats` body follows.
    pub const OK_BODY: &[u8] = b"ok ";
    /// Anything wrong that has no word of its own.
    pub const ERROR: &[u8] = b"error\n";
    /// Not authenticated.
    pub const ERROR_AUTH: &[u8] = b"error_auth\n";
    /// The server is going down.
    pub const ERROR_DRAINING: &[u8] = b"error_draining\n";
}

/// Appends the reply to `out`.
pub fn push_answer(out: &mut Vec<u8>, answer: &Answer) {
    match answer {
        Answer::Granted(grant) => push_grant(out, b"ok ", grant),
        Answer::Acquired(grant) => push_grant(out, b"acquired ", grant),
        Answer::Queued => out.extend_from_slice(b"queued\n"),
        Answer::TimedOut => out.extend_from_slice(b"timeout\n"),
        Answer::Released => out.extend_from_slice(status::OK),
        Answer::Renewed(ttl) => {
            out.extend_from_slice(status::OK_BODY);
            push_lease(out, *ttl);
        }
        Answer::Refused(refusal) => out.extend_from_slice(refused(*refusal)),
    }
}

/// The reply to `grace`: so many seconds, or for as long as the lease lasts.
pub fn push_grace(out: &mut Vec<u8>, grace: Option<Seconds>) {
    out.extend_from_slice(status::OK_BODY);
    match grace {
        Some(grace) => {
            push_decimal(out, grace.count());
            out.push(b'\n');
        }
        None => out.extend_from_slice(b"lease\n"),
    }
}

/// The status of a refusal, for counting.
#[must_use]
pub fn refusal_status(refusal: Refusal) -> &'static str {
    std::str::from_utf8(refused(refusal)).unwrap_or_default().trim_end()
}

const fn refused(refusal: Refusal) -> &'static [u8] {
    match refusal {
        Refusal::MaxLocks => b"error_max_locks\n",
        Refusal::MaxWaiters => b"error_max_waiters\n",
        Refusal::LimitMismatch => b"error_limit_mismatch\n",
        Refusal::NotEnqueued => b"error_not_enqueued\n",
        Refusal::AlreadyEnqueued => b"error_already_enqueued\n",
        Refusal::LeaseExpired => b"error_lease_expired\n",
        Refusal::NotHeld | Refusal::NoSpace => status::ERROR,
        Refusal::Draining | Refusal::Unavailable => status::ERROR_DRAINING,
    }
}

fn push_grant(out: &mut Vec<u8>, word: &[u8], grant: &Grant) {
    out.extend_from_slice(word);
    out.extend_from_slice(&grant.token.digits());
    out.push(b' ');
    push_lease(out, grant.ttl);
}

fn push_lease(out: &mut Vec<u8>, ttl: Ttl) {
    push_decimal(out, ttl.span().count());
    out.push(b'\n');
}

fn push_decimal(out: &mut Vec<u8>, value: u64) {
    let start = out.len();
    let mut rest = value;
    loop {
        out.push(b'0' + u8::try_from(rest % 10).unwrap_or(0));
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if let Some(digits) = out.get_mut(start..) {
        digits.reverse();
    }
}
