//! `--help` of every program and command on a terminal of eighty columns, the tip after a mistyped word, and the options
//! and codes that docs/conventions.md promises for the three commands.

use std::io;
use std::path::Path;
use std::process::{Command, Output};

use rstest::rstest;

fn run(program: &str, words: &[&str]) -> io::Result<Output> {
    let path = match program {
        "lfpd" => env!("CARGO_BIN_EXE_lfpd").into(),
        "lfp" => testbed::program("lfp", program, &["cli"]),
        "dflock" => testbed::program("dflock", program, &["cli"]),
        "dflockd" => testbed::program("dflockd", program, &[]),
        _ => testbed::program("file-semaphore", program, &["cli"]),
    };
    let mut command = Command::new(path);
    command
        .args(words)
        .env("COLUMNS", "80")
        .env("TERM", "dumb")
        .env_remove("DFLOCK_SERVERS")
        .output()
}

/// The commands that the help of a program lists.
fn commands(help: &str) -> Vec<String> {
    let (_, listed) = help.split_once("\nCommands:\n").unwrap_or_default();
    let listed = listed.lines().take_while(|line| !line.is_empty());
    // A line that begins further right goes on with the one above.
    let names = listed.filter(|line| !line.starts_with("   "));
    names.filter_map(|line| line.split_whitespace().next().map(str::to_owned)).collect()
}

#[rstest]
#[case::lfpd("lfpd", 0)]
#[case::lfp("lfp", 11)]
#[case::dflock("dflock", 9)]
#[case::dflockd("dflockd", 0)]
#[case::sema("sema", 9)]
#[case::semats("semats", 0)]
fn help_fits_the_width_and_shows_examples(#[case] program: &str, #[case] least: usize) {
    let help = |words: &[&str]| {
        let shown = run(program, words).unwrap();
        assert_eq!((shown.status.code(), &*shown.stderr), (Some(0), &b""[..]), "{shown:?}");
        let text = String::from_utf8(shown.stdout).unwrap();
        let long: Vec<_> = text.lines().filter(|line| line.chars().count() > 80).collect();
        assert!(long.is_empty(), "{words:?}: {long:#?}");
        assert!(!text.contains('\u{1b}'), "{words:?} has colours: {text}");
        let (_, examples) = text.split_once("\nExamples:\n").expect("examples");
        let count = examples.lines().filter(|line| line.contains(program)).count();
        assert!(count >= 2, "{words:?}: {examples}");
        text
    };
    let commands = if least == 0 { Vec::new() } else { commands(&help(&["--help"])) };
    assert!(commands.len() >= least, "{commands:?}");
    help(&["--help"]);
    for command in commands.iter().filter(|command| *command != "help") {
        help(&[command, "--help"]);
    }
}

/// sysexits.h, EX_USAGE; 1 where a program takes the place of another.
#[rstest]
fn wrong_usage_has_one_code(
    #[values("lfpd", "lfp", "dflock", "dflockd", "sema", "semats")] program: &str,
) {
    let code = if matches!(program, "dflockd" | "semats") { 1 } else { 64 };
    let told = run(program, &["--no-such-option"]).unwrap();
    assert_eq!((told.status.code(), &*told.stdout), (Some(code), &b""[..]), "{told:?}");
    assert!(!told.stderr.is_empty());
}

#[rstest]
#[case::a_command("lfp", &["whoo"], "'who'")]
#[case::another_programs_command("lfp", &["release", "ttyS0"], "'lfp unlock'")]
#[case::an_option("lfp", &["who", "--quite", "ttyS0"], "'--quiet'")]
#[case::a_device_alone("lfp", &["/dev/ttyS0"], "'lfp who /dev/ttyS0' shows which program has the port")]
#[case::the_device_last("lfp", &["run", "picocom", "/dev/null"], "/dev/null is a device, not a command")]
#[case::of_the_service("lfpd", &["--lisen", "/run/x"], "'--listen'")]
#[case::of_semaphores("sema", &["relase", "x"], "'release'")]
#[case::of_semaphores_elsewhere("sema", &["lock", "x"], "'sema acquire'")]
#[case::of_the_compatible_program("semats", &["status", "x", "--jsn"], "semats --help")]
#[case::of_the_compatible_program_s_commands("semats", &["lok", "x"], "try-acquire <path>")]
#[case::of_leases("dflock", &["acquier", "x"], "'acquire'")]
#[case::of_leases_elsewhere("dflock", &["unlock", "x", "y"], "'dflock release'")]
#[case::of_the_lock_server("dflockd", &["--prot", "0"], "--port")]
#[case::swapped_letters("lfp", &["unlokc"], "tip: some similar subcommands exist: 'lock', 'unlock'")]
#[case::swapped_letters_of_semaphores("sema", &["aqcuire"], "tip: a similar subcommand exists: 'acquire'")]
#[case::swapped_letters_of_leases("dflock", &["aqcuire"], "tip: a similar subcommand exists: 'acquire'")]
#[case::an_option_of_run("lfp", &["run", "--jsno"], "tip: a similar argument exists: '--json'")]
#[case::an_option_of_semaphores("sema", &["run", "--jsno"], "tip: a similar argument exists: '--json'")]
#[case::an_option_of_leases("dflock", &["run", "--jsno"], "tip: a similar argument exists: '--json'")]
#[case::nothing_like_it("dflockd", &["--nonsense"], "See dflockd --help.")]
fn a_mistyped_word_gets_a_tip(#[case] program: &str, #[case] words: &[&str], #[case] tip: &str) {
    let told = run(program, words).unwrap();
    let code = if matches!(program, "dflockd" | "semats") { 1 } else { 64 };
    assert_eq!(told.status.code(), Some(code));
    let both = [told.stdout, told.stderr].concat();
    assert!(String::from_utf8_lossy(&both).contains(tip), "{}", String::from_utf8_lossy(&both));
}

const COMMANDS: [&str; 3] = ["lfp", "sema", "dflock"];

/// The cells of the row of docs/conventions.md that begins with these words, one for each command.
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
fn row(first: &str) -> [String; 3] {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/conventions.md");
    let page = std::fs::read_to_string(page).unwrap();
    let row = page.lines().find_map(|line| line.strip_prefix(&format!("| {first} |"))).unwrap();
    let cells: Vec<String> =
        row.trim_end_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
    cells.try_into().unwrap()
}

#[rstest]
fn run_has_the_options_of_the_page(
    #[values("one JSON object instead of text", "longest wait, in seconds", "exit code when busy")]
    first: &str,
) {
    for (program, cell) in COMMANDS.into_iter().zip(row(first)) {
        let help = String::from_utf8(run(program, &["run", "--help"]).unwrap().stdout).unwrap();
        for option in cell.split(", ").map(|option| option.trim_matches('`')) {
            let is_there = help.split([' ', ',', '\n', '=']).any(|word| word == option);
            assert!(is_there, "{program} run has no {option}: {help}");
        }
    }
}

#[rstest]
#[case::no_command(&[])]
#[case::unknown_command(&["aquire-it"])]
#[case::unknown_option(&["run", "--jsno"])]
#[case::nothing_to_run(&["run"])]
fn wrong_usage_has_the_code_of_the_page(#[case] words: &[&str]) {
    for program in COMMANDS {
        let told = run(program, words).unwrap();
        assert_eq!(told.status.code(), Some(64), "{program} {words:?}: {told:?}");
        assert_eq!(told.stdout, b"", "{program} {words:?}: {told:?}");
    }
}
