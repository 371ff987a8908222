//! Several keys in one request, all or none: `al`, and how it stands beside all other requests.

use crate::transcript::play;
use rstest::rstest;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use testbed::Lots;
use testbed::dflockd::{Daemon, fence};

#[rstest]
#[case::all_or_none(
    "a> al|b a| \n a< ok $t 33 $u 33 \n b> al|c b| \n b< timeout \n b> l|c|0 \n b< ok $v 33 \n
     b> l|a|0 \n b< timeout \n a> r|b|$t \n a< ok \n b> al|b a| \n b< timeout \n b> al|b d|9 \n b< ok $w 9 $x 9 \n
     a> r|a|$t \n a< error \n a> n|a|$u 50 \n a< ok 50 \n c> r|a|$u \n c< ok \n c> l|a|0 \n c< ok $y 33"
)]
#[case::one_key(
    "a> al|k|40 \n a< ok $t 40 \n b> al|k| \n b< timeout \n b> l|k|0 \n b< timeout \n a> sr|k|$t \n a< ok"
)]
#[case::as_many_as_there_may_be(
    "a> al|1 2 3 4 5 6 7 8 9 a b c d e f g|5 \n
     a< ok $a 5 $b 5 $c 5 $d 5 $e 5 $f 5 $g 5 $h 5 $i 5 $j 5 $k 5 $l 5 $m 5 $n 5 $o 5 $p 5 \n
     b> al|1 2 3 4 5 6 7 8 9 a b c d e f h| \n b< timeout \n b> l|h|0 \n b< ok $q 33"
)]
fn conversation(#[case] script: &str) {
    play(&Daemon::start(&[]), script);
}

#[rstest]
#[case::max_locks(
    &["--max-locks", "3"],
    "a> l|x|0 \n a< ok $t 33 \n b> al|a b c| \n b< error_max_locks \n b> al|a b| \n b< ok $u 33 $v 33 \n
     a> l|y|0 \n a< error_max_locks \n b> r|a|$u \n b< ok \n b> r|b|$v \n b< ok \n b> al|c d|  \n b< ok $w 33 $y 33")]
#[case::max_holds_per_connection(
    &["--max-holds-per-connection", "2"],
    "a> al|a b c| \n a< error_max_locks \n a> al|a b| \n a< ok $t 33 $u 33 \n a> l|c|0 \n a< error_max_locks \n
     b> l|c|0 \n b< ok $v 33")]
#[case::holds_stay(
    &["--auto-release-on-disconnect=false"],
    "a> al|a b|50 \n a< ok $t 50 $u 50 \n a- \n stats \"connections\":1 \n b> al|b c| \n b< timeout \n b> r|b|$u \n b< ok \n
     b> al|b c| \n b< ok $v 33 $w 33 \n b> r|a|$t \n b< ok")]
#[case::a_grace(
    &["--disconnect-grace", "60"],
    "a> al|a b| \n a< ok $t 33 $u 33 \n a- \n stats \"connections\":1 \n b> al|b c| \n b< timeout \n b> n|b|$u \n b< ok 33 \n
     b> r|b|$u \n b< ok \n b> l|a|0 \n b< timeout")]
fn conversation_with_options(#[case] options: &[&str], #[case] script: &str) {
    play(&Daemon::start(options), script);
}

const KEYS: [&str; 4] = ["a", "b", "c", "d"];
const CLIENTS: usize = 4;
const ROUNDS: usize = 40;
const SIGHTINGS: usize = 10;

/// Clients with overlapping sets, and others with one key: no key ever has two holders, and a client that watches a
/// key never sees a hold that nobody was granted, not even a part of a set.
#[test]
fn overlapping_sets() {
    let daemon = Daemon::start(&[]);
    let inside = KEYS.map(|_| AtomicUsize::new(0));
    let (over, sightings) = (AtomicBool::new(false), AtomicUsize::new(0));
    let work = |client: usize| {
        let mut talker = daemon.talk();
        let (mut granted, mut together, mut lots) = (HashSet::new(), 0, Lots(client as u64));
        // Longer where those who watch have seen little.
        let little = || sightings.load(Ordering::Relaxed) < SIGHTINGS;
        while together < ROUNDS || little() && together < 100 * ROUNDS {
            let (first, many) = (lots.index(KEYS.len()), 1 + lots.index(3));
            let places: Vec<usize> = (first..first + many).map(|it| it % KEYS.len()).collect();
            let keys: Vec<&str> = places.iter().map(|place| KEYS[*place]).collect();
            let reply = match many {
                1 => talker.ask("l", keys[0], "1 30"),
                _ => talker.ask("al", &keys.join(" "), "30"),
            };
            if reply == "timeout" {
                continue;
            }
            let tokens: Vec<&str> =
                reply.strip_prefix("ok ").expect(&reply).split(' ').step_by(2).collect();
            assert_eq!(tokens.len(), many, "{reply}");
            for (place, token) in places.iter().zip(&tokens) {
                let others = inside[*place].fetch_add(1, Ordering::SeqCst);
                assert_eq!(others, 0, "{} has two", KEYS[*place]);
                granted.insert((*place, fence(token)));
            }
            for (place, token) in places.iter().zip(tokens) {
                inside[*place].fetch_sub(1, Ordering::SeqCst);
                assert_eq!(talker.ask("r", KEYS[*place], token), "ok");
            }
            together += usize::from(many > 1);
        }
        granted
    };
    let watch = || {
        let mut talker = daemon.talk();
        let mut seen = HashSet::new();
        while !over.load(Ordering::Relaxed) {
            for (place, key) in KEYS.iter().enumerate() {
                let told = talker.ask("watch", key, "0");
                let words: Vec<&str> = told.split(' ').collect();
                if words[0] == "held" {
                    assert_eq!(words[4], "1", "{told}");
                    let is_new = seen.insert((place, words[2].parse::<u64>().unwrap()));
                    sightings.fetch_add(usize::from(is_new), Ordering::Relaxed);
                }
            }
        }
        seen
    };
    let (work, watch) = (&work, &watch);
    let (granted, seen) = std::thread::scope(|scope| {
        let watchers: Vec<_> = (0..2).map(|_| scope.spawn(watch)).collect();
        let workers: Vec<_> =
            (0..CLIENTS).map(|client| scope.spawn(move || work(client))).collect();
        let granted: Vec<_> = workers.into_iter().map(|it| it.join()).collect();
        over.store(true, Ordering::Relaxed);
        let granted = granted.into_iter().flat_map(Result::unwrap).collect::<HashSet<_>>();
        let seen = watchers.into_iter().flat_map(|it| it.join().unwrap()).collect::<HashSet<_>>();
        (granted, seen)
    });
    assert!(seen.len() >= SIGHTINGS, "little was seen");
    let strange: HashSet<u64> = seen.difference(&granted).map(|(_, fence)| *fence).collect();
    assert!(strange.is_empty(), "{strange:?}");
}
