//! Parses queries: `key=PART&limit=N` → [`Wanted`], and those of requests for locks.

use super::reply::Fault;
use crate::server::Wanted;
use leases::{MAX_KEY_BYTES, Seconds};

/// The number of keys shown by default.
pub(super) const DEFAULT_KEYS: usize = 200;
/// The most keys shown.
pub(super) const MAX_KEYS: usize = 1000;
/// The most holders, and the most waiters, shown of each key.
pub(super) const MAX_PARTIES: usize = 20;
/// The approximate length of the longest list of keys. Further keys are left out, and the body says so.
const MOST_BYTES: usize = 512 * 1024;
/// How long a client waits for a change if it does not say: as long as it may.
const LONGEST_WATCH: usize = 60;

/// The values of a query, in the order of the names. Each name may come once, and no others, so that a misspelt name is
/// noticed.
fn values<const N: usize>(
    query: Option<&str>,
    names: [&str; N],
) -> Result<[Option<Vec<u8>>; N], Fault> {
    let mut values = [const { None }; N];
    for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').ok_or(Fault::BadRequest)?;
        let known = names.iter().zip(&mut values).find(|(known, _)| **known == name);
        let (_, place) = known.ok_or(Fault::BadRequest)?;
        if place.replace(decode(value, b' ').ok_or(Fault::BadRequest)?).is_some() {
            return Err(Fault::BadRequest);
        }
    }
    Ok(values)
}

/// What to show of the holders.
pub(super) fn wanted(query: Option<&str>) -> Result<Wanted, Fault> {
    let [part, limit] = values(query, ["key", "limit"])?;
    let part = part.unwrap_or_default();
    if part.len() > MAX_KEY_BYTES {
        return Err(Fault::BadRequest);
    }
    let keys = limit.map_or(Some(DEFAULT_KEYS), |digits| number(&digits));
    let keys = keys.filter(|&keys| keys <= MAX_KEYS).ok_or(Fault::BadRequest)?;
    Ok(Wanted { part, keys, parties: MAX_PARTIES, bytes: MOST_BYTES })
}

/// `key=KEY` and nothing else.
pub(super) fn key(query: Option<&str>) -> Result<Vec<u8>, Fault> {
    only(query, "key")
}

/// How a request for a lock is asked: whether it belongs to no session, and whether it shares the lock.
pub(super) fn manner(query: Option<&str>) -> Result<(bool, bool), Fault> {
    let [session, shared] = values(query, ["session", "shared"])?;
    let is_alone = match session.as_deref() {
        None => false,
        Some(b"none") => true,
        Some(_) => return Err(Fault::Invalid("session may only be none")),
    };
    let is_shared = match shared.as_deref() {
        None | Some(b"false") => false,
        Some(b"true") => true,
        Some(_) => return Err(Fault::Invalid("shared must be true or false")),
    };
    Ok((is_alone, is_shared))
}

/// `watch=TAG&timeout_s=SECONDS`: the state that the client saw last, and how long it waits for another one; `None` if
/// it does not wait.
pub(super) fn watched(query: Option<&str>) -> Result<Option<(u64, Seconds)>, Fault> {
    let [tag, timeout] = values(query, ["watch", "timeout_s"])?;
    let seconds = timeout.map(|digits| number(&digits)).unwrap_or(Some(LONGEST_WATCH));
    let seconds = seconds.and_then(|it| Seconds::new(u64::try_from(it).ok()?));
    let seconds = seconds.ok_or(Fault::Invalid("timeout_s must be a whole number"))?;
    let Some(tag) = tag else { return Ok(None) };
    let tag = leases::read_hex(&tag);
    let tag = tag.ok_or(Fault::Invalid("watch must be 16 lower-case hexadecimal digits"))?;
    Ok(Some((tag, seconds)))
}

/// `connection=NUMBER` and nothing else.
pub(super) fn connection(query: Option<&str>) -> Result<u64, Fault> {
    let digits = only(query, "connection")?;
    number(&digits).and_then(|number| u64::try_from(number).ok()).ok_or(Fault::BadRequest)
}

fn only(query: Option<&str>, name: &str) -> Result<Vec<u8>, Fault> {
    let [value] = values(query, [name])?;
    value.ok_or(Fault::BadRequest)
}

/// Only digits, as everywhere.
fn number(digits: &[u8]) -> Option<usize> {
    let text = std::str::from_utf8(digits).ok()?;
    let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_plain.then(|| text.parse().ok()).flatten()
}

/// The bytes of a part of a path, where `%41` is a byte.
pub(super) fn decode_name(text: &str) -> Option<Vec<u8>> {
    decode(text, b'+')
}

/// `%41` is a byte and `+` a blank, as forms are sent; `plus` elsewhere.
fn decode(text: &str, plus: u8) -> Option<Vec<u8>> {
    let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'%' => u8::try_from(digit(bytes.next())? << 4 | digit(bytes.next())?).ok()?,
            b'+' => plus,
            _ => byte,
        });
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(None, b"", DEFAULT_KEYS)]
    #[case(Some(""), b"", DEFAULT_KEYS)]
    #[case(Some("&"), b"", DEFAULT_KEYS)]
    #[case(Some("key="), b"", DEFAULT_KEYS)]
    #[case(Some("limit=0"), b"", 0)]
    #[case(Some("limit=1000"), b"", 1000)]
    #[case(Some("limit=007"), b"", 7)]
    #[case(Some("key=job&limit=5"), b"job", 5)]
    #[case(Some("limit=5&key=a%2Fb%2b%C3%bc+c"), b"a/b+\xc3\xbc c", 5)]
    #[case(Some("key=a=b"), b"a=b", DEFAULT_KEYS)]
    #[case(Some("key=%00%ff"), b"\0\xff", DEFAULT_KEYS)]
    fn valid_queries_are_parsed(
        #[case] query: Option<&str>,
        #[case] part: &[u8],
        #[case] keys: usize,
    ) {
        let want = Wanted { part: part.to_vec(), keys, parties: MAX_PARTIES, bytes: MOST_BYTES };
        assert_eq!(wanted(query), Ok(want));
    }

    #[rstest]
    #[case("limit=1001")]
    #[case("limit=")]
    #[case("limit=-1")]
    #[case("limit=%2B1")]
    #[case("limit=99999999999999999999999")]
    #[case("limit=1&limit=1")]
    #[case("key=a&key=b")]
    #[case("key")]
    #[case("keys=a")]
    #[case("Key=a")]
    #[case("key=%")]
    #[case("key=%4")]
    #[case("key=%4g")]
    fn invalid_queries_are_refused(#[case] query: &str) {
        assert_eq!(wanted(Some(query)), Err(Fault::BadRequest));
    }

    #[test]
    fn administrators_name_one_thing() {
        assert_eq!(key(Some("key=a%2Fb")), Ok(b"a/b".to_vec()));
        assert_eq!(connection(Some("connection=17")), Ok(17));
        for wrong in [None, Some(""), Some("key"), Some("key=a&key=b"), Some("keys=a")] {
            assert_eq!(key(wrong), Err(Fault::BadRequest), "{wrong:?}");
            assert_eq!(connection(wrong), Err(Fault::BadRequest), "{wrong:?}");
        }
        assert_eq!(connection(Some("connection=-1")), Err(Fault::BadRequest));
    }

    #[rstest]
    #[case(None, Ok((false, false)))]
    #[case(Some("session=none"), Ok((true, false)))]
    #[case(Some("shared=true&session=none"), Ok((true, true)))]
    #[case(Some("shared=false"), Ok((false, false)))]
    #[case(Some("shared"), Err(Fault::BadRequest))]
    #[case(Some("session=none&session=none"), Err(Fault::BadRequest))]
    #[case(Some("limit=1"), Err(Fault::BadRequest))]
    fn manners(#[case] query: Option<&str>, #[case] want: Result<(bool, bool), Fault>) {
        assert_eq!(manner(query), want);
    }

    #[rstest]
    #[case("session=x")]
    #[case("session=")]
    #[case("shared=1")]
    fn no_manners(#[case] query: &str) {
        assert!(matches!(manner(Some(query)), Err(Fault::Invalid(_))));
    }

    #[test]
    fn watches() {
        let tag = "cbf29ce484222325";
        let watch = |query: &str| watched(Some(&query.replace("TAG", tag)));
        let want = |seconds| Ok(Some((0xcbf2_9ce4_8422_2325, Seconds::new(seconds).unwrap())));
        assert_eq!(watched(None), Ok(None));
        assert_eq!(watch("timeout_s=3"), Ok(None));
        assert_eq!(watch("watch=TAG"), want(60));
        assert_eq!(watch("timeout_s=0&watch=TAG"), want(0));
        for wrong in ["watch=", "watch=TAG0", "watch=x", "watch=TAG&timeout_s=-1", "tag=TAG"] {
            assert!(watch(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn names_in_paths() {
        assert_eq!(decode_name("a%2Fb+c%20"), Some(b"a/b+c ".to_vec()));
        assert_eq!(decode_name("%4"), None);
    }

    #[test]
    fn a_part_is_no_longer_than_a_key() {
        let query = |length| format!("key={}", "%6b".repeat(length));
        assert!(wanted(Some(&query(MAX_KEY_BYTES))).is_ok());
        assert_eq!(wanted(Some(&query(MAX_KEY_BYTES + 1))), Err(Fault::BadRequest));
    }
}
