//! Windows: the process between `dflock run` and the command stays, because a process cannot become another
//! program. It ends the command when `dflock run` is gone.

use super::endings::Endings;
use super::family::{ENDED, Family, Member};
use std::io;
use std::process::{Command, ExitStatus};
use std::sync::mpsc::channel;
use std::thread;
use winsafe::co;
use wrapcmd::exit::End;

/// The process that started this one, by a handle that shows its end.
pub(in crate::program) struct Tie(Member);

/// What the step waits for.
enum News {
    /// The command has ended, or cannot be waited for.
    Ended(io::Result<ExitStatus>),
    /// `dflock run` has.
    Orphaned,
}

impl Tie {
    /// Nothing when that one has ended already: its number may belong to a later process.
    pub(in crate::program) fn to_parent(parent: u32) -> Option<Self> {
        let parent = Member::of(parent, co::PROCESS::SYNCHRONIZE)?;
        let own = Member::of(std::process::id(), co::PROCESS::SYNCHRONIZE)?;
        let lives = !parent.has_ended_within(Some(0));
        (lives && own.may_descend_from(&parent)).then_some(Self(parent))
    }

    /// Runs the command and gives its exit code.
    pub(in crate::program) fn run(self, mut command: Command) -> io::Result<u8> {
        // The command has those itself, and it is for the command to end of them.
        let endings = Endings::catch()?;
        let mut child = command.spawn()?;
        let family = Family::of(child.id());
        let (tell, told) = channel();
        let tell_of_parent = tell.clone();
        thread::spawn(move || tell.send(News::Ended(child.wait())));
        thread::spawn(move || {
            self.0.has_ended_within(None);
            tell_of_parent.send(News::Orphaned)
        });
        let code = match told.recv() {
            Ok(News::Ended(status)) => End::of(status?).map_or(1, End::code),
            Ok(News::Orphaned) | Err(_) => {
                family?.end(ENDED);
                ENDED
            }
        };
        drop(endings);
        Ok(code)
    }
}
