//! Takes and releases locks for processes that hold a port open without one (`--watch-opens`).

use std::time::Instant;

use pidlockfile::Pid;
use pidlockfile::process::{ProcessIdentity, real_user};
use ttylock::{Answer, Backoff, Cause, DeviceName, Node, Outcome, Request, Stop, command};

use super::ports::OpenerTask;
use super::service::Service;

/// Programs that hold a port open and wait, without keeping others from it: they take a lock
/// themselves when a call comes in, or give way to programs that dial out. Logins follow them on the line.
const WAITING: [&str; 12] = [
    "agetty", "getty", "mingetty", "mgetty", "vgetty", "uugetty", "fbgetty", "faxgetty", "efax",
    "hfaxd", "login", "sulogin",
];

/// Takes or releases a lock for a process that has a port open, if there is one to be taken or released.
pub(super) fn serve_openers(service: &mut Service) {
    let Some(ports) = service.ports.opens.clone() else { return };
    match ports.next_task() {
        Some(OpenerTask::Release { port, who }) => release(service, &port, &who),
        Some(OpenerTask::Lock { port, who, node, backoff }) => {
            let outcome = lock(service, &port, &who, node, backoff);
            let is_open = ports.openers().note_outcome(&port, &who, outcome, Instant::now());
            if !is_open && outcome == Ok(Outcome::Done) {
                release(service, &port, &who);
            }
        }
        None => {}
    }
    ports.wake();
}

fn release(service: &mut Service, port: &str, who: &ProcessIdentity) {
    let Ok(device) = DeviceName::parse(port.as_bytes()) else { return };
    let answer = service.release_now(&Request { device, pid: who.pid });
    if let (Err(Stop::NotYet(_)), Some(ports)) = (&answer.result, &service.ports.opens) {
        ports.openers().release_later(port, who, Instant::now());
    }
    log(service, who.pid, answer);
}

/// Denied if the process has a lock, or is to have none.
fn lock(
    service: &mut Service,
    port: &str,
    who: &ProcessIdentity,
    node: Node,
    backoff: Option<Backoff>,
) -> Result<Outcome, Cause> {
    let pid = who.pid;
    let Ok(device) = DeviceName::parse(port.as_bytes()) else { return Ok(Outcome::Denied) };
    // The node that was examined is the one that is locked.
    let resolved = service.table.resolve(&device).ok().filter(|it| it.node == Some(node));
    let Some(resolved) = resolved else { return Ok(Outcome::Busy) };
    let request = Request { device, pid };
    let granted = service.authority.grant_opener(request, resolved);
    let Some(granted) = granted.ok().filter(|_| !waits(pid)) else { return Ok(Outcome::Denied) };
    let backoff = backoff.unwrap_or_else(|| Backoff::since(Instant::now()));
    let answer = service.take(None, granted, backoff);
    let outcome = answer.outcome();
    match answer.result {
        Err(Stop::NotYet(cause)) => return Err(cause),
        Err(Stop::Busy(Some(blocker))) if blocker == *who => return Ok(Outcome::Denied),
        Err(Stop::Busy(_)) => {}
        Ok(_) | Err(Stop::Denied) => log(service, pid, answer),
    }
    Ok(outcome)
}

fn log(service: &mut Service, pid: Pid, answer: Answer) {
    let user = real_user(pid);
    for event in answer.events {
        service.journal.of_user(
            user,
            event.weight.into(),
            format_args!("pid {pid} opened it without a lock: {}", event.text),
        );
    }
}

/// Whether it is one of those programs, by the name that it goes by; systemd puts a name that is
/// yet to become the program's in parentheses.
fn waits(pid: Pid) -> bool {
    let name = command(pid).unwrap_or_default();
    WAITING.contains(&name.trim_matches(['(', ')']))
}
