//! For test programs with a `main` of their own, because they start themselves again: what `cargo test` and nextest ask of
//! a test program is answered as by the usual harness.

use std::time::Instant;

/// Lists these tests, or runs those that are meant, one after another. What they `need` is what `#[ignore]` would say: they
/// are left out unless they are asked for.
pub fn run_tests(tests: &[(&str, fn())], need: Option<&str>) {
    let wishes = Wishes::read(std::env::args().skip(1));
    let meant: Vec<_> = tests.iter().filter(|(name, _)| wishes.means(name)).collect();
    let is_listed = need.is_some() || !wishes.has("--ignored");
    if wishes.has("--list") {
        meant.iter().filter(|_| is_listed).for_each(|(name, _)| println!("{name}: test"));
        return;
    }
    let is_run = match need {
        Some(_) => wishes.has("--ignored") || wishes.has("--include-ignored"),
        None => is_listed,
    };
    let begin = Instant::now();
    for (name, test) in meant.iter().filter(|_| is_run) {
        println!("test {name} ...");
        test();
        println!("test {name} ... ok");
    }
    if let Some(need) = need.filter(|_| !is_run) {
        meant.iter().for_each(|(name, _)| println!("test {name} ... ignored, {need}"));
    }
    let [passed, ignored] = if is_run { [meant.len(), 0] } else { [0, meant.len()] };
    let filtered = tests.len() - meant.len();
    let time = begin.elapsed().as_secs_f64();
    println!(
        "\ntest result: ok. {passed} passed; 0 failed; {ignored} ignored; 0 measured; \
         {filtered} filtered out; finished in {time:.2}s\n"
    );
}

/// The words after the program's name.
#[derive(Default)]
struct Wishes {
    flags: Vec<String>,
    filters: Vec<String>,
    skipped: Vec<String>,
}

impl Wishes {
    fn read(mut words: impl Iterator<Item = String>) -> Self {
        let mut wishes = Self::default();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--skip" => wishes.skipped.extend(words.next()),
                "--format" | "--test-threads" | "--color" => drop(words.next()),
                flag if flag.starts_with('-') => match flag.strip_prefix("--skip=") {
                    Some(name) => wishes.skipped.push(name.to_owned()),
                    None => wishes.flags.push(word),
                },
                _ => wishes.filters.push(word),
            }
        }
        wishes
    }

    fn has(&self, flag: &str) -> bool {
        self.flags.iter().any(|it| it == flag)
    }

    fn means(&self, name: &str) -> bool {
        let is_exact = self.has("--exact");
        let fits = |word: &String| if is_exact { name == word } else { name.contains(word) };
        (self.filters.is_empty() || self.filters.iter().any(fits)) && !self.skipped.iter().any(fits)
    }
}
