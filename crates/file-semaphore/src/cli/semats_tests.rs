//! The command line of `semats`, word by word.

use rstest::rstest;

use super::*;

fn asked(line: &str) -> Result<SematsRequest, Other> {
    ask(line.split(' ').filter(|word| !word.is_empty()).map(OsString::from).collect())
}

fn plain(command: SematsCommand) -> SematsRequest {
    SematsRequest {
        command,
        path: "p".into(),
        tag: None,
        timeout: None,
        force: false,
        form: Form::Text,
        verbose: false,
    }
}

#[rstest]
#[case::acquire("acquire p", plain(SematsCommand::Acquire))]
#[case::try_acquire("try-acquire p", plain(SematsCommand::TryAcquire))]
#[case::release("release p", plain(SematsCommand::Release))]
#[case::status("status p", plain(SematsCommand::Status))]
#[case::clean("clean p", plain(SematsCommand::Clean))]
#[case::tag("acquire p --tag x", SematsRequest { tag: Some("x".into()), ..plain(SematsCommand::Acquire) })]
#[case::short_tag("acquire -t x p", SematsRequest { tag: Some("x".into()), ..plain(SematsCommand::Acquire) })]
#[case::tag_with_equals("acquire p --tag=a=b", SematsRequest { tag: Some("a=b".into()), ..plain(SematsCommand::Acquire) })]
#[case::tag_like_an_option("acquire p -t -f", SematsRequest { tag: Some("-f".into()), ..plain(SematsCommand::Acquire) })]
#[case::timeout("acquire --timeout 500 p", SematsRequest { timeout: Some(Duration::from_millis(500)), ..plain(SematsCommand::Acquire) })]
#[case::force("release p --force", SematsRequest { force: true, ..plain(SematsCommand::Release) })]
#[case::short_force("release -f p", SematsRequest { force: true, ..plain(SematsCommand::Release) })]
#[case::json("status --json p", SematsRequest { form: Form::Json, ..plain(SematsCommand::Status) })]
#[case::short_json("status p -j", SematsRequest { form: Form::Json, ..plain(SematsCommand::Status) })]
#[case::verbose("clean -v p", SematsRequest { verbose: true, ..plain(SematsCommand::Clean) })]
#[case::options_before_the_command("-j -v status p", SematsRequest { form: Form::Json, verbose: true, ..plain(SematsCommand::Status) })]
#[case::path_behind_two_dashes("status -- p", plain(SematsCommand::Status))]
#[case::no_option_behind_them("status -- -j", SematsRequest { path: "-j".into(), ..plain(SematsCommand::Status) })]
fn command_lines_are_parsed(#[case] line: &str, #[case] request: SematsRequest) {
    assert_eq!(asked(line), Ok(request));
}

#[rstest]
#[case::short_help("-h", Other::Help)]
#[case::long_help("--help", Other::Help)]
#[case::help_behind_a_command("status p --help", Other::Help)]
#[case::nothing("", Other::NoCommand)]
#[case::only_options("-j --verbose", Other::NoCommand)]
#[case::unknown_with_a_path("grab p", Other::UnknownCommand("grab".into()))]
#[case::unknown_without_a_path("grab", Other::UnknownCommand("grab".into()))]
fn what_is_no_request(#[case] line: &str, #[case] expected: Other) {
    assert_eq!(asked(line), Err(expected));
}

#[rstest]
#[case::no_path("status", "Lock path is required")]
#[case::two_paths("status p q", "Unexpected argument: q")]
#[case::unknown_option("status p --color", "Unknown option: --color. See semats --help.")]
#[case::tag_without_a_value("acquire p --tag", "--tag needs a value")]
#[case::timeout_without_a_value("acquire p --timeout", "--timeout needs a value")]
#[case::timeout_word("acquire p --timeout soon", "not a number of milliseconds: soon")]
#[case::timeout_minus("acquire p --timeout -1", "not a number of milliseconds: -1")]
#[case::timeout_fraction("acquire p --timeout 1.5", "not a number of milliseconds: 1.5")]
fn invalid_command_lines_are_explained(#[case] line: &str, #[case] message: &str) {
    assert_eq!(asked(line), Err(Other::Wrong(message.into())));
}

#[rstest]
#[case::text(Form::Text, "locked: false\ninfo: null\n")]
#[case::json(Form::Json, "{\n  \"locked\": false,\n  \"info\": null\n}\n")]
fn an_outcome_is_written_as_text_and_as_json(#[case] way: Form, #[case] text: &str) {
    let members = vec![("locked", Value::Bool(false)), ("info", Value::Null)];
    assert_eq!(form(way, members), text);
}
