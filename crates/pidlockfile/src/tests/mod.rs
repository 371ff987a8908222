//! Every step can fail, or its process die there, and the steps of several processes come in every order.

mod corpus;
pub(crate) mod faults;
mod order;
mod planted;
mod schedule;
mod step;

use rustix::io::Errno;

use crate::{Directory, Durability, Error, Found, Name, NewFile, OpenFile};

/// The calls that a file system does not support, and their errors.
type Unknown = &'static [(&'static str, Errno)];

const EVERYTHING: Unknown = &[];
const NO_RENAME_FLAGS: Unknown =
    &[("rename-noreplace", Errno::INVAL), ("rename-exchange", Errno::INVAL)];

fn name() -> Name {
    Name::new("lock").unwrap()
}

fn claim(content: &[u8]) -> NewFile<'_> {
    NewFile { content, mode: 0o444, prefix: "t".as_ref(), durability: Durability::Memory }
}

fn judge(directory: &Directory) -> Result<Option<OpenFile>, Error> {
    match directory.read(&name(), 64)? {
        Found::File(opened) => Ok(Some(opened)),
        Found::Nothing | Found::Obstacle(_) => Ok(None),
    }
}
