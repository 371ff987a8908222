//! Checks the headers Host, Authorization and Origin, and answers the last (the Fetch standard, "CORS protocol").
//!
//! A foreign web page can make a browser send requests to this server under a name of its own whose address
//! was changed to ours (DNS rebinding), and read the answers. So a server that listens on loopback answers
//! only to names that cannot be foreign.
//!
//! A browser lets a page of any origin send simple requests to any server, also to one that listens on loopback; the
//! page only cannot read the answer. A request for a lock may come from such a page only if its origin is allowed.
//!
//! [`Rates`] says how many requests an address may make in a second. It is pure.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use hyper::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD, AUTHORIZATION, HOST, HeaderMap,
    HeaderValue, ORIGIN, VARY,
};
use hyper::{Method, Uri, Version};
use leases::Moment;

use super::reply::Fault;
use super::request::SecretNeeded;
use crate::server::Access;

/// Where the server listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// On this machine only.
    Loopback,
    /// On the network, where the administrator decides about names.
    Network,
    /// At the other end of the link to a standby, which has checked names and rights.
    Standby,
}

/// There must be one Host header, as HTTP/1.1 demands, and on loopback its name must be valid there. Programs that
/// speak HTTP/1.0 may leave it out; browsers never do.
pub(super) fn check_host(
    reach: Reach,
    version: Version,
    uri: &Uri,
    headers: &HeaderMap,
) -> Result<(), Fault> {
    let mut hosts = headers.get_all(HOST).iter();
    let host = hosts.next();
    if hosts.next().is_some() || (host.is_none() && version >= Version::HTTP_11) {
        return Err(Fault::BadRequest);
    }
    let host = host.map(|host| host.to_str().map_err(|_| Fault::BadRequest)).transpose()?;
    let named = [host, uri.authority().map(|authority| authority.as_str())];
    let is_good = |name: &str| reach != Reach::Loopback || is_local(name);
    if named.into_iter().flatten().all(is_good) { Ok(()) } else { Err(Fault::WrongHost) }
}

/// `localhost`, a name under it, or an address; a port may follow.
fn is_local(host: &str) -> bool {
    if let Some(rest) = host.strip_prefix('[') {
        return rest.split_once(']').is_some_and(|(address, port)| {
            address.parse::<Ipv6Addr>().is_ok() && (port.is_empty() || port.starts_with(':'))
        });
    }
    let name = host.split_once(':').map_or(host, |(name, _)| name);
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost") || name.parse::<Ipv4Addr>().is_ok()
}

/// The secret in `Authorization: Bearer SECRET`; `None` if there is no such header, or more than one.
pub(super) fn shown(headers: &HeaderMap) -> &[u8] {
    let mut shown = headers.get_all(AUTHORIZATION).iter();
    match (shown.next(), shown.next()) {
        (Some(value), None) => bearer(value.as_bytes()).map_or(b"", <[u8]>::trim_ascii),
        (_, _) => b"",
    }
}

/// Whether the secret permits this; `key` is that of the path, if there is one.
pub(super) fn is_allowed(
    access: &Access,
    needed: SecretNeeded,
    key: &[u8],
    shown: &[u8],
) -> Result<(), Fault> {
    let allowed = match needed {
        SecretNeeded::Open => true,
        SecretNeeded::Guarded => access.is_open() || access.may_read(shown),
        SecretNeeded::Numbers => access.is_open() || access.may_measure(shown),
        SecretNeeded::Locks if access.is_open() => true,
        SecretNeeded::Locks => {
            access.scope(shown).is_some_and(|scope| key.is_empty() || scope.has(key))
        }
        SecretNeeded::Admin if access.admin.is_empty() => return Err(Fault::NoAdmin),
        SecretNeeded::Admin => access.is_admin(shown),
    };
    if allowed { Ok(()) } else { Err(Fault::Unauthorized) }
}

fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, rest) = value.split_at_checked(6)?;
    (scheme.eq_ignore_ascii_case(b"bearer") && rest.starts_with(b" ")).then_some(rest)
}

const ANY: &str = "*";

/// Whether a browser asks what a page may do.
pub(super) fn is_preflight(origins: &[String], method: &Method, headers: &HeaderMap) -> bool {
    let is_asked = headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD);
    !origins.is_empty() && method == Method::OPTIONS && is_asked
}

/// The value of Access-Control-Allow-Origin, if the page of the request may read the answer.
pub(super) fn allowed_origin(origins: &[String], headers: &HeaderMap) -> Option<HeaderValue> {
    let origin = headers.get(ORIGIN)?;
    if origins.iter().any(|it| it == ANY) {
        return Some(HeaderValue::from_static(ANY));
    }
    origins.iter().any(|it| it.as_bytes() == origin.as_bytes()).then(|| origin.clone())
}

/// Whether a request for a lock may come from where it comes: not from a page, from one of this server, or from one of
/// an allowed origin.
pub(super) fn may_ask_from_there(origins: &[String], headers: &HeaderMap) -> bool {
    let Some(origin) = headers.get(ORIGIN) else { return true };
    let own = headers.get(HOST).map(HeaderValue::as_bytes);
    let of_page = [&b"http://"[..], b"https://"]
        .iter()
        .find_map(|scheme| origin.as_bytes().strip_prefix(*scheme));
    of_page.is_some() && of_page == own || allowed_origin(origins, headers).is_some()
}

/// Lets the browser show the answer to the page.
pub(super) fn allow_origin(origin: HeaderValue, headers: &mut HeaderMap) {
    if origin != ANY {
        headers.insert(VARY, HeaderValue::from_static("Origin"));
    }
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    for (name, value) in [
        (ACCESS_CONTROL_ALLOW_METHODS, "GET, POST, DELETE, OPTIONS"),
        (
            ACCESS_CONTROL_ALLOW_HEADERS,
            "Authorization, Content-Type, X-Dflockd-Session, X-Dflockd-Name",
        ),
        (ACCESS_CONTROL_MAX_AGE, "300"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

/// The most addresses that are remembered. If more ask in one moment, all of them start anew.
const MOST_ADDRESSES: usize = 65_536;

/// A bucket of requests for each address: a rate in a second, and a burst that may come at once.
#[derive(Debug)]
pub(crate) struct Rates {
    /// The time that one request takes of the bucket; 0 for no limit.
    each_micros: u64,
    burst_micros: u64,
    /// When the bucket of each address is full again.
    full_at: HashMap<IpAddr, Moment>,
}

impl Rates {
    /// `rate` 0 for no limit.
    pub(crate) fn new(rate: usize, burst: usize) -> Self {
        let rate = u64::try_from(rate).unwrap_or(u64::MAX);
        let each_micros = 1_000_000_u64.checked_div(rate).unwrap_or(0);
        let burst_micros = each_micros.saturating_mul(u64::try_from(burst).unwrap_or(u64::MAX));
        Self { each_micros, burst_micros, full_at: HashMap::new() }
    }

    /// Counts a request, if it may come now.
    pub(crate) fn allow(&mut self, now: Moment, address: Option<IpAddr>) -> bool {
        let Some(address) = address.filter(|_| self.each_micros > 0) else { return true };
        if self.full_at.len() >= MOST_ADDRESSES {
            self.full_at.retain(|_, full_at| *full_at > now);
            if self.full_at.len() >= MOST_ADDRESSES {
                self.full_at.clear();
            }
        }
        let full_at = self.full_at.entry(address).or_insert(now);
        let next = (*full_at).max(now).after_micros(self.each_micros);
        let is_allowed = next.micros_since(now) <= self.burst_micros;
        if is_allowed {
            *full_at = next;
        }
        is_allowed
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;
    use rstest::rstest;

    use super::*;
    use crate::server::AuthToken;

    fn judge(reach: Reach, version: Version, uri: &str, hosts: &[&str]) -> Result<(), Fault> {
        let mut headers = HeaderMap::new();
        for host in hosts {
            headers.append(HOST, HeaderValue::from_bytes(host.as_bytes()).unwrap());
        }
        check_host(reach, version, &uri.parse().unwrap(), &headers)
    }

    #[rstest]
    #[case("localhost")]
    #[case("localhost:6389")]
    #[case("LocalHost.")]
    #[case("locks.localhost:80")]
    #[case("127.0.0.1")]
    #[case("127.0.0.1:6389")]
    #[case("192.0.2.7:1")]
    #[case("[::1]")]
    #[case("[::1]:6389")]
    fn names_that_are_good_on_loopback(#[case] host: &str) {
        assert_eq!(judge(Reach::Loopback, Version::HTTP_11, "/", &[host]), Ok(()));
    }

    #[rstest]
    #[case("evil.example")]
    #[case("evil.example:6389")]
    #[case("localhost.evil.example")]
    #[case("notlocalhost")]
    #[case("127.0.0.1.evil.example")]
    #[case("127.0.0.1@evil.example")]
    #[case("[::1].evil.example")]
    #[case("[evil]")]
    #[case("")]
    fn foreign_host_headers_are_refused_on_loopback(#[case] host: &str) {
        let judge = |reach| judge(reach, Version::HTTP_11, "/", &[host]);
        assert_eq!(judge(Reach::Loopback), Err(Fault::WrongHost));
        assert_eq!(judge(Reach::Network), Ok(()));
    }

    #[rstest]
    #[case(&["Bearer sesame"], true)]
    #[case(&["bearer  sesame "], true)]
    #[case(&["BEARER sesame"], true)]
    #[case(&["Bearer Sesame"], false)]
    #[case(&["Bearer sesam"], false)]
    #[case(&["Bearer sesamee"], false)]
    #[case(&["Bearersesame"], false)]
    #[case(&["Basic sesame"], false)]
    #[case(&["sesame"], false)]
    #[case(&["Bearer"], false)]
    #[case(&["Bearer "], false)]
    #[case(&[""], false)]
    #[case(&[], false)]
    #[case(&["Bearer sesame", "Bearer sesame"], false)]
    fn only_one_bearer_header_counts(#[case] shown: &[&str], #[case] want: bool) {
        let mut headers = HeaderMap::new();
        for value in shown {
            headers.append(AUTHORIZATION, HeaderValue::from_str(value).unwrap());
        }
        assert_eq!(
            is_allowed(&access(b"sesame"), SecretNeeded::Guarded, b"", super::shown(&headers))
                .is_ok(),
            want
        );
    }

    fn access(secret: &[u8]) -> Access {
        Access { full: vec![AuthToken::new(secret).unwrap()], ..Access::default() }
    }

    fn headers(origin: Option<&str>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, HeaderValue::from_static("locks.example:6389"));
        if let Some(origin) = origin {
            headers.insert(ORIGIN, HeaderValue::from_str(origin).unwrap());
        }
        headers
    }

    #[rstest]
    #[case(None, &[], true, None)]
    #[case(Some("http://locks.example:6389"), &[], true, None)]
    #[case(Some("https://locks.example:6389"), &[], true, None)]
    #[case(Some("http://locks.example"), &[], false, None)]
    #[case(Some("http://evil.example"), &[], false, None)]
    #[case(Some("null"), &[], false, None)]
    #[case(Some("http://evil.example"), &["http://app.example"], false, None)]
    #[case(Some("http://app.example"), &["http://app.example"], true, Some("http://app.example"))]
    #[case(Some("http://app.example.evil"), &["http://app.example"], false, None)]
    #[case(Some("http://other.example"), &["http://app.example", "*"], true, Some("*"))]
    #[case(Some("null"), &["*"], true, Some("*"))]
    #[case(None, &["*"], true, None)]
    fn pages_that_may_ask(
        #[case] origin: Option<&str>,
        #[case] origins: &[&str],
        #[case] may: bool,
        #[case] answer: Option<&str>,
    ) {
        let origins: Vec<String> = origins.iter().map(|it| (*it).to_owned()).collect();
        let headers = headers(origin);
        assert_eq!(may_ask_from_there(&origins, &headers), may);
        let allowed = allowed_origin(&origins, &headers);
        assert_eq!(allowed.as_ref().map(|it| it.to_str().unwrap()), answer);
    }

    const fn at(millis: u64) -> Moment {
        Moment::from_micros(millis * 1000)
    }

    fn address(number: u32) -> Option<IpAddr> {
        Some(Ipv4Addr::from(number).into())
    }

    #[test]
    fn a_burst_and_then_the_rate() {
        let mut rates = Rates::new(10, 3);
        let mut ask = |millis| rates.allow(at(millis), address(1));
        assert_eq!([ask(0), ask(0), ask(0), ask(0)], [true, true, true, false]);
        assert_eq!([ask(99), ask(100), ask(100)], [false, true, false]);
        assert_eq!([ask(9000), ask(9000), ask(9000), ask(9000)], [true, true, true, false]);
        assert!(rates.allow(at(9000), address(2)), "another address has its own");
        assert!(rates.allow(at(9000), None), "a Unix socket has no address");
    }

    #[test]
    fn without_a_rate_all_may_come() {
        let mut rates = Rates::new(0, 0);
        assert!((0..1000).all(|_| rates.allow(at(0), address(1))));
        assert!(rates.full_at.is_empty());
    }

    #[test]
    fn however_many_ask_few_are_remembered() {
        let mut rates = Rates::new(1, 1);
        for number in 0..200_000 {
            assert!(rates.allow(at(0), address(number)));
            assert!(rates.full_at.len() <= MOST_ADDRESSES);
        }
    }
}
