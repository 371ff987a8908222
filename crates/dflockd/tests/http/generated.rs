//! A client that a generator makes of the document that the server serves.

use crate::site::Site;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use testbed::{local, peer};

/// For the generator, on a busy machine.
const LIMIT: Duration = Duration::from_secs(100);

#[test]
#[ignore = "needs programs: tests/run"]
fn a_generated_client_takes_renews_and_releases() {
    let site = Site::start(&[]);
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("openapi.json"), site.get("/v1/openapi.json").body).unwrap();
    // Otherwise it formats what it writes, by a program that is not in its path.
    fs::write(dir.path().join("settings.yml"), "post_hooks: []\n").unwrap();
    let python = |words: &[&str]| {
        let path = format!("{}:.", peer("openapi-client", "").display());
        let mut command = Command::new("/usr/bin/python3");
        command
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("LC_ALL", "C.UTF-8")
            .env("HOME", dir.path());
        command.env("PYTHONPATH", path).env("PYTHONDONTWRITEBYTECODE", "1");
        local::start(command.current_dir(dir.path()).args(words)).end_in(LIMIT)
    };
    let words = ["-m", "openapi_python_client", "generate", "--path", "openapi.json"];
    let more = ["--meta", "none", "--output-path", "generated", "--config", "settings.yml"];
    let made = python(&[&words[..], &more].concat());
    assert_eq!((made.code, &*made.err), (0, ""), "{made:?}");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/http/by_document.py");
    let end = python(&[script.to_str().unwrap(), &site.url("")]);
    assert_eq!((end.code, &*end.out), (0, "all is as the document says\n"), "{end:?}");
}
