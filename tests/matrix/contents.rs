//! What a lock file may say: `lfpd` and `lfp` read it as minicom, cu, C-Kermit, pppd and gammu do.

use rstest::rstest;
use testbed::{Sandbox, User};

use crate::bench::{Bench, Came, PORT, lfpd};
use crate::programs;
use crate::scenes::refusal;

const FILE: &str = "/run/lock/LCK..ttyW0";

/// `PID` is a living process. Ten minutes later nobody is about to write the file any more.
#[rstest]
#[case::fhs("      PID\n")]
#[case::dos("PID\r\n")]
#[case::newline_first("\nPID\n")]
#[case::sign("+PID\n")]
#[case::host("PID:box\n")]
#[case::comma("PID,x\n")]
#[case::words("PID minicom root\n")]
#[case::eight_bytes("0000PID\0")]
#[ignore = "needs root: tests/run"]
fn a_lock_that_all_programs_read_is_read_by_us(#[case] content: &str) {
    let sandbox = Sandbox::with_lfpd()
        .port("ttyW0")
        .bring("lfp", testbed::program("lfp-cli", "lfp", &[]))
        .enter();
    let holder = sandbox.sleeper(User::Root);
    let pid = format!("{:03}", holder.pid());
    let content = content.replace("PID", &pid).into_bytes();
    sandbox.write(FILE, content.clone(), 0o644);
    sandbox.command("touch").args(["-d", "10 minutes ago", FILE]).run().expect(0);
    let stays = || sandbox.read(FILE).as_ref() == Some(&content);

    assert_eq!(lfpd(&sandbox).lock(PORT, sandbox.sleeper(User::Root).pid()), 450);
    let run = sandbox
        .command("/run/test/lfp")
        .args(["--direct", "run", PORT, "--", "true"])
        .run()
        .expect(1);
    assert!(run.said(&format!("pid {}", holder.pid())), "{run}");
    sandbox.command("/run/test/lfp").args(["--direct", "clean"]).run().expect(0);
    sandbox.command("mkdir").args(["/run/lfpd"]).run().expect(0);
    drop(sandbox.serve(User::Root, &[]));
    assert!(stays());

    let others =
        [programs::MINICOM, programs::CU, programs::KERMIT, programs::PPPD, programs::GAMMU];
    for program in others {
        let (came, _troupe) = Bench::new(&sandbox, &program, PORT).attempt();
        let Came::Ended(end) = came else {
            unreachable!("{} takes the port: {came:?}", program.name)
        };
        refusal(&program, &end);
        assert!(stays(), "{}", program.name);
    }
}
