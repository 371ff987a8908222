//! The end of `--help`: two examples for each command, and the exit codes. Pure.

pub(super) const ALL: &str = "\
Examples:
  lfp who /dev/ttyUSB0                            which program has the port
  lfp run /dev/ttyUSB0 -- picocom /dev/ttyUSB0    run a program under the lock

The manual: man lfp

Exit codes:
  0   done
  1   busy, or not held; -E changes it
  64  wrong usage
  66  no such device
  69  no service can be reached, or it does not answer
  71  the system refused something
  74  the output could not be written
  75  timed out
  77  not permitted; clean: stale locks were left
run exits with the code of the command, 128+n when signal n ended it, 126 when
it cannot be executed and 127 when it is not found.";

pub(super) const LOCK: &str = "\
Examples:
  lfp lock /dev/ttyUSB0               for this shell, until it ends
  lfp lock /dev/ttyUSB0 --pid 4711    for another process of yours";

pub(super) const UNLOCK: &str = "\
Examples:
  lfp unlock /dev/ttyUSB0
  sudo lfp unlock --force --signal TERM --grace 5 /dev/ttyUSB0";

pub(super) const ASK: &str = "\
Examples:
  lfp ask /dev/ttyUSB0
  lfp ask --timeout 60 /dev/ttyUSB0";

pub(super) const PASS: &str = "\
Examples:
  lfp pass /dev/ttyUSB0 --to 4711
  lfp pass /dev/ttyUSB0 --pid $$ --to $!";

pub(super) const WAIT: &str = "\
Examples:
  lfp wait --timeout 60 /dev/ttyS0 || exit
  lfp wait /dev/ttyS0 && echo AT >/dev/ttyS0; lfp unlock /dev/ttyS0";

pub(super) const WHO: &str = "\
Examples:
  sudo lfp who /dev/ttyUSB0           also programs without a lock
  lfp who -q ttyUSB0 && echo in use   for scripts";

pub(super) const LIST: &str = "\
Examples:
  lfp list --all                      every port, in use or free
  lfp --json list                     for programs";

pub(super) const RUN: &str = "\
Examples:
  lfp run /dev/ttyUSB0 -- picocom -b 115200 /dev/ttyUSB0
  lfp run --timeout 30 /dev/ttyACM0 -- arduino-cli upload -p /dev/ttyACM0";

pub(super) const SHIM: &str = "\
Examples:
  lfp shim -- gammu identify
  lfp shim --ports -- make flash";

pub(super) const ADOPT: &str = "\
Examples:
  sudo lfp adopt minicom
  sudo lfp adopt --undo minicom";

pub(super) const CLEAN: &str = "\
Examples:
  lfp clean
  sudo lfp clean                      also the locks of other users";
