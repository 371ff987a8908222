//! Clients that watch a key: the requests `watch` and `value`.

use crate::transcript::play;
use rstest::rstest;
use testbed::dflockd::{Daemon, Talker, fence, token_of, until};

/// Longer than any test.
const LONG: &str = "60";

/// The answer to `watch`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) tag: String,
    /// Fence, holders, name and value.
    pub(crate) held: Option<(u64, u32, String, String)>,
}

impl Seen {
    fn read(line: &str) -> Self {
        let words: Vec<&str> = line.split(' ').collect();
        let is_tag = |tag: &str| tag.len() == 16 && u64::from_str_radix(tag, 16).is_ok();
        match *words {
            ["free", tag] if is_tag(tag) => Self { tag: tag.to_owned(), held: None },
            ["held", tag, fence, millis, holders, name, value] if is_tag(tag) => {
                let (Ok(fence), Ok(_), Ok(holders)) =
                    (fence.parse(), millis.parse::<u64>(), holders.parse())
                else {
                    panic!("{line}")
                };
                let held = Some((fence, holders, name.to_owned(), value.to_owned()));
                Self { tag: tag.to_owned(), held }
            }
            _ => panic!("{line:?}"),
        }
    }

    pub(crate) fn value(&self) -> &str {
        self.held.as_ref().map_or("free", |(.., value)| value)
    }
}

pub(crate) trait Watch {
    fn watch(&mut self, arg: &str);
    fn seen(&mut self) -> Seen;
    /// What there is now.
    fn look(&mut self, key: &str) -> Seen;
    fn value(&mut self, value: &str);
}

impl Watch for Talker {
    fn watch(&mut self, arg: &str) {
        self.say(format!("watch\nk\n{arg}\n").as_bytes());
    }

    fn seen(&mut self) -> Seen {
        Seen::read(&self.line())
    }

    fn look(&mut self, key: &str) -> Seen {
        Seen::read(&self.ask("watch", key, "0"))
    }

    fn value(&mut self, value: &str) {
        assert_eq!(self.ask("value", "_", value), "ok");
    }
}

fn release(talker: &mut Talker, key: &str, token: &str) {
    assert_eq!(talker.ask("r", key, token), "ok");
}

#[test]
fn a_watcher_sees_each_leader_with_its_name_and_value() {
    let daemon = Daemon::start(&[]);
    let (mut watcher, mut one, mut two) = (daemon.talk(), daemon.talk(), daemon.talk());
    let free = watcher.look("k");
    assert_eq!(free.held, None);
    watcher.watch(&format!("{LONG} {}", free.tag));
    assert_eq!(one.ask("name", "_", "al@db1[7] job"), "ok");
    one.value("10.0.0.1:8080");
    two.value("10.0.0.2:8080");
    let first = one.take("k", "0");
    let seen = watcher.seen();
    let name = "al@db1[7]%20job".to_owned();
    assert_eq!(seen.held, Some((fence(&first), 1, name, "10.0.0.1:8080".to_owned())));
    // A queue is no change; the next leader is, once it leads.
    two.say(b"l\nk\n60\n");
    daemon.until_stats("\"waiters\":1");
    watcher.watch(&format!("{LONG} {}", seen.tag));
    release(&mut one, "k", &first);
    let second = two.line();
    let mut seen = watcher.seen();
    if seen.held.is_none() {
        // Between the two there may be a moment.
        watcher.watch(&format!("{LONG} {}", seen.tag));
        seen = watcher.seen();
    }
    let second = token_of(&second).unwrap();
    assert_eq!(seen.held, Some((fence(second), 1, "-".to_owned(), "10.0.0.2:8080".to_owned())));
    watcher.watch(&format!("{LONG} {}", seen.tag));
    drop(two);
    assert_eq!(watcher.seen(), free);
}

/// A new watcher says that it has seen nothing, and gets what there is; so does one that comes again after changes.
#[rstest]
#[case::nothing_seen("60", "10.0.0.1:80")]
#[case::another_tag("60 0123456789abcdef", "10.0.0.1:80")]
#[case::only_looks("0", "10.0.0.1:80")]
fn a_new_watcher_gets_the_present_state_at_once(#[case] arg: &str, #[case] value: &str) {
    let daemon = Daemon::start(&[]);
    let (mut watcher, mut holder) = (daemon.talk(), daemon.talk());
    holder.value(value);
    holder.take("k", "0");
    watcher.watch(arg);
    assert_eq!(watcher.seen().value(), value);
}

#[test]
fn the_same_comes_again_when_the_time_is_over() {
    let daemon = Daemon::start(&[]);
    let (mut watcher, mut holder) = (daemon.talk(), daemon.talk());
    holder.take("k", "0");
    let seen = watcher.look("k");
    for _ in 0..2 {
        watcher.watch(&format!("1 {}", seen.tag));
        assert_eq!(watcher.seen(), seen);
    }
    assert_eq!(watcher.ask("ping", "_", "_"), "ok");
}

/// The value stays with the hold: through the end of its connection, and renewals by others.
#[test]
fn a_value_goes_with_its_hold() {
    let daemon = Daemon::start(&["--disconnect-grace", "60"]);
    let (mut watcher, mut one, mut two) = (daemon.talk(), daemon.talk(), daemon.talk());
    one.value("first");
    let token = one.take("k", "0");
    assert_eq!(watcher.look("k").value(), "first");
    drop(one);
    daemon.until_stats("\"connections\":3");
    two.value("second");
    assert_eq!(two.ask("n", "k", &token), "ok 33");
    assert_eq!(watcher.look("k").value(), "first");
    release(&mut two, "k", &token);
    two.take("k", "0");
    until("the next hold has it", || watcher.look("k").value() == "second");
}

#[test]
fn watchers_of_a_shared_lock_see_its_latest_reader() {
    let daemon = Daemon::start(&[]);
    let (mut watcher, mut one, mut two) = (daemon.talk(), daemon.talk(), daemon.talk());
    one.value("one");
    two.value("two");
    let (first, second) = (one.token("rl", "k", "0"), two.token("rl", "k", "0"));
    let told = |talker: &mut Talker| talker.look("k").held.map(|(f, n, _, v)| (f, n, v));
    // What another connection did comes to a watcher soon.
    until("two readers", || told(&mut watcher) == Some((fence(&second), 2, "two".to_owned())));
    release(&mut two, "k", &second);
    until("one reader", || told(&mut watcher) == Some((fence(&first), 1, "one".to_owned())));
}

/// Whatever its bytes are.
#[test]
fn a_value_may_be_anything() {
    let script = "a> value|_|x y \n a< ok \n a> value|| \n a< ok \n a> value|_|\\xff \n a< ok";
    play(&Daemon::start(&[]), script);
}

#[test]
fn a_request_sent_behind_a_watch_is_served_after_it() {
    let daemon = Daemon::start(&[]);
    let (mut watcher, mut holder) = (daemon.talk(), daemon.talk());
    let free = watcher.look("k");
    watcher.say(format!("watch\nk\n60 {}\nping\n_\n_\n", free.tag).as_bytes());
    holder.take("k", "0");
    assert!(watcher.seen().held.is_some());
    assert_eq!(watcher.line(), "ok");
}

#[test]
fn watchers_are_bounded() {
    let daemon = Daemon::start(&["--max-watchers", "2"]);
    let mut all: Vec<Talker> = (0..3).map(|_| daemon.talk()).collect();
    let free = all[0].look("k");
    for watcher in &mut all {
        watcher.watch(&format!("{LONG} {}", free.tag));
    }
    // One of the three, which are served in any order, finds no room.
    let mut third = daemon.talk();
    until("two watch", || third.ask("watch", "other", "0") == "error_max_waiters");
    assert_eq!(third.ask("ping", "_", "_"), "ok");
    drop(all);
    until("they left", || third.ask("watch", "other", "0").starts_with("free "));
}

/// It gets one line for its one request, however much happens meanwhile.
#[test]
fn a_slow_watcher_collects_nothing() {
    let daemon = Daemon::start(&[]);
    let (mut watcher, mut holder) = (daemon.talk(), daemon.talk());
    let free = watcher.look("k");
    watcher.watch(&format!("{LONG} {}", free.tag));
    for _ in 0..50 {
        let token = holder.take("k", "0");
        release(&mut holder, "k", &token);
    }
    watcher.seen();
    assert_eq!(watcher.ask("ping", "_", "_"), "ok");
    let now = holder.take("k", "0");
    until("the last of all", || watcher.look("k").held.is_some_and(|held| held.0 == fence(&now)));
}

/// A secret for some keys shows no others.
#[test]
fn a_watcher_sees_the_keys_of_its_secret() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "jobs/ secret\n").unwrap();
    let daemon = Daemon::start(&["--auth-prefix-file", file.path().to_str().unwrap()]);
    let mut watcher = daemon.talk();
    assert_eq!(watcher.ask("auth", "_", "secret"), "ok");
    assert_eq!(watcher.ask("watch", "other", "0"), "error_auth");
    assert_eq!(watcher.look("jobs/1").held, None);
}
