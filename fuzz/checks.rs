//! What must hold for any bytes at all: shared by the fuzz targets and by the ordinary test that
//! replays their corpus. A violation panics.

use lfpd::limits::{ECHO_CHARS, LINE_BYTES, REPLY_BYTES};
use lfpd::protocol::command::{self, Command};
use lfpd::protocol::command::{Framer, Line};
use lfpd::protocol::reply::{Identity, Reply, Version, Waiting};
use ttylock::{Content, DeviceName};

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

/// A lock file names one process or two. The decimal number that `sscanf` reads in it is one of them, and a living one is
/// the holder, whichever it is.
pub(crate) fn lock_file(content: &[u8]) {
    let is_space = |byte: &u8| matches!(byte, b' ' | 9..=13);
    let text: Vec<u8> = content.iter().copied().skip_while(is_space).collect();
    let digits = text.strip_prefix(b"+").unwrap_or(&text);
    let digits = digits.iter().take_while(|byte| byte.is_ascii_digit()).copied().collect();
    let number = String::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
    let number = number.filter(|number: &i32| *number > 0);
    let Ok(read) = Content::parse(content) else {
        assert_eq!(number, None);
        return;
    };
    let pids: Vec<i32> = read.pids().map(|pid| pid.as_raw()).collect();
    assert!(matches!(pids.as_slice(), [_] | [_, _]) && pids.iter().all(|pid| *pid > 0));
    assert!(number.is_none_or(|number| pids.contains(&number)));
    for pid in pids {
        assert_eq!(read.holder(|living| living.as_raw() == pid).as_raw(), pid);
    }
    assert!(read.note.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()));
}

fn below_dev(device: &DeviceName) {
    let path = device.below_dev();
    let plain = |part| matches!(part, std::path::Component::Normal(_));
    assert!(path.is_relative() && path.components().all(plain));
    assert!(device.as_str().bytes().all(|byte| byte.is_ascii_graphic()));
}
