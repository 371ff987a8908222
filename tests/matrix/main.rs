//! Real serial programs against the real `lfpd`, on real pseudo-terminals: which program keeps out which.
//!
//! Every program goes through the same four scenes, and what it did is compared with its row:
//! (a) `lfpd` has the port and the program wants it, (b) the program has it and somebody asks
//! `lfpd`, (c) the program was killed and somebody asks `lfpd`, (d) the process that `lfpd`
//! took the port for has died and the program wants it. The table is printed when the last
//! program is done, and written to `target/matrix.md`.
//!
//! `lfpd` runs as a service would on Debian: as `uucp`, with CAP_FOWNER, so that it can
//! remove dead locks of others from the sticky directory.

mod bench;
mod contents;
mod daemon;
mod exclusive;
mod names;
mod programs;
mod quirks;
mod races;
mod scenes;
mod table;
mod unmodified;
mod unprivileged;

use rstest::rstest;

use programs::Program;

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
#[case::qt_as_root(programs::QT_AS_ROOT)]
#[case::gammu(programs::GAMMU)]
#[case::gnokii(programs::GNOKII)]
#[case::apcupsd(programs::APCUPSD)]
#[case::socat(programs::SOCAT)]
#[case::picocom(programs::PICOCOM)]
#[case::tio(programs::TIO)]
#[case::miniterm(programs::MINITERM)]
#[case::pyserial(programs::PYSERIAL)]
#[case::serialx(programs::SERIALX)]
#[case::esptool(programs::ESPTOOL)]
#[case::node(programs::NODE)]
#[case::rust(programs::RUST)]
#[case::minicom_o(programs::MINICOM_O)]
#[case::go(programs::GO)]
#[ignore = "needs root: tests/run"]
fn program_and_lfpd_keep_each_other_out(#[case] program: Program) {
    let seen = scenes::play(&program);
    scenes::TABLE.add(scenes::cells(&program, &seen));
    assert_eq!(seen, program.row, "{}: what happened is not what its row says", program.name);
}
