//! `lfp adopt`: from now on a program starts with liblfp_preload.so for all users, by a small script of the
//! same name that comes first in `PATH`; and `--undo`.

use std::env;
use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::arguments::Adopt;
use super::executable::{Starter, in_path};
use super::outcome::{Failure, words_of};
use super::output::Output;
use super::shim;

/// Where wrappers are put: before the distribution's programs in everybody's `PATH`.
const PLACE: &str = "/usr/local/bin";

/// How a wrapper of ours begins.
const MARK: &str = "#!/bin/sh\n# Made by lfp adopt.";

/// As much of a file is read to see whether it is a wrapper of ours.
const WRAPPER_BYTES: u64 = 4096;

/// Makes or removes a wrapper.
///
/// # Errors
/// There is no such program, another file is in the way, or the place cannot be written.
pub(super) fn adopt(asked: &Adopt, output: &Output) -> Result<u8, Failure> {
    let wrapper = Path::new(PLACE).join(&asked.program);
    if asked.undo {
        undo(asked, &wrapper)?;
    } else {
        make(asked, &wrapper, if asked.files { "" } else { "--ports " })?;
    }
    output.print(&format!("{}\n", wrapper.display()));
    Ok(super::exit::DONE)
}

fn make(asked: &Adopt, wrapper: &Path, options: &str) -> Result<(), Failure> {
    let program = original(&asked.program)
        .ok_or_else(|| Failure::system(format!("{}: no such program", asked.program)))?;
    let library = shim::wanted(program.as_os_str(), Starter::Anybody)?;
    let lfp = env::current_exe().map_err(|error| trouble(asked, wrapper, &error))?;
    let all = [lfp.to_str(), program.to_str(), Some(&library)];
    let [Some(lfp), Some(program), Some(library)] = all else {
        return Err(Failure::system("a path is not in UTF-8"));
    };
    if [lfp, program, library].iter().any(|path| path.contains('\'')) {
        return Err(Failure::system("a path contains a quotation mark"));
    }
    let text = format!(
        "{MARK} {name} locks serial ports through the service, see liblfp_preload(7);\n\
         # lfp adopt --undo {name} removes this file.\n\
         [ -x '{lfp}' ] && [ -e '{library}' ] && exec '{lfp}' shim --or-plain {options}-- '{program}' \"$@\"\n\
         exec '{program}' \"$@\"\n",
        name = asked.program,
    );
    check_ours(wrapper)?;
    write(wrapper, &text).map_err(|error| trouble(asked, wrapper, &error))
}

fn undo(asked: &Adopt, wrapper: &Path) -> Result<(), Failure> {
    check_ours(wrapper)?;
    fs::remove_file(wrapper).map_err(|error| {
        if error.kind() != io::ErrorKind::NotFound {
            return trouble(asked, wrapper, &error);
        }
        let (program, wrapper) = (&asked.program, wrapper.display());
        Failure::system(format!("{program} is not adopted: there is no {wrapper}"))
    })
}

/// Nothing else is replaced or removed.
fn check_ours(wrapper: &Path) -> Result<(), Failure> {
    if wrapper.symlink_metadata().is_ok() && !is_ours(wrapper) {
        let text = format!("{} was not made by lfp adopt", wrapper.display());
        return Err(Failure::system(text));
    }
    Ok(())
}

/// The program that is found without us.
fn original(name: &str) -> Option<PathBuf> {
    let is_place = |path: &PathBuf| path.parent() == Some(Path::new(PLACE));
    let mut found = in_path(OsStr::new(name));
    found.find(|path| path.is_absolute() && !is_place(path) && !is_ours(path))
}

fn is_ours(path: &Path) -> bool {
    let mut text = String::new();
    let read =
        fs::File::open(path).and_then(|file| file.take(WRAPPER_BYTES).read_to_string(&mut text));
    read.is_ok() && path.symlink_metadata().is_ok_and(|it| it.is_file()) && text.starts_with(MARK)
}

/// Whole, and then under its name.
fn write(wrapper: &Path, text: &str) -> io::Result<()> {
    let draft = wrapper.with_extension("lfp-new");
    let result = (|| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o755).open(&draft)?;
        file.write_all(text.as_bytes())?;
        file.set_permissions(fs::Permissions::from_mode(0o755))?;
        fs::rename(&draft, wrapper)
    })();
    if result.is_err() {
        let _ = fs::remove_file(&draft);
    }
    result
}

fn trouble(asked: &Adopt, wrapper: &Path, error: &io::Error) -> Failure {
    let text = format!("{}: {}", wrapper.display(), words_of(error));
    if error.kind() != io::ErrorKind::PermissionDenied {
        return Failure::system(text);
    }
    let option = match (asked.undo, asked.files) {
        (true, _) => "--undo ",
        (false, true) => "--files ",
        (false, false) => "",
    };
    let way_out = format!("an administrator may: sudo lfp adopt {option}{}", asked.program);
    Failure::not_permitted(vec![text, way_out])
}
