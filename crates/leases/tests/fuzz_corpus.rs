//! Replays what the fuzz targets start from, also cut and with flipped bits.

#[cfg(test)]
#[path = "../fuzz/checks.rs"]
mod checks;
#[cfg(test)]
#[path = "model/mod.rs"]
mod model;

#[cfg(test)]
mod replay {
    use crate::checks;
    use testbed::corpus;

    #[test]
    fn the_fuzz_corpus_of_requests_passes() {
        corpus(env!("CARGO_MANIFEST_DIR"), "requests").for_each(|bytes| checks::requests(&bytes));
    }

    #[test]
    fn events() {
        corpus(env!("CARGO_MANIFEST_DIR"), "events").for_each(|bytes| checks::events(&bytes));
    }
}
