//! Grammar, replies and order of a session, against the contract's tables: no process, no file.

use std::collections::HashMap;

use lfpd::limits::{ECHO_CHARS, LINE_BYTES, REPLY_BYTES};
use lfpd::protocol::command::Command;
use lfpd::protocol::reply::{HOST_CHARS, Identity, Reply, VERSION_CHARS, Version};
use lfpd::protocol::reply::{Report, Scope};
use lfpd::protocol::{Session, Step};
use pidlockfile::Pid;
use proptest::prelude::*;
use rstest::rstest;
use testbed::{GONE, TRANSCRIPTS, Transcript, host};
use ttylock::{DeviceName, OutOfSight, Outcome, Pass, Request};

fn identity() -> Identity {
    Identity::new(host().as_bytes(), Version::original())
}

/// Twenty lines that know locks: one holder for each device.
#[derive(Default)]
struct Model {
    holders: HashMap<String, i32>,
    /// The processes that the peer may not name.
    others: Vec<i32>,
}

impl Model {
    fn answer(&mut self, command: &Command) -> Outcome {
        match command {
            Command::Lock(request) | Command::Unlock(request)
                if self.others.contains(&request.pid.as_raw()) =>
            {
                Outcome::Denied
            }
            Command::Lock(it) => self.lock(it.device.as_str(), it.pid.as_raw()),
            Command::Unlock(it) => self.unlock(it.device.as_str(), it.pid.as_raw()),
            Command::Status(_) => Outcome::Denied,
            // The extensions have tests of their own.
            Command::Wait(..) | Command::Pass(_) | Command::Force(_) | Command::Http => {
                Outcome::Busy
            }
        }
    }

    fn lock(&mut self, device: &str, pid: i32) -> Outcome {
        match self.holders.get(device) {
            Some(holder) if *holder != GONE => Outcome::Busy,
            Some(_) | None => {
                self.holders.insert(device.to_owned(), pid);
                Outcome::Done
            }
        }
    }

    fn unlock(&mut self, device: &str, pid: i32) -> Outcome {
        match self.holders.get(device) {
            Some(holder) if *holder == pid || *holder == GONE => {
                self.holders.remove(device);
                Outcome::Done
            }
            Some(_) | None => Outcome::Busy,
        }
    }
}

/// Feeds a session with packets; returns each thing it said, and whether it closed.
fn converse(session: &mut Session, model: &mut Model, packets: &[&[u8]]) -> (Vec<String>, bool) {
    let mut said = Vec::new();
    let mut packets = packets.iter();
    let mut input: &[u8] = &[];
    loop {
        match session.next(&mut input) {
            Step::Send(line) => said.push(line),
            Step::Close => return (said, true),
            Step::Receive => match packets.next() {
                Some(packet) => input = packet,
                None => return (said, false),
            },
            Step::Ask(Command::Http) => session.close(),
            Step::Ask(command) => session.answer(&model.answer(&command).into()),
        }
    }
}

fn said(packets: &[&[u8]]) -> String {
    converse(&mut Session::admit(identity()), &mut Model::default(), packets).0.concat()
}

#[test]
fn transcripts_cut_at_every_byte() {
    for (name, text) in TRANSCRIPTS {
        let transcript = Transcript::read(text);
        let sent = transcript.sent();
        let whole = transcript.answered(sent.len());
        for cut in 0..=sent.len() {
            let (first, second) = sent.split_at(cut);
            assert_eq!(said(&[first, second]), whole, "{name} cut at {cut}");
            assert_eq!(said(&[first]), transcript.answered(cut), "{name} ends at {cut}");
        }
        let bytes: Vec<&[u8]> = sent.chunks(1).collect();
        assert_eq!(said(&bytes), whole, "{name} byte by byte");
    }
}

#[rstest]
#[case::below(ECHO_CHARS - 1, ECHO_CHARS - 1)]
#[case::at(ECHO_CHARS, ECHO_CHARS)]
#[case::above(ECHO_CHARS + 1, ECHO_CHARS)]
fn an_echo_is_cut(#[case] length: usize, #[case] kept: usize) {
    let line = Reply::NotUnderstood.encode(&identity(), &vec![b'z'; length]);
    assert_eq!(line, format!("500 '{}': command not understood\r\n", "z".repeat(kept)));
}

#[test]
fn an_echo_shows_every_other_byte_as_a_question_mark() {
    for byte in 0..=u8::MAX {
        let shown = if (b' '..=b'~').contains(&byte) { char::from(byte) } else { '?' };
        let line = Reply::NotUnderstood.encode(&identity(), &[byte]);
        assert_eq!(line, format!("500 '{shown}': command not understood\r\n"));
    }
}

#[test]
fn the_longest_replies_are_short_enough() {
    let version = Version::parse(&"v".repeat(VERSION_CHARS)).unwrap();
    let identity = Identity::new(&vec![b'h'; 10 * HOST_CHARS], version);
    for reply in [Reply::Greeting, Reply::Goodbye, Reply::NotUnderstood] {
        assert!(reply.encode(&identity, &[b'x'; 4096]).len() < REPLY_BYTES);
    }
}

#[rstest]
#[case::clean(b"host.example", "host.example")]
#[case::hostile(b"ho\r\n200 st\x1b", "ho??200 st?")]
#[case::none(b"", "localhost")]
fn a_host_name_is_cleaned(#[case] host: &[u8], #[case] shown: &str) {
    let line = Reply::Goodbye.encode(&Identity::new(host, Version::original()), b"quit");
    assert_eq!(line, format!("221 Thank you for using the Lock File service on {shown}\r\n"));
}

#[rstest]
#[case::own("my-site 2.0".to_owned(), true)]
#[case::empty(String::new(), false)]
#[case::newline("1\r\n200 ok".to_owned(), false)]
#[case::beyond_ascii("1.5\u{e9}".to_owned(), false)]
#[case::longest("v".repeat(VERSION_CHARS), true)]
#[case::one_more("v".repeat(VERSION_CHARS + 1), false)]
fn a_version_is_printable_and_bounded(#[case] text: String, #[case] taken: bool) {
    assert_eq!(Version::parse(&text).is_some(), taken);
}

/// The first fault decides, in the order that `command` documents.
#[rstest]
#[case::unknown_verb("loch /etc/passwd abc extra", "500")]
#[case::verb_without_use("stor /etc/passwd abc extra", "202")]
#[case::count_before_pid("lock /etc/passwd abc extra", "500")]
#[case::malformed_pid_before_device("lock /etc/passwd abc", "500")]
#[case::pid_range_before_device("lock /etc/passwd 0", "550")]
#[case::device("lock /etc/passwd 77", "550")]
#[case::owner_of_the_pid("lock ttyS1 77", "550")]
#[case::work("lock ttyS1 78", "200")]
#[case::unlock_asks_the_same("unlock ttyS1 77", "550")]
#[case::unlock_device("unlock /etc/passwd 77", "550")]
#[case::unlock_pid_range("unlock ttyS1 2147483648", "550")]
#[case::unlock_malformed_pid("unlock /etc/passwd -", "500")]
fn faults_have_an_order(#[case] line: &str, #[case] code: &str) {
    let mut model = Model { others: vec![77], ..Model::default() };
    let line = format!("{line}\n");
    let (said, _) = converse(&mut Session::admit(identity()), &mut model, &[line.as_bytes()]);
    assert_eq!(&said[1][..3], code);
    // A refused request never reaches the locks.
    assert_eq!(model.holders.is_empty(), code != "200");
}

/// What a line leads to.
fn led_to(line: &str) -> Step {
    let mut session = Session::admit(identity().offering_to_wait());
    let line = format!("{line}\n");
    let mut input = line.as_bytes();
    assert!(matches!(session.next(&mut input), Step::Send(_)));
    session.next(&mut input)
}

#[cfg(test)]
fn device() -> DeviceName {
    DeviceName::parse(b"ttyS1").unwrap()
}

#[cfg(test)]
fn pid(number: i64) -> Pid {
    Pid::new(number).unwrap()
}

fn request() -> Request {
    Request { device: device(), pid: pid(5) }
}

#[rstest]
#[case::wait("wait ttyS1 5 86400", Step::Ask(Command::Wait(request(), 86_400)))]
#[case::wait_no_time("WAIT /dev/ttyS1 5 0", Step::Ask(Command::Wait(request(), 0)))]
#[case::pass("pass ttyS1 5 6", Step::Ask(Command::Pass(Pass { device: device(), from: pid(5), to: pid(6) })))]
#[case::force("force ttyS1 5", Step::Ask(Command::Force(request())))]
#[case::stat("stat ttyS1", Step::Ask(Command::Status(Some(device()))))]
#[case::stat_all("stat", Step::Ask(Command::Status(None)))]
fn extensions_are_read(#[case] line: &str, #[case] step: Step) {
    assert_eq!(led_to(line), step);
}

#[rstest]
#[case::no_device(None, "550 : Permission denied.\r\n")]
#[case::nobody(
    Some(Report::new(Scope::Device, &[], &[])),
    "213-holders=0 shown=0\r\n213 End of status.\r\n"
)]
#[case::the_search_ended_early(
    Some(Report::new(Scope::All, &[], &[]).incomplete()),
    "211-holders=0 shown=0 incomplete=yes\r\n211 End of status.\r\n"
)]
#[case::in_a_container(
    Some(Report::new(Scope::All, &[], &[]).without(OutOfSight::from_word("outside"))),
    "211-holders=0 shown=0 unseen=outside\r\n211 End of status.\r\n"
)]
#[case::in_a_container_and_early(
    Some(Report::new(Scope::All, &[], &[]).without(OutOfSight::from_word("outside,users")).incomplete()),
    "211-holders=0 shown=0 unseen=outside,users incomplete=yes\r\n211 End of status.\r\n"
)]
fn stat_is_answered(#[case] report: Option<Report>, #[case] reply: &str) {
    let mut session = Session::admit(identity());
    let mut input: &[u8] = b"stat ttyS1\n";
    assert!(matches!(session.next(&mut input), Step::Send(_)));
    assert_eq!(session.next(&mut input), Step::Ask(Command::Status(Some(device()))));
    let report = report.map_or(Reply::Denied, Reply::Status);
    session.answer(&report);
    assert_eq!(session.next(&mut input), Step::Send(reply.to_owned()));
    // An answer that nobody asked for is none.
    session.answer(&report);
    assert_eq!(session.next(&mut input), Step::Receive);
}

/// When the client is gone, a LOCK or a STAT that is being answered is given up, and nothing else.
#[rstest]
#[case::lock("lock ttyS1 5", true)]
#[case::stat("stat", true)]
#[case::unlock("unlock ttyS1 5", false)]
#[case::pass("pass ttyS1 5 6", false)]
#[case::force("force ttyS1 5", false)]
fn a_client_that_is_gone_needs_no_answer(#[case] line: &str, #[case] gives_up: bool) {
    let mut session = Session::admit(identity());
    let line = format!("{line}\n");
    let mut input = line.as_bytes();
    assert!(matches!(session.next(&mut input), Step::Send(_)));
    assert!(matches!(session.next(&mut input), Step::Ask(_)));
    assert_eq!(session.cancel_request(), gives_up);
    assert_eq!(matches!(session.next(&mut input), Step::Receive), gives_up);
}

/// The first fault decides, as for LOCK.
#[rstest]
#[case::wait_too_long("wait ttyS1 5 86401", "550")]
#[case::wait_far_too_long("wait ttyS1 5 99999999999999999999", "550")]
#[case::wait_count_below("wait ttyS1 5", "500")]
#[case::wait_count_above("wait ttyS1 5 1 1", "500")]
#[case::wait_malformed_pid_before_its_time("wait ttyS1 x 86401", "500")]
#[case::wait_malformed_time_before_the_pids_range("wait ttyS1 0 x", "500")]
#[case::wait_malformed_time("wait ttyS1 5 +1", "500")]
#[case::wait_pid_range("wait ttyS1 0 1", "550")]
#[case::wait_device("wait /etc/passwd 5 1", "550")]
#[case::pass_is_a_password("pass secret", "202")]
#[case::pass_of_no_numbers("pass /etc/passwd 5 x", "202")]
#[case::pass_of_no_numbers_before_the_range("pass ttyS1 x 0", "202")]
#[case::pass_pid_range("pass ttyS1 5 0", "550")]
#[case::pass_device("pass /etc/passwd 5 6", "550")]
#[case::stat_count("stat ttyS1 5", "500")]
#[case::stat_device("stat /etc/passwd", "550")]
#[case::help_count("help me", "500")]
#[case::noop_count("NOOP x", "500")]
fn faults_of_extensions_have_an_order(#[case] line: &str, #[case] code: &str) {
    let step = led_to(line);
    assert!(matches!(&step, Step::Send(said) if said.starts_with(code)), "{step:?}");
}

/// WAIT is there for those who can wait only.
#[rstest]
#[case::offered(Session::admit(identity().offering_to_wait()), true)]
#[case::not_offered(Session::admit(identity()), false)]
fn help_shows_every_command_there_is(#[case] mut session: Session, #[case] waits: bool) {
    let (said, _) = converse(&mut session, &mut Model::default(), &[b"wait ttyS1 5\nhelp\n"]);
    assert!(said[1].starts_with(if waits { "500 " } else { "202 " }), "{}", said[1]);
    let lines: Vec<&str> = said[2].lines().collect();
    let mut expected = vec![
        "214-The following commands are recognized.",
        " LOCK device pid",
        " UNLOCK device pid",
        " WAIT device pid seconds",
        " PASS device from-pid to-pid",
        " FORCE device pid",
        " STAT [device]",
        " HELP",
        " NOOP",
        " QUIT",
        "214 End of help.",
    ];
    expected.retain(|line| waits || !line.contains("WAIT"));
    assert_eq!(lines, expected);
}

/// What a browser says first, whole or in a line that is too long.
#[rstest]
#[case::get("GET / HTTP/1.1", true)]
#[case::any_method("x /y http/1.0", true)]
#[case::host("Host: localhost:50001", true)]
#[case::origin("ORIGIN: null", true)]
#[case::agent("user-agent: x", true)]
#[case::another_header("Accept: */*", false)]
#[case::another_protocol("GET / FTP/1.0", false)]
#[case::only_two_words("GET HTTP/1.1", false)]
#[case::a_word_too_late("lock ttyS1 5 HTTP/1.1", false)]
#[case::no_header("host", false)]
fn a_line_of_http_is_known(
    #[case] line: &str,
    #[values("", " ")] filler: &str,
    #[case] is_http: bool,
) {
    let step = led_to(&format!("{line}{}", filler.repeat(600)));
    assert_eq!(step == Step::Ask(Command::Http), is_http, "{step:?}");
    assert_eq!(matches!(&step, Step::Send(said) if said.starts_with("500 ")), !is_http);
}

/// With its end, a line has so many bytes at most; what is longer is not obeyed, whatever it says.
#[rstest]
#[case::longest(LINE_BYTES - 1, "200 ")]
#[case::one_too_many(LINE_BYTES, "500 ")]
fn a_line_is_bounded(#[case] length: usize, #[case] code: &str) {
    let said = said(&[format!("{:length$}\n", "noop").as_bytes()]);
    assert!(said.lines().nth(1).is_some_and(|line| line.starts_with(code)), "{said}");
}

#[test]
fn every_other_verb_of_rfc_959_is_answered_202() {
    const RFC_959: &str = "USER PASS ACCT CWD CDUP SMNT REIN PORT PASV TYPE STRU MODE RETR STOR \
        STOU APPE ALLO REST RNFR RNTO ABOR DELE RMD MKD PWD LIST NLST SITE SYST";
    for verb in RFC_959.split_whitespace() {
        for line in [format!("{verb}\r\n"), format!("{} a b c\r\n", verb.to_lowercase())] {
            let all = said(&[line.as_bytes()]);
            assert!(all.ends_with("202 Command not implemented\r\n"), "{line:?}: {all}");
        }
    }
}

#[rstest]
#[case::done(Outcome::Done, "200 Command okay.\r\n")]
#[case::busy(Outcome::Busy, "450 : File busy\r\n")]
#[case::denied(Outcome::Denied, "550 : Permission denied.\r\n")]
fn outcomes_have_codes(
    #[values("lock", "unlock")] verb: &str,
    #[case] outcome: Outcome,
    #[case] reply: &str,
) {
    let mut session = Session::admit(identity());
    let line = format!("{verb} ttyS1 5\nquit\n");
    let mut input = line.as_bytes();
    assert!(matches!(session.next(&mut input), Step::Send(_)));
    // A question is asked until it is answered.
    for _ in 0..2 {
        let step = session.next(&mut input);
        assert!(
            matches!(&step, Step::Ask(Command::Lock(r) | Command::Unlock(r)) if r.pid.as_raw() == 5),
            "{step:?}"
        );
        assert_eq!(matches!(step, Step::Ask(Command::Lock(_))), verb == "lock");
    }
    session.answer(&outcome.into());
    assert_eq!(session.next(&mut input), Step::Send(reply.to_owned()));
    assert!(matches!(session.next(&mut input), Step::Send(line) if line.starts_with("221 ")));
    assert_eq!(session.next(&mut input), Step::Close);
}

#[test]
fn a_stranger_is_refused_and_nothing_else_is_said_or_obeyed() {
    let mut session = Session::refuse(identity());
    let (said, closed) = converse(&mut session, &mut Model::default(), &[b"lock ttyS1 5\nquit\n"]);
    assert_eq!((said.concat().as_str(), closed), ("550 : Permission denied.\r\n", true));
}

#[test]
fn a_dismissed_session_says_so_and_closes() {
    let mut session = Session::admit(identity());
    let mut model = Model::default();
    converse(&mut session, &mut model, &[b"lock ttyS1 5\nunlock tty"]);
    session.close();
    let (said, closed) = converse(&mut session, &mut model, &[b"S1 5\n"]);
    let line = "421 Service not available, closing control connection\r\n";
    assert_eq!((said.concat().as_str(), closed), (line, true));
    session.close();
    assert_eq!(converse(&mut session, &mut model, &[b"quit\n"]), (vec![], true));
    assert_eq!(model.holders.len(), 1);
}

#[test]
fn commands_after_quit_are_not_executed() {
    let mut model = Model::default();
    let mut session = Session::admit(identity());
    let (said, closed) = converse(&mut session, &mut model, &[b"quit\nlock ttyS1 5\n"]);
    assert!(closed && said.len() == 2 && model.holders.is_empty());
}

proptest! {
    /// Whatever arrives, however it is cut: every reply is one clean line, and the same ones come
    /// as when it arrives at once.
    #[test]
    fn any_bytes_any_cuts(
        pieces in prop::collection::vec(
            prop_oneof![
                prop::collection::vec(any::<u8>(), 0..40),
                Just(b"lock ttyS1 5\r\n".to_vec()),
                Just(b"unlock ttyS1 5\n".to_vec()),
                Just(vec![b'x'; 600]),
                Just(b"\n".to_vec()),
                Just(b"\xff\xfa".to_vec()),
                Just(b"\xff\xf0".to_vec()),
            ],
            0..20,
        )
    ) {
        let sent = pieces.concat();
        let packets: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
        let together = said(&[&sent]);
        prop_assert_eq!(&said(&packets), &together);
        for reply in together.split_inclusive('\n') {
            prop_assert!(reply.ends_with("\r\n") && reply.len() < REPLY_BYTES);
            prop_assert!(reply[..reply.len() - 2].bytes().all(|b| (b' '..=b'~').contains(&b)));
        }
    }
}
