//! Each rule sees what it is for: violations are planted in the tree as it was read, one at a time.

use rstest::rstest;
use rules::{Breach, House, Source, Text};

use crate::HOUSE;

fn house() -> House {
    HOUSE.clone()
}

fn file<'a>(house: &'a mut House, path: &str) -> &'a mut Source {
    let found = house.sources.iter_mut().find(|source| source.path == path);
    found.unwrap_or_else(|| panic!("there is no {path}"))
}

/// The tree with this text put behind the head of a file, and the line it begins at.
fn with(path: &str, planted: &str) -> (House, usize) {
    let mut house = house();
    let source = file(&mut house, path);
    let head = source.text.lines().take_while(|line| line.starts_with("//!")).count();
    let mut lines: Vec<&str> = source.text.lines().collect();
    lines.splice(head..head, planted.lines());
    *source = Source::new(path.to_owned(), &lines.join("\n"));
    (house, head + 1)
}

/// Breaches of the rule in this file. Without what was planted there is none (`main.rs`).
fn caught(rule: fn(&House) -> Vec<Breach>, house: &House, path: &str) -> Vec<Breach> {
    rule(house).into_iter().filter(|breach| breach.path == path).collect()
}

#[rstest]
#[case::clock("fn planted() { let _ = std::time::SystemTime::now(); }")]
#[case::clock_renamed("use std::time::Instant as Time;\nfn planted() { Time::now(); }")]
#[case::clock_read_by_method("fn planted(t: std::time::SystemTime) { let _ = t.elapsed(); }")]
#[case::a_file("fn planted() { let _ = std::fs::read(\"x\"); }")]
#[case::in_braces_renamed(
    "use std::{fs as disk, fmt::{self, Debug}};\nfn planted() { let _ = disk::read(\"x\"); }"
)]
#[case::imported_whole("use std::fs::*;\nfn planted() { let _ = read(\"x\"); }")]
#[case::within_a_function("fn planted() { use std::env::var; let _ = var(\"X\"); }")]
#[case::method_of_a_path("fn planted(p: &std::path::Path) { let _ = p.read_dir(); }")]
#[case::a_thread("fn planted() { std::thread::spawn(|| ()); }")]
#[case::printed("fn planted() { println!(\"x\"); }")]
#[case::another_crate_of_the_system("fn planted() { let _ = nix::unistd::getpid(); }")]
#[case::a_shell_of_the_same_crate("fn planted() { let _ = crate::peer::Peer::of; }")]
#[case::a_shell_of_another_crate("fn planted() { let _ = pidlockfile::process::lives; }")]
#[case::a_shell_that_a_crate_names_anew("use ttylock::{\n    Outcome,\n    Table,\n};")]
#[case::where_it_is_no_test("#[cfg(not(test))]\nfn planted() { let _ = std::fs::read(\"x\"); }")]
#[case::behind_a_test("#[cfg(test)]\nmod tests {\n    fn f() {}\n}\nuse std::fs;")]
#[case::of_the_system_s_c_library("unsafe extern \"C\" { fn getpid() -> i32; }")]
fn in_a_pure_file(#[case] planted: &str) {
    let path = "src/protocol/command.rs";
    let (house, _) = with(path, planted);
    assert_ne!(caught(rules::purity, &house, path), []);
}

#[rstest]
#[case("crates/leases/src/wire/reply.rs")]
#[case("crates/pidlockfile/src/name.rs")]
#[case("crates/file-semaphore/src/record.rs")]
#[case("crates/ttylock/src/device.rs")]
fn in_pure_files_of_other_crates(#[case] path: &str) {
    for planted in [
        "fn planted() { std::fs::read(\"x\"); }",
        "use std::env as e;\nfn planted() { e::args(); }",
    ] {
        let (house, line) = with(path, planted);
        let found = caught(rules::purity, &house, path);
        assert!(found.iter().any(|breach| breach.line >= line), "{found:?}");
    }
}

#[test]
fn test_code_may_do_anything() {
    let path = "src/protocol/command.rs";
    let planted = "#[cfg(test)]\nmod planted {\n    fn f() { let _ = std::fs::read(\"x\"); }\n}";
    let (house, _) = with(path, planted);
    assert_eq!(caught(rules::purity, &house, path), []);
}

#[rstest]
#[case::too_long(69, true)]
#[case::seventy_lines(68, false)]
fn a_function(#[case] lines: usize, #[case] is_caught: bool) {
    let path = "src/protocol/command.rs";
    let (house, _) = with(path, &format!("fn planted() {{\n{}}}", "    ();\n".repeat(lines)));
    assert_eq!(!caught(rules::sizes, &house, path).is_empty(), is_caught);
}

#[rstest]
#[case::no_head("use std::fmt;\n")]
#[case::purity_in_other_words("//! A file. Pure: as pure can be.\n")]
fn heads(#[case] text: &str) {
    let mut house = house();
    let path = "src/planted.rs";
    house.sources.push(Source::new(path.to_owned(), text));
    assert_ne!(caught(rules::heads, &house, path), []);
}

#[rstest]
#[case::a_path("fn f(pid: u32) { let _ = std::fs::read(format!(\"/proc/{pid}/cmdline\")); }", true)]
#[case::a_name("const PLANTED: &str = \"environ\";", true)]
#[case::another("fn f(pid: u32) { let _ = std::fs::read(format!(\"/proc/{pid}/comm\")); }", false)]
fn what_may_sleep_for_another_process(#[case] planted: &str, #[case] is_caught: bool) {
    let path = "crates/ttylock/src/lock/holders.rs";
    let (house, _) = with(path, planted);
    assert_eq!(!caught(rules::sleepers, &house, path).is_empty(), is_caught);
}

#[rstest]
#[case::a_struct("struct Framer;", true)]
#[case::an_alias("pub(crate) type Framer = u8;", true)]
#[case::a_type_of_its_own("struct Planted;", false)]
#[case::of_another_build("#[cfg(windows)]\n#[derive(Debug)]\nstruct Framer;", false)]
#[case::of_a_test("#[cfg(test)]\nmod tests {\n    struct Framer;\n}", false)]
fn two_types_of_one_name(#[case] planted: &str, #[case] is_caught: bool) {
    let path = "src/serve/admission.rs";
    let (house, _) = with(path, planted);
    assert_eq!(!caught(rules::twins, &house, path).is_empty(), is_caught);
}

#[rstest]
#[case::of_the_register("struct Standing;", true)]
#[case::of_the_register_and_listed("struct Waiter;", false)]
#[case::of_no_register("struct Planted;", false)]
fn a_word_of_the_register_in_another_sense(#[case] planted: &str, #[case] is_caught: bool) {
    let path = "src/serve/admission.rs";
    let (house, _) = with(path, planted);
    assert_eq!(!caught(rules::senses, &house, path).is_empty(), is_caught);
}

#[rstest]
#[case::across_modules("src/protocol/command.rs", "Framer", "src/serve/admission.rs")]
#[case::in_one_directory("src/serve/queue.rs", "Change", "src/serve/admission.rs")]
fn a_circle_is_caught(#[case] path: &str, #[case] type_: &str, #[case] back: &str) {
    let (mut house, _) = with(path, "use crate::serve::admission::planted;");
    let module = path.trim_start_matches("src/").trim_end_matches(".rs").replace('/', "::");
    let other = file(&mut house, back);
    let planted = format!("pub(crate) fn planted(_: crate::{module}::{type_}) {{}}");
    *other = Source::new(other.path.clone(), &format!("{}\n{planted}\n", other.text));
    assert_ne!(caught(rules::circles, &house, path), []);
}

#[test]
fn a_crate_that_may_not() {
    let mut house = house();
    for owner in house.crates.iter_mut().filter(|owner| owner.name == "pidlockfile") {
        owner.uses.insert("ttylock".to_owned());
    }
    assert_ne!(caught(rules::crates_use_only_what_they_may, &house, "ARCHITECTURE.md"), []);
}

#[rstest]
#[case::an_identifier("`RecordKeeperOfNothing` keeps records.")]
#[case::a_path_of_code("See `ttylock::lock::nowhere_at_all`.")]
#[case::a_file("It is in `src/serve/nowhere.rs`.")]
#[case::a_file_without_its_directory("`nowhere.rs` has it.")]
fn a_name_that_exists_nowhere_is_caught(#[case] said: &str) {
    let mut house = house();
    house.texts.push(Text { path: "PLANTED.md".to_owned(), text: said.to_owned() });
    assert_ne!(caught(rules::words, &house, "PLANTED.md"), []);
    let path = "src/protocol/command.rs";
    let source = file(&mut house, path);
    *source = Source::new(path.to_owned(), &format!("//! {said}\n{}", source.text));
    assert_ne!(caught(rules::words, &house, path), []);
}

#[rstest]
fn a_promise_without_its_test_is_caught(
    #[values("SECURITY.md", "crates/pidlockfile/README.md")] path: &str,
    #[values("| planted |", "| `planted_test` |", "| `words`, `planted_test` |")] tests: &str,
) {
    let mut house = house();
    let text = house.texts.iter_mut().find(|text| text.path == path).unwrap();
    let (before, after) = text.text.split_once("\n|---").unwrap();
    let (marks, rows) = after.split_once('\n').unwrap();
    text.text = format!("{before}\n|---{marks}\n| planted {tests}\n{rows}");
    assert_eq!(caught(rules::promises, &house, path).len(), 1);
}

#[rstest]
#[case::for_no_known_reason("#[test]\n#[ignore = \"slow\"]\nfn planted() {}", true)]
#[case::without_a_reason("#[test]\n#[ignore]\nfn planted() {}", true)]
#[case::in_one_case(
    "#[rstest]\n#[ignore = \"needs root: tests/run\"]\n#[case(1)]\n#[case(2)]\nfn planted() {}",
    true
)]
#[case::to_run_tests("    run_tests(&tests, Some(\"slow\"));", true)]
#[case::as_agreed("#[test]\n#[ignore = \"needs root: tests/run\"]\nfn planted() {}", false)]
fn a_test_that_is_left_out(#[case] planted: &str, #[case] is_caught: bool) {
    let mut house = house();
    let path = "tests/planted.rs";
    house.tests.push(Source::new(path.to_owned(), planted));
    assert_eq!(!caught(rules::needs, &house, path).is_empty(), is_caught);
}

#[rstest]
#[case::a_function_that_is_gone(
    "lib.rs",
    "WAIT_BOUNDS_MICROS, read_hex",
    "WAIT_BOUNDS_MICROS",
    true
)]
#[case::another_argument(
    "engine/scalars.rs",
    "read_hex(digits: &[u8])",
    "read_hex(digits: &str)",
    true
)]
#[case::one_more_that_is_required(
    "engine/scalars.rs",
    "fn token(&mut self) -> Token;",
    "fn token(&mut self) -> Token;\n    fn planted(&self);",
    true
)]
#[case::a_limit_on_a_trait(
    "engine/scalars.rs",
    "pub trait Mint: Send",
    "pub trait Mint: Send + Sync",
    true
)]
#[case::a_variant("engine/messages.rs", "    Later,\n", "    Later,\n    Planted,\n", true)]
#[case::what_a_variant_holds(
    "engine/messages.rs",
    "    Now(Answer),",
    "    Now(Box<Answer>),",
    true
)]
#[case::a_trait_that_is_gone(
    "engine/messages.rs",
    "#[derive(Clone, Debug, PartialEq, Eq)]\n#[expect",
    "#[derive(Clone, Debug, PartialEq)]\n#[expect",
    true
)]
#[case::the_same_name_for_another_type(
    "engine/scalars.rs",
    "pub fn read_hex",
    "use std::rc::Rc as Option;\npub fn read_hex",
    true
)]
#[case::what_only_the_crate_sees(
    "engine/scalars.rs",
    "pub fn read_hex",
    "pub(crate) fn planted() {}\npub fn read_hex",
    false
)]
#[case::the_body(
    "engine/scalars.rs",
    "pub fn read_hex(digits: &[u8]) -> Option<u64> {",
    "pub fn read_hex(digits: &[u8]) -> Option<u64> {\n    let _ = ();",
    false
)]
fn a_change_of_a_public_api(
    #[case] name: &str,
    #[case] from: &str,
    #[case] to: &str,
    #[case] is_caught: bool,
) {
    let mut house = house();
    let path = format!("crates/leases/src/{name}");
    let source = file(&mut house, &path);
    assert!(source.text.contains(from), "{path} has no {from:?}");
    *source = Source::new(path, &source.text.replacen(from, to, 1));
    assert_eq!(!rules::unlisted(&house, "leases").is_empty(), is_caught);
}

#[rstest]
#[case::hidden("```\n# fn main() {\nlet x = 1;\n# }\n```\n", true)]
#[case::hidden_in_rust("```rust,no_run\n#\nlet x = 1;\n```\n", true)]
#[case::a_comment_of_the_shell("```sh\n# as root:\nid\n```\n", false)]
#[case::an_attribute("```rust\n#[derive(Debug)]\nstruct X;\n```\n", false)]
#[case::a_heading("```rust\nfn main() {}\n```\n\n# Heading\n", false)]
fn code_in_a_document(#[case] planted: &str, #[case] is_caught: bool) {
    let mut house = house();
    house.texts.push(Text { path: "PLANTED.md".to_owned(), text: planted.to_owned() });
    assert_eq!(!caught(rules::readmes, &house, "PLANTED.md").is_empty(), is_caught);
}

#[test]
fn a_library_without_a_tested_readme() {
    let path = "crates/leases/README.md";
    let mut untested = house();
    let library = file(&mut untested, "crates/leases/src/lib.rs");
    *library = Source::new(library.path.clone(), &library.text.replace("../README.md", "../X.md"));
    assert_ne!(caught(rules::readmes, &untested, path), []);
    let mut missing = house();
    missing.texts.retain(|text| text.path != path);
    assert_ne!(caught(rules::readmes, &missing, path), []);
}

#[rstest]
#[case::in_a_signature("pub fn planted(_: rustix::process::Signal) {}", true)]
#[case::renamed("use rustix::io::Result as Done;\npub fn planted() -> Done<()> { Ok(()) }", true)]
#[case::for_the_crate_alone("pub(crate) fn planted(_: rustix::process::Signal) {}", false)]
#[case::of_the_workspace("pub fn planted(_: crate::Pid) {}", false)]
fn a_type_of_another_crate_in_a_public_api(#[case] planted: &str, #[case] is_caught: bool) {
    let mut house = house();
    let library = file(&mut house, "crates/pidlockfile/src/lib.rs");
    *library = Source::new(library.path.clone(), &format!("{}\n{planted}\n", library.text));
    let found = caught(rules::foreign, &house, "tests/api/pidlockfile.txt");
    assert_eq!(!found.is_empty(), is_caught, "{found:?}");
}
