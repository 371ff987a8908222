//! `lockdev`, for scripts and other programs: locks, releases or checks a device for the process that started
//! it. The exit code is the result.

use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use pidlockfile::process::of_caller;
use pidlockfile::shown;

use crate::{CallResult, Failure};

/// The exit code for any trouble that has no code of its own.
const TROUBLE: u8 = 255;

/// The exit code for wrong usage.
const USAGE: u8 = 255;

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Lock,
    Unlock,
    Test,
}

/// Runs the program; the arguments are without its name.
pub fn main(arguments: impl Iterator<Item = OsString>) -> u8 {
    let Some((action, device)) = parse(arguments) else {
        let _ = writeln!(std::io::stderr(), "usage: lockdev [-l | -u] DEVICE");
        return USAGE;
    };
    let Ok(parent) = of_caller(|pid| pid) else {
        complain(
            &device,
            &"the process that started lockdev has ended, or is outside of the container",
        );
        return TROUBLE;
    };
    let name = device.as_bytes();
    let answer = match action {
        Action::Lock => crate::lock(name, parent),
        Action::Unlock => crate::unlock(name, Some(parent)),
        Action::Test => crate::test(name),
    };
    if let Err(failure @ (Failure::Number(_) | Failure::Service(_))) = &answer {
        complain(&device, failure);
    }
    code(&answer)
}

fn parse(arguments: impl Iterator<Item = OsString>) -> Option<(Action, OsString)> {
    let mut action = Action::Test;
    let mut device = None;
    for word in arguments {
        match word.as_bytes() {
            b"-l" => action = Action::Lock,
            b"-u" => action = Action::Unlock,
            // The old program said more with it.
            b"-d" => {}
            [b'-', ..] => return None,
            _ if device.is_none() => device = Some(word),
            _ => return None,
        }
    }
    device.map(|device| (action, device))
}

/// Says why the device was not locked, released or tested.
fn complain(device: &OsStr, why: &dyn Display) {
    let _ = writeln!(std::io::stderr(), "lockdev: {}: {why}", shown(device));
}

/// The codes of the manual page.
fn code(answer: &CallResult) -> u8 {
    let codes = [
        (libc::EACCES, 2),
        (libc::EROFS, 3),
        (libc::EFAULT, 4),
        (libc::EINVAL, 5),
        (libc::ENAMETOOLONG, 6),
        (libc::ENOENT, 7),
        (libc::ENOTDIR, 8),
        (libc::ENOMEM, 9),
        (libc::ELOOP, 10),
        (libc::EIO, 11),
        (libc::EPERM, 12),
    ];
    match answer {
        Ok(None) => 0,
        Ok(Some(_)) | Err(Failure::Busy) => 1,
        Err(failure) => {
            let found = codes.iter().find(|(errno, _)| *errno == failure.errno());
            found.map_or(TROUBLE, |(_, code)| *code)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use lfp::Error;
    use pidlockfile::Pid;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::lock(&["-l", "ttyS0"], Some(Action::Lock))]
    #[case::unlock(&["-u", "ttyS0"], Some(Action::Unlock))]
    #[case::test(&["ttyS0"], Some(Action::Test))]
    #[case::behind(&["ttyS0", "-l"], Some(Action::Lock))]
    #[case::debug(&["-d", "-l", "ttyS0"], Some(Action::Lock))]
    #[case::nothing(&[], None)]
    #[case::no_device(&["-l"], None)]
    #[case::two_devices(&["ttyS0", "ttyS1"], None)]
    #[case::unknown(&["-x", "ttyS0"], None)]
    fn arguments(#[case] words: &[&str], #[case] expected: Option<Action>) {
        let words = words.iter().map(OsString::from);
        assert_eq!(parse(words).map(|(action, _)| action), expected);
    }

    #[rstest]
    #[case::done(Ok(None), 0)]
    #[case::held(Ok(Some(Pid::this())), 1)]
    #[case::held_by_no_process(Err(Failure::Busy), 1)]
    #[case::denied(Err(Failure::Number(libc::EACCES)), 2)]
    #[case::missing(Err(Failure::Number(libc::ENOENT)), 7)]
    #[case::not_permitted(Err(Failure::Number(libc::EPERM)), 12)]
    #[case::no_service(Err(Failure::Service(Error::Unreachable(ErrorKind::NotFound.into()))), 255)]
    #[case::refused_by_the_service(Err(Failure::Service(Error::Refused)), 2)]
    fn each_result_has_its_exit_code(#[case] answer: CallResult, #[case] expected: u8) {
        assert_eq!(code(&answer), expected);
    }
}
