//! A virtual console for one test alone: a terminal that is no pseudo-terminal. Like a serial port's, its driver
//! forgets the exclusive mode at the last close. The kernel has one set of them for all sandboxes.

use std::fs::File;

use nix::fcntl::{Flock, FlockArg};

use crate::{LIMIT, Sandbox, User, until};

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

    /// The minor number of its device.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Makes its node, which everybody may open.
    ///
    /// # Panics
    /// No node can be made.
    pub fn put_into(&self, sandbox: &Sandbox) {
        let (path, number) = (Self::PATH, self.number);
        let made = format!("mknod {path} c 4 {number} && chmod 666 {path}");
        sandbox.shell(User::Root, &made).expect(0);
    }
}

/// Whether an ordinary user can open a port, and the kernel does not refuse it as exclusive. He closes it again.
///
/// # Panics
/// The port cannot be opened for another reason.
#[must_use]
pub fn can_open(sandbox: &Sandbox, port: &str) -> bool {
    // No leader of a session: the port would be its controlling terminal, and hung up for everybody at its end.
    let open = format!("(exec 3<>{port}); exit $?");
    let end = sandbox.shell(User::Bob, &open);
    assert!(end.code() == 0 || end.said("Device or resource busy"), "{end}");
    end.code() == 0
}

fn turn(number: u32) -> Option<Flock<File>> {
    // Not in TMPDIR: runs with directories of their own share the consoles all the same.
    let file = File::create(format!("/run/lfpd-test-console-{number}")).ok()?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).ok()
}
