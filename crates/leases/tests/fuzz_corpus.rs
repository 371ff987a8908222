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

    fn corpus(name: &str) -> Vec<Vec<u8>> {
        let dir = format!("{}/fuzz/corpus/{name}", env!("CARGO_MANIFEST_DIR"));
        let files = std::fs::read_dir(&dir).expect(&dir);
        let seeds: Vec<Vec<u8>> =
            files.map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect();
        assert!(seeds.len() >= 8, "{dir} is nearly empty");
        seeds
    }

    /// The seed, the seed cut at up to 200 places, the seed with one bit flipped at as many.
    fn variants(seed: &[u8]) -> impl Iterator<Item = Vec<u8>> + '_ {
        let step = seed.len().div_ceil(200).max(1);
        let cuts = (0..=seed.len()).step_by(step).map(|cut| seed[..cut].to_vec());
        let flips = (0..seed.len()).step_by(step).map(|place| {
            let mut bytes = seed.to_vec();
            bytes[place] ^= 1 << (place % 8);
            bytes
        });
        cuts.chain(flips)
    }

    #[test]
    fn requests() {
        for seed in corpus("requests") {
            variants(&seed).for_each(|bytes| checks::requests(&bytes));
        }
    }

    #[test]
    fn events() {
        for seed in corpus("events") {
            variants(&seed).for_each(|bytes| checks::events(&bytes));
        }
    }
}
