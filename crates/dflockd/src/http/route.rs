//! The paths: a method and a path → a [`Route`], or why there is none.

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
    /// Changes holds of other clients.
    Admin,
}

/// The action of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    Page,
    /// This type and body.
    Fixed(&'static str, &'static str),
    Ready,
    Stats,
    Holders,
    Metrics,
    Release,
    Kick,
}

impl Route {
    /// Whether the answer needs the locks, which may be at another server.
    pub(super) const fn is_about_locks(self) -> bool {
        matches!(self, Self::Stats | Self::Holders | Self::Release | Self::Kick)
    }
}

/// All paths.
pub(super) const ROUTES: [(&str, Route, Access); 11] = [
    ("/", Route::Page, Access::Open),
    ("/page.css", Route::Fixed("text/css; charset=utf-8", STYLE), Access::Open),
    ("/page.js", Route::Fixed("text/javascript; charset=utf-8", SCRIPT), Access::Open),
    ("/icon.svg", Route::Fixed("image/svg+xml", include_str!("page/icon.svg")), Access::Open),
    ("/health", Route::Fixed(JSON, "{\"status\":\"ok\"}"), Access::Open),
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
