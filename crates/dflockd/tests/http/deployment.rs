//! What is installed beside the server for others to read: alert rules and a dashboard for its
//! metrics, a container and a compose file; and the manifests for Kubernetes. Each is read by its own
//! program (`.ci/kubernetes` for the last), and names only what there is.

use crate::site::Site;
use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction};
use dflockd::config::{FLAGS, Flag, Kind};
use rstest::rstest;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use testbed::dflockd::Daemon;
use testbed::{peer, program};
use wrapcmd::Shell;

const ETC: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/etc");
const RULES: &str = "prometheus/dflockd.rules.yml";

fn read(file: &str) -> String {
    fs::read_to_string(format!("{ETC}/{file}")).unwrap()
}

/// With LFPD_UPDATE in the environment, the files are written anew instead.
#[rstest]
fn the_completions_are_current(#[values(Shell::Bash, Shell::Fish, Shell::Zsh)] shell: Shell) {
    let option = |flag: &Flag| {
        let value = match flag.name {
            "tls-cert" | "tls-key" | "etcd-ca" | "etcd-cert" | "etcd-key" | "unix-socket" => "FILE",
            "state-dir" => "DIR",
            name if name.ends_with("-file") => "FILE",
            _ => "TEXT",
        };
        let takes = if flag.kind == Kind::Switch { ArgAction::SetTrue } else { ArgAction::Set };
        let arg = Arg::new(flag.name).long(flag.name).help(flag.help).action(takes);
        if let Kind::OneOf(words) = flag.kind {
            return arg.value_parser(PossibleValuesParser::new(words.iter().copied()));
        }
        arg.value_name(value)
    };
    let command = clap::Command::new("dflockd").args(FLAGS.iter().map(option));
    let made = wrapcmd::completions(shell, &command);
    let file = format!("completions/dflockd.{shell:?}").to_lowercase();
    if std::env::var_os("LFPD_UPDATE").is_some() {
        fs::write(format!("{ETC}/{file}"), &made).unwrap();
    }
    let advice = "the options have changed: LFPD_UPDATE=1 cargo test --test deployment";
    assert!(read(&file) == made, "{advice}");
}

/// Runs a program that must find nothing wrong.
fn content(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.success(), "{command:?}: {said}");
}

fn promtool(words: &[&str]) -> Command {
    let mut command = Command::new(peer("prometheus", "usr/bin/promtool"));
    command.args(words).current_dir(format!("{ETC}/prometheus"));
    command
}

/// The series a text names.
fn named(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = text.split(|c| !is_part(c)).filter(|word| word.starts_with("dflockd_"));
    words.map(|word| word.strip_suffix("_bucket").unwrap_or(word).to_owned()).collect()
}

/// The series there are.
fn shown() -> BTreeSet<String> {
    let text = Site::start(&[]).get("/metrics").text().to_owned();
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    types.map(|rest| rest.split(' ').next().unwrap().to_owned()).collect()
}

#[test]
#[ignore = "needs programs: tests/run"]
fn prometheus_takes_the_alerts() {
    content(&mut promtool(&["check", "rules", "dflockd.rules.yml"]));
    content(&mut promtool(&["test", "rules", "dflockd.rules.test.yml"]));
    let unknown: Vec<_> = named(&read(RULES)).difference(&shown()).cloned().collect();
    assert_eq!(unknown, Vec::<String>::new());
}

/// Every question of the dashboard is one that Prometheus understands.
#[test]
#[ignore = "needs programs: tests/run"]
fn the_dashboard_asks_for_what_there_is() {
    let text = read("grafana/dflockd.json");
    let board: Value = serde_json::from_str(&text).unwrap();
    let targets = board["panels"].as_array().unwrap().iter().flat_map(|panel| {
        panel["targets"].as_array().unwrap().iter().map(|it| it["expr"].as_str().unwrap())
    });
    let mut rules = "groups:\n  - name: dashboard\n    rules:\n".to_owned();
    for (number, expression) in targets.enumerate() {
        let expression = expression.replace("$__rate_interval", "5m").replace("$instance", ".*");
        let expression = Value::from(expression);
        rules += &format!("      - record: panel:{number}\n        expr: {expression}\n");
    }
    assert!(rules.matches("record").count() > 10, "{rules}");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("rules.yml");
    fs::write(&file, rules).unwrap();
    content(promtool(&["check", "rules"]).arg(file));
    // Other words of ours in it are no series.
    let unknown: Vec<_> = named(&text).difference(&shown()).cloned().collect();
    assert_eq!(unknown, Vec::<String>::new());
}

#[test]
#[ignore = "needs programs: tests/run"]
fn compose_takes_its_file() {
    let mut compose = Command::new("docker-compose");
    compose.args(["-f", &format!("{ETC}/container/compose.yaml"), "config", "--quiet"]);
    content(&mut compose);
    let other = read("container/compose.yaml").replace("services:", "servants:");
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("compose.yaml"), other).unwrap();
    let refused = Command::new("docker-compose").arg("config").current_dir(&dir).output();
    assert!(!refused.unwrap().status.success(), "it takes anything");
}

/// One instruction a line: its word and the rest.
fn instructions(text: &str) -> Vec<(&str, &str)> {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines.map(|line| line.split_once(' ').unwrap()).collect()
}

fn words(json: &str) -> Vec<String> {
    serde_json::from_str(json).unwrap_or_else(|error| panic!("{json}: {error}"))
}

/// What the container starts is a server, and its health check finds it.
#[test]
#[ignore = "needs programs: tests/run"]
fn the_container_starts_a_server() {
    const KNOWN: [&str; 11] = [
        "FROM",
        "WORKDIR",
        "COPY",
        "RUN",
        "USER",
        "VOLUME",
        "EXPOSE",
        "HEALTHCHECK",
        "ENTRYPOINT",
        "CMD",
        "ENV",
    ];
    let text = read("container/Dockerfile");
    let all = instructions(&text);
    assert!(all.iter().all(|(word, _)| KNOWN.contains(word)), "{all:?}");
    assert_eq!(all[0].0, "FROM");
    let rest = |wanted: &str| all.iter().find(|(word, _)| *word == wanted).unwrap().1;
    assert_eq!(words(rest("ENTRYPOINT")), ["dflockd"]);
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("state");
    let arguments: Vec<String> = words(rest("CMD"))
        .into_iter()
        .map(|word| word.replace("/var/lib/dflockd", place.to_str().unwrap()))
        .collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let daemon = Daemon::start(&arguments);
    let check = words(rest("HEALTHCHECK").split_once("CMD ").unwrap().1);
    assert_eq!(check[0], "dflock");
    let port = daemon.logged("msg=listening").rsplit(':').next().unwrap().to_owned();
    let mut dflock = Command::new(program("dflock", "dflock", &["cli"]));
    dflock.args(&check[1..]).env("DFLOCK_SERVERS", format!("127.0.0.1:{port}"));
    content(&mut dflock);
    // What is copied from the first stage is what that builds.
    for (_, copied) in all.iter().filter(|(word, rest)| *word == "COPY" && rest.contains("--from"))
    {
        let program = copied.split(' ').nth(1).and_then(|path| path.rsplit('/').next()).unwrap();
        assert!(rest("RUN").contains(&format!("--package {program}")), "{copied}");
    }
    assert!(Path::new(ETC).join("../../../Cargo.lock").exists(), "the context is the workspace");
}

/// The server takes the options that the pods give it, and answers where Kubernetes asks for its health. Without
/// etcd it lives and is not ready.
#[test]
fn the_pods_start_a_server_that_answers_their_probes() {
    let text = include_str!("../../../../packaging/kubernetes/dflockd.yaml");
    let options: Vec<&str> =
        text.lines().filter_map(|line| line.trim().strip_prefix("- --")).collect();
    assert!(options.len() >= 10, "{options:?}");
    let secret = tempfile::NamedTempFile::new().unwrap();
    fs::write(&secret, "sesame\n").unwrap();
    // As the volume of a Secret has it.
    fs::set_permissions(&secret, std::os::unix::fs::PermissionsExt::from_mode(0o440)).unwrap();
    let away = format!("127.0.0.1:{}", testbed::dflockd::free_port());
    let mut arguments = Vec::new();
    for option in options {
        let (name, value) = option.split_once('=').unwrap();
        let value = match name {
            // The test's own.
            "port" | "http-port" => continue,
            "host" | "http-host" => {
                assert_eq!(value, "0.0.0.0", "pods are reached from other machines");
                "127.0.0.1"
            }
            "auth-token-file" => secret.path().to_str().unwrap(),
            "etcd-endpoints" => &away,
            _ => value,
        };
        arguments.push(format!("--{name}={value}"));
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let site = Site::start(&arguments);
    let after = |probe: &str| {
        let rest = text.split_once(probe).unwrap().1;
        rest.lines().find_map(|line| line.trim().strip_prefix("path: ")).unwrap()
    };
    assert_eq!(site.get(after("livenessProbe:")).status, 200);
    assert_eq!(site.get(after("readinessProbe:")).status, 503);
    assert_eq!(site.daemon.talk().ask("auth", "_", "wrong"), "error_auth");
}
