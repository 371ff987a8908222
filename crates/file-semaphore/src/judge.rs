//! Judges a lock file that was read: its content, what is known of its holder, and whether it is stale.
//! Applies the pure rule to the running system, and changes nothing.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::SystemTime;

use pidlockfile::{Age, Judged};

use crate::config::Config;
use crate::error::{Error, InTheWay};
use crate::limits::WRITING_TIME;
use crate::record::{Fragment, Holder, LockInfo, ParseError};
use crate::stale::{Here, Liveness, StalePolicy};

/// What is known of a lock that is held.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeldStatus {
    /// What the file says. `None`: this process may not read it.
    pub info: Option<Result<LockInfo, ParseError>>,
    /// What is known of the holder, if the file names it; also if it names only the process, because it was cut.
    pub liveness: Option<Liveness>,
    /// Whether the next taker would break it, by this semaphore's configuration.
    pub stale: bool,
    /// How long it has been held by what the file says, else how old the file is; in seconds. `None` if both times
    /// lie in the future, or the file may not be read.
    pub age_seconds: Option<u64>,
    /// Content that does not parse, but may be the beginning of a lock.
    pub(crate) fragment: Option<Fragment>,
    /// Whether it is so young that its writer may be at it.
    pub(crate) is_being_written: bool,
}

impl HeldStatus {
    /// A lock file that may not be read: held by an unknown process.
    pub(crate) const UNREADABLE: Self = Self {
        info: None,
        liveness: None,
        stale: false,
        age_seconds: None,
        fragment: None,
        is_being_written: false,
    };

    /// What the file says, where it says anything.
    #[must_use]
    pub fn lock_info(&self) -> Option<&LockInfo> {
        self.info.as_ref()?.as_ref().ok()
    }

    /// What keeps others out, of a lock that is not stale.
    ///
    /// # Errors
    /// [`Error::Parse`]: the file is no lock, so nobody will ever release it.
    pub(crate) fn in_the_way(&self, path: impl FnOnce() -> PathBuf) -> Result<InTheWay, Error> {
        let is_being_written = self.is_being_written;
        match &self.info {
            Some(Err(problem)) if !is_being_written => {
                Err(Error::Parse { path: path(), problem: *problem })
            }
            Some(_) | None => Ok(InTheWay { is_being_written, ..InTheWay::of(self.lock_info()) }),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Judge {
    policy: StalePolicy,
    here: OnceLock<Here>,
}

impl Judge {
    pub(crate) fn new(config: Config) -> Self {
        Self { policy: config.stale_policy(), here: OnceLock::new() }
    }

    /// Where this process runs; looked up once.
    pub(crate) fn here(&self) -> &Here {
        self.here.get_or_init(Here::detect)
    }

    pub(crate) fn judge(&self, judged: &Judged) -> HeldStatus {
        let info = LockInfo::parse(judged.content());
        let now = SystemTime::now();
        let of_file = Age::of([judged.modified()], now);
        let (liveness, stale, age) = match &info {
            Ok(info) => {
                let liveness = info.holder().liveness(self.here());
                let age = Age::of(info.taken().into_iter().chain([judged.modified()]), now);
                let idle = if info.can_be_renewed() { age.min(of_file) } else { age };
                (Some(liveness), self.policy.is_stale(liveness, idle), age)
            }
            Err(_) => (None, false, of_file),
        };
        let status = HeldStatus {
            info: Some(info),
            liveness,
            stale,
            age_seconds: age.known().map(|age| age.as_secs()),
            fragment: None,
            is_being_written: false,
        };
        if liveness.is_some() { status } else { self.judge_unparsable(status, judged, of_file) }
    }

    /// What an interrupted write left is a lock of whatever process it names, or of one that is gone. Of other files
    /// nothing is known, as of a lock of another machine.
    fn judge_unparsable(&self, status: HeldStatus, judged: &Judged, age: Age) -> HeldStatus {
        let fragment = Fragment::of(judged.content());
        let named = fragment.and_then(|fragment| fragment.pid);
        let liveness = named.map(|pid| Holder::bare(pid).liveness(self.here()));
        let unnamed = if fragment.is_some() { Liveness::NumberFree } else { Liveness::Elsewhere };
        let is_being_written = fragment.is_some() && !age.reaches(WRITING_TIME);
        let is_stale = self.policy.is_stale(liveness.unwrap_or(unnamed), age);
        HeldStatus {
            liveness,
            stale: is_stale && !is_being_written,
            fragment,
            is_being_written,
            ..status
        }
    }
}
