//! The manual, the completions and the guide against the program: every option and code is told,
//! nothing is told that does not exist, and the examples work.

use crate::program::{PATH, assert_free, bare, run, shell};
use rstest::rstest;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use testbed::dflockd::Daemon;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

fn page(name: &str) -> String {
    let package = if name.ends_with(".1") { ROOT.to_owned() } else { format!("{ROOT}/../dflockd") };
    format!("{package}/man/{name}")
}

/// What a program says of a page, which it must find no fault with.
fn reader(program: &str, arguments: &[&str], page: &str) -> String {
    let mut command = Command::new(program);
    command.args(arguments).arg(page).env("LC_ALL", "C.UTF-8").env("MANWIDTH", "80");
    let output = command.output().expect("mandoc and man-db are not installed: run .ci/install");
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && complaints.is_empty(), "{program}: {complaints}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The page as one reads it, in one line. Bold is overstruck: a letter, a backspace, the letter.
fn rendered() -> String {
    let text = reader("mandoc", &["-T", "utf8", "-O", "width=200"], &page("dflock.1"));
    let mut shown = String::new();
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        if characters.next_if_eq(&'\u{8}').is_none() {
            shown.push(character);
        }
    }
    shown.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[rstest]
#[ignore = "needs programs: tests/run"]
fn the_manual_pages_have_no_formatting_errors(#[values("dflock.1", "dflockd.8")] name: &str) {
    assert_eq!(reader("mandoc", &["-T", "lint", "-W", "warning"], &page(name)), "");
    let shown = reader("man", &["--warnings", "--encoding=UTF-8", "--local-file"], &page(name));
    assert!(shown.lines().count() > 50, "{shown}");
}

/// Every `--word` and `-X` of a text.
fn options(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let is_option = |word: &&str| match word.strip_prefix("--") {
        Some(long) => long.starts_with(|c: char| c.is_ascii_lowercase()),
        None => word.strip_prefix('-').is_some_and(|short| {
            short.len() == 1 && short.starts_with(|c: char| c.is_ascii_alphabetic())
        }),
    };
    text.split(|c| !is_part(c)).filter(is_option).map(str::to_owned).collect()
}

#[test]
#[ignore = "needs programs: tests/run"]
fn every_option_is_described() {
    let command = dflock::program::command();
    let mut taken: BTreeSet<String> = ["-h", "--help", "-V", "--version"].map(String::from).into();
    for command in command.get_subcommands().chain([&command]) {
        for option in command.get_arguments() {
            taken.extend(option.get_long().map(|long| format!("--{long}")));
            taken.extend(option.get_short().map(|short| format!("-{short}")));
        }
    }
    let mut described = options(&rendered());
    // Of the server, and of test(1), sh(1) and ffmpeg(1) in the examples.
    assert!(described.contains("-c"));
    for other in ["--auto-release-on-disconnect", "--disconnect-grace", "--state-dir", "-i", "-r"] {
        assert!(described.remove(other), "{other}");
    }
    assert_eq!(described, taken);
}

#[test]
#[ignore = "needs programs: tests/run"]
fn every_command_and_variable_is_described() {
    let text = rendered();
    let command = dflock::program::command();
    for command in command.get_subcommands() {
        assert!(text.contains(&format!(" {} ", command.get_name())), "{}", command.get_name());
        for variable in command.get_arguments().filter_map(clap::Arg::get_env) {
            assert!(text.contains(variable.to_str().unwrap()), "{variable:?}");
        }
    }
}

/// `--help` and the manual have the same codes with the same meaning, in the same order.
#[test]
#[ignore = "needs programs: tests/run"]
fn every_exit_code_is_described() {
    let help = run(&mut bare(&["--help"])).out;
    let (_, told) = help.split_once("Exit codes:\n").unwrap();
    let codes: Vec<&str> = told
        .lines()
        .filter_map(|line| line.strip_prefix("  ")?.split(' ').next())
        .filter(|word| !word.is_empty())
        .collect();
    assert_eq!(codes, ["0", "1", "64", "69", "71", "74", "75", "76", "77", "78"]);
    let text = rendered();
    let (_, table) = text.split_once("EXIT STATUS").unwrap();
    let (mut rest, _) = table.split_once("EXAMPLES").unwrap();
    for code in codes.into_iter().chain(["126", "127", "128+N"]) {
        let (_, after) = rest.split_once(&format!(" {code} ")).unwrap_or_else(|| panic!("{code}"));
        rest = after;
    }
}

/// With LFPD_UPDATE in the environment, the file is written anew instead.
#[rstest]
fn completions_are_current(#[values("bash", "zsh", "fish")] shell: &str) {
    let file = format!("{ROOT}/etc/completions/dflock.{shell}");
    let made = run(&mut bare(&["completions", shell])).out;
    if std::env::var_os("LFPD_UPDATE").is_some() {
        fs::write(&file, &made).unwrap();
    }
    let advice = "the options have changed: LFPD_UPDATE=1 cargo test --test client completions";
    assert!(fs::read_to_string(&file).unwrap() == made, "{advice}");
}

#[rstest]
#[case::command("acq", 1, "acquire")]
#[case::option("--auth", 1, "--auth-token-file")]
#[case::option_of_a_command("run --conf", 2, "--conflict-exit-code")]
fn bash_completes(#[case] begun: &str, #[case] at: usize, #[case] offered: &str) {
    let last = begun.split(' ').next_back().unwrap();
    let script = format!(
        "source '{ROOT}/etc/completions/dflock.bash'; COMP_WORDS=(dflock {begun}); COMP_CWORD={at}; \
         _dflock dflock {last} x; echo \"${{COMPREPLY[@]}}\""
    );
    let end = run(Command::new("bash").args(["--norc", "-c", &script]));
    assert_eq!(end.out.trim(), offered, "{end:?}");
}

/// The guide's resource that checks fences, as it stands there: it lets the latest holder publish
/// as often as it likes, and turns away one who was overtaken.
#[test]
fn the_example_of_a_fence_turns_the_late_away() {
    let readme = fs::read_to_string(format!("{ROOT}/../../docs/dflock.md")).unwrap();
    let (_, rest) = readme.split_once("    #!/bin/sh\n    # publish FENCE FILE").unwrap();
    let (body, _) = rest.split_once("\n\n").unwrap();
    let page = fs::read_to_string(page("dflock.1")).unwrap();
    let unindented: Vec<&str> = body.lines().skip(1).map(str::trim_start).collect();
    assert!(page.contains(&unindented.join("\n")), "the manual has another one");

    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().to_str().unwrap();
    let script = format!("#!/bin/sh\n{}\n", unindented.join("\n").replace("/srv/report", place));
    let publish = dir.path().join("publish");
    testbed::script(&publish, &script);
    let daemon = Daemon::start(&[]);
    let hold = |script: &str| {
        let line = format!("cd {place}; PATH={place}:$PATH; dflock run report -- sh -c '{script}'");
        run(&mut shell(&daemon, &line))
    };
    let early = hold("echo early >new; ./publish $DFLOCK_FENCE new; echo $DFLOCK_FENCE");
    let fence = early.out.trim().to_owned();
    assert_eq!((early.code, &*early.err), (0, ""), "{early:?}");
    let later = hold("for x in 1 2; do echo later >new; publish $DFLOCK_FENCE new || exit; done");
    assert_eq!((later.code, &*later.err), (0, ""), "{later:?}");
    fs::write(dir.path().join("new"), "late\n").unwrap();
    let mut late = Command::new("./publish");
    late.args([&fence, "new"]).current_dir(dir.path()).env_clear().env("PATH", PATH);
    let late = run(&mut late);
    assert_eq!((late.code, &*late.err), (1, "publish: too late\n"), "{late:?}");
    assert_eq!(fs::read_to_string(dir.path().join("current")).unwrap(), "later\n");
    assert!(Path::new(place).join("new").exists());
    assert_free(&daemon);
}
