//! The command line, word by word.

use rstest::rstest;

use super::*;

fn read(line: &str) -> Result<Command, clap::Error> {
    let words: Vec<_> = line.split(' ').map(OsString::from).collect();
    parse(&words).map(|it| it.command)
}

#[test]
fn clap_finds_no_fault_with_the_definition() {
    Arguments::command().debug_assert();
}

#[rstest]
#[case::its_other_name("sema try-acquire a")]
#[case::options_before_the_path("sema try --tag x --json a")]
#[case::options_after_the_path("sema try a --tag x --stale 5 --stale-when age --mode 600 -q")]
#[case::touch("sema touch a --pid 7")]
#[case::output_first("sema --json -q status a")]
fn valid_arguments_are_accepted(#[case] line: &str) {
    read(line).unwrap();
}

#[rstest]
#[case::unknown_option("sema try a --wait")]
#[case::two_paths("sema try a b")]
#[case::timeout_of_try("sema try a --timeout 5")]
#[case::slots_too_many("sema try a --slots 1025")]
#[case::slots_plus("sema try a --slots +2")]
#[case::pid_zero("sema try a --pid 0")]
#[case::pid_word("sema try a --pid me")]
#[case::mode_word("sema try a --mode rw")]
#[case::mode_too_large("sema try a --mode 1666")]
#[case::mode_executable("sema try a --mode 755")]
#[case::stale_when("sema try a --stale-when never")]
fn invalid_arguments_are_refused(#[case] line: &str) {
    assert!(read(line).unwrap_err().use_stderr());
}

#[rstest]
#[case::default("", Some(3600))]
#[case::given(" --stale 60", Some(60))]
#[case::never(" --stale 0", None)]
#[case::never_with_a_fraction(" --stale 0.0", None)]
fn a_stale_timeout_of_zero_is_never(#[case] option: &str, #[case] timeout: Option<u64>) {
    let Command::Status(status) = read(&format!("sema status a{option}")).unwrap() else {
        panic!("not status")
    };
    assert_eq!(status.config().stale_timeout, timeout.map(Duration::from_secs));
}
