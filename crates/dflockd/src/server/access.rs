//! The secrets, what each of them permits, and the delays for clients that guess them. Pure.

use leases::{Keys, Moment};
use std::sync::Arc;
use subtle::ConstantTimeEq;

/// A secret that clients must send.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct AuthToken(Vec<u8>);

impl AuthToken {
    /// The shortest time in microseconds that a client with a wrong secret waits for the answer, over any protocol.
    pub(crate) const COOL_DOWN_MICROS: u64 = 100_000;

    /// `None` if it is empty or contains a newline: no request could contain it.
    pub(crate) fn new(text: &[u8]) -> Option<Self> {
        (!text.is_empty() && !text.contains(&b'\n')).then(|| Self(text.to_vec()))
    }

    /// Takes the same time wherever the first difference is; only the length can be learnt.
    pub(crate) fn matches(&self, shown: &[u8]) -> bool {
        self.0.ct_eq(shown).into()
    }
}

/// Never shows the secret.
impl std::fmt::Debug for AuthToken {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("AuthToken(…)")
    }
}

/// The time between two answers to wrong secrets: a hundred answers a second, for all clients together.
const STEP_MICROS: u64 = 10_000;
/// The longest delay of such an answer.
const MOST_MICROS: u64 = 20_000_000;

/// When the last wrong secret is answered.
#[derive(Default)]
pub(super) struct Penalties(Moment);

impl Penalties {
    /// The time of the answer to a client that shows a wrong secret now. Such answers are delayed and given one after
    /// another, however many clients try at the same time.
    pub(super) fn next(&mut self, now: Moment) -> Moment {
        let after_last = self.0.after_micros(STEP_MICROS);
        let most = now.after_micros(MOST_MICROS);
        self.0 = now.after_micros(AuthToken::COOL_DOWN_MICROS).max(after_last).min(most);
        self.0
    }
}

/// All secrets of a server. Several of one kind are valid at the same time, so that clients can be moved to a new
/// secret one by one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Access {
    /// For all keys.
    pub full: Vec<AuthToken>,
    /// Each for the keys with its prefix.
    pub prefixes: Vec<(Vec<u8>, AuthToken)>,
    /// For changing what others hold, over HTTP.
    pub admin: Vec<AuthToken>,
    /// For reading the metrics, over HTTP.
    pub metrics: Vec<AuthToken>,
}

/// Which keys a connection may ask about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// All.
    All,
    /// The keys that begin with one of these prefixes.
    Prefixes(Arc<[Vec<u8>]>),
}

impl Scope {
    /// Whether a key is in the scope.
    pub(crate) fn has(&self, key: &[u8]) -> bool {
        match self {
            Self::All => true,
            Self::Prefixes(prefixes) => prefixes.iter().any(|prefix| key.starts_with(prefix)),
        }
    }

    /// Whether all these keys are in the scope.
    pub(crate) fn has_all(&self, keys: Keys<'_>) -> bool {
        *self == Self::All || keys.iter().all(|key| self.has(key.bytes()))
    }
}

impl Access {
    /// Whether clients can use locks without a secret.
    pub(crate) fn is_open(&self) -> bool {
        self.full.is_empty() && self.prefixes.is_empty()
    }

    /// The scope of a client that shows this secret. It is compared with every secret, even after one matches, so
    /// that the time shows nothing.
    pub(crate) fn scope(&self, shown: &[u8]) -> Option<Scope> {
        let full = any(&self.full, shown);
        let mut prefixes = Vec::new();
        for (prefix, secret) in &self.prefixes {
            if secret.matches(shown) {
                prefixes.push(prefix.clone());
            }
        }
        match (full, prefixes.is_empty()) {
            (true, _) => Some(Scope::All),
            (false, false) => Some(Scope::Prefixes(prefixes.into())),
            (false, true) => None,
        }
    }

    /// Whether this secret permits changing what others hold.
    pub(crate) fn is_admin(&self, shown: &[u8]) -> bool {
        any(&self.admin, shown)
    }

    /// Whether this secret permits reading everything.
    pub(crate) fn may_read(&self, shown: &[u8]) -> bool {
        any(&self.full, shown) | any(&self.admin, shown)
    }

    /// Whether this secret permits reading the metrics.
    pub(crate) fn may_measure(&self, shown: &[u8]) -> bool {
        self.may_read(shown) | any(&self.metrics, shown)
    }

    /// Bytes of the longest secret that opens a connection.
    pub(crate) fn longest(&self) -> usize {
        let prefixes = self.prefixes.iter().map(|(_, secret)| secret);
        self.full.iter().chain(prefixes).map(|secret| secret.0.len()).max().unwrap_or(0)
    }
}

fn any(secrets: &[AuthToken], shown: &[u8]) -> bool {
    secrets.iter().fold(false, |found, secret| found | secret.matches(shown))
}
