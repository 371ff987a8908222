//! The picture at the head of the README: a real session, drawn. With LFPD_UPDATE in the environment
//! it is drawn anew; otherwise it must be what the program says today.

use std::fs;

use testbed::{Sandbox, User};

use crate::bench::Bench;

const PICTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/etc/session.svg");

/// What Bob types while Alice uses the port.
const COMMANDS: [&str; 3] = [
    "lfp who /dev/ttyUSB0",
    "lfp run /dev/ttyUSB0 -- minicom -o -D /dev/ttyUSB0",
    "lfp list --all",
];

#[test]
#[ignore = "needs namespaces: tests/run"]
fn the_picture_is_current() {
    let drawn = drawn(&session());
    if std::env::var_os("LFPD_UPDATE").is_some() {
        fs::write(PICTURE, &drawn).unwrap();
    }
    let advice =
        "what lfp says has changed: LFPD_UPDATE=1 cargo test --test lfp_program the_picture";
    assert!(fs::read_to_string(PICTURE).unwrap() == drawn, "{advice}\n{drawn}");
}

/// The commands and what they say, as a person sees it.
fn session() -> Vec<String> {
    let layout = Sandbox::layout().port("ttyUSB0").port("ttyS0");
    let bench = Bench::of(layout.lock_dir("0755", "lfpd:lfpd"));
    let _service = bench.listen(User::Lfpd);
    let picocom = "exec lfp run /dev/ttyUSB0 -- picocom -b 115200 /dev/ttyUSB0";
    let mut terminal = bench.typed(User::Alice, picocom).on_terminal().spawn();
    terminal.expect("Terminal ready");
    let mut lines = Vec::new();
    for command in COMMANDS {
        let said = bench.typed(User::Bob, command).no_input().run();
        lines.push(format!("$ {command}"));
        lines.extend(aligned(said.output().lines().map(steady).collect()));
        lines.push(String::new());
    }
    lines
}

/// What differs from run to run, as it was once: numbers of processes, times, ages.
fn steady(line: &str) -> Vec<String> {
    // The sandbox is a container, and the machine of the picture is none.
    let line = line.replace("holders outside this container are not visible; ", "");
    line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).map(steady_cell).collect()
}

fn steady_cell(cell: &str) -> String {
    let words = cell.split(' ').collect::<Vec<_>>();
    let mut told = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let bare = word.trim_end_matches(',');
        let number = !bare.is_empty() && bare.bytes().all(|byte| byte.is_ascii_digit());
        let pid = number && (words.len() == 1 || at > 0 && words.get(at - 1) == Some(&"pid"));
        let time = bare.len() > 18 && bare.get(4..5) == Some("-") && bare.contains('T');
        let age = bare.trim_matches(['(', ')']);
        let age = age.len() > 1
            && age.ends_with('s')
            && age.bytes().all(|byte| byte.is_ascii_digit() || b"hms".contains(&byte));
        told.push(match () {
            () if pid => word.replace(bare, "4711"),
            () if time => word.replace(bare, "2026-11-21T09:41:07+01:00"),
            () if age && word.starts_with('(') => "(3m20s),".to_owned(),
            () if age => "3m20s".to_owned(),
            // A pseudo-terminal has two more names; a port with hardware has not.
            () if word.starts_with("LCK..") => bare.split(',').next().unwrap_or(bare).to_owned(),
            () => (*word).to_owned(),
        });
    }
    told.join(" ")
}

/// Cells in columns again; a line of one cell stands as it is.
fn aligned(rows: Vec<Vec<String>>) -> Vec<String> {
    let width = |at: usize| {
        let cells = rows.iter().filter(|row| row.len() > 1).filter_map(|row| row.get(at));
        cells.map(String::len).max().unwrap_or(0)
    };
    let line = |row: &Vec<String>| {
        let columns = row.iter().enumerate().map(|(at, cell)| format!("{cell:<0$}", width(at)));
        match row.as_slice() {
            [] => String::new(),
            [one] if one.starts_with("lfp:") => one.clone(),
            [one] => format!("  {one}"),
            _ => columns.collect::<Vec<_>>().join("  ").trim_end().to_owned(),
        }
    };
    rows.iter().map(line).collect()
}

/// The lines on a dark ground; commands are bright.
fn drawn(lines: &[String]) -> String {
    const LETTER: usize = 8;
    const LINE: usize = 19;
    let columns = lines.iter().map(String::len).max().unwrap_or(0);
    let (width, height) = ((columns + 4) * LETTER, (lines.len() + 1) * LINE);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" role=\"img\">\n\
         <title>A session: who has the port, a second program is refused, all ports</title>\n\
         <rect width=\"100%\" height=\"100%\" rx=\"6\" fill=\"#1e2228\"/>\n\
         <g font-family=\"DejaVu Sans Mono, Menlo, Consolas, monospace\" font-size=\"13\" \
         fill=\"#c8ccd4\">\n"
    );
    for (at, line) in lines.iter().enumerate() {
        let fill = if line.starts_with("$ ") { " fill=\"#8fd18f\"" } else { "" };
        for (column, piece) in pieces(line) {
            let text = piece.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
            let (x, y) = (16 + column * LETTER, (at + 1) * LINE + 4);
            let length = piece.len() * LETTER;
            svg +=
                &format!("<text x=\"{x}\" y=\"{y}\" textLength=\"{length}\"{fill}>{text}</text>\n");
        }
    }
    svg + "</g>\n</svg>\n"
}

/// What stands between gaps of two blanks or more, each with its column: a browser makes one blank of many.
fn pieces(line: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut column = 0;
    for piece in line.split("  ") {
        let blank = piece.len() - piece.trim_start().len();
        if !piece.trim().is_empty() {
            found.push((column + blank, piece.trim()));
        }
        column += piece.len() + 2;
    }
    found
}
