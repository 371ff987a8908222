//! The recipes for packages of other systems (`packaging/`): read by the tools that read them there,
//! where Debian has these, and followed with stand-ins for the programs. What each installs is what the
//! Debian packages have, and all speak of the same version.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rstest::rstest;
use testbed::shipped;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What `cargo build --release` makes for the packages.
const PROGRAMS: &str =
    "lfpd lfp sema semats dflockd dflock lockdev liblockdev.so liblfp_preload.so";

const PACKAGES: &str =
    "lfpd lfp-preload liblockdev liblockdev-dev lockdev file-semaphore dflockd dflock";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A place with stand-ins for the programs in `built`.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        fs::create_dir(place.path("built")).unwrap();
        for name in PROGRAMS.split(' ') {
            let file = place.path("built").join(name);
            testbed::script(&file, &format!("#!/bin/sh\necho {name}\n"));
        }
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A script of bash in the root of the workspace, with `$PLACE` and `$BUILT`.
    fn run(&self, script: &str) -> String {
        let bash = Command::new("bash")
            .args(["-eu", "-o", "pipefail", "-c", script])
            .current_dir(root())
            .env("PLACE", self.0.path())
            .env("BUILT", self.path("built"))
            .env("VERSION", VERSION)
            .env("LC_ALL", "C.UTF-8")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&bash.stdout).into_owned();
        let complaints = String::from_utf8_lossy(&bash.stderr);
        assert!(bash.status.success(), "run .ci/install? {said}{complaints}");
        said
    }

    /// The tarball that recipes ask for, in this directory, which it makes.
    fn tarball(&self, name: &str) {
        let script = format!(
            r#"mkdir -p "$PLACE/{name}"
            git -c safe.directory='*' ls-files --cached --others --exclude-standard -z |
                tar --null --files-from=- --transform "s,^,lfpd-$VERSION/," -czf "$PLACE/{name}/lfpd-$VERSION.tar.gz""#
        );
        self.run(&script);
    }

    /// The files below a directory, as they would be named on the machine, less the licences, which
    /// every system keeps elsewhere.
    fn files(&self, name: &str) -> BTreeSet<String> {
        let script = format!("cd \"$PLACE/{name}\" && find . ! -type d -printf '/%P\\n'");
        lines(&self.run(&script)).filter(|file| !file.contains("/licenses/")).collect()
    }
}

fn lines(text: &str) -> impl Iterator<Item = String> {
    text.lines().map(str::to_owned)
}

/// What the script that all recipes use installs with these words.
pub(crate) fn installed(words: &str) -> BTreeSet<String> {
    lines(&Place::new().run(&format!("packaging/install --list {words}"))).collect()
}

/// Every line that names a version of ours, in whatever way that system writes it.
#[rstest]
#[case::rpm("packaging/rpm/lfpd.spec", "Version:        ")]
#[case::arch("packaging/arch/PKGBUILD", "pkgver=")]
#[case::alpine("packaging/alpine/APKBUILD", "pkgver=")]
#[case::nix("packaging/nix/package.nix", "version = ")]
#[case::openwrt("packaging/openwrt/Makefile", "PKG_VERSION:=")]
#[case::freebsd("packaging/freebsd/Makefile", "DISTVERSION=")]
#[case::python_lfp_serial("python/lfp-serial/pyproject.toml", "version = ")]
#[case::python_dflock("python/dflock/pyproject.toml", "version = ")]
#[case::chart("packaging/kubernetes/chart/Chart.yaml", "version: ")]
#[case::chart_of("packaging/kubernetes/chart/Chart.yaml", "appVersion: ")]
fn all_recipes_have_the_same_version(#[case] file: &str, #[case] name: &str) {
    let text = shipped(file);
    let line = text.lines().find_map(|line| line.trim().strip_prefix(name.trim_end()));
    let told = line.unwrap().trim_matches(|c: char| !c.is_ascii_digit());
    assert_eq!(told, VERSION, "{file}");
}

/// The contact and the home page stand once, in Cargo.toml; `packaging/contact` copies them everywhere.
#[test]
fn all_recipes_have_the_same_contact() {
    let manifest = shipped("Cargo.toml");
    let contact = |name: &str| {
        let line = manifest.lines().find_map(|line| line.strip_prefix(&format!("{name} = \"")));
        line.unwrap().trim_end_matches('"').to_owned()
    };
    let (maintainer, home) = (contact("maintainer"), contact("home"));
    for file in [
        "debian/control",
        "packaging/rpm/lfpd.spec",
        "packaging/arch/PKGBUILD",
        "packaging/alpine/APKBUILD",
        "packaging/openwrt/Makefile",
        "crates/dflock/Cargo.toml",
        "crates/dflockd/Cargo.toml",
        "crates/file-semaphore/Cargo.toml",
        "crates/lfp-preload/Cargo.toml",
        "crates/liblockdev/Cargo.toml",
    ] {
        assert!(shipped(file).contains(&maintainer), "{file}");
    }
    for file in ["python/lfp-serial/pyproject.toml", "python/dflock/pyproject.toml", "debian/watch"]
    {
        assert!(shipped(file).contains(&home), "{file}");
    }
    for file in ["rpm/lfpd.spec", "arch/PKGBUILD", "alpine/APKBUILD", "nix/package.nix"] {
        let text = shipped(&format!("packaging/{file}"));
        assert!(text.contains(&home), "{file}");
    }
    let security = shipped("SECURITY.md");
    let address = contact("security");
    assert!(security.lines().take(8).any(|line| line.contains(&address)), "{address}");
}

#[test]
#[ignore = "needs programs: tests/run"]
fn shells_find_no_fault() {
    let scripts = "packaging/install packaging/contact packaging/release packaging/reproducible packaging/vendor \
        packaging/static \
        packaging/debian/* packaging/openrc/* packaging/openwrt/files/* \
        packaging/alpine/lfpd.pre-install packaging/arch/lfpd.install";
    Place::new().run(&format!(
        "for file in {scripts}; do case $(head -n 1 $file) in
             '#!/usr/bin/env bash') shellcheck -s bash $file ;;
             '#!'*python*) ;;
             *) shellcheck -s dash $file ;;
         esac; done
         shellcheck -s bash -e SC2034,SC2154,SC2164,SC2128 packaging/arch/PKGBUILD
         shellcheck -s dash -e SC2034,SC2154,SC2164 packaging/alpine/APKBUILD"
    ));
}

/// Where it is installed, every installation of a library goes over it.
#[test]
fn ldconfig_passes_over_the_linkers_script() {
    let said = Place::new().run(
        r#"mkdir "$PLACE/lib" && cp crates/liblockdev/dev/liblockdev.so "$PLACE/lib"
        /sbin/ldconfig -n -N "$PLACE/lib" 2>&1"#,
    );
    assert_eq!(said, "");
}

/// What a program for Linux is made of is named with its holders and licence, in Debian's form and in Fedora's.
#[test]
fn every_bundled_crate_has_its_holders_named() {
    let said = Place::new().run(
        "cargo tree --locked --offline -p lfpd -p lfp-cli -p lfp-preload -p liblockdev -p file-semaphore -p dflockd \
             -p dflock --all-features --edges normal --target x86_64-unknown-linux-gnu --prefix none |
             sed -n '/ (\\/\\|^$/!s/^\\([^ ]*\\) v\\([^ ]*\\).*/\\1 \\2/p' | sort -u",
    );
    let bundled: BTreeSet<String> = lines(&said).collect();
    assert!(bundled.len() > 50, "{said}");
    let fedora = shipped("packaging/rpm/LICENSE.dependencies");
    let of_fedora = lines(&fedora).map(|line| {
        let (_, crate_and_holders) = line.split_once(": ").unwrap();
        let (name, holders) = crate_and_holders.split_once(" (").unwrap();
        assert!(holders.len() > 3, "{line}");
        name.to_owned()
    });
    assert_eq!(of_fedora.collect::<BTreeSet<_>>(), bundled, "run packaging/licences");
    let spec = shipped("packaging/rpm/lfpd.spec");
    let licence = spec.lines().find(|line| line.starts_with("License:")).unwrap();
    for line in fedora.lines() {
        let (expression, _) = line.split_once(": ").unwrap();
        for name in expression.split([' ', '/', '(', ')']) {
            assert!(licence.contains(name), "the spec's licence lacks {name}");
        }
    }
    let debian = shipped("etc/debian/copyright");
    for name in bundled {
        let stanza = format!("\nFiles: vendor/{}/*\nCopyright: ", name.replace(' ', "-"));
        assert!(debian.contains(&stanza), "run packaging/licences: {name}");
    }
}

/// Whatever the programs of a package are, `debian/` builds it too, and installs by the script that all use.
#[test]
fn debian_builds_the_same_packages() {
    let control = shipped("debian/control");
    let rules = shipped("debian/rules");
    let packages: Vec<&str> =
        control.lines().filter_map(|line| line.strip_prefix("Package: ")).collect();
    assert_eq!(packages.len(), 8, "{packages:?}");
    for package in packages {
        assert!(rules.contains(&format!("$(call install,{package},")), "{package}");
    }
}

#[test]
#[ignore = "needs programs: tests/run"]
fn nix_reads_it() {
    Place::new()
        .run(r#"export NIX_STATE_DIR="$PLACE/nix"
        for file in flake.nix packaging/nix/*.nix; do nix-instantiate --parse $file >/dev/null; done"#);
    let crates = shipped("flake.nix");
    for name in ["lfpd", "lfp-preload", "file-semaphore", "dflockd", "dflock"] {
        assert!(crates.contains(&format!("name = \"{name}\"")), "{name}");
    }
}

/// What the module makes of the options, by Nix itself. The functions of its library are replaced by the least that they
/// do.
#[rstest]
#[case::nothing("{}", "{}", "{}")]
#[case::lfpd("{ lfpd = true; }", "{ lfpd-unix = [ \"sockets.target\" ]; }", "{}")]
#[case::dflockd(
    "{ dflockd = true; }",
    "{ dflockd = [ \"sockets.target\" ]; }",
    "{ dflockd = { DFLOCKD_MAX_LOCKS = \"5\"; }; }"
)]
#[ignore = "needs programs: tests/run"]
fn the_module_of_nix_starts_what_is_on(
    #[case] on: &str,
    #[case] sockets: &str,
    #[case] services: &str,
) {
    let expression = format!(
        r#"let
            on = {{ lfpd = false; dflockd = false; }} // {on};
            packages = {{ lfpd = "lfpd"; dflockd = "dflockd"; dflock = "dflock"; }};
            merge = builtins.foldl' (all: one: {{
                sockets = all.sockets // (one.systemd.sockets or {{ }});
                services = all.services // (one.systemd.services or {{ }});
            }}) {{ sockets = {{ }}; services = {{ }}; }};
            module = import ./packaging/nix/module.nix {{ packages.here = packages; }} {{
                pkgs.stdenv.hostPlatform.system = "here";
                config.services.lfpd.enable = on.lfpd;
                config.services.dflockd = {{
                    enable = on.dflockd;
                    address = "[::]:6388";
                    settings.DFLOCKD_MAX_LOCKS = "5";
                }};
                lib = {{
                    mkEnableOption = text: text;
                    mkOption = option: option;
                    mkMerge = merge;
                    mkIf = is: what: if is then what else {{ }};
                    types = {{ str = "str"; attrsOf = type: type; }};
                }};
            }};
            wanted = builtins.mapAttrs (_: socket: socket.wantedBy) module.config.sockets;
            environment = builtins.mapAttrs (_: service: service.environment) module.config.services;
        in assert wanted == {sockets}; assert environment == {services}; "as it should be""#
    );
    let said = Place::new().run(&format!(
        "export NIX_STATE_DIR=\"$PLACE/nix\"\nnix-instantiate --eval --strict - <<'end'\n{expression}\nend\n"
    ));
    assert_eq!(said.trim_end(), "\"as it should be\"");
}

/// Public CI: an auditor of its files finds no fault, in the version that public CI itself uses.
#[test]
#[ignore = "needs programs: tests/run"]
fn the_workflows_are_sound() {
    let packages = shipped(".ci/python");
    let version = packages.lines().find_map(|line| line.strip_prefix("zizmor ")?.split(' ').next());
    let version = version.expect("a version of zizmor");
    assert!(
        shipped(".github/workflows/ci.yml").contains(&format!("pip install zizmor=={version}\n"))
    );
    let zizmor = testbed::peer(&format!("zizmor-{version}"), "bin/zizmor");
    Place::new().run(&format!("{} --offline --no-progress --quiet .github", zizmor.display()));
}

/// The archive of static programs has what an installation has, is unpacked in `/`, and is the same each time.
#[test]
#[ignore = "needs programs: tests/run"]
fn the_archive_of_static_programs_is_complete() {
    let place = Place::new();
    place.run(
        r#"export SOURCE_DATE_EPOCH=1000000000
        for once in a b; do
            packaging/static --output "$PLACE/$once" --target here --built "$BUILT" --init none lfpd
        done
        cmp "$PLACE"/[ab]/*.tar.gz
        mkdir "$PLACE/root" && tar -xzf "$PLACE"/a/lfpd-*-here.tar.gz -C "$PLACE/root"
        "$PLACE/root/usr/local/bin/lfp" --version >&2"#,
    );
    assert_eq!(place.files("root"), installed("--init none lfpd"));
}

#[test]
#[ignore = "needs programs: tests/run"]
fn apparmor_reads_it() {
    // An ordinary user's PATH may lack it.
    Place::new()
        .run("PATH=$PATH:/usr/sbin; apparmor_parser --skip-kernel-load --skip-cache packaging/apparmor/usr.sbin.lfpd");
}

/// Built from a tarball by rpmbuild; installed into an empty system, verified and removed by rpm.
#[test]
#[ignore = "needs programs: tests/run"]
fn rpm_packages_install_all_and_go() {
    let place = Place::new();
    place.tarball("");
    let said = place.run(
        r#"
        cp packaging/rpm/LICENSE.dependencies "$PLACE"
        # Debian's rpm has none of systemd's macros.
        rpmbuild -bb --nodeps --define "_topdir $PLACE/top" --define "_sourcedir $PLACE" \
            --define "_rpmdir $PLACE/rpms" --define "built $BUILT" --define "_unitdir /usr/lib/systemd/system" \
            --define "_sysusersdir /usr/lib/sysusers.d" --define "_tmpfilesdir /usr/lib/tmpfiles.d" \
            packaging/rpm/lfpd.spec >"$PLACE/log" 2>&1 ||
            { cat "$PLACE/log"; exit 1; }
        mkdir "$PLACE/root"
        rpm() { command rpm --root "$PLACE/root" --define '_dbpath /var/lib/rpm' "$@"; }
        rpm --nodeps --noscripts --install "$PLACE"/rpms/*/*.rpm >&2
        rpm --verify --nodeps --all
        rpm --query --all --queryformat '%{NAME} %{VERSION}\n' | sort
        rpm --query --provides dflockd | grep -c '^bundled(crate(.*)) = '
        cp -a "$PLACE/root" "$PLACE/installed"
        rm -rf "$PLACE/installed/var/lib/rpm"
        rpm --query --all | xargs rpm --root "$PLACE/root" --define '_dbpath /var/lib/rpm' --noscripts --erase >&2
        find "$PLACE/root" ! -type d ! -path "$PLACE/root/var/lib/rpm/*" -printf 'left: %P\n'
        "#,
    );
    let names = ["dflock", "dflockd", "file-semaphore", "lfp-preload", "lfpd", "lockdev-lfp"];
    let licences = shipped("packaging/rpm/LICENSE.dependencies");
    let crates = licences.lines().count();
    let expected: String = names.map(|name| format!("{name} {VERSION}\n")).concat();
    assert_eq!(said, format!("{expected}{crates}\n"));
    let all = "lfpd lfp-preload liblockdev lockdev file-semaphore dflockd dflock";
    let expected = installed(&format!("--prefix /usr --libdir /usr/lib64 {all}"));
    assert_eq!(place.files("installed"), expected);
}

/// Built from a tarball by makepkg, which refuses to be root; installed into an empty system, verified and
/// removed by pacman.
#[test]
#[ignore = "needs root: tests/run"]
fn arch_packages_install_all_and_go() {
    let place = Place::new();
    place.tarball("make");
    let said = place.run(
        r#"
        cp packaging/arch/* "$PLACE/make"
        # makepkg looks for faults once for each architecture, and takes seconds for each.
        sed -i 's/^arch=.*/arch=(x86_64)/' "$PLACE/make/PKGBUILD"
        chmod 711 "$PLACE"
        user=()
        if [ "$(id -u)" = 0 ]; then
            chown -R nobody "$PLACE/make"
            user=(setpriv --reuid=nobody --regid=nogroup --clear-groups)
        fi
        (cd "$PLACE/make" && HOME=$PWD "${user[@]}" makepkg --nodeps) >"$PLACE/log" 2>&1 ||
            { cat "$PLACE/log"; exit 1; }
        mkdir -p "$PLACE/root/var/lib/pacman"
        printf '[options]\nArchitecture = auto\nSigLevel = Never\n' >"$PLACE/pacman.conf"
        cat >"$PLACE/install" <<'SH'
        pacman() { command pacman --config "$PLACE/pacman.conf" --root "$PLACE/root" --noconfirm "$@"; }
        pacman --upgrade --nodeps --nodeps --noscriptlet --noprogressbar "$PLACE"/make/*.pkg.tar.* >&2
        pacman --query --check --check
        cp -a "$PLACE/root" "$PLACE/installed"
        rm -r "$PLACE/installed/var"
        pacman --query --quiet | pacman --remove --noscriptlet --noprogressbar - >&2
        find "$PLACE/root" -mindepth 1 ! -path "$PLACE/root/var*" -printf 'left: %P\n'
SH
        fakeroot bash -eu -o pipefail "$PLACE/install"
        "#,
    );
    let told: Vec<_> =
        said.lines().map(|line| line.split([':', ',']).collect::<Vec<_>>()).collect();
    let names = ["dflock", "dflockd", "file-semaphore", "lfp-preload", "lfpd", "lockdev-lfp"];
    assert_eq!(told.iter().map(|words| words[0]).collect::<Vec<_>>(), names, "{said}");
    assert!(told.iter().all(|words| words.last() == Some(&" 0 altered files")), "{said}");
    let packed = |file: String| if file.contains("/man/") { format!("{file}.gz") } else { file };
    let expected = installed(&format!("--prefix /usr --sbindir /usr/bin {PACKAGES}"));
    assert_eq!(place.files("installed"), expected.into_iter().map(packed).collect());
}

/// The functions of the APKBUILD, by the shell that runs them there.
#[test]
#[ignore = "needs programs: tests/run"]
fn the_alpine_packages_install_all() {
    let place = Place::new();
    place.run(
        r#"
        cat >"$PLACE/abuild" <<'SH'
        set -eu
        . packaging/alpine/APKBUILD
        test -x "packaging/alpine/$install" || test -e "packaging/alpine/$install"
        builddir=$PWD pkgdir=$PLACE/root subpkgdir=$PLACE/root
        package
        for package in $subpackages; do
            case $package in *:*) cd "$builddir"; ${package##*:} ;; esac
        done
SH
        busybox sh "$PLACE/abuild"
        "#,
    );
    let all = "lfpd file-semaphore dflockd dflock";
    let files = place.files("root");
    assert_eq!(files, installed(&format!("--prefix /usr --init openrc {all}")));
    assert!(files.contains("/etc/init.d/lfpd") && files.contains("/etc/init.d/dflockd"));
}

/// OpenWrt's Makefile by make, with stand-ins for the build system's own.
#[test]
fn the_openwrt_packages_install_what_runs() {
    let place = Place::new();
    place.run(
        r#"
        mkdir -p "$PLACE/include" "$PLACE/feeds/packages/lang/rust"
        touch "$PLACE/feeds/packages/lang/rust/rust-package.mk"
        printf 'INCLUDE_DIR:=$(TOPDIR)/include\nINSTALL_DIR:=install -d\nINSTALL_BIN:=install -m 755\n' >"$PLACE/rules.mk"
        printf 'define BuildPackage\nall: $(1)\n$(1):\n\t$$(call Package/$(1)/install,$(TOPDIR)/root)\nendef\n' \
            >"$PLACE/include/package.mk"
        ln -s "$PWD" "$PLACE/tree"; ln -s "$BUILT" "$PLACE/built" # OpenWrt builds in no path with a blank
        make -s -f packaging/openwrt/Makefile TOPDIR="$PLACE" PKG_BUILD_DIR="$PLACE/tree" BUILT="$PLACE/built" all
        "#,
    );
    let all = installed("--prefix /usr --init procd lfpd dflock file-semaphore");
    let runs = |file: &String| file.contains("bin/") || file.contains("init.d/");
    assert_eq!(place.files("root"), all.into_iter().filter(runs).collect());
}

/// The FreeBSD port by BSD's make, with a stand-in for the ports' own rules.
#[test]
#[ignore = "needs programs: tests/run"]
fn the_freebsd_port_installs_its_list() {
    let place = Place::new();
    place.run(
        r#"
        mkdir "$PLACE/mk" "$PLACE/target"
        ln -s "$BUILT" "$PLACE/target/release"
        echo '.PHONY: do-install' >"$PLACE/mk/bsd.port.mk"
        cd packaging/freebsd
        bmake -m /usr/share/mk -m "$PLACE/mk" STAGEDIR="$PLACE/root" PREFIX=/usr/local WRKSRC="$PWD/../.." \
            CARGO_TARGET_DIR="$PLACE/target" do-install >&2
        "#,
    );
    let list = shipped("packaging/freebsd/pkg-plist");
    let expected = lines(&list).map(|file| format!("/usr/local/{}", file.trim_end_matches(".gz")));
    assert_eq!(place.files("root"), expected.collect());
}

/// From whatever directory they are called.
#[rstest]
fn scripts_explain_themselves(
    #[values(
        "packaging/contact",
        "packaging/debian/build",
        "packaging/debian/finish",
        "packaging/install",
        "packaging/licences",
        "packaging/minimal",
        "packaging/release",
        "packaging/reproducible",
        "packaging/static",
        "packaging/vendor",
        "tests/demo",
        "tests/mutants"
    )]
    script: &str,
) {
    let path = root().join(script);
    let run = |words: &[&str]| {
        let directory = path.parent().unwrap();
        let name = Path::new(".").join(path.file_name().unwrap());
        Command::new(name).args(words).current_dir(directory).output().unwrap()
    };
    for option in ["-h", "--help"] {
        let help = run(&[option]);
        assert_eq!((help.status.code(), &*help.stderr), (Some(0), &b""[..]), "{help:?}");
        assert!(String::from_utf8_lossy(&help.stdout).contains(script), "{help:?}");
    }
    let mut wrong = vec![vec!["--no-such-option"]];
    if script.ends_with("/build") {
        wrong.extend([vec!["--output"], vec!["--no-build", "no-such-package"]]);
    }
    for words in wrong {
        let refused = run(&words);
        let text = String::from_utf8_lossy(&refused.stderr);
        assert_eq!((refused.status.code(), &*refused.stdout), (Some(64), &b""[..]), "{text}");
        assert!(
            text.lines().count() == 1 && text.contains("see ") && text.contains("--help"),
            "{text}"
        );
    }
}

/// Installed by hand below another prefix, what names the programs names them where they are.
#[test]
fn by_hand_all_is_found_below_the_prefix() {
    let place = Place::new();
    place.run(
        r#"packaging/install --destdir "$PLACE/root" --built "$BUILT" lfpd lfp-preload dflockd"#,
    );
    let place_of = |file: &str| place.path("root/usr/local").join(file);
    for file in [
        "lib/systemd/system/lfpd-unix.service",
        "lib/systemd/system/lfpd@.service",
        "lib/systemd/system/dflockd.service",
        "share/doc/lfpd/examples/xinetd.d/lfpd",
        "share/doc/lfpd/examples/inetd.conf.example",
        "share/man/man8/lfpd.8",
    ] {
        let text = fs::read_to_string(place_of(file)).unwrap();
        assert!(text.contains("/usr/local/sbin/") && !text.contains(" /usr/sbin/"), "{file}");
    }
    for (page, path) in [
        ("share/man/man1/lfp.1", "/usr/local/share/doc/lfpd"),
        ("share/man/man7/liblfp_preload.7", "/usr/local/lib/lfp/liblfp_preload.so"),
        ("share/man/man8/lfpd.8", "/usr/local/lib/tmpfiles.d/lfpd.conf"),
        ("share/man/man8/dflockd.8", "/usr/local/share/doc/dflockd/"),
    ] {
        let text = fs::read_to_string(place_of(page)).unwrap();
        let of_packages = ["/usr/share/", "/usr/lib/", "/usr/bin/", "/usr/sbin/"];
        assert!(text.contains(path), "{page}: {path}");
        assert!(!of_packages.iter().any(|it| text.contains(it)), "{page}");
    }
    let mode = |file| fs::metadata(place_of(file)).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode("bin/lfp"), mode("share/man/man1/lfp.1")), (0o755, 0o644));
    assert_eq!(installed("lfpd lfp-preload dflockd").len(), place.files("root").len());
}

/// What each package installs is readable without the others and without the source: a link leads to a file beside it
/// or to another site, a path of a document is there, and so is each manual page of ours that a text names.
#[rstest]
fn the_links_of_a_package_lead_to_what_it_installs(
    #[values("lfpd", "file-semaphore", "dflockd", "dflock")] package: &str,
) {
    let place = Place::new();
    place.run(&format!(
        r#"packaging/install --destdir "$PLACE/root" --prefix /usr --built "$BUILT" {package}"#
    ));
    let files = place.files("root");
    let documents =
        files.iter().filter(|file| file.contains("/share/doc/") && file.ends_with(".md"));
    let mut links = 0;
    for document in documents {
        let here = place.path("root").join(document.trim_start_matches('/'));
        let text = fs::read_to_string(&here).unwrap();
        for link in text.split("](").skip(1).map(|rest| rest.split(')').next().unwrap()) {
            let path = link.split('#').next().unwrap();
            let target = here.parent().unwrap().join(path);
            assert!(
                path.is_empty() || path.contains("://") || target.is_file(),
                "{document}: {link}"
            );
            links += 1;
        }
        for path in
            text.split('`').skip(1).step_by(2).filter(|it| it.starts_with("/usr/share/doc/"))
        {
            let of_this = path.contains(&format!("/{package}/"));
            assert!(!of_this || place.path("root").join(&path[1..]).exists(), "{document}: {path}");
        }
    }
    assert!(links > 1, "{links} links");
}

/// `--uninstall` removes what was installed by hand, except changed settings, and nothing else.
#[test]
fn by_hand_all_of_it_goes_again() {
    let place = Place::new();
    place.run(&format!(r#"packaging/install --destdir "$PLACE/root" --built "$BUILT" {PACKAGES}"#));
    assert!(place.files("root").len() > 50);
    place.run(
        r#"touch "$PLACE/root/usr/local/bin/another"
        echo '# ours' >>"$PLACE/root/etc/default/dflockd""#,
    );
    place.run(&format!(r#"packaging/install --destdir "$PLACE/root" --uninstall {PACKAGES}"#));
    let left: Vec<String> = place.files("root").into_iter().collect();
    assert_eq!(left, ["/etc/default/dflockd", "/usr/local/bin/another"]);
    for directory in ["share/doc/lfpd", "share/doc/dflockd", "lib/lfp"] {
        assert!(!place.path("root/usr/local").join(directory).exists(), "{directory}");
    }
}
