//! Lines → the words of answers, for clients: the inverse of what `reply.rs` and `watch.rs` write. `None` is a line that
//! is no such answer; it may be a refusal. Pure.

use std::time::Duration;

/// A grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Granted<'a> {
    /// The token.
    pub token: &'a str,
    /// The seconds of its lease.
    pub ttl: u32,
    /// Its slot, of a semaphore, if the client has asked for slots and the server has them.
    pub slot: Option<u32>,
}

/// The beginning of a line that answers no request: an administrator has taken away the hold with the token that
/// follows. The next request for it says the same.
const LOST: &str = "lost ";

/// The answer to `l`, `rl`, `sl`, `w`, `sw` and, for so many keys, `al`; `Some(None)` if the time was over first, or
/// one of them is in use.
#[must_use]
pub fn read_grants(line: &str, many: usize) -> Option<Option<Vec<Granted<'_>>>> {
    if line == "timeout" {
        return Some(None);
    }
    let words: Vec<&str> = line.strip_prefix("ok ")?.split(' ').collect();
    // Several keys are locks, which have no slot.
    let size = if many == 1 { words.len() } else { 2 };
    let grants: Option<Vec<_>> = words.chunks(size).map(granted).collect();
    grants.filter(|grants| grants.len() == many).map(Some)
}

/// The answer to `e`, `re` or `se`; `Some(None)` for a place in the queue.
#[must_use]
pub fn read_place(line: &str) -> Option<Option<Granted<'_>>> {
    if line == "queued" {
        return Some(None);
    }
    let words: Vec<&str> = line.strip_prefix("acquired ")?.split(' ').collect();
    granted(&words).map(Some)
}

fn granted<'a>(words: &[&'a str]) -> Option<Granted<'a>> {
    let ([token, ttl] | [token, ttl, _]) = words else { return None };
    let slot = match words.get(2) {
        Some(slot) => Some(number(slot)?),
        None => None,
    };
    let ttl = number(ttl).filter(|ttl| *ttl > 0)?;
    (!token.is_empty()).then_some(Granted { token, ttl, slot })
}

/// The answer to `n` or `sn`: the length of the lease; `Some(None)` for a bare `ok`, which some servers send.
#[must_use]
pub fn read_renewal(line: &str) -> Option<Option<u32>> {
    if is_ok(line) { Some(None) } else { number(line.strip_prefix("ok ")?).map(Some) }
}

/// The answer to `grace`: so many seconds; `Some(None)`: until the end of the lease.
#[must_use]
pub fn read_grace(line: &str) -> Option<Option<u32>> {
    match line.strip_prefix("ok ")? {
        "lease" => Some(None),
        count => number(count).map(Some),
    }
}

/// The words with which a server says what it can do: none for the reference, and for servers that are older than
/// `ping`.
pub fn read_hello(line: &str) -> Option<impl Iterator<Item = &str>> {
    let mut words = line.split(' ');
    match words.next() {
        Some("ok") => Some(words),
        Some("error") if line == "error" => Some(words),
        _ => None,
    }
}

/// The JSON text that `stats` gives.
#[must_use]
pub fn read_body(line: &str) -> Option<&str> {
    line.strip_prefix("ok ")
}

/// The answer to `r`, `sr`, `ping`, `auth`, `name` and `value`.
#[must_use]
pub fn is_ok(line: &str) -> bool {
    line == "ok"
}

/// The token of a hold that was taken away.
#[must_use]
pub fn read_lost(line: &str) -> Option<&str> {
    line.strip_prefix(LOST)
}

/// A whole number, as servers write it.
fn number(text: &str) -> Option<u32> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

/// The holder of a key, as `watch` shows it. Of several (readers, or a semaphore) the one that got it last.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "a client shows every field, and its tests make one")]
pub struct Holder {
    /// The fence of its grant.
    pub fence: u64,
    /// How long it had held the key when the server answered, as far as the server knew.
    pub age: Duration,
    /// How many hold the key: at least one.
    pub holders: u32,
    /// What it calls itself, for people: the `name` in the settings of its client.
    pub name: Option<String>,
    /// What it tells programs, such as its address: the `value` there.
    pub value: Option<String>,
}

/// The answer to `watch`: the tag of the state, and the holder.
#[must_use]
pub fn read_sight(line: &str) -> Option<(&str, Option<Holder>)> {
    let words: Vec<&str> = line.split(' ').collect();
    match *words {
        ["free", tag] => Some((tag, None)),
        ["held", tag, fence, age_ms, holders, name, value] => {
            let (fence, age) = (fence.parse().ok()?, Duration::from_millis(age_ms.parse().ok()?));
            let (holders, name, value) = (holders.parse().ok()?, word(name)?, word(value)?);
            Some((tag, Some(Holder { fence, age, holders, name, value })))
        }
        _ => None,
    }
}

/// One word of an answer as text; `-` is none.
fn word(word: &str) -> Option<Option<String>> {
    if word == "-" {
        return Some(None);
    }
    let mut bytes = Vec::new();
    let mut rest = word.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || char::from(rest.next()?).to_digit(16);
        let (high, low) = (digit()?, digit()?);
        bytes.push(u8::try_from(high * 16 + low).ok()?);
    }
    Some(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("")]
    #[case("ok")]
    #[case("ok ")]
    #[case("ok  33")]
    #[case("ok token")]
    #[case("ok token x")]
    #[case("ok token 0")]
    #[case("ok token -1")]
    #[case("ok token +1")]
    #[case("ok token 33 more")]
    #[case("ok token 33 -1")]
    #[case("ok token 33 1 2")]
    #[case("ok token 33 4294967296")]
    #[case("OK token 33")]
    #[case("queued")]
    #[case("HTTP/1.1 400 Bad Request")]
    fn other_lines_grant_nothing(#[case] line: &str) {
        assert_eq!(read_grants(line, 1), None);
    }

    #[rstest]
    #[case("ok token 33", None)]
    #[case("ok token 33 0", Some(0))]
    #[case("ok token 33 4294967295", Some(u32::MAX))]
    fn a_grant_may_have_a_slot(#[case] line: &str, #[case] slot: Option<u32>) {
        let granted = Granted { token: "token", ttl: 33, slot };
        assert_eq!(read_grants(line, 1), Some(Some(vec![granted])));
        assert_eq!(read_place(&line.replacen("ok", "acquired", 1)), Some(Some(granted)));
        // Several keys are locks.
        assert_eq!(read_grants(&format!("{line} {line}"), 2), None);
    }
}
