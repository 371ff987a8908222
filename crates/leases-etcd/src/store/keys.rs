//! The names of the keys in etcd, and the text of tickets. Pure.
//!
//! ```text
//! m/KEY           how many may hold KEY, in decimal; on no lease
//! t/KEY\nNONCE    a ticket: one holder or waiter of KEY; a waiting one is on its front-end's lease
//! f/FRONT         a front-end (one dflockd) lives; on its lease
//! x/NONCE         the outcome of creating this ticket was unknown; it must not be created any more
//! ```
//!
//! A key of the protocol contains no line end, so the first line end is its end. Numbers have 16 hexadecimal
//! digits, unless marked as decimal.

use leases::ownership::Standing;
use leases::{Claim, Label, Limit, Seconds, Ttl};
use std::fmt;
use std::sync::Arc;

/// A half-open range of keys in etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) from: Vec<u8>,
    pub(super) to: Vec<u8>,
}

/// One dflockd process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Front(pub(super) u64);

impl fmt::Display for Front {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:016x}", self.0)
    }
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

    fn name(&self, kind: u8, rest: &[&[u8]]) -> Vec<u8> {
        let mut name = self.prefix.clone();
        name.extend([kind, b'/']);
        rest.iter().for_each(|part| name.extend_from_slice(part));
        name
    }

    pub(super) fn limit(&self, key: &[u8]) -> Vec<u8> {
        self.name(b'm', &[key])
    }

    pub(super) fn limits(&self) -> Span {
        all_below(self.name(b'm', &[]))
    }

    pub(super) fn ticket(&self, key: &[u8], nonce: u64) -> Vec<u8> {
        self.name(b't', &[key, format!("\n{nonce:016x}").as_bytes()])
    }

    /// The tickets of one key.
    pub(super) fn tickets(&self, key: &[u8]) -> Span {
        all_below(self.name(b't', &[key, b"\n"]))
    }

    pub(super) fn all_tickets(&self) -> Span {
        all_below(self.name(b't', &[]))
    }

    pub(super) fn front(&self, front: Front) -> Vec<u8> {
        self.name(b'f', &[front.to_string().as_bytes()])
    }

    pub(super) fn fronts(&self) -> Span {
        all_below(self.name(b'f', &[]))
    }

    pub(super) fn tombstone(&self, nonce: u64) -> Vec<u8> {
        self.name(b'x', &[format!("{nonce:016x}").as_bytes()])
    }

    fn after<'n>(&self, kind: u8, name: &'n [u8]) -> Option<&'n [u8]> {
        name.strip_prefix(self.prefix.as_slice())?.strip_prefix(&[kind, b'/'])
    }

    pub(super) fn read_limit<'n>(&self, name: &'n [u8]) -> Option<&'n [u8]> {
        self.after(b'm', name)
    }

    /// The key and the nonce in a ticket's name.
    pub(super) fn read_ticket<'n>(&self, name: &'n [u8]) -> Option<(&'n [u8], u64)> {
        let rest = self.after(b't', name)?;
        let end = rest.iter().position(|byte| *byte == b'\n')?;
        let (key, nonce) = rest.split_at(end);
        Some((key, read_hex(nonce.get(1..)?)?))
    }

    pub(super) fn read_front(&self, name: &[u8]) -> Option<Front> {
        self.after(b'f', name).and_then(read_hex).map(Front)
    }
}

/// All names that begin with these bytes. The last byte is not 0xff.
fn all_below(from: Vec<u8>) -> Span {
    let mut to = from.clone();
    if let Some(last) = to.last_mut() {
        *last = last.saturating_add(1);
    }
    Span { from, to }
}

fn read_hex(digits: &[u8]) -> Option<u64> {
    let lower = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
    if digits.len() != 16 || !digits.iter().all(lower) {
        return None;
    }
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// A connection of some front-end: the number by which `stats` and the log of that front-end name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Party {
    pub(super) front: Front,
    pub(super) serial: u64,
}

impl fmt::Display for Party {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}", self.front, self.serial)
    }
}

/// The state of a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// In the queue; ends with its front-end.
    Waiting,
    /// A hold; stays after the end of its front-end, until its lease is over.
    Held,
}

/// Whether a ticket is for one holder alone, or for one of the readers that share a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Share {
    /// A slot of its own.
    Alone,
    /// One of the readers.
    Shared,
}

impl Share {
    pub(super) const fn of(claim: Claim) -> Self {
        match claim {
            Claim::Slot(_) => Self::Alone,
            Claim::Shared => Self::Shared,
        }
    }

    /// The claim of a ticket on a key with this limit.
    pub(super) const fn claim(self, limit: Limit) -> Claim {
        match self {
            Self::Alone => Claim::Slot(limit),
            Self::Shared => Claim::Shared,
        }
    }

    /// Parses the text of a ticket. Foreign text under our prefix counts as alone, so nothing is shared with it.
    pub(super) fn read(text: &[u8]) -> Self {
        match text.first() {
            Some(b'x' | b'y') => Self::Shared,
            Some(_) | None => Self::Alone,
        }
    }
}

/// The texts of the tickets of readers are greater than this, and no other text of a ticket is.
pub(super) const ALONE_BELOW: &[u8] = b"x";

/// The content of a ticket. Its place in the queue is its create revision, which etcd keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ticket {
    pub(super) stage: Stage,
    pub(super) share: Share,
    /// The front-end that wrote the lease last, and ends it on time.
    pub(super) keeper: Front,
    pub(super) standing: Standing<Party>,
    /// Its owner, even after the owner has gone.
    pub(super) last_owner: Party,
    pub(super) ttl: Ttl,
    /// The label of its holder.
    pub(super) label: Option<Arc<Label>>,
}

impl Ticket {
    pub(super) const fn new(stage: Stage, share: Share, owner: Party, ttl: Ttl) -> Self {
        let standing = Standing::of(owner);
        let (keeper, last_owner) = (owner.front, owner);
        Self { stage, share, keeper, standing, last_owner, ttl, label: None }
    }

    /// The same with another standing.
    pub(super) fn with(self, standing: Standing<Party>) -> Self {
        Self { standing, last_owner: standing.owner.unwrap_or(self.last_owner), ..self }
    }

    /// The same as a hold.
    pub(super) fn held(&self) -> Self {
        Self { stage: Stage::Held, ..self.clone() }
    }

    /// The longest time that it lasts if nobody changes it.
    pub(super) fn lasts(&self) -> Seconds {
        self.standing.lasts(self.ttl)
    }

    pub(super) fn write(&self) -> Vec<u8> {
        let stage = match (self.stage, self.share) {
            (Stage::Waiting, Share::Alone) => 'w',
            (Stage::Held, Share::Alone) => 'h',
            (Stage::Waiting, Share::Shared) => 'y',
            (Stage::Held, Share::Shared) => 'x',
        };
        let Standing { owner, renewer, grace } = self.standing;
        let gone = if owner.is_none() { "-" } else { "" };
        let or_none = |word: Option<String>| word.unwrap_or_else(|| "-".to_owned());
        let renewer = or_none(renewer.map(|renewer| renewer.to_string()));
        let grace = or_none(grace.map(|grace| grace.count().to_string()));
        let (keeper, owner, ttl) = (self.keeper, self.last_owner, self.ttl.span().count());
        let label = self.label.as_ref().map(|label| format!(" {}", label.write()));
        let label = label.unwrap_or_default();
        format!("{stage} {keeper} {gone}{owner} {renewer} {ttl} {grace}{label}").into()
    }

    /// `None` for any other text: foreign text under our prefix is no ticket.
    pub(super) fn read(text: &[u8]) -> Option<Self> {
        // The label may have blanks, so it comes last. Old tickets have none.
        let mut words = text.splitn(7, |byte| *byte == b' ');
        let stage = match words.next()? {
            b"w" | b"y" => Stage::Waiting,
            b"h" | b"x" => Stage::Held,
            _ => return None,
        };
        let share = Share::read(text);
        let keeper = Front(read_hex(words.next()?)?);
        let owner = words.next()?;
        let gone = owner.strip_prefix(b"-");
        let last_owner = read_party(gone.unwrap_or(owner))?;
        let owner = gone.is_none().then_some(last_owner);
        let renewer = match words.next()? {
            b"-" => None,
            renewer => Some(read_party(renewer)?),
        };
        let ttl = Ttl::new(read_decimal(words.next()?)?)?;
        let grace = match words.next()? {
            b"-" => None,
            seconds => Some(Seconds::new(read_decimal(seconds)?)?),
        };
        let standing = Standing { owner, renewer, grace };
        let label = match words.next() {
            None => None,
            Some(label) => Some(Arc::new(Label::read(label)?)),
        };
        Some(Self { stage, share, keeper, standing, last_owner, ttl, label })
    }
}

fn read_party(word: &[u8]) -> Option<Party> {
    let (front, serial) = (word.get(..16)?, word.get(16..)?.strip_prefix(b":")?);
    Some(Party { front: Front(read_hex(front)?), serial: read_decimal(serial)? })
}

/// The text of a key's limit.
pub(super) fn read_limit(text: &[u8]) -> Option<Limit> {
    read_decimal(text).and_then(Limit::new)
}

/// Parses a limit or another number as we write it: digits only.
pub(super) fn read_decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    const FRONT: Front = Front(0xab);

    const fn party(serial: u64) -> Party {
        Party { front: FRONT, serial }
    }

    #[rstest]
    #[case(
        Stage::Waiting,
        Share::Alone,
        Standing::of(party(1)),
        1,
        "w 00000000000000ab 00000000000000ab:1 - 1 -"
    )]
    #[case(
        Stage::Waiting,
        Share::Shared,
        Standing::of(party(1)),
        1,
        "y 00000000000000ab 00000000000000ab:1 - 1 -"
    )]
    #[case(Stage::Held, Share::Shared, Standing { owner: None, renewer: Some(party(22)), grace: None }, 33,
        "x 00000000000000ab -00000000000000ab:1 00000000000000ab:22 33 -")]
    #[case(Stage::Held, Share::Alone, Standing { owner: None, renewer: Some(party(22)), grace: None }, 33,
        "h 00000000000000ab -00000000000000ab:1 00000000000000ab:22 33 -")]
    #[case(Stage::Held, Share::Alone, Standing { grace: Seconds::new(5), ..Standing::NOBODYS }, 33,
        "h 00000000000000ab -00000000000000ab:1 - 33 5")]
    fn tickets_go_both_ways(
        #[case] stage: Stage,
        #[case] share: Share,
        #[case] standing: Standing<Party>,
        #[case] seconds: u64,
        #[case] text: &str,
    ) {
        let ticket = Ticket::new(stage, share, party(1), Ttl::new(seconds).unwrap()).with(standing);
        assert_eq!(ticket.write(), text.as_bytes());
        assert_eq!(Ticket::read(text.as_bytes()), Some(ticket.clone()));
        assert_eq!(text.as_bytes() > ALONE_BELOW, share == Share::Shared);
        for end in 0..text.len() - 1 {
            let cut = &text.as_bytes()[..end];
            assert_ne!(Ticket::read(cut), Some(ticket.clone()), "{cut:?}");
        }
    }

    #[rstest]
    #[case("al@db[1] backup job", "10.0.0.1:80")]
    #[case("", "10.0.0.1 80")]
    #[case("dflock", "")]
    fn a_label_is_the_last_of_a_ticket(#[case] name: &str, #[case] value: &str) {
        let label = Some(Arc::new(Label { name: name.into(), value: value.into() }));
        let bare = Ticket::new(Stage::Held, Share::Alone, party(1), Ttl::new(33).unwrap());
        let ticket = Ticket { label, ..bare.clone() };
        let text = ticket.write();
        assert!(text.starts_with(&bare.write()));
        assert_eq!(Ticket::read(&text), Some(ticket));
    }

    #[rstest]
    #[case("")]
    #[case("v 00000000000000ab 00000000000000ab:1 - 1 -")]
    #[case("h 00000000000000AB 00000000000000ab:1 - 1 -")]
    #[case("h 00000000000000ab 00000000000000ab:1 - 0 -")]
    #[case("h 00000000000000ab 00000000000000ab:1 - +1 -")]
    #[case("h 00000000000000ab 00000000000000ab:1 - 9223372037 -")]
    #[case("h 00000000000000ab 00000000000000ab:1 - 1")]
    #[case("h 00000000000000ab 00000000000000ab:1 - 1 ")]
    #[case("h 00000000000000ab 00000000000000ab:1 - 1 9223372037")]
    #[case("h 00000000000000ab 00000000000000ab:1 - 1 - 2")]
    #[case("h 00000000000000ab 00000000000000ab:1  1 -")]
    #[case("h 00000000000000ab - - 1 -")]
    #[case("h 00000000000000ab --00000000000000ab:1 - 1 -")]
    #[case("h 00000000000000ab 00000000000000ab - 1 -")]
    #[case("h 00000000000000ab 00000000000000ab:-1 - 1 -")]
    #[case("h 00000000000000ab 00000000000000ab:1 -00000000000000ab:1 1 -")]
    fn malformed_tickets_are_refused(#[case] text: &str) {
        assert_eq!(Ticket::read(text.as_bytes()), None);
    }

    #[test]
    fn written_names_are_parsed_back() {
        let names = Names::new("p/");
        let name = names.ticket(b"a/b\xff", 0x1f);
        assert_eq!(name, b"p/t/a/b\xff\n000000000000001f");
        assert_eq!(names.read_ticket(&name), Some((&b"a/b\xff"[..], 0x1f)));
        assert_eq!(names.read_limit(&names.limit(b"k")), Some(&b"k"[..]));
        assert_eq!(names.read_front(&names.front(FRONT)), Some(FRONT));
        assert_eq!(names.read_ticket(&names.limit(b"k")), None);
        assert_eq!(names.read_ticket(b"p/t/k\n1f"), None);
        assert_eq!(names.read_ticket(b"q/t/k\n000000000000001f"), None);
    }

    /// The tickets of a key do not include those of a longer key with the same beginning.
    #[test]
    fn a_span_has_the_tickets_of_one_key() {
        let names = Names::new("");
        let Span { from, to } = names.tickets(b"k");
        let within = |name: &[u8]| from.as_slice() <= name && name < to.as_slice();
        assert!(within(&names.ticket(b"k", 0)) && within(&names.ticket(b"k", u64::MAX)));
        for other in [&b"k2"[..], b"k\x01", b"k\x0b", b"j", b"k\xff"] {
            assert!(!within(&names.ticket(other, 7)), "{other:?}");
        }
    }
}
