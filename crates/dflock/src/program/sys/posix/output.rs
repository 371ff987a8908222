//! Whether anybody reads what this program writes.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;
use tokio::time::sleep;

/// How often is looked.
const PERIOD: Duration = Duration::from_secs(1);

/// Ends when nobody reads standard output any more. May be given up and called again.
pub(in crate::program) async fn output_closed() {
    while !is_closed() {
        sleep(PERIOD).await;
    }
}

/// A pipe whose reader has gone says so without being written to.
fn is_closed() -> bool {
    let output = io::stdout();
    let mut looked = [PollFd::new(output.as_fd(), PollFlags::empty())];
    let gone = PollFlags::POLLERR | PollFlags::POLLNVAL;
    let found = poll(&mut looked, PollTimeout::ZERO).is_ok_and(|count| count > 0);
    found && looked.iter().any(|it| it.revents().is_some_and(|events| events.intersects(gone)))
}
