//! Which web pages may use the server: the header Origin, and the answers to it (the Fetch standard, "CORS protocol").
//!
//! A browser lets a page of any origin send simple requests to any server, also to one that listens on loopback; the
//! page only cannot read the answer. A request for a lock may come from such a page only if its origin is allowed. Pure.

use hyper::Method;
use hyper::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD, HOST, HeaderMap, HeaderValue, ORIGIN,
    VARY,
};

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

/// Tells the browser that the page may read the answer.
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

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

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
}
