//! The keys and values of the journal in etcd. Pure.
//!
//! ```text
//! term       FORMAT/CLUSTER/LONGEST/FENCE/LEADER/COMMIT[/CLUSTER/LEFT]
//! leader     LEADER SECRET plain|tls ADDRESS, on a lease of etcd; present while a leader lives
//! h/FENCE    SALT CLAIM TTL LEFT KEY[ LABEL], one hold
//! ```
//!
//! FENCE, SALT, CLUSTER and LEADER have 16 hexadecimal digits, the others are decimal. FENCE in `term` is the greatest
//! one that was recorded, LONGEST the longest lease in seconds. The second CLUSTER is one in which holds may be missing:
//! nothing is granted there for LEFT microseconds. The other servers reach the leader at ADDRESS and show it SECRET.
//! CLAIM is a number of slots, or `r` for one of the readers of a lock; TTL is in seconds, LEFT in microseconds. `3/0` is
//! the first slot of three; a server that knows no slots cannot read it, and does not lead. A key contains no blank, and a
//! label is the last word.

use leases::journal::RecordedHold;
use leases::{Claim, Key, Label, Limit, Token, Ttl, read_hex};
use std::fmt;

/// The format of all keys and values. A server refuses to lead where it finds a greater one.
pub(super) const FORMAT: u64 = 1;

/// A half-open range of keys in etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) from: Vec<u8>,
    pub(super) to: Vec<u8>,
}

/// Makes and parses the names under one prefix.
#[derive(Clone, Debug)]
pub(super) struct Names {
    prefix: Vec<u8>,
}

impl Names {
    pub(super) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.as_bytes().to_vec() }
    }

    fn name(&self, rest: &str) -> Vec<u8> {
        [&self.prefix, rest.as_bytes()].concat()
    }

    /// All names that begin like this. The last byte is not 0xff.
    fn below(&self, rest: &str) -> Span {
        let from = self.name(rest);
        let mut to = from.clone();
        if let Some(last) = to.last_mut() {
            *last = last.saturating_add(1);
        }
        Span { from, to }
    }

    pub(super) fn term(&self) -> Vec<u8> {
        self.name("term")
    }

    pub(super) fn leader(&self) -> Vec<u8> {
        self.name("leader")
    }

    pub(super) fn hold(&self, fence: u64) -> Vec<u8> {
        self.name(&format!("h/{fence:016x}"))
    }

    pub(super) fn holds(&self) -> Span {
        self.below("h/")
    }

    /// The fence in the name of a hold.
    pub(super) fn read_hold(&self, name: &[u8]) -> Option<u64> {
        read_hex(name.strip_prefix(self.prefix.as_slice())?.strip_prefix(b"h/")?)
    }

    /// What servers of the old format keep under the same prefix: limits, tickets, servers and void tickets.
    pub(super) fn old_format(&self) -> [Span; 4] {
        ["f/", "m/", "t/", "x/"].map(|kind| self.below(kind))
    }
}

/// Identifies one term of one server: a random number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LeaderId(pub(super) u64);

impl fmt::Display for LeaderId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:016x}", self.0)
    }
}

/// The value of `term`: it says which commit was the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Term {
    /// The cluster of etcd; another one means that a backup was restored.
    pub(super) cluster: u64,
    /// No longer lease was recorded.
    pub(super) longest: Ttl,
    /// No greater fence was recorded.
    pub(super) fence: u64,
    pub(super) leader: LeaderId,
    /// The number of the commit in this leader's term.
    pub(super) commit: u64,
    /// Set while holds may be missing.
    pub(super) wait: Option<Wait>,
}

/// How long nothing is granted in a cluster that is not yet the one of `term`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wait {
    pub(super) cluster: u64,
    pub(super) left_micros: u64,
}

/// Why a server must not lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unusable {
    /// A newer version of dflockd has written a format that this one does not know.
    NewerFormat(u64),
    /// The key `term` or a hold is not what any version has written.
    Foreign,
    /// Servers of the old format keep their locks under this prefix.
    OldFormat,
}

impl fmt::Display for Unusable {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NewerFormat(format) => write!(
                out,
                "the locks in etcd have format {format}, and this version knows only {FORMAT}: \
                 install the newer version here, too"
            ),
            Self::Foreign => out.write_str(
                "a key under the prefix was not written by dflockd: choose another prefix",
            ),
            Self::OldFormat => out.write_str(
                "there are locks of an older version under the prefix: stop all servers of that \
                 version, and delete the keys under the prefix when their leases are over",
            ),
        }
    }
}

impl Term {
    pub(super) fn write(&self) -> Vec<u8> {
        let Self { cluster, longest, fence, leader, commit, wait } = self;
        let longest = longest.span().count();
        let wait = wait.map(|wait| format!("/{:016x}/{}", wait.cluster, wait.left_micros));
        let wait = wait.unwrap_or_default();
        format!("{FORMAT}/{cluster:016x}/{longest}/{fence:016x}/{leader}/{commit}{wait}").into()
    }

    /// The first word of every format is its number.
    pub(super) fn read(text: &[u8]) -> Result<Self, Unusable> {
        let words: Vec<&[u8]> = text.split(|byte| *byte == b'/').collect();
        match words.first().copied().and_then(read_decimal) {
            Some(FORMAT) => Self::read_words(&words).ok_or(Unusable::Foreign),
            Some(newer) if newer > FORMAT => Err(Unusable::NewerFormat(newer)),
            Some(_) | None => Err(Unusable::Foreign),
        }
    }

    fn read_words(words: &[&[u8]]) -> Option<Self> {
        let [_, cluster, longest, fence, leader, commit, ref rest @ ..] = words[..] else {
            return None;
        };
        let wait = match *rest {
            [] => None,
            [cluster, left] => {
                Some(Wait { cluster: read_hex(cluster)?, left_micros: read_decimal(left)? })
            }
            _ => return None,
        };
        Some(Self {
            cluster: read_hex(cluster)?,
            longest: Ttl::new(read_decimal(longest)?)?,
            fence: read_hex(fence)?,
            leader: LeaderId(read_hex(leader)?),
            commit: read_decimal(commit)?,
            wait,
        })
    }
}

/// How other servers reach a leader.
#[derive(Clone, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "the record has every field")]
pub struct Contact {
    /// Host and port.
    pub address: String,
    /// What they must show there; without blanks.
    pub secret: String,
    /// Whether they speak TLS there.
    pub is_tls: bool,
}

/// Never shows the secret.
impl fmt::Debug for Contact {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("Contact").field(&self.address).finish_non_exhaustive()
    }
}

/// The value of `leader`.
pub(super) fn write_leader(leader: LeaderId, contact: &Contact) -> Vec<u8> {
    let Contact { address, secret, is_tls } = contact;
    let kind = if *is_tls { "tls" } else { "plain" };
    format!("{leader} {secret} {kind} {address}").into_bytes()
}

/// How the leader is reached; `None` for any other text.
pub(super) fn read_leader(text: &[u8]) -> Option<Contact> {
    let mut words = std::str::from_utf8(text).ok()?.splitn(4, ' ');
    read_hex(words.next()?.as_bytes())?;
    let secret = words.next()?.to_owned();
    let is_tls = match words.next()? {
        "tls" => true,
        "plain" => false,
        _ => return None,
    };
    Some(Contact { address: words.next()?.to_owned(), secret, is_tls })
}

/// The value of a hold.
pub(super) fn write_hold(hold: &RecordedHold) -> Vec<u8> {
    let (salt, ttl, left) = (hold.token.salt(), hold.ttl.span().count(), hold.left_micros);
    let claim = match (hold.claim, hold.slot) {
        (Claim::Slot(limit), Some(slot)) => format!("{}/{slot}", limit.count()),
        (Claim::Slot(limit), None) => limit.count().to_string(),
        (Claim::Shared, _) => "r".to_owned(),
    };
    let mut text = format!("{salt:016x} {claim} {ttl} {left} ").into_bytes();
    text.extend_from_slice(&hold.key);
    if let Some(label) = &hold.label {
        text.push(b' ');
        text.extend_from_slice(label.write().as_bytes());
    }
    text
}

/// The hold with this fence; `None` for any other text.
pub(super) fn read_hold(fence: u64, text: &[u8]) -> Option<RecordedHold> {
    let mut words = text.splitn(6, |byte| *byte == b' ');
    let salt = read_hex(words.next()?)?;
    let mut claim = words.next()?.splitn(2, |byte| *byte == b'/');
    let limit = claim.next()?;
    let slot = match claim.next() {
        Some(slot) => Some(u32::try_from(read_decimal(slot)?).ok()?),
        None => None,
    };
    let claim = match (limit, slot) {
        (b"r", None) => Claim::Shared,
        (limit, _) => Claim::Slot(Limit::new(read_decimal(limit)?)?),
    };
    let ttl = Ttl::new(read_decimal(words.next()?)?)?;
    let left_micros = read_decimal(words.next()?)?;
    let key = Key::new(words.next()?)?.bytes().into();
    let label = match words.next() {
        None => None,
        Some(label) => Some(Label::read(label)?),
    };
    Some(RecordedHold { key, claim, token: Token::new(fence, salt), ttl, left_micros, label, slot })
}

/// A number as we write it: digits only.
fn read_decimal(digits: &[u8]) -> Option<u64> {
    let plain =
        digits.iter().all(u8::is_ascii_digit) && (digits == b"0" || !digits.starts_with(b"0"));
    if !plain {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use leases::{MAX_KEY_BYTES, MAX_SECONDS};
    use proptest::prelude::*;
    use rstest::rstest;

    pub(in crate::journal) fn hold(claim: Claim, label: Option<(&str, &str)>) -> RecordedHold {
        RecordedHold {
            key: b"db/\xffbackup".as_slice().into(),
            claim,
            token: Token::new(0xab, 0xa0),
            ttl: Ttl::new(33).unwrap(),
            left_micros: 32_000_001,
            label: label.map(|(name, value)| Label::new(name, value)),
            slot: None,
        }
    }

    #[rstest]
    #[case(Claim::LOCK, None, b"00000000000000a0 1 33 32000001 db/\xffbackup")]
    #[case(Claim::Shared, None, b"00000000000000a0 r 33 32000001 db/\xffbackup")]
    #[case(Claim::Slot(Limit::new(u64::MAX).unwrap()), None,
        b"00000000000000a0 18446744073709551615 33 32000001 db/\xffbackup")]
    #[case(Claim::LOCK, Some(("al@db[1] job", "10.0.0.1 80")),
        b"00000000000000a0 1 33 32000001 db/\xffbackup al@db[1] job\n10.0.0.1 80")]
    #[case(Claim::LOCK, Some(("", "")), b"00000000000000a0 1 33 32000001 db/\xffbackup \n")]
    fn holds_go_both_ways(
        #[case] claim: Claim,
        #[case] label: Option<(&str, &str)>,
        #[case] text: &[u8],
    ) {
        let hold = hold(claim, label);
        assert_eq!(write_hold(&hold), text);
        assert_eq!(read_hold(0xab, text), Some(hold.clone()));
        for end in 0..text.len() {
            assert_ne!(read_hold(0xab, &text[..end]), Some(hold.clone()), "cut at {end}");
        }
    }

    #[rstest]
    #[case(0, b"00000000000000a0 3/0 33 32000001 db/\xffbackup")]
    #[case(u32::MAX, b"00000000000000a0 3/4294967295 33 32000001 db/\xffbackup")]
    fn slots_go_both_ways(#[case] slot: u32, #[case] text: &[u8]) {
        let claim = Claim::Slot(Limit::new(3).unwrap());
        let hold = RecordedHold { slot: Some(slot), ..hold(claim, None) };
        assert_eq!(write_hold(&hold), text);
        assert_eq!(read_hold(0xab, text), Some(hold));
    }

    #[rstest]
    #[case("")]
    #[case("00000000000000a0")]
    #[case("00000000000000A0 1 33 5 k")]
    #[case("0000000000000a0 1 33 5 k")]
    #[case("00000000000000a0 0 33 5 k")]
    #[case("00000000000000a0 x 33 5 k")]
    #[case("00000000000000a0 r/0 33 5 k")]
    #[case("00000000000000a0 3/ 33 5 k")]
    #[case("00000000000000a0 /1 33 5 k")]
    #[case("00000000000000a0 3/01 33 5 k")]
    #[case("00000000000000a0 3/4294967296 33 5 k")]
    #[case("00000000000000a0 3/1/1 33 5 k")]
    #[case("00000000000000a0 18446744073709551616 33 5 k")]
    #[case("00000000000000a0 1 0 5 k")]
    #[case("00000000000000a0 1 9223372037 5 k")]
    #[case("00000000000000a0 1 +3 5 k")]
    #[case("00000000000000a0 1 03 5 k")]
    #[case("00000000000000a0 1 33  k")]
    #[case("00000000000000a0 1 33 -5 k")]
    #[case("00000000000000a0 1 33 5")]
    #[case("00000000000000a0 1 33 5 ")]
    #[case("00000000000000a0 1 33 5  name\nvalue")]
    #[case("00000000000000a0 1 33 5 k\tk")]
    #[case("00000000000000a0 1 33 5 k label without a line end")]
    fn malformed_holds_are_none(#[case] text: &str) {
        assert_eq!(read_hold(1, text.as_bytes()), None);
    }

    pub(in crate::journal) const TERM: Term = Term {
        cluster: 0xc1,
        longest: Ttl::new(60).unwrap(),
        fence: 0xfe,
        leader: LeaderId(0x1e),
        commit: 12,
        wait: None,
    };
    const TEXT: &str = "1/00000000000000c1/60/00000000000000fe/000000000000001e/12";

    #[test]
    fn a_term_goes_both_ways() {
        assert_eq!(TERM.write(), TEXT.as_bytes());
        assert_eq!(Term::read(TEXT.as_bytes()), Ok(TERM));
        for end in 0..TEXT.len() {
            assert_ne!(Term::read(&TEXT.as_bytes()[..end]), Ok(TERM), "cut at {end}");
        }
        let waits = Term { wait: Some(Wait { cluster: 0xc2, left_micros: 90 }), ..TERM };
        let text = format!("{TEXT}/00000000000000c2/90");
        assert_eq!((waits.write(), Term::read(text.as_bytes())), (text.into(), Ok(waits)));
    }

    #[rstest]
    #[case::empty("", Unusable::Foreign)]
    #[case::another_program("leader-7", Unusable::Foreign)]
    #[case::no_format(
        "0/00000000000000c1/60/00000000000000fe/000000000000001e/12",
        Unusable::Foreign
    )]
    #[case::one_word_more(
        "1/00000000000000c1/60/00000000000000fe/000000000000001e/12/x",
        Unusable::Foreign
    )]
    #[case::one_word_less(
        "1/00000000000000c1/60/00000000000000fe/000000000000001e",
        Unusable::Foreign
    )]
    #[case::no_longest(
        "1/00000000000000c1/0/00000000000000fe/000000000000001e/12",
        Unusable::Foreign
    )]
    #[case::next_format("2/something else", Unusable::NewerFormat(2))]
    #[case::next_format_alone("2", Unusable::NewerFormat(2))]
    #[case::greatest_format("18446744073709551615/x", Unusable::NewerFormat(u64::MAX))]
    #[case::too_great("18446744073709551616/x", Unusable::Foreign)]
    fn other_terms_are_refused(#[case] text: &str, #[case] why: Unusable) {
        assert_eq!(Term::read(text.as_bytes()), Err(why));
    }

    #[test]
    fn names_are_parsed_back() {
        let names = Names::new("p/");
        assert_eq!(names.hold(0x1f), b"p/h/000000000000001f");
        assert_eq!(names.read_hold(b"p/h/000000000000001f"), Some(0x1f));
        for other in
            ["p/h/1f", "q/h/000000000000001f", "p/t/000000000000001f", "p/h/000000000000001fx"]
        {
            assert_eq!(names.read_hold(other.as_bytes()), None, "{other}");
        }
        assert_eq!((names.term(), names.leader()), (b"p/term".to_vec(), b"p/leader".to_vec()));
    }

    /// The spans hold each kind apart from the others.
    #[test]
    fn spans_have_one_kind_of_name() {
        let names = Names::new("p/");
        let within =
            |span: &Span, name: &[u8]| span.from.as_slice() <= name && name < span.to.as_slice();
        let all = [names.holds()].into_iter().chain(names.old_format());
        for (span, kind) in all.zip(["h/0", "f/1", "m/\u{7f}", "t/k\n0", "x/f"]) {
            let name = format!("p/{kind}");
            assert!(within(&span, name.as_bytes()), "{name}");
            for other in [names.term(), names.leader(), b"p/g".to_vec(), b"q/h/0".to_vec()] {
                assert!(!within(&span, &other));
            }
        }
        assert!(
            within(&names.holds(), &names.hold(0)) && within(&names.holds(), &names.hold(u64::MAX))
        );
    }

    #[test]
    fn a_leader_goes_both_ways() {
        for (is_tls, text) in [
            (false, "000000000000001e 5ec7e7 plain 10.0.0.1:6388"),
            (true, "000000000000001e 5ec7e7 tls 10.0.0.1:6388"),
        ] {
            let (address, secret) = ("10.0.0.1:6388".to_owned(), "5ec7e7".to_owned());
            let contact = Contact { address, secret, is_tls };
            assert_eq!(write_leader(LeaderId(0x1e), &contact), text.as_bytes());
            assert_eq!(read_leader(text.as_bytes()), Some(contact));
        }
        for text in [
            "",
            "000000000000001e",
            "000000000000001e 5ec7e7 tls",
            "x 5ec7e7 tls a:1",
            "000000000000001e s maybe a:1",
        ] {
            assert_eq!(read_leader(text.as_bytes()), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn every_hold_is_read_as_it_was_written(
            key in proptest::collection::vec(any::<u8>(), 1..=MAX_KEY_BYTES),
            slots in proptest::option::of(1..=u64::MAX),
            (fence, salt) in any::<(u64, u64)>(),
            (seconds, left_micros) in (1..=MAX_SECONDS, any::<u64>()),
            label in proptest::option::of(("[^\n]*", "[^\n]*")),
            slot in proptest::option::of(any::<u32>()),
        ) {
            prop_assume!(Key::new(&key).is_some());
            let hold = RecordedHold {
                key: key.into(),
                claim: slots.map_or(Claim::Shared, |slots| Claim::Slot(Limit::new(slots).unwrap())),
                token: Token::new(fence, salt),
                ttl: Ttl::new(seconds).unwrap(),
                left_micros,
                label: label.map(|(name, value)| Label::new(name, value)),
                slot: slot.filter(|_| slots.is_some()),
            };
            prop_assert_eq!(read_hold(fence, &write_hold(&hold)), Some(hold));
        }

        #[test]
        fn no_text_is_read_as_another_one(text in "[0-9a-f /]{0,60}") {
            if let Ok(term) = Term::read(text.as_bytes()) {
                prop_assert_eq!(term.write(), text.as_bytes());
            }
            if let Some(hold) = read_hold(7, text.as_bytes()) {
                prop_assert_eq!(write_hold(&hold), text.as_bytes());
            }
        }
    }
}
