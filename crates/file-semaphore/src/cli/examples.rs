//! The examples at the end of `sema --help`. Pure.

pub(super) const ALL: &str = "\
Examples:
  sema run /run/lock/backup -- backup.sh    one at a time
  sema status /run/lock/backup              who holds it

Exit codes: 0 done, 1 held by somebody, 3 file or system error, 64 wrong usage.
The manual: man sema";

pub(super) const TRY: &str = "\
Examples:
  sema try /run/lock/deploy || exit
  sema try /run/lock/deploy --tag 'deploy 1.2' --quiet";

pub(super) const ACQUIRE: &str = "\
Examples:
  sema acquire /run/lock/deploy --timeout 30 || exit
  sema acquire /run/lock/pool --slots 3";

pub(super) const RELEASE: &str = "\
Examples:
  sema release /run/lock/deploy
  trap 'sema release /run/lock/deploy --quiet' EXIT";

pub(super) const TOUCH: &str = "\
Examples:
  sema touch /run/lock/deploy
  sema touch /run/lock/deploy --pid 4711";

pub(super) const STATUS: &str = "\
Examples:
  sema status /run/lock/deploy
  sema status /run/lock/deploy --json";

pub(super) const WAIT: &str = "\
Examples:
  sema wait /run/lock/deploy
  sema wait /run/lock/deploy --timeout 0 || echo in use";

pub(super) const LIST: &str = "\
Examples:
  sema list /run/lock
  sema list /run/lock --only-stale --json";

pub(super) const CLEAN: &str = "\
Examples:
  sema clean /run/lock/deploy
  sema clean /run/lock                      everything stale in the directory";

pub(super) const RUN: &str = "\
Examples:
  sema run /run/lock/backup --timeout 30 -- backup.sh
  sema run -n -E 75 /run/lock/backup backup.sh    like flock(1)
  sema run /run/lock/fetch --slots 3 -- fetch-all    at most three at once
  sema run --bg /run/lock/fetch --slots 3 -- curl -O \"$url\"    the script continues";
