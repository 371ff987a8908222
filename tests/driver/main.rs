//! `lfp run --exclusive` and `lfpd --exclusive` with the kernel's own serial drivers, in a virtual machine: which
//! programs are refused, what the modem lines do, and what becomes of an adapter that is pulled out. By users
//! without rights.

#![expect(clippy::expect_used, clippy::panic, reason = "a panic is how a test fails")]

mod machine;
mod modem_manager;
mod service;

use machine::{ADAPTER, FAR_END, Machine, PORT};

/// What the kernel says.
const BUSY: &str = "Device or resource busy";

/// Locked by `lfp` itself, and no more than that.
const LOCKED: &str = "--direct run --no-shim";

/// Exclusive by `lfp`.
const EXCLUSIVE: &str = "--direct run --no-shim --exclusive";

/// A command of Alice's under `lfp run`, with a port, that says each step when it is done, and does the next when it is told.
struct Command<'m, 's> {
    machine: &'m Machine<'s>,
    port: &'static str,
}

impl<'m, 's> Command<'m, 's> {
    /// Starts it, and waits for its first step.
    fn begin(machine: &'m Machine<'s>, run: &str, port: &'static str, steps: &[&str]) -> Self {
        let script: String = (steps.iter().enumerate())
            .map(|(n, step)| format!("{step}; echo {n}.; read -r go <&4; "))
            .collect();
        let words = format!("/run/test/lfp {run} {port} --");
        let begun = machine.run_as(
            "alice",
            &format!("({words} bash -c \"exec 4</tmp/go; {script}\" >/tmp/said 2>&1 &)"),
        );
        assert_eq!(begun.code, 0, "{begun:?}");
        let command = Self { machine, port };
        command.wait_for_step(0);
        command
    }

    fn go_on(&self, step: usize) {
        assert_eq!(self.machine.run("echo >/tmp/go").code, 0);
        self.wait_for_step(step);
    }

    fn wait_for_step(&self, step: usize) {
        self.machine.wait_for(&format!("grep -qx {step}. /tmp/said"));
    }

    /// The kernel refuses the port to Bob, and neither `lfp` nor the service has a descriptor of it any more.
    fn wait_until_exclusive(&self) {
        let port = self.port;
        let refused = format!("! {}", open_by_bob(port));
        self.machine.wait_for(&refused);
        let open = "ls -l /proc/$(pidof lfp)/fd /proc/$(pidof lfpd)/fd 2>/dev/null";
        self.machine.wait_for(&format!("! {open} | grep -q {port}"));
    }

    fn kill(&self) {
        assert_eq!(self.machine.run("kill -KILL $(pgrep -P $(pidof lfp))").code, 0);
        self.wait_for_end();
    }

    fn wait_for_end(&self) {
        self.machine.wait_for("! pidof lfp");
    }

    fn said(&self) -> String {
        self.machine.run("cat /tmp/said").text
    }
}

fn open_by_bob(port: &str) -> String {
    format!("setpriv --reuid=bob --regid=bob --init-groups sh -c '(exec 3<>{port})'")
}

fn can_open(machine: &Machine<'_>, port: &str) -> bool {
    let said = machine.run(&open_by_bob(port));
    assert!(said.code == 0 || said.text.contains(BUSY), "{said:?}");
    said.code == 0
}

/// Has the kernel write down each change of the lines, and whose call it is.
const PROBE: &str = "cd /sys/kernel/tracing && \
    echo 'p:lines serial8250_do_set_mctrl lines=%si:x32' >kprobe_events && \
    echo 1 >events/kprobes/enable && echo 1 >tracing_on";

/// What was written down: by whose call the lines rose and fell. Without Bob's openings.
fn changes(machine: &Machine<'_>) -> Vec<String> {
    const DTR_AND_RTS: u32 = 0x6;
    let trace = machine.run("grep -v '^#' /sys/kernel/tracing/trace").text;
    let mut before = 0;
    let mut changes = Vec::new();
    for line in trace.lines() {
        let (program, rest) = line.trim().split_once('-').expect("a program");
        let lines = rest.rsplit_once("lines=0x").expect("lines").1;
        let lines = u32::from_str_radix(lines.trim(), 16).expect("a number") & DTR_AND_RTS;
        if program != "sh" && lines != before {
            before = lines;
            changes.push(format!("{program}: {lines:#x}"));
        }
    }
    changes
}

/// What the driver says of the port's lines; it is not opened for that.
fn are_lines_up(machine: &Machine<'_>) -> bool {
    let line = machine.run("grep ^1: /proc/tty/driver/serial").text;
    let (rts, dtr) = (line.contains("RTS"), line.contains("DTR"));
    assert_eq!(rts, dtr, "{line}");
    dtr
}

/// What they do by the command's own calls.
fn up_and_down() -> Vec<String> {
    ["bash: 0x6", "bash: 0x0"].repeat(2).into_iter().map(str::to_owned).collect()
}

/// Opens, closes, opens again, and is killed. Tells what the lines have done.
fn life(machine: &Machine<'_>, run: &str) -> Vec<String> {
    assert_eq!(machine.run("echo >/sys/kernel/tracing/trace").code, 0);
    let open = format!("exec 3<>{PORT}");
    let command = Command::begin(machine, run, PORT, &["true", &open, "exec 3>&-", &open]);
    let is_exclusive = run != LOCKED;
    for step in [1, 3] {
        command.go_on(step);
        if is_exclusive {
            command.wait_until_exclusive();
        }
        assert!(are_lines_up(machine), "{step}");
        assert_eq!(can_open(machine, PORT), !is_exclusive);
        if step == 1 {
            command.go_on(2);
            assert!(!are_lines_up(machine), "closed");
            assert!(can_open(machine, PORT), "closed");
        }
    }
    command.kill();
    assert!(!are_lines_up(machine) && can_open(machine, PORT), "{}", command.said());
    changes(machine)
}

/// The lines rise with the command's open and fall with its close, by these very calls, as without the option. One machine
/// for all of it: to start one takes longer.
#[test]
#[ignore = "needs root: tests/run"]
fn serial_ports_by_their_own_drivers() {
    let (sandbox, _made) = machine::sandbox();
    let machine = Machine::start(&sandbox);
    assert_eq!(machine.run(PROBE).code, 0, "{machine}");
    let without = life(&machine, LOCKED);
    assert_eq!(without, up_and_down());
    assert_eq!(life(&machine, EXCLUSIVE), up_and_down());

    an_exclusive_port_works(&machine, EXCLUSIVE);
    the_last_bytes_are_still_on_their_way(&machine);
    an_adapter_is_pulled_out_and_comes_back(&machine);
    service::a_locked_port(&machine);
}

/// Bytes go their way, and programs that look at no lock are refused.
fn an_exclusive_port_works(machine: &Machine<'_>, run: &str) {
    receive_one_line(machine);
    let open = format!("exec 3<>{PORT}");
    let command = Command::begin(machine, run, PORT, &[&open, "echo one line >&3"]);
    command.wait_until_exclusive();
    for program in [format!("cat {PORT}"), format!("picocom -b 9600 {PORT}")] {
        let said = machine.run_as("bob", &program);
        assert!(said.code != 0 && said.text.contains(BUSY), "{program}: {said:?}");
    }
    command.go_on(1);
    machine.wait_for(HAS_COME);
    command.kill();
}

/// Begins to receive one line at the other end. What no program receives stays in the emulated wire, and comes to the next
/// one that opens this end.
fn receive_one_line(machine: &Machine<'_>) {
    let receive =
        format!("rm -f /tmp/came; stty -F {FAR_END} raw -echo; (head -n 1 {FAR_END} >/tmp/came &)");
    assert_eq!(machine.run(&receive).code, 0);
}

const HAS_COME: &str = "grep -q 'one line' /tmp/came";

/// The command has ended, and the kernel waits until the other side takes what it has written: what the command has open is
/// shown to nobody now, and that is no reason for a warning.
fn the_last_bytes_are_still_on_their_way(machine: &Machine<'_>) {
    let steps = [&*format!("exec 3<>{PORT}"), "echo one line >&3"];
    let command = Command::begin(machine, EXCLUSIVE, PORT, &steps);
    command.wait_until_exclusive();
    receive_one_line(machine);
    assert_eq!(machine.run(&format!("printf '\\023' >{FAR_END}")).code, 0);
    command.go_on(1);
    let bash = machine.run("pgrep -P $(pidof lfp)").text;
    assert_eq!(machine.run("echo >/tmp/go").code, 0);
    let bash = bash.trim();
    // It has no memory any more, and is not a zombie yet.
    machine.wait_for(&format!("! grep -q -e VmSize -e ^State:.Z /proc/{bash}/status"));
    assert_eq!(machine.run(&format!("printf '\\021' >{FAR_END}")).code, 0);
    command.wait_for_end();
    assert_eq!(command.said(), "0.\n1.\n");
    machine.wait_for(HAS_COME);
    assert!(can_open(machine, PORT));
}

/// With the adapter goes the mode; the lock remains the command's. When the adapter comes back and the command opens it
/// again, it is exclusive again.
fn an_adapter_is_pulled_out_and_comes_back(machine: &Machine<'_>) {
    machine.plug_in();
    let open = format!("exec 3<>{ADAPTER}");
    let command = Command::begin(machine, EXCLUSIVE, ADAPTER, &[&open, "exec 3>&-", &open]);
    command.wait_until_exclusive();
    machine.pull_out();
    command.go_on(1);
    machine.plug_in();
    assert!(can_open(machine, ADAPTER), "closed");
    assert_eq!(machine.run("test -e /run/lock/LCK..ttyUSB0").code, 0);
    command.go_on(2);
    command.wait_until_exclusive();
    command.kill();
    assert!(can_open(machine, ADAPTER));
    assert_eq!(machine.run("ls /run/lock").text, "");
}
