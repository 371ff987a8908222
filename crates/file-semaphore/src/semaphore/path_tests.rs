//! Rules for paths: what is refused, and where links lead (not on Windows, where not everybody may make them).

use std::ffi::OsString;
use std::fs;
#[cfg(unix)]
use std::os::unix::fs::{PermissionsExt, symlink};

use rstest::rstest;

use super::*;

#[rstest]
#[case::plain("/run/lock/a", Ok(()))]
#[case::relative("a.lock", Ok(()))]
#[case::one_dot("./a.b", Ok(()))]
#[case::empty("", Err(PathProblem::Empty))]
#[case::blank(" \t", Err(PathProblem::Empty))]
#[case::nul("/tmp/a\0b", Err(PathProblem::Nul))]
#[case::upwards("../a", Err(PathProblem::Traversal))]
#[case::upwards_inside("/tmp/../etc/a", Err(PathProblem::Traversal))]
#[case::upwards_last("/tmp/..", Err(PathProblem::Traversal))]
#[case::anywhere("/tmp/a..b", Err(PathProblem::Traversal))]
fn checks_a_path(#[case] path: &str, #[case] verdict: Result<(), PathProblem>) {
    assert_eq!(check(Path::new(path)), verdict);
}

fn problem(path: &Path) -> Option<PathProblem> {
    match resolve(path) {
        Err(Error::InvalidPath { problem, .. }) => Some(problem),
        _ => None,
    }
}

#[rstest]
#[case::root("/")]
#[case::slash_at_the_end("a/")]
#[case::dot(".")]
#[case::dot_at_the_end("a/.")]
fn refuses_what_names_no_file(#[case] path: &str) {
    assert_eq!(problem(Path::new(path)), Some(PathProblem::NoName));
}

#[cfg(unix)]
fn no_text() -> OsString {
    std::os::unix::ffi::OsStringExt::from_vec(b"caf\xe9".to_vec())
}

/// Half of a pair of UTF-16.
#[cfg(windows)]
fn no_text() -> OsString {
    std::os::windows::ffi::OsStringExt::from_wide(&[0x63, 0xd800])
}

#[test]
fn refuses_a_name_that_is_too_long() {
    let scratch = tempfile::tempdir().unwrap();
    let long = scratch.path().join("x".repeat(256));
    assert_eq!(problem(&long), Some(PathProblem::TooLong));
    let no_text = problem(&scratch.path().join(no_text()));
    assert_eq!(no_text, cfg!(windows).then_some(PathProblem::NoName));
}

#[test]
fn refuses_a_missing_parent_directory() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("missing/a");
    assert_eq!(problem(&path), Some(PathProblem::NoDirectory));
    fs::write(scratch.path().join("file"), "").unwrap();
    assert_eq!(problem(&scratch.path().join("file/a")), Some(PathProblem::NoDirectory));
}

#[test]
fn a_relative_name_is_in_the_current_directory() {
    let place = resolve(Path::new("a.lock")).unwrap();
    assert_eq!(place.directory, Path::new("."));
    assert_eq!(place.name.as_str(), "a.lock");
}

#[cfg(unix)]
#[test]
fn follows_links_also_dangling_ones_and_chains() {
    let scratch = tempfile::tempdir().unwrap();
    let at = |name: &str| scratch.path().join(name);
    fs::create_dir(at("deep")).unwrap();
    symlink("deep/target", at("dangling")).unwrap();
    symlink(at("dangling"), at("chain")).unwrap();
    symlink("../real", at("deep/up")).unwrap();
    fs::write(at("real"), "").unwrap();

    let dangling = resolve(&at("dangling")).unwrap();
    assert_eq!((dangling.directory, dangling.name.as_str()), (at("deep"), "target"));
    let chain = resolve(&at("chain")).unwrap();
    assert_eq!((chain.directory, chain.name.as_str()), (at("deep"), "target"));
    let up = resolve(&at("deep/up")).unwrap();
    assert_eq!((up.directory, up.name.as_str()), (at("deep/.."), "real"));
}

#[cfg(unix)]
#[test]
fn refuses_links_that_lead_nowhere() {
    let scratch = tempfile::tempdir().unwrap();
    let at = |name: &str| scratch.path().join(name);
    symlink("b", at("a")).unwrap();
    symlink("a", at("b")).unwrap();
    symlink("missing/x", at("lost")).unwrap();
    assert_eq!(problem(&at("a")), Some(PathProblem::LinkLoop));
    assert_eq!(problem(&at("lost")), Some(PathProblem::NoDirectory));
}

#[cfg(unix)]
#[rstest]
#[case::open_to_all_and_foreign(0o1777, 12345, false)]
#[case::open_to_all_and_ours(0o1777, 0, true)]
#[case::not_sticky(0o777, 12345, true)]
#[case::private(0o755, 12345, true)]
#[ignore = "needs root: tests/run"]
fn follows_no_strangers_link_in_a_sticky_directory(
    #[case] mode: u32,
    #[case] owner: u32,
    #[case] follows: bool,
) {
    let scratch = tempfile::tempdir().unwrap();
    let open = scratch.path().join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(mode)).unwrap();
    symlink("/dev/null", open.join("planted")).unwrap();
    std::os::unix::fs::lchown(open.join("planted"), Some(owner), None)
        .expect("this test gives a link away: run it as root");
    assert_eq!(problem(&open.join("planted")), (!follows).then_some(PathProblem::ForeignLink));
}
