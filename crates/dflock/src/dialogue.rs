//! The protocol from the client's side: values to bytes, lines to values. Pure.

use super::error::{ClientError, Refusal};
use super::terms::{Key, Kind, Token};

/// What of a name is sent.
const MAX_NAME_BYTES: usize = 200;

/// One request, three lines on the wire.
pub(super) enum Request<'a> {
    Auth { token: &'a [u8] },
    Name { name: &'a str },
    Ping,
    Stats,
    StatsWithNames,
    Grace,
    Acquire { key: &'a Key, kind: Kind, timeout_s: u32, ttl_s: Option<u32> },
    Enqueue { key: &'a Key, kind: Kind, ttl_s: Option<u32> },
    Wait { key: &'a Key, kind: Kind, timeout_s: u32 },
    Release { key: &'a Key, kind: Kind, token: &'a Token },
    Renew { key: &'a Key, kind: Kind, token: &'a Token, ttl_s: Option<u32> },
}

impl Request<'_> {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::Auth { token } => frame("auth", b"_", token),
            Self::Name { name } => frame("name", b"_", one_line(name).as_bytes()),
            Self::Ping => frame("ping", b"_", b"_"),
            Self::Stats => frame("stats", b"_", b"_"),
            // The key is not used by servers that do not know the word.
            Self::StatsWithNames => frame("stats", b"long", b"_"),
            Self::Grace => frame("grace", b"_", b"_"),
            Self::Acquire { key, kind, timeout_s, ttl_s } => {
                let argument = words([Some(*timeout_s), limit(*kind), *ttl_s]);
                frame(command(*kind, "l", "sl"), key.as_bytes(), argument.as_bytes())
            }
            Self::Enqueue { key, kind, ttl_s } => {
                let argument = words([None, limit(*kind), *ttl_s]);
                frame(command(*kind, "e", "se"), key.as_bytes(), argument.as_bytes())
            }
            Self::Wait { key, kind, timeout_s } => {
                let argument = timeout_s.to_string();
                frame(command(*kind, "w", "sw"), key.as_bytes(), argument.as_bytes())
            }
            Self::Release { key, kind, token } => {
                frame(command(*kind, "r", "sr"), key.as_bytes(), token.as_str().as_bytes())
            }
            Self::Renew { key, kind, token, ttl_s } => {
                let ttl = ttl_s.map_or_else(String::new, |ttl_s| format!(" {ttl_s}"));
                let argument = format!("{}{ttl}", token.as_str());
                frame(command(*kind, "n", "sn"), key.as_bytes(), argument.as_bytes())
            }
        }
    }
}

fn frame(command: &str, key: &[u8], argument: &[u8]) -> Vec<u8> {
    [command.as_bytes(), b"\n", key, b"\n", argument, b"\n"].concat()
}

fn command(kind: Kind, lock: &'static str, semaphore: &'static str) -> &'static str {
    match kind {
        Kind::Lock => lock,
        Kind::Semaphore(_) => semaphore,
    }
}

/// As much of a name as the line of a request has room for.
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
        Kind::Lock => None,
        Kind::Semaphore(limit) => Some(limit),
    }
}

fn words(numbers: [Option<u32>; 3]) -> String {
    let words: Vec<String> = numbers.iter().flatten().map(u32::to_string).collect();
    words.join(" ")
}

/// What a grant says: the proof, and how long it lasts from the moment it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Proof of the grant.
    pub token: Token,
    /// Length of the lease in seconds, not what is left of it.
    pub ttl_s: u32,
}

/// The answer to an enqueue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// There was room: the grant is ours already.
    Granted(Grant),
    /// In the queue. Wait next, on the same connection.
    Queued,
}

/// The answer to `l`, `sl`, `w` or `sw`. Nothing when the time ran out first.
pub(super) fn grant(line: &str) -> Result<Option<Grant>, ClientError> {
    match line.split_once(' ') {
        Some(("ok", rest)) => grant_fields(line, rest).map(Some),
        None if line == "timeout" => Ok(None),
        Some(_) | None => Err(refused(line)),
    }
}

/// The answer to `e` or `se`.
pub(super) fn place(line: &str) -> Result<Place, ClientError> {
    match line.split_once(' ') {
        Some(("acquired", rest)) => grant_fields(line, rest).map(Place::Granted),
        None if line == "queued" => Ok(Place::Queued),
        Some(_) | None => Err(refused(line)),
    }
}

/// The answer to `n` or `sn`: the seconds the lease lasts from now. A bare `ok`, which some
/// servers send, stands for the seconds asked for.
pub(super) fn renewal(line: &str, asked_s: Option<u32>) -> Result<u32, ClientError> {
    match line.split_once(' ') {
        Some(("ok", seconds)) => seconds.parse().map_err(|_| ClientError::strange(line)),
        None if line == "ok" => asked_s.ok_or_else(|| ClientError::strange(line)),
        Some(_) | None => Err(refused(line)),
    }
}

/// How long a hold stays when the connection that has it closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grace {
    /// So many seconds, if its lease lasts that long; 0: it is given back at once.
    Seconds(u32),
    /// Until its lease ends.
    Lease,
}

/// The answer to `grace`. Nothing from servers that do not know the word.
pub(super) fn grace(line: &str) -> Result<Option<Grace>, ClientError> {
    match line.split_once(' ') {
        Some(("ok", "lease")) => Ok(Some(Grace::Lease)),
        Some(("ok", seconds)) => {
            seconds.parse().map(|s| Some(Grace::Seconds(s))).map_err(|_| ClientError::strange(line))
        }
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

/// The answer to `stats`: the JSON text behind `ok `.
pub(super) fn stats(line: &str) -> Result<&str, ClientError> {
    line.strip_prefix("ok ").ok_or_else(|| refused(line))
}

fn grant_fields(line: &str, fields: &str) -> Result<Grant, ClientError> {
    let (token, ttl_s) = fields.split_once(' ').ok_or_else(|| ClientError::strange(line))?;
    let token = Token::new(token).map_err(|_| ClientError::strange("a token"))?;
    match ttl_s.parse() {
        Ok(ttl_s) if ttl_s > 0 => Ok(Grant { token, ttl_s }),
        Ok(_) | Err(_) => Err(ClientError::strange("a lease that is no number of seconds")),
    }
}

fn refused(line: &str) -> ClientError {
    Refusal::from_word(line).map_or_else(|| ClientError::strange(line), ClientError::Refused)
}

#[cfg(test)]
mod tests {
    use super::{Grace, Place, Request, done, grace, grant, place, renewal, stats};
    use crate::error::{ClientError, Refusal};
    use crate::terms::{Key, Kind, Token};
    use rstest::rstest;

    const TOKEN: &str = "00000000000000010123456789abcdef";

    #[rstest]
    #[case(Request::Ping, "ping\n_\n_\n")]
    #[case(Request::Stats, "stats\n_\n_\n")]
    #[case(Request::StatsWithNames, "stats\nlong\n_\n")]
    #[case(Request::Grace, "grace\n_\n_\n")]
    #[case(Request::Name { name: "me\n\u{1b}" }, "name\n_\nme  \n")]
    #[case(Request::Auth { token: b"s3cret" }, "auth\n_\ns3cret\n")]
    fn requests_without_a_key(#[case] request: Request<'_>, #[case] bytes: &str) {
        assert_eq!(request.to_bytes(), bytes.as_bytes());
    }

    #[rstest]
    #[case(Kind::Lock, Some(60), "l\nk\n10 60\n", "e\nk\n60\n", "w\nk\n10\n")]
    #[case(Kind::Lock, None, "l\nk\n10\n", "e\nk\n\n", "w\nk\n10\n")]
    #[case(Kind::Semaphore(3), Some(60), "sl\nk\n10 3 60\n", "se\nk\n3 60\n", "sw\nk\n10\n")]
    #[case(Kind::Semaphore(3), None, "sl\nk\n10 3\n", "se\nk\n3\n", "sw\nk\n10\n")]
    fn requests_for_a_place(
        #[case] kind: Kind,
        #[case] ttl_s: Option<u32>,
        #[case] acquire: &str,
        #[case] enqueue: &str,
        #[case] wait: &str,
    ) {
        let key = &Key::new("k").unwrap();
        let text = |request: Request<'_>| String::from_utf8(request.to_bytes()).unwrap();
        assert_eq!(text(Request::Acquire { key, kind, timeout_s: 10, ttl_s }), acquire);
        assert_eq!(text(Request::Enqueue { key, kind, ttl_s }), enqueue);
        assert_eq!(text(Request::Wait { key, kind, timeout_s: 10 }), wait);
    }

    #[rstest]
    #[case(Kind::Lock, "r", "n")]
    #[case(Kind::Semaphore(2), "sr", "sn")]
    fn requests_with_a_token(#[case] kind: Kind, #[case] release: &str, #[case] renew: &str) {
        let (key, token) = (&Key::new("k").unwrap(), &Token::new(TOKEN).unwrap());
        let text = |request: Request<'_>| String::from_utf8(request.to_bytes()).unwrap();
        assert_eq!(text(Request::Release { key, kind, token }), format!("{release}\nk\n{TOKEN}\n"));
        assert_eq!(
            text(Request::Renew { key, kind, token, ttl_s: Some(5) }),
            format!("{renew}\nk\n{TOKEN} 5\n")
        );
        assert_eq!(
            text(Request::Renew { key, kind, token, ttl_s: None }),
            format!("{renew}\nk\n{TOKEN}\n")
        );
    }

    #[test]
    fn a_grant_gives_token_and_lease() {
        let granted = grant(&format!("ok {TOKEN} 33")).unwrap().unwrap();
        assert_eq!((granted.token.as_str(), granted.ttl_s), (TOKEN, 33));
        assert_eq!(grant("timeout").unwrap(), None);
        assert_eq!(place(&format!("acquired {TOKEN} 33")).unwrap(), Place::Granted(granted));
        assert_eq!(place("queued").unwrap(), Place::Queued);
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
            grant(line).err(),
            place(line).err(),
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
    #[case("ok token 33 more")]
    #[case("OK token 33")]
    #[case("queued")]
    #[case("HTTP/1.1 400 Bad Request")]
    fn a_line_that_is_no_grant_is_strange(#[case] line: &str) {
        assert!(matches!(grant(line), Err(ClientError::Strange(_))), "{line}");
    }

    #[test]
    fn a_renewal_says_how_long_the_lease_lasts() {
        assert_eq!(renewal("ok 33", Some(5)).unwrap(), 33);
        assert_eq!(renewal("ok", Some(5)).unwrap(), 5);
        assert!(matches!(renewal("ok", None), Err(ClientError::Strange(_))));
        assert!(matches!(renewal("ok soon", None), Err(ClientError::Strange(_))));
    }

    #[rstest]
    #[case("ok 0", Some(Some(Grace::Seconds(0))))]
    #[case("ok 60", Some(Some(Grace::Seconds(60))))]
    #[case("ok lease", Some(Some(Grace::Lease)))]
    #[case("error", Some(None))]
    #[case("error_draining", None)]
    #[case("ok", None)]
    #[case("ok for ever", None)]
    #[case("ok -1", None)]
    fn what_a_hold_outlives(#[case] line: &str, #[case] want: Option<Option<Grace>>) {
        assert_eq!(grace(line).ok(), want);
    }

    #[test]
    fn stats_are_what_follows_ok() {
        assert_eq!(stats("ok {\"connections\":1}").unwrap(), "{\"connections\":1}");
        assert!(done("ok").is_ok());
        assert!(matches!(done("ok 1"), Err(ClientError::Strange(_))));
    }
}
