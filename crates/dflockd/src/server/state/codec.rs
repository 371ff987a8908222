//! Holds ⇄ bytes of a state file. Pure.
//!
//! A file is a header and entries, one after another: two bytes of length, the body, four bytes of
//! checksum over the file's generation and the body. A length of nothing is the end. The
//! generation is in the checksum because files are used again: what an earlier generation left
//! behind the end is never taken for an entry.

use crate::engine::{Key, Limit, Token, Ttl};

/// Bytes of a header.
pub(super) const HEADER_BYTES: usize = 56;
/// Bytes of the mark at the end of what was written.
pub(super) const END_BYTES: usize = 2;
/// Bytes around a body.
const FRAME_BYTES: usize = 6;
/// The longest entry, with its frame.
pub(super) const MAX_ENTRY_BYTES: usize = FRAME_BYTES + HELD_BYTES + crate::engine::MAX_KEY_BYTES;

const MAGIC: [u8; 8] = *b"dflockd\x01";
const HELD_BYTES: usize = 1 + 6 * 8;
const HELD: u8 = 1;
const ENDED: u8 = 2;
const FENCE: u8 = 3;
const WHOLE: u8 = 4;
const CLOSED: u8 = 5;

/// Which start of which machine.
pub(super) type BootId = [u8; 16];

/// The beginning of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// The file with the greatest one counts.
    pub(super) generation: u64,
    /// Under which its times of the boot clock are.
    pub(super) boot: BootId,
    /// No fence above this was given out when it was written.
    pub(super) fence: u64,
    /// What it says was on the disk before anybody was told.
    pub(super) synced: bool,
}

/// A hold, with its end on two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Saved<'a> {
    /// Of which key.
    pub(super) key: Key<'a>,
    /// How many may hold it.
    pub(super) limit: Limit,
    /// What proves it.
    pub(super) token: Token,
    /// The lease as last asked for.
    pub(super) ttl: Ttl,
    /// Its end on the clock since the boot, in microseconds.
    pub(super) boot_micros: u64,
    /// Its end on the wall clock, in microseconds since 1970.
    pub(super) wall_micros: u64,
}

/// One line of the story.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry<'a> {
    /// This hold is there until then.
    Held(Saved<'a>),
    /// It is not any more.
    Ended(Token),
    /// No fence above this was given out.
    Fence(u64),
    /// Everything there was has been written; what follows are changes.
    Whole,
    /// The server ended in order, and everything is on the disk.
    Closed,
}

/// What a file goes on with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Read<'a> {
    /// An entry of so many bytes.
    Entry(Entry<'a>, usize),
    /// Nothing more was written.
    End,
    /// Something was, and cannot be read.
    Torn,
}

/// Appends the header.
pub(super) fn push_header(out: &mut Vec<u8>, header: &Header) {
    let start = out.len();
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&header.generation.to_be_bytes());
    out.extend_from_slice(&header.boot);
    out.extend_from_slice(&header.fence.to_be_bytes());
    out.extend_from_slice(&u64::from(header.synced).to_be_bytes());
    let sum = checksum(header.generation, out.get(start..).unwrap_or_default());
    out.extend_from_slice(&u64::from(sum).to_be_bytes());
}

/// `None` when it is none of ours or damaged.
pub(super) fn read_header(bytes: &[u8]) -> Option<Header> {
    let (body, sum) = bytes.get(..HEADER_BYTES)?.split_at_checked(HEADER_BYTES - 8)?;
    let mut rest = body.strip_prefix(&MAGIC)?;
    let generation = number(&mut rest)?;
    let (boot, tail) = rest.split_first_chunk::<16>()?;
    rest = tail;
    let fence = number(&mut rest)?;
    let synced = match number(&mut rest)? {
        0 => false,
        1 => true,
        _ => return None,
    };
    let good = sum == u64::from(checksum(generation, body)).to_be_bytes();
    good.then_some(Header { generation, boot: *boot, fence, synced })
}

/// Appends an entry without its checksum; [`seal`] adds that.
pub(super) fn push_entry(out: &mut Vec<u8>, entry: &Entry<'_>) {
    let start = out.len();
    out.extend_from_slice(&[0; 2]);
    match entry {
        Entry::Held(saved) => push_held(out, saved),
        Entry::Ended(token) => {
            out.push(ENDED);
            push_token(out, *token);
        }
        Entry::Fence(fence) => {
            out.push(FENCE);
            out.extend_from_slice(&fence.to_be_bytes());
        }
        Entry::Whole => out.push(WHOLE),
        Entry::Closed => out.push(CLOSED),
    }
    let length = u16::try_from(out.len() - start - 2).unwrap_or(0);
    if let Some(place) = out.get_mut(start..start + 2) {
        place.copy_from_slice(&length.to_be_bytes());
    }
}

fn push_held(out: &mut Vec<u8>, saved: &Saved<'_>) {
    out.push(HELD);
    push_token(out, saved.token);
    out.extend_from_slice(&saved.limit.count().to_be_bytes());
    out.extend_from_slice(&saved.ttl.span().count().to_be_bytes());
    out.extend_from_slice(&saved.boot_micros.to_be_bytes());
    out.extend_from_slice(&saved.wall_micros.to_be_bytes());
    out.extend_from_slice(saved.key.bytes());
}

fn push_token(out: &mut Vec<u8>, token: Token) {
    out.extend_from_slice(&token.bytes());
}

/// Bytes of a hold's entry in the file.
pub(super) const fn held_bytes(key: &[u8]) -> u64 {
    (FRAME_BYTES + HELD_BYTES + key.len()) as u64
}

/// Appends entries of [`push_entry`] as they stand in a file of this generation.
pub(super) fn seal(out: &mut Vec<u8>, generation: u64, mut entries: &[u8]) {
    while let Some((length, rest)) = entries.split_first_chunk::<2>() {
        let count = usize::from(u16::from_be_bytes(*length));
        let Some((body, tail)) = rest.split_at_checked(count) else { return };
        out.extend_from_slice(length);
        out.extend_from_slice(body);
        out.extend_from_slice(&checksum(generation, body).to_be_bytes());
        entries = tail;
    }
}

/// Reads the entry at the beginning of `bytes`.
pub(super) fn read_entry(bytes: &[u8], generation: u64) -> Read<'_> {
    // A file ends with the mark; without it the last write did not arrive whole.
    let Some((length, rest)) = bytes.split_first_chunk::<2>() else { return Read::Torn };
    let count = usize::from(u16::from_be_bytes(*length));
    if count == 0 {
        return Read::End;
    }
    let entry = || {
        let (body, rest) = rest.split_at_checked(count)?;
        let sum = rest.first_chunk::<4>()?;
        if *sum != checksum(generation, body).to_be_bytes() {
            return None;
        }
        read_body(body)
    };
    entry().map_or(Read::Torn, |entry| Read::Entry(entry, count + FRAME_BYTES))
}

fn read_body(body: &[u8]) -> Option<Entry<'_>> {
    let (&kind, mut rest) = body.split_first()?;
    let entry = match kind {
        HELD => return read_held(rest).map(Entry::Held),
        ENDED => Entry::Ended(token(&mut rest)?),
        FENCE => Entry::Fence(number(&mut rest)?),
        WHOLE => Entry::Whole,
        CLOSED => Entry::Closed,
        _ => return None,
    };
    rest.is_empty().then_some(entry)
}

fn read_held(mut rest: &[u8]) -> Option<Saved<'_>> {
    Some(Saved {
        token: token(&mut rest)?,
        limit: Limit::new(number(&mut rest)?)?,
        ttl: Ttl::new(number(&mut rest)?)?,
        boot_micros: number(&mut rest)?,
        wall_micros: number(&mut rest)?,
        key: Key::new(rest)?,
    })
}

fn token(rest: &mut &[u8]) -> Option<Token> {
    Some(Token::new(number(rest)?, number(rest)?))
}

fn number(rest: &mut &[u8]) -> Option<u64> {
    let (bytes, tail) = rest.split_first_chunk::<8>()?;
    *rest = tail;
    Some(u64::from_be_bytes(*bytes))
}

fn checksum(generation: u64, body: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&generation.to_be_bytes());
    hasher.update(body);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    const HEADER: Header = Header { generation: 7, boot: [9; 16], fence: 1 << 40, synced: true };

    fn saved(key: &[u8]) -> Saved<'_> {
        Saved {
            key: Key::new(key).unwrap(),
            limit: Limit::new(3).unwrap(),
            token: Token::new(5, u64::MAX),
            ttl: Ttl::new(33).unwrap(),
            boot_micros: 1,
            wall_micros: u64::MAX,
        }
    }

    fn sealed(entry: &Entry<'_>, generation: u64) -> Vec<u8> {
        let (mut body, mut out) = (Vec::new(), Vec::new());
        push_entry(&mut body, entry);
        seal(&mut out, generation, &body);
        out
    }

    #[rstest]
    #[case::held(Entry::Held(saved(b"k")))]
    #[case::longest_key(Entry::Held(saved(&[0xff; 256])))]
    #[case::ended(Entry::Ended(Token::new(1, 2)))]
    #[case::fence(Entry::Fence(u64::MAX))]
    #[case::whole(Entry::Whole)]
    #[case::closed(Entry::Closed)]
    fn entries_both_ways(#[case] entry: Entry<'_>) {
        let bytes = sealed(&entry, 7);
        assert!(bytes.len() <= MAX_ENTRY_BYTES);
        assert_eq!(read_entry(&bytes, 7), Read::Entry(entry, bytes.len()));
        if let Entry::Held(saved) = entry {
            assert_eq!(held_bytes(saved.key.bytes()), bytes.len() as u64);
        }
        // Cut anywhere, changed anywhere, or of another generation, it is no entry.
        for cut in 0..bytes.len() {
            assert_eq!(read_entry(&bytes[..cut], 7), Read::Torn, "cut at {cut}");
        }
        for bit in 0..bytes.len() * 8 {
            let mut bent = bytes.clone();
            bent[bit / 8] ^= 1 << (bit % 8);
            assert!(!matches!(read_entry(&bent, 7), Read::Entry(..)), "bit {bit}");
        }
        assert_eq!(read_entry(&bytes, 8), Read::Torn);
    }

    #[test]
    fn the_mark_is_the_end() {
        assert_eq!(read_entry(&[0; END_BYTES], 7), Read::End);
        assert_eq!(read_entry(&[], 7), Read::Torn);
    }

    #[test]
    fn headers_both_ways() {
        let mut bytes = Vec::new();
        push_header(&mut bytes, &HEADER);
        assert_eq!(bytes.len(), HEADER_BYTES);
        assert_eq!(read_header(&bytes), Some(HEADER));
        for cut in 0..bytes.len() {
            assert_eq!(read_header(&bytes[..cut]), None);
        }
        for bit in 0..bytes.len() * 8 {
            let mut bent = bytes.clone();
            bent[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(read_header(&bent), None, "bit {bit}");
        }
    }
}
