//! How several keys are taken, the same for every client: all at once if they are free and the server can do that,
//! otherwise one after another, in the order of their bytes.
//!
//! A client that waits for a key holds only smaller ones. So clients that take their keys in this order never deadlock,
//! whatever the kinds of the locks, and whatever their servers.

use super::Claim;
use crate::error::ClientError;
use crate::terms::{ArgumentError, Kind, MAX_LINE_BYTES};
use std::sync::Arc;

/// Most keys in one request.
const MOST_TOGETHER: usize = 16;

/// Whether these can be sent as one request, which takes all keys if they are free: locks for one holder alone, of one
/// client, at one server, with leases of one length, on one line.
pub(super) fn go_together(claims: &[Claim]) -> bool {
    let [first, ..] = claims else { return false };
    let (settings, one) = (&first.route.settings, &first.wanted);
    let bytes: usize = claims.iter().map(|claim| claim.wanted.key.as_bytes().len() + 1).sum();
    (2..=MOST_TOGETHER).contains(&claims.len())
        && bytes <= MAX_LINE_BYTES + 1
        && claims.iter().all(|Claim { route, wanted, .. }| {
            matches!(wanted.kind, Kind::Lock | Kind::Semaphore(1))
                && Arc::ptr_eq(&route.settings, settings)
                && settings.servers.know_both(one.key.as_bytes(), wanted.key.as_bytes())
                && wanted.ttl == one.ttl
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

/// The claims in the order of their keys. A client that requested one key twice would wait for itself.
pub(super) fn in_order(
    claims: impl IntoIterator<Item = Claim>,
) -> Result<Vec<Claim>, ArgumentError> {
    let mut claims: Vec<Claim> = claims.into_iter().collect();
    claims.sort_by(|one, other| one.key().as_bytes().cmp(other.key().as_bytes()));
    let is_twice = |pair: &[Claim]| matches!(pair, [one, other] if one.key() == other.key());
    if claims.is_empty() {
        Err(ArgumentError::KeyMissing)
    } else if claims.windows(2).any(is_twice) {
        Err(ArgumentError::KeyTwice)
    } else {
        Ok(claims)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Claim, Client};
    use super::{attempted, go_together, in_order};
    use crate::error::{ClientError, Refusal};
    use crate::settings::Settings;
    use crate::shard::Servers;
    use crate::terms::ArgumentError;
    use rstest::rstest;
    use std::time::Duration;

    fn client(servers: Servers) -> Client {
        Client::new(Settings::new(servers)).unwrap()
    }

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
        let addresses = list.split([',', '|']).map(|it| it.parse().unwrap()).collect();
        let servers = match list.contains('|') {
            true => Servers::AnyOf(addresses),
            false => Servers::Shards(addresses),
        };
        let clients = [(); 2].map(|()| client(servers.clone()));
        let claims = |client_of: fn(usize) -> usize| -> Vec<Claim> {
            let claim = |(at, text): (usize, &str)| {
                let (client, key) = (&clients[client_of(at)], &text[1..]);
                match &text[..1] {
                    "r" => client.shared(key).unwrap(),
                    "t" => client.lock(key).unwrap().ttl(Duration::from_secs(1)).unwrap(),
                    "l" => client.lock(key).unwrap(),
                    slots => client.semaphore(key, slots.parse().unwrap()).unwrap(),
                }
            };
            requests.split_whitespace().enumerate().map(claim).collect()
        };
        assert_eq!(go_together(&claims(|_| 0)), are_one);
        // Another client may have other secrets.
        assert!(!go_together(&claims(|at| usize::from(at == 1))));
    }

    #[rstest]
    #[case(127, 128, true)]
    #[case(128, 128, false)]
    fn keys_are_requested_together_only_if_they_fit_on_one_line(
        #[case] one: usize,
        #[case] other: usize,
        #[case] fit: bool,
    ) {
        let client = client(Servers::Shards(vec!["x".parse().unwrap()]));
        let claims = [vec![b'a'; one], vec![b'b'; other]].map(|key| client.lock(key).unwrap());
        assert_eq!(go_together(&claims), fit);
    }

    #[rstest]
    #[case::granted(Ok(Some(())), Some(true), Some(true))]
    #[case::in_use(Ok(None), Some(false), Some(false))]
    #[case::an_old_server(Err(ClientError::Refused(Refusal::Error)), Some(false), Some(false))]
    #[case::refused(Err(ClientError::Refused(Refusal::MaxLocks)), Some(false), Some(false))]
    #[case::ending(Err(ClientError::Refused(Refusal::Draining)), Some(false), Some(false))]
    #[case::lost(Err(ClientError::closed()), None, Some(false))]
    #[case::silent(Err(ClientError::TimedOut), None, Some(false))]
    #[case::no_server(Err(ClientError::protocol("HTTP/1.1")), None, None)]
    #[case::a_term(Err(ClientError::InvalidArgument(ArgumentError::TimeLong)), None, None)]
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
    #[case::none(&[], Err(ArgumentError::KeyMissing))]
    #[case::twice(&["b", "a", "b"], Err(ArgumentError::KeyTwice))]
    fn keys_are_taken_in_the_order_of_their_bytes(
        #[case] keys: &[&str],
        #[case] want: Result<Vec<&str>, ArgumentError>,
    ) {
        let client = client(Servers::Shards(vec!["x".parse().unwrap()]));
        let sorted = in_order(keys.iter().map(|key| client.lock(*key).unwrap()));
        let names =
            sorted.map(|claims| claims.iter().map(|it| it.key().to_string()).collect::<Vec<_>>());
        assert_eq!(names, want.map(|names| names.into_iter().map(str::to_owned).collect()));
    }
}
