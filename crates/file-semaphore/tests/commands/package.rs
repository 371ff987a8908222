//! The Debian package: built by `cargo deb`, installed into a system of its own (this one's files,
//! with everything that is written kept apart), used and removed there.

use testbed::Package;

/// What the package is expected to install, in order.
const FILES: &str = "\
/usr/bin/sema
/usr/bin/semats
/usr/share/bash-completion/completions/sema
/usr/share/bash-completion/completions/semats
/usr/share/doc/file-semaphore/changelog.Debian.gz
/usr/share/doc/file-semaphore/copyright
/usr/share/doc/file-semaphore/sema.md
/usr/share/doc/file-semaphore/semaphores.md
/usr/share/fish/vendor_completions.d/sema.fish
/usr/share/fish/vendor_completions.d/semats.fish
/usr/share/lintian/overrides/file-semaphore
/usr/share/man/man1/sema.1.gz
/usr/share/man/man1/semats.1.gz
/usr/share/man/man5/sema.5.gz
/usr/share/zsh/vendor-completions/_sema
/usr/share/zsh/vendor-completions/_semats
";

#[test]
#[ignore = "needs root: tests/run"]
fn the_package_brings_the_programs_and_their_manual() {
    let package = Package::build("file-semaphore", env!("CARGO_TARGET_TMPDIR"));
    package.assert_faultless();
    let (said, code) = package.run(
        "for file in $(dpkg -L file-semaphore); do [ -d $file ] || echo $file; done | LC_ALL=C sort
         dpkg --verify file-semaphore
         for page in sema semats 'sema(5)'; do man $page | head -1 >&2; done
         sema --version; semats --version
         cd /tmp; sema run -n here.lock semats status here.lock | head -1
         dpkg --no-triggers --purge file-semaphore >/dev/null; ls /usr/bin/sema /usr/share/doc/file-semaphore 2>&1 | wc -l",
    );
    let (files, rest) = said.split_once("SEMA(1)").expect(&said);
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(files, FILES, "{said}");
    assert!(rest.contains("SEMATS(1)") && rest.contains("SEMA(5)"), "{said}");
    let used = format!("sema {version}\nsemats {version}\nlocked: true\n2\n");
    assert!(rest.ends_with(&used), "{said}");
    assert_eq!(code, Some(0), "{said}");
}
