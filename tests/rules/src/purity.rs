//! A file that says `Pure.` in its head turns values into values: it reads no file, socket, clock,
//! environment or randomness, and uses no file that does. Pure.

use std::collections::BTreeSet;

use crate::house::{Breach, House};
use crate::paths::{Files, code};

/// What a pure file may not name of the standard library. `core` and `alloc` count as `std`.
const SYSTEM: &[&str] = &[
    "fs",
    "env",
    "process",
    "thread",
    "net",
    "os",
    "backtrace",
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

/// What prints, what reads a clock, and what brings code that is not read here.
const ANYWHERE: &[&str] = &[
    "print!(",
    "println!(",
    "eprint!(",
    "eprintln!(",
    "dbg!(",
    "include!(",
    "extern \"",
    "#[path",
    "::now(",
];

/// Where pure files do what only others may.
#[must_use]
pub fn purity(house: &House) -> Vec<Breach> {
    let files = Files::of(house);
    let pure: BTreeSet<&str> = (house.sources.iter())
        .filter(|source| is_pure(&source.text))
        .map(|source| source.path.as_str())
        .collect();
    let mut found = BTreeSet::new();
    for (place, source) in &files.0 {
        if !pure.contains(source.path.as_str()) {
            continue;
        }
        let breach = |line, what| Breach { path: source.path.clone(), line, what };
        let outside = house.outside(&place.0);
        for mention in source.mentions.iter() {
            let other = files.leads_to(place, &mention.path).filter(|file| !pure.contains(file));
            let wrong = other.map(|file| format!("uses {file}, which is not"));
            let wrong = wrong.or_else(|| forbidden(&mention.path, &outside));
            found.extend(wrong.map(|it| breach(mention.line, format!("a pure file {it}"))));
        }
        for (line, text) in code(&source.text) {
            let is_called = |method: &&&str| text.contains(&format!(".{method}("));
            let word = METHODS.iter().find(is_called);
            let word = word.or_else(|| ANYWHERE.iter().find(|word| text.contains(**word)));
            found.extend(word.map(|word| breach(line, format!("a pure file says {word}"))));
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

/// What is wrong with a path that leads out of the workspace.
fn forbidden(path: &[String], outside: &BTreeSet<String>) -> Option<String> {
    let (first, rest) = path.split_first()?;
    let rest = rest.join("::");
    let is_wrong = if matches!(first.as_str(), "std" | "core" | "alloc") {
        begins(&rest, SYSTEM) && !begins(&rest, VALUES)
    } else {
        outside.contains(first) && !begins(&path.join("::"), OUTSIDE)
    };
    is_wrong.then(|| format!("names {}", path.join("::")))
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
