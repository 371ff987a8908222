//! The paths: a method and a path → a [`Route`], or why there is none.

use super::reply::Fault;
use hyper::Method;

/// Which secret a path needs, if one is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// Shows nothing about locks.
    Open,
    /// Shows keys, addresses and numbers.
    Guarded,
    /// Shows numbers only.
    Numbers,
    /// Changes holds of other clients.
    Admin,
}

/// The action of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    Page,
    Style,
    Script,
    Icon,
    Health,
    Ready,
    Stats,
    Holders,
    Metrics,
    Release,
    Kick,
}

/// All paths.
pub(super) const ROUTES: [(&str, Route, Access); 11] = [
    ("/", Route::Page, Access::Open),
    ("/page.css", Route::Style, Access::Open),
    ("/page.js", Route::Script, Access::Open),
    ("/icon.svg", Route::Icon, Access::Open),
    ("/health", Route::Health, Access::Open),
    ("/ready", Route::Ready, Access::Open),
    ("/v1/stats", Route::Stats, Access::Guarded),
    ("/v1/holders", Route::Holders, Access::Guarded),
    ("/metrics", Route::Metrics, Access::Numbers),
    ("/v1/admin/release", Route::Release, Access::Admin),
    ("/v1/admin/kick", Route::Kick, Access::Admin),
];

/// Paths are compared as received: nothing is decoded, and no slash is added or removed.
pub(super) fn find(method: &Method, path: &str) -> Result<(Route, Access), Fault> {
    let row = ROUTES.iter().find(|(known, ..)| *known == path);
    let &(_, route, access) = row.ok_or(Fault::NotFound)?;
    match access {
        Access::Admin if method == Method::POST => Ok((route, access)),
        Access::Admin => Err(Fault::PostOnly),
        Access::Open | Access::Guarded | Access::Numbers => {
            let is_reading = method == Method::GET || method == Method::HEAD;
            if is_reading { Ok((route, access)) } else { Err(Fault::MethodNotAllowed) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("/nowhere")]
    #[case("")]
    #[case("*")]
    #[case("//")]
    #[case("/health/")]
    #[case("/Health")]
    #[case("/%68ealth")]
    #[case("/page.css/../health")]
    #[case("/v1/sessions")]
    #[case("/v1/locks/k")]
    fn other_paths_are_not_there(#[case] path: &str) {
        for method in [Method::GET, Method::POST, Method::OPTIONS] {
            assert_eq!(find(&method, path), Err(Fault::NotFound));
        }
    }

    #[test]
    fn only_reading_is_allowed_but_for_administrators() {
        for (path, route, access) in ROUTES {
            let reads = access != Access::Admin;
            for method in [Method::GET, Method::HEAD] {
                let want = if reads { Ok((route, access)) } else { Err(Fault::PostOnly) };
                assert_eq!(find(&method, path), want);
            }
            let want = if reads { Err(Fault::MethodNotAllowed) } else { Ok((route, access)) };
            assert_eq!(find(&Method::POST, path), want);
            for method in [Method::PUT, Method::DELETE, Method::OPTIONS] {
                assert!(find(&method, path).is_err());
            }
        }
    }
}
