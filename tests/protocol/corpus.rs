//! Replays the fuzzers' corpus, and every golden conversation cut and flipped, in ordinary tests.

use rstest::rstest;
use testbed::{TRANSCRIPTS, Transcript, corpus};

use crate::checks;

#[rstest]
#[case::line("line", checks::line)]
#[case::command("command", checks::command)]
#[case::lock_file("lock_file", checks::lock_file)]
fn the_fuzz_corpus_passes(#[case] target: &str, #[case] check: fn(&[u8])) {
    corpus(env!("CARGO_MANIFEST_DIR"), target).for_each(|bytes| check(&bytes));
}

/// Each line of each conversation with one byte flipped, and cut short, at every place.
#[test]
fn golden_lines_cut_and_flipped() {
    for (_, text) in TRANSCRIPTS {
        for (sent, _) in Transcript::read(text).turns {
            let line = sent.get(..600).unwrap_or(&sent);
            for at in 0..line.len() {
                checks::command(&line[..at]);
                for bit in 0..8 {
                    let mut flipped = line.to_vec();
                    flipped[at] ^= 1 << bit;
                    checks::command(&flipped);
                    checks::line(&flipped);
                }
            }
        }
    }
}
