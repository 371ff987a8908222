//! The examples of the libraries do what their heads say.

use std::process::{Command, Stdio};

use rstest::rstest;
use testbed::local::{Running, Scratch, run, start};

fn begin(package: &str, name: &str, words: &[&str]) -> Running {
    let mut command = Command::new(testbed::example(package, name));
    start(command.args(words).stdin(Stdio::piped()))
}

#[rstest]
#[case::with_the_number_alone("one_instance", &["LOCK"], "")]
#[case::with_a_text("own_content", &["DIRECTORY", "lock", "by the example"], "by the example\n")]
fn a_lock_file_is_held_by_one_process_at_a_time(
    #[case] name: &str,
    #[case] words: &[&str],
    #[case] text: &str,
) {
    let scratch = Scratch::new();
    let place = |word: &&str| match *word {
        "LOCK" => scratch.at("lock").display().to_string(),
        "DIRECTORY" => scratch.path().display().to_string(),
        word => word.to_owned(),
    };
    let words: Vec<String> = words.iter().map(place).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    // A process that is gone has had it.
    scratch.write("lock", "   4194305\n");
    let mut first = begin("pidlockfile", name, &words);
    assert_eq!(first.lines(1), ["works"]);
    assert_eq!(scratch.read("lock"), format!("{:>10}\n{text}", first.pid().as_raw()));
    let refused = run(Command::new(testbed::example("pidlockfile", name)).args(&words));
    assert_eq!((refused.code, &*refused.out), (1, ""), "{refused:?}");
    first.end_input();
    assert_eq!(first.end().code, 0);
    assert_eq!(scratch.files(), [] as [&str; 0]);
}

/// The lines of its head, and a lock that goes to the next in line when its holder leaves.
#[test]
fn a_lock_service_answers_the_lines_of_its_input() {
    let mut service = begin("leases", "conversation", &[]);
    service.type_in(b"1 l|nightly|10\n2 l|nightly|10\n");
    let said = service.lines(2);
    let token = said[0].strip_prefix("1 ok ").and_then(|rest| rest.split(' ').next()).unwrap();
    assert_eq!(said[1], "2 waits");
    service.type_in(format!("1 r|nightly|{token}\n2 x|nightly|\n").as_bytes());
    let said = service.lines(5);
    assert_eq!(said[2], "1 ok");
    assert!(said[3].starts_with("2 ok "), "{said:?}");
    assert_eq!(said[4], "2 invalid command");
    service.end_input();
    assert_eq!(service.end().code, 0);
}
