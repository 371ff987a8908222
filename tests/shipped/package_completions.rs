//! The completions in the repository are those of the present programs, and real shells complete with them.

use std::fs;
use std::path::Path;

use rstest::rstest;
use testbed::{LIMIT, Sandbox, until};
use wrapcmd::Shell;

/// With LFPD_UPDATE in the environment, the files are written anew instead.
#[rstest]
fn the_shipped_completions_are_current(
    #[values("lfp", "lfpd")] program: &str,
    #[values(Shell::Bash, Shell::Zsh, Shell::Fish)] shell: Shell,
) {
    let name = format!("{program}.{shell:?}").to_lowercase();
    let path = Path::new(ROOT).join("etc/completions").join(name);
    let command = match program {
        "lfp" => lfp::command::command(),
        _ => lfpd::cli::command(),
    };
    let made = wrapcmd::completions(shell, &command);
    if std::env::var_os("LFPD_UPDATE").is_some() {
        fs::write(&path, &made).unwrap();
    }
    let advice = "the options have changed: LFPD_UPDATE=1 cargo test --test shipped completions";
    assert!(fs::read_to_string(&path).unwrap() == made, "{advice}");
}

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Programs that have completions, and where these are.
const PROGRAMS: [(&str, &str); 6] = [
    ("lfp", "etc/completions"),
    ("lfpd", "etc/completions"),
    ("sema", "crates/file-semaphore/etc/completions"),
    ("semats", "crates/file-semaphore/etc/completions"),
    ("dflock", "crates/dflock/etc/completions"),
    ("dflockd", "crates/dflockd/etc/completions"),
];

/// What is typed, and what the line is after Tab. There are one port, one program that begins with `zz`, and one file and
/// one directory of each name.
const LINES: [(&str, &str); 42] = [
    ("lfp wh", "lfp who "),
    ("lfp --dir", "lfp --direct "),
    ("lfp --json run --time", "lfp --json run --timeout "),
    ("lfp zzz", "lfp zzz"),
    ("lfp run ", "lfp run /dev/ttyUSB0 "),
    ("lfp run ttyU", "lfp run ttyUSB0 "),
    ("lfp run --timeout 5 --also /dev/t", "lfp run --timeout 5 --also /dev/ttyUSB0 "),
    ("lfp run --timeout=5 /d", "lfp run --timeout=5 /dev/ttyUSB0 "),
    ("lfp who ttyS0 ", "lfp who ttyS0 /dev/ttyUSB0 "),
    ("lfp lock ", "lfp lock /dev/ttyUSB0 "),
    ("lfp wait --pid 1 ", "lfp wait --pid 1 /dev/ttyUSB0 "),
    ("lfp list ", "lfp list "),
    ("lfp run --pid", "lfp run --pid"),
    ("lfp unlock --force --signal KI", "lfp unlock --force --signal KILL "),
    ("lfp run ttyS0 zz", "lfp run ttyS0 zzprogram "),
    ("lfp run ttyS0 -- zz", "lfp run ttyS0 -- zzprogram "),
    ("lfp run ttyS0 -- zzprogram -o /tmp/d/fi", "lfp run ttyS0 -- zzprogram -o /tmp/d/file "),
    ("lfp run ttyS0 zzprogram /tmp/d/fi", "lfp run ttyS0 zzprogram /tmp/d/file "),
    ("lfp shim --ports -- zz", "lfp shim --ports -- zzprogram "),
    ("lfp adopt zz", "lfp adopt zzprogram "),
    ("lfpd --list", "lfpd --listen "),
    ("lfpd --lock-dir /tmp/d/di", "lfpd --lock-dir /tmp/d/dir/"),
    ("sema rel", "sema release "),
    ("sema try /tmp/d/fi", "sema try /tmp/d/file "),
    ("sema list /tmp/d/", "sema list /tmp/d/dir/"),
    ("sema try lock --stale-when d", "sema try lock --stale-when dead "),
    ("sema run lock --slots 3 zz", "sema run lock --slots 3 zzprogram "),
    ("sema run lock -- zz", "sema run lock -- zzprogram "),
    ("semats try", "semats try-acquire "),
    ("semats status /tmp/d/fi", "semats status /tmp/d/file "),
    ("dflock run ", "dflock run "),
    ("dflock run nightly -- zz", "dflock run nightly -- zzprogram "),
    ("dflock run --key a -- zz", "dflock run --key a -- zzprogram "),
    ("dflock run --key a zz", "dflock run --key a zzprogram "),
    ("dflock run -k a --key=b zz", "dflock run -k a --key=b zzprogram "),
    ("dflock completions f", "dflock completions fish "),
    ("lfp completions b", "lfp completions bash "),
    ("sema completions z", "sema completions zsh "),
    ("dflock release ", "dflock release "),
    ("dflock --tls-ca /tmp/d/fi", "dflock --tls-ca /tmp/d/file "),
    ("dflockd --auth-p", "dflockd --auth-prefix-file "),
    ("dflockd --auth-token-file /tmp/d/fi", "dflockd --auth-token-file /tmp/d/file "),
];

/// Somebody types in a real shell, on a machine that has none of our programs: nothing of ours is started.
#[rstest]
#[case::bash(Shell::Bash, &["bash", "--rcfile", "/tmp/.zshrc", "-i"])]
#[case::fish(Shell::Fish, &["fish", "--no-config", "--init-command", "source /tmp/.zshrc"])]
#[case::zsh(Shell::Zsh, &["zsh", "-d", "-i"])]
#[ignore = "needs namespaces: tests/run"]
fn tab_completes(#[case] shell: Shell, #[case] command: &[&str]) {
    let (suffix, setup) = match shell {
        Shell::Bash => (
            ".bash",
            "source /usr/share/bash-completion/bash_completion
             for file in /run/test/completions/*; do source $file; done
             tell() { printf %s \"$READLINE_LINE\" >/tmp/new; mv /tmp/new /tmp/line; }
             bind -x '\"\\C-t\": tell'",
        ),
        Shell::Fish => (
            ".fish",
            "for file in /run/test/completions/*; source $file; end
             function tell; printf %s \"$(commandline)\" >/tmp/new; mv /tmp/new /tmp/line; end
             bind \\ct tell",
        ),
        Shell::Zsh => (
            "",
            "fpath=(/run/test/completions $fpath); autoload -Uz compinit; compinit -u -D
             tell() { print -rn -- \"$BUFFER\" >/tmp/new; mv /tmp/new /tmp/line }
             zle -N tell; bindkey -e; bindkey '^T' tell",
        ),
    };
    let mut layout = Sandbox::layout().port("ttyUSB0");
    for (program, directory) in PROGRAMS {
        let shipped =
            Path::new(ROOT).join(directory).join(format!("{program}.{shell:?}").to_lowercase());
        let prefix = if suffix.is_empty() { "_" } else { "" };
        layout = layout.bring(&format!("completions/{prefix}{program}{suffix}"), shipped);
    }
    let sandbox = layout.enter();
    fs::create_dir_all(sandbox.path("/tmp/d/dir")).unwrap();
    sandbox.write("/tmp/d/file", "", 0o644);
    sandbox.write("/tmp/d/zzprogram", "#!/bin/sh\n", 0o755);
    sandbox.write("/tmp/.zshrc", setup, 0o644);
    let path = "/tmp/d:/usr/bin:/bin";
    let terminal = sandbox.command("setsid").args(["--ctty", "--wait"]).args(command);
    let mut terminal = terminal.env("PATH", path).env("ZDOTDIR", "/tmp").on_terminal().spawn();
    let mut wrong = Vec::new();
    for (typed, completed) in LINES {
        let _ = fs::remove_file(sandbox.path("/tmp/line"));
        // Tab, and what tells the line.
        terminal.type_in(&format!("{typed}\t\x14"));
        let line = until(LIMIT, || sandbox.read("/tmp/line"));
        let Some(line) = line else { panic!("{typed}: no line: {}", terminal.output()) };
        if line != completed.as_bytes() {
            wrong.push((typed, String::from_utf8_lossy(&line).into_owned()));
        }
        // Deletes the line.
        terminal.type_in("\x15");
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
