//! The recipes of the guide, as they stand there, each in a network of its own, with a server on
//! the port that clients look for.

use crate::kitchen::{HTTP_SERVER, Kitchen, block, recipe};
use crate::program::End;
use rstest::rstest;
use std::fs;
use std::path::Path;

/// The first commands of docs/dflock.md, with stand-ins for the programs that they run.
#[test]
#[ignore = "needs root: tests/run"]
fn the_page_of_the_book_runs_with_a_server() {
    let commands = ["rsync", "ffmpeg", "make-report", "load-data", "count-stock"];
    let scripts = commands.map(|name| (name, format!("echo {name} $* >>ran")));
    let scripts = scripts.each_ref().map(|(name, script)| (*name, script.as_str()));
    let kitchen = Kitchen::new(&scripts);
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/dflock.md");
    let page = fs::read_to_string(page).unwrap();
    let (first, _) = page.split_once("\n\nWho has it?").unwrap();
    let lines = first.lines().filter_map(|line| line.strip_prefix("    dflock "));
    let script: String = lines.map(|words| format!("dflock {words}\n")).collect();
    let end = kitchen.cook(&script);
    assert_eq!(end.code, 0, "{end:?}");
    let ran = kitchen.lines("ran");
    let with_words = ["rsync -a /srv /backup", "ffmpeg -i in.avi out.mp4"];
    assert_eq!(ran, [&with_words[..], &commands[2..]].concat());
}

/// What README and the guide show of a lock that is held: each line behind `$` is typed here, and prints the
/// lines below it, but for names and numbers.
#[rstest]
#[case("README.md", "nightly", "nightly-report")]
#[case("docs/dflock.md", "backup", "rsync")]
#[ignore = "needs root: tests/run"]
fn the_output_on_the_pages_is_what_dflock_prints(
    #[case] page: &str,
    #[case] key: &str,
    #[case] program: &str,
) {
    let kitchen = Kitchen::new(&[(program, "echo >running; exec sleep 1000")]);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(page);
    let page = fs::read_to_string(path).unwrap();
    let shown: Vec<(&str, String)> = page
        .split("\n    $ dflock ")
        .skip(1)
        .map(|rest| {
            let (words, rest) = rest.split_once('\n').unwrap();
            let lines = rest.lines().map_while(|line| line.strip_prefix("    "));
            (words, lines.map(|line| format!("{line}\n")).collect())
        })
        .collect();
    assert!(shown.len() > 1, "{shown:?}");
    let script = format!(
        "dflock run {key} -- {program} & until [ -s running ]; do sleep 0.05; done
         dflock run {key} -- {program} & until dflock stats {key} | grep -q '^  waiting'; do sleep 0.05; done\n"
    );
    let typed: String = shown.iter().map(|(words, _)| format!("dflock {words} 2>&1\n")).collect();
    let end = kitchen.cook(&(script + &typed));
    let expected: String = shown.iter().map(|(_, lines)| lines.as_str()).collect();
    assert_eq!(shape(&end.out), shape(&expected), "{end:?}");
}

/// A text with one name for all holders, and one number for all numbers.
fn shape(text: &str) -> String {
    let anybody = |word: &str| match word.split_once(']') {
        Some((name, rest)) if name.contains('@') && name.starts_with('(') => format!("(al{rest}"),
        Some((name, rest)) if name.contains('@') => format!("al{rest}"),
        _ => word.to_owned(),
    };
    let mut shape = String::new();
    for character in text.split_inclusive([' ', '\n']).map(anybody).collect::<String>().chars() {
        let character = if character.is_ascii_digit() { '0' } else { character };
        if character != '0' || !shape.ends_with('0') {
            shape.push(character);
        }
    }
    shape
}

#[test]
#[ignore = "needs root: tests/run"]
fn one_curl_in_a_cron_line() {
    let text = block("recipes.md", "curl-cron").replace("locks.example", "localhost");
    let (variables, line) = text.trim().rsplit_once('\n').unwrap();
    let command = line.trim().splitn(6, ' ').nth(5).unwrap();
    let kitchen = Kitchen::new(&[("nightly-report", "echo done >>done")]);
    let script = format!("{HTTP_SERVER}{variables}\n{command}; echo $?; {command}; echo $?\n");
    let end = kitchen.boil(&script);
    assert_eq!((kitchen.lines("done").len(), end.out.as_str()), (1, "0\n1\n"), "{end:?}");
    assert_eq!(end.err, "");
}

#[test]
#[ignore = "needs root: tests/run"]
fn a_script_that_takes_turns_by_curl() {
    let text = block("recipes.md", "curl-script").replace("locks.example", "localhost");
    let count = "echo begin >>log; sleep 0.2; echo end >>log";
    let kitchen = Kitchen::new(&[("count-stock", count)]);
    fs::write(kitchen.path().join("script"), text).unwrap();
    let end = kitchen.boil(&format!(
        "{HTTP_SERVER}for i in 1 2 3; do sh script & jobs=\"${{jobs-}} $!\"; done; wait $jobs\n"
    ));
    let each = ["begin", "end"];
    assert_eq!(kitchen.lines("log"), [each, each, each].concat(), "{end:?}");
    assert_eq!((end.code, end.out.as_str(), end.err.as_str()), (0, "", ""), "{end:?}");
}

/// The second host's clock is late: the job is done by then, and is not done again.
#[test]
#[ignore = "needs root: tests/run"]
fn a_cron_job_runs_on_one_of_two_hosts() {
    let text = recipe("cron");
    let (servers, line) = text.split_once('\n').unwrap();
    assert_eq!(servers, "DFLOCK_SERVERS=locks.example");
    let command = line.trim().splitn(6, ' ').nth(5).unwrap();
    assert!(command.contains("--hold-for 60"), "{command}");
    let command = command.replace("--hold-for 60", "--hold-for 9");
    let kitchen = Kitchen::new(&[("nightly-report", "echo $DFLOCK_KEY >>done")]);
    let script = format!(
        "{command} & first=$!
         until [ -s done ] && ! pgrep nightly-report; do sleep 0.05; done
         {command}; echo second $?
         wait $first; echo first $?"
    );
    let end = kitchen.cook(&script);
    assert_eq!(kitchen.lines("done"), ["nightly"], "{end:?}");
    let silent = ("second 0\nfirst 0\n", "", 0);
    assert_eq!((&*end.out, &*end.err, end.code), silent, "cron mails what is printed");
}

#[test]
#[ignore = "needs root: tests/run"]
fn at_most_three_of_ten_jobs_run_at_once() {
    let files: Vec<String> = (0..10).map(|number| format!("{number}.avi")).collect();
    let kitchen = Kitchen::new(&[(
        "convert-one",
        "mkdir in.$1; ls -d in.* | wc -l >>counts; sleep 0.3; rmdir in.$1",
    )]);
    for file in &files {
        fs::write(kitchen.path().join(file), "").unwrap();
    }
    // `wait` would wait for the server as well.
    let script =
        recipe("three").replace("wait\n", "until [ $(wc -l <counts) = 10 ]; do sleep 0.1; done");
    let end = kitchen.cook(&script);
    let counts = kitchen.lines("counts");
    assert_eq!(counts.len(), 10, "{end:?}");
    assert!(counts.iter().all(|count| ["1", "2", "3"].contains(&count.as_str())), "{counts:?}");
}

/// The leader's dflock is killed, and its daemon with it; the other host takes over.
#[test]
#[ignore = "needs root: tests/run"]
fn a_leader_is_followed_by_another() {
    let text = recipe("leader");
    let command = text.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    let kitchen = Kitchen::new(&[("scheduler", "echo $$ >>leaders; exec sleep 1000")]);
    let script = format!(
        "{command} & {command} &
         until [ -s leaders ]; do sleep 0.05; done
         first=$(cat leaders)
         kill -9 $(ps -o ppid= $first)
         until [ $(wc -l <leaders) = 2 ]; do sleep 0.05; done
         kill -0 $first 2>/dev/null || echo one leader"
    );
    let end = kitchen.cook(&script);
    assert_eq!(end.out, "one leader\n", "{end:?}");
}

/// The unit as systemd itself runs it. `PATIENCE` is dflock's, in seconds; a pause of `RestartSec` is a
/// fifth of a second, so that a limit on starts would count.
fn unit_under_systemd(patience: &str, script: &str) -> End {
    let own = Path::new(env!("CARGO_BIN_EXE_dflock"));
    let kitchen = Kitchen::new(&[("scheduler", "echo $$ >>leaders; exec sleep 1000")]);
    let place = kitchen.path();
    let dflock = format!("{} --patience {patience} run", own.display());
    let text = recipe("leader");
    for (written, times) in
        [("dflock run", 1), ("scheduler", 1), ("=locks.example", 1), ("RestartSec=5", 1)]
    {
        assert_eq!(text.matches(written).count(), times, "{written}");
    }
    let text = text.replace("dflock run", &dflock).replace("=locks.example", "=127.0.0.1");
    let text = text.replace("scheduler", &format!("{}/scheduler", place.display()));
    let text = text.replace("RestartSec=5", "RestartSec=200ms");
    let unit = format!("{text}WorkingDirectory={}\n", place.display());
    fs::create_dir_all(place.join("conf/systemd/user")).unwrap();
    fs::write(place.join("conf/systemd/user/leader.service"), unit).unwrap();
    // What systemd looks for in /run says that it is the system's; that of the host stays as it is.
    kitchen.boil(&format!(
        "mount -t tmpfs none /run; mkdir -p /run/systemd/system; mkdir -m 700 -p /run/user/0
         export XDG_RUNTIME_DIR=/run/user/0 XDG_CONFIG_HOME=$PWD/conf HOME=$PWD
         is() {{ systemctl --user show --value --property=$1 leader 2>/dev/null; }}
         starts() {{ restarts=$(is NRestarts); [ ${{restarts:-0}} -ge $1 ] || [ $(is ActiveState) = failed ]; }}
         serve() {{ dflockd 2>/dev/null & server=$!; }}
         led() {{ [ -s leaders ] || [ $(is ActiveState) = failed ]; }}
         /lib/systemd/systemd --user --unit=leader.service </dev/null >systemd 2>&1 &
         until [ -n \"$(is MainPID)\" ]; do sleep 0.05; done
         {script}
         [ $(is ActiveState) = failed ] || echo never failed
         is NRestarts; cat systemd >&2"
    ))
}

/// The server comes later than the unit; or much later, and then it goes and does not come back.
#[rstest]
#[case::by_patience(
    "60",
    "until pgrep dflock; do sleep 0.05; done; serve; until led; do sleep 0.05; done",
    0
)]
#[case::by_starting_again(
    "1",
    "until starts 7; do sleep 0.05; done; serve; until led; do sleep 0.05; done
     kill -9 $server; until starts 14; do sleep 0.05; done",
    14
)]
#[ignore = "needs root: tests/run"]
fn the_leader_unit_outlasts_an_absent_server(
    #[case] patience: &str,
    #[case] script: &str,
    #[case] starts: usize,
) {
    let script = format!("{{ {script}; }} >/dev/null; wc -l <leaders");
    let end = unit_under_systemd(patience, &script);
    let (said, restarts) = end.out.trim_end().rsplit_once('\n').unwrap();
    assert_eq!(said, "1\nnever failed", "{end:?}");
    let restarts: usize = restarts.parse().unwrap();
    assert!(restarts >= starts && (restarts == 0) == (starts == 0), "{end:?}");
}

#[test]
#[ignore = "needs root: tests/run"]
fn tls_and_a_secret() {
    let waiting = "until dflock --tls-ca cert.pem ping >/dev/null 2>&1; do sleep 0.05; done\n";
    let text = recipe("tls");
    let (before, last) = text.trim_end().rsplit_once('\n').unwrap();
    let script = format!("{before}\n{waiting}{last}; DFLOCK_AUTH_TOKEN_FILE=cert.pem {last}");
    let end = Kitchen::new(&[]).cook(&script);
    assert_eq!(end.out, "it is mine\n", "{end:?}");
    assert!(end.err.contains("more than one line"), "{end:?}");
}

/// docs/twenty-machines.md, but for the installed unit: its variables are those of the shell.
#[test]
#[ignore = "needs root: tests/run"]
fn a_server_for_twenty_machines() {
    let page = |name| block("twenty-machines.md", name);
    let certificate = page("certificate").replace("/etc/dflockd", "etc");
    let service = page("service");
    let credentials = service.lines().filter_map(|line| line.strip_prefix("LoadCredential="));
    let copies: String = credentials
        .map(|line| format!("cp etc/{} run/\n", line.split_once(":/etc/dflockd/").unwrap().1))
        .collect();
    let variables = service.lines().filter_map(|line| line.strip_prefix("Environment="));
    let variables: String =
        variables.map(|line| format!("export {}\n", line.replace("%d", "run"))).collect();
    assert_eq!((copies.lines().count(), variables.lines().count()), (5, 8));
    let job = page("job").replace("/etc/dflock/", "client/");
    let scrape = page("scrape");
    for line in ["scheme: https", "ca_file: cert.pem", "credentials_file: metrics-secret"] {
        assert!(scrape.contains(line), "{line}");
    }
    let script = format!(
        "echo 127.0.0.1 locks.example >hosts; mount --bind hosts /etc/hosts
         ({certificate}) 2>/dev/null; umask 077; mkdir run client
         {copies}cp etc/cert.pem etc/secret client/
         ({variables}exec dflockd --state-dir state 2>log) &
         metrics() {{ curl -sf --cacert client/cert.pem -H \"Authorization: Bearer $(cat $1)\" \
             https://locks.example:6389/metrics; }}
         until metrics etc/metrics-secret >numbers; do sleep 0.05; done
         metrics client/cert.pem || echo no numbers without the secret
         {job}dflock stats --tls-ca client/cert.pem | head -1
         dflock force-release --tls-ca client/cert.pem --admin-token-file etc/admin-secret backup
         echo $?; wc -l <ran; grep -c ^dflockd_uptime numbers"
    );
    let end = Kitchen::new(&[("backup.sh", "echo $DFLOCK_KEY >>ran")]).boil(&script);
    let lines: Vec<&str> = end.out.lines().collect();
    assert_eq!(
        lines,
        ["no numbers without the secret", "locks.example:6388: 1 connection", "1", "1", "1"],
        "{end:?}"
    );
}

#[test]
#[ignore = "needs root: tests/run"]
fn from_python() {
    let script = format!("/usr/bin/python3 - <<'END'\n{}END", recipe("python"));
    let end = Kitchen::new(&[]).cook(&script);
    assert_eq!(end.code, 0, "{end:?}");
    assert!(end.out.starts_with("it is mine, number "), "{end:?}");
}
