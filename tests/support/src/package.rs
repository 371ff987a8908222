//! A Debian package: built by `cargo deb`, and installed into a system of its own (this one's files,
//! with everything that is written kept apart), to be looked at and started there.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Once;

use crate::peers::workspace;
use crate::programs::{cargo, library, program};
use crate::until::{LIMIT, until};

/// Packages of the workspace that were built, and are installed together.
#[derive(Clone, Debug)]
pub struct Package {
    files: Vec<PathBuf>,
}

/// Makes a control group that is the root of all that the commands behind it see (cgroup_namespaces(7)): several
/// systemds at once in one group would remove each other's groups. The commands themselves are in a group below, because
/// systemd wants the root for itself.
const APART: &str = r#"
mount --make-rprivate /
mount -t cgroup2 cgroup "$SCRATCH"
mkdir -p "$SCRATCH/$GROUP/outside"
echo $$ >"$SCRATCH/$GROUP/cgroup.procs"
exec unshare --cgroup sh -ec '
    echo $$ >"$SCRATCH/$GROUP/outside/cgroup.procs"
    umount "$SCRATCH"
    exec "$@"
' sh "$@"
"#;

/// Removes that group.
const APART_NO_MORE: &str = r#"
mount --make-rprivate /
mount -t cgroup2 cgroup "$SCRATCH"
find "$SCRATCH/$GROUP" -depth -type d -exec rmdir {} +
"#;

/// Makes a system of its own with a closed `/run/lock`, as newer systemd has it, and installs the
/// package into it.
const INSTALL: &str = r#"
set -eu
export DEBIAN_FRONTEND=noninteractive PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8
ip link set lo up
mount --make-rprivate /
mount -t tmpfs tmpfs "$SCRATCH"
cd "$SCRATCH"
mkdir upper work root
mount -t overlay overlay -o lowerdir=/,upperdir=upper,workdir=work root
mount -t sysfs sysfs root/sys -o ro
mount -t cgroup2 cgroup root/sys/fs/cgroup
for place in run dev tmp; do mount -t tmpfs tmpfs root/$place; done
mkdir -m 0755 root/run/lock
for device in null/3 zero/5 full/7 random/8 urandom/9; do
    mknod -m 666 root/dev/${device%/*} c 1 ${device#*/}
done
mknod -m 666 root/dev/tty c 5 0
# A port for the members of one group, which has no name here.
mknod -m 660 root/dev/ttyS0 c 4 64
chgrp 1000 root/dev/ttyS0
# The private /dev of a service is made after this one.
mkdir root/dev/pts root/dev/shm
mount -t devpts devpts root/dev/pts -o newinstance
ln -s pts/ptmx root/dev/ptmx
mkdir root/packages
printf '%s\n' "$PACKAGES" | while read -r file; do cp "$file" root/packages/; done
inside() { unshare --pid --fork --kill-child --mount-proc="$SCRATCH/root/proc" chroot root "$@"; }
inside sh -c 'dpkg --no-triggers --install /packages/*' >install.log 2>&1 || { cat install.log; exit 99; }
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
container=docker inside sh -c 'echo $$ >/sys/fs/cgroup/cgroup.procs
    exec /lib/systemd/systemd --log-target=journal' >/dev/null 2>&1 || true
cat root/script.log
"#;

/// When it is said to be made (reproducible-builds.org, SOURCE_DATE_EPOCH).
const MADE: &str = "1763700000";

/// A target directory for `cargo deb`. In the place of a release it has the programs and libraries of the tests, stripped,
/// because an optimized build of them all takes five minutes of processors.
fn built(scratch: &Path) -> PathBuf {
    static ONCE: Once = Once::new();
    // Several test programs make packages at the same time.
    let running = std::env::current_exe().expect("the running test");
    let running = running.file_name().expect("a name").to_string_lossy();
    let target = scratch.join(running.rsplit_once('-').map_or("test", |(name, _)| name));
    let release = target.join("release");
    ONCE.call_once(|| {
        std::fs::create_dir_all(&release).expect("a directory");
        let sema = |name| program("file-semaphore", name, &["cli"]);
        let stripped = Command::new("install")
            .args(["-s", "-t"])
            .arg(&release)
            .args([program("lfpd", "lfpd", &[]), program("lfp-cli", "lfp", &[])])
            .args(["sema", "semats"].map(sema))
            .args(["dflockd", "dflock"].map(|name| program(name, name, &[])))
            .arg(program("liblockdev", "lockdev", &[]))
            .args([library("liblockdev", "liblockdev"), library("lfp-preload", "liblfp_preload")])
            .output()
            .expect("install (package coreutils)");
        assert!(stripped.status.success(), "{}", String::from_utf8_lossy(&stripped.stderr));
    });
    target
}

fn make(name: &str, options: &[&str], file: &Path, target: &Path) {
    let tools = workspace().join("target/tools/bin");
    let path = std::env::var("PATH").expect("a PATH");
    let built = cargo()
        .args(["deb", "--fast", "--locked", "--no-build", "--package", name, "--output"])
        .arg(file)
        .args(options)
        .current_dir(workspace())
        .env("PATH", format!("{}:{path}", tools.display()))
        .env("CARGO_TARGET_DIR", target)
        .env("SOURCE_DATE_EPOCH", MADE)
        .output()
        .expect("cargo");
    let said = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "is cargo-deb installed? run .ci/install\n{said}");
    let finished = Command::new(workspace().join("packaging/debian/finish"))
        .arg(file)
        .env("SOURCE_DATE_EPOCH", MADE)
        .env("DPKG_DEB_COMPRESSOR_LEVEL", "0") // quick rather than small
        .output()
        .expect("dpkg-deb");
    assert!(finished.status.success(), "{}", String::from_utf8_lossy(&finished.stderr));
}

impl Package {
    /// Builds the package of this member of the workspace; `scratch` is the `CARGO_TARGET_TMPDIR`
    /// of the test.
    ///
    /// # Panics
    /// When it cannot be built.
    #[must_use]
    pub fn build(name: &str, scratch: &str) -> Self {
        Self::build_with(name, &[], scratch)
    }

    /// The same with these options of `cargo deb`.
    ///
    /// # Panics
    /// When it cannot be built.
    #[must_use]
    pub fn build_with(name: &str, options: &[&str], scratch: &str) -> Self {
        let scratch = Path::new(scratch);
        let file = scratch.join(format!("{name}{}.deb", options.concat()));
        make(name, options, &file, &built(scratch));
        Self { files: vec![file] }
    }

    /// Made once more, of the same programs, with files that are younger: its bytes.
    ///
    /// # Panics
    /// When it cannot be made.
    #[must_use]
    pub fn made_again(name: &str, scratch: &str) -> Vec<u8> {
        let scratch = Path::new(scratch);
        let file = scratch.join(format!("{name}-again.deb"));
        let target = built(scratch);
        let program = target.join("release").join(name);
        let program = std::fs::File::options().write(true).open(program).expect("the program");
        program.set_modified(std::time::SystemTime::now()).expect("its time");
        make(name, &[], &file, &target);
        std::fs::read(&file).expect("the package")
    }

    /// Together with another one.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.files.extend(other.files);
        self
    }

    /// The file of the first.
    ///
    /// # Panics
    /// Never: there is one.
    #[must_use]
    pub fn file(&self) -> &Path {
        self.files.first().expect("a package")
    }

    /// Debian's own judge of packages has nothing to say against them. A package that does not ask Debian
    /// for a place in its archive has no request there to close.
    ///
    /// # Panics
    /// When it has, or is not installed.
    pub fn assert_faultless(&self) {
        let judged = Command::new("lintian")
            .args(["--fail-on", "error,warning"])
            .args(["--suppress-tags", "initial-upload-closes-no-bugs"])
            .args(&self.files)
            .output()
            .expect("lintian is not installed: run .ci/install");
        let said = String::from_utf8_lossy(&judged.stdout).into_owned();
        let said = said + &String::from_utf8_lossy(&judged.stderr);
        assert!(judged.status.success(), "{said}");
    }

    /// Installs it, from `/packages`, and runs a script there as root. Returns what that printed,
    /// and the exit code.
    ///
    /// # Panics
    /// When no system can be made.
    #[must_use]
    pub fn run(&self, script: &str) -> (String, Option<i32>) {
        self.installed(RUN, script)
    }

    /// The same under systemd as process 1, when the sockets it has been told of listen.
    ///
    /// # Panics
    /// When no system can be made.
    #[must_use]
    pub fn boot(&self, script: &str) -> (String, Option<i32>) {
        self.installed(BOOT, script)
    }

    fn installed(&self, how: &str, script: &str) -> (String, Option<i32>) {
        let scratch = tempfile::tempdir().expect("a directory");
        let group = scratch.path().file_name().expect("a name");
        let output = Command::new("timeout")
            .args(["--signal=KILL", "300", "unshare", "--mount", "sh", "-ec", APART, "sh"])
            .args(["unshare", "--mount", "--net", "--ipc", "--uts", "--pid", "--fork"])
            .args(["--kill-child", "--mount-proc", "sh", "-c"])
            .arg(format!("{INSTALL}{how}"))
            .env("SCRATCH", scratch.path())
            .env("GROUP", group)
            .env(
                "PACKAGES",
                self.files.iter().map(|file| file.to_string_lossy()).collect::<Vec<_>>().join("\n"),
            )
            .env("SCRIPT", script)
            .output()
            .expect("unshare (package util-linux)");
        // The last processes may not have ended yet.
        let removed = until(LIMIT, || {
            let mut remover = Command::new("unshare");
            remover.args(["--mount", "sh", "-ec", APART_NO_MORE]).stderr(Stdio::null());
            let status = remover.env("SCRATCH", scratch.path()).env("GROUP", group).status();
            status.is_ok_and(|status| status.success()).then_some(())
        });
        assert!(removed.is_some(), "a control group stays: {group:?}");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        (said + &String::from_utf8_lossy(&output.stderr), output.status.code())
    }
}
