//! Replays the corpus of the fuzz target, whole, cut at every byte and with every byte flipped.

mod checks {
    include!("../../fuzz/checks.rs");
}

use checks::every_parser;

fn corpus() -> Vec<Vec<u8>> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus/text");
    let entries = std::fs::read_dir(path).unwrap();
    let inputs: Vec<_> =
        entries.map(|entry| std::fs::read(entry.unwrap().path()).unwrap()).collect();
    assert!(inputs.len() >= 10, "the corpus is not there");
    inputs
}

#[test]
fn the_corpus_and_every_cut_of_it_pass_every_check() {
    for input in corpus() {
        for at in 0..=input.len() {
            let (head, tail) = input.split_at(at);
            every_parser(head);
            every_parser(tail);
        }
    }
}

#[test]
fn every_flipped_byte_of_the_corpus_passes_every_check() {
    for input in corpus() {
        for at in 0..input.len() {
            for byte in [0, b' ', b'+', b'-', b'.', b'0', b'9', b'a', b'F', b')', b'/', 0xff] {
                let mut flipped = input.clone();
                flipped[at] = byte;
                every_parser(&flipped);
            }
        }
    }
}
