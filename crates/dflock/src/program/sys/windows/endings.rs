//! Windows: console events that end programs. The console tells the command as well as `dflock run`, so
//! nothing has to be passed on.

use crate::program::outcome::Failure;
use std::future::pending;
use std::io;
use tokio::signal::windows::{
    CtrlBreak, CtrlC, CtrlClose, CtrlLogoff, CtrlShutdown, ctrl_break, ctrl_c, ctrl_close,
    ctrl_logoff, ctrl_shutdown,
};

/// What asks the program to end, as something to wait for. After the last three Windows leaves it some
/// seconds.
pub(in crate::program) struct Endings {
    c: CtrlC,
    pause: CtrlBreak,
    close: CtrlClose,
    logoff: CtrlLogoff,
    shutdown: CtrlShutdown,
}

impl Endings {
    /// From now on none of it ends the program by itself.
    pub(in crate::program) fn catch() -> io::Result<Self> {
        Ok(Self {
            c: ctrl_c()?,
            pause: ctrl_break()?,
            close: ctrl_close()?,
            logoff: ctrl_logoff()?,
            shutdown: ctrl_shutdown()?,
        })
    }

    /// May be given up and called again.
    pub(in crate::program) async fn next(&mut self) {
        tokio::select! {
            _ = self.c.recv() => {}
            _ = self.pause.recv() => {}
            _ = self.close.recv() => {}
            _ = self.logoff.recv() => {}
            _ = self.shutdown.recv() => {}
        }
    }
}

/// Never: no process is harder to end than others.
pub(in crate::program) async fn told_to_end(_holds_some: bool) -> Result<u8, Failure> {
    pending().await
}

/// Never: a reader that has gone is found out by the next line.
pub(in crate::program) async fn output_closed() {
    pending().await
}
