//! The manual pages and the guide against the programs: every option is in both.

use std::fs;
use std::path::Path;

use clap::ArgAction;
use rstest::rstest;
use testbed::local::{Scratch, run};
use wrapcmd::Shell;

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
    assert_current(&format!("etc/completions/sema.{shell}"), &own);
}

/// With LFPD_UPDATE in the environment, the file is written anew instead.
fn assert_current(file: &str, made: &str) {
    if std::env::var_os("LFPD_UPDATE").is_some() {
        fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join(file), made).unwrap();
    }
    let advice = "the options have changed: LFPD_UPDATE=1 cargo test --test commands documents";
    assert!(document(file) == made, "{file}: {advice}");
}

/// The command line of `semats`, as its help has it.
fn semats_command() -> clap::Command {
    let help: &'static str = Scratch::new().semats(&["--help"]).out.leak();
    let (_, commands) = help.split_once("Commands:\n").unwrap();
    let (commands, options) = commands.split_once("\n\nOptions:\n").unwrap();
    let (options, _) = options.split_once("\n\n").unwrap();
    let mut semats = clap::Command::new("semats").disable_help_subcommand(true);
    for line in commands.lines() {
        let (name, about) = line.trim().split_once(" <path>").unwrap();
        let path = clap::Arg::new("path").value_name("PATH");
        semats = semats.subcommand(clap::Command::new(name).about(about.trim()).arg(path));
    }
    for line in options.lines().filter(|line| !line.contains("--help")) {
        let (names, help) = line.trim().split_once("  ").unwrap();
        let long = names.split([' ', ',']).find_map(|word| word.strip_prefix("--")).unwrap();
        let short =
            names.strip_prefix('-').and_then(|rest| rest.chars().next()).filter(|it| *it != '-');
        let takes = if names.contains('<') { ArgAction::Set } else { ArgAction::SetTrue };
        let option = clap::Arg::new(long).long(long).short(short);
        semats = semats.arg(option.action(takes).global(true).help(help.trim()));
    }
    semats
}

#[rstest]
fn the_completions_of_semats_are_current(
    #[values(Shell::Bash, Shell::Fish, Shell::Zsh)] shell: Shell,
) {
    let made = wrapcmd::completions(shell, &semats_command());
    assert_current(&format!("etc/completions/semats.{shell:?}").to_lowercase(), &made);
}

#[test]
fn semats_1_has_every_option_and_no_other() {
    let help = Scratch::new().semats(&["--help"]).out;
    assert_eq!(options(&document("man/semats.1")), options(&help));
}

#[test]
fn the_guide_knows_only_real_options() {
    let manual = options(&document("man/sema.1"));
    let readme = document("../../docs/sema.md");
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
    let commands = page.lines().filter_map(|line| line.strip_prefix("    "));
    let commands: Vec<&str> = commands
        .filter(|line| ["sema ", "mkdir "].iter().any(|program| line.starts_with(program)))
        .collect();
    assert_eq!(commands.len(), 6);
    let scratch = Scratch::new();
    let stand_ins = r#"for name in backup.sh search.sh curl; do
        printf '#!/bin/sh\necho ${0##*/} $*\n' >$name; chmod 755 $name; done
        HOME=$PWD; PATH=$PWD:$PATH; url=there"#;
    let lines: String = commands.iter().map(|line| format!("\n{line} || exit")).collect();
    let ran = scratch.sh(&format!("{stand_ins}{lines}"));
    let said = "backup.sh\nbackup.sh\nsearch.sh\ncurl -O there\nstatus: free\n";
    assert_eq!((ran.code, ran.out.as_str()), (0, said), "{ran:?}");
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
    let manual = manual.replace(" ||\n ", " ||");
    let line = manual.lines().find(|line| line.starts_with("(set -C;")).unwrap().to_owned();
    let ran = scratch.sh(&format!("{line}\nsema status my.lock | head -1\n{line}"));
    assert_eq!((ran.code, ran.out.as_str()), (1, "locked: true\n"), "{ran:?}");
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
    let ran = run(mandoc.args(["-Tlint", "-Wwarning"]).arg(&path));
    assert_eq!((ran.code, ran.out.as_str()), (0, ""), "mandoc is in the package mandoc");
}
