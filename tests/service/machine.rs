//! A daemon in a machine of its own, and what users say to it there.

use testbed::{LFPD, LIMIT, Process, Sandbox, User, until};

/// A daemon on a Unix socket in the sandbox.
pub(crate) const SOCKET: &str = "/run/lfpd.sock";

pub(crate) fn daemon<'a>(sandbox: &'a Sandbox, options: &[&str]) -> Process<'a> {
    let listen = format!("unix:{SOCKET}");
    let words = ["--listen", &listen].into_iter().chain(options.iter().copied());
    let process = sandbox.command(LFPD).args(words).spawn();
    let up = || std::os::unix::net::UnixStream::connect(sandbox.path(SOCKET)).ok();
    assert!(until(LIMIT, up).is_some(), "lfpd does not listen");
    process
}

/// The code that the daemon answers to one line of a user's.
pub(crate) fn answer(sandbox: &Sandbox, user: User, line: &str) -> String {
    let output = said(sandbox, user, line);
    let codes: Vec<&str> = output.lines().filter_map(|line| line.get(..3)).collect();
    codes.get(1).map(|code| (*code).to_owned()).unwrap_or_default()
}

/// All that the daemon says to a client of a user's that sends one line, from the greeting to the end.
pub(crate) fn said(sandbox: &Sandbox, user: User, line: &str) -> String {
    let words = ["-t30", "-", &format!("UNIX-CONNECT:{SOCKET}")];
    let mut client = sandbox.command("socat").args(words).user(user).spawn();
    client.expect("220 ");
    client.type_in(&format!("{line}\n"));
    client.type_in("quit\n");
    client.expect("221 ");
    client.output()
}

/// A process of a user's.
pub(crate) fn sleeper(sandbox: &Sandbox, user: User) -> Process<'_> {
    sandbox.command("sleep").arg("1000").user(user).spawn()
}
