//! The protocol documents' rows about requests and replies, as tables.

use super::*;
use crate::{Answer, Grant, Moment, Token, Ttl};
use rstest::rstest;

fn code(command: &[u8], key: &[u8], arg: &[u8]) -> u8 {
    parse([command, key, arg]).map_or_else(Fault::code, |_| 0)
}

/// 0 stands for a good request.
#[rstest]
// Commands are exact.
#[case(b"L", b"k", b"1", 3)]
#[case(b" l", b"k", b"1", 3)]
#[case(b"l ", b"k", b"1", 3)]
#[case(b"", b"k", b"1", 3)]
#[case(b"lock", b"", b"x", 3)]
#[case(b"listen", b"k", b"", 3)]
// No key is looked at.
#[case(b"ping", b"", b"", 0)]
#[case(b"ping", b"a b", b"\xff", 0)]
#[case(b"ping", b"hello", b"and more", 0)]
#[case(b"stats", b" ", b"x y z", 0)]
#[case(b"auth", b"", b"t", 0)]
#[case(b"name", b"", b"host 12 backup", 0)]
#[case(b"grace", b"", b"", 0)]
#[case(b"stats", b"long", b"", 0)]
#[case(b"value", b"", b"", 0)]
#[case(b"value", b"a b", b"10.0.0.1:80 x", 0)]
// watch: timeout [tag]
#[case(b"watch", b"", b"x", 5)]
#[case(b"watch", b"k k", b"0", 5)]
#[case(b"watch", b"k", b"", 8)]
#[case(b"watch", b"k", b"1 2 3", 8)]
#[case(b"watch", b"k", b"x", 4)]
#[case(b"watch", b"k", b"-1", 6)]
#[case(b"watch", b"k", b"9223372037", 4)]
#[case(b"watch", b"k", b"0", 0)]
#[case(b"watch", b"k", b"60 cbf29ce484222325", 0)]
#[case(b"watch", b"k", b"60 anything", 4)]
#[case(b"watch", b"k", b"60 cbf29ce48422232", 4)]
// Keys.
#[case(b"l", b"", b"1", 5)]
#[case(b"l", b"a b", b"1", 5)]
#[case(b"r", b"", b"", 5)]
// l: timeout [lease]
#[case(b"l", b"k", b"", 8)]
#[case(b"l", b"k", b"1 2 3", 8)]
#[case(b"l", b"k", b"x y z", 8)]
#[case(b"l", b"k", b"x", 4)]
#[case(b"l", b"k", b"1.5", 4)]
#[case(b"l", b"k", b"0x1", 4)]
#[case(b"l", b"k", b"1_0", 4)]
#[case(b"l", b"k", b"-", 4)]
#[case(b"l", b"k", b"--1", 4)]
#[case(b"l", b"k", b"+-1", 4)]
#[case(b"l", b"k", "\u{661}".as_bytes(), 4)]
#[case(b"l", b"k", b"9223372036854775808", 4)]
#[case(b"l", b"k", b"9223372036854775807", 4)]
#[case(b"l", b"k", b"9223372037", 4)]
#[case(b"l", b"k", b"9223372036", 0)]
#[case(b"l", b"k", b"-1", 6)]
#[case(b"l", b"k", b"-9223372036854775808", 6)]
#[case(b"l", b"k", b"-9223372036854775809", 4)]
#[case(b"l", b"k", b"-1 0", 6)]
#[case(b"l", b"k", b"1 x", 4)]
#[case(b"l", b"k", b"1 0", 9)]
#[case(b"l", b"k", b"1 -1", 9)]
#[case(b"l", b"k", b"1 9223372037", 4)]
#[case(b"l", b"k", b"1 9223372036", 0)]
#[case(b"l", b"k", b"+1 +1", 0)]
#[case(b"l", b"k", b"-0", 0)]
#[case(b"l", b"k", b"007 0009", 0)]
#[case(b"l", b"k", b" \t 1 \x0b\x0c 2  ", 0)]
#[case(b"l", b"k", "1\u{a0}2".as_bytes(), 0)]
#[case(b"l", b"k", "\u{3000}1\u{2028}2\u{85}".as_bytes(), 0)]
#[case(b"l", b"k", b"1\xa02", 4)]
// al: [lease], and one to sixteen keys, each once
#[case(b"al", b"k", b"", 0)]
#[case(b"al", b"b a \xff", b" 30 ", 0)]
#[case(b"al", b"1 2 3 4 5 6 7 8 9 a b c d e f g", b"", 0)]
#[case(b"al", b"1 2 3 4 5 6 7 8 9 a b c d e f g h", b"", 5)]
#[case(b"al", b"", b"", 5)]
#[case(b"al", b"a  b", b"", 5)]
#[case(b"al", b" a", b"", 5)]
#[case(b"al", b"a ", b"", 5)]
#[case(b"al", b"a\tb", b"", 5)]
#[case(b"al", b"a b a", b"", 5)]
#[case(b"al", b"a b", b"0", 9)]
#[case(b"al", b"a b", b"x", 4)]
#[case(b"al", b"a b", b"30 1", 8)]
// r, sr: token
#[case(b"r", b"k", b"", 7)]
#[case(b"r", b"k", b"   ", 7)]
#[case(b"sr", b"k", b"\t", 7)]
#[case(b"r", b"k", b"any thing", 0)]
// n, sn: token [lease]
#[case(b"n", b"k", b"", 8)]
#[case(b"sn", b"k", b"  ", 8)]
#[case(b"n", b"k", b"t 1 2", 8)]
#[case(b"n", b"k", b"t x", 4)]
#[case(b"n", b"k", b"t 0", 9)]
#[case(b"sn", b"k", b"t -3", 9)]
#[case(b"n", b"k", b"t", 0)]
#[case(b"sn", b"k", b" t  5 ", 0)]
// rl, re: as l and e
#[case(b"rl", b"k", b"", 8)]
#[case(b"rl", b"", b"0", 5)]
#[case(b"rl", b"k", b"0 1 1", 8)]
#[case(b"rl", b"k", b"-1", 6)]
#[case(b"rl", b"k", b"0 0", 9)]
#[case(b"re", b"k", b"x", 4)]
#[case(b"re", b"k", b"1 1", 8)]
#[case(b"stats", b"key", b"", 5)]
// e: [lease]
#[case(b"e", b"k", b"", 0)]
#[case(b"e", b"k", b"  ", 0)]
#[case(b"e", b"k", b"30", 0)]
#[case(b"e", b"k", b"30 junk", 8)]
#[case(b"e", b"k", b"x", 4)]
#[case(b"e", b"k", b"0", 9)]
// w, sw: timeout
#[case(b"w", b"k", b"", 8)]
#[case(b"sw", b"k", b" ", 8)]
#[case(b"w", b"k", b"1 2", 4)]
#[case(b"w", b"k", b"x", 4)]
#[case(b"sw", b"k", b"-1", 6)]
#[case(b"w", b"k", b"0", 0)]
// sl: timeout limit [lease]
#[case(b"sl", b"k", b"1", 8)]
#[case(b"sl", b"k", b"1 2 3 4", 8)]
#[case(b"sl", b"k", b"x 2", 4)]
#[case(b"sl", b"k", b"-1 x", 6)]
#[case(b"sl", b"k", b"1 x", 4)]
#[case(b"sl", b"k", b"1 0", 13)]
#[case(b"sl", b"k", b"1 -2 0", 13)]
#[case(b"sl", b"k", b"1 2 x", 4)]
#[case(b"sl", b"k", b"1 2 0", 9)]
#[case(b"sl", b"k", b"1 9223372036854775807", 0)]
#[case(b"sl", b"k", b"1 9223372036854775808", 4)]
#[case(b"sl", b"k", b"1 2 3", 0)]
// se: limit [lease]
#[case(b"se", b"k", b"", 8)]
#[case(b"se", b"k", b"1 2 3", 8)]
#[case(b"se", b"k", b"x", 4)]
#[case(b"se", b"k", b"0", 13)]
#[case(b"se", b"k", b"2 x", 4)]
#[case(b"se", b"k", b"2 0", 9)]
#[case(b"se", b"k", b"2 3", 0)]
fn faults(#[case] command: &[u8], #[case] key: &[u8], #[case] arg: &[u8], #[case] want: u8) {
    assert_eq!(code(command, key, arg), want);
}

#[test]
fn blanks_around_tokens_do_not_count() {
    assert_eq!(parse([b"auth", b"x y", b"  s p \t"]), Ok(Command::Auth(b"s p")));
    let token = Token::new(1, 2);
    let release = [b" ".as_slice(), &token.digits(), b" "].concat();
    let parsed = parse([b"r", b"k", &release]);
    assert!(
        matches!(parsed, Ok(Command::Lock(Request::Release { token: Some(t), .. })) if t == token)
    );
    let foreign = parse([b"r", b"k", b"not a token"]);
    assert!(matches!(foreign, Ok(Command::Lock(Request::Release { token: None, .. }))));
}

/// Status, and a token and a lease for each key.
const LONGEST_REPLY: usize = 16 + 48 * crate::MAX_KEYS;

fn reply(answer: Answer) -> String {
    told(&answer, false)
}

fn told(answer: &Answer, has_slots: bool) -> String {
    let mut out = Vec::new();
    push_answer(&mut out, answer, has_slots);
    assert!(out.len() <= LONGEST_REPLY);
    String::from_utf8(out).unwrap()
}

/// Only clients that asked for it are told.
#[test]
fn a_slot_is_the_fourth_field() {
    let (token, ttl, expires) = (Token::new(1, 2), Ttl::new(33).unwrap(), Moment::NEVER);
    let lock = Grant { token, ttl, expires, slot: None };
    let slot = Grant { slot: Some(0), ..lock };
    let greatest = Grant { slot: Some(u32::MAX), ..lock };
    let line = "00000000000000010000000000000002 33";
    for (grant, shown) in [(lock, ""), (slot, " 0"), (greatest, " 4294967295")] {
        assert_eq!(told(&Answer::Granted(grant), true), format!("ok {line}{shown}\n"));
        assert_eq!(told(&Answer::Acquired(grant), true), format!("acquired {line}{shown}\n"));
        assert_eq!(told(&Answer::Granted(grant), false), format!("ok {line}\n"));
        assert_eq!(told(&Answer::Acquired(grant), false), format!("acquired {line}\n"));
    }
}

#[test]
fn grants_have_three_fields() {
    let ttl = Ttl::new(MAX_SECONDS).unwrap();
    let (token, expires) = (Token::new(u64::MAX, 0xab), Moment::NEVER);
    let grant = Grant { token, ttl, expires, slot: None };
    let token = "ffffffffffffffff00000000000000ab";
    assert_eq!(reply(Answer::Granted(grant)), format!("ok {token} 9223372036\n"));
    let most = vec![grant; crate::MAX_KEYS];
    let want = format!("ok{}\n", format!(" {token} 9223372036").repeat(crate::MAX_KEYS));
    assert_eq!(reply(Answer::All(most.into())), want);
    assert_eq!(reply(Answer::Acquired(grant)), format!("acquired {token} 9223372036\n"));
}

const USUAL: LineCaps = LineCaps::Usual;

#[rstest]
#[case::plain(b"l\nk\n0\n", ["l", "k", "0"], 6)]
#[case::empty_lines(b"\n\n\nmore", ["", "", ""], 3)]
#[case::crlf(b"l\r\nk\r\n0\r\n", ["l", "k", "0"], 9)]
#[case::every_trailing_cr(b"l\nk\r\r\n0\n", ["l", "k", "0"], 8)]
#[case::cr_inside_stays(b"l\nk\rk\n0\n", ["l", "k\rk", "0"], 8)]
fn whole_frames_are_found_however_they_arrive(
    #[case] bytes: &[u8],
    #[case] want: [&str; 3],
    #[case] length: usize,
) {
    let want = want.map(str::as_bytes);
    assert_eq!(scan(bytes, USUAL), Scan::Frame { lines: want, used: length });
    for cut in 0..length {
        let whole = bytes[..cut].iter().filter(|&&b| b == b'\n').count();
        let lines = u8::try_from(whole).unwrap();
        assert_eq!(scan(&bytes[..cut], USUAL), Scan::Partial { lines }, "cut at {cut}");
    }
}

#[test]
fn a_long_line_is_refused_before_its_end() {
    assert_eq!(scan(&[b'y'; 256], USUAL), Scan::Partial { lines: 0 });
    assert_eq!(scan(&[b'y'; 257], USUAL), Scan::TooLong { at: 0 });
    let with_cr = [vec![b'y'; 256], b"\r".to_vec()].concat();
    assert_eq!(scan(&with_cr, USUAL), Scan::Partial { lines: 0 });
}

#[test]
fn only_the_token_line_of_auth_may_be_long_and_only_before_auth() {
    let token = vec![b't'; MAX_AUTH_LINE_BYTES];
    let frame = [b"auth\n_\n".as_slice(), &token, b"\n"].concat();
    assert!(
        matches!(scan(&frame, LineCaps::BeforeAuth(usize::MAX)), Scan::Frame { used, .. } if used == frame.len())
    );
    assert_eq!(scan(&frame, LineCaps::Usual), Scan::TooLong { at: 7 });
    let longer = [b"auth\n_\n".as_slice(), &token, b"t\n"].concat();
    assert_eq!(scan(&longer, LineCaps::BeforeAuth(usize::MAX)), Scan::TooLong { at: 7 });
    let other = [b"authx\n_\n".as_slice(), &token, b"\n"].concat();
    assert_eq!(scan(&other, LineCaps::BeforeAuth(usize::MAX)), Scan::TooLong { at: 8 });
}
