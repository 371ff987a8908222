//! The manual against the programs: every option, exit code, directory and system is in it, and
//! nothing that does not exist; and man(1) and mandoc(1) find no fault with its form.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rstest::rstest;
use testbed::shipped;
use ttylock::Dialect;

fn page(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("man").join(name)
}

/// The page as a reader sees it, in one line.
fn rendered(name: &str) -> String {
    let text = plain(&run("mandoc", &["-T", "utf8", "-O", "width=200"], &page(name)));
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Without bold, which is overstruck: a letter, a backspace, the letter again.
fn plain(text: &str) -> String {
    let mut shown = String::new();
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        if characters.peek() == Some(&'\u{8}') {
            characters.next();
        } else {
            shown.push(character);
        }
    }
    shown
}

fn run(program: &str, arguments: &[&str], page: &Path) -> String {
    let output = Command::new(program)
        .args(arguments)
        .arg(page)
        .env("LC_ALL", "C.UTF-8")
        .env("MANWIDTH", "80")
        .output()
        .expect("mandoc and man-db are not installed: run .ci/install");
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && complaints.is_empty(), "{program}: {complaints}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// By each program that shows manual pages, also on a terminal of the usual width.
#[rstest]
#[case::man("man", &["--warnings", "--encoding=UTF-8", "--local-file"])]
#[case::mandoc("mandoc", &["-T", "utf8", "-O", "width=78"])]
#[case::lint("mandoc", &["-T", "lint", "-W", "warning"])]
#[ignore = "needs programs: tests/run"]
fn the_manual_pages_have_no_formatting_errors(#[case] program: &str, #[case] arguments: &[&str]) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let crates = fs::read_dir(root.join("crates")).unwrap();
    let directories =
        crates.map(|entry| entry.unwrap().path().join("man")).chain([root.join("man")]);
    let pages = directories.filter_map(|directory| fs::read_dir(directory).ok()).flatten();
    let pages: Vec<PathBuf> = pages.map(|entry| entry.unwrap().path()).collect();
    assert!(pages.len() >= 10, "{pages:?}");
    for page in pages {
        let text = run(program, arguments, &page);
        let is_right =
            if arguments.contains(&"lint") { text.is_empty() } else { text.len() > 1000 };
        assert!(is_right, "{}: {text}", page.display());
        for line in text.lines().map(plain) {
            assert!(line.chars().count() <= 80, "{}: {line}", page.display());
        }
    }
}

/// Every `--word` and `-X` of a text.
fn options(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
    words
        .filter(|word| {
            let long = word.strip_prefix("--").is_some_and(|name| {
                name.len() > 1 && name.starts_with(|c: char| c.is_ascii_lowercase())
            });
            let short = word.strip_prefix('-').is_some_and(|name| {
                name.len() == 1 && name.chars().all(|c| c.is_ascii_alphabetic())
            });
            long || short
        })
        .map(str::to_owned)
        .collect()
}

/// Every option that a program takes, those of its visible commands included.
fn taken(command: &clap::Command) -> BTreeSet<String> {
    let mut taken: BTreeSet<String> = ["-h", "--help", "-V", "--version"].map(String::from).into();
    let commands = command.get_subcommands().filter(|command| !command.is_hide_set());
    for command in commands.chain([command]) {
        for option in command.get_arguments() {
            taken.extend(option.get_long().map(|long| format!("--{long}")));
            taken.extend(option.get_short().map(|short| format!("-{short}")));
        }
    }
    taken
}

#[rstest]
#[case::lfp("lfp.1", lfp::command::command(), &["-b", "-F", "-N"])]
#[case::lfpd("lfpd.8", lfpd::cli::command(), &["--now"])]
#[ignore = "needs programs: tests/run"]
fn every_option_is_described(
    #[case] name: &str,
    #[case] command: clap::Command,
    #[case] of_other_programs: &[&str],
) {
    let mut described = options(&rendered(name));
    for option in of_other_programs {
        assert!(described.remove(*option), "{option}");
    }
    assert_eq!(described, taken(&command));
}

#[test]
#[ignore = "needs programs: tests/run"]
fn every_command_is_described() {
    let text = rendered("lfp.1");
    for command in lfp::command::command().get_subcommands().filter(|it| !it.is_hide_set()) {
        assert!(text.contains(&format!(" {} ", command.get_name())), "{}", command.get_name());
    }
}

/// The table that `lfp_program::codes` plays through.
#[test]
#[ignore = "needs programs: tests/run"]
fn every_exit_code_of_lfp_is_described() {
    let text = rendered("lfp.1");
    let (_, table) = text.split_once("EXIT STATUS").expect("a section");
    let (table, _) = table.split_once("EXAMPLES").expect("the next section");
    let codes = [
        "0 Done.",
        "1 Busy:",
        "64 Wrong usage.",
        "66 who, lock, wait, run: there is no such device.",
        "69 No service",
        "71 The system",
        "74 The output",
        "75 The time is up.",
        "77 Not permitted:",
        "126 COMMAND cannot be executed.",
        "127 COMMAND was not found.",
        "128+N Signal N",
    ];
    let mut rest = table;
    for code in codes {
        let (_, after) = rest.split_once(code).unwrap_or_else(|| panic!("{code} in {table}"));
        rest = after;
    }
}

/// The members of a holder in JSON, in their order, as `lfp_program::look` finds them.
#[test]
#[ignore = "needs programs: tests/run"]
fn every_member_of_a_holder_is_described() {
    let text = shipped("man/lfp.1");
    let begin = text.find("{\"device\":").unwrap();
    let example = &text[begin..text[begin..].find('}').unwrap() + begin];
    let members: Vec<&str> = example
        .split('"')
        .collect::<Vec<_>>()
        .windows(2)
        .filter(|pair| pair[1].starts_with(": ") || pair[1].starts_with(':'))
        .map(|pair| pair[0])
        .collect();
    let expected = [
        "device",
        "scheme",
        "file",
        "pid",
        "uid",
        "user",
        "command",
        "since",
        "since_unix",
        "standing",
    ];
    assert_eq!(members, expected);
}

#[test]
#[ignore = "needs programs: tests/run"]
fn every_directory_and_system_is_described() {
    let text = rendered("lfpd.8");
    for directory in Dialect::known_directories() {
        let directory = directory.display();
        let found = [" ", ","].iter().any(|end| text.contains(&format!(" {directory}{end}")));
        assert!(found, "{directory}");
    }
    for system in Dialect::systems() {
        assert!(text.contains(system.name()), "{}", system.name());
    }
}

/// Every reply code and every command of the protocol.
#[test]
#[ignore = "needs programs: tests/run"]
fn the_protocol_is_described() {
    let text = rendered("lfp.7");
    for words in [
        "200 Command okay.",
        "202 Command not implemented",
        "211, 213",
        "214",
        "220 HOST Lock File Server (Version VERSION) ready",
        "221 Thank you for using the Lock File service on HOST",
        "421 Service not available, closing control connection",
        "450 : File busy",
        "500 'line': command not understood",
        "550 : Permission denied.",
        "LOCK device pid",
        "UNLOCK device pid",
        "WAIT device pid seconds",
        "STAT device",
        "NOOP",
        "HELP",
        "QUIT",
    ] {
        assert!(text.contains(words), "{words} in {text}");
    }
}
