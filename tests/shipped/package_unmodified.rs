//! The Debian packages for unmodified programs: installed together with the service
//! into a system of their own, looked at, and used there by an ordinary user.

use testbed::Package;

use crate::package_deb;

const LOCKED: &str = r#"
chmod 666 /dev/ttyS0
as_user() { setpriv --reuid=1234 --regid=1234 --clear-groups "$@"; }
echo "from $(dirname "$(find /usr/lib -name liblfp_preload.so)")"
stat -c 'mode %a' "$(find /usr/lib -name liblfp_preload.so)"

# The service is started by the first who asks, which may take longer than a program should wait.
as_user touch /run/lock/LCK..ttyS0 2>/dev/null || echo refused without
LFP_TIMEOUT=30 as_user lfp shim -- sh -c 'set -C; echo >/run/lock/LCK..ttyS0 && ls /run/lock'
as_user sh -c 'lockdev -l ttyS0; echo "lockdev $?"; lockdev ttyS0; echo "lockdev $?"; ls /run/lock'

cat >/tmp/program.c <<'C'
#include <lockdev.h>
#include <stdio.h>
int main(void) { printf("linked %d\n", (int)dev_lock("/dev/ttyS0")); return 0; }
C
cc -o /tmp/program /tmp/program.c $(pkg-config --cflags --libs lockdev 2>/dev/null || echo -llockdev)
as_user /tmp/program

dpkg-query -W -f '${Package} ${Provides} ${Conflicts}\n' lfp-preload liblockdev1-lfp liblockdev1-lfp-dev lockdev-lfp
man -w liblfp_preload lockdev >/dev/null && echo documented
dpkg --no-triggers --purge lfp-preload liblockdev1-lfp liblockdev1-lfp-dev lockdev-lfp >/dev/null
find /usr/lib /usr/include /usr/sbin -name 'liblockdev*' -o -name 'lockdev*' -o -name '*lfp_preload*'
"#;

#[test]
#[ignore = "needs root: tests/run"]
fn the_packages_work_for_an_ordinary_user() {
    let scratch = env!("CARGO_TARGET_TMPDIR");
    let package = package_deb::package()
        .clone()
        .and(Package::build_with("lfp-preload", &["--multiarch=same"], scratch))
        .and(Package::build_with("liblockdev", &["--multiarch=same"], scratch))
        .and(Package::build_with("liblockdev", &["--multiarch=same", "--variant=dev"], scratch))
        .and(Package::build_with("liblockdev", &["--variant=program"], scratch));
    package.assert_faultless();
    let (said, _) = package.boot(LOCKED);
    println!("{said}");
    for expected in [
        "-linux-gnu/lfp\n",
        "mode 644\n",
        "refused without\n",
        "LCK..ttyS0\n",
        "lockdev 0\nlockdev 1\n",
        "linked 0\n",
        "lfp-preload  \n",
        "liblockdev1-lfp liblockdev1 (= 1.0.3) liblockdev1\n",
        "liblockdev1-lfp-dev liblockdev1-dev (= 1.0.3), liblockdev-dev liblockdev1-dev, liblockdev-dev\n",
        "lockdev-lfp lockdev lockdev\n",
        "documented\n",
    ] {
        assert!(said.contains(expected), "{expected:?} is not in:\n{said}");
    }
    assert!(said.ends_with("documented\n"), "something stays:\n{said}");
}
