//! Every outcome's words and exit code.

use std::time::Duration;

use rstest::rstest;

use std::path::PathBuf;

use super::*;
use crate::record::{Holder, ParseError, Tag};
use crate::stale::Liveness;

fn info(tag: Option<&str>) -> LockInfo {
    LockInfo::new(Holder::bare(12345), 1_735_420_800, tag.and_then(Tag::clean))
}

fn held(liveness: Liveness, stale: bool) -> HeldStatus {
    let info = Some(Ok(info(Some("ts-process"))));
    HeldStatus {
        info,
        liveness: Some(liveness),
        stale,
        age_seconds: Some(7),
        ..HeldStatus::UNREADABLE
    }
}

fn boxed() -> Option<Box<LockInfo>> {
    Some(Box::new(info(None)))
}

#[test]
fn status_is_as_the_documents_show_it() {
    let outcome = Outcome::Status(vec![SlotStatus::Held(held(Liveness::Alive, false))]);
    let text = "locked: true\npid: 12345\ntimestamp: 1735420800\ntag: ts-process\n\
                alive: true\nstale: false\nage: 7\n";
    assert_eq!(outcome.text(), text);
    let json = r#"{"locked":true,"pid":12345,"timestamp":1735420800,"tag":"ts-process","alive":true,"stale":false,"age":7}"#;
    assert_eq!(outcome.json().compact(), json);
    assert_eq!(outcome.exit_code(exit::DONE), 1);
}

#[rstest]
#[case::elsewhere(
    held(Liveness::Elsewhere, false),
    "alive: unknown\nstale: false\n",
    "\"alive\":null"
)]
#[case::dead(held(Liveness::Dead, true), "alive: false\nstale: true\n", "\"alive\":false")]
fn a_holder_is_shown_as_dead_or_unknown(
    #[case] held: HeldStatus,
    #[case] text: &str,
    #[case] json: &str,
) {
    let outcome = Outcome::Status(vec![SlotStatus::Held(held)]);
    assert!(outcome.text().contains(text), "{}", outcome.text());
    assert!(outcome.json().compact().contains(json));
}

#[test]
fn a_lock_that_does_not_parse_is_shown_as_held() {
    let info = Some(Err(ParseError::Blank));
    let held = HeldStatus { info, age_seconds: Some(3), ..HeldStatus::UNREADABLE };
    let outcome = Outcome::Status(vec![SlotStatus::Held(held)]);
    let text = "locked: true\nalive: unknown\nstale: false\nage: 3\nproblem: the file is empty\n";
    assert_eq!((outcome.text().as_str(), outcome.exit_code(exit::DONE)), (text, 1));
}

#[test]
fn an_obstacle_is_a_system_error() {
    let outcome = Outcome::Status(vec![SlotStatus::Obstacle]);
    assert_eq!(outcome.exit_code(exit::DONE), 3);
    assert!(outcome.text().starts_with("locked: true\nproblem: "));
}

#[test]
fn slots_are_counted() {
    let taken = SlotStatus::Held(held(Liveness::Alive, false));
    let outcome = Outcome::Status(vec![SlotStatus::Free, taken.clone(), SlotStatus::Free]);
    let text = "locked: false\nslots: 3\nheld: 1\nslot: 2\npid: 12345\n";
    assert!(outcome.text().starts_with(text), "{}", outcome.text());
    let json = r#"{"locked":false,"slots":3,"held":1,"holders":[{"slot":2,"pid":12345,"#;
    assert!(outcome.json().compact().starts_with(json), "{}", outcome.json().compact());
    assert_eq!(outcome.exit_code(exit::DONE), 0);
    assert_eq!(Outcome::Status(vec![taken.clone(), taken]).exit_code(exit::DONE), 1);
    assert_eq!(Outcome::Status(vec![SlotStatus::Free]).text(), "locked: false\n");
}

#[test]
fn a_listing_is_a_line_a_lock() {
    let lock =
        Listed { name: "a\n\u{9b}b".into(), status: held(Liveness::Dead, true), shared: false };
    let outcome = Outcome::Listed(vec![lock]);
    assert_eq!(outcome.text(), "a\\n\\xc2\\x9bb\t12345\tdead\tstale\t7\tts-process\n");
    let json = r#"[{"name":"a\\n\\xc2\\x9bb","pid":12345,"#;
    assert!(outcome.json().compact().starts_with(json), "{}", outcome.json().compact());
}

#[rstest]
#[case::terminal_sequence("a\u{9b}2Jb", "a 2Jb")]
#[case::new_line("a\nb", "a b")]
#[case::unicode("é部", "é部")]
fn output_moves_no_terminal(#[case] text: &str, #[case] printed: &str) {
    assert_eq!(printable(text), printed);
}

fn invalid(problem: PathProblem) -> Error {
    Error::InvalidPath { path: "p".into(), problem }
}

fn missing() -> Error {
    let path = Path::new("/nonexistent-directory-of-a-test");
    pidlockfile::Directory::open(path).map(drop).unwrap_err().into()
}

#[rstest]
#[case::already_locked(Error::AlreadyLocked { path: PathBuf::new(), holder: boxed(), left_by: None }, 1, "ALREADY_LOCKED")]
#[case::timeout(Error::TimedOut { path: PathBuf::new(), waited: Duration::ZERO, holder: None, left_by: None }, 1, "TIMEOUT")]
#[case::not_locked(Error::NotLocked { path: PathBuf::new() }, 1, "NOT_LOCKED")]
#[case::not_holder(Error::NotHolder { path: PathBuf::new(), holder: boxed() }, 1, "PERMISSION_DENIED")]
#[case::empty_path(invalid(PathProblem::Empty), 64, "INVALID_PATH")]
#[case::nul(invalid(PathProblem::Nul), 64, "PATH_TRAVERSAL")]
#[case::traversal(invalid(PathProblem::Traversal), 64, "PATH_TRAVERSAL")]
#[case::no_name(invalid(PathProblem::NoName), 64, "INVALID_PATH")]
#[case::no_directory(invalid(PathProblem::NoDirectory), 3, "INVALID_PATH")]
#[case::link_loop(invalid(PathProblem::LinkLoop), 3, "INVALID_PATH")]
#[case::foreign_link(invalid(PathProblem::ForeignLink), 3, "PERMISSION_DENIED")]
#[case::parse(Error::Parse { path: "p".into(), problem: ParseError::Blank }, 3, "PARSE_ERROR")]
#[case::obstacle(Error::Obstacle { path: "p".into() }, 3, "IO_ERROR")]
#[case::no_holder(Error::NoHolder { pid: 9 }, 64, "IO_ERROR")]
#[case::interrupted(Error::Interrupted { signal: 15 }, 143, "IO_ERROR")]
#[case::process(Error::Process { message: "m" }, 3, "IO_ERROR")]
#[case::system(missing(), 3, "IO_ERROR")]
fn failures(#[case] error: Error, #[case] code: u8, #[case] kind: &str) {
    assert_eq!(error.exit_code(), code);
    let text = lines(&error.members("m".to_owned()));
    assert!(text.starts_with(&format!("status: failed\ntype: {kind}\nmessage: m\n")), "{text}");
    let word = kind.to_ascii_lowercase();
    let json = format!(r#"{{"status":"failed","type":"{kind}","error":"{word}","message":"m""#);
    let object = Value::Object(error.json_members("m".to_owned())).compact();
    assert!(object.starts_with(&json), "{object}");
    assert_eq!(object.contains("holderPid"), text.contains("holderPid"));
}
