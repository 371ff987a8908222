//! `dflock watch`: the holder of a key as lines of JSON, whenever it changes.

use super::args::Watch;
use super::outcome::Failure;
use super::sys::{output_closed, told_to_end};
use super::{holder, print_all, reach};
use crate::{Client, Holder};
use jiff::Timestamp;
use serde_json::json;
use std::io::ErrorKind;
use std::pin::pin;
use std::time::SystemTime;
use wrapcmd::Form;

pub(super) async fn watch(wanted: &Watch, client: &Client, form: Form) -> Result<u8, Failure> {
    let key = reach::key(&wanted.key)?;
    let servers = client.servers_of(&key);
    let mut watch = client.watch(key.as_bytes())?;
    let mut is_first = true;
    let shown = wanted.key.to_string_lossy();
    let mut ending = pin!(told_to_end(false));
    loop {
        // Only the first answer comes at once.
        let next = async {
            let next = watch.next();
            if is_first { holder::answered(next, &servers, client, form).await } else { next.await }
        };
        let holder = tokio::select! {
            holder = next => holder?,
            () = output_closed() => return Ok(0),
            code = &mut ending => return code,
        };
        is_first = false;
        let line = line(&shown, holder.as_ref(), SystemTime::now());
        match print_all(format!("{line}\n").as_bytes()) {
            // Nobody reads what is written.
            Err(Failure::System(_, error)) if error.kind() == ErrorKind::BrokenPipe => {
                return Ok(0);
            }
            outcome => outcome?,
        }
        if wanted.once {
            return Ok(0);
        }
    }
}

/// The fence is text, because the number is larger than what JavaScript and jq count exactly.
fn line(key: &str, holder: Option<&Holder>, now: SystemTime) -> String {
    let since = holder.and_then(|holder| now.checked_sub(holder.age)).and_then(date);
    wrapcmd::json(&json!({
        "key": key,
        "holder": holder.and_then(|holder| holder.name.as_deref()),
        "value": holder.and_then(|holder| holder.value.as_deref()),
        "fence": holder.map(|holder| holder.fence.to_string()),
        "since": since,
        "holders": holder.map_or(0, |holder| holder.holders),
    }))
}

/// RFC 3339, in UTC, to the second.
fn date(time: SystemTime) -> Option<String> {
    Timestamp::try_from(time).ok().map(|time| format!("{time:.0}"))
}

#[cfg(test)]
mod tests {
    use super::{date, line};
    use crate::Holder;
    use rstest::rstest;
    use std::time::{Duration, UNIX_EPOCH};

    #[rstest]
    #[case(0, Some("1970-01-01T00:00:00Z"))]
    #[case(951_782_400, Some("2000-02-29T00:00:00Z"))]
    #[case(300_000_000_000, None)]
    fn times_are_written_as_rfc_3339(#[case] unix: u64, #[case] want: Option<&str>) {
        assert_eq!(date(UNIX_EPOCH + Duration::from_secs(unix)).as_deref(), want);
    }

    #[test]
    fn a_line_has_the_same_members_always() {
        let now = UNIX_EPOCH + Duration::from_secs(100);
        let holder = Holder {
            fence: u64::MAX,
            age: Duration::from_secs(40),
            holders: 1,
            name: Some("al".to_owned()),
            value: None,
        };
        let held = r#"{"fence":"18446744073709551615","holder":"al","holders":1,"key":"k","since":"1970-01-01T00:01:00Z","value":null}"#;
        assert_eq!(line("k", Some(&holder), now), held);
        let free =
            r#"{"fence":null,"holder":null,"holders":0,"key":"k","since":null,"value":null}"#;
        assert_eq!(line("k", None, now), free);
        let moves_the_terminal = Holder { name: Some("\u{9b}2J".to_owned()), ..holder };
        assert!(line("k", Some(&moves_the_terminal), now).contains(r#""holder":"\u009b2J""#));
    }
}
