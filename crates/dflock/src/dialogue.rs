//! The protocol from the client's side: what the words of answers mean. The words are those of [`leases::wire`]. Pure.

use super::error::{ClientError, Refusal};
use super::terms::{ArgumentError, Kind, MAX_LINE_BYTES, Token, seconds};
use leases::wire::{self, Ask, Holder};
use std::time::Duration;

/// The first requests on every connection.
///
/// # Errors
/// A value that does not fit.
pub(super) fn greeting<'a>(
    auth_token: Option<&'a [u8]>,
    name: Option<&'a str>,
    value: Option<&'a str>,
) -> Result<Vec<Ask<'a>>, ClientError> {
    let value = value.map(checked_value).transpose()?;
    let (auth, name) = (auth_token.map(Ask::Auth), name.map(Ask::Name));
    Ok(auth.into_iter().chain(name).chain(value.map(Ask::Value)).collect())
}

fn checked_value(value: &str) -> Result<&str, ArgumentError> {
    let fits = (1..=MAX_LINE_BYTES).contains(&value.len());
    let is_whole = value.trim() == value && !value.chars().any(char::is_control);
    if fits && is_whole { Ok(value) } else { Err(ArgumentError::Value) }
}

/// The answer to a request of the greeting. Servers that do not know names say `error` and continue; one that ends
/// the connection cannot be used. Nor can one that does not know values, if the client has one.
pub(super) fn welcome(ask: &Ask<'_>, line: &str) -> Result<(), ClientError> {
    match (ask, done(line)) {
        (Ask::Name(_), Err(ClientError::Refused(Refusal::Error | Refusal::Draining))) => Ok(()),
        (Ask::Value(_), outcome) => outcome.map_err(|error| error.of_watching("value")),
        (_, outcome) => outcome,
    }
}

/// What a server can do beyond the reference. A token does not show whether it has a fence: those of the Go server look
/// the same, with a fence since 2.1 and random before. So the server says it, or the user does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Abilities {
    /// The tokens have fences.
    has_fences: bool,
    /// The last connection that renewed a hold owns it when its owner closes.
    hands_over: bool,
    /// Grants of a semaphore have slots.
    has_slots: bool,
}

impl Abilities {
    /// The answer to `hello`.
    pub(super) fn read(line: &str) -> Result<Self, ClientError> {
        let words: Vec<&str> = wire::read_hello(line).ok_or_else(|| refused(line))?.collect();
        // Servers that say so also hand holds over.
        let says_fences = words.contains(&"fences");
        let has_slots = words.contains(&"slots");
        Ok(Self { has_fences: says_fences, hands_over: says_fences, has_slots })
    }

    /// The same, if the user says that the tokens have fences.
    pub(super) fn with_fences(self, trusts_fences: bool) -> Self {
        Self { has_fences: self.has_fences || trusts_fences, ..self }
    }

    /// Whether the last connection that renewed a hold owns it when its owner closes.
    pub(super) fn hands_over(self) -> bool {
        self.hands_over
    }

    /// The fence in a token: the first 16 of 32 hex digits.
    fn fence(self, token: &Token) -> Option<u64> {
        let token = leases::Token::parse(token.as_str().as_bytes());
        token.filter(|_| self.has_fences).map(leases::Token::fence)
    }

    fn grant(self, kind: Kind, granted: wire::Granted<'_>) -> Result<Grant, ClientError> {
        let token = Token::new(granted.token).map_err(|_| ClientError::protocol("a token"))?;
        let slot = match kind {
            // To the server this is a lock.
            Kind::Semaphore(1) => self.has_slots.then_some(0),
            Kind::Semaphore(_) => granted.slot,
            Kind::Lock | Kind::Shared | _ => None,
        };
        Ok(Grant { fence: self.fence(&token), token, ttl: seconds(granted.ttl), slot })
    }
}

/// A grant: the token, and the length of the lease from the moment of the grant.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Grant {
    /// The token.
    pub token: Token,
    /// A number that grows with every grant of a key. Storage that remembers the greatest number it has seen can
    /// refuse a holder with an expired lease. `None` from servers that do not say that their tokens contain it, such
    /// as the Go server; see [`Settings::trusts_fences`](crate::Settings::trusts_fences).
    pub fence: Option<u64>,
    /// Length of the lease, not the time that is left: whole seconds, at least one.
    pub ttl: Duration,
    /// Which slot of a semaphore it is, below its limit: the lowest from 0 that no other holder had. The number stays
    /// as long as the hold. `None` for a lock, and from servers that do not say it, such as the Go server.
    pub slot: Option<u32>,
}

/// The answer to an enqueue.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "granted at once or in the queue")]
pub enum Place {
    /// It was granted at once.
    Granted(Grant),
    /// In the queue. Wait next, on the same connection.
    Queued,
}

/// The answer to `l`, `rl`, `sl`, `w` or `sw`. `None` if the time was over first.
pub(super) fn grant(
    line: &str,
    kind: Kind,
    abilities: Abilities,
) -> Result<Option<Grant>, ClientError> {
    Ok(grants(line, 1, kind, abilities)?.and_then(|mut grants| grants.pop()))
}

/// The answer to `al` for this many keys. `None` if one of them is in use.
pub(super) fn grants(
    line: &str,
    many: usize,
    kind: Kind,
    abilities: Abilities,
) -> Result<Option<Vec<Grant>>, ClientError> {
    let grants = wire::read_grants(line, many).ok_or_else(|| refused(line))?;
    let all = |grants: Vec<_>| grants.into_iter().map(|it| abilities.grant(kind, it)).collect();
    grants.map(all).transpose()
}

/// The answer to `e`, `re` or `se`.
pub(super) fn place(line: &str, kind: Kind, abilities: Abilities) -> Result<Place, ClientError> {
    match wire::read_place(line).ok_or_else(|| refused(line))? {
        Some(granted) => abilities.grant(kind, granted).map(Place::Granted),
        None => Ok(Place::Queued),
    }
}

/// The error of `rl` or `re`: a server that does not know them says only `error`.
pub(super) fn not_asked(kind: Kind, error: ClientError) -> ClientError {
    match (kind, error) {
        (Kind::Shared, ClientError::Refused(Refusal::Error)) => ClientError::NotShared,
        (_, error) => error,
    }
}

/// The answer to `n` or `sn`: the length of the lease from now. A bare `ok` means the requested length.
pub(super) fn renewal(line: &str, asked: Option<u32>) -> Result<Duration, ClientError> {
    match (wire::read_renewal(line).ok_or_else(|| refused(line))?, asked) {
        (Some(ttl), _) => Ok(seconds(ttl)),
        (None, Some(asked)) => Ok(seconds(asked)),
        (None, None) => Err(ClientError::protocol(line)),
    }
}

/// How long a hold stays after its connection closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Grace {
    /// This long, if its lease is not over before; `None`: it is released at once.
    For(Duration),
    /// Until its lease ends.
    Lease,
}

/// The answer to `grace`. `None` from servers that do not know the request.
pub(super) fn grace(line: &str) -> Result<Option<Grace>, ClientError> {
    match wire::read_grace(line) {
        Some(Some(time)) => Ok(Some(Grace::For(seconds(time)))),
        Some(None) => Ok(Some(Grace::Lease)),
        None => match refused(line) {
            error if error.is_not_held() => Ok(None),
            error => Err(error),
        },
    }
}

/// The answer to `r`, `sr`, `ping` or `auth`.
pub(super) fn done(line: &str) -> Result<(), ClientError> {
    if wire::is_ok(line) { Ok(()) } else { Err(refused(line)) }
}

/// The answer to `stats`: the JSON text.
pub(super) fn stats(line: &str) -> Result<&str, ClientError> {
    wire::read_body(line).ok_or_else(|| refused(line))
}

/// An answer to `watch`: a tag, the same for the same state on every server, and the holder of a key that is not free.
pub(super) type Sight = (String, Option<Holder>);

/// Reads it.
pub(super) fn sight(line: &str) -> Result<Sight, ClientError> {
    let seen = wire::read_sight(line);
    let (tag, holder) = seen.ok_or_else(|| refused(line).of_watching("watch"))?;
    Ok((tag.to_owned(), holder))
}

fn refused(line: &str) -> ClientError {
    Refusal::from_word(line).map_or_else(|| ClientError::protocol(line), ClientError::Refused)
}

#[cfg(test)]
mod tests {
    use super::{
        Abilities, Ask, Grace, Holder, Place, done, grace, grant, grants, greeting, place, renewal,
        sight, stats, welcome,
    };
    use crate::error::{ClientError, Refusal};
    use crate::terms::{ArgumentError, Kind, MAX_LINE_BYTES};
    use rstest::rstest;
    use std::time::Duration;

    const TOKEN: &str = "00000000000000010123456789abcdef";
    const OURS: Abilities = Abilities { has_fences: true, hands_over: true, has_slots: true };
    const WITHOUT_SLOTS: Abilities = Abilities { has_slots: false, ..OURS };

    #[test]
    fn the_greeting_and_its_answers() {
        let requests = greeting(Some(b"s3cret"), Some("me"), Some("10.0.0.1:80")).unwrap();
        let bytes: Vec<u8> = requests.iter().flat_map(Ask::to_bytes).collect();
        assert_eq!(bytes, b"auth\n_\ns3cret\nname\n_\nme\nvalue\n_\n10.0.0.1:80\n");
        let [auth, name, value] = &*requests else { panic!("{}", requests.len()) };
        for (line, with_auth, with_name) in [
            ("ok", true, true),
            ("error", false, true),
            ("error_draining", false, true),
            ("error_auth", false, false),
            ("what?", false, false),
        ] {
            let welcomes = (welcome(auth, line).is_ok(), welcome(name, line).is_ok());
            assert_eq!(welcomes, (with_auth, with_name), "{line}");
            assert_eq!(welcome(value, line).is_ok(), with_auth, "{line}");
        }
        assert!(matches!(welcome(value, "error"), Err(ClientError::NotWatched("value"))));
        assert!(greeting(None, None, None).unwrap().is_empty());
    }

    #[rstest]
    #[case::ours("ok fences lost slots", Some(OURS))]
    #[case::an_earlier_one("ok fences lost", Some(WITHOUT_SLOTS))]
    #[case::a_later_one("ok dance fences sing slots", Some(OURS))]
    #[case::the_reference("ok", Some(Abilities::default()))]
    #[case::older_than_ping("error", Some(Abilities::default()))]
    #[case::without_a_secret("error_auth", None)]
    #[case::without_its_store("error_draining", None)]
    #[case("fences", None)]
    #[case("error fences", None)]
    #[case("HTTP/1.1 400 Bad Request", None)]
    fn a_server_says_what_it_can_do(#[case] line: &str, #[case] want: Option<Abilities>) {
        assert_eq!(Abilities::read(line).ok(), want);
    }

    #[rstest]
    #[case("00000000000000ff0123456789abcdef", Some(255))]
    #[case("ffffffffffffffff0123456789abcdef", Some(u64::MAX))]
    #[case("00000000000000FF0123456789ABCDEF", None)]
    #[case("00000000000000ff0123456789abcde", None)]
    #[case("+0000000000000ff0123456789abcdef", None)]
    #[case("anything", None)]
    fn the_fence_is_the_first_half(#[case] text: &str, #[case] fence: Option<u64>) {
        let grant =
            |abilities| grant(&format!("ok {text} 33"), Kind::Lock, abilities).unwrap().unwrap();
        assert_eq!((grant(OURS).fence, grant(Abilities::default()).fence), (fence, None));
        // A user who says that a server has fences does not say more.
        let trusted = Abilities::default().with_fences(true);
        assert_eq!((grant(trusted).fence, trusted.hands_over()), (fence, false));
        assert_eq!(OURS.with_fences(false), OURS);
    }

    #[rstest]
    #[case("10.0.0.1:80 and more", true)]
    #[case(&"v".repeat(MAX_LINE_BYTES), true)]
    #[case(&"v".repeat(MAX_LINE_BYTES + 1), false)]
    #[case("", false)]
    #[case(" v", false)]
    #[case("a\nb", false)]
    #[case("a\u{1b}b", false)]
    fn a_value_is_what_fits_on_its_line(#[case] value: &str, #[case] fits: bool) {
        match greeting(None, None, Some(value)) {
            Ok(_) => assert!(fits),
            Err(error) => assert!(
                !fits && matches!(error, ClientError::InvalidArgument(ArgumentError::Value))
            ),
        }
    }

    #[test]
    fn a_grant_gives_token_and_lease() {
        let granted = grant(&format!("ok {TOKEN} 33"), Kind::Lock, OURS).unwrap().unwrap();
        assert_eq!((granted.token.as_str(), granted.ttl.as_secs()), (TOKEN, 33));
        assert_eq!(grant("timeout", Kind::Lock, OURS).unwrap(), None);
        assert_eq!(
            place(&format!("acquired {TOKEN} 33"), Kind::Lock, OURS).unwrap(),
            Place::Granted(granted)
        );
        assert_eq!(place("queued", Kind::Lock, OURS).unwrap(), Place::Queued);
    }

    #[rstest]
    #[case::told(Kind::Semaphore(3), " 2", OURS, Some(2))]
    #[case::not_told(Kind::Semaphore(3), "", WITHOUT_SLOTS, None)]
    #[case::the_only_one(Kind::Semaphore(1), "", OURS, Some(0))]
    #[case::the_only_one_of_an_earlier_server(Kind::Semaphore(1), "", WITHOUT_SLOTS, None)]
    #[case::lock(Kind::Lock, "", OURS, None)]
    #[case::shared(Kind::Shared, "", OURS, None)]
    fn a_semaphore_has_slots(
        #[case] kind: Kind,
        #[case] word: &str,
        #[case] abilities: Abilities,
        #[case] slot: Option<u32>,
    ) {
        let granted = grant(&format!("ok {TOKEN} 33{word}"), kind, abilities).unwrap().unwrap();
        assert_eq!(granted.slot, slot);
        let placed = place(&format!("acquired {TOKEN} 33{word}"), kind, abilities).unwrap();
        assert_eq!(placed, Place::Granted(granted));
    }

    #[test]
    fn several_keys_have_one_answer() {
        let line = format!("ok {TOKEN} 33 {} 33", TOKEN.replace('f', "0"));
        let granted = grants(&line, 2, Kind::Lock, OURS).unwrap().unwrap();
        assert_eq!((granted.len(), granted[0].token.as_str()), (2, TOKEN));
        assert_eq!((granted[1].fence, granted[1].ttl.as_secs()), (Some(1), 33));
        assert_eq!(grants("timeout", 2, Kind::Lock, OURS).unwrap(), None);
        assert!(matches!(
            grants("error", 2, Kind::Lock, OURS),
            Err(ClientError::Refused(Refusal::Error))
        ));
    }

    /// A server that does not grant exactly what was asked for is no server of ours.
    #[rstest]
    #[case::fewer(&format!("ok {TOKEN} 33"))]
    #[case::more(&format!("ok {TOKEN} 33 {TOKEN} 33 {TOKEN} 33"))]
    #[case::without_a_lease(&format!("ok {TOKEN} 33 {TOKEN}"))]
    #[case::no_token(&format!("ok {TOKEN} 33 \u{e9} 33"))]
    #[case::no_lease(&format!("ok {TOKEN} 33 {TOKEN} 0"))]
    #[case::nothing("ok")]
    fn malformed_grants_of_two_keys_are_refused(#[case] line: &str) {
        assert!(
            matches!(grants(line, 2, Kind::Lock, OURS), Err(ClientError::Protocol(_))),
            "{line}"
        );
    }

    #[rstest]
    #[case("error", Refusal::Error)]
    #[case("error_auth", Refusal::Auth)]
    #[case("error_max_locks", Refusal::MaxLocks)]
    #[case("error_max_waiters", Refusal::MaxWaiters)]
    #[case("error_limit_mismatch", Refusal::LimitMismatch)]
    #[case("error_not_enqueued", Refusal::NotEnqueued)]
    #[case("error_already_enqueued", Refusal::AlreadyEnqueued)]
    #[case("error_lease_expired", Refusal::LeaseExpired)]
    #[case("error_draining", Refusal::Draining)]
    #[case("error_not_leader", Refusal::NotLeader)]
    #[case("error_not_leader 10.0.0.1:6388", Refusal::NotLeader)]
    fn every_refusal_is_known_everywhere(#[case] line: &str, #[case] refusal: Refusal) {
        for outcome in [
            grant(line, Kind::Lock, OURS).err(),
            place(line, Kind::Lock, OURS).err(),
            renewal(line, None).err(),
            done(line).err(),
            stats(line).err(),
        ] {
            assert!(matches!(outcome, Some(ClientError::Refused(r)) if r == refusal));
        }
    }

    #[test]
    fn a_renewal_says_how_long_the_lease_lasts() {
        let asked = Some(5);
        assert_eq!(renewal("ok 33", asked).unwrap().as_secs(), 33);
        assert_eq!(renewal("ok", asked).unwrap().as_secs(), 5);
        assert!(matches!(renewal("ok", None), Err(ClientError::Protocol(_))));
        assert!(matches!(renewal("ok soon", None), Err(ClientError::Protocol(_))));
    }

    #[rstest]
    #[case("ok 0", Some(Some(Grace::For(Duration::ZERO))))]
    #[case("ok 60", Some(Some(Grace::For(Duration::from_secs(60)))))]
    #[case("ok lease", Some(Some(Grace::Lease)))]
    #[case("error", Some(None))]
    #[case("error_draining", None)]
    #[case("ok", None)]
    #[case("ok for ever", None)]
    #[case("ok -1", None)]
    #[case("ok +1", None)]
    fn the_answer_to_a_question_for_the_grace(
        #[case] line: &str,
        #[case] want: Option<Option<Grace>>,
    ) {
        assert_eq!(grace(line).ok(), want);
    }

    fn held(fence: u64, name: Option<&str>, value: Option<&str>) -> Option<Holder> {
        let [name, value] = [name, value].map(|text| text.map(str::to_owned));
        Some(Holder { fence, age: Duration::from_millis(1500), holders: 2, name, value })
    }

    #[rstest]
    #[case("free 0123456789abcdef", None)]
    #[case("held 01 7 1500 2 - -", held(7, None, None))]
    #[case("held 01 7 1500 2 a%20b %2D", held(7, Some("a b"), Some("-")))]
    #[case("held 01 7 1500 2 %C3%A9 [::1]:80", held(7, Some("\u{e9}"), Some("[::1]:80")))]
    fn answers_are_parsed(#[case] line: &str, #[case] holder: Option<Holder>) {
        assert_eq!(sight(line).unwrap().1, holder);
    }

    #[rstest]
    #[case("error", "the server cannot be watched: it does not know the request `watch`")]
    #[case("error_max_waiters", "too many are waiting for this key (error_max_waiters)")]
    #[case("ok 1", "not a dflockd answer: ok 1")]
    #[case("free", "not a dflockd answer: free")]
    #[case(
        "HTTP/1.1 400 Bad Request",
        "an HTTP server: name the port of the lock protocol, by default 6388"
    )]
    #[case("held 01 7 1500 2 -", "not a dflockd answer: held 01 7 1500 2 -")]
    #[case("held 01 x 1500 2 - -", "not a dflockd answer: held 01 x 1500 2 - -")]
    #[case("held 01 7 1500 2 - %2", "not a dflockd answer: held 01 7 1500 2 - %2")]
    fn refusals_and_malformed_answers_are_errors(#[case] line: &str, #[case] words: &str) {
        assert_eq!(sight(line).unwrap_err().to_string(), words);
    }
}
