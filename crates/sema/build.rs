//! Links the two programs for a quick start: a script that takes a lock starts two processes, and
//! most of their time is the kernel mapping files.
//!
//! The unwinder is linked in instead of loading `libgcc_s.so` at each start (gcc's own
//! `-static-libgcc`, which rustc's fixed `-lgcc_s` overrides), and constants share a segment with
//! the code. What the linker at hand does not know is left out; the programs work all the same.

use std::env::var;
use std::path::Path;
use std::process::Command;

/// The first definition wins, so all of the archive must be in before libgcc_s is looked at; what
/// is not used is dropped (--gc-sections), and so is libgcc_s (--as-needed).
const UNWINDER: [&str; 3] =
    ["-Wl,--push-state,--whole-archive,-Bstatic", "-lgcc_eh", "-Wl,--pop-state"];
const ONE_SEGMENT: [&str; 1] = ["-Wl,--no-rosegment"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let target = |part: &str| var(format!("CARGO_CFG_TARGET_{part}")).unwrap_or_default();
    let native = var("HOST").is_ok() && var("HOST") == var("TARGET");
    if !native || target("OS") != "linux" || target("ENV") != "gnu" {
        return;
    }
    for set in [&UNWINDER[..], &ONE_SEGMENT] {
        if links(set) {
            for argument in set {
                println!("cargo::rustc-link-arg-bins={argument}");
            }
        }
    }
}

/// Whether an empty program can be linked like this.
fn links(arguments: &[&str]) -> bool {
    let (Ok(rustc), Ok(directory)) = (var("RUSTC"), var("OUT_DIR")) else { return false };
    let source = Path::new(&directory).join("probe.rs");
    if std::fs::write(&source, "fn main() {}").is_err() {
        return false;
    }
    let mut command = Command::new(rustc);
    if let Ok(linker) = var("RUSTC_LINKER") {
        command.arg("-C").arg(format!("linker={linker}"));
    }
    if let Ok(flags) = var("CARGO_ENCODED_RUSTFLAGS") {
        command.args(flags.split('\x1f').filter(|flag| !flag.is_empty()));
    }
    command.args(
        arguments.iter().flat_map(|argument| ["-C".to_owned(), format!("link-arg={argument}")]),
    );
    let output = command.arg("-o").arg(Path::new(&directory).join("probe")).arg(source).output();
    output.is_ok_and(|output| output.status.success())
}
