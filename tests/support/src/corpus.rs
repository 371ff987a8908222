//! What fuzz targets start from, and variants of it, for ordinary tests.

/// Each seed of `DIR/fuzz/corpus/NAME`, whole, cut at up to 200 places, and with one bit flipped at as many.
pub fn corpus(dir: &str, name: &str) -> impl Iterator<Item = Vec<u8>> {
    let dir = format!("{dir}/fuzz/corpus/{name}");
    let files = std::fs::read_dir(&dir).expect(&dir);
    let seeds: Vec<Vec<u8>> =
        files.map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect();
    assert!(seeds.len() >= 8, "{dir} is nearly empty");
    seeds.into_iter().flat_map(|seed| variants(&seed).collect::<Vec<_>>())
}

fn variants(seed: &[u8]) -> impl Iterator<Item = Vec<u8>> + '_ {
    let step = seed.len().div_ceil(200).max(1);
    let cuts = (0..=seed.len()).step_by(step).map(|cut| seed[..cut].to_vec());
    let flips = (0..seed.len()).step_by(step).map(|place| {
        let mut bytes = seed.to_vec();
        bytes[place] ^= 1 << (place % 8);
        bytes
    });
    cuts.chain(flips).chain([seed.to_vec()])
}
