//! The recipes of the README, as they stand there, each in a network of its own, with a server on
//! the port that clients look for.

use crate::program::{End, PATH, run};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The block behind `<!-- run: NAME -->`, as one would copy it.
fn recipe(name: &str) -> String {
    let readme = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/README.md")).unwrap();
    let (_, rest) = readme.split_once(&format!("<!-- run: {name} -->\n\n")).expect(name);
    let lines = rest.lines().take_while(|line| line.is_empty() || line.starts_with("    "));
    lines.map(|line| line.strip_prefix("    ").unwrap_or_default().to_owned() + "\n").collect()
}

/// A directory to be in, with programs that the recipes run.
struct Kitchen(tempfile::TempDir);

impl Kitchen {
    fn new(programs: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for (name, script) in programs {
            let file = dir.path().join(name);
            fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        }
        Self(dir)
    }

    /// Runs a script there, with a server unless it brings its own.
    fn cook(&self, script: &str) -> End {
        let server = if script.contains("dflockd --tls") {
            ""
        } else {
            "dflockd 2>/dev/null & until dflock ping >/dev/null 2>&1; do sleep 0.05; done\n"
        };
        let script = format!("set -u; ip link set lo up\n{server}{script}");
        let programs = [PathBuf::from(env!("CARGO_BIN_EXE_dflock")), crate::dflockd()];
        let [client, server] = programs.each_ref().map(|it| it.parent().unwrap().display());
        let place = self.0.path().display();
        let mut command = Command::new("timeout");
        command.args(["--signal=KILL", "60", "unshare", "--net", "--pid", "--fork"]);
        command.args(["--kill-child", "--mount-proc", "sh", "-c", &script]);
        command.current_dir(self.0.path()).env_clear();
        command.env("PATH", format!("{place}:{client}:{server}:{PATH}:/usr/sbin:/sbin"));
        let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/peers");
        let peers = std::env::var_os("LFPD_PEERS").map_or(peers, PathBuf::from);
        run(command.env("PYTHONPATH", peers.join("dflockd-client-2.1.1")))
    }

    fn lines(&self, file: &str) -> Vec<String> {
        let text = fs::read_to_string(self.0.path().join(file)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

/// The second host's clock is late: the job is done by then, and is not done again.
#[test]
fn a_cron_job_runs_on_one_of_two_hosts() {
    let text = recipe("cron");
    let (servers, line) = text.split_once('\n').unwrap();
    assert_eq!(servers, "DFLOCK_SERVERS=locks.example");
    let command = line.trim().splitn(6, ' ').nth(5).unwrap();
    assert!(command.contains("--hold-for 60"), "{command}");
    let command = command.replace("--hold-for 60", "--hold-for 3");
    let kitchen = Kitchen::new(&[("nightly-report", "echo $DFLOCK_KEY >>done")]);
    let script = format!(
        "{command} & first=$!
         until [ -s done ] && ! pgrep nightly-report; do sleep 0.05; done
         {command}; echo second $?
         wait $first; echo first $?"
    );
    let end = kitchen.cook(&script);
    assert_eq!(kitchen.lines("done"), ["nightly"], "{end:?}");
    assert_eq!((&*end.stdout, end.code), ("second 0\nfirst 0\n", 0), "{end:?}");
}

#[test]
fn three_of_ten() {
    let files: Vec<String> = (0..10).map(|number| format!("{number}.avi")).collect();
    let kitchen = Kitchen::new(&[(
        "convert-one",
        "mkdir in.$1; ls -d in.* | wc -l >>counts; sleep 0.3; rmdir in.$1",
    )]);
    for file in &files {
        fs::write(kitchen.0.path().join(file), "").unwrap();
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
    assert_eq!(end.stdout, "one leader\n", "{end:?}");
}

#[test]
fn tls_and_a_secret() {
    let waiting = "until dflock --tls-ca cert.pem ping >/dev/null 2>&1; do sleep 0.05; done\n";
    let text = recipe("tls");
    let (before, last) = text.trim_end().rsplit_once('\n').unwrap();
    let script = format!("{before}\n{waiting}{last}; DFLOCK_AUTH_TOKEN_FILE=cert.pem {last}");
    let end = Kitchen::new(&[]).cook(&script);
    assert_eq!(end.stdout, "it is mine\n", "{end:?}");
    assert!(end.stderr.contains("more than one line"), "{end:?}");
}

#[test]
fn from_python() {
    let script = format!("/usr/bin/python3 - <<'END'\n{}END", recipe("python"));
    let end = Kitchen::new(&[]).cook(&script);
    assert_eq!(end.code, 0, "{end:?}");
    assert!(end.stdout.starts_with("it is mine, number "), "{end:?}");
}
