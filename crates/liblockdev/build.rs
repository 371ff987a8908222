//! The name that programs ask the dynamic loader for.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,liblockdev.so.1");
    println!("cargo::rerun-if-changed=build.rs");
}
