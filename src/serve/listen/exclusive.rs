//! `--exclusive` in the daemon: passes the kernel's events on, and has the processes examined that have a port open.

use std::ffi::OsStr;
use std::path::Path;
use std::time::Instant;

use rustix::thread::{CapabilitySet, capabilities};
use ttylock::DeviceName;

use super::super::exclusive::{PortWatch, Question};
use super::super::opens::Rounds;
use super::super::service::PortSearch;
use super::super::status_queries::OURSELVES;
use super::super::status_worker::Seen;
use super::{Daemon, PORTS};
use crate::limits::EXCLUSIVE_CHECK;

/// The capabilities needed: to duplicate descriptors of other users' processes, and to see them and be notified of
/// openings.
const NEEDED: CapabilitySet = CapabilitySet::SYS_PTRACE.union(CapabilitySet::DAC_READ_SEARCH);

/// What the daemon has for ports that are held exclusively.
#[derive(Default)]
pub(super) struct Exclusive {
    /// With `--exclusive`.
    watch: Option<PortWatch>,
    looks: Rounds<Question, PortSearch>,
    next_check: Option<Instant>,
}

/// Whether this process has them.
pub(super) fn is_possible() -> std::io::Result<()> {
    if capabilities(None)?.effective.contains(NEEDED) {
        return Ok(());
    }
    let why = "--exclusive needs CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH";
    Err(std::io::Error::new(std::io::ErrorKind::PermissionDenied, why))
}

impl Daemon<'_> {
    /// Called before the first client is served.
    pub(super) fn begin_exclusive(&mut self) -> std::io::Result<()> {
        if self.service.makes_exclusive() {
            is_possible()?;
            let watch = PortWatch::begin(self.service.dev_dir(), &self.epoll, PORTS)?;
            self.exclusive.watch = Some(watch);
        }
        self.service.begin_exclusive(Instant::now());
        Ok(())
    }

    pub(super) fn happened_to_ports(&mut self, now: Instant) {
        let Some(watch) = &mut self.exclusive.watch else { return };
        let news = watch.news(&self.epoll, now);
        let ports = self.service.exclusive_ports();
        news.ports.iter().for_each(|port| ports.happened(port, now));
        let name = |port: &str| Path::new(port).file_name().unwrap_or(OsStr::new("")).to_owned();
        if news.has_gap || !news.nodes.is_empty() {
            ports.watch_anew(|port| news.has_gap || news.nodes.contains(&name(port)), now);
        }
        watch.keep_only(|port| ports.is_held(port));
    }

    /// One bounded turn of work.
    pub(super) fn keep_ports_exclusive(&mut self) {
        if self.service.exclusive_ports().is_empty() {
            return;
        }
        let now = Instant::now();
        self.watch_ports(now);
        if self.exclusive.next_check.is_none_or(|moment| moment <= now) {
            self.service.check_exclusive();
            self.exclusive.next_check = now.checked_add(EXCLUSIVE_CHECK);
        }
        self.exclusive.looks.turn(self.service, now);
        if let Some(port) = self.service.exclusive_ports().next_survey(now) {
            match DeviceName::parse(port.as_bytes()) {
                Ok(device) => self.queries.push(OURSELVES, Some(device)),
                Err(_) => self.service.surveyed_exclusive(&[], now),
            }
        }
    }

    fn watch_ports(&mut self, now: Instant) {
        let Some(watch) = &mut self.exclusive.watch else { return };
        watch.wake(&self.epoll, now);
        for port in self.service.exclusive_ports().take_unwatched() {
            match watch.add(&port) {
                Ok(()) => {}
                // The port comes back with another node.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => self.service.is_not_watched(&port, &error),
            }
        }
    }

    /// Whether this search for holders was requested here.
    pub(super) fn is_of_exclusive(&mut self, seen: Option<&Seen>) -> bool {
        let port = seen.map(|seen| seen.port.as_deref());
        match port {
            // A search for all ports.
            Some(None) => false,
            port => self.service.exclusive_ports().is_surveyed(port.flatten()),
        }
    }

    pub(super) fn surveyed_exclusive(&mut self, seen: Option<Seen>, now: Instant) {
        let holders = seen.map(|seen| seen.holders).unwrap_or_default();
        self.service.surveyed_exclusive(&holders, now);
    }

    /// When the next step is due.
    pub(super) fn next_exclusive(&mut self) -> Option<Instant> {
        let now = Instant::now();
        let ports = self.service.exclusive_ports();
        let check = self.exclusive.next_check.filter(|_| ports.next_exclusive("").is_some());
        let due = self.exclusive.looks.next_moment(ports.next_moment(), now);
        let rest = self.exclusive.watch.as_ref().and_then(PortWatch::next_moment);
        check.into_iter().chain(due).chain(rest).min()
    }
}
