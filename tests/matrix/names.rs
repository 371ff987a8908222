//! One port under several names: below a directory of `/dev`, and behind symbolic links.
//!
//! Programs disagree about what to call such a port's lock, and only C-Kermit follows links. `lfpd` writes every
//! name that a program may look at, so the second program by the same name is kept out, and so is a program at the
//! real node of a link that `lfpd` locked, and at any other link to it.

use std::fs;
use std::os::unix::fs::MetadataExt;

use nix::sys::stat::{major, minor};
use rstest::rstest;
use testbed::{Sandbox, Session, User};

use crate::bench::{Bench, Came, PORT, lfpd, sandbox};
use crate::programs::{self, Program};

const LINK: &str = "/dev/modemW";
const BELOW: &str = "/dev/pts/3";
const BY_ID: &str = "/dev/serial/by-id/usb-X_Y-if00";

#[rstest]
#[case::minicom(programs::MINICOM)]
#[case::cu(programs::CU)]
#[case::kermit(programs::KERMIT)]
#[case::pppd(programs::PPPD)]
#[case::mgetty(programs::MGETTY)]
#[case::ser2net(programs::SER2NET)]
#[case::gensiot(programs::GENSIOT)]
#[case::microcom(programs::MICROCOM)]
#[case::busybox(programs::BUSYBOX)]
#[case::rxtx(programs::RXTX)]
#[case::qt(programs::QT)]
#[case::gammu(programs::GAMMU)]
#[case::gnokii(programs::GNOKII)]
#[case::apcupsd(programs::APCUPSD)]
#[ignore = "needs root: tests/run"]
fn programs_and_service_meet_under_every_name_of_a_port(#[case] program: Program) {
    let sandbox = sandbox();
    let mut names = Names { sandbox: &sandbox, program: &program, lfpd: lfpd(&sandbox) };
    for name in [BELOW, LINK, BY_ID] {
        names.meet(name, name);
    }
    names.meet(LINK, PORT);
    names.meet(PORT, LINK);
    names.tell_udev();
    names.meet(PORT, LINK);
}

/// A program and `lfpd` at one port.
struct Names<'a> {
    sandbox: &'a Sandbox,
    program: &'a Program,
    lfpd: Session<'a>,
}

impl Names<'_> {
    /// The second comer, which uses the other name, does not get the port: first the program, then `lfpd`.
    fn meet(&mut self, locked: &str, used: &str) {
        let name = self.program.name;
        let holder = self.sandbox.sleeper(User::Root);
        assert_eq!(self.lfpd.lock(locked, holder.pid()), 200, "{locked}");
        let (came, troupe) = Bench::new(self.sandbox, self.program, used).attempt();
        drop(troupe);
        drop(holder);
        self.clear();
        assert!(!matches!(came, Came::Has), "{name} at {used} beside {locked}");

        let troupe = Bench::new(self.sandbox, self.program, used).take();
        let code = self.lfpd.lock(locked, self.sandbox.sleeper(User::Root).pid());
        assert_eq!(code, 450, "{locked} beside {name} at {used}");
        drop(troupe);
        self.clear();
    }

    /// Enters the link into udev's database, as udev does for every link that it makes.
    fn tell_udev(&self) {
        let number = fs::metadata(self.sandbox.path(PORT)).map(|it| it.rdev()).unwrap_or_default();
        let entry = format!("/run/udev/data/c{}:{}", major(number), minor(number));
        let made = fs::create_dir_all(self.sandbox.path("/run/udev/data"));
        assert!(made.is_ok(), "{made:?}");
        self.sandbox.write(&entry, "S:modemW\nI:1\n", 0o644);
    }

    /// Removes what the killed have left.
    fn clear(&self) {
        for name in self.sandbox.locks() {
            let removed = fs::remove_file(self.sandbox.path(&format!("/run/lock/{name}")));
            assert!(removed.is_ok(), "{name}: {removed:?}");
        }
    }
}
