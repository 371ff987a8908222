//! The manual pages and the README against the programs: every option is in both.

mod scratch;

use std::fs;
use std::path::Path;

use rstest::rstest;
use scratch::{Scratch, finish};

fn document(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    fs::read_to_string(path).unwrap_or_default()
}

/// `--option` words of a text, sorted.
fn options(text: &str) -> Vec<String> {
    let text = text.replace("\\-", "-").replace("\\fI", " ");
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
    let mut options: Vec<String> = words
        .filter(|word| word.len() > 3 && word.starts_with("--") && !word.ends_with('-'))
        .map(str::to_owned)
        .collect();
    options.sort();
    options.dedup();
    options
}

#[test]
fn sema_1_has_every_option_and_no_other() {
    let scratch = Scratch::new();
    let mut help = scratch.sema(&["--help"]).out;
    for command in ["try", "acquire", "release", "status", "wait", "list", "clean", "touch", "run"]
    {
        help += &scratch.sema(&[command, "--help"]).out;
        assert!(document("man/sema.1").contains(command));
    }
    assert!(options(&help).len() >= 12, "{help}");
    assert_eq!(options(&document("man/sema.1")), options(&help));
}

#[rstest]
#[case::bash("bash")]
#[case::zsh("zsh")]
#[case::fish("fish")]
fn the_completions_to_install_are_the_programs_own(#[case] shell: &str) {
    let own = Scratch::new().sema(&["completions", shell]).out;
    let again = format!("sema completions {shell} >etc/completions/sema.{shell}");
    assert!(own == document(&format!("etc/completions/sema.{shell}")), "make it anew: {again}");
}

#[test]
fn semats_1_has_every_option_and_no_other() {
    let help = Scratch::new().semats(&["--help"]).out;
    assert_eq!(options(&document("man/semats.1")), options(&help));
}

#[test]
fn the_readme_knows_only_real_options() {
    let manual = options(&document("man/sema.1"));
    let readme = document("README.md");
    let ours: Vec<&str> = readme.lines().filter(|line| !line.contains("cargo ")).collect();
    let readme = options(&ours.join("\n"));
    assert!(readme.len() >= 5);
    for option in readme {
        assert!(manual.contains(&option), "{option}");
    }
}

/// The commands of docs/semaphores.md, with stand-ins for the programs that they run.
#[test]
fn the_page_of_the_book_runs() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/semaphores.md");
    let page = fs::read_to_string(page).unwrap();
    let commands: Vec<&str> =
        page.lines().filter_map(|line| line.strip_prefix("    sema ")).collect();
    assert_eq!(commands.len(), 5);
    let scratch = Scratch::new();
    let stand_ins = r#"for name in backup.sh search.sh curl; do
        printf '#!/bin/sh\necho ${0##*/} $*\n' >$name; chmod 755 $name; done; PATH=$PWD:$PATH; url=there"#;
    let lines: String = commands.iter().map(|words| format!("\nsema {words} || exit")).collect();
    let ran = scratch.sh(&format!("{stand_ins}{}", lines.replace("/run/lock/", "./")));
    let said = "backup.sh\nbackup.sh\nsearch.sh\ncurl -O there\nstatus: free\n";
    assert_eq!((ran.code(), ran.out.as_str()), (0, said), "{ran:?}");
}

#[test]
fn sema_5_shows_a_file_that_parses() {
    let manual = document("man/sema.5");
    let (_, example) = manual.split_once(".SH EXAMPLES\n.EX\n").unwrap();
    let (example, _) = example.split_once(".EE").unwrap();
    let info = file_semaphore::LockInfo::parse(example.as_bytes()).unwrap();
    assert_eq!(info.to_text(), example);
    for key in example.lines().map(|line| line.split_once('=').unwrap().0) {
        assert!(manual.contains(&format!(".TP\n.B {key}\n")), "{key}");
    }
}

#[test]
fn the_shell_of_sema_5_takes_part() {
    let scratch = Scratch::new();
    let manual = document("man/sema.5").replace("\\-", "-").replace("\\en", "\\n");
    let line = manual.lines().find(|line| line.starts_with("(set -C;")).unwrap().to_owned();
    let ran = scratch.sh(&format!("{line}\nsema status my.lock | head -1\n{line}"));
    assert_eq!((ran.code(), ran.out.as_str()), (1, "locked: true\n"), "{ran:?}");
}

#[rstest]
#[case::sema_1("man/sema.1")]
#[case::semats_1("man/semats.1")]
#[case::sema_5("man/sema.5")]
#[ignore = "needs programs: tests/run"]
fn the_manual_is_well_formed(#[case] name: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    let scratch = Scratch::new();
    let mut mandoc = scratch.command("mandoc");
    let ran = finish(mandoc.args(["-Tlint", "-Wwarning"]).arg(&path));
    assert_eq!((ran.code(), ran.out.as_str()), (0, ""), "mandoc is in the package mandoc");
}
