//! Files of holds in the format of versions without an index, for the first start after an upgrade. Pure.
//!
//! As in `codec`, but the checksum of an entry covers the file's generation and the entry's body only, and the mark
//! at the end is a length of zero without a checksum.

use super::codec::{BootId, DirId, Entry, Header, id, number, read_body};

/// Bytes of a header.
pub(super) const HEADER_BYTES: usize = 56;
/// Such files do not name their directory.
const NO_DIR: DirId = [0; 16];

const MAGIC: [u8; 8] = *b"dflockd\x01";
const FRAME_BYTES: usize = 6;

/// `None` if it has another format or is damaged.
pub(super) fn read_header(bytes: &[u8], slot: usize) -> Option<Header> {
    let (body, sum) = bytes.get(..HEADER_BYTES)?.split_at_checked(HEADER_BYTES - 8)?;
    let mut rest = body.strip_prefix(&MAGIC)?;
    let generation = number(&mut rest)?;
    let boot: BootId = id(&mut rest)?;
    let (fence, synced) = (number(&mut rest)?, number(&mut rest)? == 1);
    let good = sum == u64::from(checksum(generation, body)).to_be_bytes();
    let (dir, longest, closing) = (NO_DIR, 0, None);
    good.then_some(Header { generation, slot, dir, boot, fence, synced, longest, closing })
}

/// The entry at the beginning of `bytes` and its length; `None` at the end; an error if there is neither.
pub(super) fn read_entry(
    bytes: &[u8],
    generation: u64,
) -> Result<Option<(Entry<'_>, usize)>, Torn> {
    let (length, rest) = bytes.split_first_chunk::<2>().ok_or(Torn)?;
    let count = usize::from(u16::from_be_bytes(*length));
    if count == 0 {
        return Ok(None);
    }
    let (body, rest) = rest.split_at_checked(count).ok_or(Torn)?;
    let sum = rest.first_chunk::<4>().ok_or(Torn)?;
    if *sum != checksum(generation, body).to_be_bytes() {
        return Err(Torn);
    }
    Ok(Some((read_body(body).ok_or(Torn)?, count + FRAME_BYTES)))
}

/// Something was written there that cannot be read.
#[derive(Debug)]
pub(super) struct Torn;

fn checksum(generation: u64, body: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&generation.to_be_bytes());
    hasher.update(body);
    hasher.finalize()
}
