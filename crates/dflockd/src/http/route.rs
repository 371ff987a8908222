//! The paths: a method and a path → a [`Route`], or why there is none.

use super::query::decode_name;
use super::reply::{Fault, JSON};
use hyper::Method;

pub(super) const STYLE: &str = include_str!("page/page.css");
pub(super) const SCRIPT: &str = include_str!("page/page.js");

/// Which secret a path needs, if one is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
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

/// What the key is asked as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
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
    Ask(Form, Deed),
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
pub(super) const ROUTES: [(&str, &str, Route, Access); 27] = [
    ("GET", "/", Route::Page, Access::Open),
    ("GET", "/page.css", Route::Fixed("text/css; charset=utf-8", STYLE), Access::Open),
    ("GET", "/page.js", Route::Fixed("text/javascript; charset=utf-8", SCRIPT), Access::Open),
    (
        "GET",
        "/icon.svg",
        Route::Fixed("image/svg+xml", include_str!("page/icon.svg")),
        Access::Open,
    ),
    ("GET", "/health", Route::Fixed(JSON, "{\"status\":\"ok\"}"), Access::Open),
    ("GET", "/ready", Route::Ready, Access::Open),
    ("GET", "/v1/openapi.json", Route::OpenApi, Access::Open),
    ("GET", "/v1/stats", Route::Stats, Access::Guarded),
    ("GET", "/v1/holders", Route::Holders, Access::Guarded),
    ("GET", "/metrics", Route::Metrics, Access::Numbers),
    ("POST", "/v1/admin/release", Route::Release, Access::Admin),
    ("POST", "/v1/admin/kick", Route::Kick, Access::Admin),
    ("POST", "/v1/sessions", Route::OpenSession, Access::Locks),
    ("DELETE", "/v1/sessions/{}", Route::EndSession, Access::Locks),
    ("POST", "/v1/sessions/{}/ping", Route::PingSession, Access::Locks),
    ("GET", "/v1/locks/{}", Route::ShowKey, Access::Locks),
    ("POST", "/v1/locks/{}", Route::Ask(Form::Lock, Deed::Acquire), Access::Locks),
    ("POST", "/v1/locks/{}/release", Route::Ask(Form::Lock, Deed::Release), Access::Locks),
    ("POST", "/v1/locks/{}/renew", Route::Ask(Form::Lock, Deed::Renew), Access::Locks),
    ("POST", "/v1/locks/{}/enqueue", Route::Ask(Form::Lock, Deed::Enqueue), Access::Locks),
    ("POST", "/v1/locks/{}/wait", Route::Ask(Form::Lock, Deed::Wait), Access::Locks),
    ("GET", "/v1/semaphores/{}", Route::ShowKey, Access::Locks),
    ("POST", "/v1/semaphores/{}", Route::Ask(Form::Semaphore, Deed::Acquire), Access::Locks),
    (
        "POST",
        "/v1/semaphores/{}/release",
        Route::Ask(Form::Semaphore, Deed::Release),
        Access::Locks,
    ),
    ("POST", "/v1/semaphores/{}/renew", Route::Ask(Form::Semaphore, Deed::Renew), Access::Locks),
    (
        "POST",
        "/v1/semaphores/{}/enqueue",
        Route::Ask(Form::Semaphore, Deed::Enqueue),
        Access::Locks,
    ),
    ("POST", "/v1/semaphores/{}/wait", Route::Ask(Form::Semaphore, Deed::Wait), Access::Locks),
];

/// What was found for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found<'a> {
    pub(super) route: Route,
    pub(super) access: Access,
    /// The part of the path that differs, as received; empty if there is none.
    pub(super) name: &'a str,
}

impl Found<'_> {
    /// The bytes of a key in the path.
    pub(super) fn key(&self) -> Option<Vec<u8>> {
        decode_name(self.name)
    }
}

/// Paths are compared as received: nothing is decoded, and no slash is added or removed.
pub(super) fn find<'a>(method: &Method, path: &'a str) -> Result<Found<'a>, Fault> {
    let mut allow = [false; 3];
    for (known, pattern, route, access) in ROUTES {
        let Some(name) = matched(pattern, path) else { continue };
        if method.as_str() == known || (known == "GET" && method == Method::HEAD) {
            return Ok(Found { route, access, name });
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

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    /// The document describes every path but those of the page, and no other.
    #[test]
    fn the_document_has_the_same_paths() {
        let document = include_str!("openapi.json");
        let document: serde_json::Value = serde_json::from_str(document).unwrap();
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
    #[case("POST", "/v1/locks/k", Ok((Route::Ask(Form::Lock, Deed::Acquire), "k")))]
    #[case("POST", "/v1/locks/a%2Fb/wait", Ok((Route::Ask(Form::Lock, Deed::Wait), "a%2Fb")))]
    #[case("POST", "/v1/locks/wait/wait", Ok((Route::Ask(Form::Lock, Deed::Wait), "wait")))]
    #[case("POST", "/v1/locks/release", Ok((Route::Ask(Form::Lock, Deed::Acquire), "release")))]
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
}
