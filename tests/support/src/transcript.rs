//! Golden conversations with `lfpd` (`tests/transcripts`).

/// A pid that no process can have: above the kernel's `pid_max` (at most 2^22), below `pid_t`'s.
pub const GONE: i32 = 99_999_999;

/// The conversations, by name.
pub const TRANSCRIPTS: [(&str, &str); 6] = [
    ("memo", include_str!("../../transcripts/memo.txt")),
    ("rxtx", include_str!("../../transcripts/rxtx.txt")),
    ("grammar", include_str!("../../transcripts/grammar.txt")),
    ("refusals", include_str!("../../transcripts/refusals.txt")),
    ("telnet", include_str!("../../transcripts/telnet.txt")),
    ("hostile", include_str!("../../transcripts/hostile.txt")),
];

/// What is said, in order.
#[derive(Clone, Debug)]
pub struct Transcript {
    /// The greeting, with its end.
    pub greeting: String,
    /// Each line of the client, as bytes, and the reply to it.
    pub turns: Vec<(Vec<u8>, String)>,
}

impl Transcript {
    /// Reads a transcript. `$HOST`, `$OWN` and `$GONE` are filled in; `{x*3}` is `xxx`; `\r`,
    /// `\n`, `\t` and `\xNN` are bytes. `>` lines get CR LF, `>>` lines are sent as they stand.
    /// `{ *}` fills a repeated line up to 64 characters.
    ///
    /// # Panics
    /// The text is no transcript.
    #[must_use]
    pub fn read(text: &str) -> Self {
        Self::read_at(text, &host(), std::process::id())
    }

    /// The same where the machine has this name, and the client's own process this number.
    ///
    /// # Panics
    /// The text is no transcript.
    #[must_use]
    pub fn read_at(text: &str, host: &str, own: u32) -> Self {
        let fill = |text: &str| fill(text, host, own);
        let mut greeting = None;
        let mut turns: Vec<(Vec<u8>, String)> = Vec::new();
        let mut asked = None;
        for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
            if let Some(raw) = line.strip_prefix(">> ") {
                asked = Some(bytes(&fill(raw)));
            } else if let Some(typed) = line.strip_prefix("> ") {
                let mut typed = bytes(&fill(typed));
                typed.extend(b"\r\n");
                asked = Some(typed);
            } else {
                let reply = line.strip_prefix("< ").unwrap_or_else(|| panic!("line {line:?}"));
                let reply = fill(reply) + "\r\n";
                match asked.take() {
                    Some(asked) => turns.push((asked, reply)),
                    None => assert!(greeting.replace(reply).is_none(), "two greetings"),
                }
            }
        }
        assert!(asked.is_none() && !turns.is_empty());
        Self { greeting: greeting.expect("a greeting"), turns }
    }

    /// The transcript of that name, over a Unix socket, where nobody takes a lock for a process that is gone: a client that
    /// does that in a transcript is the test's own process here.
    ///
    /// # Panics
    /// There is none.
    #[must_use]
    pub fn named(name: &str) -> Self {
        let (_, text) = TRANSCRIPTS.iter().find(|(it, _)| *it == name).expect("a transcript");
        match name {
            "memo" | "grammar" => Self::read(&text.replace("$GONE", "$OWN")),
            _ => Self::read(text),
        }
    }

    /// All bytes of the client.
    #[must_use]
    pub fn sent(&self) -> Vec<u8> {
        self.turns.iter().flat_map(|(sent, _)| sent).copied().collect()
    }

    /// All bytes of the service when the client has sent so many bytes.
    #[must_use]
    pub fn answered(&self, length: usize) -> String {
        let mut answered = self.greeting.clone();
        let mut end = 0;
        for (sent, reply) in &self.turns {
            end += sent.len();
            if end <= length {
                answered.push_str(reply);
            }
        }
        answered
    }
}

/// This machine's name.
///
/// # Panics
/// The name is no text.
#[must_use]
pub fn host() -> String {
    nix::unistd::gethostname().unwrap().into_string().unwrap()
}

fn fill(text: &str, host: &str, own: u32) -> String {
    let text = text
        .replace("$HOST", host)
        .replace("$OWN", &own.to_string())
        .replace("$GONE", &GONE.to_string());
    let mut filled = String::new();
    let mut rest = text.as_str();
    while let Some((before, after)) = rest.split_once('{') {
        let (what, after) = after.split_once('}').expect("a closing brace");
        let (what, times) = what.split_once('*').expect("{x*3}");
        filled.push_str(before);
        let times = match times {
            "" => 64 - filled.strip_prefix("500 '").expect("an echo").len(),
            times => times.parse().expect("a number"),
        };
        filled.push_str(&what.repeat(times));
        rest = after;
    }
    filled + rest
}

fn bytes(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let byte = match byte {
            b'\\' => match rest.next().expect("an escape") {
                b'n' => b'\n',
                b'r' => b'\r',
                b't' => b'\t',
                b'x' => {
                    let digits = [rest.next().unwrap(), rest.next().unwrap()];
                    u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap()
                }
                other => panic!("escape {other}"),
            },
            byte => byte,
        };
        bytes.push(byte);
    }
    bytes
}
