//! A file that says `Pure.` in its head turns values into values: it reads no file, socket, clock,
//! environment or randomness, and uses no file that does. Pure.

use std::collections::BTreeSet;

use crate::house::{Breach, House};
use crate::names::{Names, Target};
use crate::syntax::{EXTERN, Mention, Module, PATH};

/// What a pure file may not name of the standard library. `core` and `alloc` count as `std`.
const SYSTEM: &[&str] = &[
    "fs",
    "env",
    "process",
    "thread",
    "net",
    "os",
    "backtrace",
    "print!",
    "println!",
    "eprint!",
    "eprintln!",
    "dbg!",
    "io::stdin",
    "io::stdout",
    "io::stderr",
    "io::Stdin",
    "io::Stdout",
    "io::Stderr",
    "io::pipe",
    "random",
    "hash::RandomState",
    "hash::random",
    "collections::hash_map::RandomState",
    "panic::set_hook",
    "panic::take_hook",
    "hint::spin_loop",
    "arch",
];

/// What of these are values nevertheless: addresses, exit codes, bytes of strings, numbers of
/// descriptors, and the keys of hash tables, which nothing that comes out shows.
const VALUES: &[&str] = &[
    "net::IpAddr",
    "net::Ipv4Addr",
    "net::Ipv6Addr",
    "net::SocketAddr",
    "net::SocketAddrV4",
    "net::SocketAddrV6",
    "net::AddrParseError",
    "process::ExitCode",
    "os::unix::ffi",
    "os::fd::RawFd",
    "env!",
    "env::VarError",
    "hash::RandomState",
    "collections::hash_map::RandomState",
];

/// What a pure file may name of other crates: values, tables and codecs.
const OUTSIDE: &[&str] = &[
    "clap",
    "crc32fast",
    "hashbrown",
    "hyper::Method",
    "hyper::StatusCode",
    "hyper::Uri",
    "hyper::Version",
    "hyper::header",
    "memchr",
    "nix::errno",
    "nix::sys::signal::Signal",
    "rustls::CertificateError",
    "rustls::Error",
    "rustls::pki_types::pem",
    "prost",
    "serde_core",
    "serde_json",
    "strsim",
    "subtle",
    "syslog::Facility",
    "syslog::Severity",
];

/// Methods by which values of the standard library reach the system. Where a timeout ends, a clock was read.
const METHODS: &[&str] = &[
    "canonicalize",
    "elapsed",
    "exists",
    "is_dir",
    "is_file",
    "is_symlink",
    "metadata",
    "read_dir",
    "read_link",
    "recv_deadline",
    "recv_timeout",
    "symlink_metadata",
    "to_socket_addrs",
    "try_exists",
    "wait_timeout",
    "wait_timeout_while",
];

/// What prints, and what brings code that is not read here: macros, foreign functions, files of other names.
const ANYWHERE: &[&str] =
    &["print!", "println!", "eprint!", "eprintln!", "dbg!", "include!", EXTERN, PATH];

/// Where pure files do what only others may.
#[must_use]
pub fn purity(house: &House) -> Vec<Breach> {
    let modules = house.modules();
    let names = Names { modules: &modules };
    let pure: BTreeSet<&str> = house
        .sources
        .iter()
        .filter(|source| is_pure(&source.text))
        .map(|source| source.path.as_str())
        .collect();
    let mut found = BTreeSet::new();
    for ((crate_, _), module) in &modules {
        if !pure.contains(module.file.as_str()) {
            continue;
        }
        let outside: BTreeSet<String> = house.outside(crate_);
        for path in module.mentions.iter().chain(module.imports.iter().map(|import| &import.of)) {
            let breach = |what: String| Breach { path: module.file.clone(), line: path.line, what };
            if let Some(what) = forbidden_word(path) {
                found.insert(breach(what));
            }
            for target in names.targets(crate_, module, path) {
                found.extend(forbidden(module, &target, &pure, &outside).map(breach));
            }
        }
        for (method, line) in &module.methods {
            if METHODS.contains(&method.as_str()) {
                let what = format!("a pure file calls .{method}()");
                found.insert(Breach { path: module.file.clone(), line: *line, what });
            }
        }
    }
    found.into_iter().collect()
}

/// Whether a file says of itself that it is pure.
pub(crate) fn is_pure(text: &str) -> bool {
    text.lines()
        .take_while(|line| line.starts_with("//!"))
        .flat_map(|line| line.trim_start_matches("//!").split(' '))
        .any(|word| word == "Pure.")
}

/// What no alias can hide: a clock is read by `now`, methods keep their names, and so do macros and attributes.
fn forbidden_word(path: &Mention) -> Option<String> {
    let last = path.path.last()?.as_str();
    let call = path.path.len() > 1 && (last == "now" || METHODS.contains(&last));
    (call || ANYWHERE.contains(&last))
        .then(|| format!("a pure file names {}", path.path.join("::")))
}

fn forbidden(
    module: &Module,
    target: &Target,
    pure: &BTreeSet<&str>,
    outside: &BTreeSet<String>,
) -> Option<String> {
    match target {
        Target::Module(_) => None,
        Target::Item(file) => {
            let allowed = *file == module.file || pure.contains(file.as_str());
            (!allowed).then(|| format!("a pure file uses {file}, which is not"))
        }
        Target::Outside(path) => {
            let (first, rest) = path.split_first()?;
            let says = || format!("a pure file names {}", path.join("::"));
            if matches!(first.as_str(), "std" | "core" | "alloc") {
                let rest = rest.join("::");
                let system = begins(&rest, SYSTEM) && !begins(&rest, VALUES);
                return system.then(says);
            }
            let allowed = begins(&path.join("::"), OUTSIDE);
            (outside.contains(first) && !allowed).then(says)
        }
    }
}

/// Whether a path is one of these, or below one.
fn begins(path: &str, list: &[&str]) -> bool {
    list.iter().any(|name| {
        path.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
    })
}

impl House {
    /// Every file with the first line of its head, and a `=` where it is pure.
    #[must_use]
    pub fn tree(&self) -> Vec<String> {
        let row = |source: &crate::house::Source| {
            let head = source.text.lines().next().unwrap_or_default();
            let mark = if is_pure(&source.text) { '=' } else { ' ' };
            format!("{:<58}{mark} {}", source.path, head.trim_start_matches("//!").trim())
        };
        self.sources.iter().map(row).collect()
    }
}
