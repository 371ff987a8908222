//! `/proc/PID/stat`, `/proc/PID/status` and the offsets of a time namespace: bytes in, values out; and whose a
//! process is. Pure.
//! Source: proc(5), time_namespaces(7).

use std::str::FromStr;

/// Fields of `/proc/PID/stat`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// The command's name, at most 15 bytes; whatever else it holds.
    pub name: String,
    /// The process that started it, or adopted it.
    pub parent: i64,
    /// When it began, in clock ticks as they are read here.
    pub start: u64,
    /// The first process of its session.
    pub session: u64,
    /// The number of the device that is its controlling terminal; 0 without one.
    pub terminal: u64,
    state: u8,
    flags: u64,
    threads: u64,
    /// Where its arguments and its stack begin: chance chooses anew at each execve(2), and fork(2)
    /// keeps it. Zero where that may not be seen.
    pub image: (u64, u64),
}

/// The flag of a task that ends. Source: `PF_EXITING` in the kernel's sched.h.
const EXITING: u64 = 0x4;

impl Stat {
    /// The name in field 2 may hold blanks and parentheses, so fields are counted from its last
    /// closing one.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let (before, rest) = text.split_at(text.iter().rposition(|byte| *byte == b')')?);
        let name = before.splitn(2, |byte| *byte == b'(').nth(1)?;
        // The first field behind the name and a blank is number 3.
        let mut fields = (3..).zip(rest.get(2..)?.split(|byte| *byte == b' '));
        let mut field = |at: usize| Some(fields.find(|(number, _)| *number == at)?.1);
        let number = |field: &[u8]| std::str::from_utf8(field).ok().and_then(number::<u64>);
        let state = *field(3)?.first()?;
        let parent = i64::try_from(number(field(4)?)?).ok()?;
        let [session, terminal] = [6, 7].map(|at| field(at).and_then(number).unwrap_or(0));
        let flags = field(9).and_then(number).unwrap_or(0);
        let threads = field(20).and_then(number)?;
        let start = field(22).and_then(number)?;
        let image = [28, 48].map(|at| field(at).and_then(number).unwrap_or(0));
        let name = String::from_utf8_lossy(name).into_owned();
        let image = image.into();
        Some(Self { name, parent, start, session, terminal, state, flags, threads, image })
    }

    /// It does nothing more: the kernel closes what it has open, and lets only root look at that. A serial port is closed
    /// when all output has left it, after half a minute at the latest.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        self.flags & EXITING != 0 && self.threads == 1
    }

    /// It is being waited for at this moment, or executes a program.
    #[must_use]
    pub fn may_have_ended(&self) -> bool {
        self.threads == 0
    }

    /// A zombie whose threads have all ended; one whose first thread alone has ended works on.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        is_end(self.state, || Some(self.threads))
    }
}

/// A process of which no thread is counted has either been waited for this moment, and the next look finds nobody, or
/// another of its threads calls execve(2), takes over its number, and works on (`de_thread` in the kernel's fs/exec.c).
fn is_end(state: u8, threads: impl FnOnce() -> Option<u64>) -> bool {
    matches!(state, b'Z' | b'X' | b'x') && threads() == Some(1)
}

/// As [`Stat::has_ended`], by the content of `/proc/PID/status`.
#[must_use]
pub fn has_ended_in(status: &str) -> bool {
    let field = |key: &str| field_in(status, key).map(str::trim);
    let state = field("State:").and_then(|state| state.bytes().next());
    // It stands far behind the state.
    let threads = || field("Threads:").and_then(number);
    state.is_some_and(|state| is_end(state, threads))
}

/// The rest of the line of `/proc/PID/status` that begins so; a name in it has no newline.
#[must_use]
pub fn field_in<'s>(status: &'s str, key: &str) -> Option<&'s str> {
    let begins = |(at, _): &(usize, &str)| status.get(..*at).is_some_and(is_empty_or_ended);
    let (at, _) = status.match_indices(key).find(begins)?;
    let (_, rest) = status.split_at_checked(at.checked_add(key.len())?)?;
    Some(rest.split_once('\n').map_or(rest, |(line, _)| line))
}

fn is_empty_or_ended(lines: &str) -> bool {
    lines.is_empty() || lines.ends_with('\n')
}

/// Digits and nothing else; the standard library would also take a plus.
pub(super) fn number<N: FromStr>(text: &str) -> Option<N> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())?
}

/// The numbers of a process from the namespace of `/proc` to its own, by the content of `/proc/PID/status`. At least one.
#[must_use]
pub fn numbers_in(status: &str) -> Option<Vec<i32>> {
    // A line that is cut off would have another last number.
    let mut lines = status.split_inclusive('\n');
    let line = lines.find_map(|line| line.strip_prefix("NSpid:")?.strip_suffix('\n'))?;
    let numbers: Option<Vec<i32>> = line.split_ascii_whitespace().map(number).collect();
    numbers.filter(|numbers| !numbers.is_empty())
}

/// By how many nanoseconds a time namespace moves start times.
pub(crate) fn shift_in(offsets: &str) -> i128 {
    let line = offsets.lines().find_map(|line| line.strip_prefix("boottime"));
    let mut words = line.unwrap_or_default().split_ascii_whitespace();
    let mut next = || words.next().and_then(|word| word.parse::<i64>().ok()).unwrap_or(0);
    let (seconds, nanoseconds) = (next(), next());
    i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds)
}

/// The users of a process, or its groups. Real ones are those of the user who started it; a program with the set-user-ID or
/// set-group-ID bit has another effective and another saved one (credentials(7)).
///
/// The real user is the one who counts: limits, shares and what people read go by it. Whoever may signal the process
/// may also act for it ([`Ids::belong_to`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "credentials(7) has these, and one for files")]
pub struct Ids {
    /// Of the user who started the process.
    pub real: u32,
    /// Of the user whose rights it has.
    pub effective: u32,
    /// Of the user whose rights it may take again.
    pub saved: u32,
}

impl Ids {
    /// Those of a process that has never changed them.
    #[must_use]
    pub fn all(id: u32) -> Self {
        Self { real: id, effective: id, saved: id }
    }

    /// Whether a process with these users is a user's, by the rule of kill(2): the user has started it, or the program
    /// runs as that user by its set-user-ID bit. A program of root that is another user for a moment stays root's.
    #[must_use]
    pub fn belong_to(self, uid: u32) -> bool {
        [self.real, self.saved].contains(&uid)
    }

    /// Those in the line of `/proc/PID/status` that begins so (`Uid:`, `Gid:`): the real one, the effective one, the saved
    /// one, and that for files.
    #[must_use]
    pub fn in_status(status: &str, key: &str) -> Option<Self> {
        let mut words = field_in(status, key)?.split_ascii_whitespace().map(number);
        let mut next = || words.next()?;
        Some(Self { real: next()?, effective: next()?, saved: next()? })
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const REST: &str =
        "4 5 6 7 8 20 0 1 0 4242 9 9 9 9 9 7777 9 9 9 9 9 9 9 9 9 9 9 9 9 9 9 9 9 9 9 8888 9";

    #[rstest]
    #[case::usual("7 (sh) S 1 7 7 0 -1 0 1 2 3", "sh", b'S')]
    #[case::hostile_name("7 (a) Z (b)) R 1 7 7 0 -1 0 1 2 3", "a) Z (b)", b'R')]
    fn finds_the_fields(#[case] start: &str, #[case] name: &str, #[case] state: u8) {
        let stat = Stat::parse(format!("{start} {REST}").as_bytes()).unwrap();
        assert_eq!((stat.name.as_str(), stat.state, stat.parent), (name, state, 1));
        assert_eq!((stat.threads, stat.start, stat.image), (1, 4242, (7777, 8888)));
    }

    #[rstest]
    #[case::usual("7 (sh) S 1 7 7 0 -1 0 1 2 3 4 5 6 7 8 20 0 1 0 4242 9 9", Some(4242))]
    #[case::hostile_name("7 (a) b (c)) S 1 7 7 0 -1 0 1 2 3 4 5 6 7 8 20 0 1 0 77 9", Some(77))]
    #[case::a_plus("7 (sh) S 1 7 7 0 -1 0 1 2 3 4 5 6 7 8 20 0 1 0 +42 9 9", None)]
    #[case::too_short("7 (sh) S 1 7", None)]
    #[case::no_name("7 sh S", None)]
    #[case::empty("", None)]
    fn finds_the_start_time(#[case] stat: &str, #[case] ticks: Option<u64>) {
        assert_eq!(Stat::parse(stat.as_bytes()).map(|stat| stat.start), ticks);
    }

    #[rstest]
    #[case::sleeps('S', 1, false)]
    #[case::zombie('Z', 1, true)]
    #[case::first_thread_ended('Z', 2, false)]
    #[case::first_thread_gives_way_to_another('Z', 0, false)]
    #[case::first_thread_is_replaced('X', 0, false)]
    #[case::dead('X', 1, true)]
    #[case::dead_of_old('x', 1, true)]
    #[case::stopped('T', 1, false)]
    fn a_process_has_ended_with_its_last_thread(
        #[case] state: char,
        #[case] threads: u64,
        #[case] ended: bool,
    ) {
        let text = format!("7 (sh) {state} 1 7 7 0 -1 0 1 2 3 4 5 6 7 8 20 0 {threads} 0 4242 9");
        let stat = Stat::parse(text.as_bytes()).unwrap();
        assert_eq!((stat.has_ended(), stat.may_have_ended()), (ended, threads == 0));
        let status =
            format!("Name:\tsh\nState:\t{state} (said so)\nUid:\t7\nThreads:\t{threads}\n");
        assert_eq!(has_ended_in(&status), ended);
        assert!(!has_ended_in(&format!("State:\t{state} (cut off)\n")));
    }

    #[rstest]
    #[case::works("4194304", 1, false)]
    #[case::ends("4194308", 1, true)]
    #[case::first_thread_ends("4194308", 2, false)]
    #[case::first_thread_is_replaced("4194308", 0, false)]
    #[case::no_number("-4", 1, false)]
    fn a_process_is_ending_with_its_last_thread(
        #[case] flags: &str,
        #[case] threads: u64,
        #[case] ending: bool,
    ) {
        let text = format!("7 (sh) D 1 7 7 0 -1 {flags} 1 2 3 4 5 6 7 8 20 0 {threads} 0 4242 9");
        assert_eq!(Stat::parse(text.as_bytes()).unwrap().is_ending(), ending);
    }

    #[rstest]
    #[case::nested("PPid:\t1\nNSpid:\t700\t7\n", Some(vec![700, 7]))]
    #[case::alone("NSpid:\t700\n", Some(vec![700]))]
    #[case::none("NSpid:\n", None)]
    #[case::no_number("NSpid:\t1\tx\n", None)]
    #[case::cut("NSpid:\t700\t7", None)]
    #[case::older_kernel("PPid:\t1\n", None)]
    fn finds_the_numbers(#[case] status: &str, #[case] numbers: Option<Vec<i32>>) {
        assert_eq!(numbers_in(status), numbers);
    }

    #[rstest]
    #[case::none("monotonic           0         0\nboottime            0         0\n", 0)]
    #[case::ahead("monotonic 5 5\nboottime       100000         7\n", 100_000_000_000_007)]
    #[case::behind("boottime -2 500000000\n", -1_500_000_000)]
    #[case::no_time_namespaces("", 0)]
    fn reads_the_shift_of_a_time_namespace(#[case] text: &str, #[case] nanoseconds: i128) {
        assert_eq!(shift_in(text), nanoseconds);
    }

    const ALICE: u32 = 1000;
    const BOB: u32 = 1001;
    const UUCP: u32 = 10;

    fn ids(real: u32, effective: u32, saved: u32) -> Ids {
        Ids { real, effective, saved }
    }

    #[rstest]
    #[case::her_own(Ids::all(ALICE), ALICE, true)]
    #[case::another_users(Ids::all(BOB), ALICE, false)]
    #[case::she_has_started_su(ids(ALICE, 0, 0), ALICE, true)]
    #[case::she_has_started_a_set_user_id_program(ids(ALICE, UUCP, UUCP), ALICE, true)]
    #[case::it_runs_as_uucp(ids(ALICE, UUCP, UUCP), UUCP, true)]
    #[case::and_has_gone_back_for_a_moment(ids(ALICE, ALICE, UUCP), UUCP, true)]
    #[case::roots_daemon_is_her_for_a_moment(ids(0, ALICE, 0), ALICE, false)]
    fn a_process_is_of_whom_may_signal_it(
        #[case] users: Ids,
        #[case] uid: u32,
        #[case] theirs: bool,
    ) {
        assert_eq!(users.belong_to(uid), theirs);
    }

    #[rstest]
    #[case::four(
        "Name:\tsh\nUid:\t1000\t1001\t1002\t1003\nGid:\t7\t7\t7\t7\n",
        Some(ids(1000, 1001, 1002))
    )]
    #[case::one("Uid:\t1000\n", None)]
    #[case::two("Uid:\t1000\t1001\n", None)]
    #[case::no_number("Uid:\t1000\tx\t1002\t1003\n", None)]
    #[case::a_plus("Uid:\t+1000\t1001\t1002\t1003\n", None)]
    #[case::absent("Name:\tsh\nGid:\t7\t7\t7\t7\n", None)]
    #[case::empty("", None)]
    fn finds_the_users(#[case] status: &str, #[case] users: Option<Ids>) {
        assert_eq!(Ids::in_status(status, "Uid:"), users);
    }
}
