//! What the library costs programs that have nothing to do with it: starting one, and opening a
//! file. `cargo bench -p lfp-preload`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const ROUNDS: usize = 300;

fn main() {
    let library = library();
    let ways = [("without", None), ("files", Some("0")), ("files and ports", Some("1"))];
    let start = |ports: Option<&str>| {
        shortest(ROUNDS, || run(&mut prepared(&library, ports, &["/bin/true"])))
    };
    let script = "import os, time\ndef once():\n  begin = time.perf_counter()\n  \
                  for i in range(1000): os.close(os.open('/etc/hostname', 0))\n  \
                  return (time.perf_counter() - begin) * 1e6\n\
                  print(min(once() for i in range(100)))";
    println!("{:<16} {:>14} {:>20}", "", "exec, microsec", "open+close, nanosec");
    for (name, ports) in ways {
        let mut python = prepared(&library, ports, &["python3", "-c", script]);
        let output = python.output().map(|it| it.stdout).unwrap_or_default();
        let open: f64 = String::from_utf8_lossy(&output).trim().parse().unwrap_or(f64::NAN);
        println!("{name:<16} {:>14.1} {open:>20.0}", start(ports).as_secs_f64() * 1e6);
    }
}

/// The library, as it is shipped.
fn library() -> PathBuf {
    let program = std::env::current_exe().unwrap_or_default();
    let target = program.ancestors().nth(2).unwrap_or(Path::new("."));
    target.join("deps/liblfp_preload.so")
}

fn prepared(library: &Path, ports: Option<&str>, words: &[&str]) -> Command {
    let mut command = Command::new(words.first().copied().unwrap_or_default());
    command.args(words.iter().skip(1));
    if let Some(ports) = ports {
        command.env("LD_PRELOAD", library).env("LFP_PORTS", ports);
    }
    command
}

fn run(command: &mut Command) {
    let status = command.status();
    assert!(status.is_ok_and(|it| it.success()), "{command:?}");
}

/// The shortest of many: what disturbs only adds.
fn shortest(rounds: usize, mut call: impl FnMut()) -> Duration {
    let time = |_| {
        let begin = Instant::now();
        call();
        begin.elapsed()
    };
    (0..rounds).map(time).min().unwrap_or_default()
}
