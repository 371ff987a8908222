//! How several keys are taken, the same for every client: all at once if they are free and the server can do that,
//! otherwise one after another, in the order of their bytes. Pure.
//!
//! A client that waits for a key holds only smaller ones. So clients that take their keys in this order never deadlock,
//! whatever the kinds of the locks, and whatever their servers.

use super::error::ClientError;
use super::shard::Servers;
use super::terms::{Key, Kind, MAX_LINE_BYTES, TermError, Wanted};

/// Most keys in one request.
const MOST_TOGETHER: usize = 16;

/// One of several requests. `servers` is that of its client.
#[derive(Clone, Copy)]
pub(super) struct Part<'a> {
    pub(super) servers: &'a Servers,
    pub(super) wanted: &'a Wanted,
}

/// Whether these can be sent as one request, which takes all keys if they are free: locks for one holder alone, of one
/// client, at one server, with leases of one length, on one line.
pub(super) fn go_together(parts: &[Part<'_>]) -> bool {
    let [first, ..] = parts else { return false };
    let bytes: usize = parts.iter().map(|part| part.wanted.key.as_bytes().len() + 1).sum();
    (2..=MOST_TOGETHER).contains(&parts.len())
        && bytes <= MAX_LINE_BYTES + 1
        && parts.iter().all(|part| {
            let (wanted, other) = (part.wanted, first.wanted);
            matches!(wanted.kind, Kind::Lock | Kind::Semaphore(1))
                && std::ptr::eq(part.servers, first.servers)
                && first.servers.know_both(other.key.as_bytes(), wanted.key.as_bytes())
                && wanted.ttl == other.ttl
        })
}

/// What follows from the outcome of that request: the keys, or `None`: they are taken one after another. So it is if
/// one of them is in use, and if the server refuses, because it does not know the request or for a reason that
/// it tells again; for a client that bears broken connections also after one.
///
/// # Errors
/// The failure of the whole.
pub(super) fn attempted<T>(
    outcome: Result<Option<T>, ClientError>,
    is_persistent: bool,
) -> Result<Option<T>, ClientError> {
    match outcome {
        Err(ClientError::Refused(_)) => Ok(None),
        Err(error) if is_persistent && error.is_passing() => Ok(None),
        outcome => outcome,
    }
}

/// The requests in the order of their keys. A client that requested one key twice would wait for itself.
pub(super) fn in_order<T>(
    requests: impl IntoIterator<Item = T>,
    key: impl Fn(&T) -> &Key,
) -> Result<Vec<T>, TermError> {
    let mut requests: Vec<T> = requests.into_iter().collect();
    requests.sort_by(|one, other| key(one).as_bytes().cmp(key(other).as_bytes()));
    let is_twice = |pair: &[T]| matches!(pair, [one, other] if key(one) == key(other));
    if requests.is_empty() {
        Err(TermError::KeyMissing)
    } else if requests.windows(2).any(is_twice) {
        Err(TermError::KeyTwice)
    } else {
        Ok(requests)
    }
}

#[cfg(test)]
mod tests {
    use super::{Part, attempted, go_together, in_order};
    use crate::error::{ClientError, Refusal};
    use crate::shard::Servers;
    use crate::terms::{Key, Kind, TermError, Wanted};
    use rstest::rstest;
    use std::time::Duration;

    const SECOND: Option<Duration> = Some(Duration::from_secs(1));

    /// The servers of each client, the clients' requests (`2` is a semaphore of two slots, `1` of one, `r` a reader, `t`
    /// has a lease of its own), and whether they are one request.
    #[rstest]
    #[case::locks("x", "la lb", true)]
    #[case::one("x", "la", false)]
    #[case::none("x", "", false)]
    #[case::sixteen("x", "la lb lc ld le lf lg lh li lj lk ll lm ln lo lp", true)]
    #[case::seventeen("x", "la lb lc ld le lf lg lh li lj lk ll lm ln lo lp lq", false)]
    #[case::slots("x", "la 2b", false)]
    #[case::the_only_slot("x", "la 1b", true)]
    #[case::a_reader("x", "ra lb", false)]
    #[case::a_lease_of_its_own("x", "la tb", false)]
    #[case::leases_of_one_length("x", "ta tb", true)]
    #[case::several_shards("x,y,z", "la lb", false)]
    #[case::one_shard("x,y,z", "la la", true)]
    #[case::any_of("x|y|z", "la lb", true)]
    fn keys_are_requested_together_only_on_one_shard_with_one_lease(
        #[case] list: &str,
        #[case] requests: &str,
        #[case] are_one: bool,
    ) {
        let addresses = || list.split([',', '|']).map(|it| it.parse().unwrap()).collect();
        let servers = if list.contains('|') {
            Servers::AnyOf(addresses())
        } else {
            Servers::Shards(addresses())
        };
        let wanted = |text: &str| {
            let (kind, ttl) = match &text[..1] {
                "r" => (Kind::Shared, None),
                "t" => (Kind::Lock, SECOND),
                "l" => (Kind::Lock, None),
                slots => (Kind::Semaphore(slots.parse().unwrap()), None),
            };
            Wanted { key: Key::new(&text[1..]).unwrap(), kind, ttl }
        };
        let wanted: Vec<Wanted> = requests.split_whitespace().map(wanted).collect();
        let parts: Vec<Part<'_>> =
            wanted.iter().map(|wanted| Part { servers: &servers, wanted }).collect();
        assert_eq!(go_together(&parts), are_one);
        // Another client may have other secrets.
        let others = servers.clone();
        let parts: Vec<Part<'_>> = (0..)
            .zip(parts)
            .map(|(at, part)| match at {
                1 => Part { servers: &others, ..part },
                _ => part,
            })
            .collect();
        assert!(!go_together(&parts));
    }

    #[rstest]
    #[case(127, 128, true)]
    #[case(128, 128, false)]
    fn keys_are_requested_together_only_if_they_fit_on_one_line(
        #[case] one: usize,
        #[case] other: usize,
        #[case] fit: bool,
    ) {
        let keys = [vec![b'a'; one], vec![b'b'; other]].map(|key| Key::new(key).unwrap());
        let servers = Servers::Shards(vec!["x".parse().unwrap()]);
        let keys = keys.map(|key| Wanted { key, kind: Kind::Lock, ttl: None });
        let part = |wanted| Part { servers: &servers, wanted };
        assert_eq!(go_together(&keys.each_ref().map(part)), fit);
    }

    #[rstest]
    #[case::granted(Ok(Some(())), Some(true), Some(true))]
    #[case::in_use(Ok(None), Some(false), Some(false))]
    #[case::an_old_server(Err(ClientError::Refused(Refusal::Error)), Some(false), Some(false))]
    #[case::refused(Err(ClientError::Refused(Refusal::MaxLocks)), Some(false), Some(false))]
    #[case::ending(Err(ClientError::Refused(Refusal::Draining)), Some(false), Some(false))]
    #[case::lost(Err(ClientError::closed()), None, Some(false))]
    #[case::silent(Err(ClientError::Silent), None, Some(false))]
    #[case::no_server(Err(ClientError::strange("HTTP/1.1")), None, None)]
    #[case::a_term(Err(ClientError::Term(TermError::TimeLong)), None, None)]
    fn an_error_of_a_joint_request_has_its_consequence(
        #[case] outcome: Result<Option<()>, ClientError>,
        #[case] once: Option<bool>,
        #[case] persistently: Option<bool>,
        #[values(false, true)] is_persistent: bool,
    ) {
        let found = attempted(outcome, is_persistent).ok().map(|taken| taken.is_some());
        assert_eq!(found, if is_persistent { persistently } else { once });
    }

    #[rstest]
    #[case(&["b", "a"], Ok(vec!["a", "b"]))]
    #[case(&["a", "b"], Ok(vec!["a", "b"]))]
    #[case::by_bytes_not_by_letters(&["a", "B", "\u{e4}"], Ok(vec!["B", "a", "\u{e4}"]))]
    #[case::the_shorter_first(&["ab", "a"], Ok(vec!["a", "ab"]))]
    #[case::one(&["a"], Ok(vec!["a"]))]
    #[case::none(&[], Err(TermError::KeyMissing))]
    #[case::twice(&["b", "a", "b"], Err(TermError::KeyTwice))]
    fn keys_are_taken_in_the_order_of_their_bytes(
        #[case] keys: &[&str],
        #[case] want: Result<Vec<&str>, TermError>,
    ) {
        let keys = keys.iter().map(|key| Key::new(*key).unwrap());
        let sorted = in_order(keys, |key| key);
        let names = sorted.map(|keys| keys.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(names, want.map(|names| names.into_iter().map(str::to_owned).collect()));
    }
}
