//! The shells' completions in the repository are those of the programs as they are.

use std::fs;
use std::path::Path;
use std::process::Command;

use rstest::rstest;

#[rstest]
fn are_current(
    #[values("lfp", "lfpd")] program: &str,
    #[values("bash", "zsh", "fish")] shell: &str,
) {
    let name = format!("etc/completions/{program}.{shell}");
    let kept = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(&name)).unwrap();
    let made = Command::new(env!("CARGO_BIN_EXE_lfp"))
        .args(["completions", shell, "--program", program])
        .output()
        .unwrap();
    assert!(made.status.success());
    let advice = format!("cargo run --bin lfp -- completions {shell} --program {program} >{name}");
    assert!(kept.as_bytes() == made.stdout, "the options have changed; now: {advice}");
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
