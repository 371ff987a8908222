//! Conversations as a person would write them down, played against the real server.
//!
//! ```text
//! a> l|k|0        client a sends a request: command, key, argument (\t \r \0 \xHH are bytes)
//! a< ok $t 33     and gets this reply; $t is a token, the same one wherever it is named again
//! a- / a~         client a closes / ends its sending side
//! a.              the server has closed client a's connection
//! stats TEXT      sooner or later `stats` contains TEXT; {a} is the number of a's connection
//! log TEXT        sooner or later the log does
//! ```

use std::collections::HashMap;
use testbed::dflockd::{Daemon, Talker};

pub(crate) fn play(daemon: &Daemon, script: &str) {
    let mut cast: HashMap<char, Talker> = HashMap::new();
    let mut tokens: HashMap<String, String> = HashMap::new();
    for line in script.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if let Some(text) = line.strip_prefix("stats ") {
            daemon.until_stats(text);
            continue;
        }
        if let Some(text) = line.strip_prefix("log ") {
            daemon.logged(text);
            continue;
        }
        let (who, act, rest) =
            (line.chars().next().unwrap(), line.chars().nth(1).unwrap(), line[2..].trim_start());
        if act == '-' {
            cast.remove(&who);
            continue;
        }
        let talker = cast.entry(who).or_insert_with(|| daemon.talk());
        match act {
            '>' => {
                let text = fill(rest, &tokens).replace('|', "\n");
                talker.say(&[bytes(&text), b"\n".to_vec()].concat());
            }
            '<' => compare(rest, &talker.line(), &mut tokens, line),
            '~' => talker.half_close(),
            '.' => assert!(talker.is_closed(), "{line}"),
            _ => panic!("cannot read {line:?}"),
        }
    }
}

fn fill(text: &str, tokens: &HashMap<String, String>) -> String {
    let mut text = text.to_owned();
    for (name, token) in tokens {
        text = text.replace(name, token);
    }
    text
}

fn compare(pattern: &str, reply: &str, tokens: &mut HashMap<String, String>, line: &str) {
    let pattern = fill(pattern, tokens);
    let (want, have): (Vec<&str>, Vec<&str>) =
        (pattern.split(' ').collect(), reply.split(' ').collect());
    assert_eq!(want.len(), have.len(), "{line}: got {reply:?}");
    for (want, have) in want.into_iter().zip(have) {
        if want.starts_with('$') {
            assert!(is_token(have), "{line}: got {reply:?}");
            tokens.insert(want.to_owned(), have.to_owned());
        } else {
            assert_eq!(want, have, "{line}: got {reply:?}");
        }
    }
}

pub(crate) fn is_token(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

fn bytes(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.extend(c.to_string().bytes());
            continue;
        }
        match chars.next().unwrap() {
            't' => out.push(b'\t'),
            'r' => out.push(b'\r'),
            '0' => out.push(0),
            'x' => {
                let digits: String = chars.by_ref().take(2).collect();
                out.push(u8::from_str_radix(&digits, 16).unwrap());
            }
            other => panic!("unknown escape {other}"),
        }
    }
    out
}
