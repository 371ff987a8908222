//! One port under several names: below a directory of `/dev`, and behind symbolic links.
//!
//! Programs disagree about what to call such a port's lock, and only C-Kermit follows links. `lfpd` writes every
//! name that a program may look at, so the second program by the same name is kept out, and so is a program at the
//! real node of a link that `lfpd` locked, and at any other link to it.

use std::fs;
use std::os::unix::fs::MetadataExt;

use nix::sys::stat::{major, minor};
use rstest::rstest;
use testbed::{Sandbox, Session};

use crate::bench::{Bench, Came, PORT, lfpd, sandbox, somebody};
use crate::programs::{self, Program};
use crate::table::Table;

const LINK: &str = "/dev/modemW";
const BELOW: &str = "/dev/pts/3";
const BY_ID: &str = "/dev/serial/by-id/usb-X_Y-if00";

static TABLE: Table = Table::new(
    "matrix-names.md",
    &[
        "Program",
        "`lfpd` has pts/3, modem or by-id: program by the same name",
        "Program has it: LOCK by the same name",
        "`lfpd` has the link: program by the node",
        "Program has the node: LOCK by the link",
        "`lfpd` has the node: program by udev's link",
        "Program has udev's link: LOCK by the node",
        "`lfpd` has the node: program by another link",
        "Program has another link: LOCK by the node",
    ],
    14,
);

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
        assert_eq!(names.program_after_lfpd(name, name), "kept out", "{name}");
        assert_eq!(names.lfpd_after_program(name, name), "450", "{name}");
    }
    let by_node = names.program_after_lfpd(LINK, PORT);
    let by_link = names.lfpd_after_program(PORT, LINK);
    let untold = [names.program_after_lfpd(PORT, LINK), names.lfpd_after_program(LINK, PORT)];
    let same = ["kept out", "450"].map(String::from);
    names.tell_udev();
    let told = [names.program_after_lfpd(PORT, LINK), names.lfpd_after_program(LINK, PORT)];
    let met = [by_node.clone(), by_link.clone()];
    let row = [&[program.name.to_owned()], &same[..], &met, &told, &untold];
    TABLE.add(row.concat());
    assert_eq!([by_node, by_link], ["kept out", "450"], "{}", program.name);
    assert_eq!(told, same, "{}", program.name);
    assert_eq!(untold, same, "{}", program.name);
}

/// A program and `lfpd` at one port.
struct Names<'a> {
    sandbox: &'a Sandbox,
    program: &'a Program,
    lfpd: Session<'a>,
}

impl Names<'_> {
    /// `lfpd` takes the port by one name, then the program comes by the other.
    fn program_after_lfpd(&mut self, locked: &str, used: &str) -> String {
        let holder = somebody(self.sandbox);
        assert_eq!(self.lfpd.lock(locked, holder.pid()), 200, "{locked}");
        let (came, troupe) = Bench::new(self.sandbox, self.program, used).attempt();
        drop(troupe);
        self.clear();
        match came {
            Came::Has => "starts".to_owned(),
            Came::Ended(_) | Came::Waits(_) => "kept out".to_owned(),
        }
    }

    /// The program takes the port by one name, then somebody asks `lfpd` for the other.
    fn lfpd_after_program(&mut self, used: &str, locked: &str) -> String {
        let (came, troupe) = Bench::new(self.sandbox, self.program, used).attempt();
        assert!(matches!(came, Came::Has), "{} at {used}: {came:?}", self.program.name);
        let code = self.lfpd.lock(locked, somebody(self.sandbox).pid());
        drop(troupe);
        self.clear();
        code.to_string()
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
