//! liblfp_preload.so for unmodified programs: those that make lock files themselves then find the port free, and their
//! lock file is the service's (liblfp_preload(7)). `lfp run` and `lfp shim` load it into a command, by its environment.
//! `lfp adopt` makes a program start with it for all users from now on, by a small script of the same name that comes
//! first in `PATH`; `--undo` removes that.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use pidlockfile::{Pid, words_of};
use ttylock::DeviceName;

use super::arguments::{AdoptArguments, RunArguments, ShimArguments};
use super::executable::{Executable, Starter, in_path};
use super::outcome::{Failure, Output, exit, warn};
use crate::client::LFP_WAIT_MAX_SECS;
use crate::client::broker::Route;

/// The library, as the package installs it.
const LIBRARY: &str = "liblfp_preload.so";

/// Without this, a program that is made with AddressSanitizer ends at once where a library is loaded before the
/// sanitizer's own. The user's own options follow, and win.
const ANY_ORDER: &str = "verify_asan_link_order=0";

/// Variables for the command.
pub(super) type Additions = Vec<(&'static str, String)>;

/// What a command is to have in its environment that holds a device itself.
///
/// # Errors
/// The library was asked for and is not installed, or cannot be loaded into the command.
pub(super) fn additions(
    asked: &RunArguments,
    route: &Route,
    pid: Pid,
) -> Result<Additions, Failure> {
    let wanted = || wanted(program(asked), Starter::Ourselves);
    let library = if asked.shim {
        Some(wanted()?)
    } else {
        (!asked.no_shim).then(wanted).and_then(Result::ok)
    };
    let Some(library) = library else { return Ok(variables_without_library()) };
    let mut variables = variables(&library, route);
    variables.push(("LFP_RUN_PID", pid.to_string()));
    if asked.ports {
        let all = std::iter::once(&asked.device).chain(&asked.also);
        variables.push(ports(all));
        if asked.exclusive {
            // The other ports that it opens.
            variables.push(("LFP_EXCLUSIVE", "1".to_owned()));
        }
    }
    Ok(variables)
}

/// Becomes a command that holds nothing yet, and locks what it uses.
///
/// # Errors
/// The library is not installed, or cannot be loaded into the command.
pub(super) fn run(asked: ShimArguments, route: &Route, output: &Output) -> Result<u8, Failure> {
    let mut words = asked.command.words.into_iter();
    let program = words.next().unwrap_or_default();
    let library = match wanted(&program, Starter::Ourselves) {
        Err(failure) if asked.or_plain => {
            warn(&format!("{failure}\n  it is started without the library"));
            None
        }
        wanted => Some(wanted?),
    };
    let mut variables =
        library.map_or_else(variables_without_library, |library| variables(&library, route));
    if asked.ports {
        variables.push(ports(asked.also.iter()));
    }
    if asked.exclusive {
        variables.push(("LFP_EXCLUSIVE", "1".to_owned()));
    }
    if let Some(time) = asked.wait {
        // Whole seconds, as the protocol has them; it is not to give up before.
        let seconds = time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0));
        let seconds = seconds.clamp(1, LFP_WAIT_MAX_SECS);
        variables.push(("LFP_WAIT", seconds.to_string()));
    }
    Ok(output.not_started(wrapcmd::execute(program, words, &variables)))
}

/// The library for a program that is to have it.
///
/// # Errors
/// It is not installed, or cannot be loaded into the program.
pub(super) fn wanted(program: &OsStr, starter: Starter) -> Result<String, Failure> {
    let missing = || Failure::system(format!("{LIBRARY} is not installed (package lfp-preload)"));
    let library = library().ok_or_else(missing)?;
    match Executable::find(program).obstacle(starter) {
        None => Ok(library),
        Some(obstacle) => {
            let program = program.to_string_lossy();
            Err(Failure::system(format!("{program}: {obstacle}, so {LIBRARY} does nothing for it")))
        }
    }
}

/// Says that the command may refuse the device because of the lock that was taken for it: a program
/// that makes lock files, and goes without the library because that cannot be helped.
pub(super) fn caution(asked: &RunArguments, output: &Output) {
    if asked.shim || asked.no_shim {
        return;
    }
    let program = program(asked);
    let executable = Executable::find(program);
    let why = match (executable.obstacle(Starter::Ourselves), library()) {
        (None, Some(_)) => return,
        (Some(obstacle), _) => format!("{obstacle}, so {LIBRARY} does nothing for it"),
        (None, None) => format!("{LIBRARY} would help (package lfp-preload)"),
    };
    if executable.makes_lock_files() {
        let shown = program.to_string_lossy();
        let mut remark = format!(
            "{shown} seems to make lock files itself: it may refuse the port because of the lock of lfp\n  {why}"
        );
        if Path::new(program).file_name() == Some(OsStr::new("minicom")) {
            remark += "\n  `minicom -o` checks no lock files";
        }
        output.remark(&remark);
    }
}

fn program(asked: &RunArguments) -> &OsStr {
    asked.command.words.first().map(OsString::as_os_str).unwrap_or_default()
}

fn variables(library: &str, route: &Route) -> Additions {
    let others = other_libraries(&env::var("LD_PRELOAD").unwrap_or_default());
    let mut variables = vec![("LD_PRELOAD", prepended(&others, library))];
    // Options that are no text stay as they are.
    if let Ok(options) = env::var_os("ASAN_OPTIONS").unwrap_or_default().into_string() {
        if !options.split(':').any(|option| option == ANY_ORDER) {
            variables.push(("ASAN_OPTIONS", prepended(&options, ANY_ORDER)));
        }
    }
    if let Route::Server(address) = route {
        variables.push(("LFP_SERVER", address.to_string()));
    }
    variables
}

/// For a command that is not to have the library, though our caller has it.
fn variables_without_library() -> Additions {
    let all = env::var("LD_PRELOAD").unwrap_or_default();
    let others = other_libraries(&all);
    if others == all { Vec::new() } else { vec![("LD_PRELOAD", others)] }
}

/// If the user has said that ports must be locked, that stays.
fn ports<'a>(also: impl Iterator<Item = &'a DeviceName>) -> (&'static str, String) {
    let before = env::var("LFP_PORTS").unwrap_or_default();
    let word = if before.split(':').next() == Some("must") { "must" } else { "1" };
    let also = also.map(|device| format!(":/dev/{}", device.as_str()));
    ("LFP_PORTS", std::iter::once(word.to_owned()).chain(also).collect())
}

/// What is to be preloaded besides ours. The text as it is, if that is all.
fn other_libraries(all: &str) -> String {
    let is_ours = |path: &&str| path.rsplit('/').next() == Some(LIBRARY);
    let paths = || all.split([':', ' ']).filter(|path| !path.is_empty());
    if !paths().any(|path| is_ours(&path)) {
        return all.to_owned();
    }
    paths().filter(|path| !is_ours(path)).collect::<Vec<_>>().join(":")
}

/// A list with this word before the others.
fn prepended(others: &str, word: &str) -> String {
    if others.is_empty() { word.to_owned() } else { format!("{word}:{others}") }
}

/// The path of the library, if it is installed: seen from the directory of `lfp` itself, in one for this architecture
/// (Debian), or in one for all. The loader takes blanks and colons for the end of a path.
fn library() -> Option<String> {
    let program = env::current_exe().ok()?;
    let directory = program.parent()?;
    let of_this_architecture = format!("../lib/{}-linux-gnu/lfp", env::consts::ARCH);
    let places = [&*of_this_architecture, "../lib/lfp", "../lib64/lfp"];
    let found = places.iter().filter_map(|it| directory.join(it).join(LIBRARY).canonicalize().ok());
    let mut paths = found.filter_map(|path| path.into_os_string().into_string().ok());
    paths.find(|path| Path::new(path).is_file() && !path.contains([' ', ':']))
}

/// Where wrappers are put: before the distribution's programs in everybody's `PATH`.
const PLACE: &str = "/usr/local/bin";

/// How a wrapper of ours begins.
const MARK: &str = "#!/bin/sh\n# Made by lfp adopt.";

/// The most bytes of a file that are read to see whether it is a wrapper of ours.
const WRAPPER_BYTES: u64 = 4096;

/// Makes or removes a wrapper.
///
/// # Errors
/// There is no such program, another file is in the way, or the place cannot be written.
pub(super) fn adopt(asked: &AdoptArguments, output: &Output) -> Result<u8, Failure> {
    let wrapper = Path::new(PLACE).join(&asked.program);
    if asked.undo {
        undo(asked, &wrapper)?;
    } else {
        make(asked, &wrapper, if asked.files { "" } else { "--ports " })?;
    }
    output.print(&format!("{}\n", wrapper.display()));
    Ok(exit::DONE)
}

fn make(asked: &AdoptArguments, wrapper: &Path, options: &str) -> Result<(), Failure> {
    let program = original(&asked.program)
        .ok_or_else(|| Failure::system(format!("{}: no such program", asked.program)))?;
    let library = wanted(program.as_os_str(), Starter::Anybody)?;
    let lfp = env::current_exe().map_err(|error| write_failure(asked, wrapper, &error))?;
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
    write(wrapper, &text).map_err(|error| write_failure(asked, wrapper, &error))
}

fn undo(asked: &AdoptArguments, wrapper: &Path) -> Result<(), Failure> {
    check_ours(wrapper)?;
    fs::remove_file(wrapper).map_err(|error| {
        if error.kind() != io::ErrorKind::NotFound {
            return write_failure(asked, wrapper, &error);
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

fn write_failure(asked: &AdoptArguments, wrapper: &Path, error: &io::Error) -> Failure {
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

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[test]
    fn libraries_to_preload_are_kept() {
        assert_eq!(prepended("", "/l.so"), "/l.so");
        assert_eq!(prepended("/a.so /b.so", "/l.so"), "/l.so:/a.so /b.so");
    }

    /// A command under two `lfp run` has it once, and one that is not to have it has it not.
    #[rstest]
    #[case::nothing("", "")]
    #[case::alone("/usr/lib/lfp/liblfp_preload.so", "")]
    #[case::other("/a.so /b.so", "/a.so /b.so")]
    #[case::among_others("/a.so:/x/liblfp_preload.so /b.so", "/a.so:/b.so")]
    #[case::twice("/x/liblfp_preload.so:/y/liblfp_preload.so:", "")]
    #[case::called_similar("/x/liblfp_preload.so.1", "/x/liblfp_preload.so.1")]
    fn only_our_library_is_removed_from_ld_preload(#[case] all: &str, #[case] expected: &str) {
        assert_eq!(other_libraries(all), expected);
    }
}
