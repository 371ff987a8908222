//! What the documents say of the repository is so: each test that SECURITY.md names exists, each file
//! that README and docs/ tell people to use is there, and each link leads somewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every Rust source of the workspace, as one text.
fn sources() -> String {
    let mut text = String::new();
    let mut rest: Vec<PathBuf> = ["src", "tests", "crates"].map(|dir| root().join(dir)).into();
    while let Some(path) = rest.pop() {
        if path.is_dir() {
            rest.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text += &fs::read_to_string(path).unwrap();
        }
    }
    text
}

/// The words in backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

#[test]
fn every_line_of_the_threat_table_has_its_test() {
    let sources = sources();
    let document = fs::read_to_string(root().join("SECURITY.md")).unwrap();
    let is_row = |line: &&str| line.starts_with("| ") && !line.starts_with("| threat |");
    let lines = document.lines().filter(is_row);
    let mut counted = 0;
    for line in lines {
        let tests = line.trim_end_matches(" |").rsplit(" | ").next().unwrap();
        let names: Vec<_> = quoted(tests).collect();
        assert!(!names.is_empty(), "no test is named: {line}");
        for name in names {
            let found = sources.contains(&format!("fn {name}("))
                || sources.contains(&format!("fn {name}<"));
            assert!(found, "{name} is not there: {line}");
            counted += 1;
        }
    }
    assert!(counted > 40, "{counted} tests are named");
}

/// A program that wants the client alone is not made to build a command line.
#[test]
fn the_client_library_brings_little() {
    let words = "tree --package lfp --edges normal --no-default-features --prefix none --locked";
    let tree = Command::new(env!("CARGO")).args(words.split(' ')).current_dir(root()).output();
    let tree = tree.unwrap();
    assert!(tree.status.success(), "{tree:?}");
    let text = String::from_utf8(tree.stdout).unwrap();
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

/// README.md and the pages of docs/, by their paths.
fn pages() -> BTreeMap<String, String> {
    let docs = fs::read_dir(root().join("docs")).unwrap();
    let names = docs.map(|entry| format!("docs/{}", entry.unwrap().file_name().to_str().unwrap()));
    let names = names.chain(["README.md".to_owned()]);
    names.map(|name| (name.clone(), fs::read_to_string(root().join(name)).unwrap())).collect()
}

#[test]
fn the_readme_is_short() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
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

/// What shows that a command of the documents works.
enum Shown {
    /// This test plays it, or the same with a stand-in for a program or a path.
    By(&'static str),
    /// Each run of CI does it.
    Always,
    /// Nothing can, for this reason.
    Not(&'static str),
}

const SYSTEM: &str = "changes the system of whoever runs the tests; what it starts is tested apart";

const COMMANDS: &[(&str, Shown)] = &[
    ("cargo build --release", Shown::By("by_hand_all_is_found_below_the_prefix")),
    ("sudo packaging/install", Shown::By("by_hand_all_is_found_below_the_prefix")),
    ("sudo packaging/install file-semaphore", Shown::By("by_hand_all_is_found_below_the_prefix")),
    ("sudo packaging/install dflock", Shown::By("by_hand_all_is_found_below_the_prefix")),
    ("sudo packaging/install dflockd", Shown::By("by_hand_all_is_found_below_the_prefix")),
    ("sudo packaging/install lfp-preload", Shown::By("by_hand_all_is_found_below_the_prefix")),
    ("cargo build --release -p lfp-preload", Shown::Always),
    ("cargo rustc --release -p lfpd --bin lfpd -- -C target-feature=+crt-static", Shown::Always),
    (
        "cargo rustc --release -p file-semaphore --features cli --bin sema -- -C target-feature=+crt-static",
        Shown::Always,
    ),
    ("cargo build --release --workspace --features file-semaphore/cli", Shown::Always),
    ("tests/demo", Shown::Always),
    ("cargo test --workspace", Shown::Always),
    ("tests/run", Shown::Always),
    ("sudo lfp who /dev/ttyUSB0", Shown::By("terminal_programs_hold_the_port_until_they_end")),
    (
        "lfp run --timeout 10 /dev/ttyUSB0 -- picocom -b 115200 /dev/ttyUSB0",
        Shown::By("terminal_programs_hold_the_port_until_they_end"),
    ),
    (
        "lfp run /dev/ttyUSB0 -- picocom -b 115200 /dev/ttyUSB0",
        Shown::By("terminal_programs_hold_the_port_until_they_end"),
    ),
    (
        "lfp run --yield-on TERM /dev/ttyACM0 -- picocom -b 115200 /dev/ttyACM0",
        Shown::By("a_command_yields"),
    ),
    (
        "lfp run /dev/ttyUSB0 -- minicom -o -D /dev/ttyUSB0",
        Shown::By("terminal_programs_hold_the_port_until_they_end"),
    ),
    ("lfp run /dev/ttyUSB0 -- minicom -D /dev/ttyUSB0", Shown::By("programs_lock")),
    ("lfp run --shim --ports /dev/ttyUSB0 -- make flash", Shown::By("programs_lock")),
    (
        "lfp run --exclusive /dev/ttyUSB0 -- picocom -b 115200 /dev/ttyUSB0",
        Shown::By("a_program_that_checks_no_lock_is_refused_by_the_kernel"),
    ),
    ("lfp shim --ports --wait 30 -- tio /dev/ttyUSB0", Shown::By("a_program_waits_in_line")),
    ("lfp shim -- gammu identify", Shown::By("programs_lock")),
    ("lfp shim --ports --wait 30 -- tio /dev/ttyUSB0", Shown::By("a_program_waits_in_line")),
    ("sudo lfp adopt minicom", Shown::By("an_adopted_program_is_right_for_all_users")),
    ("lfp wait --timeout 60 /dev/ttyS0 || exit", Shown::By("a_script_in_several_steps")),
    ("stty -F /dev/ttyS0 9600; echo AT >/dev/ttyS0", Shown::By("a_script_in_several_steps")),
    ("lfp unlock /dev/ttyS0", Shown::By("a_script_in_several_steps")),
    (
        "lfp run --timeout 30 /dev/ttyACM0 -- avrdude -p m328p -c arduino -P /dev/ttyACM0 -U flash:w:blink.hex",
        Shown::By("flashing_a_board"),
    ),
    (
        "docker run --device /dev/ttyUSB0 --volume /run/lfpd:/run/lfpd IMAGE lfp run --no-fork /dev/ttyUSB0 -- PROGRAM",
        Shown::By("a_program_in_a_container_has_its_number_of_outside"),
    ),
    (
        "sudo systemd-sysusers && sudo systemd-tmpfiles --create && sudo systemctl daemon-reload",
        Shown::Not(SYSTEM),
    ),
    ("sudo systemctl enable --now lfpd-unix.socket", Shown::Not(SYSTEM)),
    ("apt install gcc-arm-linux-gnueabihf libc6-dev-armhf-cross", Shown::Always),
    (
        "rustup target add armv7-unknown-linux-gnueabihf",
        Shown::Not(
            "fetches from a host that a test machine may not reach; CI has the target from Debian",
        ),
    ),
    (
        "packaging/debian/build --target armv7-unknown-linux-gnueabihf lfpd",
        Shown::Not(
            "compiles everything for minutes; .ci/targets does the same with its own options",
        ),
    ),
    (
        "cp etc/sysusers.d/lfpd.conf /usr/lib/sysusers.d/ && systemd-sysusers lfpd.conf",
        Shown::By("an_installed_package_works"),
    ),
    (
        "cp etc/tmpfiles.d/lfpd.conf /usr/lib/tmpfiles.d/ && systemd-tmpfiles --create lfpd.conf",
        Shown::By("an_installed_package_works"),
    ),
    ("sema run /run/lock/backup --timeout 30 -- backup.sh", Shown::By("the_page_of_the_book_runs")),
    (
        "dflock run backup --timeout 0 -- rsync -a /srv /backup",
        Shown::By("the_page_of_the_book_runs_with_a_server"),
    ),
    ("sema run -n -E 75 /run/lock/backup backup.sh", Shown::By("the_page_of_the_book_runs")),
    ("sema run -s /run/lock/index search.sh", Shown::By("the_page_of_the_book_runs")),
    (
        "sema wait /run/lock/fetch --slots 3 --all",
        Shown::By("wait_for_all_waits_for_the_last_slot_and_the_last_reader"),
    ),
    (
        "sema run /run/lock/fetch --slots 3 -- curl -O \"$url\"",
        Shown::By("the_page_of_the_book_runs"),
    ),
];

/// Pages whose commands are played by the tests of the crates.
const GUIDES: &[&str] = &["docs/sema.md", "docs/dflock.md", "docs/lock-server.md"];

/// Programs whose names begin the lines that people type.
const TYPED: &[&str] = &[
    "apt",
    "cargo",
    "cp",
    "dflock",
    "dflockd",
    "docker",
    "lfp",
    "packaging/debian/build",
    "rustup",
    "sema",
    "semats",
    "stty",
    "sudo",
    "systemctl",
    "tests/demo",
    "tests/run",
];

/// With lines of code that go on in the next line made one.
fn joined(text: &str) -> String {
    text.replace(" \\\n        ", " ").replace(" &&\n        ", " && ")
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

#[test]
fn every_command_of_the_documents_is_shown_to_work() {
    let sources = sources();
    let mut said = BTreeSet::new();
    for (name, text) in pages() {
        if GUIDES.contains(&&*name) {
            continue;
        }
        let text = joined(&text);
        for line in text.lines().filter_map(|line| line.strip_prefix("    ")) {
            let command = line.split_once("  #").map_or(line, |(command, _)| command).trim_end();
            let first = command.split(' ').next().unwrap();
            if !TYPED.contains(&first) {
                continue;
            }
            let known = COMMANDS.iter().any(|(known, _)| *known == command);
            assert!(known, "{name}: nothing shows that this works: {command}");
            said.insert(command.to_owned());
        }
    }
    for (command, shown) in COMMANDS {
        assert!(said.contains(*command), "no document says: {command}");
        match shown {
            Shown::By(test) => assert!(sources.contains(&format!("fn {test}(")), "{test} is gone"),
            Shown::Not(reason) => assert!(!reason.is_empty(), "{command}"),
            Shown::Always => {}
        }
    }
}

#[test]
fn files_the_documents_tell_of_are_there() {
    let document: String = pages().into_values().collect();
    let tops = [
        "etc/",
        "tests/",
        "man/",
        "xinetd.d/",
        "inetd.conf",
        "crates/",
        "benches/",
        ".ci/",
        "packaging/",
        "python/",
    ];
    let paths = quoted(&document).filter(|word| tops.iter().any(|top| word.starts_with(top)));
    let mut counted = 0;
    let commands = paths.map(|path| path.split(' ').next().unwrap());
    for path in commands.map(|path| path.trim_end_matches(['*', '?'])) {
        assert!(root().join(path).exists(), "{path} is not there");
        counted += 1;
    }
    assert!(counted > 5, "{counted} files are named");
}

/// Which machines the documents promise, what runs their programs and what packs them, is what `.ci/targets` holds.
#[test]
fn the_documents_promise_the_targets_that_are_checked() {
    let script = fs::read_to_string(root().join(".ci/targets")).unwrap();
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
        (target.to_owned(), [run, package])
    });
    let document = fs::read_to_string(root().join("docs/platforms.md")).unwrap();
    let rows =
        document.split_once("<!-- .ci/targets -->\n").unwrap().1.split_once("\n\n").unwrap().0;
    let promised = rows.lines().filter(|row| row.starts_with("| `")).map(|row| {
        let cells: Vec<&str> = row.trim_matches(['|', ' ']).split(" | ").collect();
        let [target, _, run, package]: [&str; 4] = cells.try_into().unwrap();
        (target.trim_matches('`').to_owned(), [run.to_owned(), package.to_owned()])
    });
    assert_eq!(promised.collect::<BTreeMap<_, _>>(), held.collect::<BTreeMap<_, _>>());
}

/// With a shell and nothing else, it names what is missing before it compiles or fetches anything.
#[test]
fn the_targets_are_not_begun_where_a_program_is_missing() {
    let programs = tempfile::tempdir().unwrap();
    for program in ["bash", "dirname", "sort"] {
        std::os::unix::fs::symlink(format!("/usr/bin/{program}"), programs.path().join(program))
            .unwrap();
    }
    let told = |target: &str| {
        let mut command = Command::new("/usr/bin/bash");
        command
            .arg(root().join(".ci/targets"))
            .arg(target)
            .env_clear()
            .env("PATH", programs.path());
        let output = command.output().unwrap();
        assert_eq!(
            (output.status.code(), output.stdout.as_slice()),
            (Some(1), &b""[..]),
            "{output:?}"
        );
        String::from_utf8(output.stderr).unwrap()
    };
    let lacks = "targets: this machine lacks cargo apt-get ";
    for (target, programs) in [
        (
            "armv7-unknown-linux-gnueabihf",
            &["arm-linux-gnueabihf-gcc", "qemu-arm", "dpkg-shlibdeps"][..],
        ),
        ("x86_64-unknown-linux-musl", &["musl-gcc", "strip"]),
    ] {
        let said = told(target);
        assert!(said.starts_with(lacks) && said.lines().count() == 1, "{said}");
        assert!(programs.iter().all(|program| said.contains(program)), "{said}");
    }
    let checked = told("x86_64-unknown-freebsd");
    assert!(!checked.contains("gcc") && !checked.contains("qemu"), "it is not linked: {checked}");
}
