//! The Debian package: built by `cargo deb`, installed into a system of its own (this one's files,
//! with everything that is written kept apart), checked, started, used and removed there.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use testbed::Package;

use crate::package_recipes;

fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The package, built once.
pub(crate) fn package() -> &'static Package {
    static PACKAGE: OnceLock<Package> = OnceLock::new();
    PACKAGE.get_or_init(|| Package::build("lfpd", env!("CARGO_TARGET_TMPDIR")))
}

/// What is only looked at is looked at in one system: what this part of the script said there.
fn looked_at(part: &str) -> &'static str {
    static SAID: OnceLock<String> = OnceLock::new();
    let said = SAID.get_or_init(|| {
        let (said, code) = package().run(
            "echo '=== files'
             for file in $(dpkg -L lfpd); do [ -d $file ] || echo $file; done
             echo '=== verified'
             dpkg --verify lfpd
             echo >>/usr/share/doc/lfpd/README.md
             dpkg --verify lfpd || true
             echo '=== version'
             lfp --version
             echo '=== manual'
             for page in 'lfp' '7 lfp' 'lfpd'; do man $page | head -1; done
             bash -c '. /usr/share/bash-completion/bash_completion 2>/dev/null; \
                      . /usr/share/bash-completion/completions/lfp; complete -p lfp'
             echo '=== units'
             systemd-analyze verify --recursive-errors=yes \
                 lfpd-unix.socket lfpd-unix.service lfpd.socket lfpd@.service
             echo verified
             systemctl is-enabled lfpd-unix.socket
             systemctl is-enabled lfpd.socket || echo tcp on demand
             systemd-analyze security --offline=yes --threshold=17 lfpd-unix.service | tail -1
             systemd-analyze security --offline=yes --threshold=22 lfpd@.service | tail -1",
        );
        assert_eq!(code, Some(0), "{said}");
        said
    });
    let (_, rest) = said.split_once(&format!("=== {part}\n")).unwrap();
    rest.split_once("\n===").map_or(rest, |(part, _)| part)
}

/// The package has all that `packaging/install` installs, and what only Debian's packages have.
#[test]
#[ignore = "needs root: tests/run"]
fn all_of_it_is_installed() {
    let all = package_recipes::installed("--prefix /usr lfpd");
    let of_debian = |file: String| match file.split('/').nth(3) {
        Some("man") => file + ".gz",
        _ => file.replace("/site-functions/", "/vendor-completions/"),
    };
    let mut expected: BTreeSet<String> = all.into_iter().map(of_debian).collect();
    let more = ["doc/lfpd/changelog.Debian.gz", "doc/lfpd/copyright", "lintian/overrides/lfpd"];
    expected.extend(more.map(|file| format!("/usr/share/{file}")));
    let found: BTreeSet<String> = looked_at("files").lines().map(str::to_owned).collect();
    assert_eq!(found, expected);
    assert_eq!(looked_at("version"), concat!("lfp ", env!("CARGO_PKG_VERSION")));
}

/// dpkg tells a file that was changed.
#[test]
#[ignore = "needs root: tests/run"]
fn its_files_can_be_verified() {
    assert_eq!(looked_at("verified"), "??5??????   /usr/share/doc/lfpd/README.md");
}

/// The package's version, its maintainer and its changelog speak of one and the same.
#[test]
#[ignore = "needs root: tests/run"]
fn its_changelog_is_of_this_version() {
    let field = |command: &str, words: &[&str]| {
        let output = Command::new(command).args(words).current_dir(workspace()).output();
        let output = output.expect("dpkg and dpkg-dev are not installed: run .ci/install");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    let package = package().file().to_str().expect("a path");
    for name in ["Version", "Maintainer"] {
        let told = field("dpkg-deb", &["--field", package, name]);
        let change = ["--file", "etc/debian/changelog", "--show-field", name];
        assert_eq!(field("dpkg-parsechangelog", &change), told);
    }
    let version = field("dpkg-deb", &["--field", package, "Version"]);
    assert_eq!(version, concat!(env!("CARGO_PKG_VERSION"), "-1"));
}

#[test]
#[ignore = "needs root: tests/run"]
fn its_manual_and_completions_are_found() {
    let said = looked_at("manual");
    for words in ["LFP(1)", "LFP(7)", "LFPD(8)", "-F _lfp"] {
        assert!(said.contains(words), "{words}: {said}");
    }
}

/// systemd finds nothing wrong with the units where they are installed, not even a missing page of
/// the manual; and calls them hardened. 0 is perfect, 10 is none; the threshold is in tenths.
#[test]
#[ignore = "needs root: tests/run"]
fn systemd_accepts_the_units_and_finds_them_hardened() {
    let said = looked_at("units");
    assert!(said.starts_with("verified\nenabled\ndisabled\ntcp on demand\n"), "{said}");
    let scores = said.lines().filter(|line| line.contains("Overall exposure level")).count();
    assert_eq!(scores, 2, "{said}");
    println!("{said}");
}

/// systemd itself starts it, with all its walls up, and it serves a user who may not write the lock
/// directory: on its Unix socket from the start, on TCP when somebody wants that.
#[test]
#[ignore = "needs root: tests/run"]
fn an_installed_package_works() {
    let (said, code) = package().boot(
        r#"
        somebody() { setpriv --reuid=1000 --regid=1000 --clear-groups "$@"; }
        somebody touch /run/lock/x 2>/dev/null && echo the directory is open
        systemctl is-active lfpd-unix.socket
        somebody lfp run --timeout 60 /dev/ttyS0 -- sh -c 'echo $$; cat /run/lock/LCK..ttyS0'
        systemctl is-active lfpd-unix.service
        ls /run/lock/*ttyS0* 2>/dev/null && echo a lock is left
        somebody lfp --json list
        somebody lfp --server 127.0.0.1:50001 lock /dev/ttyS0 2>/dev/null || echo code $?
        systemctl start lfpd.socket
        somebody lfp --server 127.0.0.1:50001 run --timeout 60 /dev/ttyS0 -- echo over TCP 2>/complaint || true
        cat /complaint
        ! [ -s /complaint ] || journalctl --no-pager --output short-precise --lines 60
        stat -c %U /run/lfpd
        systemctl list-units --failed --no-legend 'lfp*'
        "#,
    );
    assert_eq!(code, Some(0), "{said}");
    let lines: Vec<&str> = said.lines().map(str::trim).collect();
    let [socket, pid, locked, service, rest @ ..] = lines.as_slice() else { panic!("{said}") };
    assert_eq!([*socket, *service], ["active", "active"], "{said}");
    assert_eq!(pid, locked, "{said}");
    assert!(pid.parse::<u32>().is_ok(), "{said}");
    let list = "{\"complete\":false,\"service\":true,\"devices\":[]}";
    assert_eq!(rest, [list, "code 69", "over TCP", "lfpd"], "{said}");
}

/// In a directory where files are their owners', the service removes what a crashed program of
/// another user left.
#[test]
#[ignore = "needs root: tests/run"]
fn an_installed_package_takes_over_locks_of_crashed_programs() {
    let (said, code) = package().boot(
        r#"
        chmod 1777 /run/lock
        setpriv --reuid=1234 --regid=1234 --clear-groups \
            sh -c 'printf "%10d\n" 4000000 >/run/lock/LCK..ttyS0'
        setpriv --reuid=1000 --regid=1000 --clear-groups lfp run --timeout 60 /dev/ttyS0 -- echo taken over
        "#,
    );
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(said, "taken over\n");
}

/// The holder of a port keeps it while the package is replaced by a newer one, removed and put back; the service is
/// the new one's, and what the administrator enabled stays so.
#[test]
#[ignore = "needs root: tests/run"]
fn an_upgrade_and_a_removal_lose_no_lock() {
    let (said, code) = package().boot(
        r#"
        somebody() { setpriv --reuid=1000 --regid=1000 --clear-groups "$@"; }
        # Test machines may have one that lets packages start nothing.
        rm -f /usr/sbin/policy-rc.d
        locked() { somebody lfp run /dev/ttyS0 -- true 2>/dev/null || echo "$1: code $?"; }
        dpkg-deb --raw-extract /packages/lfpd.deb /tmp/newer
        sed -i 's/^Version: .*/Version: 99-1/' /tmp/newer/DEBIAN/control
        dpkg-deb -Znone --build /tmp/newer /tmp/newer.deb >/dev/null
        systemctl --quiet enable lfpd.socket
        somebody lfp run --timeout 30 /dev/ttyS0 -- sh -c 'echo >/tmp/has; exec sleep 1000' 2>/dev/null &
        until [ -e /tmp/has ]; do sleep 0.1; done
        locked before
        first=$(systemctl show --property=MainPID --value lfpd-unix.service)

        dpkg --no-triggers --install /tmp/newer.deb >/dev/null 2>&1
        dpkg-query --show --showformat '${Version}
' lfpd
        locked upgraded
        [ "$(systemctl show --property=MainPID --value lfpd-unix.service)" != "$first" ] && echo anew
        systemctl is-enabled lfpd.socket

        dpkg --no-triggers --remove lfpd >/dev/null 2>&1
        systemctl is-active lfpd-unix.socket lfpd-unix.service || true
        ls /run/lock/LCK*
        dpkg --no-triggers --install /packages/lfpd.deb >/dev/null 2>&1
        systemctl is-active lfpd-unix.socket
        systemctl is-enabled lfpd.socket lfpd-unix.socket
        locked again
        "#,
    );
    assert_eq!(code, Some(0), "{said}");
    let expected = "before: code 1\n99-1\nupgraded: code 1\nanew\nenabled\ninactive\ninactive\n\
                    /run/lock/LCK..ttyS0\nactive\nenabled\nenabled\nagain: code 1\n";
    assert_eq!(said, expected);
}

/// Nothing is left behind but the user, whose number must not be given to somebody else: no links
/// to units that are gone, no right of the user's.
#[test]
#[ignore = "needs root: tests/run"]
fn purging_the_package_leaves_nothing_but_its_user() {
    let (said, code) = package().run(
        "getfacl --omit-header --absolute-names /run/lock | grep ^user:lfpd
         systemctl --quiet enable lfpd.socket
         dpkg --no-triggers --purge lfpd >/dev/null
         find /etc /usr /run /var/lib/systemd -xdev -iname '*lfp*' -newer /packages
         find /etc /usr /var/lib -xdev -xtype l -newer /packages
         getfacl --omit-header --absolute-names /run/lock | grep ^user:lfpd || echo no right
         ls -d /run/lfpd 2>/dev/null || echo gone
         getent passwd lfpd | cut -d: -f1",
    );
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(said, "user:lfpd:rwx\nno right\ngone\nlfpd\n");
}

/// The same files and the same SOURCE_DATE_EPOCH make the same bytes, whenever that is done.
#[test]
#[ignore = "needs root: tests/run"]
fn the_package_is_reproducible() {
    let first = std::fs::read(package().file()).unwrap();
    let again = Package::made_again("lfpd", env!("CARGO_TARGET_TMPDIR"));
    assert!(first == again, "the two packages differ");
}
