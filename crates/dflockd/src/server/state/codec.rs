//! Holds ⇄ bytes of the state directory's files. Pure.
//!
//! A file of holds is a header and entries, one after another: two bytes of length, the body, four bytes of checksum.
//! A length of zero marks the end, and has a checksum too. Each checksum continues the previous one, and the first
//! continues the header's. So it covers the whole file up to that place, and no entry can be missing, moved, or left
//! over from earlier content of this file or of another one.
//!
//! Further entries are written behind the mark, with a new mark after them. Then one byte of the old mark is changed:
//! what follows counts now. The process can be killed after any byte of a write, and the file is whole in each case.
//!
//! The index names the file that counts, by its header, and the generation that the other file must have. Its file has
//! two places and a byte that says which of them counts: the other one is written, then that byte.

use leases::journal::RecordedHold;
use leases::{Claim, Key, Label, Limit, Token, Ttl};

/// Bytes of a header.
pub(super) const HEADER_BYTES: usize = 8 + FIELDS_BYTES + SUM_BYTES;
/// Bytes of an index.
pub(super) const INDEX_BYTES: usize = HEADER_BYTES + 8;
/// The byte after both places of the index; it says which of them counts.
pub(super) const CHOICE_AT: usize = 2 * INDEX_BYTES;
/// Its values. No bit is the same in both, nor in a byte that was never written and one of them.
pub(super) const CHOICES: [u8; 2] = [0x5a, 0xa5];
/// Bytes of the mark after the last entry.
pub(super) const END_BYTES: usize = FRAME_BYTES;
/// The first byte of a mark when more follows. No length begins with it, and no bit of it is that of an end.
pub(super) const MORE: u8 = 0xff;
/// The bytes that the longest label adds: each byte of a name or value that is not text has become three.
pub(super) const MAX_LABEL_BYTES: u64 =
    2 + 3 * (leases::wire::MAX_NAME_BYTES + leases::wire::MAX_VALUE_BYTES) as u64;
/// The longest entry without a label, with its frame.
pub(super) const MAX_ENTRY_BYTES: usize = FRAME_BYTES + HELD_BYTES + leases::MAX_KEY_BYTES;

const FIELDS_BYTES: usize = 2 * 16 + 8 * 8;
const SUM_BYTES: usize = 4;
/// Bytes around a body.
const FRAME_BYTES: usize = 2 + SUM_BYTES;
const MAGIC: [u8; 8] = *b"dflockd\x02";
const INDEX_MAGIC: [u8; 8] = *b"dflocki\x03";
const HELD_BYTES: usize = 1 + 6 * 8;
/// Earlier versions wrote and read the end of a hold by the wall clock here. This is later than any. In the entry of a
/// slot, which they cannot read, the number of the slot stands here.
const NO_WALL_CLOCK: u64 = u64::MAX;
const HELD: u8 = 1;
const ENDED: u8 = 2;
const FENCE: u8 = 3;
const WHOLE: u8 = 4;
const CLOSED: u8 = 5;
const HELD_SLOT: u8 = 6;

/// Identifies one start of one machine.
pub(super) type BootId = [u8; 16];

/// Identifies a state directory.
pub(super) type DirId = [u8; 16];

/// The beginning of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// The file with the greatest generation counts.
    pub(super) generation: u64,
    /// Which of the two files this is.
    pub(super) slot: usize,
    /// The directory to which it belongs.
    pub(super) dir: DirId,
    /// The start of the machine to which its times of the boot clock belong.
    pub(super) boot: BootId,
    /// No fence above this was given out when it was written.
    pub(super) fence: u64,
    /// Whether each entry was on the disk before a client knew of it.
    pub(super) synced: bool,
    /// No lease longer than this was promised when it was written, in seconds.
    pub(super) longest: u64,
    /// Set if nothing may be granted for a while.
    pub(super) closing: Option<Closing>,
}

/// Why there may be live leases that are not recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum Doubt {
    /// The machine was restarted, and the last grants may not have reached the disk.
    OtherBoot,
    /// The files are not as they were written.
    Damaged,
}

/// Until when there may be live leases that are not recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Closing {
    /// Why.
    pub(super) doubt: Doubt,
    /// The end of these leases, on the clock since the boot, in microseconds.
    pub(super) boot_micros: u64,
    /// The time that was left when this was written; it counts after another boot.
    pub(super) left_micros: u64,
}

/// What the files must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Index {
    /// The header of the file that counts, with later facts.
    pub(super) counts: Header,
    /// The generation of the other file. A smaller one was complete and is not needed any more. A greater one is
    /// being written and counts as soon as it is complete. 0: the file may be anything.
    pub(super) other: u64,
}

/// The checksum so far, which the next one continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Checksum(u32);

/// A hold, with its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Held {
    /// The hold.
    pub(super) hold: RecordedHold,
    /// Its end on the clock since the boot, in microseconds.
    pub(super) boot_micros: u64,
}

/// One entry of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// A hold, with its end.
    Held(Held),
    /// The hold with this token has ended.
    Ended(Token),
    /// No fence above this was given out.
    Fence(u64),
    /// All holds that existed have been written; changes follow.
    Whole,
    /// The server ended in order, and everything is on the disk.
    Closed,
}

/// The next part of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// An entry, the number of its bytes, and the checksum that the next one continues.
    Entry(Entry, usize, Checksum),
    /// A mark with more behind it, and the checksum that the next entry continues.
    More(Checksum),
    /// Nothing more was written.
    End,
    /// Something was written that cannot be read.
    Torn,
}

/// Appends the header; returns the checksum that the first entry continues.
pub(super) fn push_header(out: &mut Vec<u8>, header: &Header) -> Checksum {
    let start = out.len();
    out.extend_from_slice(&MAGIC);
    push_fields(out, header);
    push_sum(out, start, Checksum::NONE)
}

/// Appends the index.
pub(super) fn push_index(out: &mut Vec<u8>, index: &Index) {
    let start = out.len();
    out.extend_from_slice(&INDEX_MAGIC);
    push_fields(out, &index.counts);
    out.extend_from_slice(&index.other.to_be_bytes());
    push_sum(out, start, Checksum::NONE);
}

fn push_fields(out: &mut Vec<u8>, header: &Header) {
    let (why, until, left) = header.closing.map_or((0, 0, 0), |closing| {
        let why = match closing.doubt {
            Doubt::OtherBoot => 1,
            Doubt::Damaged => 2,
        };
        (why, closing.boot_micros, closing.left_micros)
    });
    out.extend_from_slice(&header.dir);
    out.extend_from_slice(&header.boot);
    let slot = u64::from(header.slot > 0);
    let synced = u64::from(header.synced);
    let Header { generation, fence, longest, .. } = *header;
    for number in [generation, slot, fence, synced, longest, why, until, left] {
        out.extend_from_slice(&number.to_be_bytes());
    }
}

/// Appends the checksum of everything from `start` on; returns the one that the next entry continues.
fn push_sum(out: &mut Vec<u8>, start: usize, before: Checksum) -> Checksum {
    let sum = before.on(out.get(start..).unwrap_or_default());
    out.extend_from_slice(&sum.0.to_be_bytes());
    sum
}

/// `None` when it is none of ours or damaged.
pub(super) fn read_header(bytes: &[u8]) -> Option<(Header, Checksum)> {
    let (mut fields, sum) = whole(bytes.get(..HEADER_BYTES)?, MAGIC)?;
    Some((read_fields(&mut fields)?, sum))
}

/// The index that counts, and its place; `None` when it is none of ours or damaged.
pub(super) fn read_index(bytes: &[u8]) -> Option<(Index, usize)> {
    let choice = bytes.get(CHOICE_AT)?;
    let place = CHOICES.iter().position(|value| value == choice)?;
    let index = bytes.get(place * INDEX_BYTES..)?.get(..INDEX_BYTES)?;
    let (mut fields, _) = whole(index, INDEX_MAGIC)?;
    Some((Index { counts: read_fields(&mut fields)?, other: number(&mut fields)? }, place))
}

/// The bytes between the magic number and the checksum, if both are right.
fn whole(bytes: &[u8], magic: [u8; 8]) -> Option<(&[u8], Checksum)> {
    let (body, written) = bytes.split_last_chunk::<SUM_BYTES>()?;
    let sum = Checksum::NONE.on(body);
    (*written == sum.0.to_be_bytes()).then_some((body.strip_prefix(&magic)?, sum))
}

fn read_fields(rest: &mut &[u8]) -> Option<Header> {
    let (dir, boot) = (id(rest)?, id(rest)?);
    let (generation, slot) = (number(rest)?, flag(rest)?);
    let (fence, synced, longest) = (number(rest)?, flag(rest)?, number(rest)?);
    let (why, boot_micros, left_micros) = (number(rest)?, number(rest)?, number(rest)?);
    let doubt = match why {
        0 => None,
        1 => Some(Doubt::OtherBoot),
        2 => Some(Doubt::Damaged),
        _ => return None,
    };
    let closing = doubt.map(|doubt| Closing { doubt, boot_micros, left_micros });
    let slot = usize::from(slot);
    Some(Header { generation, slot, dir, boot, fence, synced, longest, closing })
}

/// Appends an entry; returns the checksum that the next one continues.
pub(super) fn push_entry(out: &mut Vec<u8>, sum: Checksum, entry: &Entry) -> Checksum {
    match entry {
        Entry::Held(held) => push_held(out, sum, held, true),
        Entry::Ended(token) => push_body(out, sum, ENDED, &token.bytes()),
        Entry::Fence(fence) => push_body(out, sum, FENCE, &fence.to_be_bytes()),
        Entry::Whole => push_body(out, sum, WHOLE, &[]),
        Entry::Closed => push_body(out, sum, CLOSED, &[]),
    }
}

/// Appends a hold as [`push_entry`] does, perhaps without its label.
pub(super) fn push_held(
    out: &mut Vec<u8>,
    sum: Checksum,
    held: &Held,
    has_label: bool,
) -> Checksum {
    let Held { ref hold, boot_micros } = *held;
    let (kind, last) = hold.slot.map_or((HELD, NO_WALL_CLOCK), |slot| (HELD_SLOT, u64::from(slot)));
    let numbers = [slots(hold.claim), hold.ttl.span().count(), boot_micros, last];
    let numbers = numbers.map(u64::to_be_bytes);
    // No key has a line end.
    let label = hold.label.as_ref().filter(|_| has_label);
    let label = label.map(|label| format!("\n{}", label.write())).unwrap_or_default();
    let token = hold.token.bytes();
    let body = [&token, numbers.as_flattened(), &hold.key, label.as_bytes()].concat();
    push_body(out, sum, kind, &body)
}

#[expect(clippy::expect_used, reason = "keys and labels have limits")]
fn push_body(out: &mut Vec<u8>, sum: Checksum, kind: u8, body: &[u8]) -> Checksum {
    let start = out.len();
    let length = u16::try_from(body.len() + 1).expect("keys and labels have limits");
    out.extend_from_slice(&length.to_be_bytes());
    out.push(kind);
    out.extend_from_slice(body);
    push_sum(out, start, sum)
}

/// Bytes of a hold's entry in the file, without its label.
pub(super) const fn held_bytes(key: &[u8]) -> u64 {
    (FRAME_BYTES + HELD_BYTES + key.len()) as u64
}

/// The bytes that the label adds: a line end comes before each of its parts.
pub(super) fn label_bytes(label: Option<&Label>) -> u64 {
    label.map_or(0, |label| (label.name.len() + label.value.len() + 2) as u64)
}

/// Appends the mark at the end; returns the checksum that the first entry behind it continues.
pub(super) fn push_end(out: &mut Vec<u8>, sum: Checksum) -> Checksum {
    let start = out.len();
    out.extend_from_slice(&[0; 2]);
    push_sum(out, start, sum)
}

/// Reads the entry at the beginning of `bytes`.
pub(super) fn read_entry(bytes: &[u8], sum: Checksum) -> Read {
    if let Some((&MORE, mark)) = bytes.split_first() {
        let end = [&[0], mark.get(..END_BYTES - 1).unwrap_or_default()].concat();
        let is_mark = read_entry(&end, sum) == Read::End;
        return if is_mark { Read::More(sum.on(&[0; 2])) } else { Read::Torn };
    }
    let entry = || {
        let count = usize::from(u16::from_be_bytes(*bytes.first_chunk::<2>()?));
        let (framed, rest) = bytes.split_at_checked(count + 2)?;
        let sum = sum.on(framed);
        if *rest.first_chunk::<SUM_BYTES>()? != sum.0.to_be_bytes() {
            return None;
        }
        if count == 0 {
            return Some(Read::End);
        }
        Some(Read::Entry(read_body(framed.get(2..)?)?, count + FRAME_BYTES, sum))
    };
    // A file ends with the mark; without it the last write did not arrive whole.
    entry().unwrap_or(Read::Torn)
}

/// An entry without its length and checksum.
fn read_body(body: &[u8]) -> Option<Entry> {
    let (&kind, mut rest) = body.split_first()?;
    let entry = match kind {
        HELD | HELD_SLOT => return read_held(rest, kind == HELD_SLOT).map(Entry::Held),
        ENDED => Entry::Ended(token(&mut rest)?),
        FENCE => Entry::Fence(number(&mut rest)?),
        WHOLE => Entry::Whole,
        CLOSED => Entry::Closed,
        _ => return None,
    };
    rest.is_empty().then_some(entry)
}

fn read_held(mut rest: &[u8], has_slot: bool) -> Option<Held> {
    let token = token(&mut rest)?;
    let claim = claim(number(&mut rest)?);
    let ttl = Ttl::new(number(&mut rest)?)?;
    let (boot_micros, last) = (number(&mut rest)?, number(&mut rest)?);
    let slot = if has_slot { Some(u32::try_from(last).ok()?) } else { None };
    let end = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
    let (key, label) = rest.split_at_checked(end)?;
    let key = Key::new(key)?.bytes().into();
    let label = label.get(1..).and_then(Label::read);
    let hold = RecordedHold { key, claim, token, ttl, left_micros: 0, label, slot };
    Some(Held { hold, boot_micros })
}

/// A claim as a number: the number of slots of the key, or 0 for a shared lock.
const fn slots(claim: Claim) -> u64 {
    match claim {
        Claim::Slot(limit) => limit.count(),
        Claim::Shared => 0,
    }
}

fn claim(slots: u64) -> Claim {
    Limit::new(slots).map_or(Claim::Shared, Claim::Slot)
}

fn token(rest: &mut &[u8]) -> Option<Token> {
    Some(Token::new(number(rest)?, number(rest)?))
}

fn number(rest: &mut &[u8]) -> Option<u64> {
    let (bytes, tail) = rest.split_first_chunk::<8>()?;
    *rest = tail;
    Some(u64::from_be_bytes(*bytes))
}

fn flag(rest: &mut &[u8]) -> Option<bool> {
    match number(rest)? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

fn id(rest: &mut &[u8]) -> Option<[u8; 16]> {
    let (id, tail) = rest.split_first_chunk::<16>()?;
    *rest = tail;
    Some(*id)
}

impl Checksum {
    /// The checksum of no bytes.
    pub(super) const NONE: Self = Self(0);

    /// Continues over these bytes.
    fn on(self, bytes: &[u8]) -> Self {
        let mut hasher = crc32fast::Hasher::new_with_initial(self.0);
        hasher.update(bytes);
        Self(hasher.finalize())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn header() -> Header {
        let doubt = Doubt::OtherBoot;
        let closing = Some(Closing { doubt, boot_micros: 1 << 50, left_micros: 9 });
        Header {
            generation: 7,
            slot: 1,
            dir: [3; 16],
            boot: [9; 16],
            fence: 1 << 40,
            synced: true,
            longest: 33,
            closing,
        }
    }

    fn held(key: &[u8]) -> Held {
        let hold = RecordedHold {
            key: key.into(),
            claim: Claim::Slot(Limit::new(3).unwrap()),
            token: Token::new(5, u64::MAX),
            ttl: Ttl::new(33).unwrap(),
            left_micros: 0,
            label: None,
            slot: None,
        };
        Held { hold, boot_micros: u64::MAX }
    }

    fn shared() -> Held {
        let Held { hold, .. } = held(b"k");
        Held { hold: RecordedHold { claim: Claim::Shared, ..hold }, ..held(b"k") }
    }

    fn in_slot(slot: u32) -> Held {
        let Held { hold, .. } = labelled(b"al@db1\n10.0.0.1:80");
        Held { hold: RecordedHold { slot: Some(slot), ..hold }, ..held(b"k") }
    }

    fn labelled(label: &[u8]) -> Held {
        let Held { hold, .. } = held(b"k");
        Held { hold: RecordedHold { label: Label::read(label), ..hold }, ..held(b"k") }
    }

    fn sealed(entry: &Entry, sum: Checksum) -> Vec<u8> {
        let mut out = Vec::new();
        push_entry(&mut out, sum, entry);
        out
    }

    /// If it is cut anywhere, or any bit is changed, it is invalid.
    fn breaks_everywhere(bytes: &[u8], is_none: impl Fn(&[u8]) -> bool) {
        for cut in 0..bytes.len() {
            assert!(is_none(&bytes[..cut]), "cut at {cut}");
        }
        for bit in 0..bytes.len() * 8 {
            let mut bent = bytes.to_vec();
            bent[bit / 8] ^= 1 << (bit % 8);
            assert!(is_none(&bent), "bit {bit}");
        }
    }

    #[rstest]
    #[case::held(Entry::Held(held(b"k")))]
    #[case::shared(Entry::Held(shared()))]
    #[case::slot(Entry::Held(in_slot(2)))]
    #[case::greatest_slot(Entry::Held(in_slot(u32::MAX)))]
    // Its length has one bit.
    #[case::length_64(Entry::Held(held(b"fifteen-bytes-k")))]
    #[case::label(Entry::Held(labelled(b"al@db1\n10.0.0.1:80")))]
    #[case::no_value(Entry::Held(labelled(b"al@db1\n")))]
    #[case::longest_key(Entry::Held(held(&[0xff; 256])))]
    #[case::ended(Entry::Ended(Token::new(1, 2)))]
    #[case::fence(Entry::Fence(u64::MAX))]
    #[case::whole(Entry::Whole)]
    #[case::closed(Entry::Closed)]
    fn entries_both_ways(#[case] entry: Entry) {
        let sum = Checksum(7);
        let bytes = sealed(&entry, sum);
        assert!(bytes.len() <= MAX_ENTRY_BYTES);
        let Read::Entry(read, used, next) = read_entry(&bytes, sum) else { panic!() };
        assert_eq!((&read, used), (&entry, bytes.len()));
        if let Entry::Held(Held { hold, .. }) = entry {
            let count = held_bytes(&hold.key) + label_bytes(hold.label.as_ref());
            assert_eq!(count, bytes.len() as u64);
        }
        breaks_everywhere(&bytes, |bytes| read_entry(bytes, sum) == Read::Torn);
        // Nor at another place in the file.
        assert_eq!(read_entry(&bytes, Checksum(8)), Read::Torn);
        assert_eq!(read_entry(&bytes, next), Read::Torn);
    }

    #[test]
    fn an_end_mark_is_read_back_and_damage_is_noticed() {
        let mut mark = Vec::new();
        let next = push_end(&mut mark, Checksum(7));
        assert_eq!(mark.len(), END_BYTES);
        assert_eq!(read_entry(&mark, Checksum(7)), Read::End);
        assert_eq!(read_entry(&[0; 100], Checksum(7)), Read::Torn);
        breaks_everywhere(&mark, |bytes| read_entry(bytes, Checksum(7)) == Read::Torn);
        mark[0] = MORE;
        assert_eq!(read_entry(&mark, Checksum(7)), Read::More(next));
        assert_eq!(read_entry(&mark, Checksum(8)), Read::Torn);
        breaks_everywhere(&mark, |bytes| read_entry(bytes, Checksum(7)) == Read::Torn);
    }

    #[test]
    fn no_entry_begins_as_a_mark_with_more_behind_it() {
        let longest = MAX_ENTRY_BYTES as u64 + MAX_LABEL_BYTES;
        assert!(longest < u64::from(u16::from_be_bytes([MORE, 0])));
    }

    #[rstest]
    #[case(header())]
    #[case(Header { closing: None, synced: false, slot: 0, ..header() })]
    fn headers_both_ways(#[case] header: Header) {
        let mut bytes = Vec::new();
        let sum = push_header(&mut bytes, &header);
        assert_eq!(bytes.len(), HEADER_BYTES);
        assert_eq!(read_header(&bytes), Some((header, sum)));
        breaks_everywhere(&bytes, |bytes| read_header(bytes).is_none());
        assert_eq!(read_index(&bytes), None);
    }

    #[rstest]
    #[case(0)]
    #[case(1)]
    fn an_index_both_ways(#[case] place: usize) {
        let index = Index { counts: header(), other: 8 };
        let mut one = Vec::new();
        push_index(&mut one, &index);
        assert_eq!(one.len(), INDEX_BYTES);
        // The bytes of the place that does not count mean nothing.
        let file = |bytes: &[u8]| {
            let mut file = vec![0; CHOICE_AT];
            file[place * INDEX_BYTES..][..bytes.len().min(INDEX_BYTES)]
                .copy_from_slice(&bytes[..bytes.len().min(INDEX_BYTES)]);
            file.extend(bytes.get(INDEX_BYTES..).unwrap_or_default());
            file
        };
        let bytes = [&one[..], &[CHOICES[place]]].concat();
        assert_eq!(read_index(&file(&bytes)), Some((index, place)));
        assert_eq!(read_header(&file(&bytes)), None);
        breaks_everywhere(&bytes, |bytes| read_index(&file(bytes)).is_none());
    }
}
