//! The command line of a program that runs another: how it is parsed, what can be known of a wrong one, and the messages
//! about it. The same in all our programs (docs/conventions.md).
//!
//! Pure.

use std::ffi::OsString;
use std::time::Duration;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgMatches, Command};
use pidlockfile::Pid;

/// Parses a command line, the program's name first. Each pair of `elsewhere` has the word of other programs for a
/// command, and then the command of this program: that word gets it as a tip, also mistyped.
///
/// # Errors
/// What is wrong with the words, or the help or version that they ask for.
pub fn parse(
    mut program: Command,
    words: &[OsString],
    elsewhere: &[(&str, &str)],
) -> Result<ArgMatches, clap::Error> {
    if let Ok(matches) = program.try_get_matches_from_mut(words) {
        return Ok(matches);
    }
    // What only messages need is done now: it takes longer than the parsing of a right command line.
    program.build();
    let mut program = taking_negative_numbers(program);
    let matches = program.try_get_matches_from_mut(words);
    matches.map_err(|error| {
        if error.kind() == ErrorKind::UnknownArgument {
            with_tip_for_option(error, &program, words)
        } else if error.kind() == ErrorKind::TooManyValues {
            with_tip_for_value(error)
        } else {
            with_tip(error, &program, elsewhere)
        }
    })
}

/// Otherwise clap takes the `-1` of `--timeout -1` for an option, and does not say what is wrong with it.
fn taking_negative_numbers(program: Command) -> Command {
    let takes = |arg: Arg| {
        let is_option = arg.get_long().is_some() && arg.get_action().takes_values();
        if is_option { arg.allow_negative_numbers(true) } else { arg }
    };
    program.mut_args(takes).mut_subcommands(taking_negative_numbers)
}

fn with_tip(mut error: clap::Error, program: &Command, elsewhere: &[(&str, &str)]) -> clap::Error {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) else {
        return error;
    };
    let meant = program.get_subcommands().map(Command::get_name).filter(|it| is_slip(word, it));
    let meant: Vec<String> = meant.map(str::to_owned).collect();
    let is_near = !meant.is_empty() || error.get(ContextKind::SuggestedSubcommand).is_some();
    let theirs = elsewhere.iter().find(|(theirs, _)| theirs == word);
    let mistyped = || elsewhere.iter().find(|(theirs, _)| !is_near && is_slip(word, theirs));
    if let Some((_, command)) = theirs.or_else(mistyped) {
        let tip = format!("the command for this is '{} {command}'", program.get_name());
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
        error.remove(ContextKind::SuggestedSubcommand);
    } else if !meant.is_empty() && !are_suggested(&error, &meant) {
        // clap does not see what is near a word as short as `rnu`.
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(meant));
    }
    error
}

fn are_suggested(error: &clap::Error, commands: &[String]) -> bool {
    match error.get(ContextKind::SuggestedSubcommand) {
        Some(ContextValue::String(one)) => commands.contains(one),
        Some(ContextValue::Strings(some)) => commands.iter().any(|it| some.contains(it)),
        _ => false,
    }
}

/// `--shared=false`: an option that takes no value.
fn with_tip_for_value(mut error: clap::Error) -> clap::Error {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        Some(_) | None => None,
    };
    let (option, value) = (text(ContextKind::InvalidArg), text(ContextKind::InvalidValue));
    if let Some((option, value)) = option.zip(value) {
        let tip = match value.to_ascii_lowercase().as_str() {
            "false" | "no" | "off" | "0" => format!("'{option}' takes no value: leave it out"),
            _ => format!("'{option}' takes no value: write it alone"),
        };
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

/// Options of `flock(1)`, `lockfile(1)`, `sem(1)`, and of our other commands; an option that a command of ours has; and
/// the tip that its users get. The first row counts.
const OPTIONS_ELSEWHERE: [(&[&str], &str, &str); 22] = [
    (NO_WAIT, "nonblock", "the option for this is '--nonblock'"),
    (NO_WAIT, "timeout", "the option for this is '--timeout 0'"),
    (&["-w", "-W", "--wait", "-r", "--retries"], "timeout", "the option for this is '--timeout'"),
    (&["-l", "--locktimeout", "--lock-timeout"], "stale", "the option for this is '--stale'"),
    (ALONE, "shared", "without '--shared', the lock has one holder"),
    (ALONE, "conflict-exit-code", "no option is needed: the lock has one holder"),
    (
        &["-o", "--close"],
        "COMMAND",
        "no option is needed: what COMMAND starts does not hold the lock",
    ),
    (&["-c", "--command"], "COMMAND", "a line for a shell is run by the command: sh -c LINE"),
    (&["-F"], "no-fork", "the option for this is '--no-fork'"),
    (
        &["-F", "--no-fork"],
        "COMMAND",
        "no option is needed: signals reach COMMAND, and its exit code is passed on",
    ),
    (&["-u", "--unlock"], "COMMAND", "no option is needed: the lock ends when COMMAND ends"),
    (&["-f"], "force", "the option for this is '--force'"),
    (&["-s"], "shared", "the option for this is '--shared'"),
    (SLOTS, "slots", "the option for this is '--slots', with the number of all slots"),
    (SLOTS, "limit", "the option for this is '--limit', with the number of all slots"),
    (&["--one-of"], "also", "'dflock run --one-of' chooses one of several ports, lfp locks it"),
    (&["--one-of"], "slots", "'--slots' with the number of all: SEMA_SLOT says which one it is"),
    (SEVERAL, "also", "the option for this is '--also'"),
    (SEVERAL, "key", "the option for this is '--key'"),
    (SEVERAL, "with", "the option for this is '--with'"),
    (&["--name"], "tag", "the option for this is '--tag'"),
    (&["--tag"], "name", "the option for this is '--name'"),
];
const SLOTS: &[&str] = &["-j", "--jobs", "--limit", "--slots", "--slot"];
const SEVERAL: &[&str] = &["--also", "--key", "--with"];
const NO_WAIT: &[&str] = &["-n", "--nb", "--nonblock", "--non-block", "--nowait", "--no-wait"];
const ALONE: &[&str] = &["-x", "-e", "--exclusive"];

/// clap names options that have little in common with what was typed, and advises to write it behind `--`.
fn with_tip_for_option(
    mut error: clap::Error,
    program: &Command,
    words: &[OsString],
) -> clap::Error {
    let Some(ContextValue::String(typed)) = error.get(ContextKind::InvalidArg) else {
        return error;
    };
    let typed = typed.clone();
    let own = OwnWords::of(program, words).command;
    let command = own.and_then(|name| program.find_subcommand(name)).unwrap_or(program);
    let has = |name: &str| {
        let is_operand = |arg: &Arg| arg.get_value_names().is_some_and(|it| it == [name]);
        command.get_arguments().any(|arg| arg.get_long() == Some(name) || is_operand(arg))
    };
    let theirs =
        OPTIONS_ELSEWHERE.iter().find(|(all, ours, _)| all.contains(&&*typed) && has(ours));
    if matches!(error.get(ContextKind::Suggested), Some(ContextValue::StyledStrs(tips))
        if tips.iter().any(|tip| tip.to_string().starts_with("to pass")))
    {
        error.remove(ContextKind::Suggested);
    }
    let tip = match theirs {
        Some((.., tip)) => Some((*tip).to_owned()),
        None if error.get(ContextKind::Suggested).is_some() => None,
        None => commands_with(&typed, program),
    };
    let is_near = matches!(error.get(ContextKind::SuggestedArg), Some(ContextValue::String(near))
        if is_near(&typed, near));
    if (tip.is_some() || !is_near) && error.remove(ContextKind::SuggestedArg).is_some() {
        // clap has named it there, too.
        let usage = ContextValue::StyledStr(command.clone().render_usage());
        error.insert(ContextKind::Usage, usage);
    }
    if let Some(tip) = tip {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

/// The commands that have this option. Letters may mean something else there.
fn commands_with(option: &str, program: &Command) -> Option<String> {
    let has = |it: &&Command| option.starts_with("--") && !options([it, it], option).0.is_empty();
    let name = |it: &Command| format!("'{} {}'", program.get_name(), it.get_name());
    let names: Vec<String> = program.get_subcommands().filter(has).map(name).collect();
    (!names.is_empty()).then(|| format!("this is an option of {}", names.join(", ")))
}

/// Whether one option is mistyped or cut off, or has a word of the other.
fn is_near(typed: &str, meant: &str) -> bool {
    let has_word = |word: &str| word.len() > 2 && meant.split('-').any(|it| it == word);
    is_slip(typed, meant) || meant.starts_with(typed) || typed.split('-').any(has_word)
}

/// Whether one letter is wrong, missing or too much, or two are swapped.
fn is_slip(typed: &str, meant: &str) -> bool {
    strsim::osa_distance(typed, meant) == 1
}

/// What is wrong with a command line, and the tip, as one line for JSON.
#[must_use]
pub fn message(error: &clap::Error) -> String {
    let missing =
        [ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand, ErrorKind::MissingSubcommand];
    if missing.contains(&error.kind()) {
        return "a command is missing, see --help".to_owned();
    }
    let text = error.to_string();
    let ends = |line: &&str| line.starts_with("Usage:") || line.starts_with("For more");
    let lines: Vec<&str> = text.lines().map(str::trim).take_while(|line| !ends(line)).collect();
    let lines = lines.join("\n").replace("tip: ", "");
    in_one_line(lines.strip_prefix("error: ").unwrap_or(&lines))
}

/// Several lines as one: joined by semicolons, or by a blank after a colon.
#[must_use]
pub fn in_one_line(text: &str) -> String {
    let mut line = String::new();
    for part in text.lines().map(str::trim).filter(|part| !part.is_empty()) {
        line.push_str(match line.chars().last() {
            None => "",
            Some(':') => " ",
            Some(_) => "; ",
        });
        line.push_str(part);
    }
    line
}

/// The longest time on a command line, in seconds: a thousand years.
const LONGEST_SECONDS: f64 = 31_557_600_000.0;

/// The number of a process.
///
/// # Errors
/// What one looks like.
pub fn pid(text: &str) -> Result<Pid, &'static str> {
    Pid::parse(text.as_bytes()).map_err(|_| "needs a process number, 1 or more")
}

/// Decimal seconds with an optional fraction: `5`, `0.25`, `.5`. No sign, no exponent.
///
/// # Errors
/// What a time looks like.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let is_plain = text.replacen('.', "", 1).bytes().all(|byte| byte.is_ascii_digit());
    // To the nanosecond, never rounded up.
    let end = text.find('.').map_or(text.len(), |point| text.len().min(point + 10));
    match text.get(..end).unwrap_or_default().parse::<f64>().ok().filter(|_| is_plain) {
        None => Err("needs a number of seconds, such as 10 or 0.5".to_owned()),
        Some(seconds) if seconds > LONGEST_SECONDS => {
            Err(format!("at most {LONGEST_SECONDS} seconds"))
        }
        Some(seconds) => Ok(Duration::from_secs_f64(seconds)),
    }
}

/// The words of a command line that are the program's own, not those of the command that it runs. Also of one
/// that cannot be parsed: an unknown option counts as one without a value, and an unknown command as none.
#[derive(Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OwnWords<'a> {
    /// The program's command.
    pub command: Option<String>,
    /// The places and ids of the options that the program has.
    pub options: Vec<(usize, &'a str)>,
    /// The places of the operands. The last of those of a program that runs a command may be that command.
    pub operands: Vec<usize>,
    /// The place of the `--` that ends the options.
    pub separator: Option<usize>,
}

impl<'a> OwnWords<'a> {
    /// The own words among these, of which the first is the program's name.
    #[must_use]
    pub fn of(program: &'a Command, words: &[OsString]) -> Self {
        let (mut own, mut command) = (Self::default(), program);
        let mut rest = words.iter().enumerate().skip(1);
        while let Some((at, word)) = rest.next() {
            let text = word.to_str().unwrap_or_default();
            if text == "--" {
                own.separator = Some(at);
                break;
            }
            if text.len() > 1 && text.starts_with('-') {
                let (ids, is_value_next) = options([program, command], text);
                own.options.extend(ids.into_iter().map(|id| (at, id)));
                if is_value_next {
                    rest.next();
                }
            } else if let Some(found) = command.find_subcommand(word) {
                own.command = Some(found.get_name().to_owned());
                command = found;
            } else if !command.has_subcommands() {
                own.operands.push(at);
                if operands_before_command(command).is_some_and(|most| own.operands.len() > most) {
                    break;
                }
            }
        }
        own
    }

    /// Whether the option of this id is among them.
    #[must_use]
    pub fn have(&self, id: &str) -> bool {
        self.options.iter().any(|(_, option)| *option == id)
    }
}

/// `None`: this command runs nothing.
fn operands_before_command(command: &Command) -> Option<usize> {
    let is_command = |arg: &&Arg| arg.is_trailing_var_arg_set() || arg.is_last_set();
    let operands = || command.get_positionals();
    operands().find(is_command).map(|_| operands().filter(|arg| !is_command(arg)).count())
}

/// The ids of the known options in one word, and whether the next word is the value of the last: letters may be joined,
/// and a value may follow its letter directly.
fn options<'a>(commands: [&'a Command; 2], word: &str) -> (Vec<&'a str>, bool) {
    let all = || commands.into_iter().flat_map(Command::get_arguments);
    let takes_value = |arg: &Arg| arg.get_action().takes_values();
    if let Some(long) = word.strip_prefix("--") {
        let name = long.split('=').next().unwrap_or_default();
        let is_alias = |arg: &Arg| arg.get_all_aliases().is_some_and(|all| all.contains(&name));
        let arg = all().find(|arg| arg.get_long() == Some(name) || is_alias(arg));
        let is_next = name == long && arg.is_some_and(takes_value);
        return (arg.into_iter().map(|arg| arg.get_id().as_str()).collect(), is_next);
    }
    let mut ids = Vec::new();
    let mut letters = word.chars().skip(1);
    while let Some(letter) = letters.next() {
        let is_alias =
            |arg: &Arg| arg.get_all_short_aliases().is_some_and(|all| all.contains(&letter));
        if let Some(arg) = all().find(|arg| arg.get_short() == Some(letter) || is_alias(arg)) {
            ids.push(arg.get_id().as_str());
            if takes_value(arg) {
                return (ids, letters.next().is_none());
            }
        }
    }
    (ids, false)
}

#[cfg(test)]
mod tests {
    use clap::{ArgAction, value_parser};
    use rstest::rstest;

    use super::*;

    fn program() -> Command {
        let flag = |name: &'static str| Arg::new(name).long(name).action(ArgAction::SetTrue);
        let run = Command::new("run")
            .arg(Arg::new("timeout").long("timeout").short('t').value_parser(value_parser!(u8)))
            .arg(flag("verbose").short('v'))
            .arg(Arg::new("what").required(true))
            .arg(Arg::new("command").num_args(1..).trailing_var_arg(true));
        let show = Command::new("show").arg(Arg::new("what"));
        Command::new("hold")
            .arg(flag("json").global(true))
            .subcommand_required(true)
            .arg_required_else_help(true)
            .subcommands([run, show])
    }

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[rstest]
    #[case::first("hold --json run it make", true)]
    #[case::after_the_operand("hold run it --json make", true)]
    #[case::of_the_command("hold run it make --json", false)]
    #[case::behind_the_separator("hold run it -- --json", false)]
    #[case::a_value("hold run --timeout --json it make", false)]
    #[case::after_a_value("hold run --timeout x --json it make", true)]
    #[case::after_a_joined_value("hold run -t5 --json it make", true)]
    #[case::after_joined_letters("hold run -vt 5 --json it make", true)]
    #[case::after_an_unknown_option("hold run --bogus --json", true)]
    #[case::after_an_unknown_command("hold rnu it make --json", true)]
    #[case::after_too_many_operands("hold show it more --json", true)]
    #[case::without("hold show it", false)]
    fn json_is_asked_for_by_the_own_words_alone(#[case] line: &str, #[case] is_json: bool) {
        assert_eq!(OwnWords::of(&program(), &words(line)).have("json"), is_json);
    }

    #[test]
    fn operands_end_where_the_command_begins() {
        let program = program();
        let own = OwnWords::of(&program, &words("hold run -t 5 it make -j 4 all"));
        assert_eq!((own.command.as_deref(), own.separator), (Some("run"), None));
        assert_eq!((own.operands, own.options), (vec![4, 5], vec![(2, "timeout")]));
    }

    #[rstest]
    #[case::command(
        "hold rnu",
        "unrecognized subcommand 'rnu'; a similar subcommand exists: 'run'"
    )]
    #[case::elsewhere(
        "hold look",
        "unrecognized subcommand 'look'; the command for this is 'hold show'"
    )]
    #[case::elsewhere_mistyped(
        "hold loko",
        "unrecognized subcommand 'loko'; the command for this is 'hold show'"
    )]
    #[case::elsewhere_and_near(
        "hold shwo-all",
        "unrecognized subcommand 'shwo-all'; the command for this is 'hold show'"
    )]
    #[case::nothing("hold", "a command is missing, see --help")]
    #[case::nothing_but_an_option("hold --json", "a command is missing, see --help")]
    #[case::operand("hold run", "the following required arguments were not provided: <what>")]
    #[case::no_value(
        "hold run --verbose=false it make",
        "unexpected value 'false' for '--verbose' found; no more were expected; '--verbose' takes no value: leave it out"
    )]
    #[case::no_value_either(
        "hold run --verbose=True it make",
        "unexpected value 'True' for '--verbose' found; no more were expected; '--verbose' takes no value: write it alone"
    )]
    #[case::negative(
        "hold run --timeout -1 it make",
        "invalid value '-1' for '--timeout <timeout>': -1 is not in 0..=255"
    )]
    fn a_wrong_command_line_in_one_line(#[case] line: &str, #[case] told: &str) {
        let error =
            parse(program(), &words(line), &[("look", "show"), ("shwo-all", "show")]).unwrap_err();
        assert_eq!(message(&error), told);
    }

    #[rstest]
    #[case::swapped("rnu", "run", true)]
    #[case::swapped_last("whoo", "who", true)]
    #[case::missing("rn", "run", true)]
    #[case::wrong("ren", "run", true)]
    #[case::too_much("ruun", "run", true)]
    #[case::first("un", "run", true)]
    #[case::the_same("run", "run", false)]
    #[case::two_slips("ur", "run", false)]
    #[case::far("nur", "run", false)]
    fn a_slip_is_one_letter(#[case] typed: &str, #[case] meant: &str, #[case] is_one: bool) {
        assert_eq!(is_slip(typed, meant), is_one);
    }

    #[test]
    fn lines_are_joined_once() {
        assert_eq!(in_one_line("busy\n\n  held by a\n  by:\n  b"), "busy; held by a; by: b");
    }

    #[rstest]
    #[case::whole("5", Some(5_000))]
    #[case::fraction("0.25", Some(250))]
    #[case::bare_fraction(".5", Some(500))]
    #[case::bare_point("5.", Some(5_000))]
    #[case::zero("0", Some(0))]
    #[case::many_digits("1.0000000009", Some(1_000))]
    #[case::longest("31557600000", Some(31_557_600_000_000))]
    #[case::too_long("31557600001", None)]
    #[case::far_too_long("99999999999999999999999999", None)]
    #[case::point_alone(".", None)]
    #[case::empty("", None)]
    #[case::minus("-1", None)]
    #[case::plus("+1", None)]
    #[case::exponent("1e3", None)]
    #[case::unit("5s", None)]
    #[case::blank(" 5", None)]
    #[case::not_a_number("nan", None)]
    #[case::infinite("inf", None)]
    #[case::two_points("1.2.3", None)]
    #[case::two_points_far_apart("1.123456789.5", None)]
    fn seconds_are_parsed(#[case] text: &str, #[case] milliseconds: Option<u64>) {
        assert_eq!(seconds(text).ok(), milliseconds.map(Duration::from_millis));
    }
}
