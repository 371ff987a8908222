//! The protocol from the client's side: values to bytes, lines to values. Pure.

use super::error::{ClientError, Refusal};
use super::terms::{Key, Kind, MAX_LINE_BYTES, Seconds, TermError, Token};
use std::time::Duration;

/// The part of a name that is sent.
const MAX_NAME_BYTES: usize = 200;

/// One request, three lines on the wire.
pub(super) enum Request<'a> {
    Auth { token: &'a [u8] },
    Name { name: &'a str },
    Value { value: &'a str },
    Ping,
    Hello,
    Stats,
    StatsWithNames,
    Grace,
    Acquire { key: &'a Key, kind: Kind, timeout: Seconds, ttl: Option<Seconds> },
    AcquireAll { keys: &'a [&'a Key], ttl: Option<Seconds> },
    Enqueue { key: &'a Key, kind: Kind, ttl: Option<Seconds> },
    Wait { key: &'a Key, kind: Kind, timeout: Seconds },
    Release { key: &'a Key, kind: Kind, token: &'a Token },
    Renew { key: &'a Key, kind: Kind, token: &'a Token, ttl: Option<Seconds> },
    Watch { key: &'a Key, timeout: Seconds, last: Option<&'a str> },
}

impl Request<'_> {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::Auth { token } => frame("auth", b"_", token),
            Self::Name { name } => frame("name", b"_", one_line(name).as_bytes()),
            Self::Value { value } => frame("value", b"_", value.as_bytes()),
            Self::Ping => frame("ping", b"_", b"_"),
            // With the words that this client understands. Other servers take it for `ping`.
            Self::Hello => frame("ping", b"hello", b"lost"),
            Self::Stats => frame("stats", b"_", b"_"),
            // Servers that do not know the request do not use the key.
            Self::StatsWithNames => frame("stats", b"long", b"_"),
            Self::Grace => frame("grace", b"_", b"_"),
            Self::Acquire { key, kind, timeout, ttl } => {
                let argument =
                    words([Some(timeout.count()), limit(*kind), ttl.map(Seconds::count)]);
                frame(command(*kind, ["l", "rl", "sl"]), key.as_bytes(), argument.as_bytes())
            }
            Self::AcquireAll { keys, ttl } => {
                let keys: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
                let argument = words([None, None, ttl.map(Seconds::count)]);
                frame("al", &keys.join(&b' '), argument.as_bytes())
            }
            Self::Enqueue { key, kind, ttl } => {
                let argument = words([None, limit(*kind), ttl.map(Seconds::count)]);
                frame(command(*kind, ["e", "re", "se"]), key.as_bytes(), argument.as_bytes())
            }
            Self::Wait { key, kind, timeout } => {
                let argument = timeout.count().to_string();
                frame(command(*kind, ["w", "w", "sw"]), key.as_bytes(), argument.as_bytes())
            }
            Self::Release { key, kind, token } => {
                frame(command(*kind, ["r", "r", "sr"]), key.as_bytes(), token.as_str().as_bytes())
            }
            Self::Renew { key, kind, token, ttl } => {
                let ttl = ttl.map_or_else(String::new, |ttl| format!(" {}", ttl.count()));
                let argument = format!("{}{ttl}", token.as_str());
                frame(command(*kind, ["n", "n", "sn"]), key.as_bytes(), argument.as_bytes())
            }
            Self::Watch { key, timeout, last } => {
                let last = last.map_or_else(String::new, |tag| format!(" {tag}"));
                let argument = format!("{}{last}", timeout.count());
                frame("watch", key.as_bytes(), argument.as_bytes())
            }
        }
    }
}

fn frame(command: &str, key: &[u8], argument: &[u8]) -> Vec<u8> {
    [command.as_bytes(), b"\n", key, b"\n", argument, b"\n"].concat()
}

fn command(kind: Kind, [lock, shared, semaphore]: [&'static str; 3]) -> &'static str {
    match kind {
        Kind::Lock => lock,
        Kind::Shared => shared,
        Kind::Semaphore(_) => semaphore,
    }
}

/// As much of a name as the line of a request can hold.
fn one_line(name: &str) -> String {
    let shown = name.chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut bytes = 0;
    shown
        .take_while(|c| {
            bytes += c.len_utf8();
            bytes <= MAX_NAME_BYTES
        })
        .collect()
}

fn limit(kind: Kind) -> Option<u32> {
    match kind {
        Kind::Lock | Kind::Shared => None,
        Kind::Semaphore(limit) => Some(limit),
    }
}

fn words(numbers: [Option<u32>; 3]) -> String {
    let words: Vec<String> = numbers.iter().flatten().map(u32::to_string).collect();
    words.join(" ")
}

/// The first requests on every connection.
///
/// # Errors
/// A value that does not fit.
pub(super) fn greeting<'a>(
    auth_token: Option<&'a [u8]>,
    name: Option<&'a str>,
    value: Option<&'a str>,
) -> Result<Vec<Request<'a>>, ClientError> {
    let auth = auth_token.map(|token| Request::Auth { token });
    let name = name.map(|name| Request::Name { name });
    let value = value.map(checked_value).transpose()?;
    let value = value.map(|value| Request::Value { value });
    Ok(auth.into_iter().chain(name).chain(value).collect())
}

fn checked_value(value: &str) -> Result<&str, TermError> {
    let fits = (1..=MAX_LINE_BYTES).contains(&value.len());
    let is_whole = value.trim() == value && !value.chars().any(char::is_control);
    if fits && is_whole { Ok(value) } else { Err(TermError::Value) }
}

/// The answer to a request of the greeting. Servers that do not know names say `error` and continue; one that ends
/// the connection cannot be used. A server that does not know values cannot be used to tell one.
pub(super) fn welcome(request: &Request<'_>, line: &str) -> Result<(), ClientError> {
    match (request, done(line)) {
        (Request::Name { .. }, Err(ClientError::Refused(Refusal::Error | Refusal::Draining))) => {
            Ok(())
        }
        (Request::Value { .. }, outcome) => outcome.map_err(|error| error.of_watching("value")),
        (_, outcome) => outcome,
    }
}

/// A release over several connections. One that broke may have carried it, so "holds nothing" then counts as
/// released.
pub(super) struct Releasing {
    may_be_done: bool,
}

impl Releasing {
    /// Nothing has been sent yet.
    pub(super) fn first() -> Self {
        Self { may_be_done: false }
    }

    /// An earlier connection may have carried it.
    pub(super) fn again() -> Self {
        Self { may_be_done: true }
    }

    /// What the outcome on the next connection means.
    pub(super) fn heard(&mut self, outcome: Result<(), ClientError>) -> Result<(), ClientError> {
        match outcome {
            Err(error) if self.may_be_done && error.is_not_held() => Ok(()),
            outcome => {
                self.may_be_done = true;
                outcome
            }
        }
    }
}

/// What a server can do beyond the reference. Only the server itself can say it: the random tokens of the reference
/// look like tokens with a fence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Abilities {
    has_fences: bool,
}

impl Abilities {
    /// The answer to `hello`: `ok` and words, or only `ok`, or `error` from a server that is older than `ping`.
    pub(super) fn read(line: &str) -> Result<Self, ClientError> {
        let mut words = line.split(' ');
        match words.next() {
            Some("ok") => Ok(Self { has_fences: words.any(|word| word == "fences") }),
            Some("error") if line == "error" => Ok(Self::default()),
            Some(_) | None => Err(refused(line)),
        }
    }

    /// Whether the last connection that renewed a hold owns it when its owner closes. Servers with fences do that.
    pub(super) fn hands_over(self) -> bool {
        self.has_fences
    }

    /// The fence in a token: the first 16 of 32 hex digits.
    fn fence(self, token: &Token) -> Option<u64> {
        let is_hex = |b: u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
        let digits = token.as_str();
        if !self.has_fences || digits.len() != 32 || !digits.bytes().all(is_hex) {
            return None;
        }
        u64::from_str_radix(digits.get(..16)?, 16).ok()
    }
}

/// A grant: the token, and the length of the lease from the moment of the grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The token.
    pub token: Token,
    /// A number that grows with every grant of a key. Storage that remembers the greatest number it has seen can
    /// refuse a holder with an expired lease. `None` from servers whose tokens contain no such number, such as the Go
    /// server.
    pub fence: Option<u64>,
    /// Length of the lease, not the time that is left: whole seconds, at least one.
    pub ttl: Duration,
}

/// The answer to an enqueue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// It was granted at once.
    Granted(Grant),
    /// In the queue. Wait next, on the same connection.
    Queued,
}

/// The answer to `l`, `rl`, `sl`, `w` or `sw`. `None` if the time was over first.
pub(super) fn grant(line: &str, abilities: Abilities) -> Result<Option<Grant>, ClientError> {
    match line.split_once(' ') {
        Some(("ok", rest)) => grant_fields(line, rest, abilities).map(Some),
        None if line == "timeout" => Ok(None),
        Some(_) | None => Err(refused(line)),
    }
}

/// The answer to `al`, of which so many keys were asked. `None` if one of them is in use.
pub(super) fn grants(
    line: &str,
    many: usize,
    abilities: Abilities,
) -> Result<Option<Vec<Grant>>, ClientError> {
    let Some(("ok", rest)) = line.split_once(' ') else {
        return if line == "timeout" { Ok(None) } else { Err(refused(line)) };
    };
    let words: Vec<&str> = rest.split(' ').collect();
    if words.len() != 2 * many {
        return Err(ClientError::strange(line));
    }
    words
        .chunks(2)
        .map(|grant| grant_fields(line, &grant.join(" "), abilities))
        .collect::<Result<_, _>>()
        .map(Some)
}

/// The answer to `e`, `re` or `se`.
pub(super) fn place(line: &str, abilities: Abilities) -> Result<Place, ClientError> {
    match line.split_once(' ') {
        Some(("acquired", rest)) => grant_fields(line, rest, abilities).map(Place::Granted),
        None if line == "queued" => Ok(Place::Queued),
        Some(_) | None => Err(refused(line)),
    }
}

/// The error of `rl` or `re`: a server that does not know them says only `error`.
pub(super) fn not_asked(kind: Kind, error: ClientError) -> ClientError {
    match (kind, error) {
        (Kind::Shared, ClientError::Refused(Refusal::Error)) => ClientError::NotShared,
        (_, error) => error,
    }
}

/// The answer to `n` or `sn`: the length of the lease from now. A bare `ok`, which some servers send, means the
/// requested length.
pub(super) fn renewal(line: &str, asked: Option<Seconds>) -> Result<Duration, ClientError> {
    match line.split_once(' ') {
        Some(("ok", seconds)) => time(seconds).ok_or_else(|| ClientError::strange(line)),
        None if line == "ok" => asked.map(Seconds::time).ok_or_else(|| ClientError::strange(line)),
        Some(_) | None => Err(refused(line)),
    }
}

/// How long a hold stays after its connection closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grace {
    /// This long, if its lease is not over before; `None`: it is released at once.
    For(Duration),
    /// Until its lease ends.
    Lease,
}

/// The answer to `grace`. `None` from servers that do not know the request.
pub(super) fn grace(line: &str) -> Result<Option<Grace>, ClientError> {
    match line.split_once(' ') {
        Some(("ok", "lease")) => Ok(Some(Grace::Lease)),
        Some(("ok", seconds)) => time(seconds)
            .map(|time| Some(Grace::For(time)))
            .ok_or_else(|| ClientError::strange(line)),
        Some(_) | None => match refused(line) {
            error if error.is_not_held() => Ok(None),
            error => Err(error),
        },
    }
}

/// The answer to `r`, `sr`, `ping` or `auth`.
pub(super) fn done(line: &str) -> Result<(), ClientError> {
    if line == "ok" { Ok(()) } else { Err(refused(line)) }
}

/// The answer to `stats`: the JSON text after `ok `.
pub(super) fn stats(line: &str) -> Result<&str, ClientError> {
    line.strip_prefix("ok ").ok_or_else(|| refused(line))
}

fn grant_fields(line: &str, fields: &str, abilities: Abilities) -> Result<Grant, ClientError> {
    let (token, ttl) = fields.split_once(' ').ok_or_else(|| ClientError::strange(line))?;
    let token = Token::new(token).map_err(|_| ClientError::strange("a token"))?;
    match time(ttl) {
        Some(ttl) if !ttl.is_zero() => {
            let fence = abilities.fence(&token);
            Ok(Grant { token, fence, ttl })
        }
        Some(_) | None => Err(ClientError::strange("a lease that is no number of seconds")),
    }
}

/// A number of whole seconds, as servers write it.
fn time(seconds: &str) -> Option<Duration> {
    let is_number = !seconds.is_empty() && seconds.bytes().all(|byte| byte.is_ascii_digit());
    let seconds: u32 = seconds.parse().ok().filter(|_| is_number)?;
    Some(Duration::from_secs(seconds.into()))
}

pub(super) fn refused(line: &str) -> ClientError {
    Refusal::from_word(line).map_or_else(|| ClientError::strange(line), ClientError::Refused)
}

#[cfg(test)]
mod tests {
    use super::{
        Abilities, Grace, Place, Request, done, grace, grant, grants, greeting, place, renewal,
        stats, welcome,
    };
    use crate::error::{ClientError, Refusal};
    use crate::terms::{Key, Kind, MAX_LINE_BYTES, Seconds, TermError, Token};
    use rstest::rstest;
    use std::time::Duration;

    fn seconds(count: u64) -> Seconds {
        Seconds::of_lease(Duration::from_secs(count)).unwrap()
    }

    const TOKEN: &str = "00000000000000010123456789abcdef";
    const OURS: Abilities = Abilities { has_fences: true };

    #[rstest]
    #[case(Request::Ping, "ping\n_\n_\n")]
    #[case(Request::Hello, "ping\nhello\nlost\n")]
    #[case(Request::Stats, "stats\n_\n_\n")]
    #[case(Request::StatsWithNames, "stats\nlong\n_\n")]
    #[case(Request::Grace, "grace\n_\n_\n")]
    #[case(Request::Name { name: "me\n\u{1b}" }, "name\n_\nme  \n")]
    #[case(Request::Auth { token: b"s3cret" }, "auth\n_\ns3cret\n")]
    fn requests_without_a_key(#[case] request: Request<'_>, #[case] bytes: &str) {
        assert_eq!(request.to_bytes(), bytes.as_bytes());
    }

    #[test]
    fn the_greeting_and_its_answers() {
        let requests = greeting(Some(b"s3cret"), Some("me"), Some("10.0.0.1:80")).unwrap();
        let bytes: Vec<u8> = requests.iter().flat_map(Request::to_bytes).collect();
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
    #[case::ours("ok fences lost", Some(OURS))]
    #[case::a_later_one("ok dance fences sing", Some(OURS))]
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
        let grant = |abilities| grant(&format!("ok {text} 33"), abilities).unwrap().unwrap();
        assert_eq!((grant(OURS).fence, grant(Abilities::default()).fence), (fence, None));
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
            Err(error) => assert!(!fits && matches!(error, ClientError::Term(TermError::Value))),
        }
    }

    #[rstest]
    #[case(Kind::Lock, Some(60), "l\nk\n10 60\n", "e\nk\n60\n", "w\nk\n10\n")]
    #[case(Kind::Lock, None, "l\nk\n10\n", "e\nk\n\n", "w\nk\n10\n")]
    #[case(Kind::Shared, Some(60), "rl\nk\n10 60\n", "re\nk\n60\n", "w\nk\n10\n")]
    #[case(Kind::Semaphore(3), Some(60), "sl\nk\n10 3 60\n", "se\nk\n3 60\n", "sw\nk\n10\n")]
    #[case(Kind::Semaphore(3), None, "sl\nk\n10 3\n", "se\nk\n3\n", "sw\nk\n10\n")]
    fn requests_for_a_place(
        #[case] kind: Kind,
        #[case] ttl_s: Option<u64>,
        #[case] acquire: &str,
        #[case] enqueue: &str,
        #[case] wait: &str,
    ) {
        let key = &Key::new("k").unwrap();
        let (timeout, ttl) = (seconds(10), ttl_s.map(seconds));
        let text = |request: Request<'_>| String::from_utf8(request.to_bytes()).unwrap();
        assert_eq!(text(Request::Acquire { key, kind, timeout, ttl }), acquire);
        assert_eq!(text(Request::Enqueue { key, kind, ttl }), enqueue);
        assert_eq!(text(Request::Wait { key, kind, timeout }), wait);
    }

    #[rstest]
    #[case(Kind::Lock, "r", "n")]
    #[case(Kind::Shared, "r", "n")]
    #[case(Kind::Semaphore(2), "sr", "sn")]
    fn requests_with_a_token(#[case] kind: Kind, #[case] release: &str, #[case] renew: &str) {
        let (key, token) = (&Key::new("k").unwrap(), &Token::new(TOKEN).unwrap());
        let text = |request: Request<'_>| String::from_utf8(request.to_bytes()).unwrap();
        assert_eq!(text(Request::Release { key, kind, token }), format!("{release}\nk\n{TOKEN}\n"));
        assert_eq!(
            text(Request::Renew { key, kind, token, ttl: Some(seconds(5)) }),
            format!("{renew}\nk\n{TOKEN} 5\n")
        );
        assert_eq!(
            text(Request::Renew { key, kind, token, ttl: None }),
            format!("{renew}\nk\n{TOKEN}\n")
        );
    }

    #[test]
    fn a_grant_gives_token_and_lease() {
        let granted = grant(&format!("ok {TOKEN} 33"), OURS).unwrap().unwrap();
        assert_eq!((granted.token.as_str(), granted.ttl.as_secs()), (TOKEN, 33));
        assert_eq!(grant("timeout", OURS).unwrap(), None);
        assert_eq!(place(&format!("acquired {TOKEN} 33"), OURS).unwrap(), Place::Granted(granted));
        assert_eq!(place("queued", OURS).unwrap(), Place::Queued);
    }

    #[test]
    fn several_keys_are_one_request() {
        let keys = ["b", "a"].map(|key| Key::new(key).unwrap());
        let keys: Vec<&Key> = keys.iter().collect();
        let request = |ttl| Request::AcquireAll { keys: &keys, ttl }.to_bytes();
        assert_eq!(request(Some(seconds(9))), b"al\nb a\n9\n");
        assert_eq!(request(None), b"al\nb a\n\n");
        let line = format!("ok {TOKEN} 33 {} 33", TOKEN.replace('f', "0"));
        let granted = grants(&line, 2, OURS).unwrap().unwrap();
        assert_eq!((granted.len(), granted[0].token.as_str()), (2, TOKEN));
        assert_eq!((granted[1].fence, granted[1].ttl.as_secs()), (Some(1), 33));
        assert_eq!(grants("timeout", 2, OURS).unwrap(), None);
        assert!(matches!(grants("error", 2, OURS), Err(ClientError::Refused(Refusal::Error))));
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
        assert!(matches!(grants(line, 2, OURS), Err(ClientError::Strange(_))), "{line}");
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
    fn every_refusal_is_known_everywhere(#[case] line: &str, #[case] refusal: Refusal) {
        for outcome in [
            grant(line, OURS).err(),
            place(line, OURS).err(),
            renewal(line, None).err(),
            done(line).err(),
            stats(line).err(),
        ] {
            assert!(matches!(outcome, Some(ClientError::Refused(r)) if r == refusal));
        }
    }

    #[rstest]
    #[case("")]
    #[case("ok")]
    #[case("ok ")]
    #[case("ok  33")]
    #[case("ok token")]
    #[case("ok token x")]
    #[case("ok token 0")]
    #[case("ok token -1")]
    #[case("ok token +1")]
    #[case("ok token 33 more")]
    #[case("OK token 33")]
    #[case("queued")]
    #[case("HTTP/1.1 400 Bad Request")]
    fn a_line_other_than_a_grant_is_a_protocol_error(#[case] line: &str) {
        assert!(matches!(grant(line, OURS), Err(ClientError::Strange(_))), "{line}");
    }

    #[test]
    fn a_renewal_says_how_long_the_lease_lasts() {
        let asked = Some(seconds(5));
        assert_eq!(renewal("ok 33", asked).unwrap().as_secs(), 33);
        assert_eq!(renewal("ok", asked).unwrap().as_secs(), 5);
        assert!(matches!(renewal("ok", None), Err(ClientError::Strange(_))));
        assert!(matches!(renewal("ok soon", None), Err(ClientError::Strange(_))));
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

    #[test]
    fn stats_are_what_follows_ok() {
        assert_eq!(stats("ok {\"connections\":1}").unwrap(), "{\"connections\":1}");
        assert!(done("ok").is_ok());
        assert!(matches!(done("ok 1"), Err(ClientError::Strange(_))));
    }
}
