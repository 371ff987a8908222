//! The three commands behave as the tables of docs/conventions.md say.

#![expect(clippy::unwrap_used, reason = "a test fails where it stands")]

use std::path::Path;
use std::process::{Command, Output};

use rstest::rstest;

const COMMANDS: [&str; 3] = ["lfp", "sema", "dflock"];

fn run(name: &str, words: &[&str]) -> Output {
    let (package, features): (_, &[&str]) = match name {
        "sema" => ("file-semaphore", &["cli"]),
        name => (name, &["cli"]),
    };
    Command::new(testbed::program(package, name, features)).args(words).output().unwrap()
}

/// The cells of the row of the page that begins with this one.
fn row(first: &str) -> [String; 3] {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/conventions.md");
    let page = std::fs::read_to_string(page).unwrap();
    let row = page.lines().find_map(|line| line.strip_prefix(&format!("| {first} |"))).unwrap();
    let cells: Vec<String> =
        row.trim_end_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
    cells.try_into().unwrap()
}

#[rstest]
#[ignore = "needs programs: tests/run"]
fn run_has_the_options_of_the_page(
    #[values("one JSON object instead of text", "longest wait, in seconds", "exit code when busy")]
    first: &str,
) {
    for (name, cell) in COMMANDS.into_iter().zip(row(first)) {
        let help = String::from_utf8(run(name, &["run", "--help"]).stdout).unwrap();
        for option in cell.split(", ").map(|option| option.trim_matches('`')) {
            let is_there = help.split([' ', ',', '\n', '=']).any(|word| word == option);
            assert!(is_there, "{name} run has no {option}: {help}");
        }
    }
}

#[rstest]
#[case::no_command(&[])]
#[case::unknown_command(&["aquire-it"])]
#[case::unknown_option(&["run", "--jsno"])]
#[case::nothing_to_run(&["run"])]
#[ignore = "needs programs: tests/run"]
fn wrong_usage_has_the_code_of_the_page(#[case] words: &[&str]) {
    for name in COMMANDS {
        let end = run(name, words);
        assert_eq!(end.status.code(), Some(64), "{name} {words:?}: {end:?}");
        assert_eq!(end.stdout, b"", "{name} {words:?}: {end:?}");
    }
}

#[rstest]
#[case::lfp("lfp", &["unlokc"], "unlock")]
#[case::sema("sema", &["aqcuire"], "acquire")]
#[case::dflock("dflock", &["aqcuire"], "acquire")]
#[case::lfp_option("lfp", &["run", "--jsno"], "--json")]
#[case::sema_option("sema", &["run", "--jsno"], "--json")]
#[case::dflock_option("dflock", &["run", "--jsno"], "--json")]
#[ignore = "needs programs: tests/run"]
fn a_mistyped_word_gets_a_tip(#[case] name: &str, #[case] words: &[&str], #[case] tip: &str) {
    let end = run(name, words);
    let said = String::from_utf8(end.stderr).unwrap();
    assert!(
        said.lines().any(|line| line.contains("tip:") && line.contains(tip)),
        "{name} {words:?}: {said}"
    );
}
