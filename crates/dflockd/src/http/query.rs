//! Parses the query for holders: `key=PART&limit=N` → [`Wanted`].

use super::reply::Fault;
use crate::server::Wanted;
use leases::MAX_KEY_BYTES;

/// The number of keys shown by default.
pub(super) const DEFAULT_KEYS: usize = 200;
/// The most keys shown.
pub(super) const MAX_KEYS: usize = 1000;
/// The most holders, and the most waiters, shown of each key.
pub(super) const MAX_PARTIES: usize = 20;
/// The approximate length of the longest list of keys. Further keys are left out, and the body says so.
const MOST_BYTES: usize = 512 * 1024;

/// Parses a query. Each name may come once, and no others, so that a misspelt name is noticed.
pub(super) fn wanted(query: Option<&str>) -> Result<Wanted, Fault> {
    let (mut part, mut limit) = (None, None);
    for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').ok_or(Fault::BadRequest)?;
        let value = decode(value).ok_or(Fault::BadRequest)?;
        let place = match name {
            "key" => &mut part,
            "limit" => &mut limit,
            _ => return Err(Fault::BadRequest),
        };
        if place.replace(value).is_some() {
            return Err(Fault::BadRequest);
        }
    }
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

/// `connection=NUMBER` and nothing else.
pub(super) fn connection(query: Option<&str>) -> Result<u64, Fault> {
    let digits = only(query, "connection")?;
    number(&digits).and_then(|number| u64::try_from(number).ok()).ok_or(Fault::BadRequest)
}

fn only(query: Option<&str>, name: &str) -> Result<Vec<u8>, Fault> {
    let value = query.unwrap_or_default().strip_prefix(name);
    let value = value.and_then(|rest| rest.strip_prefix('=')).filter(|rest| !rest.contains('&'));
    value.and_then(decode).ok_or(Fault::BadRequest)
}

/// Only digits, as everywhere.
fn number(digits: &[u8]) -> Option<usize> {
    let text = std::str::from_utf8(digits).ok()?;
    let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_plain.then(|| text.parse().ok()).flatten()
}

/// `%41` is a byte and `+` a blank, as forms are sent.
fn decode(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'%' => u8::try_from(digit(bytes.next())? << 4 | digit(bytes.next())?).ok()?,
            b'+' => b' ',
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

    #[test]
    fn a_part_is_no_longer_than_a_key() {
        let query = |length| format!("key={}", "%6b".repeat(length));
        assert!(wanted(Some(&query(MAX_KEY_BYTES))).is_ok());
        assert_eq!(wanted(Some(&query(MAX_KEY_BYTES + 1))), Err(Fault::BadRequest));
    }
}
