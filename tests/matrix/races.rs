//! A program and `lfpd` go for one port at the same moment: one of them has it afterwards, and
//! the lock file says which.

use rstest::rstest;
use testbed::{LIMIT, Session, User, until};

use crate::bench::{PORT, lfpd, sandbox};

const LOCK: &str = "/run/lock/LCK..ttyW0";
const LOG: &str = "/var/log/mgetty/mg_ttyW0.log";
const ROUNDS: u32 = 30;
const SMALL_TALK: &str = "UNLOCK /dev/nothing 1";
/// So much fits into the connection while nobody listens to the answers.
const UNHEARD: u32 = 150;

#[rstest]
#[case::minicom(&["minicom", "-D", PORT])]
#[case::cu(&["cu", "-l", PORT, "-s", "9600"])]
#[case::kermit(&["kermit", "-l", PORT, "-C", "pause 600, exit"])]
#[case::mgetty(&["mgetty", "-x", "9", PORT])]
#[case::gensiot(&["gensiot", "-i", "stdio(self)", "serialdev(nouucplock=false),/dev/ttyW0,local"])]
#[case::pppd(&["pppd", PORT, "lock", "local", "noauth", "nodetach", "connect", "sleep 600"])]
#[ignore = "needs root: tests/run"]
fn there_is_one_winner(#[case] command: &[&str]) {
    let sandbox = sandbox();
    let mut lfpd = lfpd(&sandbox);
    let [name, arguments @ ..] = command else { unreachable!("a command has a name") };
    // Small talk holds lfpd up: more of it after each round that it won, less after others, so
    // that both come closer and closer to coming at once.
    let mut talk = 0;
    let mut won_by_lfpd = 0;
    for round in 0..ROUNDS {
        let holder = sandbox.sleeper(User::Root);
        let lock = format!("LOCK {PORT} {}", holder.pid());
        let ahead = talk.min(UNHEARD);
        (0..ahead).for_each(|_| lfpd.say(SMALL_TALK));
        if ahead == talk {
            lfpd.say(&lock);
        }
        let mut program = sandbox.command(name).args(arguments).spawn();
        listen(&mut lfpd, ahead);
        if ahead < talk {
            (ahead..talk).for_each(|_| drop(lfpd.ask(SMALL_TALK)));
            lfpd.say(&lock);
        }
        let reply = lfpd.line();
        // mgetty does not end: it looks at the lock again from time to time.
        let waits = || sandbox.text(LOG).contains("dialout in progress");
        let owner = || sandbox.locked_by("ttyW0");
        let settled = until(LIMIT, || {
            // minicom goes on without a lock if its file came after it had looked.
            let has_none =
                *name == "minicom" && program.output().contains("Cannot create lockfile!");
            let gave_way = program.ended().is_some() || waits() || has_none;
            (gave_way || owner() == Some(program.pid())).then_some(gave_way)
        });
        let (winner, program_gave_way) = match reply.as_str() {
            "200 Command okay." => (holder.pid(), true),
            "450 : File busy" => (program.pid(), false),
            other => unreachable!("{other}"),
        };
        let is_for = (holder.pid(), program.pid(), owner());
        let said = format!("round {round}, {reply}, {is_for:?}: {}", program.output());
        assert_eq!(settled, Some(program_gave_way), "{said}");
        assert_eq!(owner(), Some(winner), "round {round}");

        if winner == holder.pid() {
            won_by_lfpd += 1;
            talk = talk + talk / 2 + 16;
        } else {
            talk = talk / 4 * 3;
        }
        drop(program);
        let pid = holder.pid();
        drop(holder);
        lfpd.unlock(PORT, pid);
        for left in [LOCK, LOG] {
            let _ = std::fs::remove_file(sandbox.path(left));
        }
    }
    assert!((1..ROUNDS).contains(&won_by_lfpd), "no race: lfpd won {won_by_lfpd} times");
}

fn listen(lfpd: &mut Session<'_>, answers: u32) {
    for _ in 0..answers {
        assert_eq!(lfpd.line(), "450 : File busy");
    }
}
