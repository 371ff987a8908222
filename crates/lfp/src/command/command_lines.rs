//! Reads the command lines of other processes. A process can make that take for ever, by keeping its arguments in a page of
//! a file system of its own. So a child process reads them, and is left behind if it takes too long.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::process::{ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use pidlockfile::Pid;
use ttylock::{command, one_line};

/// The first argument of the child.
const CHILD: &str = "--command-lines";

/// Time for the command lines of all processes. What comes later is left out.
const TIME: Duration = Duration::from_secs(1);

/// The most bytes of a command line that are read.
const BYTES: u64 = 4096;

/// A process as it describes itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Described {
    /// The name, as the kernel keeps it (proc(5), `comm`).
    pub(super) name: String,
    /// The program and its arguments, one space between two.
    pub(super) words: String,
}

/// What can be read within a second, of processes that this user may see.
pub(super) fn of(pids: &[Pid]) -> HashMap<Pid, Described> {
    if pids.is_empty() {
        return HashMap::new();
    }
    parse(&answer(pids).unwrap_or_default())
}

/// What the child writes, as far as it comes in time.
fn answer(pids: &[Pid]) -> io::Result<Vec<u8>> {
    let mut child = Command::new("/proc/self/exe")
        .arg(CHILD)
        .args(pids.iter().map(Pid::to_string))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut answer = Vec::new();
    let came = child.stdout.take().map_or(Ok(false), |pipe| read(pipe, &mut answer));
    if matches!(came, Ok(true)) {
        child.wait()?;
    } else {
        // It may not end before the process that it reads; nobody waits for it.
        child.kill()?;
    }
    Ok(answer)
}

/// Whether the end came in time.
fn read(mut pipe: ChildStdout, answer: &mut Vec<u8>) -> io::Result<bool> {
    let begin = Instant::now();
    let mut piece = [0; 4096];
    loop {
        let rest = TIME.saturating_sub(begin.elapsed());
        let timeout = PollTimeout::try_from(rest).unwrap_or(PollTimeout::ZERO);
        match poll(&mut [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)], timeout) {
            Ok(0) => return Ok(false),
            Err(nix::Error::EINTR) => continue,
            came => came?,
        };
        match pipe.read(&mut piece)? {
            0 => return Ok(true),
            length => answer.extend(piece.iter().take(length)),
        }
    }
}

/// The processes, in the child.
pub(super) fn asked(arguments: &[OsString]) -> Option<Vec<Pid>> {
    let [_, first, pids @ ..] = arguments else { return None };
    let pid = |word: &OsString| Pid::parse(word.as_bytes()).ok();
    (first == CHILD).then(|| pids.iter().filter_map(pid).collect())
}

/// The child: a line for each process, as soon as it is read.
pub(super) fn print(pids: &[Pid]) -> io::Result<()> {
    let mut output = io::stdout();
    for pid in pids {
        let Ok(file) = File::open(format!("/proc/{pid}/cmdline")) else { continue };
        let mut words = Vec::new();
        file.take(BYTES).read_to_end(&mut words)?;
        writeln!(output, "{pid}\t{}\t{}", command(*pid).unwrap_or_default(), one_line(&words))?;
        output.flush()?;
    }
    Ok(())
}

fn parse(answer: &[u8]) -> HashMap<Pid, Described> {
    let text = String::from_utf8_lossy(answer);
    let lines = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
    lines
        .filter_map(|line| {
            let mut parts = line.splitn(3, '\t');
            let pid = Pid::parse(parts.next()?.as_bytes()).ok()?;
            let [name, words] = [parts.next()?.to_owned(), parts.next()?.to_owned()];
            (!words.is_empty()).then_some((pid, Described { name, words }))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::whole("7\tcu\tcu -l ttyS0\n", Some("cu -l ttyS0"))]
    #[case::a_tab_in_it("7\tcu\tcu \t\n", Some("cu \t"))]
    #[case::without_arguments("7\tcu\t\n", None)]
    #[case::cut_off("7\tcu\tcu -l t", None)]
    #[case::another("8\tcu\tcu -l ttyS0\n", None)]
    #[case::nothing("", None)]
    fn whole_lines_are_believed(#[case] answer: &str, #[case] words: Option<&str>) {
        let described = parse(answer.as_bytes());
        assert_eq!(described.get(&Pid::new(7).unwrap()).map(|it| it.words.as_str()), words);
    }
}
