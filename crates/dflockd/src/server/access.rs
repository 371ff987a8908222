//! The secrets, and what each of them permits. Pure.

use std::sync::Arc;
use subtle::ConstantTimeEq;

/// A secret that somebody must show.
#[derive(Clone, PartialEq, Eq)]
pub struct AuthToken(Vec<u8>);

impl AuthToken {
    /// How long whoever shows a wrong one waits at least for the answer, over whatever protocol:
    /// in microseconds.
    pub const COOL_DOWN_MICROS: u64 = 100_000;

    /// `None` when empty or with a newline, which no request could contain.
    pub fn new(text: &[u8]) -> Option<Self> {
        (!text.is_empty() && !text.contains(&b'\n')).then(|| Self(text.to_vec()))
    }

    /// Takes the same time wherever the first difference is; only the length can be learnt.
    pub fn matches(&self, shown: &[u8]) -> bool {
        self.0.ct_eq(shown).into()
    }
}

/// Never shows the secret.
impl std::fmt::Debug for AuthToken {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("AuthToken(…)")
    }
}

/// All secrets of a server. Several of one kind are good at a time, so that clients can be given
/// another one step by step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// For all keys.
    pub full: Vec<AuthToken>,
    /// For keys that begin so.
    pub prefixes: Vec<(Vec<u8>, AuthToken)>,
    /// For changing what others hold, over HTTP.
    pub admin: Vec<AuthToken>,
    /// For reading the numbers, over HTTP.
    pub metrics: Vec<AuthToken>,
}

/// Which keys a connection may ask about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All.
    All,
    /// Those that begin with one of these.
    Prefixes(Arc<[Vec<u8>]>),
}

impl Scope {
    /// Whether a key is among them.
    pub fn has(&self, key: &[u8]) -> bool {
        match self {
            Self::All => true,
            Self::Prefixes(prefixes) => prefixes.iter().any(|prefix| key.starts_with(prefix)),
        }
    }
}

impl Access {
    /// Nobody need show anything to use locks.
    pub fn is_open(&self) -> bool {
        self.full.is_empty() && self.prefixes.is_empty()
    }

    /// What somebody who shows this may ask about. Every secret is looked at, whichever fits.
    pub fn scope(&self, shown: &[u8]) -> Option<Scope> {
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

    /// May change what others hold.
    pub fn is_admin(&self, shown: &[u8]) -> bool {
        any(&self.admin, shown)
    }

    /// May read everything there is to read.
    pub fn may_read(&self, shown: &[u8]) -> bool {
        any(&self.full, shown) | any(&self.admin, shown)
    }

    /// May read the numbers.
    pub fn may_measure(&self, shown: &[u8]) -> bool {
        self.may_read(shown) | any(&self.metrics, shown)
    }

    /// Bytes of the longest secret that opens a connection.
    pub fn longest(&self) -> usize {
        let prefixes = self.prefixes.iter().map(|(_, secret)| secret);
        self.full.iter().chain(prefixes).map(|secret| secret.0.len()).max().unwrap_or(0)
    }
}

fn any(secrets: &[AuthToken], shown: &[u8]) -> bool {
    secrets.iter().fold(false, |found, secret| found | secret.matches(shown))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn secret(text: &str) -> AuthToken {
        AuthToken::new(text.as_bytes()).unwrap()
    }

    fn access() -> Access {
        Access {
            full: vec![secret("old"), secret("new")],
            prefixes: vec![
                (b"jobs/".to_vec(), secret("jobs")),
                (b"cron/".to_vec(), secret("jobs")),
            ],
            admin: vec![secret("admin")],
            metrics: vec![secret("numbers")],
        }
    }

    #[rstest]
    #[case("old", Some(Scope::All))]
    #[case("new", Some(Scope::All))]
    #[case("jobs", Some(Scope::Prefixes([b"jobs/".to_vec(), b"cron/".to_vec()].into())))]
    #[case("admin", None)]
    #[case("numbers", None)]
    #[case("", None)]
    fn scopes(#[case] shown: &str, #[case] want: Option<Scope>) {
        assert_eq!(access().scope(shown.as_bytes()), want);
    }

    #[rstest]
    #[case("old", false, true, true)]
    #[case("jobs", false, false, false)]
    #[case("admin", true, true, true)]
    #[case("numbers", false, false, true)]
    #[case("other", false, false, false)]
    fn rights(#[case] shown: &str, #[case] admin: bool, #[case] read: bool, #[case] measure: bool) {
        let (access, shown) = (access(), shown.as_bytes());
        assert_eq!(access.is_admin(shown), admin);
        assert_eq!(access.may_read(shown), read);
        assert_eq!(access.may_measure(shown), measure);
    }

    #[rstest]
    #[case(b"jobs/x", true)]
    #[case(b"jobs/", true)]
    #[case(b"jobs", false)]
    #[case(b"xjobs/", false)]
    fn a_prefix_is_a_beginning(#[case] key: &[u8], #[case] has: bool) {
        assert_eq!(access().scope(b"jobs").unwrap().has(key), has);
        assert!(Scope::All.has(key));
    }
}
