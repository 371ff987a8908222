//! What an ordinary user may do with the lock of a port that this user may open: the table of docs/how-locks-work.md, row
//! by row.

use rstest::rstest;
use testbed::{GONE, Process, User, shipped};

use crate::bench::{Bench, PORT};

/// A column of the table: who may write the lock directory, and whether there is a service.
#[derive(Clone, Copy, Debug)]
enum Column {
    Everybody = 1,
    Group,
    Root,
    Service,
}

/// Where there is no service: whether its state directory is there all the same. A user may not write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StateDirectory {
    Absent,
    Present,
}

impl Column {
    fn bench(self, state: StateDirectory) -> Bench {
        let (mode, owner) = match self {
            Self::Everybody => ("1777", "root:root"),
            Self::Group => ("0775", "root:dialout"),
            Self::Root => ("0755", "root:root"),
            Self::Service => return Bench::served(),
        };
        let bench = Bench::of(Bench::layout(mode, owner));
        if state == StateDirectory::Present {
            bench.make_place(User::Lfpd, "0755");
        }
        bench
    }

    /// What the table says: the first cell of each row, and whether this one says yes.
    fn of_table(self) -> Vec<(String, bool)> {
        let page = shipped("docs/how-locks-work.md");
        let (_, part) = page.split_once("\n## Who may do what\n").expect("the part of the page");
        let table = part.lines().skip_while(|line| !line.starts_with('|'));
        let rows = table.take_while(|line| line.starts_with('|')).skip(2);
        rows.map(|row| {
            let cells: Vec<&str> = row.split('|').skip(1).map(str::trim).collect();
            let says = match cells[self as usize] {
                "yes" => true,
                "no" => false,
                other => panic!("neither yes nor no: {other}"),
            };
            (cells[0].to_owned(), says)
        })
        .collect()
    }
}

/// Whether Alice may do this to the port's lock in the name of this process.
fn may(bench: &Bench, verb: &str, process: &Process<'_>) -> bool {
    let pid = process.pid().to_string();
    bench.lfp(User::Alice, &[verb, "--pid", &pid, PORT]).run().code() == 0
}

/// A lock file of Bob, as programs make it that know nothing of us.
fn file_of_bob(bench: &Bench, pid: i64) {
    let made = "printf '%10d\\n' PID >/run/lock/LCK..ttyW0; chown bob /run/lock/LCK..ttyW0";
    assert_eq!(bench.shell(User::Root, &made.replace("PID", &pid.to_string())).code(), 0);
}

fn is_allowed(bench: &Bench, deed: &str) -> bool {
    let alices = bench.sleeper(User::Alice);
    match deed {
        "lock a free port, and unlock it" => {
            may(bench, "lock", &alices) && may(bench, "unlock", &alices)
        }
        "take over a stale lock of your own" => {
            let first = bench.sleeper(User::Alice);
            let locked = may(bench, "lock", &first);
            first.kill();
            locked && may(bench, "lock", &alices)
        }
        "take over a stale lock file of another user" => {
            file_of_bob(bench, GONE.into());
            may(bench, "lock", &alices)
        }
        "take over a stale lock file of root" => {
            bench.holder(User::Bob).kill();
            may(bench, "lock", &alices)
        }
        "lock a port that another user's program has locked" => {
            let bobs = bench.sleeper(User::Bob);
            file_of_bob(bench, bobs.pid().into());
            may(bench, "lock", &alices) || bench.locked_by("ttyW0") != Some(bobs.pid())
        }
        "unlock it, with the number of that program" => {
            let bobs = bench.sleeper(User::Bob);
            file_of_bob(bench, bobs.pid().into());
            may(bench, "unlock", &bobs) || bench.locked_by("ttyW0") != Some(bobs.pid())
        }
        other => panic!("no deed of the table: {other}"),
    }
}

#[rstest]
#[case::everybody(Column::Everybody, StateDirectory::Absent)]
#[case::everybody_with_a_state_directory(Column::Everybody, StateDirectory::Present)]
#[case::group(Column::Group, StateDirectory::Absent)]
#[case::group_with_a_state_directory(Column::Group, StateDirectory::Present)]
#[case::root(Column::Root, StateDirectory::Absent)]
#[case::root_with_a_state_directory(Column::Root, StateDirectory::Present)]
#[case::service(Column::Service, StateDirectory::Present)]
#[ignore = "needs namespaces: tests/run"]
fn each_user_may_do_what_the_table_says(#[case] column: Column, #[case] state: StateDirectory) {
    let rows = column.of_table();
    assert_eq!(rows.len(), 6);
    let seen = |deed: &String| (deed.clone(), is_allowed(&column.bench(state), deed));
    let seen: Vec<(String, bool)> = rows.iter().map(|(deed, _)| seen(deed)).collect();
    assert_eq!(seen, rows);
}
