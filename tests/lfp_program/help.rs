//! `--help` of `lfp` and `lfpd` on a terminal of eighty columns, and what is said to a mistyped word.

use std::io;
use std::process::{Command, Output};

use rstest::rstest;

fn run(program: &str, words: &[&str]) -> io::Result<Output> {
    let path = match program {
        "lfpd" => env!("CARGO_BIN_EXE_lfpd").into(),
        _ => testbed::program("lfp", "lfp", &["cli"]),
    };
    Command::new(path).args(words).env("COLUMNS", "80").output()
}

#[rstest]
#[case::lfpd("lfpd", "")]
#[case::lfp("lfp", "")]
#[case::lock("lfp", "lock")]
#[case::unlock("lfp", "unlock")]
#[case::ask("lfp", "ask")]
#[case::pass("lfp", "pass")]
#[case::wait("lfp", "wait")]
#[case::who("lfp", "who")]
#[case::list("lfp", "list")]
#[case::run("lfp", "run")]
#[case::shim("lfp", "shim")]
#[case::adopt("lfp", "adopt")]
#[case::clean("lfp", "clean")]
fn it_fits_and_shows_examples(#[case] program: &str, #[case] command: &str) {
    let words: Vec<&str> =
        [command, "--help"].into_iter().filter(|word| !word.is_empty()).collect();
    let shown = run(program, &words).unwrap();
    let text = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert_eq!(shown.status.code(), Some(0), "{shown:?}");
    let long: Vec<_> = text.lines().filter(|line| line.chars().count() > 80).collect();
    assert!(long.is_empty(), "{long:#?}");
    let (_, examples) = text.split_once("\nExamples:\n").expect("examples");
    assert!(examples.lines().filter(|line| line.contains(program)).count() >= 2, "{examples}");
}

#[rstest]
#[case::a_command(&["whoo"], "'who'")]
#[case::an_option(&["who", "--quite", "ttyS0"], "'--quiet'")]
fn a_mistyped_word_gets_a_tip(#[case] words: &[&str], #[case] tip: &str) {
    let told = run("lfp", words).unwrap();
    assert_eq!(told.status.code(), Some(64));
    assert!(String::from_utf8_lossy(&told.stderr).contains(tip), "{told:?}");
}
