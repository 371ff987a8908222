//! The library against real files and threads.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use pidlockfile::Pid;
use rstest::rstest;

use super::*;
use crate::sys::now_seconds;
use crate::{Here, Holder, StaleRule};

/// A number no process has: above the largest the kernel gives out (proc(5), pid_max).
const NOBODY: u64 = 4_194_305;

fn scratch() -> (tempfile::TempDir, PathBuf) {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("a.lock");
    (scratch, path)
}

fn quick(config: Config) -> Config {
    Config { durability: Durability::Memory, ..config }
}

fn open(path: &Path) -> Semaphore {
    Semaphore::with_config(path, quick(Config::default())).unwrap()
}

fn here() -> Here {
    Here::detect()
}

fn files(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path.parent().unwrap()).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn the_public_types_are_send_sync_and_static() {
    fn check<T: Send + Sync + 'static>() {}
    check::<Semaphore>();
    check::<Guard>();
    check::<Error>();
    check::<Config>();
}

#[test]
fn the_file_names_holder_time_and_purpose() {
    let (_scratch, path) = scratch();
    let guard = open(&path).try_acquire(Some("npm\nbuild")).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    let info = LockInfo::parse(text.as_bytes()).unwrap();
    assert_eq!(&info, guard.info());
    assert_eq!(info.pid(), u64::from(std::process::id()));
    assert_eq!(info.tag(), Some("npm build"));
    assert!(info.timestamp().abs_diff(now_seconds()) < 60);
    assert_eq!(info.holder().liveness(&here()), crate::Liveness::Alive);
    assert_eq!(files(&path), ["a.lock"], "no temporary file is left");
}

#[test]
fn a_tag_is_cut_to_the_configured_length() {
    let (_scratch, path) = scratch();
    let config = quick(Config { longest_tag: 3, ..Config::default() });
    let guard = Semaphore::with_config(&path, config).unwrap().try_acquire(Some("abcdef")).unwrap();
    assert_eq!(guard.info().tag(), Some("abc"));
}

#[test]
fn a_second_taker_is_told_the_holder() {
    let (_scratch, path) = scratch();
    let guard = open(&path).try_acquire(Some("first")).unwrap();
    match open(&path).try_acquire(None) {
        Err(Error::AlreadyLocked { holder: Some(info), .. }) => assert_eq!(&*info, guard.info()),
        other => panic!("{other:?}"),
    }
    drop(guard);
    assert_eq!(files(&path), Vec::<String>::new());
    open(&path).try_acquire(None).unwrap().release().unwrap();
}

#[test]
fn waiting_times_out_and_names_the_holder() {
    let (_scratch, path) = scratch();
    let _guard = open(&path).try_acquire(Some("first")).unwrap();
    let timeout = Some(Duration::from_millis(30));
    let config = quick(Config { acquire_timeout: timeout, ..Config::default() });
    let semaphore = Semaphore::with_config(&path, config).unwrap();
    match semaphore.acquire(None) {
        Err(Error::TimedOut { waited, holder: Some(info), .. }) => {
            assert!(waited >= Duration::from_millis(30));
            assert_eq!(info.tag(), Some("first"));
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(semaphore.wait(), Err(Error::TimedOut { .. })));
    assert_eq!(files(&path), ["a.lock"], "a waiter leaves nothing");
}

#[test]
fn a_release_wakes_a_waiter_before_its_next_look() {
    let (_scratch, path) = scratch();
    let guard = open(&path).try_acquire(None).unwrap();
    let never = Duration::from_secs(3600);
    let config = quick(Config { retry_interval: never, ..Config::default() });
    let waiter = Semaphore::with_config(&path, config).unwrap();
    let (taken, seen) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        let held = waiter.acquire(None).unwrap();
        taken.send(()).unwrap();
        held.release().unwrap();
    });
    guard.release().unwrap();
    seen.recv_timeout(Duration::from_secs(20)).expect("the waiter slept through the release");
    thread.join().unwrap();
}

#[test]
fn many_threads_one_inside() {
    let (_scratch, path) = scratch();
    let semaphore = open(&path);
    let inside = Arc::new(AtomicUsize::new(0));
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let (semaphore, inside) = (semaphore.clone(), Arc::clone(&inside));
            std::thread::spawn(move || {
                for _ in 0..20 {
                    let guard = semaphore.acquire(None).unwrap();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                    inside.fetch_sub(1, Ordering::SeqCst);
                    guard.release().unwrap();
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(files(&path), Vec::<String>::new());
}

const HOUR: u64 = 3600;

fn write_aged(path: &Path, content: impl AsRef<[u8]>, seconds: u64) {
    fs::write(path, content).unwrap();
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_modified(std::time::SystemTime::now() - Duration::from_secs(seconds)).unwrap();
}

/// Nobody will ever release such a file: waiting for it makes no sense.
#[rstest]
#[case::no_number("pid=abc\ntimestamp=1\n")]
#[case::a_number_alone("5")]
#[case::uucp("      12345\n")]
#[case::with_a_host("12 host\n")]
#[case::json("{\"pid\":5}")]
#[case::too_large("pid=99999999999999999999\ntimestamp=1\n")]
#[case::not_utf_8(b"\xff\xfe\x00\x80")]
fn a_file_that_is_no_lock_is_refused_at_once(
    #[case] content: impl AsRef<[u8]>,
    #[values(0, HOUR + 10)] age: u64,
    #[values(StaleRule::Dead, StaleRule::Host, StaleRule::DeadAndOld)] rule: StaleRule,
) {
    let (_scratch, path) = scratch();
    write_aged(&path, content.as_ref(), age);
    let config = quick(Config { stale_rule: rule, ..Config::default() });
    let semaphore = Semaphore::with_config(&path, config).unwrap();
    let begin = Instant::now();
    assert!(matches!(semaphore.try_acquire(None), Err(Error::Parse { .. })));
    assert!(matches!(semaphore.acquire(None), Err(Error::Parse { .. })));
    assert!(matches!(semaphore.wait(), Err(Error::Parse { .. })));
    assert!(begin.elapsed() < crate::limits::WRITING_TIME);
    assert_eq!(fs::read(&path).unwrap(), content.as_ref());
    let status = semaphore.status().unwrap();
    assert!(matches!(&status[..], [SlotStatus::Held(HeldStatus { info: Some(Err(_)), .. })]));
    let config = quick(Config { stale_rule: StaleRule::Age, ..Config::default() });
    let by_age = Semaphore::with_config(&path, config).unwrap().try_acquire(None);
    assert_eq!(by_age.is_ok(), age > HOUR);
}

/// What an interrupted write leaves, as old as it is, and whether it is stale then.
#[rstest]
#[case::empty("", 10, false)]
#[case::empty_at_the_limit("", HOUR, false)]
#[case::empty_and_old("", HOUR + 10, true)]
#[case::nuls("\0\0\0\0", 10, false)]
#[case::nuls_and_old("\0\0\0\0", HOUR + 10, true)]
#[case::cut("pid=4194305\n", 10, false)]
#[case::cut_and_old("pid=4194305\n", HOUR + 10, true)]
#[case::cut_in_a_number_that_is_init_s("pid=1", HOUR + 10, true)]
#[case::cut_behind_a_number("pid=1\n", HOUR + 10, false)]
#[case::cut_in_the_time("pid=1\ntimestamp=", HOUR + 10, false)]
fn what_an_interrupted_write_leaves_is_stale_when_it_is_old(
    #[case] content: &str,
    #[case] age: u64,
    #[case] stale: bool,
    #[values(StaleRule::Dead, StaleRule::Host, StaleRule::DeadAndOld)] rule: StaleRule,
) {
    let (_scratch, path) = scratch();
    write_aged(&path, content, age);
    let config = quick(Config { stale_rule: rule, ..Config::default() });
    let never = Semaphore::with_config(&path, Config { stale_timeout: None, ..config }).unwrap();
    assert!(matches!(never.try_acquire(None), Err(Error::Parse { .. })));
    let semaphore = Semaphore::with_config(&path, config).unwrap();
    match semaphore.acquire(None) {
        Ok(held) => held.release().unwrap(),
        Err(error) => assert!(matches!(error, Error::Parse { .. }), "{error:?}"),
    }
    assert_eq!(path.exists(), !stale);
}

#[test]
fn a_file_that_is_being_written_is_waited_for() {
    let (_scratch, path) = scratch();
    let semaphore = open(&path);
    for take in [Semaphore::try_acquire, |it: &Semaphore, tag: Option<&str>| {
        it.request().tag(tag.unwrap_or("")).timeout(Duration::from_millis(1300)).acquire()
    }] {
        write_aged(&path, "", 0);
        let looks = std::sync::Barrier::new(2);
        let seen = std::thread::scope(|scope| {
            let taking = scope.spawn(|| {
                looks.wait();
                take(&semaphore, Some("x"))
            });
            looks.wait();
            fs::write(&path, "pid=").unwrap();
            fs::write(&path, format!("pid={}\ntimestamp=1\n", std::process::id())).unwrap();
            taking.join().unwrap()
        });
        assert!(matches!(
            seen,
            Err(Error::AlreadyLocked { holder: Some(_), .. }
                | Error::TimedOut { holder: Some(_), .. })
        ));
    }
}

/// It is one that is being written, until it is two seconds old.
#[test]
fn a_file_that_stays_empty_is_no_lock() {
    let (_scratch, path) = scratch();
    write_aged(&path, "", 0);
    let begin = Instant::now();
    assert!(matches!(open(&path).try_acquire(None), Err(Error::Parse { .. })));
    assert!(begin.elapsed() > crate::limits::WRITING_TIME / 2);
    write_aged(&path, "", 0);
    assert!(matches!(open(&path).acquire(None), Err(Error::Parse { .. })));
    assert_eq!(fs::read_to_string(&path).unwrap(), "");
}

/// On Windows a file that is removed while its holder has it open may keep its name until he closes it: then
/// nobody has the lock before that, and he has held it to the end.
#[cfg(windows)]
#[test]
fn a_lock_that_was_taken_away_has_no_two_holders() {
    let (_scratch, path) = scratch();
    let guard = open(&path).try_acquire(None).unwrap();
    open(&path).release_for(Releaser::Anyone).unwrap();
    match open(&path).try_acquire(Some("successor")) {
        Ok(successor) => {
            assert!(guard.release().is_err());
            successor.release().unwrap();
        }
        Err(_) => guard.release().unwrap(),
    }
    open(&path).try_acquire(None).unwrap().release().unwrap();
}

#[cfg(unix)]
#[test]
fn a_guard_whose_lock_was_taken_away_removes_nothing_and_says_so() {
    let (_scratch, path) = scratch();
    let guard = open(&path).try_acquire(None).unwrap();
    open(&path).release_for(Releaser::Anyone).unwrap();
    assert_eq!(guard.release(), Err(Error::NotLocked { path: path.clone() }));

    let guard = open(&path).try_acquire(None).unwrap();
    open(&path).release_for(Releaser::Anyone).unwrap();
    let successor = open(&path).try_acquire(Some("successor")).unwrap();
    match guard.release() {
        Err(Error::NotHolder { holder: Some(info), .. }) => assert_eq!(&*info, successor.info()),
        other => panic!("{other:?}"),
    }
    assert!(path.exists());
    successor.release().unwrap();
}

#[test]
fn only_the_recorded_holder_releases() {
    let (_scratch, path) = scratch();
    let us = Holder::of(Pid::this(), &here()).unwrap();
    let semaphore = open(&path);
    assert_eq!(
        semaphore.release_for(Releaser::Holder(&us)),
        Err(Error::NotLocked { path: path.clone() })
    );

    semaphore.try_acquire(None).unwrap().keep();
    let younger = Holder { start: us.start.map(|ticks| ticks + 1), ..us.clone() };
    for stranger in [Holder::bare(NOBODY), younger] {
        let denied = semaphore.release_for(Releaser::Holder(&stranger));
        assert!(matches!(denied, Err(Error::NotHolder { holder: Some(_), .. })));
        assert!(path.exists());
    }
    semaphore.release_for(Releaser::Holder(&us)).unwrap();
    assert!(!path.exists());
}

#[test]
fn a_file_that_does_not_parse_is_released_by_force_alone() {
    let (_scratch, path) = scratch();
    fs::write(&path, "garbage").unwrap();
    let us = Holder::of(Pid::this(), &here()).unwrap();
    let denied = open(&path).release_for(Releaser::Holder(&us));
    assert!(matches!(denied, Err(Error::Parse { .. })));
    assert!(path.exists());
    open(&path).release_for(Releaser::Anyone).unwrap();
    assert!(!path.exists());
}

/// There is no flock(2) on Windows.
#[cfg(unix)]
#[test]
fn a_strangers_flock_cannot_keep_the_file_locked() {
    let (_scratch, path) = scratch();
    let guard = open(&path).try_acquire(None).unwrap();
    let stranger = fs::File::open(&path).unwrap();
    let _flock = nix::fcntl::Flock::lock(stranger, nix::fcntl::FlockArg::LockShared).unwrap();
    guard.release().unwrap();
    assert!(!path.exists());
}

#[test]
fn cleaning_sweeps_the_stale_and_leaves_the_living() {
    let (_scratch, path) = scratch();
    let at = |name: &str| path.parent().unwrap().join(name);
    let here = here();
    let mut stranger = Holder::of(Pid::this(), &here).unwrap();
    stranger.pidns = Some(1);
    let stranger = LockInfo::new(stranger, now_seconds(), None).to_text();
    let us = std::process::id();
    let old = format!("pid={NOBODY}\ntimestamp=1\n");
    fs::write(&path, &old).unwrap();
    fs::write(at("other.lock"), &old).unwrap();
    fs::write(at("a.lock.4194305.0123456789abcdef.tmp"), &old).unwrap();
    fs::write(at("a.lock.4194305.0123456789abcdee.tmp"), "").unwrap();
    fs::write(at("a.lock.4194305.0123456789abcded.tmp"), stranger).unwrap();
    fs::write(at(&format!("a.lock.{us}.0123456789abcdef.tmp")), &old).unwrap();
    fs::write(at("other.lock.4194305.0123456789abcdef.tmp"), &old).unwrap();

    let swept = open(&path).clean().unwrap();
    assert_eq!((swept.locks, swept.temporaries), (1, 2));
    let mut left = vec![
        "a.lock.4194305.0123456789abcded.tmp".to_owned(),
        format!("a.lock.{us}.0123456789abcdef.tmp"),
        "other.lock".to_owned(),
        "other.lock.4194305.0123456789abcdef.tmp".to_owned(),
    ];
    left.sort();
    assert_eq!(files(&path), left);
}

#[rstest]
#[case::of_this_process(0, false)]
#[case::of_an_earlier_process_with_its_number(1, true)]
fn a_temporary_file_of_a_number_used_again(#[case] later_by: u64, #[case] swept: bool) {
    let (_scratch, path) = scratch();
    let name = format!("a.lock.{}.0123456789abcdef.tmp", std::process::id());
    let us = Holder::of(Pid::this(), &Here::detect()).unwrap();
    let holder = Holder { start: us.start.map(|ticks| ticks - later_by), ..us };
    fs::write(path.with_file_name(name), LockInfo::new(holder, 1, None).to_text()).unwrap();
    assert_eq!(open(&path).clean().unwrap().temporaries, usize::from(swept));
}

#[test]
fn a_listing_shows_locks_and_nothing_else() {
    let (_scratch, path) = scratch();
    let at = |name: &str| path.parent().unwrap().join(name);
    let _guard = open(&path).try_acquire(Some("mine")).unwrap();
    fs::write(at("stale"), format!("pid={NOBODY}\ntimestamp=1\n")).unwrap();
    fs::write(at("notes.txt"), "hello\n").unwrap();
    fs::write(at("a.lock.7.0123456789abcdef.tmp"), "pid=7\ntimestamp=1\n").unwrap();
    fs::create_dir(at("sub")).unwrap();
    fs::write(at("empty"), "").unwrap();
    write_aged(&at("zeros"), "\0\0\0", HOUR + 10);
    write_aged(&at("cut"), "pid=4194305\n", HOUR + 10);
    fs::write(at("b.lock.queue"), "").unwrap();
    let listed = crate::list(path.parent().unwrap(), Config::default()).unwrap();
    let seen: Vec<_> =
        listed.iter().map(|lock| (lock.name.to_str().unwrap(), lock.status.stale)).collect();
    let all =
        [("a.lock", false), ("cut", true), ("empty", false), ("stale", true), ("zeros", true)];
    assert_eq!(seen, all);
}

/// A file without content may be that of a `flock(1)`. It is removed by its name alone.
#[test]
fn cleaning_a_directory_leaves_what_may_be_no_lock() {
    let (_scratch, path) = scratch();
    let at = |name: &str| path.parent().unwrap().join(name);
    for (name, content) in [
        ("empty", ""),
        ("zeros", "\0\0\0"),
        ("blank", " \n"),
        ("word", "pid"),
        ("cut", "pid=4194305\n"),
        ("cut_early", "pid="),
        ("text", "host=a\n"),
    ] {
        write_aged(&at(name), content, HOUR + 10);
    }
    let swept = crate::clean_all(path.parent().unwrap(), quick(Config::default())).unwrap();
    assert_eq!(swept.locks, 2);
    assert_eq!(files(&path), ["blank", "empty", "text", "word", "zeros"]);
    assert_eq!(open(&at("empty")).clean().unwrap().locks, 1);
}

/// What a power cut left of a reader holds nothing, and is swept when it is old.
#[cfg(unix)]
#[rstest]
#[case::young(10, true)]
#[case::old(HOUR + 10, false)]
fn what_is_left_of_a_reader_is_in_nobodys_way(#[case] age: u64, #[case] stays: bool) {
    let (_scratch, path) = scratch();
    let readers = path.with_file_name("a.lock.shared");
    fs::create_dir(&readers).unwrap();
    write_aged(&readers.join("7-0123456789abcdef"), "", age);
    open(&path).try_acquire(None).unwrap().release().unwrap();
    assert_eq!(readers.exists(), stays);
}

/// On Windows a directory stays while somebody has it open.
#[cfg(unix)]
#[test]
fn a_directory_that_was_removed_is_an_error_and_no_endless_wait() {
    let (scratch, path) = scratch();
    let semaphore = open(&path);
    drop(scratch);
    assert!(matches!(semaphore.acquire(None), Err(Error::System { .. })));
}

/// On Windows not everybody may make links.
#[cfg(unix)]
#[test]
fn symbolic_links_to_one_target_are_one_lock() {
    let (scratch, path) = scratch();
    let alias = scratch.path().join("alias");
    std::os::unix::fs::symlink("a.lock", &alias).unwrap();
    let guard = open(&alias).try_acquire(None).unwrap();
    assert!(path.is_file() && alias.is_symlink());
    assert!(matches!(open(&path).try_acquire(None), Err(Error::AlreadyLocked { .. })));
    guard.release().unwrap();
    assert!(!path.exists() && alias.is_symlink());
}

/// Waiters have time to take what is free; if they are stopped, they have had it.
#[cfg(unix)]
#[rstest]
#[case::at_once(|it: &Semaphore| it.try_acquire(None))]
#[case::no_time(|it: &Semaphore| it.request().timeout(Duration::ZERO).acquire())]
#[case::shared(|it: &Semaphore| it.request().shared().try_acquire())]
fn a_try_lets_waiters_go_first(#[case] take: fn(&Semaphore) -> Result<Guard, Error>) {
    let (_scratch, path) = scratch();
    let semaphore = open(&path);
    let ticket = semaphore.files.queue().join().unwrap();
    let begin = Instant::now();
    let held = take(&semaphore).unwrap();
    assert!(begin.elapsed() >= crate::limits::LINE_INTERVAL, "{:?}", begin.elapsed());
    held.release().unwrap();
    drop(ticket);
    assert!(!semaphore.files.queue().has_waiters());
}

/// All in one process, which lives on: nothing is left to sweep but the lock.
#[cfg(unix)]
#[test]
fn waits_that_time_out_leave_nothing() {
    let scratch = tempfile::tempdir().unwrap();
    let semaphore = Semaphore::open(scratch.path().join("a")).unwrap();
    let held = semaphore.try_acquire(None).unwrap();
    std::thread::scope(|scope| {
        for index in 0..200 {
            let request = semaphore.request().timeout(Duration::from_millis(50 + index % 7 * 20));
            scope.spawn(move || assert!(matches!(request.acquire(), Err(Error::TimedOut { .. }))));
        }
    });
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 1);
    held.release().unwrap();
}

/// The number in its name is that of this very process, which lives.
#[cfg(unix)]
#[test]
fn a_ticket_is_swept_when_nobody_holds_it_however_alive_its_maker_is() {
    let scratch = tempfile::tempdir().unwrap();
    let semaphore = Semaphore::open(scratch.path().join("a")).unwrap();
    let ticket = |random: &str| format!("a.{}.{random}.tmp", Pid::this());
    let write = |name: &str| fs::write(scratch.path().join(name), ticket("b2")).unwrap();
    write(&ticket("a1"));
    write(&ticket("c3"));
    let held = fs::File::open(scratch.path().join(ticket("c3"))).unwrap();
    assert!(crate::sys::flock_exclusively(&held));
    assert_eq!(semaphore.clean().unwrap().temporaries, 1);
    assert!(scratch.path().join(ticket("c3")).exists());
    drop(held);
    assert_eq!(semaphore.clean().unwrap().temporaries, 1);
}

#[rstest]
#[case::none(0, false)]
#[case::one(1, true)]
#[case::at_the_limit(MOST_SLOTS, true)]
#[case::one_over(MOST_SLOTS + 1, false)]
fn a_semaphore_has_so_many_slots(#[case] count: u32, #[case] good: bool) {
    assert_eq!(Slots::new(count).map(Slots::count), good.then_some(count));
}

#[test]
fn the_defaults_are_those_of_the_documents() {
    let config = Config::default();
    assert_eq!(config.stale_timeout, Some(Duration::from_secs(3600)));
    assert_eq!(config.retry_interval, Duration::from_millis(100));
    assert_eq!(config.acquire_timeout, None);
    assert_eq!((config.longest_tag, config.mode, config.slots), (10_000, 0o644, Slots::ONE));
}
