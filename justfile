# Daily commands. `just` is in crates.io (cargo install just); each recipe is a line one can type.

# What a change must pass before it is committed; under two minutes on a built tree.
check: format rules lint quick

format:
    cargo fmt --all --check

# Purity, sizes, circles, and names in documents: seconds.
rules:
    cargo test --locked --package rules

# The tree: every file with the first line of its head; = marks pure files.
tree:
    cargo run --locked --quiet --package rules

lint:
    cargo clippy --workspace --all-targets --features file-semaphore/cli,file-semaphore/async --locked -- -D warnings

# The libraries' own tests and the protocol's contract.
quick:
    tests/quick

# All tests, as root; `just test --install` installs the programs they talk to.
test *options:
    tests/run {{options}}

# Everything that CI does, as root, on a clean checkout.
ci:
    bash .ci/run

# The oldest Rust that is promised, by Debian's compiler of that version.
oldest:
    .ci/oldest

# Other machines: type-checked, built with Debian's cross compilers, and run by qemu-user.
targets:
    .ci/targets

# Licences, banned crates, sources, and known vulnerabilities where their database can be had.
deny:
    .ci/deny

# The pages of docs/ as a book in target/book (cargo install mdbook). `cargo test --test documents` checks its links.
book:
    mdbook build

# The conversation of the protocol's memo with a service of its own.
demo:
    tests/demo

# What the quick tests would not notice in the pure files, one change at a time; an hour or two.
mutants *packages:
    tests/mutants {{packages}}

# Thirty histories of locks in etcd under faults; some five minutes.
etcd-long:
    cargo test -p dflockd --test etcd --locked -- --ignored --nocapture thirty_histories five_thousand_holds

# Do the histories find mistakes? dflockd is built with one after another; some minutes each.
etcd-mutants:
    crates/dflockd/tests/etcd/mutants

# The client stubs of etcd made anew; fails when those checked in are not those of etcd.proto.
etcd-stubs:
    cargo run --locked --manifest-path crates/dflockd/etc/etcd-stubs/Cargo.toml
    rustfmt --edition 2024 crates/dflockd/src/etcd/rpc.rs
    git diff --exit-code -- crates/dflockd/src/etcd/rpc.rs

# The Debian packages, in target/debian.
packages:
    packaging/debian/build

# Debian's packages as Debian builds them, in a minimal Debian 13 without a network; as root, by hand.
debian into="target/debian-minimal":
    packaging/debian/minimal {{into}}

# Who made the crates that the packages contain, and their licences: after each change of Cargo.lock.
licences:
    packaging/licences

# The packages twice, from two directories at two times: the same bytes? Compiles everything twice.
reproducible:
    packaging/reproducible
