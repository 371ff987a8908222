//! Messages to the user on standard error: which process has the port, and that a port was opened without a
//! lock. Each line is one write. It bypasses the C library, because its streams may be in use.

use std::time::SystemTime;

use lfp::Holder;
use pidlockfile::span;
use rustix::stdio::stderr;
use ttylock::DeviceName;

use crate::mode::settings;
use crate::system;

/// Larger than the file of any machine that lists its users in it.
const PASSWD_BYTES: usize = 1 << 20;

/// Says that a port is opened, or not, without a lock.
pub(crate) fn unlocked(device: &str, why: &str) {
    say(&format!("lfp: no lock for {device}: {why}\n"));
}

/// Names the process that has a port, and what this process does about it, if somebody reads that.
pub(crate) fn held(device: &DeviceName, holder: Option<&Holder>, then: &str) {
    if !settings().names_holder && !rustix::termios::isatty(stderr()) {
        return;
    }
    let users = system::read_file("/etc/passwd", PASSWD_BYTES).unwrap_or_default();
    let sentence = holder.map_or_else(
        || "another process has it".to_owned(),
        |holder| sentence(holder, &users, SystemTime::now()),
    );
    say(&format!("lfp: /dev/{}: {sentence}{then}\n", device.as_str()));
}

fn say(line: &str) {
    let _ = rustix::io::write(stderr(), line.as_bytes());
}

/// `held by alice, picocom, 3m20s`.
fn sentence(holder: &Holder, users: &[u8], now: SystemTime) -> String {
    let user = holder.user.map(|uid| name_in(users, uid).unwrap_or_else(|| format!("uid {uid}")));
    let process =
        || holder.pid.map_or_else(|| "a lock file".to_owned(), |pid| format!("pid {pid}"));
    let mut text = format!("held by {}", user.unwrap_or_else(process));
    if let Some(program) = holder.command.as_deref().and_then(program) {
        text.extend([", ", program]);
    }
    if let Some(time) = holder.since.and_then(|since| now.duration_since(since).ok()) {
        text.extend([", ", &span(time)]);
    }
    text
}

/// The name of a command line's program.
fn program(line: &str) -> Option<&str> {
    line.split(' ').next()?.rsplit('/').next().filter(|name| !name.is_empty())
}

/// What a user is called, by passwd(5): printable ASCII or nothing.
fn name_in(users: &[u8], uid: u32) -> Option<String> {
    let wanted = uid.to_string();
    users.split(|byte| *byte == b'\n').find_map(|line| {
        let mut fields = line.split(|byte| *byte == b':');
        let name = fields.next().filter(|name| name.iter().all(u8::is_ascii_graphic))?;
        let is_it = fields.nth(1)? == wanted.as_bytes() && !name.is_empty();
        is_it.then(|| String::from_utf8_lossy(name).into_owned())
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const USERS: &[u8] =
        b"root:x:0:0::/:/bin/sh\nalice:x:1000:1000::/:\n\x1bbad:x:1001::\n:x:1002:\nx\n";

    #[rstest]
    #[case::root(0, Some("root"))]
    #[case::usual(1000, Some("alice"))]
    #[case::control_characters(1001, None)]
    #[case::nameless(1002, None)]
    #[case::nobody(7, None)]
    fn user_names_are_found_and_cleaned(#[case] uid: u32, #[case] expected: Option<&str>) {
        assert_eq!(name_in(USERS, uid).as_deref(), expected);
    }

    #[rstest]
    #[case::with_arguments("/usr/bin/picocom -b 9600 /dev/ttyUSB0", Some("picocom"))]
    #[case::bare("tio", Some("tio"))]
    #[case::nothing("", None)]
    #[case::directory("/usr/ x", None)]
    fn programs(#[case] line: &str, #[case] expected: Option<&str>) {
        assert_eq!(program(line), expected);
    }
}
