//! `lfpd --exclusive`: the same with nothing but the service, as its own user; and what it knows of a port after it was killed.

use crate::machine::{self, Machine, PORT};
use crate::{Command, PROBE, an_exclusive_port_works, can_open, life, up_and_down};

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

fn kill(machine: &Machine<'_>) {
    assert_eq!(machine.run("kill -KILL $(pidof lfpd)").code, 0);
    machine.wait_for("! pidof lfpd");
}

fn wait_until_nothing_is_on_record(machine: &Machine<'_>) {
    machine.wait_for("test -z \"$(ls /run/lfpd/exclusive)\"");
}

/// The lines rise with the holder's open and fall with its close, by these very calls, as without the option.
#[test]
#[ignore = "needs root: tests/run"]
fn a_locked_port_by_its_own_driver() {
    let (sandbox, _made) = machine::sandbox();
    let machine = Machine::start(&sandbox);
    assert_eq!(machine.run(PROBE).code, 0, "{machine}");
    start(&machine);
    assert_eq!(life(&machine, SERVED), up_and_down());
    an_exclusive_port_works(&machine, SERVED);
    wait_until_nothing_is_on_record(&machine);

    a_port_left_exclusive_is_shared_again(&machine);
    a_mode_set_by_another_program_stays(&machine);
}

/// The service is killed, and the holder, who leaves a child with the port. The next service knows the port's use by its mark.
fn a_port_left_exclusive_is_shared_again(machine: &Machine<'_>) {
    let open = format!("exec 3<>{PORT}");
    let command = Command::begin(machine, SERVED, PORT, &[&open, "sleep 1000 & true"]);
    command.wait_until_exclusive();
    command.go_on(1);
    kill(machine);
    command.kill();
    assert!(!can_open(machine, PORT), "a child has it open");
    start(machine);
    wait_until_nothing_is_on_record(machine);
    assert!(can_open(machine, PORT));
    assert_eq!(machine.run("kill $(pidof sleep)").code, 0);
}

/// The service is killed, and the holder. Another program has the port exclusive by itself before the next one comes.
fn a_mode_set_by_another_program_stays(machine: &Machine<'_>) {
    let open = format!("exec 3<>{PORT}");
    let command = Command::begin(machine, SERVED, PORT, &[&open]);
    command.wait_until_exclusive();
    kill(machine);
    command.kill();
    assert!(can_open(machine, PORT), "closed");
    let itself = "import fcntl, os, time; port = os.open(\"/dev/ttyS1\", os.O_RDWR | os.O_NOCTTY); \
                  fcntl.ioctl(port, 0x540C); time.sleep(1000)";
    let begun =
        machine.run_as("bob", &format!("(/usr/bin/python3 -c '{itself}' >/dev/null 2>&1 &)"));
    assert_eq!(begun.code, 0, "{begun:?}");
    let refused =
        "! setpriv --reuid=alice --regid=alice --init-groups sh -c '(exec 3<>/dev/ttyS1)'";
    machine.wait_for(refused);
    assert_eq!(machine.run("ls /run/lfpd/exclusive").text, "4:65\n");
    start(machine);
    wait_until_nothing_is_on_record(machine);
    assert_eq!(machine.run(refused).code, 0, "it is Bob's");
}
