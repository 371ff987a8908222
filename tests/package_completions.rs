//! The completions in the repository are those of the present programs.

use std::fs;
use std::path::Path;
use std::process::Command;

use clap_complete::Shell;
use rstest::rstest;

/// With LFPD_UPDATE in the environment, the files are written anew instead.
#[rstest]
fn the_shipped_completions_are_current(
    #[values("lfp", "lfpd")] program: &str,
    #[values(Shell::Bash, Shell::Zsh, Shell::Fish)] shell: Shell,
) {
    let path = Path::new(ROOT).join(format!("etc/completions/{program}.{shell}"));
    let mut command = match program {
        "lfp" => lfp::command::command(),
        _ => lfpd::cli::command(),
    };
    let mut made = Vec::new();
    clap_complete::generate(shell, &mut command, program, &mut made);
    if std::env::var_os("LFPD_UPDATE").is_some() {
        fs::write(&path, &made).unwrap();
    }
    let advice = "the options have changed: LFPD_UPDATE=1 cargo test --test package_completions";
    assert!(fs::read(&path).unwrap() == made, "{advice}");
}

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// A real zsh loads them and completes a command and options.
#[rstest]
#[case::command("lfp wh", "lfp who ")]
#[case::option("lfp --dir", "lfp --direct ")]
#[case::option_of_a_command("lfp run --time", "lfp run --timeout=")]
#[case::lfpd("lfpd --list", "lfpd --listen=")]
#[case::nothing_there("lfp zzz", "lfp zzz")]
#[ignore = "needs programs: tests/run"]
fn zsh_completes(#[case] begun: &str, #[case] completed: &str) {
    let functions = tempfile::tempdir().unwrap();
    for program in ["lfp", "lfpd"] {
        let kept = format!("{ROOT}/etc/completions/{program}.zsh");
        fs::copy(kept, functions.path().join(format!("_{program}"))).unwrap();
    }
    let zsh = Command::new("zsh")
        .args(["-f", "tests/programs/complete.zsh"])
        .arg(functions.path())
        .arg(begun)
        .current_dir(ROOT)
        .output()
        .expect("zsh is not installed: run .ci/install");
    assert_eq!(String::from_utf8_lossy(&zsh.stdout), format!("{completed}\n"), "{zsh:?}");
}

/// The same in fish.
#[rstest]
#[case::command("lfp wh", "who\t")]
#[case::option("lfp --dir", "--direct\t")]
#[case::option_of_a_command("lfp run --time", "--timeout\t")]
#[case::lfpd("lfpd --list", "--listen\t")]
#[ignore = "needs programs: tests/run"]
fn fish_completes(#[case] begun: &str, #[case] offered: &str) {
    let home = tempfile::tempdir().unwrap();
    let script = format!(
        "source etc/completions/lfp.fish; source etc/completions/lfpd.fish; complete -C '{begun}'"
    );
    let fish = Command::new("fish")
        .args(["--no-config", "-c", &script])
        .current_dir(ROOT)
        .env("HOME", home.path())
        .output()
        .expect("fish is not installed: run .ci/install");
    let told = String::from_utf8_lossy(&fish.stdout);
    assert!(told.lines().count() == 1 && told.starts_with(offered), "{fish:?}");
}

/// bash takes them, and offers the commands.
#[rstest]
#[case::lfp("lfp", "wh", "who")]
#[case::lfpd("lfpd", "--list", "--listen")]
fn bash_completes(#[case] program: &str, #[case] begun: &str, #[case] offered: &str) {
    let script = format!(
        "source etc/completions/{program}.bash; COMP_WORDS=({program} {begun}); COMP_CWORD=1; \
         _{program} {program} {begun} {program}; echo \"${{COMPREPLY[@]}}\""
    );
    let bash = Command::new("bash")
        .args(["--norc", "-c", &script])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("bash is not installed");
    assert_eq!(String::from_utf8_lossy(&bash.stdout).trim(), offered, "{bash:?}");
}
