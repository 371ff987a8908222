//! What must hold for any bytes at all: shared by the fuzz targets and by the ordinary test that
//! replays their corpus. A violation panics.

use lfpd::limits::{ECHO_CHARS, LINE_BYTES, REPLY_BYTES};
use lfpd::protocol::command::{self, Command};
use lfpd::protocol::line::{Framer, Line};
use lfpd::protocol::reply::{Identity, Reply, Version, Waiting};
use ttylock::DeviceName;

fn lines<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Vec<Line> {
    let mut framer = Framer::new();
    let mut lines = Vec::new();
    for mut piece in pieces {
        while let Some(line) = framer.next_line(&mut piece) {
            lines.push(line);
        }
        assert!(piece.is_empty(), "every byte is taken");
    }
    lines
}

/// The first byte says how the rest is cut; the lines are the same however it is cut, and none
/// is longer than the limit.
pub(crate) fn line(data: &[u8]) {
    let Some((size, stream)) = data.split_first() else { return };
    let whole = lines(std::iter::once(stream));
    assert_eq!(lines(stream.chunks(usize::from(*size).max(1))), whole);
    for line in whole {
        match line {
            Line::Whole(text) => assert!(text.len() < LINE_BYTES && !text.contains(&b'\n')),
            Line::TooLong(text) => assert_eq!(text.len(), ECHO_CHARS),
        }
    }
}

/// A line is a command with a device below `/dev` and a pid that can be, or it is refused; the
/// echo of it is clean.
pub(crate) fn command(line: &[u8]) {
    for waiting in [Waiting::Offered, Waiting::NotOffered] {
        match command::parse(line, waiting) {
            Ok(Command::Lock(request) | Command::Unlock(request) | Command::Wait(request, _)) => {
                assert!(request.pid.as_raw() > 0);
                below_dev(&request.device);
            }
            Ok(Command::Status(Some(device))) => below_dev(&device),
            Ok(_) | Err(_) => {}
        }
    }
    let identity = Identity::new(b"host", Version::original());
    let reply = Reply::NotUnderstood.encode(&identity, line);
    let text = reply.strip_suffix("\r\n");
    assert!(reply.len() < REPLY_BYTES);
    assert!(text.is_some_and(|text| text.bytes().all(|byte| (b' '..=b'~').contains(&byte))));
}

fn below_dev(device: &DeviceName) {
    let path = device.below_dev();
    let plain = |part| matches!(part, std::path::Component::Normal(_));
    assert!(path.is_relative() && path.components().all(plain));
    assert!(device.as_str().bytes().all(|byte| byte.is_ascii_graphic()));
}
