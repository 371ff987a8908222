//! The real program on descriptors 0 and 1: transcripts however they are cut, clients that are
//! gone, that do not read, that say nothing, and descriptors and environments of every kind.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use lfpd::limits::STATUS_HOLDERS;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::libc::linger;
use nix::sys::signal::Signal;
use nix::sys::socket::{setsockopt, sockopt};
use nix::unistd::pipe2;
use rstest::rstest;
use testbed::{
    GONE, Ground, LIMIT, TcpSocket, Transcript, comes, ended, host, own, signal, status_kib,
};

use crate::wire::{BUSY, DONE, Wire, locked, on_connection, on_stream, read_some, tcp};

const CLOSING: &str = "421 Service not available, closing control connection\r\n";

/// Every reply is one packet here, so this also shows that every reply is one write.
#[rstest]
fn transcripts_line_by_line(
    #[values("memo", "rxtx", "grammar", "refusals", "telnet", "hostile")] name: &str,
) {
    let ground = Ground::new();
    let transcript = Transcript::named(name);
    let wire = Wire::on(&ground);
    assert_eq!(wire.receive(), transcript.greeting, "before the client has said anything");
    for (sent, reply) in &transcript.turns {
        assert!(wire.send(sent));
        assert_eq!(wire.receive(), *reply, "to {}", String::from_utf8_lossy(sent));
    }
    assert_eq!(wire.finish(), (String::new(), Some(0)));
    assert_eq!(ground.locks(), [""; 0]);
}

/// A strict umask of the super-server does not make locks that nobody can read.
#[rstest]
fn a_lock_file_is_as_the_contract_says(#[values("true", "umask 0777")] before: &str) {
    let ground = Ground::new();
    let wire = Wire::start(after(before, &ground));
    assert!(wire.receive().starts_with("220 "));
    assert_eq!(wire.ask(&format!("lock /dev/ttyS1 {}", own())), DONE);
    // RXTX hangs up after every command: the lock is the process's, not the connection's.
    assert_eq!(wire.hang_up().code(), Some(0));
    assert_eq!(ground.locks(), ["LCK..ttyS1"]);
    let path = ground.path("lock/LCK..ttyS1");
    assert_eq!(fs::read_to_string(&path).unwrap(), format!("{:>10}\n", own()));
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&path).unwrap().permissions());
    assert_eq!(mode & 0o7777, 0o444);
}

/// No daemon may ever start on this machine.
#[test]
fn a_session_removes_what_a_killed_one_has_left() {
    let ground = Ground::new();
    let draft = ground.path(&format!("lock/lfpd.{}.0123456789abcdef.tmp", GONE));
    let long_ago = SystemTime::now() - Duration::from_secs(120);
    fs::File::create(&draft).unwrap().set_modified(long_ago).unwrap();
    locked(&ground, "ttyS1");
    assert_eq!(ground.locks(), ["LCK..ttyS1"]);
}

/// RXTX's unlock, byte for byte: it speaks before the greeting, takes the greeting for the
/// answer, says quit and closes with the answer unread, which resets the connection.
#[test]
fn the_unlock_of_rxtx_always_happens() {
    let ground = Ground::new();
    for round in 0..50 {
        locked(&ground, "ttyS1");
        let (mut client, theirs) = tcp();
        writeln!(client, "unlock /dev/ttyS1 {}", own()).unwrap();
        let child = on_connection(ground.command(), theirs);
        let mut reply = [0; 1024];
        let length = read_some(&client, &mut reply);
        assert!(reply[..length].starts_with(b"220 "));
        let _ = client.write_all(b"quit\n");
        drop(client);
        assert_eq!(ended(child).code(), Some(0));
        assert_eq!(ground.locks(), [""; 0], "round {round}");
    }
}

/// The same with the worst timing there is: the reset arrives before the service reads.
#[test]
fn a_command_that_arrived_before_a_reset_is_obeyed() {
    let ground = Ground::new();
    locked(&ground, "ttyS1");
    let (mut client, theirs) = tcp();
    let child = on_connection(ground.command(), theirs);
    let mut greeting = [0; 1024];
    assert!(read_some(&client, &mut greeting) > 0);
    signal(child.id(), Signal::SIGSTOP);
    writeln!(client, "unlock /dev/ttyS1 {}", own()).unwrap();
    setsockopt(&client, sockopt::Linger, &linger { l_onoff: 1, l_linger: 0 }).unwrap();
    drop(client);
    signal(child.id(), Signal::SIGCONT);
    assert_eq!(ended(child).code(), Some(0));
    assert_eq!(ground.locks(), [""; 0]);
}

/// A web page can make a browser say anything here: nothing after its first line is obeyed.
#[rstest]
#[case::get("GET / HTTP/1.1\r\nHost: localhost:50001\r\n\r\nlock ttyS1 OWN\r\n")]
#[case::long("POST /LONG HTTP/1.1\r\nHost: x\r\nlock ttyS1 OWN\r\n")]
fn a_browser_is_sent_away(#[case] said: &str) {
    let ground = Ground::new();
    let wire = Wire::greeted(&ground);
    let said = said.replace("OWN", &own().to_string()).replace("LONG", &"x".repeat(600));
    assert!(wire.send(said.as_bytes()));
    let (said, code) = wire.finish();
    assert!(said.ends_with(CLOSING));
    assert_eq!((ground.locks(), code), (Vec::new(), Some(0)));
}

/// A TCP client that is gone before the service starts has left nothing that tells who it was:
/// it may name nobody's process but those that do not exist.
#[test]
fn a_tcp_client_gone_before_the_start_is_nobody() {
    let ground = Ground::new();
    locked(&ground, "ttyS1");
    let (mut client, theirs) = tcp();
    writeln!(client, "unlock ttyS1 {}\nlock ttyS2 {GONE}\nquit", own()).unwrap();
    // Another connection may have one of these ports as well.
    let ports = [&client, &theirs].map(|end| end.local_addr().unwrap().port());
    drop(client);
    // The kernel tells the user as long as the socket is closing, or is open in a program that another test is
    // starting.
    let is_open = |it: &TcpSocket| it.inode != 0 || it.state == TcpSocket::FIN_WAIT1;
    let is_closing = |it: &TcpSocket| [it.port, it.peer_port] == ports && is_open(it);
    assert!(comes(|| !TcpSocket::all().iter().any(is_closing)), "the end of the client's end");
    assert_eq!(ended(on_connection(ground.command(), theirs)).code(), Some(0));
    assert_eq!(ground.locks(), ["LCK..ttyS1", "LCK..ttyS2"]);
}

/// Telnet's interrupt arrives as urgent data.
#[test]
fn urgent_bytes_stay_in_their_place() {
    use nix::sys::socket::{MsgFlags, send};
    let ground = Ground::new();
    let (mut client, theirs) = tcp();
    let child = on_connection(ground.command(), theirs);
    let mut line = [0; 1024];
    assert!(read_some(&client, &mut line) > 0);
    client.write_all(b"\xff\xf4\xff").unwrap();
    send(client.as_raw_fd(), b"\xf2", MsgFlags::MSG_OOB).unwrap();
    client.write_all(b"quit\r\n").unwrap();
    let length = read_some(&client, &mut line);
    assert!(line[..length].starts_with(b"221 "), "{:?}", String::from_utf8_lossy(&line[..length]));
    assert_eq!(ended(child).code(), Some(0));
}

/// Output that fails in whatever way never stops the input.
#[rstest]
#[case::full("/dev/full")]
#[case::read_only("/dev/null")]
#[case::a_pipe_that_nobody_reads("")]
fn failing_output_changes_nothing(#[case] output: &str) {
    let ground = Ground::new();
    let to_output = if output.is_empty() {
        Stdio::from(pipe2(OFlag::O_CLOEXEC).unwrap().1)
    } else {
        let writes = output == "/dev/full";
        Stdio::from(fs::File::options().read(true).write(writes).open(output).unwrap())
    };
    let mut child = ground.command().stdin(Stdio::piped()).stdout(to_output).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    write!(input, "lock ttyS1 {0}\nlock ttyS2 {0}\nunlock ttyS1 {0}\nquit\n", own()).unwrap();
    drop(input);
    assert_eq!(ended(child).code(), Some(0));
    assert_eq!(ground.locks(), ["LCK..ttyS2"]);
}

/// A pipe that can be written to has room for a part of an answer to STAT, and nobody reads it: the session waits for
/// the client as long as for any other, then obeys what it has sent.
#[test]
fn an_answer_larger_than_the_room_of_a_pipe_stops_no_session() {
    const ROOM: usize = 4096;
    let ground = Ground::new();
    for number in 0..STATUS_HOLDERS {
        fs::write(ground.path(&format!("lock/LCK..ttyS{number}")), format!("{:>10}\n", own()))
            .unwrap();
    }
    let (reader, writer) = pipe2(OFlag::O_CLOEXEC).unwrap();
    assert_eq!(fcntl(&writer, FcntlArg::F_SETPIPE_SZ(4096)), Ok(4096));
    let mut command = with(&ground, &["--idle-timeout", "4"]);
    command.stdin(Stdio::piped()).stdout(writer);
    let mut child = command.spawn().unwrap();
    drop(command);
    let mut output = fs::File::from(reader);
    assert!(output.read(&mut [0; ROOM]).unwrap() > 0);
    writeln!(child.stdin.take().unwrap(), "stat\nlock ttyS99 {}", own()).unwrap();
    assert_eq!(ended(child).code(), Some(0));
    assert!(ground.locks().contains(&"LCK..ttyS99".to_owned()));
    let mut said = Vec::new();
    output.read_to_end(&mut said).unwrap();
    assert_eq!(said.len(), ROOM);
}

/// Started with descriptors closed, for a device that no machine has: no lock file ever gets one of their numbers, so nothing of
/// the protocol gets into a lock file, and no lock file's content to the client.
#[rstest]
fn closed_descriptors(
    #[values("", "0<&-")] input: &str,
    #[values("", "1>&-")] output: &str,
    #[values("", "2>&-")] error: &str,
) {
    let ground = Ground::new();
    let lfpd = ground.command();
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(format!("exec \"$@\" {input} {output} {error}")).arg("sh");
    shell.arg(lfpd.get_program()).args(lfpd.get_args());
    shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = shell.spawn().unwrap();
    let said = writeln!(child.stdin.take().unwrap(), "lock pts/70007 {}\nquit", own());
    assert!(said.is_ok() || !input.is_empty());
    let (mut out, mut err) = (String::new(), String::new());
    child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    assert_eq!(ended(child).code(), Some(0));
    let replies = if input.is_empty() { vec!["220", "200", "221"] } else { vec!["220"] };
    let replies = if output.is_empty() { replies } else { vec![] };
    assert_eq!(out.lines().map(|line| &line[..3]).collect::<Vec<_>>(), replies);
    assert_eq!(err, "");
    let names: &[&str] =
        if input.is_empty() { &["LCK..70007", "LCK..pts:70007", "LCK..pts_70007"] } else { &[] };
    assert_eq!(ground.locks(), names);
    for name in names {
        let content = fs::read_to_string(ground.path("lock").join(name)).unwrap();
        assert_eq!(content, format!("{:>10}\n", own()));
    }
}

/// Nothing in the environment changes a byte of what is said and written.
#[test]
fn a_hostile_environment() {
    let ground = Ground::new();
    let mut command = ground.command();
    command.env_clear();
    let long = "x".repeat(100_000);
    for (name, value) in [
        ("LD_LIBRARY_PATH", "/nonexistent"),
        ("GLIBC_TUNABLES", "glibc.malloc.check=3:glibc.malloc.perturb=85"),
        ("MALLOC_PERTURB_", "85"),
        ("RUST_BACKTRACE", "full"),
        ("RUST_LOG", "trace"),
        ("TZ", ":/dev/full"),
        ("LANG", "xx_XX.utf7"),
        ("LC_ALL", "/../../etc"),
        ("COLUMNS", "1"),
        ("CLICOLOR_FORCE", "1"),
        ("TMPDIR", "/nonexistent"),
        ("HOME", "\u{1b}[2J\n"),
        ("LFPD_LOCK_DIR", "/etc"),
        ("LOCK_DIR", "/etc"),
        ("LISTEN_FDS", "-1"),
        ("PATH", long.as_str()),
    ] {
        command.env(name, value);
    }
    let transcript = Transcript::named("rxtx");
    let wire = Wire::start(command);
    assert!(wire.send(&transcript.sent()));
    assert_eq!(wire.finish(), (transcript.answered(usize::MAX), Some(0)));
}

/// The command of the service with these options.
fn with(ground: &Ground, options: &[&str]) -> Command {
    let mut command = ground.command();
    command.args(options);
    command
}

/// The service that a shell becomes after this line.
fn after(line: &str, ground: &Ground) -> Command {
    let lfpd = ground.command();
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{line}; exec \"$@\""), "sh"]);
    shell.arg(lfpd.get_program()).args(lfpd.get_args());
    shell
}

/// Bytes that never become a line do not keep a session, and do nothing.
#[rstest]
fn a_client_that_sends_no_command_is_let_go(
    #[values("", "x")] sent: &str,
    #[values(1, 20)] milliseconds_between: u64,
) {
    let ground = Ground::new();
    let (mut ours, child) = on_stream(with(&ground, &["--idle-timeout", "1"]));
    ours.set_read_timeout(Some(Duration::from_millis(milliseconds_between))).unwrap();
    let (mut said, start) = (Vec::new(), Instant::now());
    while !said.ends_with(CLOSING.as_bytes()) {
        assert!(start.elapsed() < LIMIT, "{}", String::from_utf8_lossy(&said));
        let mut piece = [0; 512];
        match ours.read(&mut piece) {
            Ok(length) => said.extend_from_slice(&piece[..length]),
            Err(error) => {
                let silent = matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted);
                assert!(silent, "{error}");
            }
        }
        let _ = ours.write_all(sent.as_bytes());
    }
    assert_eq!(ended(child).code(), Some(0));
}

/// A client that sends without end and never reads stops nobody but itself: the service waits
/// for it as long as for an idle one, then goes on without answering.
#[test]
fn a_client_that_never_reads_is_not_waited_for_for_ever() {
    let ground = Ground::new();
    let (mut ours, child) = on_stream(with(&ground, &["--idle-timeout", "4"]));
    // Far more than the answers that fit into the connection.
    for _ in 0..256 {
        ours.write_all(&[b'\n'; 1024]).unwrap();
    }
    writeln!(ours, "lock ttyS1 {}", own()).unwrap();
    ours.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(ended(child).code(), Some(0));
    assert_eq!(ground.locks(), ["LCK..ttyS1"]);
}

/// Memory is bounded whatever comes: lines without end, options without end, no line ends.
#[rstest]
#[case::endless_line(b"A")]
#[case::endless_subnegotiation(b"\xff\xfaB")]
#[case::endless_options(b"\xff\xfd\x01")]
#[case::many_lines(b"LOCK /dev/ttyS1\tx\n")]
fn endless_input_costs_bounded_memory(#[case] piece: &[u8]) {
    let ground = Ground::new();
    let wire = Wire::greeted(&ground);
    let packet = piece.repeat(4096 / piece.len());
    let before = status_kib(wire.pid(), "VmHWM");
    let mut answers = 0;
    for _ in 0..512 {
        assert!(wire.send(&packet));
        for _ in 0..packet.iter().filter(|byte| **byte == b'\n').count() {
            assert!(wire.receive().starts_with("500 "));
            answers += 1;
        }
    }
    assert_eq!(answers > 0, piece.ends_with(b"\n"));
    let kib = status_kib(wire.pid(), "VmHWM") - before;
    assert!(kib < 1024, "{kib} KiB for 2048 KiB of input");
    assert_eq!(wire.finish().1, Some(0));
}

/// Where descriptor 2 is the client, it is taken away; where it is not, it is left alone.
#[test]
fn standard_error_never_reaches_the_client() {
    let ground = Ground::new();
    let wire = Wire::greeted(&ground);
    let error = format!("/proc/{}/fd/2", wire.pid());
    assert_eq!(fs::read_link(error).unwrap().to_str(), Some("/dev/null"));
    wire.finish();

    let log = ground.path("log");
    let mut command = ground.command();
    command.stderr(fs::File::create(&log).unwrap());
    let (ours, child) = on_stream(command);
    let mut piece = [0; 512];
    assert!(read_some(&ours, &mut piece) > 0);
    assert_eq!(fs::read_link(format!("/proc/{}/fd/2", child.id())).unwrap(), log);
    drop(ours);
    assert_eq!(ended(child).code(), Some(0));
    assert_eq!(fs::read_to_string(log).unwrap(), "");
}

/// What is wrong with the arguments is no client's business.
#[rstest]
#[case::unknown_option(&["--no-such-option"])]
#[case::bad_value(&["--idle-timeout", "0"])]
#[case::help(&["--help"])]
#[case::version(&["--version"])]
fn a_client_never_sees_the_command_line(#[case] options: &[&str]) {
    let ground = Ground::new();
    assert_eq!(Wire::start(with(&ground, options)).finish(), (String::new(), Some(64)));
}

#[rstest]
#[case::unknown_option(&["--no-such-option"], 64, "", "--no-such-option")]
#[case::no_system(&["--os", "plan10"], 64, "", "plan10")]
#[case::idle_below(&["--idle-timeout", "0"], 64, "", "0")]
#[case::idle_above(&["--idle-timeout", "86401"], 64, "", "86401")]
#[case::facility(&["--log-facility", "lfpd"], 64, "", "no such syslog facility")]
#[case::level(&["--log-level", "loud"], 64, "", "loud")]
#[case::banner(&["--banner-version", "1\r\n200"], 64, "", "printable")]
#[case::anywhere(&["--listen", "0.0.0.0:50001"], 64, "", "0.0.0.0:50001")]
#[case::exclusive_for_others(&["--exclusive", "--trust-pid", "--listen", "unix:/x"], 64, "", "--trust-pid")]
#[case::exclusive_ports_of_others(&["--exclusive", "--anyone", "--listen", "unix:/x"], 64, "", "--anyone")]
#[case::nothing_to_be_exempt_from(&["--exclusive-except", "ttyS0"], 64, "", "--exclusive")]
#[case::version(&["--version"], 0, "lfpd 0.1.0\n", "")]
#[case::help(&["--help"], 0, "--lock-dir", "")]
fn a_person_sees_what_is_wrong(
    #[case] options: &[&str],
    #[case] code: i32,
    #[case] output: &str,
    #[case] error: &str,
) {
    let end = Command::new(env!("CARGO_BIN_EXE_lfpd"))
        .args(options)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(end.status.code(), Some(code));
    assert!(String::from_utf8_lossy(&end.stdout).contains(output), "{end:?}");
    assert!(String::from_utf8_lossy(&end.stderr).contains(error), "{end:?}");
    assert_eq!(
        (end.stdout.is_empty(), end.stderr.is_empty()),
        (output.is_empty(), error.is_empty())
    );
}

/// On a terminal, and behind `2>&1`, descriptor 2 is the same as 1.
#[rstest]
#[case::usage(&["--no-such-option"], 64, "--no-such-option")]
#[case::no_place(&["--listen", "unix:/proc/nonexistent/socket"], 1, "lfpd: cannot listen on")]
fn startup_errors_are_shown_where_both_outputs_are_one(
    #[case] options: &[&str],
    #[case] code: i32,
    #[case] said: &str,
) {
    let mut shell = Command::new("sh");
    shell.args(["-c", "exec \"$@\" 2>&1", "sh", env!("CARGO_BIN_EXE_lfpd")]).args(options);
    let end = shell.stdin(Stdio::null()).output().unwrap();
    assert_eq!(end.status.code(), Some(code));
    assert!(String::from_utf8_lossy(&end.stdout).contains(said), "{end:?}");
}

#[test]
fn the_banner_version_is_selectable() {
    let ground = Ground::new();
    let wire = Wire::start(with(&ground, &["--banner-version", "my own 7"]));
    let greeting = format!("220 {} Lock File Server (Version my own 7) ready\r\n", host());
    assert_eq!(wire.receive(), greeting);
}

/// A session may last: a directory that came after its beginning is searched as well.
#[test]
fn a_directory_that_came_during_the_session_is_searched() {
    let ground = Ground::new();
    fs::remove_dir(ground.path("other")).unwrap();
    let wire = Wire::greeted(&ground);
    assert_eq!(wire.ask(&format!("lock ttyS2 {}", own())), DONE);
    fs::create_dir(ground.path("other")).unwrap();
    let is_busy = || {
        fs::write(ground.path("other/LCK..ttyS1"), format!("{:>10}\n", own())).unwrap();
        let answer = wire.ask(&format!("lock ttyS1 {}", own()));
        wire.ask(&format!("unlock ttyS1 {}", own()));
        answer == BUSY
    };
    assert!(comes(is_busy), "busy");
}

/// `ulimit -f 0`: a refusal for the client, no end by SIGXFSZ, and nothing half-written.
#[test]
fn a_limit_on_the_size_of_files_is_a_refusal() {
    let ground = Ground::new();
    let wire = Wire::start(after("ulimit -f 0", &ground));
    assert!(wire.receive().starts_with("220 "));
    assert_eq!(wire.ask(&format!("lock /dev/ttyS1 {}", own())), "550 : Permission denied.");
    assert_eq!(wire.finish(), (String::new(), Some(0)));
    assert_eq!(ground.locks(), [""; 0]);
}
