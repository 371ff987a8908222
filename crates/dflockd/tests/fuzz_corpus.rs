//! Replays what the fuzz targets start from, also cut and with flipped bits.

#[cfg(test)]
#[path = "../fuzz/checks.rs"]
mod checks;
#[cfg(test)]
#[path = "../../leases/tests/corpus/mod.rs"]
mod corpus;

#[cfg(test)]
mod replay {
    use crate::{checks, corpus};

    #[test]
    fn state() {
        corpus::inputs(env!("CARGO_MANIFEST_DIR"), "state").for_each(|bytes| checks::state(&bytes));
    }
}
