//! Completions for shells: a table of what clap knows of a command line, and a script that reads the table.
//!
//! The scripts start no program of ours. The name that help shows for a value decides what is offered for it. Pure.

use clap::builder::StyledStr;
use clap::{Arg, Command, ValueEnum};

/// A shell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[expect(clippy::exhaustive_enums, reason = "a package installs a script for each")]
pub enum Shell {
    /// bash, from version 4 on.
    Bash,
    /// fish, from version 3.4 on.
    Fish,
    /// zsh.
    Zsh,
}

/// What bash and zsh understand alike.
const WORDS: &str = include_str!("words.sh");
const BASH: &str = include_str!("bash.sh");
const ZSH: &str = include_str!("zsh.sh");
const FISH: &str = include_str!("fish.fish");

/// The completions of a program, as a script for a shell.
#[must_use]
pub fn completions(shell: Shell, command: &Command) -> String {
    let mut command = command.clone();
    command.build();
    let name = command.get_name();
    let rows: Vec<String> = rows(&command).iter().map(|row| text(row, shell)).collect();
    let table = rows.join("\n");
    let head = format!("# Completions of {name}, made from its command line.\n");
    match shell {
        Shell::Bash => {
            let code = [WORDS, BASH].concat().replace("NAME", name);
            format!("{head}\n_{name}_table='{table}'\n{code}")
        }
        Shell::Zsh => {
            let code = [WORDS, ZSH].concat().replace("NAME", name);
            format!("#compdef {name}\n{head}\ntypeset -g _{name}_table='{table}'\n{code}")
        }
        Shell::Fish => {
            let code = FISH.replace("NAME", name);
            format!("{head}\nset --global __{name}_table \\\n{table}\n{code}")
        }
    }
}

/// A line of the table, for a place of a command line:
/// - the command; `-` before it, `*` everywhere;
/// - the names of an option, the name of a command, or the number of a word; `+` for all further words;
/// - what the value is, see [`kind`]; `VERB` for a command, `-` for an option without a value, `FIRST` for an option that
///   takes the place of the first operand;
/// - help for people.
type Row = [String; 4];

fn row_of(command: &str, names: &str, kind: String, help: Option<&StyledStr>) -> Row {
    let help = help.map(ToString::to_string).unwrap_or_default();
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    [command.to_owned(), names.to_owned(), kind, help]
}

fn text(row: &Row, shell: Shell) -> String {
    let [command, names, kind, _] = row;
    match shell {
        // It shows no help.
        Shell::Bash => format!("{command} {names} {kind}"),
        Shell::Zsh => row.join(" ").replace('\'', r"'\''"),
        Shell::Fish => {
            format!("    '{}' \\", row.join(" ").replace('\\', r"\\").replace('\'', r"\'"))
        }
    }
}

fn rows(program: &Command) -> Vec<Row> {
    let verbs: Vec<&Command> = program.get_subcommands().collect();
    let mut rows: Vec<Row> = arguments(program)
        .map(|it| {
            let command = if it.is_global_set() || it.get_id() == "help" { "*" } else { "-" };
            row(command, it, kind(it))
        })
        .collect();
    let verb = |it: &&Command| row_of("-", it.get_name(), "VERB".to_owned(), it.get_about());
    rows.extend(verbs.iter().map(verb));
    if verbs.iter().any(|it| it.get_name() == "help") {
        let names: Vec<&str> = verbs.iter().map(|it| it.get_name()).collect();
        rows.push(row_of("help", "1", format!("={}", names.join(",")), None));
    }
    for verb in &verbs {
        let own = arguments(verb).filter(|it| !it.is_global_set() && it.get_id() != "help");
        rows.extend(own.map(|it| {
            // `--key KEY` takes the place of `KEY`.
            let name = it.get_long().filter(|_| it.get_action().takes_values());
            let is_first =
                verb.get_positionals().next().is_some_and(|it| Some(it.get_id().as_str()) == name);
            row(verb.get_name(), it, if is_first { "FIRST".to_owned() } else { kind(it) })
        }));
    }
    rows
}

fn arguments(command: &Command) -> impl Iterator<Item = &Arg> {
    command.get_arguments().filter(|it| !it.is_hide_set())
}

fn row(command: &str, argument: &Arg, kind: String) -> Row {
    let several = argument.get_num_args().is_some_and(|it| it.max_values() > 1);
    let names = match argument.get_index() {
        Some(_) if several => "+".to_owned(),
        Some(place) => place.to_string(),
        None => {
            let short = argument.get_short().map(|it| format!("-{it}"));
            let long = argument.get_long().map(|it| format!("--{it}"));
            short.into_iter().chain(long).collect::<Vec<_>>().join(",")
        }
    };
    row_of(command, &names, kind, argument.get_help())
}

/// The signals that users send to programs.
const SIGNALS: &str = "=TERM,INT,HUP,QUIT,KILL,USR1,USR2,CONT";

/// What to offer for a value: the ports of this machine, files, directories, a command with its arguments, a list of
/// words; `.` for nothing.
fn kind(argument: &Arg) -> String {
    if !argument.get_action().takes_values() {
        return "-".to_owned();
    }
    let words = argument.get_possible_values();
    if !words.is_empty() {
        let names: Vec<&str> = words.iter().map(|it| it.get_name()).collect();
        return format!("={}", names.join(","));
    }
    let name = argument.get_value_names().and_then(|it| it.first()).map_or("", |it| it.as_str());
    match name {
        "DEVICE" => "DEVICE",
        "FILE" | "PATH" => "FILE",
        "DIR" => "DIR",
        "COMMAND" | "PROGRAM" => "COMMAND",
        "SIGNAL" => SIGNALS,
        _ => ".",
    }
    .to_owned()
}
