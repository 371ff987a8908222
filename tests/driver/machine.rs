//! A machine with serial ports: a kernel of Debian's with its own drivers, under software emulation. Two ports of an 8250
//! are joined by a wire, `/dev/ttyS1` and `/dev/ttyS2`; an adapter by FTDI is plugged in and pulled out.
//! Its files are those of the sandbox in which it runs.

use std::cell::RefCell;
use std::fs;
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use testbed::{Process, Sandbox, peer, until, until_every};

/// One port of the wire, and the other.
pub(crate) const PORT: &str = "/dev/ttyS1";
pub(crate) const FAR_END: &str = "/dev/ttyS2";

/// The adapter.
pub(crate) const ADAPTER: &str = "/dev/ttyUSB0";

/// How long something may take on a machine that is emulated, beside others. It starts in seven seconds of computing.
const LIMIT: Duration = Duration::from_secs(240);

/// What the kernel loads, in this order.
const MODULES: [&str; 17] = [
    "drivers/virtio/virtio_ring",
    "drivers/virtio/virtio",
    "drivers/virtio/virtio_pci_legacy_dev",
    "drivers/virtio/virtio_pci_modern_dev",
    "drivers/virtio/virtio_pci",
    "fs/netfs/netfs",
    "fs/fscache/fscache",
    "net/9p/9pnet",
    "net/9p/9pnet_virtio",
    "fs/9p/9p",
    "fs/overlayfs/overlay",
    "drivers/usb/common/usb-common",
    "drivers/usb/core/usbcore",
    "drivers/usb/host/xhci-hcd",
    "drivers/usb/host/xhci-pci",
    "drivers/usb/serial/usbserial",
    "drivers/usb/serial/ftdi_sio",
];

/// A machine that runs, with a shell of root's at its console.
pub(crate) struct Machine<'s> {
    sandbox: &'s Sandbox,
    console: RefCell<Process<'s>>,
    /// As much of the console has been read.
    read: RefCell<usize>,
}

/// What a line has said, and its code.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) text: String,
    pub(crate) code: i32,
}

/// A sandbox for it. What it starts from has to be made before.
pub(crate) fn sandbox() -> (Sandbox, tempfile::TempDir) {
    let made = tempfile::tempdir().expect("a directory");
    let image = first_files(made.path());
    let sandbox = Sandbox::layout()
        .bring("lfp", testbed::program("lfp-cli", "lfp", &[]))
        .bring("lfpd", env!("CARGO_BIN_EXE_lfpd"))
        .bring("kernel", kernel())
        .bring("image", image)
        .enter();
    (sandbox, made)
}

impl<'s> Machine<'s> {
    /// Starts it.
    pub(crate) fn start(sandbox: &'s Sandbox) -> Self {
        let words = "-accel tcg -machine pc -cpu max -m 512 -nodefaults -no-reboot -display none \
            -kernel /run/test/kernel -initrd /run/test/image \
            -virtfs local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap \
            -chardev stdio,id=console,signal=off -serial chardev:console \
            -chardev socket,id=one,path=/tmp/wire,server=on,wait=off -serial chardev:one \
            -chardev socket,id=other,path=/tmp/wire -device isa-serial,chardev=other,index=2,irq=5 \
            -chardev socket,id=adapter,path=/tmp/adapter,server=on,wait=off -device qemu-xhci -monitor unix:/tmp/monitor,server=on,wait=off";
        // A busy machine emulates a timer too slowly for the kernel's check of it.
        let console = sandbox
            .command("qemu-system-x86_64")
            .args(words.split_whitespace())
            .args(["-append", "console=ttyS0 quiet panic=-1 mitigations=off no_timer_check"])
            .spawn();
        let machine = Self { sandbox, console: RefCell::new(console), read: RefCell::new(0) };
        assert!(machine.answer("@@ ready\n").is_some(), "{machine}");
        let group = format!("chgrp dialout {PORT} {FAR_END} && chmod 660 {PORT} {FAR_END}");
        assert_eq!(machine.run(&group).code, 0, "{machine}");
        machine
    }

    /// Runs a line of shell as root.
    pub(crate) fn run(&self, line: &str) -> Said {
        assert!(!line.contains('\n'), "one line: {line}");
        self.console.borrow_mut().type_in(&format!("{line}\n"));
        let text = self.answer("@@ ").unwrap_or_else(|| panic!("{line}: {self}"));
        let code = self.answer("\n").and_then(|code| code.parse().ok());
        Said { text, code: code.unwrap_or_else(|| panic!("{line}: {self}")) }
    }

    /// The same as an ordinary user, who may open serial ports and has no rights besides.
    pub(crate) fn run_as(&self, user: &str, line: &str) -> Said {
        let quoted = line.replace('\'', r"'\''");
        let rights = format!("setpriv --reuid={user} --regid={user} --init-groups");
        self.run(&format!("{rights} sh -c '{quoted}'"))
    }

    /// Plugs the adapter in, and waits until those may open it who may.
    pub(crate) fn plug_in(&self) {
        self.monitor("device_add usb-serial,chardev=adapter,id=adapter,always-plugged=on");
        self.wait_for(&format!("test -c {ADAPTER}"));
        let group = self.run(&format!("chgrp dialout {ADAPTER} && chmod 660 {ADAPTER}"));
        assert_eq!(group.code, 0, "{group:?}");
    }

    /// Pulls it out.
    pub(crate) fn pull_out(&self) {
        self.monitor("device_del adapter");
        self.wait_for(&format!("! test -e {ADAPTER}"));
    }

    /// Runs a line again and again until its code is zero. Each costs an emulated machine much, so it rests meanwhile.
    pub(crate) fn wait_for(&self, line: &str) {
        let is_so = || (self.run(line).code == 0).then_some(());
        let seen = until_every(Duration::from_millis(300), LIMIT, is_so);
        assert!(
            seen.is_some(),
            "{line}: {:?}",
            self.run("cat /tmp/said /tmp/came; ps -ef | grep -v ' 2  *0 '; ls -l /run/lock")
        );
    }

    fn monitor(&self, line: &str) {
        let mut monitor =
            UnixStream::connect(self.sandbox.path("/tmp/monitor")).expect("the monitor");
        // Its answers are nobody's: what they speak of is looked at in the machine itself.
        writeln!(monitor, "{line}").expect("a monitor that reads");
        monitor.shutdown(std::net::Shutdown::Write).expect("an end");
        let _ = std::io::copy(&mut monitor, &mut std::io::sink());
    }

    /// What the console says next, up to this. None: not in time.
    fn answer(&self, end: &str) -> Option<String> {
        let mut read = self.read.borrow_mut();
        let text = until(LIMIT, || {
            let has_ended = !self.console.borrow_mut().runs();
            let output = self.console.borrow().output();
            let rest = &output[*read..];
            match rest.find(end) {
                Some(length) => Some(Some(rest[..length].to_owned())),
                None => has_ended.then_some(None),
            }
        })??;
        *read += text.len() + end.len();
        Some(text.replace('\r', ""))
    }
}

impl std::fmt::Display for Machine<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the machine's console:\n{}", self.console.borrow().output())
    }
}

/// Debian's kernel, and its directory of modules.
fn kernel() -> PathBuf {
    only(&peer("linux-image-amd64", "boot"), "vmlinuz-")
}

/// The one entry of a directory whose name begins like this.
fn only(directory: &Path, begin: &str) -> PathBuf {
    let mut entries =
        fs::read_dir(directory).expect("a directory").flatten().map(|entry| entry.path());
    let is_it = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(begin))
    };
    entries.find(is_it).unwrap_or_else(|| panic!("{}/{begin}", directory.display()))
}

/// The archive with the files that the kernel starts with.
fn first_files(directory: &Path) -> PathBuf {
    let root = directory.join("root");
    for name in ["bin", "dev", "lib"] {
        fs::create_dir_all(root.join(name)).expect("a directory");
    }
    let busybox = peer("busybox-static", "bin/busybox");
    fs::copy(&busybox, root.join("bin/busybox")).expect("a copy");
    testbed::script(&root.join("init"), include_str!("init.sh"));
    let modules = only(&peer("linux-image-amd64", "lib/modules"), "").join("kernel");
    let names = MODULES.map(|module| {
        let name = module.rsplit('/').next().unwrap_or(module);
        let (from, to) =
            (modules.join(format!("{module}.ko")), root.join(format!("lib/{name}.ko")));
        fs::copy(&from, &to).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
        name
    });
    fs::write(root.join("modules"), names.join("\n")).expect("a file");
    let image = directory.join("image");
    let packed = Command::new("sh")
        .args(["-c", "mknod dev/console c 5 1 && find . | \"$0\" cpio -o -H newc"])
        .arg(&busybox)
        .current_dir(&root)
        .stdout(fs::File::create(&image).expect("a file"))
        .stderr(Stdio::null())
        .status();
    assert!(packed.is_ok_and(|end| end.success()), "{}", image.display());
    image
}
