//! The rules of the file format, one case per rule and error of the two specifications.

use proptest::prelude::*;
use rstest::rstest;

use super::*;

const FULL: &str = "pid=12345\ntimestamp=1703520000\ntag=deploy-v1.2.3\nstart=5567\n\
                    boot=0f2b6e5e-7a43-4f0c-9d4e-1d7b1b1d1a11\npidns=4026531836\nhost=build-7\n";

fn pid_and_time(text: &str) -> Result<(u64, u64), ParseError> {
    LockInfo::parse(text.as_bytes()).map(|info| (info.pid(), info.timestamp()))
}

#[test]
fn every_key_is_read_and_written_back() {
    let info = LockInfo::parse(FULL.as_bytes()).unwrap();
    assert_eq!((info.pid(), info.timestamp()), (12345, 1_703_520_000));
    assert_eq!(info.tag(), Some("deploy-v1.2.3"));
    assert_eq!(info.holder().start(), Some(5567));
    assert_eq!(info.holder().boot(), Some("0f2b6e5e-7a43-4f0c-9d4e-1d7b1b1d1a11"));
    assert_eq!(info.holder().pidns(), Some(4_026_531_836));
    assert_eq!(info.holder().host(), Some("build-7"));
    assert_eq!(info.to_text(), FULL);
}

#[rstest]
#[case::lf("pid=1\ntimestamp=2\n")]
#[case::crlf("pid=1\r\ntimestamp=2\r\n")]
#[case::mixed("pid=1\r\ntimestamp=2\n")]
#[case::no_end_of_line("pid=1\ntimestamp=2")]
#[case::empty_lines("\n\npid=1\n\n\ntimestamp=2\n\n")]
#[case::blanks_around_key_and_value(" pid = 1 \n\ttimestamp\t=\t2\t\n")]
#[case::unknown_keys("pid=1\nversion=9\ntimestamp=2\nsession=abc\n")]
#[case::lines_without_an_equals_sign("# a comment\npid=1\nnonsense\ntimestamp=2\n")]
#[case::other_order("timestamp=2\npid=1\n")]
#[case::last_of_a_repeated_key("pid=7\ntimestamp=8\npid=1\ntimestamp=2\n")]
#[case::last_of_a_repeated_key_mends("pid=x\ntimestamp=2\npid=1\n")]
#[case::leading_zeros("pid=0001\ntimestamp=02\n")]
#[case::key_of_other_case_is_unknown("PID=9\npid=1\nTimestamp=9\ntimestamp=2\n")]
fn well_formed_records_are_parsed(#[case] text: &str) {
    assert_eq!(pid_and_time(text), Ok((1, 2)));
}

#[rstest]
#[case::empty("", ParseError::Blank)]
#[case::blank(" \n\t\r\n ", ParseError::Blank)]
#[case::pid_missing("timestamp=2\n", ParseError::PidMissing)]
#[case::timestamp_missing("pid=1\n", ParseError::TimestampMissing)]
#[case::pid_empty("pid=\ntimestamp=2\n", ParseError::PidNotANumber)]
#[case::pid_word("pid=abc\ntimestamp=2\n", ParseError::PidNotANumber)]
#[case::pid_trailing("pid=12abc\ntimestamp=2\n", ParseError::PidNotANumber)]
#[case::pid_plus("pid=+1\ntimestamp=2\n", ParseError::PidNotANumber)]
#[case::pid_minus("pid=-1\ntimestamp=2\n", ParseError::PidNotANumber)]
#[case::pid_point("pid=1.0\ntimestamp=2\n", ParseError::PidNotANumber)]
#[case::pid_hex("pid=0x10\ntimestamp=2\n", ParseError::PidNotANumber)]
#[case::pid_blank_inside("pid=1 2\ntimestamp=2\n", ParseError::PidNotANumber)]
#[case::pid_other_digits("pid=\u{0663}\ntimestamp=2\n", ParseError::PidNotANumber)]
#[case::second_equals_sign("pid=1=1\ntimestamp=2\n", ParseError::PidNotANumber)]
#[case::timestamp_word("pid=1\ntimestamp=soon\n", ParseError::TimestampNotANumber)]
#[case::timestamp_fraction("pid=1\ntimestamp=2.5\n", ParseError::TimestampNotANumber)]
#[case::timestamp_minus("pid=1\ntimestamp=-2\n", ParseError::TimestampNotANumber)]
#[case::last_of_a_repeated_key_spoils("pid=1\npid=x\ntimestamp=2\n", ParseError::PidNotANumber)]
#[case::no_key_at_all("just some text\n", ParseError::PidMissing)]
#[case::lone_cr_is_no_end_of_line("pid=1\rtimestamp=2\n", ParseError::PidNotANumber)]
#[case::nul_bytes("\0\0\0\0", ParseError::PidMissing)]
fn malformed_records_are_refused(#[case] text: &str, #[case] why: ParseError) {
    assert_eq!(pid_and_time(text), Err(why));
}

#[rstest]
#[case::latin_1(b"pid=1\ntimestamp=2\ntag=caf\xe9\n")]
#[case::garbage(&[0xff, 0xfe, 0x00, 0x80])]
#[case::cut_character(b"pid=1\ntimestamp=2\ntag=\xe2\x82")]
fn refuses_bytes_that_are_not_utf_8(#[case] bytes: &[u8]) {
    assert_eq!(LockInfo::parse(bytes), Err(ParseError::NotUtf8));
}

#[rstest]
#[case::one_below(LONGEST_FILE - 1, true)]
#[case::at_the_limit(LONGEST_FILE, true)]
#[case::one_over(LONGEST_FILE + 1, false)]
fn reads_at_most_64_kib(#[case] size: usize, #[case] good: bool) {
    let mut text = String::from("pid=1\ntimestamp=2\n#");
    text.extend(std::iter::repeat_n('x', size - text.len()));
    assert_eq!(pid_and_time(&text).is_ok(), good);
}

#[rstest]
#[case::largest("18446744073709551615", Some(u64::MAX))]
#[case::one_more("18446744073709551616", None)]
#[case::absurd("99999999999999999999999999999999999999", None)]
fn a_number_beyond_64_bits_is_no_number(#[case] digits: &str, #[case] number: Option<u64>) {
    let pid = number.map(|pid| (pid, 2)).ok_or(ParseError::PidNotANumber);
    assert_eq!(pid_and_time(&format!("pid={digits}\ntimestamp=2")), pid);
    let time = number.map(|time| (2, time)).ok_or(ParseError::TimestampNotANumber);
    assert_eq!(pid_and_time(&format!("pid=2\ntimestamp={digits}")), time);
    let started = LockInfo::parse(format!("pid=1\ntimestamp=2\nstart={digits}\n").as_bytes());
    assert_eq!(started.unwrap().holder().start(), number);
}

const NOTHING: Option<Fragment> = Some(Fragment { pid: None, has_key: false });
const NAMELESS: Option<Fragment> = Some(Fragment { pid: None, has_key: true });

fn naming(pid: u64) -> Option<Fragment> {
    Some(Fragment { pid: Some(pid), has_key: true })
}

/// What a writer leaves that was interrupted, and what is no lock at all.
#[rstest]
#[case::empty("", NOTHING)]
#[case::blank(" \n\t\r\n ", NOTHING)]
#[case::nuls("\0\0\0\0", NOTHING)]
#[case::blank_and_nuls("\n\0\0", NOTHING)]
#[case::half_a_key("pi", NOTHING)]
#[case::a_key_without_its_equals_sign("timestamp", NOTHING)]
#[case::no_value("pid=", NAMELESS)]
#[case::a_number_that_may_be_cut("pid=12", NAMELESS)]
#[case::a_whole_line("pid=12\n", naming(12))]
#[case::a_whole_line_of_windows("pid=12\r\n", naming(12))]
#[case::blanks(" pid = 12 \n time", naming(12))]
#[case::and_half_a_key("pid=12\ntim", naming(12))]
#[case::and_no_value("pid=12\ntimestamp=", naming(12))]
#[case::other_order("timestamp=17\npi", NAMELESS)]
#[case::without_the_time("pid=12\ntag=x\nhos", naming(12))]
#[case::nuls_behind("pid=12\ntimestamp=17\0\0\0", naming(12))]
#[case::the_last_number_counts("pid=12\npid=13\n", naming(13))]
#[case::no_number("pid=abc\n", None)]
#[case::no_number_to_be("pid=abc", None)]
#[case::no_time("pid=12\ntimestamp=soon\n", None)]
#[case::too_large("pid=99999999999999999999\n", None)]
#[case::a_number("5", None)]
#[case::uucp("      1234\n", None)]
#[case::json("{\"pid\":5}", None)]
#[case::a_text("myhost.example\n", None)]
#[case::a_word_that_is_another_key("host", None)]
#[case::a_line_with_another_key("host=a\n", None)]
#[case::another_key_first("tag=a\npid=12\n", None)]
#[case::an_unknown_key("pid=12\nversion=1\n", None)]
#[case::nuls_before("\0\0pid=12\n", None)]
fn a_fragment_is_what_an_interrupted_write_leaves(
    #[case] text: &str,
    #[case] fragment: Option<Fragment>,
) {
    assert!(LockInfo::parse(text.as_bytes()).is_err());
    assert_eq!(Fragment::of(text.as_bytes()), fragment);
}

#[rstest]
#[case::ours(FULL)]
#[case::crlf("pid=12345\r\ntimestamp=1703520000\r\ntag=caf\u{e9}\r\nstart=1\r\n")]
fn a_lock_that_is_cut_anywhere_is_a_lock_or_a_fragment(#[case] text: &str) {
    for at in 0..text.len() {
        for nuls in ["", "\0\0\0"] {
            let cut = [&text.as_bytes()[..at], nuls.as_bytes()].concat();
            let known = LockInfo::parse(&cut).is_ok() || Fragment::of(&cut).is_some();
            assert!(known, "{:?}", String::from_utf8_lossy(&cut));
        }
    }
}

#[rstest]
#[case::no_tag("", None)]
#[case::empty("tag=\n", None)]
#[case::blank("tag=   \n", None)]
#[case::plain("tag=npm build\n", Some("npm build"))]
#[case::split_at_the_first_equals("tag=a=b=c\n", Some("a=b=c"))]
#[case::unicode("tag=déploiement 部署\n", Some("déploiement 部署"))]
#[case::control_characters("tag=a\x1b[2Jb\x7fc\n", Some("a [2Jb c"))]
fn reads_a_tag(#[case] line: &str, #[case] tag: Option<&str>) {
    let info = LockInfo::parse(format!("pid=1\ntimestamp=2\n{line}").as_bytes()).unwrap();
    assert_eq!(info.tag(), tag);
}

#[rstest]
#[case::start("start=x")]
#[case::start_minus("start=-4")]
#[case::boot("boot=")]
#[case::pidns("pidns=12ab")]
#[case::host("host= \t")]
fn an_optional_key_that_makes_no_sense_counts_as_absent(#[case] line: &str) {
    let info = LockInfo::parse(format!("pid=1\ntimestamp=2\n{line}\n").as_bytes()).unwrap();
    assert_eq!(info.holder(), &Holder::bare(1));
}

#[rstest]
#[case::newline("a\npid=1", "a pid=1")]
#[case::every_control_character("\u{1}a\0b\tc\rd\x1be\x7ff\x1fg", "a b c d e f g")]
#[case::blanks_around("  a  ", "a")]
#[case::c1_controls_stay("a\u{85}b", "a\u{85}b")]
fn cleans_a_tag(#[case] text: &str, #[case] clean: &str) {
    assert_eq!(Tag::clean(text).unwrap().as_str(), clean);
}

#[rstest]
#[case::one_below(LONGEST_TAG - 1, LONGEST_TAG - 1)]
#[case::at_the_limit(LONGEST_TAG, LONGEST_TAG)]
#[case::one_over(LONGEST_TAG + 1, LONGEST_TAG)]
fn cuts_a_tag_at_10_000_characters(#[case] length: usize, #[case] kept: usize) {
    let tag = Tag::clean(&"ß".repeat(length)).unwrap();
    assert_eq!(tag.as_str().chars().count(), kept);
}

#[test]
fn the_longest_lock_we_write_is_one_we_read() {
    let mut holder = Holder::bare(u64::MAX);
    holder.start = Some(u64::MAX);
    holder.pidns = Some(u64::MAX);
    holder.boot = one_line(&"\u{10ffff}".repeat(1000), LONGEST_WORD);
    holder.host = holder.boot.clone();
    let info = LockInfo::new(holder, u64::MAX, Tag::clean(&"\u{10ffff}".repeat(20_000)));
    assert_eq!(LockInfo::parse(info.to_text().as_bytes()), Ok(info));
}

#[rstest]
#[case::same_number(Holder::bare(5), Holder::bare(5), true)]
#[case::other_number(Holder::bare(5), Holder::bare(6), false)]
#[case::one_knows_more(exact(5, 10), Holder::bare(5), true)]
#[case::same_start(exact(5, 10), exact(5, 10), true)]
#[case::other_start(exact(5, 10), exact(5, 11), false)]
fn the_same_process(#[case] one: Holder, #[case] other: Holder, #[case] same: bool) {
    assert_eq!(one.is_same_process(&other), same);
    assert_eq!(other.is_same_process(&one), same);
}

fn exact(pid: u64, start: u64) -> Holder {
    Holder { start: Some(start), ..Holder::bare(pid) }
}

proptest! {
    #[test]
    fn any_bytes_parse_or_fail_and_what_parses_survives_writing(
        bytes in proptest::collection::vec(any::<u8>(), 0..400),
    ) {
        if let Ok(info) = LockInfo::parse(&bytes) {
            prop_assert_eq!(LockInfo::parse(info.to_text().as_bytes()), Ok(info));
        }
    }

    #[test]
    fn any_keys_in_any_shape_survive_writing(
        lines in proptest::collection::vec(
            ("(pid|timestamp|tag|start|boot|pidns|host|x)", "[ -~\t\r\u{85}\u{a0}é]{0,12}|[0-9]{1,25}"),
            0..12,
        ),
    ) {
        let text: String = lines.iter().map(|(k, v)| format!("{k}={v}\n")).collect();
        if let Ok(info) = LockInfo::parse(text.as_bytes()) {
            prop_assert_eq!(LockInfo::parse(info.to_text().as_bytes()), Ok(info));
        }
    }

    #[test]
    fn no_tag_can_add_a_line(text in any::<String>()) {
        let info = LockInfo::new(Holder::bare(1), 2, Tag::clean(&text));
        let lines = info.to_text().matches('\n').count();
        prop_assert_eq!(lines, 2 + usize::from(info.tag().is_some()));
        prop_assert_eq!(LockInfo::parse(info.to_text().as_bytes()), Ok(info));
    }
}
