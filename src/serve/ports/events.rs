//! The kernel's reports on opened files, as bytes and text. Values in, values out. Pure.
//!
//! Source: fanotify(7), `struct fanotify_event_metadata` and `struct
//! fanotify_event_info_fid`; proc(5) for the marks in `/proc/PID/fdinfo`.

use pidlockfile::Pid;

/// What the kernel calls a file: a type, and bytes that mean something to its file system only.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct FileHandle {
    kind: u32,
    bytes: Vec<u8>,
}

/// A file that is watched: its inode number, and the file system's device by major and minor number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Marked {
    pub(super) inode: u64,
    pub(super) file_system: (u64, u64),
}

/// What a process did to a file, as far as the kernel reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::serve) enum PortUse {
    Opened,
    Closed,
    /// Both; the order and number are unknown.
    Both,
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PortEvent {
    /// A file was opened or closed. The process is unknown where it has no number here.
    At { handle: FileHandle, pid: Option<Pid>, port_use: PortUse },
    /// Nodes came, or changed hands.
    Elsewhere,
    /// More happened than the kernel keeps in mind.
    Lost,
}

/// Bits of an event. Source: the kernel's `include/uapi/linux/fanotify.h`.
const FAN_ATTRIB: u64 = 0x4;
const FAN_CLOSE_WRITE: u64 = 0x8;
const FAN_CLOSE_NOWRITE: u64 = 0x10;
const FAN_CLOSE: u64 = FAN_CLOSE_WRITE | FAN_CLOSE_NOWRITE;
const FAN_OPEN: u64 = 0x20;
const FAN_MOVED_TO: u64 = 0x80;
const FAN_CREATE: u64 = 0x100;
const FAN_Q_OVERFLOW: u64 = 0x4000;

const METADATA_BYTES: usize = 24;
const VERSION: u8 = 3;
/// `FAN_EVENT_INFO_TYPE_FID`.
const FILE_IDENTITY: u8 = 1;

/// The events of one reading. What is cut or of another version ends it.
pub(super) fn parse(mut bytes: &[u8]) -> Vec<PortEvent> {
    let mut events = Vec::new();
    while let Some((event, rest)) = first(bytes) {
        events.extend(port_event(event));
        bytes = rest;
    }
    events
}

fn first(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = usize::try_from(number(bytes, 0)?).ok()?;
    if length < METADATA_BYTES || bytes.get(4) != Some(&VERSION) {
        return None;
    }
    bytes.split_at_checked(length)
}

fn port_event(event: &[u8]) -> Option<PortEvent> {
    let mask = event.get(8..)?.first_chunk().copied().map(u64::from_ne_bytes)?;
    if mask & FAN_Q_OVERFLOW != 0 {
        return Some(PortEvent::Lost);
    }
    let port_use = match (mask & FAN_OPEN != 0, mask & FAN_CLOSE != 0) {
        (true, false) => PortUse::Opened,
        (false, true) => PortUse::Closed,
        (true, true) => PortUse::Both,
        (false, false) => {
            let is_news = mask & (FAN_CREATE | FAN_MOVED_TO | FAN_ATTRIB) != 0;
            return is_news.then_some(PortEvent::Elsewhere);
        }
    };
    let pid = Pid::new(i64::from(number(event, 20)?));
    let handle = handle(event.get(METADATA_BYTES..)?)?;
    Some(PortEvent::At { handle, pid, port_use })
}

/// A header of four bytes with type and length, the file system's identity of eight, and the
/// handle: its length, its type, its bytes.
fn handle(information: &[u8]) -> Option<FileHandle> {
    if information.first() != Some(&FILE_IDENTITY) {
        return None;
    }
    let length = usize::try_from(number(information, 12)?).ok()?;
    let bytes = information.get(20..)?.get(..length)?.to_vec();
    Some(FileHandle { kind: number(information, 16)?, bytes })
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().copied().map(u32::from_ne_bytes)
}

/// The watched files, from the text in which the kernel lists them.
pub(super) fn marks(text: &str) -> Vec<(Marked, FileHandle)> {
    text.lines().filter_map(mark).collect()
}

fn mark(line: &str) -> Option<(Marked, FileHandle)> {
    let words = line.strip_prefix("fanotify ")?;
    let field = |key: &str| words.split_ascii_whitespace().find_map(|word| word.strip_prefix(key));
    let number = |key| u64::from_str_radix(field(key)?, 16).ok();
    // The kernel's own form: twenty bits of minor number.
    let device = number("sdev:")?;
    let file_system = (device >> 20, device & 0xf_ffff);
    let bytes = unhex(field("f_handle:")?)?;
    let kind = u32::try_from(number("fhandle-type:")?).ok()?;
    Some((Marked { inode: number("ino:")?, file_system }, FileHandle { kind, bytes }))
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let pair = |at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    (0..text.len()).step_by(2).map(pair).collect()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    /// As a kernel wrote it for a pseudo-terminal, and what it lists in fdinfo.
    const LISTED: &str = "pos:\t0\nflags:\t02004002\nfanotify flags:203 event-flags:8000\n\
        fanotify ino:1 sdev:6 mflags:0 mask:8000184 ignored_mask:0 fhandle-bytes:c fhandle-type:1 f_handle:5f8970da0100000000000000\n\
        fanotify ino:3 sdev:10001a mflags:0 mask:38 ignored_mask:0 fhandle-bytes:c fhandle-type:81 f_handle:030000000000000000000000\n\
        fanotify ino:4 sdev:1a mask:38 f_handle:0\nfanotify ino:5 sdev:x fhandle-type:1 f_handle:00\n";

    fn terminal() -> FileHandle {
        FileHandle { kind: 0x81, bytes: vec![3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0] }
    }

    fn event(mask: u64, pid: i32) -> Vec<u8> {
        let handle = terminal();
        let mut event = Vec::new();
        event.extend(56_u32.to_ne_bytes());
        event.extend([VERSION, 0, 24, 0]);
        event.extend(mask.to_ne_bytes());
        event.extend((-1_i32).to_ne_bytes());
        event.extend(pid.to_ne_bytes());
        event.extend([FILE_IDENTITY, 0, 32, 0, 0x1a, 0, 0, 0, 0, 0, 0, 0]);
        event.extend(12_u32.to_ne_bytes());
        event.extend(handle.kind.to_ne_bytes());
        event.extend(handle.bytes);
        event
    }

    #[test]
    fn marks_are_read_from_the_kernels_list() {
        let marks = marks(LISTED);
        assert_eq!(marks.len(), 2);
        let bytes = vec![0x5f, 0x89, 0x70, 0xda, 1, 0, 0, 0, 0, 0, 0, 0];
        let directory = Marked { inode: 1, file_system: (0, 6) };
        assert_eq!(marks[0], (directory, FileHandle { kind: 1, bytes }));
        let file_system = (1, 0x1a);
        assert_eq!(marks[1], (Marked { inode: 3, file_system }, terminal()));
    }

    fn at(port_use: PortUse, pid: i64) -> PortEvent {
        PortEvent::At { handle: terminal(), pid: Pid::new(pid), port_use }
    }

    #[rstest]
    #[case::opened(FAN_OPEN, Some(at(PortUse::Opened, 77)))]
    #[case::closed_after_reading(FAN_CLOSE_NOWRITE, Some(at(PortUse::Closed, 77)))]
    #[case::closed_after_writing(FAN_CLOSE_WRITE, Some(at(PortUse::Closed, 77)))]
    #[case::merged(FAN_OPEN | FAN_CLOSE_WRITE, Some(at(PortUse::Both, 77)))]
    #[case::nothing(0, None)]
    #[case::a_node_came(FAN_CREATE, Some(PortEvent::Elsewhere))]
    #[case::a_node_was_moved_here(FAN_MOVED_TO, Some(PortEvent::Elsewhere))]
    #[case::a_node_changed_hands(FAN_ATTRIB, Some(PortEvent::Elsewhere))]
    #[case::overflow(FAN_Q_OVERFLOW, Some(PortEvent::Lost))]
    fn event_masks_are_told_apart(#[case] mask: u64, #[case] expected: Option<PortEvent>) {
        assert_eq!(parse(&event(mask, 77)), Vec::from_iter(expected));
    }

    /// An event may be its metadata and nothing else, one that the kernel has lost for all.
    #[rstest]
    #[case::metadata_alone(METADATA_BYTES, VERSION, &[PortEvent::Lost])]
    #[case::less_than_metadata(METADATA_BYTES - 1, VERSION, &[])]
    #[case::another_version(METADATA_BYTES, VERSION + 1, &[])]
    fn an_event_has_metadata_of_one_version(
        #[case] length: usize,
        #[case] version: u8,
        #[case] expected: &[PortEvent],
    ) {
        let mut bytes = event(FAN_Q_OVERFLOW, 0);
        bytes.truncate(METADATA_BYTES);
        bytes[..4].copy_from_slice(&u32::try_from(length).unwrap().to_ne_bytes());
        bytes[4] = version;
        assert_eq!(parse(&bytes), expected);
    }

    /// Other kinds of information may follow an event's metadata.
    #[test]
    fn information_that_identifies_no_file_is_skipped() {
        let mut other = event(FAN_OPEN, 5);
        other[METADATA_BYTES] = FILE_IDENTITY + 1;
        let both = [other, event(FAN_OPEN, 6)].concat();
        assert_eq!(parse(&both), [at(PortUse::Opened, 6)]);
    }

    /// Cut anywhere, and with any byte another, it neither fails nor invents a file's bytes.
    #[test]
    fn nothing_is_read_beyond_the_end_of_an_event() {
        let two = [event(FAN_OPEN, 5), event(FAN_CLOSE, 0)].concat();
        assert_eq!(parse(&two).len(), 2);
        for length in 0..two.len() {
            assert_eq!(parse(&two[..length]).len(), length / 56);
        }
        for at in 0..two.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut bytes = two.clone();
                bytes[at] = value;
                assert!(parse(&bytes).len() <= 2);
            }
        }
    }
}
