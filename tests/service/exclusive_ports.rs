//! Ports that nobody else can open: what `lfpd --exclusive`, `lfp run --exclusive` and the library with
//! `LFP_EXCLUSIVE=1` all promise, and then `lfpd --exclusive` alone: it ends with the lock, whichever process is killed at
//! any moment. On virtual consoles: their driver forgets the mode at the last close, as drivers of serial ports do.

use std::time::{Duration, Instant};

use rstest::rstest;
use testbed::{
    Client, Console, LFP, LFPD, LIMIT, Process, SOCKET, Sandbox, User, can_open, comes, pause,
    steps, until,
};

use crate::machine::client;

const EXCLUSIVE: &[&str] = &["--exclusive"];
const PORT: &str = Console::PATH;
const OTHER: &str = "/dev/ttyV9";
const LOCK_FILE: &str = "/run/lock/LCK..ttyV0";

/// The service's own user.
const OWN: User = User::LfpdExclusive;

/// A sandbox with two ports that live like serial ones, and a pseudo-terminal.
struct Ground {
    sandbox: Sandbox,
    consoles: [Console; 2],
}

impl Ground {
    fn new() -> Self {
        let consoles = [Console::take(), Console::take()];
        let library = testbed::library("lfp-preload", "liblfp_preload");
        let layout = Sandbox::layout().port_with_mode("ttyW0", 0o666).installed();
        let sandbox = layout.bring("lib/lfp/liblfp_preload.so", library).enter();
        consoles[0].put_into(&sandbox);
        let ground = Self { sandbox, consoles };
        ground.sh(&format!("mknod -m 666 {OTHER} c 4 {}", ground.consoles[1].number()));
        ground
    }

    /// Root does this.
    fn sh(&self, line: &str) {
        self.sandbox.shell(User::Root, line).expect(0);
    }

    /// Everybody who locked or opened a port before this call was looked at.
    fn wait_until_all_is_looked_at(&self) {
        let later = self.shell(User::Alice, &[&format!("exec 3<>{OTHER}")]);
        self.lock(OTHER, later.pid());
        self.wait_until_exclusive(OTHER);
        later.kill();
        self.wait_until_shared(OTHER);
    }

    fn serve(&self, server: User, options: &[&str]) -> Process<'_> {
        self.sandbox.serve(server, options)
    }

    /// Root's service with `--exclusive`, under strace with these words.
    fn serve_traced(&self, words: &[&str]) -> Process<'_> {
        let strace = self.sandbox.command("strace").args(["-qq", "-o", "/dev/null"]);
        self.sandbox.serve_by(strace.args(words).arg(LFPD).args(EXCLUSIVE))
    }

    fn lfp(&self, words: &[&str]) -> i32 {
        self.sandbox.command(LFP).args(words).run().code()
    }

    fn lock(&self, port: &str, holder: u32) {
        let ask = || {
            let words = ["lock", port, "--pid", &holder.to_string()];
            let end = self.sandbox.command(LFP).args(words).run();
            // On a machine that is too busy for an answer in time, it may have been locked all the same.
            let is_its = self.sandbox.locked_by(port.trim_start_matches("/dev/")) == Some(holder);
            if end.code() == 0 || is_its { Ok(()) } else { Err(end.to_string()) }
        };
        let mut said = String::new();
        // While somebody has very many kernel locks, a port that is open is busy.
        let locked = until(LIMIT, || ask().map_err(|it| said = it).ok());
        assert!(locked.is_some(), "{port} for {holder}: {said}");
    }

    fn unlock(&self, port: &str, holder: u32) -> i32 {
        self.lfp(&["unlock", port, "--pid", &holder.to_string()])
    }

    fn is_open_to_all(&self) -> bool {
        can_open(&self.sandbox, PORT)
    }

    fn wait_until_exclusive(&self, port: &str) {
        assert!(comes(|| !can_open(&self.sandbox, port)), "{port} is exclusive");
    }

    fn wait_until_shared(&self, port: &str) {
        assert!(comes(|| can_open(&self.sandbox, port)), "{port} is open to all");
    }

    /// A shell that has done the first of its steps.
    fn shell(&self, user: User, its: &[&str]) -> Process<'_> {
        let mut shell = self.sandbox.command("bash").args(["-c", &steps(its)]).user(user).spawn();
        shell.expect("0.");
        shell
    }

    /// A service with `--exclusive`, and a shell of Alice's that has its lock.
    fn scene(&self, steps: &[&str]) -> Scene<'_> {
        Scene::begin(self, SERVICE, EXCLUSIVE, PORT, steps)
    }

    /// The same, after the shell's first step: it has opened the port, and the port is exclusive.
    fn opened(&self, steps: &[&str]) -> Scene<'_> {
        let mut scene = self.scene(&[&[&*open()], steps].concat());
        scene.shell.go_on(1);
        self.wait_until_exclusive(PORT);
        scene
    }
}

fn open() -> String {
    format!("exec 3<>{PORT}")
}

/// Who makes the port exclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// `lfpd`, for the holder of a lock.
    Service(User),
    /// `lfp run`, for a command of this user's.
    Run(User),
    /// The library, for a program under `lfp shim`.
    Shim,
}

/// A number that a process has said after this word, and before a comma.
fn number_after(word: &str, process: &Process<'_>) -> Option<u32> {
    process.output().split(word).nth(1)?.split(',').next()?.parse().ok()
}

const SERVICE: Way = Way::Service(OWN);
const PSEUDO: &str = "/dev/ttyW0";

/// A port that a shell has locked by one of these ways, or locks by opening it.
struct Scene<'g> {
    ground: &'g Ground,
    way: Way,
    port: &'static str,
    service: Process<'g>,
    /// The shell, or what runs it.
    shell: Process<'g>,
}

impl<'g> Scene<'g> {
    /// The options are those of the service, or of `lfp`.
    fn begin(
        ground: &'g Ground,
        way: Way,
        options: &[&str],
        port: &'static str,
        its: &[&str],
    ) -> Self {
        let lfp = |words: &[&str], user| {
            let its = steps(&[&["echo shell $$,"], its].concat());
            let words = [words, &[port, "--", "bash", "-c", &its]].concat();
            let command = ground.sandbox.command(LFP).args(words).user(user);
            let mut shell = command.env("LFP_TIMEOUT", "30").spawn();
            shell.expect("0.");
            shell
        };
        let (server, own) = match way {
            Way::Service(server) => (server, options),
            Way::Run(_) | Way::Shim => (OWN, &[][..]),
        };
        let service = ground.serve(server, own);
        let shell = match way {
            Way::Service(_) => {
                let shell = ground.shell(User::Alice, &[&["true"], its].concat());
                ground.lock(port, shell.pid());
                shell
            }
            Way::Run(user) => lfp(&[&["run", "--no-shim"], options].concat(), user),
            Way::Shim => lfp(&[&["shim", "--ports"], options, &["--also"]].concat(), User::Alice),
        };
        Self { ground, way, port, service, shell }
    }

    /// Ends the lock: by the service's word, or with the program.
    fn end(&mut self) {
        if let Way::Service(_) = self.way {
            assert_eq!(self.ground.unlock(self.port, self.shell.pid()), 0);
        } else {
            self.shell.type_in("\n");
            assert!(until(LIMIT, || self.shell.ended()).is_some());
        }
    }

    /// Kills the shell.
    fn kill(&self) {
        let pid = number_after("shell ", &self.shell).unwrap_or(self.shell.pid());
        self.ground.sh(&format!("kill -KILL {pid}"));
    }
}

/// From the first opening to the last close, again at the next, and no longer than the lock.
#[rstest]
#[case::by_a_service_of_roots(Way::Service(User::Root), PORT)]
#[case::by_the_service(SERVICE, PORT)]
#[case::by_lfp_run(Way::Run(User::Alice), PORT)]
#[case::by_lfp_run_of_roots(Way::Run(User::Root), PORT)]
#[case::by_lfp_run_on_a_pseudo_terminal(Way::Run(User::Alice), PSEUDO)]
#[case::by_lfp_run_of_roots_on_a_pseudo_terminal(Way::Run(User::Root), PSEUDO)]
#[case::by_the_library(Way::Shim, PORT)]
#[ignore = "needs root: tests/run"]
fn others_cannot_open_a_port_that_its_holder_has_open(
    #[case] way: Way,
    #[case] port: &'static str,
) {
    let ground = Ground::new();
    let open = format!("exec 3<>{port}");
    let mut scene = Scene::begin(&ground, way, EXCLUSIVE, port, &[&open, "exec 3>&-", &open]);
    assert!(can_open(&ground.sandbox, port), "it is locked only");
    scene.shell.go_on(1);
    ground.wait_until_exclusive(port);
    scene.shell.go_on(2);
    ground.wait_until_shared(port);
    if way != Way::Shim {
        assert_ne!(ground.lfp(&["run", port, "true"]), 0, "its lock stands");
    }
    scene.shell.go_on(3);
    ground.wait_until_exclusive(port);
    scene.end();
    assert!(can_open(&ground.sandbox, port), "after the lock: {}", scene.service.output());
}

#[rstest]
#[case::by_the_service(SERVICE, PORT)]
#[case::by_lfp_run(Way::Run(User::Alice), PORT)]
#[case::by_lfp_run_on_a_pseudo_terminal(Way::Run(User::Alice), PSEUDO)]
#[case::by_the_library(Way::Shim, PORT)]
#[ignore = "needs root: tests/run"]
fn a_holder_that_is_killed_keeps_nobody_out(#[case] way: Way, #[case] port: &'static str) {
    let ground = Ground::new();
    let mut scene = Scene::begin(&ground, way, EXCLUSIVE, port, &[&format!("exec 3<>{port}")]);
    scene.shell.go_on(1);
    ground.wait_until_exclusive(port);
    scene.kill();
    ground.wait_until_shared(port);
}

/// The last close is the holder's, and lets DTR fall, which resets many boards.
#[rstest]
#[case::by_the_service(SERVICE)]
#[case::by_lfp_run(Way::Run(User::Alice))]
#[ignore = "needs root: tests/run"]
fn nobody_else_keeps_the_port_open(#[case] way: Way) {
    let ground = Ground::new();
    let mut scene = Scene::begin(&ground, way, EXCLUSIVE, PORT, &[&open()]);
    scene.shell.go_on(1);
    ground.wait_until_exclusive(PORT);
    let process = if way == SERVICE { &scene.service } else { &scene.shell };
    let look = format!(
        "for fd in /proc/{}/fd/*; do test $fd -ef {PORT} && exit 1; done; exit 0",
        process.pid()
    );
    assert!(comes(|| ground.sandbox.shell(User::Root, &look).code() == 0), "closed");
}

/// The holder opens another node of the same number, as in a container, which has a `/dev` of its own. The library locks
/// by a name below `/dev`.
#[rstest]
#[case::by_the_service(SERVICE, "/tmp/node")]
#[case::by_lfp_run(Way::Run(User::Alice), "/tmp/node")]
#[case::by_the_library(Way::Shim, "/dev/node")]
#[ignore = "needs root: tests/run"]
fn a_port_that_its_holder_opens_by_another_node_becomes_exclusive(
    #[case] way: Way,
    #[case] node: &str,
) {
    let ground = Ground::new();
    ground.sh(&format!("mknod -m 666 {node} c 4 {}", ground.consoles[0].number()));
    let its = [&*format!("exec 3<>{node}"), "exec 3>&-"];
    let mut scene = Scene::begin(&ground, way, EXCLUSIVE, PORT, &its);
    if way == SERVICE {
        ground.wait_until_all_is_looked_at();
    }
    scene.shell.go_on(1);
    // By that node as well: who opens the other one is noticed.
    ground.wait_until_exclusive(node);
    assert!(!ground.is_open_to_all());
    scene.shell.go_on(2);
    ground.wait_until_shared(PORT);
}

/// Neither unless asked for, nor what the administrator has exempted, nor a pseudo-terminal whose mode would last when
/// its holder is killed.
#[rstest]
#[case::by_the_service_unasked(SERVICE, &[], PORT)]
#[case::by_the_service_exempt(SERVICE, &["--exclusive", "--exclusive-except", "/dev/ttyV0"], PORT)]
#[case::by_the_service_exempt_by_a_link(SERVICE, &["--exclusive", "--exclusive-except", "modem"], PORT)]
#[case::by_the_service_on_a_pseudo_terminal(SERVICE, EXCLUSIVE, PSEUDO)]
#[case::by_lfp_run_unasked(Way::Run(User::Alice), &[], PORT)]
#[case::by_the_library_unasked(Way::Shim, &[], PORT)]
#[case::by_the_library_on_a_pseudo_terminal(Way::Shim, EXCLUSIVE, PSEUDO)]
#[ignore = "needs root: tests/run"]
fn unasked_exempt_and_pseudo_terminals_stay_open_to_all(
    #[case] way: Way,
    #[case] options: &[&str],
    #[case] port: &'static str,
) {
    let ground = Ground::new();
    ground.sh("ln -s ttyV0 /dev/modem");
    let mut scene = Scene::begin(&ground, way, options, port, &[&format!("exec 3<>{port}")]);
    scene.shell.go_on(1);
    if way == SERVICE && !options.is_empty() {
        ground.wait_until_all_is_looked_at();
    }
    assert!(can_open(&ground.sandbox, port));
}

/// The holder had the port open before it took the lock.
#[test]
#[ignore = "needs root: tests/run"]
fn a_port_that_is_open_already_becomes_exclusive_with_the_lock() {
    let ground = Ground::new();
    let _daemon = ground.serve(OWN, EXCLUSIVE);
    let holder = ground.shell(User::Alice, &[&open()]);
    assert!(ground.is_open_to_all());
    ground.lock(PORT, holder.pid());
    ground.wait_until_exclusive(PORT);
}

/// A refused UNLOCK changes nothing. The mode ends with a lock that an administrator takes away, and with one that its
/// holder removes by itself, or root: the holder has the port open still, and so can everybody.
#[rstest]
#[case::refused(User::Bob, "/run/test/bin/lfp unlock $PORT --pid $HOLDER", false)]
#[case::by_force(User::Root, "/run/test/bin/lfp unlock --force $PORT", true)]
#[case::by_removal(User::Root, "rm /run/lock/LCK..*", true)]
#[ignore = "needs root: tests/run"]
fn a_lock_that_ends_in_whatever_way_keeps_nobody_out(
    #[case] user: User,
    #[case] line: &str,
    #[case] ends: bool,
) {
    let ground = Ground::new();
    let mut scene = ground.opened(&[]);
    let line = format!("PORT={PORT}; HOLDER={}; {line}", scene.shell.pid());
    assert_eq!(ground.sandbox.shell(user, &line).code() == 0, ends);
    assert!(comes(|| ground.is_open_to_all() == ends));
    assert!(scene.shell.runs());
}

/// What a program has set for itself is not ended with its lock.
#[test]
#[ignore = "needs root: tests/run"]
fn the_mode_of_a_program_is_its_own() {
    let ground = Ground::new();
    let _daemon = ground.serve(OWN, EXCLUSIVE);
    let itself = "import fcntl, os, sys; port = os.open(sys.argv[1], os.O_RDWR | os.O_NOCTTY); \
                  fcntl.ioctl(port, 0x540C); print('open', flush=True); sys.stdin.read()";
    let program = ground.sandbox.command("/usr/bin/python3").args(["-c", itself, PORT]);
    let mut program = program.user(User::Alice).spawn();
    program.expect("open");
    ground.lock(PORT, program.pid());
    assert_eq!(ground.unlock(PORT, program.pid()), 0);
    assert!(!ground.is_open_to_all());
}

/// The lock goes to another process, and with it the port that it has inherited; to one that has it not open, the port is
/// open to all.
#[rstest]
#[ignore = "needs root: tests/run"]
fn the_mode_goes_where_the_lock_goes(#[values(true, false)] inherits: bool) {
    let ground = Ground::new();
    let child = if inherits { "sleep 1000" } else { "exec sleep 1000 3>&-" };
    let mut scene = ground.opened(&[&format!("({child}) & echo child $!,; true")]);
    scene.shell.go_on(2);
    let child = number_after("child ", &scene.shell).expect("its number");
    let pass = format!("PASS {PORT} {} {child}", scene.shell.pid());
    let mut said = client(&ground.sandbox, User::Root, &format!("UNIX:{SOCKET}"));
    said.type_in(&format!("{pass}\n"));
    said.expect("200 ");
    if inherits {
        ground.wait_until_exclusive(PORT);
        assert_eq!(ground.unlock(PORT, child), 0);
    }
    ground.wait_until_shared(PORT);
}

/// The holder is killed after each of its steps; what it has left behind keeps nobody out.
#[rstest]
#[ignore = "needs root: tests/run"]
fn the_holder_is_killed_at_every_step(#[values(0, 1, 2, 3, 4)] step: usize) {
    let ground = Ground::new();
    let child = "sleep 1000 & true";
    let its = [&*open(), child, "exec 3>&-", &open().replace('3', "4")];
    let Scene { service: _service, shell: mut holder, .. } = ground.scene(&its);
    for done in 1..=step.min(3) {
        holder.go_on(done);
        ground.wait_until_exclusive(PORT);
    }
    if step == 4 {
        // Nobody waits for what comes of it.
        holder.type_in("\n");
    }
    holder.kill();
    ground.wait_until_shared(PORT);
    assert!(comes(|| !ground.sandbox.path(LOCK_FILE).exists()), "the lock goes");
}

/// A killed holder leaves a child that has the port open. The holder leads no session, so the kernel does not hang the
/// child up. Once a second, a thread of the service looks whether the lock is there: it may see the holder's end at the
/// same time as the service.
#[rstest]
#[ignore = "needs root: tests/run"]
fn a_child_that_keeps_the_port_keeps_nobody_out(#[values(0, 300, 600, 900)] milliseconds: u64) {
    let ground = Ground::new();
    let slowly = ["-f", "-e", "trace=readlinkat", "-e", "inject=readlinkat:delay_exit=200000"];
    let _service = ground.serve_traced(&slowly);
    let its = steps(&["echo shell $$,", &open(), "sleep 1000 & true"]);
    let run = ["run", "--no-shim", PORT, "--", "bash", "-c", &its];
    // Slow as it is, the service of a busy machine may not answer in time.
    let mut shell = until(LIMIT, || {
        let mut shell = ground.sandbox.command(LFP).args(run).user(User::Alice).spawn();
        shell.says("0.").then_some(shell)
    });
    let shell = shell.as_mut().expect("a lock");
    shell.go_on(1);
    ground.wait_until_exclusive(PORT);
    shell.go_on(2);
    pause(Duration::from_millis(milliseconds));
    ground.sh(&format!("kill -KILL {}", number_after("shell ", shell).expect("its number")));
    ground.wait_until_shared(PORT);
}

/// The service is killed while a port is exclusive: the mode stays until the port's last close, which the kernel ends.
/// The next service makes the port exclusive again when the holder opens it, with the option.
#[rstest]
#[case::with_the_option(EXCLUSIVE)]
#[case::without(&[])]
#[ignore = "needs root: tests/run"]
fn the_service_is_killed_and_comes_back(#[case] options: &[&str]) {
    let ground = Ground::new();
    let Scene { service, shell: mut holder, .. } = ground.opened(&["exec 3>&-", &open()]);
    service.kill();
    assert!(!ground.is_open_to_all(), "the lock is there, and its holder has the port open");
    std::fs::remove_file(ground.sandbox.path(SOCKET)).expect("a socket");
    let daemon = ground.serve(OWN, options);
    assert!(!ground.is_open_to_all(), "{}", daemon.output());
    holder.go_on(2);
    // The service may be looking at it at this moment.
    ground.wait_until_shared(PORT);
    holder.go_on(3);
    if options.is_empty() {
        assert!(ground.is_open_to_all(), "{}", daemon.output());
    } else {
        ground.wait_until_exclusive(PORT);
    }
    assert_eq!(ground.unlock(PORT, holder.pid()), 0);
    assert!(ground.is_open_to_all(), "{}", daemon.output());
}

/// A service that is killed at one of the calls of one of its threads. Another one comes after it.
struct Mortal<'g> {
    ground: &'g Ground,
    service: Process<'g>,
    _death: Option<Process<'g>>,
    has_died: bool,
}

impl<'g> Mortal<'g> {
    fn begin(ground: &'g Ground, thread: &str, call: &str, time: usize) -> Self {
        let inject = format!("inject={call}:signal=KILL:when={time}");
        if thread == "lfpd" {
            let service = ground.serve_traced(&["-e", &inject]);
            return Self { ground, service, _death: None, has_died: false };
        }
        let service = ground.serve(User::Root, EXCLUSIVE);
        let find = format!("cd /proc/{}/task; grep -slx {thread} */comm", service.pid());
        // A thread gives itself its name.
        let found = until(LIMIT, || {
            let found = ground.sandbox.shell(User::Root, &find);
            found.output().trim().strip_suffix("/comm").map(str::to_owned)
        });
        let words = ["-o", "/dev/null", "-e", &inject, "-p", &found.unwrap_or_default()];
        let mut death = ground.sandbox.command("strace").args(words).spawn();
        death.expect("attached");
        Self { ground, service, _death: Some(death), has_died: false }
    }

    fn succeed(&mut self) {
        if !self.has_died && self.service.ended().is_some() {
            let _ = std::fs::remove_file(self.ground.sandbox.path(SOCKET));
            self.service = self.ground.serve(User::Root, EXCLUSIVE);
            self.has_died = true;
        }
    }

    /// Waits for what comes about whether or not the service is killed meanwhile.
    fn wait_for(&mut self, what: &str, is_so: impl Fn() -> bool) {
        self.wait_for_or_death(what, |_| is_so());
    }

    /// The same for what may depend on it.
    fn wait_for_or_death(&mut self, what: &str, is_so: impl Fn(bool) -> bool) {
        let holds_then = || {
            self.succeed();
            is_so(self.has_died)
        };
        assert!(comes(holds_then), "{what}: {} {}", self.has_died, self.service.output());
    }
}

/// The service is killed at each of the calls by which it makes a port exclusive and ends that. The next one goes on,
/// and nothing stays after the holder's last close.
#[rstest]
#[ignore = "needs root: tests/run"]
fn the_service_is_killed_at_every_call(
    #[values("lfpd", "lfpd-exclusive")] thread: &str,
    #[values("pidfd_open", "pidfd_getfd", "ioctl")] call: &str,
) {
    let ground = Ground::new();
    let mut deaths = 0;
    for time in 1..20 {
        let mut mortal = Mortal::begin(&ground, thread, call, time);
        let mut holder = ground.shell(User::Alice, &["true", &open()]);
        let number = holder.pid().to_string();
        let ask = |verb| ground.lfp(&["--server", SOCKET, verb, PORT, "--pid", &number]);
        // A service that is killed after it has made the lock file leaves the lock to the holder: asked again, it is busy.
        let is_locked = || ask("lock") == 0 || ground.sandbox.path(LOCK_FILE).exists();
        mortal.wait_for("the lock", is_locked);
        holder.go_on(1);
        mortal.wait_for("the mode", || !ground.is_open_to_all());
        mortal.wait_for("the end of the lock", || {
            let _ = ask("unlock");
            !ground.sandbox.path(LOCK_FILE).exists()
        });
        // The mode of a port whose lock has ended stays until the last close if the service is killed now.
        mortal.wait_for_or_death("the end of the mode", |has_died| {
            has_died || ground.is_open_to_all()
        });
        holder.kill();
        mortal.wait_for("the end of the mode with the last close", || ground.is_open_to_all());
        // It may be killed at what it does last, when there is nothing to wait for.
        let has_died = mortal.has_died || !mortal.service.runs();
        drop(mortal);
        let _ = std::fs::remove_file(ground.sandbox.path(SOCKET));
        if !has_died {
            break;
        }
        deaths += 1;
    }
    assert!((1..19).contains(&deaths), "{deaths}");
}

/// An orderly end leaves nothing that nobody would end; the next service goes on.
#[test]
#[ignore = "needs root: tests/run"]
fn a_service_that_ends_leaves_no_mode() {
    let ground = Ground::new();
    let mut scene = ground.opened(&[]);
    scene.service.signal("TERM");
    assert!(until(LIMIT, || scene.service.ended()).is_some());
    assert!(ground.is_open_to_all());
    let _daemon = ground.serve(OWN, EXCLUSIVE);
    ground.wait_until_exclusive(PORT);
}

/// The service makes no port exclusive for a process that was handed the port open without the right to open it, or
/// that no longer has this right.
#[rstest]
#[ignore = "needs root: tests/run"]
fn without_the_right_to_open_a_port_it_is_not_exclusive(#[values(true, false)] lock_first: bool) {
    let ground = Ground::new();
    let _daemon = ground.serve(OWN, EXCLUSIVE);
    let mut process;
    if lock_first {
        // He may read it by now, and no more.
        let shell = ground.shell(User::Alice, &["true", &format!("exec 3<{PORT}")]);
        ground.lock(PORT, shell.pid());
        process = shell;
        ground.sh(&format!("chown alice {PORT} && chmod 400 {PORT}"));
        process.go_on(1);
    } else {
        ground.sh(&format!("chmod 600 {PORT}"));
        let alice = "exec setpriv --reuid=alice --regid=alice --clear-groups";
        let script = format!("exec 3<>{PORT}; {alice} bash -c 'echo open; read -r line'");
        process = ground.sandbox.command("bash").args(["-c", &script]).spawn();
        process.expect("open");
        assert_ne!(ground.lfp(&["lock", PORT, "--pid", &process.pid().to_string()]), 0);
    }
    ground.wait_until_all_is_looked_at();
    let mode = "import fcntl, sys; print(fcntl.ioctl(open(sys.argv[1]), 0x80045440, b'0000'))";
    let words = ["-c", mode, PORT];
    let end = ground.sandbox.command("/usr/bin/python3").args(words).run();
    assert!(end.said(r"b'\x00\x00\x00\x00'"), "{end}");
    assert!(process.runs());
}

/// A process that has the lock and puts other things under the number of its descriptor, again and again: nothing but its port
/// is ever made exclusive.
const SWAPS: &str = "
import os, sys
port = os.open(sys.argv[1], os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
others = [os.open(it, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK) for it in sys.argv[2:]]
others.append(os.open('/run/lock/LCK..ttyV0', os.O_RDONLY))
spare = os.dup(port); os.close(port)
print('open', flush=True)
while True:
    for it in others:
        os.dup2(spare, port); os.dup2(it, port)
";

#[test]
#[ignore = "needs root: tests/run"]
fn a_file_swapped_for_the_port_is_left_alone() {
    let ground = Ground::new();
    ground.sh("echo >/tmp/file; chmod 666 /tmp/file");
    ground.sandbox.write("/tmp/swaps", SWAPS, 0o644);
    let words = format!("/tmp/swaps {PORT} {OTHER} /tmp/file /dev/ttyW0 /dev/null");
    let mut scene = ground.scene(&[&format!("exec /usr/bin/python3 {words}")]);
    scene.shell.type_in("\n");
    scene.shell.expect("open");
    let mut client = ground.sandbox.client().expect("a daemon").greeted();
    // Each opening has the service look again.
    let others = format!(
        "(exec 3<>{OTHER}) && (exec 3<>/dev/ttyW0) && echo open $round. || echo refused $round."
    );
    let open = format!(
        "round=0; while read -r line; do (exec 3<>{PORT}); {others}; round=$((round + 1)); done"
    );
    let mut opener = ground.sandbox.command("sh").args(["-c", &open]).user(User::Bob).spawn();
    for round in 0..200 {
        opener.type_in("\n");
        opener.expect(&format!(" {round}."));
        assert!(client.ask("noop").starts_with("200 "), "{}", scene.service.output());
    }
    assert!(!opener.output().contains("refused"), "{}", opener.output());
    assert_eq!(ground.unlock(PORT, scene.shell.pid()), 0);
    ground.wait_until_shared(PORT);
}

/// A process that opens and closes a locked port without end hardly delays others.
#[test]
#[ignore = "needs root: tests/run"]
fn a_flood_of_openings_keeps_nobody_waiting() {
    let ground = Ground::new();
    // It has the lock, and the port not open: so everybody can open it.
    let _scene = ground.scene(&[]);
    let flood = "import os, sys\nprint('open', flush=True)\nwhile True:\n \
                 os.close(os.open(sys.argv[1], os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK))";
    let flood = ground.sandbox.command("/usr/bin/python3").args(["-c", flood, PORT]);
    let mut flood = flood.user(User::Bob).spawn();
    flood.expect("open");
    let mut client = ground.sandbox.client().expect("a daemon").greeted();
    let ask = |client: &mut Client| {
        let begin = Instant::now();
        assert!(client.ask("noop").starts_with("200 "));
        begin.elapsed()
    };
    // What a busy machine adds is gone in one round or another; what the flood adds is in each.
    let is_prompt = (0..10).any(|_| {
        let mut times: Vec<Duration> = (0..1000).map(|_| ask(&mut client)).collect();
        times.sort();
        println!("NOOP during a flood: median {:?}, p99 {:?}", times[500], times[990]);
        times[500] < Duration::from_millis(20)
    });
    assert!(is_prompt, "a flood of openings keeps clients waiting");
    assert!(flood.runs());
}
