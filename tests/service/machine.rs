//! A daemon in a machine of its own, and what users say to it there.

use testbed::{LFPD, LIMIT, Process, Sandbox, Syslog, User, comes, until};

/// A daemon on a Unix socket in the sandbox.
pub(crate) const SOCKET: &str = "/run/lfpd.sock";

pub(crate) fn daemon<'a>(sandbox: &'a Sandbox, options: &[&str]) -> Process<'a> {
    daemon_by(sandbox, &[], options)
}

/// A machine with the service, and its log.
pub(crate) fn with_syslog() -> (Sandbox, Syslog) {
    let sandbox = Sandbox::with_lfpd().enter();
    let syslog = Syslog::open(&sandbox);
    (sandbox, syslog)
}

/// A daemon that is started by another program, such as strace.
pub(crate) fn daemon_by<'a>(sandbox: &'a Sandbox, by: &[&str], options: &[&str]) -> Process<'a> {
    let listen = format!("unix:{SOCKET}");
    let words = [by, &[LFPD, "--listen", &listen], options].concat();
    let process = sandbox.command(words[0]).args(&words[1..]).spawn();
    let up = || std::os::unix::net::UnixStream::connect(sandbox.path(SOCKET)).ok();
    assert!(until(LIMIT, up).is_some(), "lfpd does not listen");
    process
}

/// A user's client at this address of socat's, after the greeting.
pub(crate) fn client<'a>(sandbox: &'a Sandbox, user: User, address: &str) -> Process<'a> {
    let mut client = sandbox.command("socat").args(["-t30", "-", address]).user(user).spawn();
    client.expect("220 ");
    client
}

/// A user's client that waits for a device.
pub(crate) fn waiter<'a>(sandbox: &'a Sandbox, user: User, device: &str, pid: u32) -> Process<'a> {
    let mut client = client(sandbox, user, &format!("UNIX:{SOCKET}"));
    client.type_in(&format!("wait {device} {pid} 600\n"));
    let stat = format!("stat {device}");
    assert!(comes(|| said(sandbox, User::Root, &stat).contains("scheme=waiting")), "a waiter");
    client
}

/// All answers to a user's client that sends these lines, from the greeting to the end.
pub(crate) fn said_at(sandbox: &Sandbox, user: User, address: &str, lines: &str) -> String {
    let mut client = client(sandbox, user, address);
    client.type_in(&format!("{lines}\nquit\n"));
    client.expect("221 ");
    client.output()
}

/// The same at the daemon's socket.
pub(crate) fn said(sandbox: &Sandbox, user: User, line: &str) -> String {
    said_at(sandbox, user, &format!("UNIX:{SOCKET}"), line)
}

/// The code of the daemon's answer to one line of a user.
pub(crate) fn answer(sandbox: &Sandbox, user: User, line: &str) -> String {
    codes(&said(sandbox, user, line)).swap_remove(0)
}

/// The codes of the answers between greeting and goodbye.
pub(crate) fn codes(said: &str) -> Vec<String> {
    let codes = said.lines().filter_map(|line| line.get(..3)).map(str::to_owned);
    codes.skip(1).take_while(|code| code != "221").collect()
}

/// Starts processes of a user with these numbers, which must be unused. Returns the shell that has started them.
pub(crate) fn numbered<'a>(sandbox: &'a Sandbox, user: &str, numbers: &[u32]) -> Process<'a> {
    numbered_by(sandbox, "sleep", user, numbers)
}

/// As [`numbered`], of a program that sleeps. It is the user's when this returns, and no longer `setpriv`.
pub(crate) fn numbered_by<'a>(
    sandbox: &'a Sandbox,
    sleep: &str,
    user: &str,
    numbers: &[u32],
) -> Process<'a> {
    let script = "sleep=$1; user=$2; shift 2; for number; do pid=; until [ \"$pid\" = $number ]; do \
                  [ -z \"$pid\" ] || kill -KILL $pid; \
                  echo $((number - 1)) >/proc/sys/kernel/ns_last_pid; \
                  setpriv --reuid=$user --regid=$user --init-groups $sleep 1000 & pid=$!; done; \
                  until read -r name </proc/$pid/comm && [ $name != bash ] && [ $name != setpriv ]; \
                  do :; done; done; echo come; cat";
    let numbers: Vec<String> = numbers.iter().map(u32::to_string).collect();
    let words = [&["-c", script, "sh", sleep, user].map(str::to_owned)[..], &numbers].concat();
    let mut shell = sandbox.command("bash").args(words).spawn();
    shell.expect("come");
    shell
}
