//! The Debian package: built by `cargo deb`, installed into a system of its own (this one's files,
//! with everything that is written kept apart), checked, started, used and removed there.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// What cargo-deb is expected to put into the package, in order.
const FILES: &str = "\
/usr/bin/lfp
/usr/lib/systemd/system/lfpd-unix.service
/usr/lib/systemd/system/lfpd-unix.socket
/usr/lib/systemd/system/lfpd.socket
/usr/lib/systemd/system/lfpd@.service
/usr/lib/sysusers.d/lfpd.conf
/usr/lib/tmpfiles.d/lfpd.conf
/usr/sbin/lfpd
/usr/share/bash-completion/completions/lfp
/usr/share/bash-completion/completions/lfpd
/usr/share/doc/lfpd/NEWS.md
/usr/share/doc/lfpd/README.md
/usr/share/doc/lfpd/SECURITY.md
/usr/share/doc/lfpd/changelog.Debian.gz
/usr/share/doc/lfpd/copyright
/usr/share/doc/lfpd/examples/inetd.conf.example
/usr/share/doc/lfpd/examples/services.lfp
/usr/share/doc/lfpd/examples/xinetd.d/lfpd
/usr/share/fish/vendor_completions.d/lfp.fish
/usr/share/fish/vendor_completions.d/lfpd.fish
/usr/share/man/man1/lfp.1.gz
/usr/share/man/man7/lfp.7.gz
/usr/share/man/man8/lfpd.8.gz
/usr/share/zsh/vendor-completions/_lfp
/usr/share/zsh/vendor-completions/_lfpd
";

fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The package, built once.
#[expect(clippy::expect_used, reason = "a panic is how a test fails")]
fn package() -> &'static Path {
    static PACKAGE: OnceLock<PathBuf> = OnceLock::new();
    PACKAGE.get_or_init(|| {
        let scratch = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let target = scratch.parent().expect("the target directory");
        let package = scratch.join("lfpd.deb");
        let tools = workspace().join("target/tools/bin");
        let path = std::env::var("PATH").expect("a PATH");
        let built = Command::new(env!("CARGO"))
            .args(["deb", "--locked", "--package", "lfpd", "--output"])
            .arg(&package)
            .current_dir(workspace())
            .env("PATH", format!("{}:{path}", tools.display()))
            .env("CARGO_TARGET_DIR", target)
            .output()
            .expect("cargo");
        let said = String::from_utf8_lossy(&built.stderr);
        assert!(built.status.success(), "is cargo-deb installed? run .ci/install\n{said}");
        package
    })
}

/// Makes a system of its own with a closed `/run/lock`, as newer systemd has it, and installs the
/// package into it.
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
mkdir -m 0755 root/run/lock
mknod -m 666 root/dev/null c 1 3
mknod -m 666 root/dev/urandom c 1 9
mknod -m 600 root/dev/ttyS0 c 4 64
cp "$PACKAGE" root/lfpd.deb
inside() { unshare --pid --fork --kill-child --mount-proc="$SCRATCH/root/proc" chroot root "$@"; }
inside dpkg --no-triggers --install /lfpd.deb >install.log 2>&1 || { cat install.log; exit 99; }
"#;

/// Runs a script there as root.
const RUN: &str = r#"inside sh -ec "$SCRIPT" 2>&1"#;

/// Starts systemd there as process 1, with its sockets; runs the script when they listen; and ends.
const BOOT: &str = r#"
units=root/etc/systemd/system
mkdir -p $units/basic.target.wants
ln -sf /usr/lib/systemd/system/basic.target $units/default.target
# Debian's own line opens the directory; this one in its place leaves it closed.
mkdir -p root/etc/tmpfiles.d
echo 'd /run/lock 0755 root root -' >root/etc/tmpfiles.d/debian.conf
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
        "for file in $(dpkg -L lfpd); do [ -d $file ] || echo $file; done | LC_ALL=C sort
         dpkg --verify lfpd
         lfp --version >&2",
    );
    let (files, version) = said.rsplit_once("lfp ").unwrap();
    assert_eq!(files, FILES, "{said}");
    assert_eq!(version.trim(), env!("CARGO_PKG_VERSION"));
    assert_eq!(code, Some(0), "{said}");
}

/// The package's version, its maintainer and its changelog speak of one and the same.
#[test]
fn its_changelog_is_of_this_version() {
    let field = |command: &str, words: &[&str]| {
        let output = Command::new(command).args(words).current_dir(workspace()).output();
        let output = output.expect("dpkg and dpkg-dev are not installed: run .ci/install");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    let package = package().to_str().expect("a path");
    for name in ["Version", "Maintainer"] {
        let told = field("dpkg-deb", &["--field", package, name]);
        let change = ["--file", "etc/debian/changelog", "--show-field", name];
        assert_eq!(field("dpkg-parsechangelog", &change), told);
    }
    let version = field("dpkg-deb", &["--field", package, "Version"]);
    assert_eq!(version, concat!(env!("CARGO_PKG_VERSION"), "-1"));
    let maintainer = field("dpkg-deb", &["--field", package, "Maintainer"]);
    assert!(maintainer.starts_with(concat!(env!("CARGO_PKG_AUTHORS"), " <")), "{maintainer}");
}

#[test]
fn its_manual_and_completions_are_found() {
    let (said, code) = installed(
        RUN,
        "for page in 'lfp' '7 lfp' 'lfpd'; do man $page | head -1; done
         bash -c '. /usr/share/bash-completion/bash_completion 2>/dev/null; \
                  . /usr/share/bash-completion/completions/lfp; complete -p lfp'",
    );
    assert_eq!(code, Some(0), "{said}");
    for words in ["LFP(1)", "LFP(7)", "LFPD(8)", "-F _lfp"] {
        assert!(said.contains(words), "{words}: {said}");
    }
}

/// systemd finds nothing wrong with the units where they are installed, not even a missing page of
/// the manual; and calls them hardened. 0 is perfect, 10 is none; the threshold is in tenths.
#[test]
fn its_units_are_good() {
    let (said, code) = installed(
        RUN,
        "systemd-analyze verify --recursive-errors=yes \
             lfpd-unix.socket lfpd-unix.service lfpd.socket lfpd@.service
         echo verified
         systemctl is-enabled lfpd-unix.socket
         systemctl is-enabled lfpd.socket || echo tcp on demand
         systemd-analyze security --offline=yes --threshold=15 lfpd-unix.service | tail -1
         systemd-analyze security --offline=yes --threshold=20 lfpd@.service | tail -1",
    );
    assert_eq!(code, Some(0), "{said}");
    assert!(said.starts_with("verified\nenabled\ndisabled\ntcp on demand\n"), "{said}");
    let scores = said.lines().filter(|line| line.contains("Overall exposure level")).count();
    assert_eq!(scores, 2, "{said}");
    println!("{said}");
}

/// systemd itself starts it, with all its walls up, and it serves a user who may not write the lock
/// directory: on its Unix socket from the start, on TCP when somebody wants that.
#[test]
fn it_works_where_it_is_installed() {
    let (said, code) = installed(
        BOOT,
        r#"
        nobody() { setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }
        nobody touch /run/lock/x 2>/dev/null && echo the directory is open
        systemctl is-active lfpd-unix.socket
        nobody lfp run --timeout 5 /dev/ttyS0 -- sh -c 'echo $$; cat /run/lock/LCK..ttyS0'
        systemctl is-active lfpd-unix.service
        ls /run/lock/*ttyS0* 2>/dev/null && echo a lock is left
        nobody lfp --json list
        nobody lfp --server 127.0.0.1:50001 lock /dev/ttyS0 2>/dev/null || echo code $?
        systemctl start lfpd.socket
        nobody lfp --server 127.0.0.1:50001 run /dev/ttyS0 -- echo over TCP
        stat -c %U /run/lfpd
        systemctl --failed --no-legend
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

/// Nothing is left behind but the user, whose number must not be given to somebody else.
#[test]
fn it_goes_without_a_trace() {
    let (said, code) = installed(
        RUN,
        "dpkg --no-triggers --purge lfpd >/dev/null
         find /etc /usr /run /var/lib/systemd -xdev -iname '*lfp*' -newer /lfpd.deb
         ls -d /run/lfpd 2>/dev/null || echo gone
         getent passwd lfpd | cut -d: -f1",
    );
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(said, "gone\nlfpd\n");
}
