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

# The pages of docs/ as a book in target/book, and its links checked.
book:
    .ci/book

# The chart and the manifests for Kubernetes: rendered by Helm, compared with Kubernetes' schemas.
kubernetes:
    .ci/kubernetes

# 50,000 takes of semaphores with kills and pauses, on five kinds of file system and in three of namespace; as root.
semaphores-long:
    crates/file-semaphore/tests/kinds

# The conversation of the protocol's memo with a service of its own.
demo:
    tests/demo

# What the quick tests would not notice in the pure files, one change at a time; an hour or two.
mutants *packages:
    tests/mutants {{packages}}

# Histories of 30,000 holds under faults, in etcd and on disk; some thirty minutes.
etcd-long:
    cargo test -p dflockd --test etcd --locked -- --ignored --nocapture ten_thousand

# The table of docs/what-happens-when.md, with `etcdctl lock` beside it; some five minutes.
report:
    cargo test -p dflockd --test etcd --locked -- --ignored --nocapture what_happens_when | grep '^|'

# Do the histories find mistakes? dflockd is built with one after another; some minutes each.
etcd-mutants:
    crates/dflockd/tests/etcd/mutants

# The client stubs of etcd made anew; fails when those checked in are not those of etcd.proto.
etcd-stubs:
    cargo run --locked --manifest-path crates/leases-etcd/etc/etcd-stubs/Cargo.toml
    rustfmt --edition 2024 crates/leases-etcd/src/rpc.rs
    git diff --exit-code -- crates/leases-etcd/src/rpc.rs

# The Debian packages, in target/debian.
packages:
    packaging/debian/build

# Debian's packages as Debian builds them, in a minimal Debian 13 without a network; as root, by hand.
debian into="target/debian-minimal":
    packaging/minimal debian {{into}}

# Fedora's packages, built in the same way by Debian's rpmbuild; as root, by hand.
rpm into="target/rpm-minimal":
    packaging/minimal rpm {{into}}

# Lists the holders and licences of the crates in the packages: after each change of Cargo.lock.
licences:
    packaging/licences

# The packages twice, from two directories at two times: the same bytes? Compiles everything twice.
reproducible:
    packaging/reproducible
