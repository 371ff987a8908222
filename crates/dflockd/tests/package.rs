//! The Debian packages of server and client: built by `cargo deb`, installed into a system of its own (this one's files,
//! with everything that is written kept apart), checked, started, used and removed there.

use std::sync::OnceLock;

use testbed::Package;

/// What the packages are expected to install, in order.
const FILES: &str = "\
/etc/default/dflockd
/usr/bin/dflock
/usr/lib/systemd/system/dflockd.service
/usr/lib/systemd/system/dflockd.socket
/usr/sbin/dflockd
/usr/share/bash-completion/completions/dflock
/usr/share/bash-completion/completions/dflockd
/usr/share/doc/dflock/changelog.Debian.gz
/usr/share/doc/dflock/copyright
/usr/share/doc/dflock/dflock.md
/usr/share/doc/dflock/kubernetes.md
/usr/share/doc/dflock/lock-server.md
/usr/share/doc/dflock/twenty-machines.md
/usr/share/doc/dflock/what-happens-when.md
/usr/share/doc/dflockd/changelog.Debian.gz
/usr/share/doc/dflockd/copyright
/usr/share/doc/dflockd/dflock.md
/usr/share/doc/dflockd/examples/Dockerfile
/usr/share/doc/dflockd/examples/compose.yaml
/usr/share/doc/dflockd/examples/dflockd.json
/usr/share/doc/dflockd/examples/dflockd.rules.yml
/usr/share/doc/dflockd/examples/dflockd@.service
/usr/share/doc/dflockd/kubernetes.md
/usr/share/doc/dflockd/lock-server.md
/usr/share/doc/dflockd/twenty-machines.md
/usr/share/doc/dflockd/what-happens-when.md
/usr/share/fish/vendor_completions.d/dflock.fish
/usr/share/fish/vendor_completions.d/dflockd.fish
/usr/share/man/man1/dflock.1.gz
/usr/share/man/man8/dflockd.8.gz
/usr/share/zsh/vendor-completions/_dflock
/usr/share/zsh/vendor-completions/_dflockd
";

/// Both packages, built once.
fn packages() -> &'static Package {
    static PACKAGES: OnceLock<Package> = OnceLock::new();
    PACKAGES.get_or_init(|| {
        let build = |name| Package::build(name, env!("CARGO_TARGET_TMPDIR"));
        build("dflockd").and(build("dflock"))
    })
}

#[test]
#[ignore = "needs root: tests/run"]
fn all_of_it_is_installed() {
    let (said, code) = packages().run(
        "for file in $(dpkg -L dflock dflockd); do [ -d $file ] || echo $file; done | LC_ALL=C sort -u
         dpkg --verify dflock dflockd
         for page in 'dflock' 'dflockd'; do man $page | head -1 >&2; done
         dflock --version; dflockd --version",
    );
    let (files, rest) = said.split_once("DFLOCK(1)").expect(&said);
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(files, FILES, "{said}");
    assert!(rest.contains("DFLOCKD(8)"), "{said}");
    assert!(rest.ends_with(&format!("dflock {version}\ndflockd {version}\n")), "{said}");
    assert_eq!(code, Some(0), "{said}");
}

#[test]
#[ignore = "needs root: tests/run"]
fn debian_finds_no_fault() {
    packages().assert_faultless();
}

/// systemd finds nothing wrong with the units where they are installed, not even a missing page of
/// the manual; nothing is started unasked; and the service is hardened. 0 is perfect, 10 is none;
/// the threshold is in tenths.
#[test]
#[ignore = "needs root: tests/run"]
fn systemd_accepts_the_units_and_finds_them_hardened() {
    let (said, code) = packages().run(
        "systemd-analyze verify --recursive-errors=yes dflockd.socket dflockd.service
         echo verified
         systemctl is-enabled dflockd.socket || true
         systemctl is-enabled dflockd.service || true
         systemd-analyze security --offline=yes --threshold=20 dflockd.service | tail -1",
    );
    assert_eq!(code, Some(0), "{said}");
    assert!(said.starts_with("verified\ndisabled\ndisabled\n"), "{said}");
    assert!(said.contains("Overall exposure level"), "{said}");
}

/// systemd itself starts it, with all its walls up: by its socket at the first request; the fences
/// grow across a restart, nobody is refused meanwhile, and settings come from /etc/default.
#[test]
#[ignore = "needs root: tests/run"]
fn an_installed_package_works() {
    let (said, code) = packages().boot(
        r#"
        nobody() { setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }
        systemctl enable --now dflockd.socket 2>/dev/null
        systemctl is-active dflockd.socket dflockd.service || true
        first=$(nobody dflock run k -- sh -c 'echo $DFLOCK_FENCE')
        systemctl is-active dflockd.service
        systemctl show --property=DynamicUser --value dflockd.service
        echo DFLOCKD_DEFAULT_LEASE_TTL_S=7 >>/etc/default/dflockd
        systemctl restart dflockd.service
        second=$(nobody dflock run k -- sh -c 'echo $DFLOCK_FENCE')
        [ "$second" -gt "$first" ] && echo fences grow
        nobody dflock acquire k --hold --json </dev/null | grep -o '"ttl_s":[0-9]*'
        nobody cat /var/lib/dflockd/fence 2>/dev/null || echo private
        chmod 600 /etc/default/dflockd
        echo DFLOCKD_AUTH_TOKEN=sesame >>/etc/default/dflockd
        systemctl restart dflockd.service
        nobody dflock ping >/dev/null 2>&1 || echo code $?
        DFLOCK_AUTH_TOKEN=sesame nobody dflock ping -q && echo let in
        sed -i '/sesame/d' /etc/default/dflockd
        systemctl restart dflockd.service
        dpkg-deb --raw-extract /packages/dflockd.deb /tmp/newer
        sed -i 's/^Version: .*/Version: 99-1/' /tmp/newer/DEBIAN/control
        dpkg-deb --build /tmp/newer /tmp/newer.deb >/dev/null
        server=$(systemctl show --property=MainPID --value dflockd.service)
        dpkg --no-triggers --install /tmp/newer.deb >/dev/null 2>&1
        dpkg-query --show --showformat '${Version}\n' dflockd
        [ "$(systemctl show --property=MainPID --value dflockd.service)" = "$server" ] && echo left alone
        systemctl stop dflockd.socket dflockd.service
        nobody dflock ping 2>/dev/null || echo code $?
        systemctl list-units --failed --no-legend 'dflock*'
        "#,
    );
    assert_eq!(code, Some(0), "{said}");
    let lines: Vec<&str> = said.lines().map(str::trim).collect();
    let expected = [
        "active",
        "inactive",
        "active",
        "yes",
        "fences grow",
        "\"ttl_s\":7",
        "private",
        "code 77",
        "let in",
        "99-1",
        "left alone",
        "code 69",
    ];
    assert_eq!(lines, expected, "{said}");
}

/// The command that `packaging/install` prints starts the service with its socket, and the lines of
/// /etc/default/dflockd change its address.
#[test]
#[ignore = "needs root: tests/run"]
fn the_address_is_changed_as_the_settings_say() {
    let install = include_str!("../../../packaging/install");
    let (_, units) = install.split_once("dflockd) units=\"$units ").expect("its units");
    let units = units.split('"').next().unwrap_or_default();
    let script = r#"
        elsewhere() { dflock --server 127.0.0.2:6388 --patience 1 ping -q 2>/dev/null; }
        systemctl enable --now UNITS 2>/dev/null
        systemctl is-active dflockd.socket dflockd.service
        dflock ping -q && echo here
        elsewhere || echo here only
        mkdir /etc/systemd/system/dflockd.socket.d
        sed -n '/^#   \[Socket\]/,/^# [^ ]/s/^#   //p' /etc/default/dflockd \
            >/etc/systemd/system/dflockd.socket.d/override.conf
        systemctl daemon-reload
        eval "$(sed -n 's/^#   systemctl/systemctl/p' /etc/default/dflockd)"
        systemctl is-active dflockd.socket dflockd.service
        dflock --server 127.0.0.2:6388 ping -q && echo elsewhere
        "#;
    let (said, code) = packages().boot(&script.replace("UNITS", units));
    assert_eq!(code, Some(0), "{said}");
    let lines: Vec<&str> = said.lines().map(str::trim).collect();
    let expected = ["active", "active", "here", "here only", "active", "active", "elsewhere"];
    assert_eq!(lines, expected, "{said}");
}

/// A removal masks the units and keeps the settings. After the package is installed again, both are as they were.
#[test]
#[ignore = "needs root: tests/run"]
fn a_reinstalled_package_finds_its_units_and_settings() {
    let (said, code) = packages().run(
        "systemctl --quiet enable dflockd.socket
         echo DFLOCKD_MAX_LOCKS=7 >>/etc/default/dflockd
         dpkg --no-triggers --remove dflockd >/dev/null 2>&1
         systemctl is-enabled dflockd.socket || true
         dpkg --no-triggers --force-confold --install /packages/dflockd.deb >/dev/null 2>&1
         systemctl is-enabled dflockd.socket
         tail -n 1 /etc/default/dflockd",
    );
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(said, "masked\nenabled\nDFLOCKD_MAX_LOCKS=7\n");
}

#[test]
#[ignore = "needs root: tests/run"]
fn purging_the_packages_leaves_nothing() {
    let (said, code) = packages().run(
        "systemctl --quiet enable dflockd.socket dflockd.service
         mkdir -p /var/lib/private/dflockd; touch /var/lib/private/dflockd/fence
         dpkg --no-triggers --purge dflockd dflock >/dev/null
         find /etc /usr /run /var/lib/private /var/lib/systemd -xdev -iname '*dflock*' \
             -newer /packages
         find /etc /usr /var/lib -xdev -xtype l -newer /packages
         echo gone",
    );
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(said, "gone\n");
}
