//! `lfpd --exclusive`: the same with nothing but the service, as its own user.

use crate::machine::{Machine, PORT};
use crate::{Command, an_exclusive_port_works, life, open_by_bob, up_and_down};

/// Locked by the service.
const SERVED: &str = "run --no-shim";

/// The service, with the rights that its unit would give it.
fn start(machine: &Machine<'_>) {
    let rights =
        "--inh-caps=-all,+sys_ptrace,+dac_read_search --ambient-caps=+sys_ptrace,+dac_read_search";
    let user = format!("setpriv --reuid=lfpd --regid=lfpd --clear-groups {rights}");
    let serve = "/run/test/lfpd --exclusive --listen unix:/run/lfpd/lfpd.sock";
    let place = "mkdir -p /run/lfpd; rm -f /run/lfpd/lfpd.sock; chown lfpd:lfpd /run/lfpd";
    let started = machine.run(&format!("{place}; ({user} {serve} >/tmp/lfpd 2>&1 &)"));
    assert_eq!(started.code, 0, "{started:?}");
    machine.wait_for("test -S /run/lfpd/lfpd.sock && /run/test/lfp who /dev/ttyS1");
}

/// The lines rise with the holder's open and fall with its close, by these very calls, as without the option.
pub(crate) fn a_locked_port(machine: &Machine<'_>) {
    start(machine);
    assert_eq!(life(machine, SERVED), up_and_down());
    an_exclusive_port_works(machine, SERVED);
    a_port_left_exclusive_is_shared_again(machine);
}

/// The holder is killed, and leaves a child with the port.
fn a_port_left_exclusive_is_shared_again(machine: &Machine<'_>) {
    let open = format!("exec 3<>{PORT}");
    let command = Command::begin(machine, SERVED, PORT, &[&open, "sleep 1000 & true"]);
    command.wait_until_exclusive();
    command.go_on(1);
    command.kill();
    machine.wait_for(&open_by_bob(PORT));
    assert_eq!(machine.run("kill $(pidof sleep)").code, 0);
}
