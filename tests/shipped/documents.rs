//! What the documents say of the repository is so: the lists of limits and targets are those of the sources, each
//! command is one that the programs take, and each link leads somewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use rstest::rstest;
use testbed::shipped;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The name, the value and the description of each limit in a file of limits.
fn limits(file: &str) -> Vec<String> {
    let text = shipped(file);
    let (mut limits, mut words) = (Vec::new(), Vec::new());
    for line in text.lines().take_while(|line| *line != "#[cfg(test)]") {
        if let Some(part) = line.strip_prefix("/// ") {
            words.push(part);
        } else if let Some((name, value)) =
            line.strip_prefix("pub const ").and_then(|it| it.split_once(" = "))
        {
            let (name, value) = (name.split(':').next().unwrap(), value.trim_end_matches(';'));
            let value = match value.trim_end_matches(')').split_once("Duration::from_") {
                Some((_, time)) => {
                    time.replace("millis(", "").replace("secs(", "")
                        + if time.starts_with("millis") { " ms" } else { " s" }
                }
                None => value.replace('_', ","),
            };
            limits.push(format!("- `{name}`, {value}: {}", words.join(" ")));
            words.clear();
        } else {
            words.clear();
        }
    }
    limits
}

/// Each limit of the serial service says what happens at it, and administrators find all of them in one list.
#[test]
fn the_limits_of_the_service_are_few_and_listed() {
    let limits = ["src/limits.rs", "crates/ttylock/src/limits.rs"].map(limits).concat();
    assert!(limits.len() <= 30, "{}", limits.len());
    let document = shipped("SECURITY.md");
    let (_, rest) = document.split_once("\n## Limits of lfpd\n").unwrap();
    let (list, _) = rest.split_once("\n## ").unwrap();
    let listed: Vec<String> = list
        .split("\n- ")
        .skip(1)
        .map(|it| format!("- {}", it.split_whitespace().collect::<Vec<_>>().join(" ")))
        .collect();
    assert_eq!(listed, limits);
}

/// What `cargo` writes about a crate of the workspace.
fn asked(words: &str, package: &str) -> String {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(words.split(' ')).args(["--package", package]).current_dir(root());
    let said = cargo.output().unwrap();
    assert!(said.status.success(), "{said:?}");
    String::from_utf8(said.stdout).unwrap()
}

/// A program that wants the client alone is not made to build a command line.
#[test]
fn the_client_library_brings_little() {
    let text = asked("tree --edges normal --prefix none --locked", "lfp");
    let names: BTreeSet<&str> = text.lines().filter_map(|line| line.split(' ').next()).collect();
    let expected = [
        "bitflags",
        "cfg-if",
        "cfg_aliases",
        "libc",
        "lfp",
        "linux-raw-sys",
        "memoffset",
        "nix",
        "pidlockfile",
        "rustix",
        "ttylock",
    ];
    let more: Vec<_> = names.iter().filter(|name| !expected.contains(*name)).collect();
    assert!(more.is_empty(), "{more:?} are new");
}

/// Whoever adds a library gets the library, and what its programs need only if he asks for it.
#[rstest]
fn a_library_brings_no_command_line(
    #[values("dflock", "file-semaphore", "leases", "lfp", "pidlockfile", "ttylock")] package: &str,
) {
    let text = asked("tree --edges normal --prefix none --locked", package);
    let names: BTreeSet<&str> = text.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(names.contains(package), "{text}");
    for name in ["clap", "jiff", "serde_json", "strsim", "wrapcmd"] {
        assert!(!names.contains(name), "{package} brings {name}");
    }
}

/// The packages name the feature of a program with its package. A dev-dependency of the package on itself, under its own
/// name, would take the feature for its own, and nothing would be built.
#[rstest]
fn a_package_with_its_feature_brings_the_command_line(
    #[values("dflock", "file-semaphore")] package: &str,
) {
    let words = format!("tree --edges normal --prefix none --locked --features {package}/cli");
    let text = asked(&words, package);
    assert!(text.lines().any(|line| line.starts_with("clap ")), "{text}");
}

/// `cargo deb -p PACKAGE` builds the programs, too, though the library alone is the default.
#[rstest]
fn a_debian_package_asks_for_the_features_of_its_programs(
    #[values("dflock", "file-semaphore")] package: &str,
) {
    let manifest = shipped(&format!("crates/{package}/Cargo.toml"));
    assert!(manifest.contains("\nrequired-features = [\"cli\"]\n"), "{package} has no program");
    let (_, rest) = manifest.split_once("\n[package.metadata.deb]\n").unwrap();
    let section = rest.split("\n[").next().unwrap();
    assert!(section.lines().any(|line| line == "features = [\"cli\"]"), "{section}");
}

/// The crates in the order in which CONTRIBUTING.md has them published.
fn published() -> Vec<String> {
    let text = shipped("CONTRIBUTING.md");
    let (_, rest) = text.split_once("Publish the crates in this order: ").unwrap();
    let (list, _) = rest.split_once(" (`cargo publish").unwrap();
    list.split(',').map(|name| name.trim().trim_matches('`').to_owned()).collect()
}

/// crates.io takes a crate only after those that it depends on, and gets what compiles and explains it: the tests of
/// the workspace need its other parts.
#[test]
fn the_crates_are_published_in_order_and_without_the_workspace() {
    let crates = published();
    for (place, name) in crates.iter().enumerate() {
        let tree = asked("tree --edges normal,build --prefix none --locked --all-features", name);
        let own = tree.lines().filter(|line| line.contains(&*root().to_string_lossy()));
        let own: BTreeSet<&str> = own.filter_map(|line| line.split(' ').next()).collect();
        let before: BTreeSet<&str> = crates[..=place].iter().map(String::as_str).collect();
        assert!(own.is_subset(&before), "{name} uses {own:?}");
        let list = asked("package --list --allow-dirty --offline", name);
        let files: BTreeSet<&str> = list.lines().collect();
        for needed in ["LICENSE-APACHE", "LICENSE-MIT"] {
            assert!(files.contains(needed), "{name} lacks {needed}");
        }
        assert!(files.contains("README.md") || files.contains("lock-server.md"), "{files:?}");
        let strange = |file: &&&str| {
            let parts: Vec<&str> = file.split('/').collect();
            parts.len() > 1 && !["src", "examples", "man", "etc", "xinetd.d"].contains(&parts[0])
        };
        assert_eq!(files.iter().find(strange), None, "{name}");
    }
    assert!(crates.len() > 10, "{crates:?}");
}

/// README.md and the pages of docs/, by their paths.
fn pages() -> BTreeMap<String, String> {
    let docs = fs::read_dir(root().join("docs")).unwrap();
    let names = docs.map(|entry| format!("docs/{}", entry.unwrap().file_name().to_str().unwrap()));
    let names = names.chain(["README.md".to_owned()]);
    names.map(|name| (name.clone(), shipped(&name))).collect()
}

#[test]
fn the_readme_is_short() {
    let readme = shipped("README.md");
    assert!(readme.lines().count() <= 120, "{} lines", readme.lines().count());
    let long: Vec<_> = readme.lines().filter(|line| line.chars().count() > 120).collect();
    assert!(long.is_empty(), "over 120 columns: {long:#?}");
}

/// What a heading is called in a link, as GitHub and mdBook make it.
fn anchor(heading: &str) -> String {
    let plain = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = plain.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn every_link_leads_somewhere() {
    let mut counted = 0;
    for (name, text) in pages() {
        let here = root().join(&name);
        for link in text.split("](").skip(1).map(|rest| rest.split(')').next().unwrap()) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (path, wanted) = link.split_once('#').unwrap_or((link, ""));
            let target =
                if path.is_empty() { here.clone() } else { here.parent().unwrap().join(path) };
            assert!(target.exists(), "{name}: {link} leads nowhere");
            // mdBook takes along what is in docs/ only.
            let leaves = name.starts_with("docs/") && path.starts_with("..");
            assert!(!leaves, "{name}: {link} leads out of the book");
            if !wanted.is_empty() {
                let text = fs::read_to_string(&target).unwrap();
                let headings = text.lines().filter(|line| line.starts_with('#'));
                let found = headings.map(anchor).any(|anchor| anchor == wanted);
                assert!(found, "{name}: {link}: there is no such heading");
            }
            counted += 1;
        }
    }
    assert!(counted > 30, "{counted} links");
}

#[test]
fn every_page_is_in_the_table_of_contents() {
    let pages = pages();
    let contents = &pages["docs/SUMMARY.md"];
    for name in pages.keys().filter_map(|name| name.strip_prefix("docs/")) {
        assert!(name == "SUMMARY.md" || contents.contains(&format!("]({name})")), "{name}");
    }
}

/// mdBook shows so many columns without a scroll bar.
#[test]
fn the_code_of_the_book_fits_the_page() {
    for (name, text) in pages() {
        let mut is_fenced = false;
        for line in text.lines() {
            is_fenced ^= line.starts_with("```");
            let code = if is_fenced { Some(line) } else { line.strip_prefix("    ") };
            let columns = code.map_or(0, |code| code.chars().count());
            assert!(columns <= 84 || name == "README.md", "{name}: {columns} columns: {line}");
        }
    }
}

/// What the documents have people type, `lfp` takes. The guides of the other programs are played by their tests.
#[test]
fn every_command_of_the_documents_is_one_that_lfp_takes() {
    let mut counted = 0;
    for (name, text) in pages() {
        let text = text.replace(" \\\n        ", " ").replace(" &&\n        ", " && ");
        for line in text.lines().filter_map(|line| line.strip_prefix("    ")) {
            let line = line.split_once("  #").map_or(line, |(command, _)| command);
            let ends = |word: &&str| !["&&", "||", "|", ";", ">"].contains(word);
            let words = line.trim_start_matches("sudo ").split_whitespace().take_while(ends);
            let words: Vec<&str> = words.collect();
            if words.first() == Some(&"lfp") {
                let taken = lfp::command::command().try_get_matches_from(&words);
                assert!(taken.is_ok(), "{name}: {line}: {}", taken.unwrap_err());
                counted += 1;
            }
        }
    }
    assert!(counted > 10, "{counted} commands");
}

/// Which machines the documents promise, when they are checked, what runs their programs and what packs them, is what
/// `.ci/targets` holds.
#[test]
fn the_documents_promise_the_targets_that_are_checked() {
    let script = shipped(".ci/targets");
    let table = script.split_once("\ntable='\n").unwrap().1.split_once("\n'\n").unwrap().0;
    let held = table.lines().map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [target, architecture, _, runner, promise, more]: [&str; 6] = words.try_into().unwrap();
        let run = match (promise, runner) {
            ("here" | "runs", "-") => "natively".to_owned(),
            ("runs", runner) => format!("by {runner}"),
            (_, _) => "no".to_owned(),
        };
        let package = match (promise, architecture) {
            ("here" | "runs", _) if more.contains("windows") => "no".to_owned(),
            ("here" | "runs", "-") => "tarball".to_owned(),
            ("here" | "runs", architecture) => format!("`{architecture}`"),
            (_, _) => "no".to_owned(),
        };
        let checked = if more.contains("asked") { "before a release" } else { "at each change" };
        (target.to_owned(), [checked.to_owned(), run, package])
    });
    let document = shipped("docs/platforms.md");
    let rows =
        document.split_once("<!-- .ci/targets -->\n").unwrap().1.split_once("\n\n").unwrap().0;
    let promised = rows.lines().filter(|row| row.starts_with("| `")).map(|row| {
        let cells: Vec<&str> = row.trim_matches(['|', ' ']).split(" | ").collect();
        let [target, _, checked, run, package]: [&str; 5] = cells.try_into().unwrap();
        (target.trim_matches('`').to_owned(), [checked, run, package].map(str::to_owned))
    });
    assert_eq!(promised.collect::<BTreeMap<_, _>>(), held.collect::<BTreeMap<_, _>>());
}
