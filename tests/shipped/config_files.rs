//! The files this project ships for other programs. Those programs read them in `package_deb.rs`.

use rstest::rstest;
use testbed::shipped;

/// The settings of a unit file, in order, without comments and sections.
fn settings(file: &str) -> Vec<(String, String)> {
    shipped(file)
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
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

/// The port has one number everywhere.
#[test]
fn the_services_line() {
    let services = shipped("etc/services.lfp");
    let words: Vec<&str> = services.split_whitespace().take(2).collect();
    assert_eq!(words, ["lfp", "50001/tcp"]);
    assert!(shipped("xinetd.d/lfpd").contains("port\t\t= 50001"));
    assert!(shipped("inetd.conf.example").contains("\n127.0.0.1:lfp stream tcp nowait"));
}

/// Nothing that is shipped starts the service as root.
#[test]
fn no_shipped_file_starts_the_service_as_root() {
    let line = shipped("inetd.conf.example");
    let line = line.lines().find(|line| !line.starts_with('#')).unwrap();
    assert_eq!(line.split_whitespace().nth(4), Some("uucp"));
    assert!(shipped("xinetd.d/lfpd").contains("user\t\t= uucp"));
}
