//! ModemManager of Debian on a bus of its own: which ports it takes, what keeps it away from them, and for whom. It is told
//! of the adapter by hand, as udev would tell it, and takes it for a device that may be a modem.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use testbed::Sandbox;

use crate::Command;
use crate::machine::{self, ADAPTER, Machine};

/// The device behind the adapter. What it was told is kept.
struct Device {
    told: Arc<Mutex<Vec<u8>>>,
    is_modem: Arc<AtomicBool>,
}

impl Device {
    fn connect(sandbox: &Sandbox) -> Self {
        let mut line = UnixStream::connect(sandbox.path("/tmp/adapter")).expect("the adapter");
        let device = Self { told: Arc::default(), is_modem: Arc::default() };
        let (told, is_modem) = (Arc::clone(&device.told), Arc::clone(&device.is_modem));
        thread::spawn(move || {
            let mut piece = [0; 256];
            while let Ok(length @ 1..) = line.read(&mut piece) {
                let piece = piece.get(..length).unwrap_or_default();
                told.lock().expect("no panic while held").extend_from_slice(piece);
                for _ in piece.iter().filter(|&&byte| byte == b'\r') {
                    if is_modem.load(Ordering::SeqCst) {
                        let _ = line.write_all(b"\r\nOK\r\n");
                    }
                }
            }
        });
        device
    }

    fn told(&self) -> String {
        String::from_utf8_lossy(&self.told.lock().expect("no panic while held")).into_owned()
    }
}

/// How the kernel calls the device, and ModemManager after it.
fn uid(machine: &Machine<'_>) -> String {
    let path = machine.run("cd -P /sys/class/tty/ttyUSB0/device/../.. && pwd");
    assert_eq!(path.code, 0, "{path:?}");
    path.text.trim().to_owned()
}

/// Has ModemManager run, with a rule of udev's that gives the adapter these properties.
fn start(machine: &Machine<'_>, properties: &[&str]) {
    // One property a rule is all that ModemManager understands of udev's language.
    let rule = |name: &&str| {
        format!("'SUBSYSTEM==\"tty\", ATTRS{{idVendor}}==\"0403\", ENV{{{name}}}=\"1\"' ")
    };
    let rules: String = properties.iter().map(rule).collect();
    let lines = [
        "if pidof ModemManager; then kill $(pidof ModemManager); fi".to_owned(),
        "while pidof ModemManager; do :; done".to_owned(),
        format!("printf '%s\\n' {rules} >/lib/udev/rules.d/78-mm-adapter.rules"),
        "(ModemManager --debug --test-no-udev >/tmp/manager 2>&1 &)".to_owned(),
    ];
    for line in lines {
        assert_eq!(machine.run(&line).code, 0, "{line}");
    }
    machine.wait_for("mmcli -L");
}

fn report(machine: &Machine<'_>, action: &str) {
    let event = format!("action={action},subsystem=tty,name=ttyUSB0");
    let said = machine.run(&format!("mmcli --report-kernel-event={event}"));
    assert_eq!(said.code, 0, "{said:?}");
}

/// Without it ModemManager takes no notice of such an adapter. Of an ACM port, as many boards have it, it does.
const CANDIDATE: &str = "ID_MM_DEVICE_PROCESS";

/// It has come to the end, and has found no modem.
const LOOKED_AT: &str = "grep -q 'support for device\\|create modem for device' /tmp/manager";

/// The bus, and who decides about rights there.
const BUS: &str = "echo messagebus:x:991:991::/:/bin/false >>/etc/passwd && \
    echo polkitd:x:992:992::/:/bin/false >>/etc/passwd && \
    echo messagebus:x:991: >>/etc/group && echo polkitd:x:992: >>/etc/group && \
    mkdir -p /run/dbus && dbus-daemon --system --fork && \
    (/usr/lib/polkit-1/polkitd --no-debug >/tmp/polkitd 2>&1 &)";

#[test]
#[ignore = "needs root: tests/run"]
fn modem_manager_and_the_port_of_a_board_or_a_modem() {
    let (sandbox, _made) = machine::sandbox();
    let machine = Machine::start(&sandbox);
    let device = Device::connect(&sandbox);
    let bus = machine.run(BUS);
    assert_eq!(bus.code, 0, "{bus:?}");
    machine.plug_in();
    let uid = uid(&machine);

    a_rule_of_udev_keeps_it_away(&machine, &device);
    a_board_is_asked_and_cannot_be_withheld(&machine, &device, &uid);
    a_modem_is_left_alone_and_taken_back(&machine, &device, &uid);
}

fn a_rule_of_udev_keeps_it_away(machine: &Machine<'_>, device: &Device) {
    start(machine, &[CANDIDATE, "ID_MM_PORT_IGNORE"]);
    report(machine, "add");
    machine.wait_for(LOOKED_AT);
    assert_eq!(device.told(), "");
}

/// It is no modem. ModemManager probes it, even where Alice has the port exclusive, and cannot be told to leave it
/// alone: neither during the probe, nor afterwards, when it knows of no such device. Ordinary users may not even
/// ask.
fn a_board_is_asked_and_cannot_be_withheld(machine: &Machine<'_>, device: &Device, uid: &str) {
    start(machine, &[CANDIDATE]);
    let open = format!("exec 3<>{ADAPTER}");
    let command = Command::begin(machine, crate::EXCLUSIVE, ADAPTER, &[&open]);
    command.wait_until_exclusive();
    report(machine, "add");
    machine.wait_for("grep -q 'ttyUSB0.*--> .AT' /tmp/manager");
    command.kill();
    let root = machine.run(&format!("mmcli --inhibit-device={uid}"));
    assert!(root.code != 0, "{root:?}");
    assert!(root.text.contains("WrongState") || root.text.contains("NotFound"), "{root:?}");
    let alice = machine.run_as("alice", &format!("mmcli --inhibit-device={uid}"));
    assert!(alice.code != 0 && alice.text.contains("AccessDenied"), "{alice:?}");
    machine.wait_for(LOOKED_AT);
    let afterwards = machine.run(&format!("mmcli --inhibit-device={uid}"));
    assert!(afterwards.text.contains("NotFound"), "{afterwards:?}");
    assert!(device.told().contains("AT"), "{}", device.told());
}

/// What ModemManager has found to be a modem, root can have for himself, as long as `mmcli` runs.
fn a_modem_is_left_alone_and_taken_back(machine: &Machine<'_>, device: &Device, uid: &str) {
    device.is_modem.store(true, Ordering::SeqCst);
    start(machine, &[CANDIDATE]);
    report(machine, "add");
    machine.wait_for("mmcli -L | grep -q /Modem/");
    let described = machine.run("mmcli -m any");
    assert!(described.text.contains(&format!("device: {uid}\n")), "{described:?}");
    let inhibited = machine.run(&format!("(mmcli --inhibit-device={uid} >/tmp/inhibited 2>&1 &)"));
    assert_eq!(inhibited.code, 0);
    machine.wait_for("grep -q 'successfully inhibited' /tmp/inhibited");
    let before = device.told();
    let command =
        format!("/run/test/lfp --direct run {ADAPTER} -- sh -c \"echo alice >{ADAPTER}\"");
    let ours = machine.run_as("alice", &command);
    assert_eq!(ours.code, 0, "{ours:?}");
    machine.wait_for("! mmcli -L | grep -q /Modem/");
    let since = device.told().replacen(&before, "", 1);
    assert_eq!(since.trim_end(), "alice");
    assert_eq!(machine.run("kill $(pidof mmcli)").code, 0);
    machine.wait_for("mmcli -L | grep -q /Modem/");
    assert!(device.told().replacen(&before, "", 1).contains("AT"), "{}", device.told());
}
