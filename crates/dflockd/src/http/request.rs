//! What a request asks for. Method and path → a [`Route`], or why there is none; query (`key=PART&limit=N`, and those of
//! requests for locks) → [`RosterQuery`]; path, key and JSON of the body → a request to the engine.

use hyper::Method;
use leases::{Claim, Key, Limit, MAX_KEY_BYTES, Request, Seconds, Token, Ttl};
use serde_json::{Map, Value};

use super::reply::{Fault, JSON};
use crate::server::{LONGEST_WATCH, RosterQuery};

pub(super) const STYLE: &str = include_str!("page/page.css");
pub(super) const SCRIPT: &str = include_str!("page/page.js");

/// Which secret a path needs, if one is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SecretNeeded {
    /// Shows nothing about locks.
    Open,
    /// Shows keys, addresses and numbers.
    Guarded,
    /// Shows numbers only.
    Numbers,
    /// Uses locks, as clients of the other port do.
    Locks,
    /// Changes holds of other clients.
    Admin,
}

/// What a request does to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deed {
    Acquire,
    Release,
    Renew,
    Enqueue,
    Wait,
}

/// The kind of key that a path names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyKind {
    Lock,
    /// A lock that others may share.
    Shared,
    Semaphore,
}

/// The action of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    Page,
    /// This type and body.
    Fixed(&'static str, &'static str),
    OpenApi,
    Ready,
    Stats,
    Holders,
    Metrics,
    Release,
    Kick,
    OpenSession,
    EndSession,
    PingSession,
    ShowKey,
    Ask(KeyKind, Deed),
}

impl Route {
    /// Whether the answer needs the locks, which may be at another server.
    pub(super) const fn is_about_locks(self) -> bool {
        match self {
            Self::Stats | Self::Holders | Self::Release | Self::Kick => true,
            Self::OpenSession | Self::EndSession | Self::PingSession => true,
            Self::ShowKey | Self::Ask(..) => true,
            Self::Page | Self::Fixed(..) | Self::OpenApi | Self::Ready | Self::Metrics => false,
        }
    }
}

/// Stands for one part of a path, which is not empty.
const NAME: &str = "{}";

/// All paths. One that is read by GET is also read by HEAD.
pub(super) const ROUTES: [(&str, &str, Route, SecretNeeded); 27] = [
    ("GET", "/", Route::Page, SecretNeeded::Open),
    ("GET", "/page.css", Route::Fixed("text/css; charset=utf-8", STYLE), SecretNeeded::Open),
    ("GET", "/page.js", Route::Fixed("text/javascript; charset=utf-8", SCRIPT), SecretNeeded::Open),
    (
        "GET",
        "/icon.svg",
        Route::Fixed("image/svg+xml", include_str!("page/icon.svg")),
        SecretNeeded::Open,
    ),
    ("GET", "/health", Route::Fixed(JSON, "{\"status\":\"ok\"}"), SecretNeeded::Open),
    ("GET", "/ready", Route::Ready, SecretNeeded::Open),
    ("GET", "/v1/openapi.json", Route::OpenApi, SecretNeeded::Open),
    ("GET", "/v1/stats", Route::Stats, SecretNeeded::Guarded),
    ("GET", "/v1/holders", Route::Holders, SecretNeeded::Guarded),
    ("GET", "/metrics", Route::Metrics, SecretNeeded::Numbers),
    ("POST", "/v1/admin/release", Route::Release, SecretNeeded::Admin),
    ("POST", "/v1/admin/kick", Route::Kick, SecretNeeded::Admin),
    ("POST", "/v1/sessions", Route::OpenSession, SecretNeeded::Locks),
    ("DELETE", "/v1/sessions/{}", Route::EndSession, SecretNeeded::Locks),
    ("POST", "/v1/sessions/{}/ping", Route::PingSession, SecretNeeded::Locks),
    ("GET", "/v1/locks/{}", Route::ShowKey, SecretNeeded::Locks),
    ("POST", "/v1/locks/{}", Route::Ask(KeyKind::Lock, Deed::Acquire), SecretNeeded::Locks),
    ("POST", "/v1/locks/{}/release", Route::Ask(KeyKind::Lock, Deed::Release), SecretNeeded::Locks),
    ("POST", "/v1/locks/{}/renew", Route::Ask(KeyKind::Lock, Deed::Renew), SecretNeeded::Locks),
    ("POST", "/v1/locks/{}/enqueue", Route::Ask(KeyKind::Lock, Deed::Enqueue), SecretNeeded::Locks),
    ("POST", "/v1/locks/{}/wait", Route::Ask(KeyKind::Lock, Deed::Wait), SecretNeeded::Locks),
    ("GET", "/v1/semaphores/{}", Route::ShowKey, SecretNeeded::Locks),
    (
        "POST",
        "/v1/semaphores/{}",
        Route::Ask(KeyKind::Semaphore, Deed::Acquire),
        SecretNeeded::Locks,
    ),
    (
        "POST",
        "/v1/semaphores/{}/release",
        Route::Ask(KeyKind::Semaphore, Deed::Release),
        SecretNeeded::Locks,
    ),
    (
        "POST",
        "/v1/semaphores/{}/renew",
        Route::Ask(KeyKind::Semaphore, Deed::Renew),
        SecretNeeded::Locks,
    ),
    (
        "POST",
        "/v1/semaphores/{}/enqueue",
        Route::Ask(KeyKind::Semaphore, Deed::Enqueue),
        SecretNeeded::Locks,
    ),
    (
        "POST",
        "/v1/semaphores/{}/wait",
        Route::Ask(KeyKind::Semaphore, Deed::Wait),
        SecretNeeded::Locks,
    ),
];

/// What was found for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found<'a> {
    pub(super) route: Route,
    pub(super) access: SecretNeeded,
    /// The part of the path that differs, as received; empty if there is none.
    pub(super) name: &'a str,
    /// The bytes of that part if it is a key; `None` if it is not, or cannot be decoded.
    pub(super) key: Option<Vec<u8>>,
}

/// Paths are compared as received: nothing is decoded, and no slash is added or removed.
pub(super) fn find<'a>(method: &Method, path: &'a str) -> Result<Found<'a>, Fault> {
    let mut allow = [false; 3];
    for (known, pattern, route, access) in ROUTES {
        let Some(name) = matched(pattern, path) else { continue };
        if method.as_str() == known || (known == "GET" && method == Method::HEAD) {
            let is_key = matches!(route, Route::ShowKey | Route::Ask(..));
            let key = if is_key { decode_name(name) } else { None };
            return Ok(Found { route, access, name, key });
        }
        for (place, name) in ["GET", "POST", "DELETE"].into_iter().enumerate() {
            if let Some(is_allowed) = allow.get_mut(place).filter(|_| known == name) {
                *is_allowed = true;
            }
        }
    }
    Err(match allow {
        [false, false, false] => Fault::NotFound,
        [true, false, _] => Fault::WrongMethod("GET, HEAD"),
        [true, true, _] => Fault::WrongMethod("GET, HEAD, POST"),
        [false, true, _] => Fault::WrongMethod("POST"),
        [false, false, true] => Fault::WrongMethod("DELETE"),
    })
}

/// The part of the path that differs, if it is one of this pattern.
fn matched<'a>(pattern: &str, path: &'a str) -> Option<&'a str> {
    let Some((before, after)) = pattern.split_once(NAME) else {
        return (pattern == path).then_some("");
    };
    let name = path.strip_prefix(before)?.strip_suffix(after)?;
    (!name.is_empty() && !name.contains('/')).then_some(name)
}

/// The number of keys shown by default.
pub(super) const DEFAULT_KEYS: usize = 200;
/// The most keys shown.
pub(super) const MOST_ROSTER_KEYS: usize = 1000;
/// The most holders, and the most waiters, shown of each key.
pub(super) const MAX_PARTIES: usize = 20;
/// The approximate length of the longest list of keys. Further keys are left out, and the body says so.
const MOST_BYTES: usize = 512 * 1024;

/// The values of a query, in the order of the names. Each name may come once, and no others, so that a misspelt name is
/// noticed.
fn values<const N: usize>(
    query: Option<&str>,
    names: &'static [&'static str; N],
) -> Result<[Option<Vec<u8>>; N], Fault> {
    let mut values = [const { None }; N];
    for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').ok_or(Fault::BadRequest)?;
        let known = names.iter().zip(&mut values).find(|(known, _)| **known == name);
        let (_, place) = known.ok_or(Fault::UnknownName(names))?;
        if place.replace(decode(value, b' ').ok_or(Fault::BadRequest)?).is_some() {
            return Err(Fault::BadRequest);
        }
    }
    Ok(values)
}

/// What to show of the holders.
pub(super) fn roster_query(query: Option<&str>) -> Result<RosterQuery, Fault> {
    let [part, limit] = values(query, &["key", "limit"])?;
    let part = part.unwrap_or_default();
    if part.len() > MAX_KEY_BYTES {
        return Err(Fault::BadRequest);
    }
    let keys = limit.map_or(Some(DEFAULT_KEYS), |digits| number(&digits));
    let keys = keys.filter(|&keys| keys <= MOST_ROSTER_KEYS).ok_or(Fault::BadRequest)?;
    Ok(RosterQuery { part, keys, parties: MAX_PARTIES, bytes: MOST_BYTES })
}

/// `key=KEY` and nothing else.
pub(super) fn key(query: Option<&str>) -> Result<Vec<u8>, Fault> {
    only(query, &["key"])
}

/// How a request for a lock is asked: whether it belongs to no session, and whether it shares the lock.
pub(super) fn manner(query: Option<&str>) -> Result<(bool, bool), Fault> {
    let [session, shared] = values(query, &["session", "shared"])?;
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

/// `watch=TAG&timeout_s=SECONDS`: the state that the client saw last, and how long it waits for another one, if it does
/// not say: as long as it may; `None` if it does not wait.
pub(super) fn watched(query: Option<&str>) -> Result<Option<(u64, Seconds)>, Fault> {
    let [tag, timeout] = values(query, &["watch", "timeout_s"])?;
    let seconds_of = |digits: Vec<u8>| Seconds::new(u64::try_from(number(&digits)?).ok()?);
    let seconds = timeout.map_or(Some(LONGEST_WATCH), seconds_of);
    let seconds = seconds.ok_or(Fault::Invalid("timeout_s must be a whole number"))?;
    let Some(tag) = tag else { return Ok(None) };
    let tag = leases::read_hex(&tag);
    let tag = tag.ok_or(Fault::Invalid("watch must be 16 lower-case hexadecimal digits"))?;
    Ok(Some((tag, seconds)))
}

/// `connection=NUMBER` and nothing else.
pub(super) fn connection(query: Option<&str>) -> Result<u64, Fault> {
    let digits = only(query, &["connection"])?;
    number(&digits).and_then(|number| u64::try_from(number).ok()).ok_or(Fault::BadRequest)
}

fn only(query: Option<&str>, name: &'static [&'static str; 1]) -> Result<Vec<u8>, Fault> {
    let [value] = values(query, name)?;
    value.ok_or(Fault::BadRequest)
}

/// Only digits, as everywhere.
fn number(digits: &[u8]) -> Option<usize> {
    let text = std::str::from_utf8(digits).ok()?;
    let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_plain.then(|| text.parse().ok()).flatten()
}

/// The bytes of a part of a path, where `%41` is a byte.
fn decode_name(text: &str) -> Option<Vec<u8>> {
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

/// The longest body of a request.
pub(super) const MAX_BODY_BYTES: usize = 4096;

/// The members of a body, of which only those with these names may be there.
struct Members(Map<String, Value>);

impl Members {
    /// No body is an empty object.
    fn parse(body: &[u8], names: &'static [&'static str]) -> Result<Self, Fault> {
        if body.trim_ascii().is_empty() {
            return Ok(Self(Map::new()));
        }
        let members: Map<String, Value> = serde_json::from_slice(body)
            .map_err(|_| Fault::Invalid("the body is not a JSON object"))?;
        if members.keys().all(|name| names.contains(&name.as_str())) {
            Ok(Self(members))
        } else {
            Err(Fault::UnknownName(names))
        }
    }

    /// A whole number; `None` if it is not there, or null.
    fn number(&self, name: &str, wrong: &'static str) -> Result<Option<u64>, Fault> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => value.as_u64().map(Some).ok_or(Fault::Invalid(wrong)),
        }
    }

    fn seconds(&self, name: &str, wrong: &'static str) -> Result<Seconds, Fault> {
        let seconds = self.number(name, wrong)?.and_then(Seconds::new);
        seconds.ok_or(Fault::Invalid(wrong))
    }

    /// 0 stands for the server's default.
    fn ttl(&self) -> Result<Option<Ttl>, Fault> {
        const WRONG: &str = "lease_ttl_s must be a whole number, 0 to 9223372036";
        match self.number("lease_ttl_s", WRONG)? {
            None | Some(0) => Ok(None),
            Some(seconds) => Ttl::new(seconds).map(Some).ok_or(Fault::Invalid(WRONG)),
        }
    }

    fn token(&self) -> Result<Token, Fault> {
        let token = self.0.get("token").and_then(Value::as_str);
        let token = token.and_then(|text| Token::parse(text.as_bytes()));
        token.ok_or(Fault::Invalid("token must be 32 lower-case hexadecimal digits"))
    }

    fn claim(&self, form: KeyKind) -> Result<Claim, Fault> {
        const WRONG: &str = "limit must be a whole number, at least 1";
        match form {
            KeyKind::Lock => Ok(Claim::LOCK),
            KeyKind::Shared => Ok(Claim::Shared),
            KeyKind::Semaphore => {
                let limit = self.number("limit", WRONG)?.and_then(Limit::new);
                limit.map(Claim::Slot).ok_or(Fault::Invalid(WRONG))
            }
        }
    }
}

/// Checks the body of a request without members. Many clients send `{}` with each POST.
pub(super) fn no_members(body: &[u8]) -> Result<(), Fault> {
    Members::parse(body, &[]).map(drop)
}

/// The request of a body.
pub(super) fn request<'a>(
    deed: Deed,
    form: KeyKind,
    key: Key<'a>,
    body: &[u8],
) -> Result<Request<'a>, Fault> {
    let has_limit = form == KeyKind::Semaphore && matches!(deed, Deed::Acquire | Deed::Enqueue);
    let names: &'static [&'static str] = match deed {
        Deed::Acquire => &["acquire_timeout_s", "lease_ttl_s", "limit"],
        Deed::Enqueue => &["lease_ttl_s", "limit"],
        Deed::Wait => &["timeout_s"],
        Deed::Release => &["token"],
        Deed::Renew => &["lease_ttl_s", "token"],
    };
    // The limit comes last where it may come at all.
    let names = names.strip_suffix(&["limit"]).filter(|_| !has_limit).unwrap_or(names);
    let members = Members::parse(body, names)?;
    Ok(match deed {
        Deed::Acquire => {
            const WRONG: &str = "acquire_timeout_s must be a whole number, 0 to 9223372036";
            let timeout = members.seconds("acquire_timeout_s", WRONG)?;
            Request::Acquire { key, claim: members.claim(form)?, timeout, ttl: members.ttl()? }
        }
        Deed::Enqueue => Request::Enqueue { key, claim: members.claim(form)?, ttl: members.ttl()? },
        Deed::Wait => {
            const WRONG: &str = "timeout_s must be a whole number, 0 to 9223372036";
            Request::Wait { key, timeout: members.seconds("timeout_s", WRONG)? }
        }
        Deed::Release => Request::Release { key, token: Some(members.token()?) },
        Deed::Renew => Request::Renew { key, token: Some(members.token()?), ttl: members.ttl()? },
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    /// The document describes every path but those of the page, and no other.
    #[test]
    fn the_document_has_the_same_paths() {
        let document = include_str!("openapi.json");
        let document: Value = serde_json::from_str(document).unwrap();
        let mut described: Vec<(String, String)> = Vec::new();
        for (path, methods) in document["paths"].as_object().unwrap() {
            let path = path.replace("{key}", NAME).replace("{id}", NAME);
            let methods = methods.as_object().unwrap().keys();
            described.extend(methods.map(|method| (method.to_uppercase(), path.clone())));
        }
        described.sort();
        let is_page = |route| {
            route == Route::Page
                || matches!(route, Route::Fixed(content_type, _) if content_type != JSON)
        };
        let mut served: Vec<_> = ROUTES
            .into_iter()
            .filter(|(_, _, route, _)| !is_page(*route))
            .map(|(method, path, ..)| (method.to_owned(), path.to_owned()))
            .collect();
        served.sort();
        assert_eq!(described, served);
    }

    #[rstest]
    #[case("POST", "/v1/locks/k", Ok((Route::Ask(KeyKind::Lock, Deed::Acquire), "k")))]
    #[case("POST", "/v1/locks/a%2Fb/wait", Ok((Route::Ask(KeyKind::Lock, Deed::Wait), "a%2Fb")))]
    #[case("POST", "/v1/locks/wait/wait", Ok((Route::Ask(KeyKind::Lock, Deed::Wait), "wait")))]
    #[case("POST", "/v1/locks/release", Ok((Route::Ask(KeyKind::Lock, Deed::Acquire), "release")))]
    #[case("HEAD", "/v1/locks/k", Ok((Route::ShowKey, "k")))]
    #[case("PUT", "/v1/locks/k", Err(Fault::WrongMethod("GET, HEAD, POST")))]
    #[case("GET", "/v1/locks/k/wait", Err(Fault::WrongMethod("POST")))]
    #[case("GET", "/v1/sessions/x", Err(Fault::WrongMethod("DELETE")))]
    #[case("GET", "/v1/sessions", Err(Fault::WrongMethod("POST")))]
    #[case("POST", "/v1/locks/", Err(Fault::NotFound))]
    #[case("POST", "/v1/locks", Err(Fault::NotFound))]
    #[case("POST", "/v1/locks//wait", Err(Fault::NotFound))]
    #[case("POST", "/v1/locks/a/b", Err(Fault::NotFound))]
    #[case("POST", "/v1/locks/a/b/wait", Err(Fault::NotFound))]
    #[case("POST", "/v1/locks/a/wait/", Err(Fault::NotFound))]
    #[case("DELETE", "/v1/sessions/", Err(Fault::NotFound))]
    fn paths_with_names(
        #[case] method: &str,
        #[case] path: &str,
        #[case] want: Result<(Route, &str), Fault>,
    ) {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        assert_eq!(find(&method, path).map(|found| (found.route, found.name)), want);
    }

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
        let want =
            RosterQuery { part: part.to_vec(), keys, parties: MAX_PARTIES, bytes: MOST_BYTES };
        assert_eq!(roster_query(query), Ok(want));
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
        is_bad(roster_query(Some(query)));
    }

    fn is_bad<T: std::fmt::Debug>(outcome: Result<T, Fault>) {
        let fault = outcome.unwrap_err();
        assert!(matches!(fault, Fault::BadRequest | Fault::UnknownName(_)), "{fault:?}");
    }

    #[test]
    fn administrators_name_one_thing() {
        assert_eq!(key(Some("key=a%2Fb")), Ok(b"a/b".to_vec()));
        assert_eq!(connection(Some("connection=17")), Ok(17));
        for wrong in [None, Some(""), Some("key"), Some("key=a&key=b"), Some("keys=a")] {
            is_bad(key(wrong));
            is_bad(connection(wrong));
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
    #[case(Some("limit=1"), Err(Fault::UnknownName(&["session", "shared"])))]
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
        assert!(roster_query(Some(&query(MAX_KEY_BYTES))).is_ok());
        assert_eq!(roster_query(Some(&query(MAX_KEY_BYTES + 1))), Err(Fault::BadRequest));
    }

    const TOKEN: &str = "000000000000000f00000000000000a0";

    fn read(deed: Deed, form: KeyKind, body: &str) -> Result<Request<'static>, Fault> {
        request(deed, form, Key::new(b"k").unwrap(), body.as_bytes())
    }

    fn some_key() -> Key<'static> {
        Key::new(b"k").unwrap()
    }

    fn acquire(claim: Claim, timeout: u64, ttl: Option<u64>) -> Request<'static> {
        let ttl = ttl.map(|ttl| Ttl::new(ttl).unwrap());
        Request::Acquire { key: some_key(), claim, timeout: Seconds::new(timeout).unwrap(), ttl }
    }

    #[rstest]
    #[case(KeyKind::Lock, r#"{"acquire_timeout_s":0}"#, acquire(Claim::LOCK, 0, None))]
    #[case(
        KeyKind::Lock,
        r#" {"acquire_timeout_s": 10, "lease_ttl_s": 60} "#,
        acquire(Claim::LOCK, 10, Some(60))
    )]
    #[case(
        KeyKind::Lock,
        r#"{"acquire_timeout_s":9223372036,"lease_ttl_s":0}"#,
        acquire(Claim::LOCK, 9_223_372_036, None)
    )]
    #[case(
        KeyKind::Lock,
        r#"{"acquire_timeout_s":1,"lease_ttl_s":null}"#,
        acquire(Claim::LOCK, 1, None)
    )]
    #[case(KeyKind::Shared, r#"{"acquire_timeout_s":1}"#, acquire(Claim::Shared, 1, None))]
    #[case(KeyKind::Semaphore, r#"{"acquire_timeout_s":1,"limit":5}"#, acquire(Claim::Slot(Limit::new(5).unwrap()), 1, None))]
    fn whole_numbers_are_read(
        #[case] form: KeyKind,
        #[case] body: &str,
        #[case] want: Request<'_>,
    ) {
        assert_eq!(read(Deed::Acquire, form, body), Ok(want));
    }

    #[test]
    fn the_other_verbs() {
        let token = Token::parse(TOKEN.as_bytes());
        let named = format!("{{\"token\":\"{TOKEN}\"}}");
        let renewed = format!("{{\"token\":\"{TOKEN}\",\"lease_ttl_s\":7}}");
        let (key, ttl) = (some_key(), Ttl::new(7));
        let timeout = Seconds::new(3).unwrap();
        let cases = [
            (Deed::Release, named.as_str(), Request::Release { key, token }),
            (Deed::Renew, &named, Request::Renew { key, token, ttl: None }),
            (Deed::Renew, &renewed, Request::Renew { key, token, ttl }),
            (Deed::Wait, r#"{"timeout_s":3}"#, Request::Wait { key, timeout }),
            (Deed::Enqueue, "", Request::Enqueue { key, claim: Claim::LOCK, ttl: None }),
            (Deed::Enqueue, "{}", Request::Enqueue { key, claim: Claim::LOCK, ttl: None }),
        ];
        for (deed, body, want) in cases {
            assert_eq!(read(deed, KeyKind::Lock, body), Ok(want), "{body}");
        }
    }

    #[rstest]
    #[case(Deed::Acquire, KeyKind::Lock, "")]
    #[case(Deed::Acquire, KeyKind::Lock, "{}")]
    #[case(Deed::Acquire, KeyKind::Lock, "[]")]
    #[case(Deed::Acquire, KeyKind::Lock, "7")]
    #[case(Deed::Acquire, KeyKind::Lock, "{\"acquire_timeout_s\":0")]
    #[case(Deed::Acquire, KeyKind::Lock, r#"{"acquire_timeout_s":0} x"#)]
    #[case(Deed::Acquire, KeyKind::Lock, r#"{"acquire_timeout_s":-1}"#)]
    #[case(Deed::Acquire, KeyKind::Lock, r#"{"acquire_timeout_s":1.5}"#)]
    #[case(Deed::Acquire, KeyKind::Lock, r#"{"acquire_timeout_s":1.0}"#)]
    #[case(Deed::Acquire, KeyKind::Lock, r#"{"acquire_timeout_s":"1"}"#)]
    #[case(Deed::Acquire, KeyKind::Lock, r#"{"acquire_timeout_s":null}"#)]
    #[case(Deed::Acquire, KeyKind::Lock, r#"{"acquire_timeout_s":9223372037}"#)]
    #[case(Deed::Acquire, KeyKind::Lock, r#"{"acquire_timeout_s":1,"lease_ttl_s":9223372037}"#)]
    #[case(Deed::Acquire, KeyKind::Lock, r#"{"acquire_timeout_s":1,"lease_ttl_s":-1}"#)]
    #[case(Deed::Acquire, KeyKind::Lock, r#"{"acquire_timeout_s":1,"limit":1}"#)]
    #[case(Deed::Acquire, KeyKind::Lock, r#"{"acquire_timeout_s":1,"ttl":1}"#)]
    #[case(Deed::Acquire, KeyKind::Semaphore, r#"{"acquire_timeout_s":1}"#)]
    #[case(Deed::Acquire, KeyKind::Semaphore, r#"{"acquire_timeout_s":1,"limit":0}"#)]
    #[case(Deed::Enqueue, KeyKind::Semaphore, "{}")]
    #[case(Deed::Enqueue, KeyKind::Lock, r#"{"acquire_timeout_s":1}"#)]
    #[case(Deed::Wait, KeyKind::Lock, "{}")]
    #[case(Deed::Wait, KeyKind::Semaphore, r#"{"timeout_s":1,"limit":1}"#)]
    #[case(Deed::Release, KeyKind::Lock, "{}")]
    #[case(Deed::Release, KeyKind::Lock, r#"{"token":""}"#)]
    #[case(Deed::Release, KeyKind::Lock, r#"{"token":"000000000000000F00000000000000A0"}"#)]
    #[case(Deed::Renew, KeyKind::Lock, r#"{"token":7}"#)]
    fn anything_else_is_refused(#[case] deed: Deed, #[case] form: KeyKind, #[case] body: &str) {
        let fault = read(deed, form, body).unwrap_err();
        assert!(matches!(fault, Fault::Invalid(_) | Fault::UnknownName(_)), "{body}");
    }
}
