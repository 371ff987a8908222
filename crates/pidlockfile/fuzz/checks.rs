// What must hold for any bytes, shared by the fuzz target and the ordinary tests that replay its
// corpus: both include this file in a module whose crate has the parsers.

use crate::name::Name;
use crate::process::{Ids, Pid, PidError, Stat};
use crate::temporary::{fresh, maker};

pub(crate) fn every_parser(data: &[u8]) {
    pid(data);
    numbers_of_the_kernel(data);
    if let Ok(text) = std::str::from_utf8(data) {
        name(text);
        temporary_name(text);
    }
}

/// Against another way to read a number: as text, without leading zeros.
fn pid(data: &[u8]) {
    let digits = data.strip_prefix(b"-").unwrap_or(data);
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let bare: Vec<u8> = digits.iter().copied().skip_while(|b| *b == b'0').collect();
    let fits = (1..=10).contains(&bare.len())
        && (bare.len() < 10 || bare.as_slice() <= b"2147483647".as_slice());
    match Pid::parse(data) {
        Ok(pid) => {
            assert!(is_number && fits && digits.len() == data.len());
            assert_eq!(pid.to_string().as_bytes(), bare);
            assert_eq!(Pid::new(pid.as_raw().into()), Some(pid));
        }
        Err(PidError::OutOfRange) => assert!(is_number && (!fits || data.starts_with(b"-"))),
        Err(PidError::Malformed) => assert!(!is_number),
    }
}

fn numbers_of_the_kernel(data: &[u8]) {
    let stands_there = |number: &str| data.windows(number.len()).any(|w| w == number.as_bytes());
    let is_plain = |number: &str| stands_there(number) || data.contains(&b'0');
    if let Some(stat) = Stat::parse(data) {
        assert!(is_plain(&stat.start.to_string()));
        assert!(data.contains(&b')'));
    }
    let text = std::str::from_utf8(data).ok();
    if let Some(users) = text.and_then(|text| Ids::in_status(text, "Uid:")) {
        let Ids { real, effective, saved } = users;
        assert!([real, effective, saved].iter().all(|uid| is_plain(&uid.to_string())));
        assert!(stands_there("Uid:"));
    }
}

fn name(text: &str) {
    let fits = (1..=255).contains(&text.len());
    let plain = !matches!(text, "." | "..") && !text.contains(['/', '\0']);
    assert_eq!(Name::new(text).is_some(), fits && plain);
}

fn temporary_name(text: &str) {
    for (at, _) in text.match_indices('.') {
        let prefix = text.get(..at).unwrap_or_default();
        let Some(pid) = maker(text, prefix) else { continue };
        let rest = text.get(at..).unwrap_or_default();
        // Nothing but the prefix, a number, sixteen digits and the ending.
        assert!(rest.ends_with(".tmp") && rest.split('.').count() == 4, "{text:?}");
        assert_eq!(rest.split('.').nth(2).map(str::len), Some(16));
        assert_eq!(maker(fresh(prefix, pid), prefix), Some(pid));
    }
    let own = fresh(text, Pid::this());
    assert_eq!(maker(&own, text), Some(Pid::this()));
}
