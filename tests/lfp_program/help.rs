//! `--help` of every program and command on a terminal of eighty columns, the tip after a mistyped word, and the options
//! and codes that docs/conventions.md promises for the three commands.

use std::io;
use std::process::{Command, Output};

use rstest::rstest;
use testbed::shipped;

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
    let all = help(&["--help"]);
    let commands = commands(&all);
    assert!(commands.len() >= least, "{commands:?}");
    if program == "lfp" {
        assert_eq!(commands[..3], ["who", "run", "list"], "what most users want comes first");
        assert!(all.contains("\nExit codes:\n"), "{all}");
        let (_, connection) = all.split_once("\nConnection:\n").expect("a heading");
        let (connection, _) = connection.split_once("\n\n").expect("its end");
        assert!(connection.contains("--server") && connection.contains("--direct"), "{connection}");
    }
    for command in commands.iter().filter(|command| *command != "help") {
        help(&[command, "--help"]);
    }
}

#[rstest]
#[case::another_programs_command("lfp", &["release", "ttyS0"], "'lfp unlock'")]
#[case::another_programs_command_mistyped("lfp", &["stauts"], "'lfp who'")]
#[case::a_device_alone("lfp", &["/dev/ttyS0"], "'lfp who /dev/ttyS0' shows which program has the port")]
#[case::the_device_last("lfp", &["run", "picocom", "/dev/null"], "/dev/null is a device, not a command")]
#[case::of_the_service("lfpd", &["--lisen", "/run/x"], "'--listen'")]
#[case::of_semaphores_elsewhere("sema", &["lock", "x"], "'sema acquire'")]
#[case::of_semaphores_elsewhere_mistyped("sema", &["unlokc", "x"], "'sema release'")]
#[case::of_the_compatible_program("semats", &["status", "x", "--jsn"], "semats --help")]
#[case::of_the_compatible_program_s_commands("semats", &["lok", "x"], "try-acquire <path>")]
#[case::of_leases_elsewhere("dflock", &["unlock", "x", "y"], "'dflock release'")]
#[case::of_the_lock_server("dflockd", &["--prot", "0"], "--port")]
#[case::swapped_letters("lfp", &["unlokc"], "tip: some similar subcommands exist: 'lock', 'unlock'")]
#[case::a_word_of_lfp_for_semaphores("sema", &["who"], "tip: the command for this is 'sema status'")]
#[case::a_word_of_lfp_for_leases("dflock", &["who"], "tip: the command for this is 'dflock stats'")]
#[case::flock_s_letter("lfp", &["run", "-n", "x", "true"], "tip: the option for this is '--timeout 0'")]
#[case::flock_s_option("sema", &["run", "--nowait", "x", "true"], "tip: the option for this is '--nonblock'")]
#[case::flock_s_other_letter("dflock", &["run", "-x", "x", "true"], "tip: without '--shared', the lock has one holder")]
#[case::flock_s_close("sema", &["run", "-o", "x", "true"], "tip: no option is needed: what COMMAND starts")]
#[case::flock_s_fork("dflock", &["run", "--no-fork", "x", "true"], "tip: no option is needed: signals reach COMMAND")]
#[case::flock_s_unlock("sema", &["run", "-u", "x", "true"], "tip: no option is needed: the lock ends when COMMAND ends")]
#[case::flock_s_long_unlock("sema", &["run", "--unlock", "x", "true"], "tip: no option is needed: the lock ends")]
#[case::lockfile_s_letter("sema", &["acquire", "-r", "5", "x"], "tip: the option for this is '--timeout'")]
#[case::of_another_command("dflock", &["run", "--slots", "3", "x", "true"], "tip: the option for this is '--limit'")]
#[case::of_a_pool("lfp", &["run", "--one-of", "x", "true"], "tip: 'dflock run --one-of' chooses one of several ports")]
#[case::of_a_pool_of_leases("sema", &["run", "--one-of", "x", "true"], "tip: '--slots' with the number of all")]
#[case::some_of_its_words("sema", &["run", "--conflict-code", "1", "x", "true"], "'--conflict-exit-code'")]
#[case::force_has_no_letter("lfp", &["unlock", "-f", "ttyS0"], "tip: the option for this is '--force'")]
#[case::of_a_command_that_waits("sema", &["try", "--wait", "5", "x"], "tip: this is an option of 'sema acquire', 'sema wait', 'sema run'")]
#[case::of_another_command_and_near("dflock", &["run", "--hold", "x", "true"], "tip: this is an option of 'dflock acquire'")]
#[case::of_another_command_of_the_program("lfp", &["--timeout", "3", "run", "x"], "tip: 'run --timeout' exists")]
#[case::nothing_like_it("dflockd", &["--nonsense"], "See dflockd --help.")]
#[case::no_time("lfp", &["run", "-t", "soon", "x", "true"], "number of seconds")]
#[case::no_time_for_semaphores("sema", &["run", "-t", "soon", "x", "true"], "number of seconds")]
#[case::no_time_for_leases("dflock", &["run", "-t", "soon", "x", "true"], "number of seconds")]
// clap alone would suggest an option with some letters in common. No tip is better than a wrong one.
#[case::no_such_letter("lfp", &["run", "-z", "x", "true"], NONE)]
#[case::no_such_letter_of_semaphores("sema", &["run", "-z", "x", "true"], NONE)]
#[case::no_such_option("dflock", &["run", "--force", "x", "true"], NONE)]
fn a_mistyped_word_gets_a_tip(#[case] program: &str, #[case] words: &[&str], #[case] tip: &str) {
    let told = run(program, words).unwrap();
    let code = if matches!(program, "dflockd" | "semats") { 1 } else { 64 };
    assert_eq!(told.status.code(), Some(code));
    let both = String::from_utf8([told.stdout, told.stderr].concat()).unwrap();
    assert!(!both.contains("Usage: lfp run --no-fork"), "what was not typed: {both}");
    assert!(both.contains(tip) && (tip != NONE || !both.contains("tip:")), "{both}");
}

/// The message without a tip.
const NONE: &str = "unexpected argument";

const COMMANDS: [&str; 3] = ["lfp", "sema", "dflock"];

fn help(program: &str, words: &[&str]) -> String {
    String::from_utf8(run(program, &[words, &["--help"]].concat()).unwrap().stdout).unwrap()
}

/// The options that a help lists: the letter, if there is one, and the name.
fn options(help: &str) -> Vec<(&str, &str)> {
    let is_option =
        |line: &&str| ["  -", "      --"].into_iter().any(|begin| line.starts_with(begin));
    help.lines()
        .filter(is_option)
        .filter_map(|line| {
            let mut words = line.trim_start().split([' ', ',', '=']).filter(|it| !it.is_empty());
            let first = words.next()?;
            if first.starts_with("--") { Some(("", first)) } else { Some((first, words.next()?)) }
        })
        .collect()
}

/// The options that mean the same everywhere, by docs/conventions.md.
fn options_of_the_page() -> Vec<(String, String)> {
    let page = shipped("docs/conventions.md");
    let rows = page.lines().filter(|line| line.starts_with("| `-"));
    let options = rows.map(|row| {
        let words: Vec<&str> = row.split('`').filter(|word| word.starts_with('-')).collect();
        match words.as_slice() {
            [letter, name] => ((*letter).to_owned(), (*name).to_owned()),
            [name] => (String::new(), (*name).to_owned()),
            other => panic!("{other:?}"),
        }
    });
    options.collect()
}

/// Every command of a program, and its help.
fn commands_of(program: &str) -> Vec<(String, String)> {
    let names = commands(&help(program, &[]));
    let names = names.into_iter().filter(|name| name != "help");
    names.map(|name| (name.clone(), help(program, &[&name]))).collect()
}

#[rstest]
fn options_are_those_of_the_page(#[values("lfp", "sema", "dflock")] program: &str) {
    let page = options_of_the_page();
    assert!(page.len() >= 4, "{page:?}");
    for (command, help) in commands_of(program) {
        let options = options(&help);
        for (letter, name) in &page {
            let found = options.iter().find(|(_, its)| its == name);
            if let Some((its, _)) = found {
                assert_eq!(its, letter, "{program} {command} {name}");
            }
            let is_everywhere = ["--json", "--quiet"].contains(&&**name);
            assert!(found.is_some() || (command != "run" && !is_everywhere), "{command} {name}");
        }
        let usage = help.lines().find(|line| line.starts_with("Usage:")).unwrap_or_default();
        assert!(!usage.contains(" -- "), "{program}: {usage}");
    }
}

/// An option of one name has one letter, where it has any.
#[test]
fn options_of_one_name_have_one_letter() {
    let mut letters = std::collections::BTreeMap::new();
    for program in COMMANDS {
        for (command, help) in commands_of(program) {
            for (letter, name) in
                options(&help).into_iter().filter(|(letter, _)| !letter.is_empty())
            {
                let first = letters.entry(name.to_owned()).or_insert_with(|| letter.to_owned());
                assert_eq!(first, letter, "{program} {command} {name}");
            }
        }
    }
}

/// The last two letters of a word, the other way round.
fn swapped(word: &str) -> String {
    let mut letters: Vec<char> = word.chars().collect();
    if let [.., a, b] = letters.as_mut_slice() {
        std::mem::swap(a, b);
    }
    letters.into_iter().collect()
}

#[rstest]
fn every_mistyped_command_and_option_gets_a_tip(#[values("lfp", "sema", "dflock")] program: &str) {
    let tip = |words: &[&str], right: &str| {
        let told = String::from_utf8(run(program, words).unwrap().stderr).unwrap();
        let (_, tip) = told.split_once("tip: ").unwrap_or_default();
        // `--slost` may mean `--slot` as well as `--slots`.
        let is_near = tip.contains(&format!("'{}", right.trim_end_matches('s')));
        assert!(is_near, "{program} {words:?}: {told}");
    };
    for (command, help) in commands_of(program) {
        if swapped(&command) != command {
            tip(&[&swapped(&command)], &command);
        }
        let options = options(&help);
        // `lfp shim --porst` starts a program of that name.
        let is_typed = |name: &&str| name.len() > 6 && swapped(name) != *name && command != "shim";
        for name in options.iter().map(|(_, name)| *name).filter(is_typed) {
            tip(&[&command, &swapped(name)], name);
        }
    }
}

#[test]
fn a_missing_device_has_the_code_of_the_page() {
    let page = shipped("docs/conventions.md");
    let row = page.lines().find(|line| line.contains("| no such device |")).unwrap();
    let told = run("lfp", &["who", "/dev/no-such-port"]).unwrap();
    assert_eq!(told.status.code(), row.split(['|', ' ']).find_map(|word| word.parse().ok()));
    assert!(String::from_utf8_lossy(&told.stderr).contains("there is no such device"), "{told:?}");
}

#[rstest]
#[case::no_command(&[])]
#[case::unknown_command(&["aquire-it"])]
#[case::unknown_option(&["run", "--jsno"])]
#[case::nothing_to_run(&["run"])]
#[case::negative_time(&["run", "-t", "-1", "x", "true"])]
fn wrong_usage_has_the_code_of_the_page_and_is_one_object_in_json(#[case] words: &[&str]) {
    for program in COMMANDS {
        let told = run(program, words).unwrap();
        assert_eq!((told.status.code(), &*told.stdout), (Some(64), &b""[..]), "{told:?}");
        assert_is_one_object(program, &[&["--json"], words].concat());
    }
}

fn assert_is_one_object(program: &str, words: &[&str]) {
    let told = run(program, words).unwrap();
    let object = String::from_utf8(told.stdout).unwrap();
    assert_eq!((told.status.code(), &*told.stderr), (Some(64), &b""[..]), "{words:?}: {object}");
    assert!(object.starts_with('{') && object.ends_with("}\n"), "{program} {words:?}: {object}");
    assert_eq!(object.lines().count(), 1, "{program} {words:?}: {object}");
    let (_, message) = object.split_once("\"message\":\"").unwrap();
    let unlike_a_sentence = [";;", "  ", ":;", "error:", "tip:", "Usage"];
    let found = unlike_a_sentence.into_iter().find(|text| message.contains(text));
    assert_eq!(found, None, "{program} {words:?}: {object}");
}

/// `--json` stands before or after the command.
#[rstest]
fn a_wrong_option_of_any_command_is_one_object(#[values("lfp", "sema", "dflock")] program: &str) {
    // `lfp shim --no-such-option` starts a program of that name.
    for (command, _) in commands_of(program).iter().filter(|(name, _)| name != "shim") {
        assert_is_one_object(program, &["--json", command, "--no-such-option"]);
        assert_is_one_object(program, &[command, "--json", "--no-such-option"]);
    }
}
