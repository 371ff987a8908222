//! Each guarantee of the README names tests that exist.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

fn sources() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders =
        ["src", "src/tests", "tests"].map(|folder| std::fs::read_dir(root.join(folder)).unwrap());
    let files = folders.into_iter().flatten().map(|entry| entry.unwrap().path());
    let sources = files.filter(|path| path.extension().is_some_and(|end| end == "rs"));
    sources.map(|path| std::fs::read_to_string(path).unwrap()).collect()
}

#[test]
fn every_guarantee_names_tests_that_exist() {
    let readme =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap();
    let sources = sources();
    let rows = readme.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
    let mut guarantees = 0;
    for row in rows.skip(1) {
        let (guarantee, tests) = row.rsplit_once(" | ").unwrap();
        let names: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
        assert!(!names.is_empty(), "{guarantee:?} names no test");
        for name in names {
            assert!(sources.contains(&format!("fn {name}(")), "there is no test {name}");
        }
        guarantees += 1;
    }
    assert!(guarantees > 10, "{guarantees}");
}
