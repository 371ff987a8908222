//! Where recipes of the documents are run: a directory, a network of its own, and a server.

use crate::program::{End, apart, patient, start};
use std::fs;
use std::path::Path;
use std::time::Duration;

/// The block of docs/dflock.md behind `<!-- run: NAME -->`, as one would copy it.
pub(crate) fn recipe(name: &str) -> String {
    block("dflock.md", name)
}

/// The same of another page.
pub(crate) fn block(page: &str, name: &str) -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page);
    let page = fs::read_to_string(page).unwrap();
    let (_, rest) = page.split_once(&format!("<!-- run: {name} -->\n\n")).expect(name);
    let lines = rest.lines().take_while(|line| line.is_empty() || line.starts_with("    "));
    lines.map(|line| line.strip_prefix("    ").unwrap_or_default().to_owned() + "\n").collect()
}

/// Some of the programs take seconds of a processor, and the machine may be busy.
const LIMIT: Duration = Duration::from_secs(170);

/// A directory to be in, with programs that the recipes run.
pub(crate) struct Kitchen(tempfile::TempDir);

impl Kitchen {
    pub(crate) fn new(programs: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for (name, script) in programs {
            let file = dir.path().join(name);
            testbed::script(&file, &format!("#!/bin/sh\n{script}\n"));
        }
        Self(dir)
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Runs a script there, with a server unless it brings its own.
    pub(crate) fn cook(&self, script: &str) -> End {
        let server = if script.contains("dflockd --tls") {
            ""
        } else {
            "dflockd 2>/dev/null & until dflock ping >/dev/null 2>&1; do sleep 0.05; done\n"
        };
        self.boil(&format!("{server}{script}"))
    }

    /// Runs a script there, with what it starts.
    pub(crate) fn boil(&self, script: &str) -> End {
        let script = format!("set -u; ip link set lo up\n{script}");
        let mut command = apart(&script, &[self.0.path()]);
        command.current_dir(self.0.path());
        command.env("PYTHONPATH", testbed::peer("dflockd-client-2.1.1", ""));
        patient(start(&mut command).end_in(LIMIT))
    }

    pub(crate) fn lines(&self, file: &str) -> Vec<String> {
        let text = fs::read_to_string(self.0.path().join(file)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

/// A server with its HTTP port, where the recipes look for it.
pub(crate) const HTTP_SERVER: &str = "dflockd --http-port 6389 2>/dev/null &
    until curl -fs localhost:6389/ready >/dev/null; do sleep 0.05; done\n";
