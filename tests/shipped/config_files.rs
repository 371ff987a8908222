//! The files this project ships for other programs, read by those programs.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rstest::rstest;
use testbed::{Sandbox, User};

/// Runs a program that must be there and must be content.
fn run(command: &mut Command, package: &str) -> String {
    let Output { status, stdout, stderr } = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}: install package {package}"));
    let said = [stdout, stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(status.success(), "{command:?}: {said}");
    said
}

fn shipped(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(file)
}

fn text(file: &str) -> String {
    fs::read_to_string(shipped(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// The settings of a unit file, in order, without comments and sections.
fn settings(file: &str) -> Vec<(String, String)> {
    text(file)
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// The units with the program where it is here, in a directory of their own.
fn units() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for unit in ["lfpd.socket", "lfpd@.service"] {
        let text = text(&format!("etc/systemd/{unit}"));
        let text = text.replace("/usr/sbin/lfpd", env!("CARGO_BIN_EXE_lfpd"));
        fs::write(root.path().join(unit), text).unwrap();
    }
    root
}

#[test]
#[ignore = "needs programs: tests/run"]
fn systemd_finds_nothing_wrong_with_the_units() {
    let units = units();
    let said = run(
        Command::new("systemd-analyze")
            .args(["verify", "--man=no", "--recursive-errors=yes"])
            .arg(units.path().join("lfpd.socket"))
            .arg(units.path().join("lfpd@.service")),
        "systemd",
    );
    assert!(!said.contains("lfpd"), "{said}");
}

/// systemd's own judgement of the hardening: 0 is perfect, 10 is none.
#[test]
#[ignore = "needs programs: tests/run"]
fn systemd_calls_the_service_hardened() {
    let units = units();
    // The threshold is in tenths.
    run(
        Command::new("systemd-analyze")
            .args(["security", "--offline=yes", "--threshold=22"])
            .arg(units.path().join("lfpd@.service")),
        "systemd",
    );
}

#[rstest]
#[case::v4("ListenStream", "127.0.0.1:50001")]
#[case::v6("ListenStream", "[::1]:50001")]
#[case::one_process_each("Accept", "yes")]
fn the_socket_unit(#[case] name: &str, #[case] value: &str) {
    let settings = settings("etc/systemd/lfpd.socket");
    assert!(settings.contains(&(name.to_owned(), value.to_owned())), "{settings:?}");
    let listens = settings.iter().filter(|(name, _)| name.starts_with("Listen")).count();
    assert_eq!(listens, 2, "nothing else is listened to");
}

#[rstest]
#[case::own_user("User", "lfpd")]
#[case::input("StandardInput", "socket")]
#[case::output("StandardOutput", "socket")]
#[case::never_the_client("StandardError", "journal")]
#[case::for_stale_locks_of_others("AmbientCapabilities", "CAP_FOWNER")]
#[case::no_other_capability("CapabilityBoundingSet", "CAP_FOWNER")]
#[case::no_way_up("NoNewPrivileges", "yes")]
#[case::read_only("ProtectSystem", "strict")]
#[case::writes_locks("ReadWritePaths", "-/run/lock -/run/lfpd")]
#[case::asks_the_kernel("RestrictAddressFamilies", "AF_UNIX AF_INET AF_INET6 AF_NETLINK")]
#[case::this_host_only("IPAddressDeny", "any")]
fn the_service_unit(#[case] name: &str, #[case] value: &str) {
    let settings = settings("etc/systemd/lfpd@.service");
    assert!(settings.contains(&(name.to_owned(), value.to_owned())), "{settings:?}");
}

/// What would blind the service: it must see processes, their owners, device nodes and its
/// peer's network.
#[rstest]
fn the_service_unit_does_not(
    #[values(
        "PrivateNetwork",
        "PrivateUsers",
        "PrivateDevices",
        "ProtectProc",
        "ProcSubset",
        "DynamicUser"
    )]
    name: &str,
) {
    assert!(settings("etc/systemd/lfpd@.service").iter().all(|(it, _)| it != name));
}

/// The user, made by systemd's own program from the file as shipped, in a root directory of the
/// test's.
#[test]
#[ignore = "needs programs: tests/run"]
fn systemd_sysusers_makes_the_user() {
    let root = tempfile::tempdir().unwrap();
    let place = root.path().join("usr/lib/sysusers.d");
    fs::create_dir_all(root.path().join("etc")).unwrap();
    fs::create_dir_all(&place).unwrap();
    fs::copy(shipped("etc/sysusers.d/lfpd.conf"), place.join("lfpd.conf")).unwrap();
    run(Command::new("systemd-sysusers").arg("--root").arg(root.path()), "systemd");
    let passwd = fs::read_to_string(root.path().join("etc/passwd")).unwrap();
    let line = passwd.lines().find(|line| line.starts_with("lfpd:")).expect("a user lfpd");
    let fields: Vec<&str> = line.split(':').collect();
    let uid: u32 = fields[2].parse().unwrap();
    assert!(uid > 0 && uid < 1000, "{line}");
    assert!(fields[6].ends_with("/nologin"), "{line}");
}

/// The directories, where the lock directory is closed as on Fedora: the service gets in, and
/// nobody else.
#[test]
#[ignore = "needs root: tests/run"]
fn the_directories() {
    let sandbox = Sandbox::layout()
        .lock_dir("0755", "root:root")
        .bring("lfpd.conf", shipped("etc/tmpfiles.d/lfpd.conf"))
        .enter();
    let made = sandbox.command("systemd-tmpfiles").args(["--create", "/run/test/lfpd.conf"]).run();
    assert_eq!(made.code(), 0, "{made}");
    let state = fs::metadata(sandbox.path("/run/lfpd")).unwrap();
    assert_eq!((state.uid(), state.mode() & 0o7777), (User::Lfpd.uid(), 0o755));
    for (user, writes) in [(User::Lfpd, 0), (User::Alice, 1), (User::Uucp, 1)] {
        let end = sandbox.command("test").args(["-w", "/run/lock"]).user(user).run();
        assert_eq!(end.code(), writes, "{user:?}");
    }
}

/// The port has one number everywhere.
#[test]
fn the_services_line() {
    let services = text("etc/services.lfp");
    let words: Vec<&str> = services.split_whitespace().take(2).collect();
    assert_eq!(words, ["lfp", "50001/tcp"]);
    assert!(text("xinetd.d/lfpd").contains("port\t\t= 50001"));
    assert!(text("inetd.conf.example").contains("\n127.0.0.1:lfp stream tcp nowait"));
}

/// Nothing that is shipped starts the service as root.
#[test]
fn no_shipped_file_starts_the_service_as_root() {
    let line = text("inetd.conf.example");
    let line = line.lines().find(|line| !line.starts_with('#')).unwrap();
    assert_eq!(line.split_whitespace().nth(4), Some("uucp"));
    assert!(text("xinetd.d/lfpd").contains("user\t\t= uucp"));
}
