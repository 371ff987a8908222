//! The sandbox itself: what is private in it, and that nothing of it outlives it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use testbed::{LIMIT, Sandbox, User, until};

#[test]
#[ignore = "needs namespaces: tests/run"]
fn shows_ports_links_and_locks_of_its_own() {
    let sandbox = Sandbox::layout()
        .port("ttyW0")
        .port("pts/3")
        .link("modemW", "ttyW0")
        .link("serial/by-id/usb-X", "../../ttyW0")
        .enter();
    let end = sandbox
        .command("stat")
        .args(["-L", "-c", "%F %t %n", "/dev/ttyW0", "/dev/pts/3", "/dev/modemW"])
        .arg("/dev/serial/by-id/usb-X")
        .run();
    let node = "character special file 88 /dev/"; // 0x88 is 136
    for name in ["ttyW0", "pts/3", "modemW", "serial/by-id/usb-X"] {
        assert!(end.said(&format!("{node}{name}\n")), "{end}");
    }
    let end = sandbox.command("stat").args(["-c", "%a %U", "/var/lock/", "/run/lock"]).run();
    assert_eq!(end.output(), "1777 root\n1777 root\n");
    sandbox.write("/run/lock/LCK..ttyW0", "       100\n", 0o444);
    assert_eq!(sandbox.locks(), ["LCK..ttyW0"]);
    assert!(!fs::exists("/run/lock/LCK..ttyW0").unwrap(), "it must not be the machine's own");
}

#[test]
#[ignore = "needs namespaces: tests/run"]
fn connects_both_ends_of_a_port() {
    let sandbox = Sandbox::layout().port("ttyW0").enter();
    let mut reader = sandbox.command("head").args(["-n1", "/dev/ttyW0"]).spawn();
    std::io::Write::write_all(&mut sandbox.far_end("ttyW0"), b"from afar\n").unwrap();
    reader.expect("from afar");
}

#[test]
#[ignore = "needs namespaces: tests/run"]
fn runs_programs_as_its_users_with_its_own_pids_and_network() {
    let sandbox = Sandbox::layout().enter();
    let end = sandbox.command("id").user(User::Alice).no_input().run();
    assert!(end.said("uid=1000(alice)") && end.said("20(dialout)"), "{end}");
    let end = sandbox.command("grep").args(["-h", "CapEff", "/proc/self/status"]);
    let end = end.user(User::UucpWithFowner).run();
    assert!(end.said("0000000000000008"), "{end}");
    let sleeper = sandbox.command("sleep").arg("1000").user(User::Bob).spawn();
    let pid = sleeper.pid().to_string();
    let end = sandbox.command("ps").args(["-o", "pid=,user=,comm=", "-p", &pid]).run();
    assert!(end.said("bob") && end.said("sleep"), "{end}");
    let end = sandbox.command("ip").args(["-o", "addr"]).run();
    assert!(
        end.said("127.0.0.1") && end.output().lines().all(|line| line.contains("lo ")),
        "{end}"
    );
}

#[test]
#[ignore = "needs namespaces: tests/run"]
fn tells_exit_codes_and_signals_apart() {
    let sandbox = Sandbox::layout().enter();
    let end = sandbox.command("sh").args(["-c", "echo out; echo err >&2; exit 6"]).run();
    assert_eq!((end.code(), end.said("out"), end.said("err")), (6, true, true), "{end}");
    let end = sandbox.command("sh").args(["-c", "kill -9 $$"]).run();
    assert_eq!(end.code(), -9, "{end}");
    let mut cat = sandbox.command("cat").spawn();
    cat.type_in("echoed\n");
    cat.expect("echoed");
    cat.end_input();
    assert_eq!(cat.wait(LIMIT).code(), 0);
    let end = sandbox.command("test").args(["-t", "0"]).on_terminal().run();
    assert_eq!(end.code(), 0, "{end}");
    let end = sandbox.command("test").args(["-t", "0"]).run();
    assert_eq!(end.code(), 1, "{end}");
}

#[test]
#[ignore = "needs namespaces: tests/run"]
fn frees_the_pid_of_a_killed_program() {
    let sandbox = Sandbox::layout().enter();
    let sleeper = sandbox.command("sleep").arg("1000").spawn();
    let alive = format!("kill -0 {}", sleeper.pid());
    assert_eq!(sandbox.command("sh").args(["-c", &alive]).run().code(), 0);
    sleeper.kill();
    assert_ne!(sandbox.command("sh").args(["-c", &alive]).run().code(), 0);
}

#[test]
#[ignore = "needs namespaces: tests/run"]
fn takes_its_processes_along_when_it_goes() {
    let sandbox = Sandbox::layout().enter();
    let inside = sandbox.path("/proc/1");
    let _orphan = sandbox.command("sh").args(["-c", "sleep 1000 & sleep 1000 & echo"]).run();
    assert!(inside.exists());
    drop(sandbox);
    assert!(until(LIMIT, || (!inside.exists()).then_some(())).is_some());
}

/// This test runs itself once more as the one that is killed.
#[test]
#[ignore = "needs namespaces: tests/run"]
fn leaves_nothing_when_the_test_is_killed() {
    const MARK: &str = "TESTBED_TO_BE_KILLED";
    if std::env::var_os(MARK).is_some() {
        let sandbox = Sandbox::layout().enter();
        let _sleeper = sandbox.command("sleep").arg("1000").spawn();
        println!("\nat {}", sandbox.path("/proc/1").display());
        std::io::stdin().read_line(&mut String::new()).unwrap();
        return;
    }
    let mut test = Command::new(std::env::current_exe().unwrap())
        .args([
            "--include-ignored",
            "--exact",
            "leaves_nothing_when_the_test_is_killed",
            "--nocapture",
        ])
        .env(MARK, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let place = BufReader::new(test.stdout.take().unwrap())
        .lines()
        .find_map(|line| Some(PathBuf::from(line.ok()?.strip_prefix("at ")?)))
        .unwrap();
    assert!(place.exists());
    test.kill().unwrap();
    test.wait().unwrap();
    assert!(until(LIMIT, || (!place.exists()).then_some(())).is_some());
}

#[test]
#[ignore = "needs namespaces: tests/run"]
#[should_panic(expected = "still runs")]
fn lets_no_program_run_for_ever() {
    let sandbox = Sandbox::layout().enter();
    let _ = sandbox.command("sleep").arg("1000").limit(Duration::from_millis(50)).run();
}

#[test]
#[ignore = "needs namespaces: tests/run"]
#[should_panic(expected = "no-such-program is not installed: run .ci/install")]
fn names_a_missing_program() {
    let sandbox = Sandbox::layout().enter();
    let _ = sandbox.command("no-such-program").run();
}

#[test]
#[ignore = "needs namespaces: tests/run"]
#[should_panic(expected = "no-such-program is not installed: run .ci/install")]
fn names_a_missing_program_of_a_user() {
    let sandbox = Sandbox::layout().enter();
    let _ = sandbox.command("no-such-program").user(User::Alice).run();
}
