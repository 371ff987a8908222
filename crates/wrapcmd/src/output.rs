//! Writes to standard output, at once and completely, and reports failures.

use std::io::{self, Write};

/// Writes all of a text to standard output. A reader that stops early (`| head`) is not a failure; a full disk is
/// one, which the caller must report.
///
/// # Errors
/// The text, or a part of it, could not be written.
pub fn print(text: &str) -> io::Result<()> {
    write(&mut io::stdout().lock(), text)
}

fn write(to: &mut impl Write, text: &str) -> io::Result<()> {
    match to.write_all(text.as_bytes()).and_then(|()| to.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        outcome => outcome,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails at the one or the other, as a buffered output may.
    struct Failing {
        at_write: Option<io::ErrorKind>,
        at_flush: Option<io::ErrorKind>,
    }

    impl Write for Failing {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.at_write.map_or(Ok(bytes.len()), |kind| Err(kind.into()))
        }
        fn flush(&mut self) -> io::Result<()> {
            self.at_flush.map_or(Ok(()), |kind| Err(kind.into()))
        }
    }

    #[test]
    fn only_a_closed_pipe_is_no_failure() {
        use io::ErrorKind::{BrokenPipe, StorageFull};
        let table = [
            (None, None, None),
            (Some(BrokenPipe), None, None),
            (None, Some(BrokenPipe), None),
            (Some(StorageFull), None, Some(StorageFull)),
            (None, Some(StorageFull), Some(StorageFull)),
        ];
        for (at_write, at_flush, told) in table {
            let outcome = write(&mut Failing { at_write, at_flush }, "x");
            assert_eq!(outcome.map_err(|error| error.kind()).err(), told);
        }
    }
}
