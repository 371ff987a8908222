//! The examples at the end of `sema --help`. Pure.

pub(super) const ALL: &str = "\
Examples:
  sema run ~/.local/state/lock/backup -- backup.sh    one at a time
  sema status ~/.local/state/lock/backup              who holds it

An ordinary user may write ~/.local/state/lock on every system: mkdir -p it once.
Exit codes: 0 done, 1 held by somebody, 3 file or system error, 64 wrong usage.
The manual: man sema";

pub(super) const TRY: &str = "\
Examples:
  sema try ~/.local/state/lock/deploy || exit
  sema try ~/.local/state/lock/deploy --tag 'deploy 1.2' --quiet";

pub(super) const ACQUIRE: &str = "\
Examples:
  sema acquire ~/.local/state/lock/deploy --timeout 30 || exit
  sema acquire ~/.local/state/lock/pool --slots 3";

pub(super) const RELEASE: &str = "\
Examples:
  sema release ~/.local/state/lock/deploy
  trap 'sema release ~/.local/state/lock/deploy --quiet' EXIT";

pub(super) const TOUCH: &str = "\
Examples:
  sema touch ~/.local/state/lock/deploy
  sema touch ~/.local/state/lock/deploy --pid 4711";

pub(super) const STATUS: &str = "\
Examples:
  sema status ~/.local/state/lock/deploy
  sema status ~/.local/state/lock/deploy --json";

pub(super) const WAIT: &str = "\
Examples:
  sema wait ~/.local/state/lock/deploy
  sema wait ~/.local/state/lock/deploy --timeout 0 || echo in use";

pub(super) const LIST: &str = "\
Examples:
  sema list ~/.local/state/lock
  sema list ~/.local/state/lock --only-stale --json";

pub(super) const CLEAN: &str = "\
Examples:
  sema clean ~/.local/state/lock/deploy
  sema clean ~/.local/state/lock    everything stale in the directory";

pub(super) const RUN: &str = "\
Examples:
  sema run ~/.local/state/lock/backup --timeout 30 -- backup.sh
  sema run -n -E 75 ~/.local/state/lock/backup backup.sh    do not wait; 75 if held
  sema run ~/.local/state/lock/fetch --slots 3 -- fetch-all    at most three at once
  sema run --bg ~/.local/state/lock/fetch --slots 3 -- curl -O \"$url\"    the script continues";
