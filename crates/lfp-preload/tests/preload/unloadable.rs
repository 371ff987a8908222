//! Programs into which the library cannot be loaded, under `lfp run` and its relatives: they run
//! as without it, under the lock that was taken for them; who may refuse the port because of that
//! lock is named; and who asks for the library is told that there is none for them.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::{fs, process};

use rstest::rstest;
use testbed::{End, LFP, LIMIT, User, until};

use crate::ground::{Ground, PORT};

/// Makes a lock as programs do that were never told of `lfp`, if it was compiled with one.
const SOURCE: &str = r#"
#include <fcntl.h>
#include <stdio.h>
int main(void)
{
#ifdef LOCK
    if (open(LOCK, O_CREAT | O_EXCL | O_WRONLY, 0644) < 0) return perror("lock"), 3;
#endif
    return puts("started") < 0;
}
"#;

/// Compiles the programs, outside.
const COMPILE: &str = r#"
lock='-DLOCK="/var/lock/LCK..ttyW0"'
cc -o usual program.c
cc "$lock" -o usual-locks program.c
musl-gcc -o musl program.c
musl-gcc "$lock" -o musl-locks program.c
musl-gcc -static -o static program.c
cc -fsanitize=address "$lock" -o sanitized-locks program.c
"#;

/// Puts them where users can start them, with the rights that nobody outside is to have.
const INSTALL: &str = r#"
cd /run/test/compiled
cp usual musl musl-locks static sanitized-locks /tmp
cp /run/test/busybox /tmp/busybox
cd /tmp
cp usual setuid
for rights in setuid setgid capable; do cp "$OLDPWD/usual-locks" $rights-locks; done
cp usual rooted
cp usual grouped
chown bob setuid setuid-locks
chmod 4755 rooted
chmod 2755 grouped
chgrp bob setgid-locks
chmod 4755 setuid setuid-locks
chmod 2755 setgid-locks
/usr/bin/python3 -c "import os; os.setxattr('capable-locks', 'security.capability',
    bytes.fromhex('0100000200200000000000000000000000000000'))"
printf '#!/tmp/musl-locks\n' >script-locks
chmod 755 script-locks
"#;

/// The directory with the compiled programs.
#[expect(clippy::expect_used, reason = "a machine on which the tests cannot run")]
fn compiled() -> &'static Path {
    static DONE: OnceLock<PathBuf> = OnceLock::new();
    DONE.get_or_init(|| {
        let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("unloadable");
        fs::create_dir_all(&place).expect("a directory");
        fs::write(place.join("program.c"), SOURCE).expect("a file");
        let mut shell = process::Command::new("sh");
        let end = shell.args(["-ec", COMPILE]).current_dir(&place).output().expect("a shell");
        let said = String::from_utf8_lossy(&end.stderr);
        assert!(end.status.success(), "{said}\nrun .ci/install (it reads .ci/packages)");
        place
    })
}

fn ground() -> Ground {
    let busybox = testbed::peer("busybox-static", "bin/busybox");
    let ground = Ground::with(&[("compiled", compiled()), ("busybox", &busybox)]);
    let installed = ground.sandbox.command("sh").args(["-ec", INSTALL]);
    installed.run().expect(0);
    ground
}

fn lfp(ground: &Ground, words: &[&str]) -> End {
    let command = ground.sandbox.command(LFP).args(words).user(User::Alice);
    command.env("LFP_TIMEOUT", "30").no_input().run()
}

/// Nothing else is printed, by whomever: the loader's complaints neither.
#[rstest]
#[case::usual("/tmp/usual")]
#[case::musl("/tmp/musl")]
#[case::fixed("/tmp/static")]
#[case::setuid("/tmp/setuid")]
#[ignore = "needs root: tests/run"]
fn a_program_without_the_library_runs_under_the_lock_that_was_taken(#[case] program: &str) {
    let ground = ground();
    let _daemon = ground.serve();
    for option in ["--", "--no-shim", "--no-fork"] {
        let end = lfp(&ground, &["run", option, PORT, program]);
        assert_eq!((end.code(), end.output()), (0, "started\n"), "{end}");
    }
}

const STATIC: &str = "it is statically linked";
const LIBRARY: &str = "it uses another C library";
const RIGHTS: &str = "it runs with more rights than its user";

#[test]
#[ignore = "needs root: tests/run"]
fn a_program_that_may_refuse_the_port_is_named() {
    let ground = ground();
    let _daemon = ground.serve();
    let table: [(&[&str], &str, i32); 6] = [
        (&["/tmp/busybox", "microcom", PORT], STATIC, 1),
        (&["/tmp/musl-locks"], LIBRARY, 3),
        (&["/tmp/script-locks"], LIBRARY, 3),
        (&["/tmp/setuid-locks"], RIGHTS, 3),
        (&["/tmp/setgid-locks"], RIGHTS, 3),
        (&["/tmp/capable-locks"], RIGHTS, 3),
    ];
    for (words, why, code) in table {
        let end = lfp(&ground, &[&["run", PORT, "--"], words].concat());
        let named = format!(
            "lfp: {} seems to make lock files itself: it may refuse the port because of the lock of lfp\n  \
             {why}, so liblfp_preload.so does nothing for it\n",
            words[0]
        );
        assert!(end.output().starts_with(&named), "{end}");
        assert!(end.code() == code && end.said("exists"), "what the program itself says: {end}");
    }
}

/// Without the package, too.
#[test]
#[ignore = "needs root: tests/run"]
fn a_program_that_needs_the_library_is_named() {
    let ground = ground();
    let _daemon = ground.serve();
    ground.sandbox.command("mv").args(["/run/test/lib", "/run/test/gone"]).run().expect(0);
    let end = lfp(&ground, &["run", PORT, "--", "minicom", "--version"]);
    assert!(end.said("minicom version"), "{end}");
    assert!(end.said("lfp: minicom seems to make lock files itself"), "{end}");
    assert!(end.said("\n  `minicom -o` checks no lock files\n"), "{end}");
    assert!(end.said("would help (package lfp-preload)"), "{end}");
    let end = lfp(&ground, &["run", PORT, "--", "picocom", "--help"]);
    assert!(end.said("picocom") && !end.said("lfp:"), "it makes none: {end}");
    let end = lfp(&ground, &["run", PORT, "--", "/run/test/bin/lfp", "who", PORT]);
    assert!(end.said(PORT) && !end.said("seems to make"), "it knows its own locks: {end}");
}

#[rstest]
#[case::musl("/tmp/musl", LIBRARY)]
#[case::fixed("/tmp/static", STATIC)]
#[case::setuid("/tmp/setuid", RIGHTS)]
#[ignore = "needs root: tests/run"]
fn a_user_who_asks_for_the_library_is_told(#[case] program: &str, #[case] why: &str) {
    let ground = ground();
    let _daemon = ground.serve();
    let ways: [&[&str]; 3] =
        [&["run", "--shim", PORT], &["run", "--shim", "--ports", PORT], &["shim"]];
    for way in ways {
        let end = lfp(&ground, &[way, &[program]].concat());
        let told = format!("lfp: {program}: {why}, so liblfp_preload.so does nothing for it\n");
        assert_eq!((end.code(), end.output()), (71, told.as_str()), "not started: {end}");
        assert_eq!(ground.sandbox.locks(), [""; 0]);
    }
}

/// AddressSanitizer by itself ends a program before which another library comes.
#[test]
#[ignore = "needs root: tests/run"]
fn a_program_with_address_sanitizer_has_it() {
    let ground = ground();
    let _daemon = ground.serve();
    let ways: [&[&str]; 4] =
        [&["run", PORT], &["run", "--shim", PORT], &["shim"], &["shim", "--ports"]];
    for way in ways {
        let end = lfp(&ground, &[way, &["/tmp/sanitized-locks"]].concat());
        assert_eq!((end.code(), end.output()), (0, "started\n"), "it makes its lock: {way:?}");
        // The service removes it when it learns of the end.
        let is_free = until(LIMIT, || ground.sandbox.locks().is_empty().then_some(()));
        assert!(is_free.is_some(), "{:?}", ground.sandbox.locks());
    }
}

/// A machine on which programs are adopted.
fn adopting() -> Ground {
    let ground = ground();
    let mounted = ground.sandbox.command("mount").args(["-t", "tmpfs", "none", "/usr/local/bin"]);
    mounted.run().expect(0);
    ground
}

fn adopt(ground: &Ground, words: &[&str]) -> End {
    let command = ground.sandbox.command("env").args(["PATH=/tmp:/usr/bin", LFP, "adopt"]);
    command.args(words).run()
}

/// Root adopts it, and root's own set-user-ID programs give root nothing; but other users will start it.
#[rstest]
#[case::fixed("busybox", STATIC)]
#[case::of_root("rooted", RIGHTS)]
#[case::of_roots_group("grouped", RIGHTS)]
#[case::of_another("setuid", RIGHTS)]
#[case::with_capabilities("capable-locks", RIGHTS)]
#[ignore = "needs root: tests/run"]
fn programs_that_cannot_load_the_library_are_not_adopted(#[case] program: &str, #[case] why: &str) {
    let ground = adopting();
    let end = adopt(&ground, &[program]);
    assert!(end.code() == 71 && end.said(&format!("/tmp/{program}: {why}")), "{end}");
    let left = ground.sandbox.command("ls").args(["-A", "/usr/local/bin"]).run();
    assert_eq!(left.output(), "", "{left}");
    assert_eq!(adopt(&ground, &["usual"]).code(), 0);
}

#[test]
#[ignore = "needs root: tests/run"]
fn an_adopted_program_locks_ports_unless_told_otherwise() {
    let ground = adopting();
    let wrapper = || {
        let text = ground.sandbox.read("/usr/local/bin/usual").unwrap();
        String::from_utf8(text).unwrap().contains("--ports")
    };
    for (words, expected) in
        [(&["usual"][..], true), (&["--files", "usual"], false), (&["--ports", "usual"], true)]
    {
        let end = adopt(&ground, words);
        assert!(end.code() == 0 && wrapper() == expected, "{words:?}: {end}");
    }
}

/// The program was replaced since by one into which the library cannot be loaded.
#[rstest]
#[case::musl("musl", LIBRARY)]
#[case::setuid("setuid", RIGHTS)]
#[ignore = "needs root: tests/run"]
fn an_adopted_program_starts_without_the_library_where_it_must(
    #[case] other: &str,
    #[case] why: &str,
) {
    let ground = adopting();
    let _daemon = ground.serve();
    assert_eq!(adopt(&ground, &["usual"]).code(), 0);
    let start = || ground.sandbox.command("/usr/local/bin/usual").user(User::Alice).run();
    let end = start();
    assert_eq!((end.code(), end.output()), (0, "started\n"), "{end}");
    let replaced = ground.sandbox.command("mv").args([&format!("/tmp/{other}"), "/tmp/usual"]);
    assert_eq!(replaced.run().code(), 0);
    let end = start();
    assert!(end.code() == 0 && end.output().ends_with("started\n") && end.said(why), "{end}");
}

/// The program that starts it has the library, but it does not inherit it.
#[rstest]
#[case::by_itself("--")]
#[case::told("--no-shim")]
#[ignore = "needs root: tests/run"]
fn a_program_without_the_library_does_not_inherit_it(#[case] option: &str) {
    let ground = ground();
    let _daemon = ground.serve();
    let end = lfp(&ground, &["shim", "--", LFP, "run", option, PORT, "/tmp/musl"]);
    assert_eq!((end.code(), end.output()), (0, "started\n"), "{end}");
}

/// As much as execve(2) takes of one variable passes through.
#[test]
#[ignore = "needs root: tests/run"]
fn a_long_list_of_libraries_is_no_hindrance() {
    let ground = ground();
    let _daemon = ground.serve();
    let script = format!("LD_PRELOAD=$(printf '%100000s' '') {LFP} run {PORT} /tmp/usual");
    let end = ground.sandbox.command("sh").args(["-c", &script]).user(User::Alice).run();
    assert_eq!((end.code(), end.output()), (0, "started\n"), "{end}");
}
