//! Replays the fuzzer's corpus, whole, cut at every place and with every bit flipped.

#[path = "corpus/checks.rs"]
mod checks;

use std::fs;
use std::path::Path;

#[cfg(test)]
fn corpus() -> Vec<Vec<u8>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/record");
    let files = fs::read_dir(directory).unwrap_or_else(|error| panic!("the corpus: {error}"));
    files.map(|file| fs::read(file.unwrap().path()).unwrap()).collect()
}

#[test]
fn every_file_as_it_is() {
    let corpus = corpus();
    assert!(corpus.len() >= 12, "{} files", corpus.len());
    corpus.iter().for_each(|bytes| checks::record(bytes));
    let good = corpus.iter().filter(|bytes| file_semaphore::LockInfo::parse(bytes).is_ok()).count();
    assert!(good >= 5 && good < corpus.len(), "{good} of {} parse", corpus.len());
}

#[test]
fn every_file_cut_and_flipped() {
    for bytes in corpus() {
        let start = bytes.get(..400).unwrap_or(&bytes);
        for at in 0..start.len() {
            checks::record(&start[..at]);
            for bit in 0..8 {
                let mut flipped = start.to_vec();
                flipped[at] ^= 1 << bit;
                checks::record(&flipped);
            }
        }
    }
}
