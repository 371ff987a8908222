//! The client against services that keep to the protocol, and against those that do not.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::thread::{self, JoinHandle};

use rstest::rstest;

use super::*;

const PATIENCE: Duration = Duration::from_secs(20);
const GREETING: &str = "220 testbed Lock File Server (Version rxtx-1.5-9) ready\r\n";

/// A service that says the greeting, and for each line it hears the next of `answers`. Returns
/// what it heard.
struct Script {
    address: Address,
    heard: JoinHandle<Vec<String>>,
    _directory: tempfile::TempDir,
}

fn service(greeting: &'static str, answers: &'static [&'static str]) -> Script {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lfpd.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let heard = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(greeting.as_bytes()).unwrap();
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
        let mut heard = Vec::new();
        for answer in answers {
            match lines.next() {
                Some(Ok(line)) => heard.push(line),
                _ => break,
            }
            stream.write_all(answer.as_bytes()).unwrap();
        }
        heard
    });
    Script { address: Address::Unix(path), heard, _directory: directory }
}

fn device() -> DeviceName {
    DeviceName::parse(b"/dev/ttyUSB0").unwrap()
}

fn pid() -> Pid {
    Pid::new(1234).unwrap()
}

#[rstest]
#[case::done("200 Command okay.\r\n", Ok(Outcome::Done))]
#[case::busy("450 : File busy\r\n", Ok(Outcome::Busy))]
#[case::denied("550 : Permission denied.\r\n", Ok(Outcome::Denied))]
#[case::unknown("500 'LOCK': command not understood\r\n", Err("does not know"))]
#[case::without_use("202 Command not implemented\r\n", Err("does not know"))]
#[case::closing("421 Service not available\r\n", Err("shutting down"))]
#[case::odd("333 x\r\n", Err("unexpected reply, code 333"))]
#[case::not_lfp("HTTP/1.1 400 Bad Request\r\n", Err("not a lock file service"))]
#[case::cut_short("200 Command ok", Err("ended before the reply"))]
#[case::silent("", Err("ended before the reply"))]
fn each_reply_becomes_an_outcome_or_an_error(
    #[case] answer: &'static str,
    #[case] expected: Result<Outcome, &str>,
) {
    let answers: &'static [&'static str] = Box::leak(Box::new([answer]));
    let script = service(GREETING, answers);
    let mut client = Client::connect(&script.address, PATIENCE).unwrap();
    match (client.lock(&device(), pid()), expected) {
        (Ok(outcome), Ok(expected)) => assert_eq!(outcome, expected),
        (Err(error), Err(text)) => assert!(error.to_string().contains(text), "{error}"),
        (answer, _) => panic!("{answer:?}"),
    }
    assert_eq!(script.heard.join().unwrap(), ["LOCK ttyUSB0 1234"]);
}

#[test]
fn a_whole_session() {
    let script = service(
        GREETING,
        &[
            "200 Command okay.\r\n",
            "200 Command okay.\r\n",
            "450 : File busy\r\n",
            "213-holders=1 shown=1\r\n scheme=open standing=alive pid=7\r\n213 End of status.\r\n",
            "211-holders=0 shown=0\r\n211 End of status.\r\n",
            "214-The following\r\n LOCK device pid\r\n214 End of help.\r\n",
            "200 Command okay.\r\n",
            "221 Thank you\r\n",
        ],
    );
    let mut client = Client::connect(&script.address, PATIENCE).unwrap();
    assert_eq!(client.greeting(), "testbed Lock File Server (Version rxtx-1.5-9) ready");
    assert_eq!(client.lock(&device(), pid()).unwrap(), Outcome::Done);
    assert_eq!(client.unlock(&device(), pid()).unwrap(), Outcome::Done);
    assert_eq!(client.wait(&device(), pid(), Duration::from_secs(5)).unwrap(), Outcome::Busy);
    assert_eq!(client.status(Some(&device())).unwrap().len(), 1);
    assert_eq!(client.status(None).unwrap().len(), 0);
    assert_eq!(client.help().unwrap()[1], " LOCK device pid");
    client.noop().unwrap();
    client.quit().unwrap();
    let heard = script.heard.join().unwrap();
    let expected = [
        "LOCK ttyUSB0 1234",
        "UNLOCK ttyUSB0 1234",
        "WAIT ttyUSB0 1234 5",
        "STAT ttyUSB0",
        "STAT",
        "HELP",
        "NOOP",
        "QUIT",
    ];
    assert_eq!(heard, expected);
}

#[rstest]
#[case::refused("550 : Permission denied.\r\n", "refuses this client")]
#[case::too_many("421 Service not available\r\n", "too many")]
#[case::mail("220\r\n", "")]
#[case::other("SSH-2.0-OpenSSH\r\n", "not a lock file service")]
#[case::ended("", "ended before the reply")]
fn the_greeting_decides(#[case] greeting: &'static str, #[case] text: &str) {
    let script = service(greeting, &[]);
    match Client::connect(&script.address, PATIENCE) {
        Ok(_) => assert_eq!(text, ""),
        Err(error) => assert!(!text.is_empty() && error.to_string().contains(text), "{error}"),
    }
}
