//! Makes the checked-in client stubs for etcd, `crates/leases-etcd/src/rpc.rs`, so that no build
//! of this crate needs protoc or a build script. `just etcd-stubs` repeats it, and says whether the two
//! differ.

use std::error::Error;
use std::path::Path;

const HEAD: &str = "\
//! Client stubs for the part of etcd's interface that the journal uses. GENERATED from
//! `etc/etcd-stubs/etcd.proto`; that directory's `src/main.rs` says how to repeat it.
#![allow(
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    dead_code,
    clippy::all,
    clippy::allow_attributes_without_reason,
    reason = \"generated\"
)]

";

fn main() -> Result<(), Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files = protox::compile([root.join("etcd.proto")], [root])?;
    let made = tempdir()?;
    tonic_prost_build::configure()
        .build_server(false)
        .build_transport(false)
        .out_dir(&made)
        .compile_fds(files)?;
    let text = std::fs::read_to_string(made.join("etcdserverpb.rs"))?;
    std::fs::write(root.join("../../src/rpc.rs"), format!("{HEAD}{text}"))?;
    Ok(())
}

/// cargo's own directory for what a program makes.
fn tempdir() -> std::io::Result<std::path::PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/made");
    std::fs::create_dir_all(&dir)?;
    Ok(dir)
}
