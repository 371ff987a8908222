//! A virtual console for one test alone: a terminal that is no pseudo-terminal. Like a serial port's, its driver
//! forgets the exclusive mode at the last close. The kernel has one set of them for all sandboxes.

use std::fs::File;

use nix::fcntl::{Flock, FlockArg};

use crate::{LIMIT, Sandbox, until};

/// Consoles that nobody logs in at.
const NUMBERS: std::ops::Range<u32> = 20..60;

/// One console, nobody else's while this exists. To be taken before the sandbox is entered, so that it is given back
/// after everything in there has ended.
#[derive(Debug)]
pub struct Console {
    number: u32,
    _turn: Flock<File>,
}

impl Console {
    /// The name that a sandbox knows it by.
    pub const PATH: &'static str = "/dev/ttyV0";

    /// Takes a console that no other test has.
    ///
    /// # Panics
    /// All are taken.
    #[must_use]
    pub fn take() -> Self {
        let free = || NUMBERS.into_iter().find_map(|number| Some((number, turn(number)?)));
        let (number, turn) = until(LIMIT, free).expect("a console that nobody has");
        Self { number, _turn: turn }
    }

    /// Makes its node, which everybody may open.
    ///
    /// # Panics
    /// No node can be made.
    pub fn put_into(&self, sandbox: &Sandbox) {
        let (path, number) = (Self::PATH, self.number);
        let made = format!("mknod {path} c 4 {number} && chmod 666 {path}");
        let made = sandbox.command("sh").args(["-c", &made]).run();
        assert_eq!(made.code(), 0, "{made}");
    }
}

fn turn(number: u32) -> Option<Flock<File>> {
    let path = std::env::temp_dir().join(format!("lfpd-test-console-{number}"));
    let file = File::create(path).ok()?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).ok()
}
