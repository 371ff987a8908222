//! A lock file with a text of its own: `cargo run -p pidlockfile --example own_content -- DIRECTORY NAME TEXT`
//!
//! The text stands behind the process number. A lock is broken if the process of its first line is gone.

use pidlockfile::process::lives;
use pidlockfile::{Attempt, Directory, Found, Name, NewFile, Pid, Published};

/// A lock file of this program is shorter.
const BYTES: usize = 1024;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [directory, name, text] = words.as_slice() else {
        return Err("DIRECTORY NAME TEXT".into());
    };
    let directory = Directory::open(directory.as_ref())?;
    let name = Name::new(name).ok_or("the name of a file, without a slash")?;
    let content = format!("{:>10}\n{text}\n", Pid::this());
    let lock = take(&directory, &name, &NewFile::new(content.as_bytes(), "own"))?.ok_or("busy")?;
    println!("works");
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    directory.withdraw(&name, &lock)?;
    Ok(())
}

/// Takes the lock if it is free or stale. None: another process has it, or is taking it now.
fn take(
    directory: &Directory,
    name: &Name,
    file: &NewFile<'_>,
) -> Result<Option<Published>, pidlockfile::Error> {
    if let Some(lock) = directory.publish(name, file)? {
        return Ok(Some(lock));
    }
    let Found::File(opened) = directory.read(name, BYTES)? else { return Ok(None) };
    let first = opened.content().split(|byte| *byte == b'\n').next().unwrap_or_default();
    match Pid::parse(first.trim_ascii()) {
        Ok(holder) if !lives(holder) => match directory.replace(name, opened, file)? {
            Attempt::Done(lock) => Ok(Some(lock)),
            Attempt::Changed | Attempt::Contended => Ok(None),
        },
        _ => Ok(None),
    }
}
