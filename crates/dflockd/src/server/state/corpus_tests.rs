//! What must hold for any bytes in the files of the state directory: for the fuzz target, whose corpus is replayed here,
//! also cut and with flipped bits.

use super::load::{FileBytes, load};

/// Reads any three files, whose lengths come first.
pub(in crate::server) fn check(bytes: &[u8]) {
    let Some((lengths, rest)) = bytes.split_first_chunk::<4>() else { return };
    let [a, b, c, d] = *lengths;
    let cut =
        |rest: &'_ [u8], length: [u8; 2]| usize::from(u16::from_be_bytes(length)).min(rest.len());
    let (index, rest) = rest.split_at(cut(rest, [a, b]));
    let (one, two) = rest.split_at(cut(rest, [c, d]));
    let loaded = load(FileBytes { index, holds: [one, two] }, &[0; 16], 1);
    assert!(loaded.next_slot < 2 && loaded.generation <= loaded.last_generation);
    assert!(
        loaded
            .holds
            .iter()
            .all(|hold| hold.left_micros > 0 && leases::Key::new(&hold.key).is_some())
    );
    let waits = loaded.wait(leases::Seconds::ZERO).is_some();
    assert_eq!(waits, loaded.doubt.is_some() || loaded.closing.is_some());
}

#[test]
fn the_fuzz_corpus_of_state_files_passes() {
    testbed::corpus(env!("CARGO_MANIFEST_DIR"), "state").for_each(|bytes| check(&bytes));
}
