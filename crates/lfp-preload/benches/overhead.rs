//! What the library costs programs that have nothing to do with it: starting one, and opening a
//! file. `cargo bench -p lfp-preload`.
//!
//! The ways are measured by turns, so that whatever else the machine does falls on all of them
//! alike; what is printed is the median, and the median of the ratios of neighbours.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// Turns for starting a program, and for opening a file many times.
const STARTS: usize = 500;
const RUNS: usize = 60;

/// Opens and closes a file a thousand times, ten times, and says how many nanoseconds each of the
/// shortest thousand took.
const OPENS: &str = "import os, time\ndef once():\n  begin = time.perf_counter()\n  \
                     for i in range(1000): os.close(os.open('/etc/hostname', 0))\n  \
                     return (time.perf_counter() - begin) * 1e6\n\
                     print(min(once() for i in range(10)))";

/// Without the library, in files mode, and in files and ports mode.
const WAYS: [(&str, Option<&str>); 3] =
    [("without", None), ("files", Some("0")), ("files and ports", Some("1"))];

fn main() {
    let library = library();
    let starts = by_turns(STARTS, |ports| {
        let begin = Instant::now();
        let status = prepared(&library, ports, &["/bin/true"]).status();
        assert!(status.is_ok_and(|it| it.success()), "/bin/true");
        begin.elapsed().as_secs_f64() * 1e6
    });
    let opens = by_turns(RUNS, |ports| {
        let output = prepared(&library, ports, &["python3", "-c", OPENS]).output();
        let output = output.map(|it| it.stdout).unwrap_or_default();
        String::from_utf8_lossy(&output).trim().parse().unwrap_or(f64::NAN)
    });
    println!("                       exec, microsec  open and close, nanosec");
    for (way, (name, _)) in WAYS.iter().enumerate() {
        let [start, open] = [&starts, &opens].map(|turns| {
            let of = |turn: &[f64; 3]| turn.get(way).copied().unwrap_or(f64::NAN);
            let ratio = median(turns.iter().map(|turn| of(turn) / turn[0]));
            format!("{:.0} ({ratio:.2} times)", median(turns.iter().map(of)))
        });
        println!("{name:<16} {start:>20} {open:>24}");
    }
}

/// Measures each way once in every turn, each turn beginning with another one.
fn by_turns(turns: usize, mut measure: impl FnMut(Option<&str>) -> f64) -> Vec<[f64; 3]> {
    let turn = |number: usize| {
        let mut figures = [0.0; 3];
        for step in 0..WAYS.len() {
            let way = (number + step) % WAYS.len();
            if let (Some(figure), Some((_, ports))) = (figures.get_mut(way), WAYS.get(way)) {
                *figure = measure(*ports);
            }
        }
        figures
    };
    (0..turns).map(turn).collect()
}

fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
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
