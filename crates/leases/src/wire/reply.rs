//! Answer → bytes: every word that the server sends is in this file; it never contains a path, an errno or an
//! address. The reply to `watch` has a tag, by which the client later names the state that it saw last. Pure.

use std::io::Write as _;

use crate::{Answer, Grant, Label, MAX_KEYS, Refusal, Seconds, Sight, Token};

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
    /// The same to a client that wants to know its slots, with them.
    pub const HELLO_SLOTS: &[u8] = b"ok fences lost slots\n";
    /// An error without a word of its own.
    pub const ERROR: &[u8] = b"error\n";
    /// Not authenticated.
    pub const ERROR_AUTH: &[u8] = b"error_auth\n";
    /// The server is shutting down.
    pub const ERROR_DRAINING: &[u8] = b"error_draining\n";
}

/// Appends the reply to `out`. A client that asked for it gets the slot of each grant that has one.
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

/// A number for the state, without its time: equal on every server that sees the same state.
#[must_use]
pub fn tag_of(sight: Option<&Sight>) -> u64 {
    let Some(sight) = sight else { return Tag::FIRST.0 };
    let tag = Tag::FIRST.with(&sight.fence.to_be_bytes()).with(&sight.holders.to_be_bytes());
    let Some(label) = &sight.label else { return tag.with(b"\n").0 };
    tag.with(label.name.as_bytes()).with(b"\n").with(label.value.as_bytes()).0
}

/// FNV-1a.
#[derive(Clone, Copy)]
struct Tag(u64);

impl Tag {
    const FIRST: Self = Self(0xcbf2_9ce4_8422_2325);

    fn with(self, bytes: &[u8]) -> Self {
        let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        Self(bytes.iter().fold(self.0, step))
    }
}

/// Appends the reply: `free TAG`, or `held TAG FENCE MILLISECONDS HOLDERS NAME VALUE`.
pub fn push_sight(out: &mut Vec<u8>, sight: Option<&Sight>) {
    let word = if sight.is_some() { "held" } else { "free" };
    // Writing to a Vec cannot fail.
    let _ = write!(out, "{word} {:016x}", tag_of(sight));
    if let Some(Sight { holders, fence, since_micros, label }) = sight {
        let _ = write!(out, " {fence} {} {holders}", since_micros / 1000);
        let Label { name, value } = label.as_deref().cloned().unwrap_or_default();
        push_word(out, &name);
        push_word(out, &value);
    }
    out.push(b'\n');
}

/// One word of text: bytes other than those of plain addresses and names as `%` and two hexadecimal
/// digits, and nothing as `-`.
fn push_word(out: &mut Vec<u8>, text: &str) {
    out.push(b' ');
    if text.is_empty() {
        out.push(b'-');
    }
    for byte in text.bytes() {
        let is_sign = text != "-" && b"-._~:/@[],=+()".contains(&byte);
        if byte.is_ascii_alphanumeric() || is_sign {
            out.push(byte);
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use std::sync::Arc;

    fn sight(fence: u64, holders: u32, label: Option<(&str, &str)>) -> Sight {
        let label =
            label.map(|(name, value)| Arc::new(Label { name: name.into(), value: value.into() }));
        Sight { holders, fence, since_micros: 1_999_999, label }
    }

    #[rstest]
    #[case(None, "free cbf29ce484222325\n")]
    #[case(Some(sight(7, 1, None)), "held TAG 7 1999 1 - -\n")]
    #[case(Some(sight(7, 2, Some(("", "10.0.0.1:80")))), "held TAG 7 1999 2 - 10.0.0.1:80\n")]
    #[case(Some(sight(7, 1, Some(("al@db[1] x y", "-")))), "held TAG 7 1999 1 al@db[1]%20x%20y %2D\n")]
    #[case(Some(sight(7, 1, Some(("\u{e9}%", "[::1]:8")))), "held TAG 7 1999 1 %C3%A9%25 [::1]:8\n")]
    fn the_reply_to_watch_is_one_line_of_words(#[case] sight: Option<Sight>, #[case] want: &str) {
        let mut out = Vec::new();
        push_sight(&mut out, sight.as_ref());
        let want = want.replace("TAG", &format!("{:016x}", tag_of(sight.as_ref())));
        assert_eq!(String::from_utf8(out).unwrap(), want);
    }

    /// Each of these states has a different tag, and the time does not change a tag.
    #[test]
    fn different_states_have_different_tags() {
        let sights = [
            None,
            Some(sight(1, 1, None)),
            Some(sight(2, 1, None)),
            Some(sight(1, 2, None)),
            Some(sight(1, 1, Some(("a", "")))),
            Some(sight(1, 1, Some(("", "a")))),
            Some(sight(1, 1, Some(("a", "b")))),
        ];
        for (place, one) in sights.iter().enumerate() {
            for (other_place, other) in sights.iter().enumerate() {
                let equal = tag_of(one.as_ref()) == tag_of(other.as_ref());
                assert_eq!(equal, place == other_place);
            }
        }
        let later = Sight { since_micros: 9, ..sight(1, 1, None) };
        assert_eq!(tag_of(Some(&later)), tag_of(sights[1].as_ref()));
    }

    #[rstest]
    #[case(b"cbf29ce484222325", Some(0xcbf2_9ce4_8422_2325))]
    #[case(b"cbf29ce48422232", None)]
    #[case(b"+bf29ce484222325", None)]
    #[case(b"0", None)]
    fn tags_are_read(#[case] text: &[u8], #[case] want: Option<u64>) {
        assert_eq!(crate::read_hex(text), want);
    }
}
