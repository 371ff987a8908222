//! What must hold for any bytes: used by the fuzz targets and by ordinary tests.

use crate::model::{Event, Pair};
use leases::wire::{Command, LineCaps, MAX_AUTH_LINE_BYTES, Scan, Watch, parse, scan};
use leases::{AutoRelease, MAX_KEY_BYTES, MAX_KEYS};

/// A stream of requests: every byte is used once, cutting the stream anywhere changes nothing.
pub(crate) fn requests(bytes: &[u8]) {
    for caps in [LineCaps::Usual, LineCaps::BeforeAuth(MAX_AUTH_LINE_BYTES)] {
        let mut at = 0;
        while let Scan::Frame { lines, used } = scan(&bytes[at..], caps) {
            assert!(used >= 3 && used <= bytes.len() - at);
            assert!(lines.iter().all(|line| line.len() <= MAX_AUTH_LINE_BYTES));
            // Without its last byte the same frame is not whole.
            let shorter = scan(&bytes[at..at + used - 1], caps);
            assert_eq!(shorter, Scan::Partial { lines: 2 });
            match parse(lines) {
                Ok(Command::Lock(request)) => {
                    assert!((1..=MAX_KEYS).contains(&request.keys().count()));
                    for key in request.keys().iter() {
                        let key = key.bytes();
                        assert!(!key.is_empty() && key.len() <= MAX_KEY_BYTES);
                        assert!(!key.iter().any(|b| b" \t\r\n".contains(b)));
                    }
                }
                Ok(
                    Command::Auth(_)
                    | Command::Ping
                    | Command::Hello { .. }
                    | Command::Stats { .. },
                ) => {}
                Ok(Command::Name(_) | Command::Value(_) | Command::Grace) => {}
                Ok(Command::Watch(Watch { key, .. }) | Command::KeyStats(key)) => {
                    assert!(!key.bytes().iter().any(|b| b" \t\r\n".contains(b)));
                }
                Err(fault) => assert!((3..=13).contains(&fault.code())),
            }
            at += used;
        }
    }
}

/// A list of events: engine and model agree.
pub(crate) fn events(bytes: &[u8]) {
    let Some((&[first], rest)) = bytes.split_first_chunk::<1>() else {
        return;
    };
    let auto = if first & 1 == 0 { AutoRelease::On } else { AutoRelease::Off };
    let mut pair = Pair::new(auto, usize::from(first >> 1) % 3, u64::from(first >> 5) % 3);
    for chunk in rest.chunks_exact(5).take(900) {
        let chunk: [u8; 5] = chunk.try_into().expect("chunks of five");
        pair.apply(&Event::decode(chunk));
    }
    pair.finish();
}
