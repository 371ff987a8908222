//! Lines of any length, cut at any byte.

use crate::transcript::is_token;
use rstest::rstest;
use std::io::{Read, Write};
use testbed::dflockd::Daemon;

/// A conversation in which every cut matters: two acquires, a fault, CRLF, a release.
const REQUESTS: &[u8] = b"l\nk\n0\r\nx\n\n\nsl\r\nk2\n0 2 5\nping\n_\n_\nr\nk\nno\n";

fn expected(reply: &str, place: usize) -> bool {
    let words: Vec<&str> = reply.split(' ').collect();
    match (place, words.as_slice()) {
        (0, ["ok", token, "33"]) | (2, ["ok", token, "5"]) => is_token(token),
        (1 | 4, ["error"]) | (3, ["ok"]) => true,
        _ => false,
    }
}

/// In two pieces, and in pieces of one byte.
#[test]
fn requests_may_be_cut_at_every_byte() {
    let daemon = Daemon::start(&["--max-locks", "10000"]);
    let in_two = (0..=REQUESTS.len()).map(|cut| [&REQUESTS[..cut], &REQUESTS[cut..]].to_vec());
    for pieces in in_two.chain([REQUESTS.chunks(1).collect()]) {
        let mut talker = daemon.talk();
        for piece in &pieces {
            talker.say(piece);
            // Something else is answered in between, so the server has seen this piece.
            assert_eq!(daemon.talk().ask("ping", "_", "_"), "ok");
        }
        for place in 0..5 {
            let reply = talker.line();
            assert!(expected(&reply, place), "{pieces:?}, reply {place}: {reply:?}");
        }
        drop(talker);
        daemon.until_stats("\"connections\":1,\"locks\":[],\"semaphores\":[]");
    }
}

#[test]
fn many_requests_may_come_at_once() {
    let daemon = Daemon::start(&[]);
    let mut talker = daemon.talk();
    let count = 5000;
    let mut writer = talker.socket().get_ref().try_clone().unwrap();
    let sender = std::thread::spawn(move || writer.write_all(&b"ping\n_\n_\n".repeat(count)));
    for _ in 0..count {
        assert_eq!(talker.line(), "ok");
    }
    sender.join().unwrap().unwrap();
}

/// The answer to a longer one needs its end only, not the rest of the frame.
#[rstest]
#[case::command(0)]
#[case::key(1)]
#[case::argument(2)]
fn a_line_at_the_cap_is_served_and_one_over_it_ends_the_connection(#[case] place: usize) {
    let daemon = Daemon::start(&[]);
    for (length, end, fits) in [
        (256, "\n", true),
        (256, "\r\n", true),
        (255, "\r\r\n", true),
        (257, "\n", false),
        (256, "\r\r\n", false),
        (100_000, "\n", false),
    ] {
        let mut lines = ["ping\n".to_owned(), "_\n".to_owned(), "_\n".to_owned()];
        lines[place] = "y".repeat(length) + end;
        let mut talker = daemon.talk();
        let sent = if fits { &lines[..] } else { &lines[..=place] };
        talker.say(sent.concat().as_bytes());
        let want = if fits && place > 0 { "ok" } else { "error" };
        assert_eq!(talker.line(), want, "{length}");
        if fits {
            assert_eq!(talker.ask("ping", "_", "_"), "ok");
        } else {
            assert!(talker.is_closed());
        }
    }
    daemon.logged("code=12");
}

/// A reply is one write, so a client that reads once gets it whole.
#[test]
fn a_reply_comes_in_one_piece() {
    let daemon = Daemon::start(&[]);
    let mut talker = daemon.talk();
    for request in ["stats", "ping"] {
        talker.say(format!("{request}\n_\n_\n").as_bytes());
        let mut reply = [0; 1000];
        let count = talker.socket().get_ref().read(&mut reply).unwrap();
        assert_eq!(reply[count - 1], b'\n');
    }
}

/// What is drained is not kept.
#[test]
fn an_endless_line_needs_no_memory() {
    let daemon = Daemon::start(&[]);
    // Pages of the program itself come in as they are first used.
    assert_eq!(daemon.talk().ask("ping", "_", "_"), "ok");
    let before = testbed::status_kib(daemon.pid(), "RssAnon");
    let mut talker = daemon.talk();
    for _ in 0..200 {
        talker.say(&[b'x'; 100_000]);
    }
    assert_eq!(daemon.talk().ask("ping", "_", "_"), "ok");
    assert!(testbed::status_kib(daemon.pid(), "RssAnon") < before + 1024);
    talker.say(b"\n");
    assert_eq!(talker.line(), "error");
}

/// One inside a frame is logged, and no more answered than any other.
#[rstest]
#[case::between_frames(b"ping\n_\n_\n", 1, "client")]
#[case::inside_a_line(b"pi", 0, "code=11")]
#[case::between_lines(b"ping\n_\n", 0, "code=11")]
#[case::at_once(b"", 0, "client")]
#[case::while_draining(&[b'x'; 999], 0, "client")]
fn the_end_of_input_is_silent(#[case] bytes: &[u8], #[case] replies: usize, #[case] logged: &str) {
    let daemon = Daemon::start(&["--debug"]);
    let mut talker = daemon.talk();
    talker.say(bytes);
    talker.half_close();
    for _ in 0..replies {
        assert_eq!(talker.line(), "ok");
    }
    assert_eq!(talker.line(), "");
    daemon.logged(logged);
}

/// The deadline is per line, not per byte: a trickle is cut off.
#[test]
fn a_trickle_does_not_extend_the_read_deadline() {
    let daemon = Daemon::start(&["--read-timeout", "1"]);
    // Before the connection: the server's time begins when it accepts.
    let start = std::time::Instant::now();
    let mut talker = daemon.talk();
    let mut writer = talker.socket().get_ref().try_clone().unwrap();
    std::thread::spawn(move || {
        // Ends when the server has had enough.
        while writer.write_all(b"x").is_ok() && start.elapsed().as_secs() < 30 {
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
    });
    assert_eq!(talker.line(), "error");
    let elapsed = start.elapsed().as_millis();
    // Byte by byte, the longest line would have taken longer.
    assert!((1000..20_000).contains(&elapsed), "{elapsed}");
    assert!(talker.is_closed());
}
