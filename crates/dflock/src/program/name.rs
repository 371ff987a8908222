//! The name that a holder tells the server, for people: user, host, process, command.

use super::sys;
use std::ffi::OsString;
use std::path::Path;

/// `alice@db1[4711] backup`. Never the arguments of the command: there may be secrets in them, and
/// everybody who may look at the server reads this.
pub(super) fn name_of_this_process(command: &str) -> String {
    format!("{}@{}[{}] {command}", sys::user(), sys::host(), std::process::id())
}

/// The name of a program without its directory.
pub(super) fn name_of_command(command: &[OsString]) -> String {
    let program = command.first().map(Path::new).and_then(Path::file_name).unwrap_or_default();
    program.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::of_command;
    use rstest::rstest;

    #[rstest]
    #[case(&["/usr/bin/mysqldump", "--password=secret"], "mysqldump")]
    #[case(&["rsync"], "rsync")]
    #[case(&[], "")]
    fn a_command_is_named_without_its_arguments(#[case] command: &[&str], #[case] name: &str) {
        let command: Vec<_> = command.iter().map(Into::into).collect();
        assert_eq!(name_of_command(&command), name);
    }
}
