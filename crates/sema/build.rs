//! Links the unwinder into the two programs instead of loading `libgcc_s.so` at each start: a
//! script that takes a lock starts two processes, and that library was a tenth of their time.
//! The same as gcc's own `-static-libgcc`, which rustc's fixed `-lgcc_s` overrides.

use std::env::var;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let target = |part: &str| var(format!("CARGO_CFG_TARGET_{part}")).unwrap_or_default();
    let native = var("HOST").is_ok() && var("HOST") == var("TARGET");
    if native && target("OS") == "linux" && target("ENV") == "gnu" {
        // The first definition wins, so all of it must be in before libgcc_s is looked at; what
        // is not used is dropped (--gc-sections), and so is libgcc_s (--as-needed).
        println!("cargo::rustc-link-arg-bins=-Wl,--push-state,--whole-archive,-Bstatic");
        println!("cargo::rustc-link-arg-bins=-lgcc_eh");
        println!("cargo::rustc-link-arg-bins=-Wl,--pop-state");
    }
}
