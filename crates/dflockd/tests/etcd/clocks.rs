//! Wall clocks that are a minute fast or slow, and step, for servers that run under libfaketime. The
//! clock that measures elapsed time stays right, as when an administrator sets the time.

use std::cell::Cell;
use std::os::unix::fs::FileExt;
use std::path::Path;
use tempfile::NamedTempFile;

/// The clock of one server.
pub(crate) struct Clock {
    /// Seconds that are added to the time, with a sign; libfaketime reads it each time.
    file: NamedTempFile,
    is_fast: Cell<bool>,
}

impl Clock {
    /// Clocks that are fast and slow by turns.
    pub(crate) fn apart(count: usize) -> Vec<Self> {
        (0..count).map(|number| Self::new(number % 2 == 0)).collect()
    }

    fn new(is_fast: bool) -> Self {
        let it = Self { file: NamedTempFile::new().unwrap(), is_fast: Cell::new(!is_fast) };
        it.step();
        it
    }

    /// From fast to slow, or back.
    pub(crate) fn step(&self) {
        self.is_fast.set(!self.is_fast.get());
        let seconds = if self.is_fast.get() { "+60" } else { "-60" };
        self.file.as_file().write_all_at(seconds.as_bytes(), 0).unwrap();
    }

    /// Of a server with this clock.
    pub(crate) fn environment(&self) -> [(&'static str, String); 4] {
        let arch = std::env::consts::ARCH;
        let library = format!("/usr/lib/{arch}-linux-gnu/faketime/libfaketime.so.1");
        assert!(Path::new(&library).exists(), "libfaketime is missing: run .ci/install");
        [
            ("LD_PRELOAD", library),
            ("FAKETIME_TIMESTAMP_FILE", self.file.path().to_str().unwrap().to_owned()),
            ("FAKETIME_NO_CACHE", "1".to_owned()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
        ]
    }
}
