//! The Debian package: built by `cargo deb`, installed into a system of its own (this one's files,
//! with everything that is written kept apart), checked, started, used and removed there.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// What the package is expected to install, in order.
const FILES: &str = "\
/etc/default/dflockd
/usr/bin/dflock
/usr/lib/systemd/system/dflockd.service
/usr/lib/systemd/system/dflockd.socket
/usr/sbin/dflockd
/usr/share/bash-completion/completions/dflock
/usr/share/doc/dflockd/README.md
/usr/share/doc/dflockd/changelog.Debian.gz
/usr/share/doc/dflockd/copyright
/usr/share/fish/vendor_completions.d/dflock.fish
/usr/share/man/man1/dflock.1.gz
/usr/share/man/man8/dflockd.8.gz
/usr/share/zsh/vendor-completions/_dflock
";

/// The package, built once.
#[expect(clippy::expect_used, reason = "a panic is how a test fails")]
fn package() -> &'static Path {
    static PACKAGE: OnceLock<PathBuf> = OnceLock::new();
    PACKAGE.get_or_init(|| {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let scratch = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let target = scratch.parent().expect("the target directory");
        let package = scratch.join("dflockd.deb");
        let tools = workspace.join("target/tools/bin");
        let path = std::env::var("PATH").expect("a PATH");
        let built = Command::new(env!("CARGO"))
            .args(["deb", "--locked", "--package", "dflockd", "--output"])
            .arg(&package)
            .current_dir(&workspace)
            .env("PATH", format!("{}:{path}", tools.display()))
            .env("CARGO_TARGET_DIR", target)
            .output()
            .expect("cargo");
        let said = String::from_utf8_lossy(&built.stderr);
        assert!(built.status.success(), "is cargo-deb installed? run .ci/install\n{said}");
        package
    })
}

/// Makes a system of its own and installs the package into it.
const INSTALL: &str = r#"
set -eu
export DEBIAN_FRONTEND=noninteractive PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8
mount --make-rprivate /
mount -t tmpfs tmpfs "$SCRATCH"
cd "$SCRATCH"
mkdir upper work root
mount -t overlay overlay -o lowerdir=/,upperdir=upper,workdir=work root
mount -t sysfs sysfs root/sys -o ro
mount -t cgroup2 cgroup root/sys/fs/cgroup
for place in run dev tmp; do mount -t tmpfs tmpfs root/$place; done
for device in null/3 zero/5 full/7 random/8 urandom/9; do
    mknod -m 666 root/dev/${device%/*} c 1 ${device#*/}
done
mknod -m 666 root/dev/tty c 5 0
# The service's private /dev is made after this one.
mkdir root/dev/pts root/dev/shm
mount -t devpts devpts root/dev/pts -o newinstance
ln -s pts/ptmx root/dev/ptmx
cp "$PACKAGE" root/dflockd.deb
inside() { unshare --pid --fork --kill-child --mount-proc="$SCRATCH/root/proc" chroot root "$@"; }
inside dpkg --no-triggers --install /dflockd.deb >install.log 2>&1 || { cat install.log; exit 99; }
"#;

/// Runs a script there as root.
const RUN: &str = r#"inside sh -ec "$SCRIPT" 2>&1"#;

/// Starts systemd there as process 1, runs the script when it is up, and ends.
const BOOT: &str = r#"
ip link set lo up
units=root/etc/systemd/system
mkdir -p $units/basic.target.wants
ln -sf /usr/lib/systemd/system/basic.target $units/default.target
printf '%s\n' "$SCRIPT" >root/script
cat >$units/script.service <<'UNIT'
[Unit]
Requires=sockets.target
After=sockets.target
[Service]
Type=oneshot
ExecStart=-/bin/sh -c 'exec sh -e /script >/script.log 2>&1'
ExecStartPost=/bin/systemctl --force --no-block exit 0
UNIT
ln -sf ../script.service $units/basic.target.wants/
container=docker inside /lib/systemd/systemd --log-target=null >/dev/null 2>&1 || true
cat root/script.log
"#;

/// Installs the package and does what `how` says with the script. Returns what it printed, and the
/// exit code.
#[expect(clippy::expect_used, reason = "a panic is how a test fails")]
fn installed(how: &str, script: &str) -> (String, Option<i32>) {
    let scratch = tempfile::tempdir().expect("a directory");
    let output = Command::new("timeout")
        .args(["--signal=KILL", "300", "unshare"])
        .args(["--mount", "--net", "--ipc", "--uts", "--cgroup", "--pid", "--fork"])
        .args(["--kill-child", "--mount-proc", "sh", "-c"])
        .arg(format!("{INSTALL}{how}"))
        .env("SCRATCH", scratch.path())
        .env("PACKAGE", package())
        .env("SCRIPT", script)
        .output()
        .expect("unshare (package util-linux)");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    (said + &String::from_utf8_lossy(&output.stderr), output.status.code())
}

#[test]
fn all_of_it_is_installed() {
    let (said, code) = installed(
        RUN,
        "for file in $(dpkg -L dflockd); do [ -d $file ] || echo $file; done | LC_ALL=C sort
         dpkg --verify dflockd
         for page in 'dflock' 'dflockd'; do man $page | head -1 >&2; done
         dflock --version; dflockd --version",
    );
    let (files, rest) = said.split_once("DFLOCK(1)").expect(&said);
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(files, FILES, "{said}");
    assert!(rest.contains("DFLOCKD(8)"), "{said}");
    assert!(rest.ends_with(&format!("dflock {version}\n{version}\n")), "{said}");
    assert_eq!(code, Some(0), "{said}");
}

/// systemd finds nothing wrong with the units where they are installed, not even a missing page of
/// the manual; nothing is started unasked; and the service is hardened. 0 is perfect, 10 is none;
/// the threshold is in tenths.
#[test]
fn its_units_are_good() {
    let (said, code) = installed(
        RUN,
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
fn it_works_where_it_is_installed() {
    let (said, code) = installed(
        BOOT,
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
        systemctl stop dflockd.socket dflockd.service
        nobody dflock ping 2>/dev/null || echo code $?
        systemctl --failed --no-legend
        "#,
    );
    assert_eq!(code, Some(0), "{said}");
    let lines: Vec<&str> = said.lines().map(str::trim).collect();
    let expected =
        ["active", "inactive", "active", "yes", "fences grow", "\"ttl_s\":7", "private", "code 69"];
    assert_eq!(lines, expected, "{said}");
}

#[test]
fn it_goes_without_a_trace() {
    let (said, code) = installed(
        RUN,
        "mkdir -p /var/lib/private/dflockd; touch /var/lib/private/dflockd/fence
         dpkg --no-triggers --purge dflockd >/dev/null
         find /etc /usr /run /var/lib/private /var/lib/systemd -xdev -iname '*dflock*' \
             -newer /dflockd.deb
         echo gone",
    );
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(said, "gone\n");
}
