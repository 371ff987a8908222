//! Passes a lock from one process to another, without a moment in which it is free.

use pidlockfile::process::Fate;
use pidlockfile::{Breaking, Claim, Durability, Found, Judged, Name, Published};

use super::judge::{Breakable, Busy};
use super::keeping::room;
use super::{ATTEMPTS, Answer, LOCK_MODE, Stop, TEMPORARY, Table};
use crate::device::node::ResolvedDevice;
use crate::dialects::content::{Content, READ_LIMIT};
use crate::limits::KEPT_FILES;
use crate::lock::backoff::Contention;
use crate::lock::directories::Place;
use crate::lock::holder_records::Written;
use crate::lock::{Cause, Contended, Pass, Request, Weight};

impl Table {
    /// Makes another process the holder of a lock, in one step for each of its files. May sleep
    /// for some milliseconds, as [`Table::lock`].
    pub fn pass(&mut self, pass: &Pass) -> Answer {
        self.with_pauses(|table, contention, _| table.attempt_pass(pass, contention))
    }

    /// One attempt at [`Table::pass`]. Busy unless the giver is alive and holds every lock file of the device; denied
    /// if there is no such receiver.
    ///
    /// # Errors
    /// [`Contended`], only with [`Contention::ComesBack`]: nothing was passed.
    pub(crate) fn attempt_pass(
        &mut self,
        pass: &Pass,
        contention: Contention,
    ) -> Result<Answer, Contended> {
        let tried = self.try_pass(pass, None, contention);
        self.answer(tried.map(|()| None))
    }

    /// One attempt at [`Table::pass`] for a device from [`Table::resolve`].
    ///
    /// # Errors
    /// [`Contended`], only with [`Contention::ComesBack`]: nothing was passed.
    pub fn attempt_pass_of(
        &mut self,
        pass: &Pass,
        resolved: ResolvedDevice,
        contention: Contention,
    ) -> Result<Answer, Contended> {
        let tried = self.try_pass(pass, Some(resolved), contention);
        self.answer(tried.map(|()| None))
    }

    fn try_pass(
        &mut self,
        pass: &Pass,
        resolved: Option<ResolvedDevice>,
        contention: Contention,
    ) -> Result<(), Stop> {
        let Pass { device, from, to } = pass;
        let receiver = self.records().claimant(*to);
        let machine = self.records().machine();
        let gone = [*to, *from].into_iter().find(|pid| machine.fate_of_number(*pid).is_over());
        if let Some(gone) = gone {
            let device = device.as_str();
            self.say(Weight::Info, format!("{device} cannot be passed: pid {gone} is gone"));
            return Err(if gone == *to { Stop::Denied } else { Stop::Busy(None) });
        }
        let request = Request { device: device.clone(), pid: *from };
        let (resolved, mut lock_names) = self.names(&request, resolved)?;
        for name in self.names_written(&lock_names, *from) {
            lock_names.write_too(name);
        }
        let room = room(Some(&resolved));
        let open = self.open()?;
        self.settle_each(&open.own, &lock_names.written, contention)?;
        let held = self.held(&open.own, &lock_names.written, pass)?;
        let giver = self.records().claimant(*from);
        let begun = self.begin_handover(pass, &giver, &held, contention)?;
        let passed = match self.pass_all(&open.own, &held, pass, contention) {
            Ok(passed) => passed,
            Err((stop, passed)) => {
                self.call_off(&open.own, begun, &passed);
                return Err(stop);
            }
        };
        lock_names.written = passed.iter().map(|(name, _)| name.clone()).collect();
        let published: Vec<&Published> = passed.iter().map(|(_, published)| published).collect();
        let receiver = self.records().as_it_is_now(receiver);
        if !self.remember(&open.own, &lock_names, &receiver, &published).is_on_record {
            self.call_off(&open.own, begun, &passed);
            return Err(Stop::Denied);
        }
        self.end_handover(begun);
        self.watched.forget(&lock_names.written, *from);
        for (name, published) in passed {
            self.watched.add(&name, &receiver.who, receiver.uid);
            self.guards.keep(&name, &receiver.who, published, room);
        }
        self.say(Weight::Info, format!("passed {} from pid {from} to pid {to}", resolved.real()));
        Ok(())
    }

    /// The files that are going to be passed: all are examined before one is changed. A written name to which no link
    /// leads any more is passed as well.
    fn held(&mut self, own: &Place, names: &[Name], pass: &Pass) -> Result<Vec<Written>, Stop> {
        let mut held = Vec::with_capacity(names.len());
        for name in names {
            if let Some(judged) = self.passable(own, name, pass)? {
                let (file, at) = (judged.identity(), judged.modified());
                held.push(Written { name: name.clone(), file, at });
            }
        }
        if held.is_empty() {
            let device = pass.device.as_str();
            self.say(Weight::Info, format!("{device} is not pid {}'s to pass", pass.from));
            return Err(Stop::Busy(None));
        }
        Ok(held)
    }

    /// Passes all files. If one cannot be passed, the files that were passed before it must be given back.
    fn pass_all(
        &mut self,
        own: &Place,
        held: &[Written],
        pass: &Pass,
        contention: Contention,
    ) -> Result<Passed, (Stop, Passed)> {
        let mut passed = Vec::with_capacity(held.len());
        for Written { name, .. } in held {
            match self.pass_one(own, name, pass, contention) {
                Ok(Some(published)) => passed.push((name.clone(), published)),
                // Another process has removed the file meanwhile: then none is passed.
                Ok(None) => return Err((self.busy(own, name, Busy::Unknown), passed)),
                Err(stop) => return Err((stop, passed)),
            }
        }
        Ok(passed)
    }

    /// A lock file that the giver holds, or that the receiver already holds after an interrupted hand-over; `None` if
    /// the name was not written.
    fn passable(&mut self, own: &Place, name: &Name, pass: &Pass) -> Result<Option<Judged>, Stop> {
        let judged = match own.directory.read(name, READ_LIMIT) {
            Ok(Found::Nothing) => return Ok(None),
            Ok(Found::File(judged)) => judged,
            Ok(Found::Obstacle(_)) | Err(_) => return Err(self.busy(own, name, Busy::Unknown)),
        };
        let pid = Content::parse(judged.content()).ok().map(|content| content.pid);
        let Some(pid) = pid.filter(|pid| [pass.from, pass.to].contains(pid)) else {
            let busy =
                pid.map_or(Busy::Unknown, |pid| Busy::Held(self.holder_of(name, pid, &judged)));
            return Err(self.busy(own, name, busy));
        };
        let who = self.holder_of(name, pid, &judged);
        // Otherwise the number belongs to another process.
        let is_its_own = self.fate(&who) == Fate::Same && !self.records().is_elsewhere(&who);
        if is_its_own { Ok(Some(judged)) } else { Err(self.busy(own, name, Busy::Held(who))) }
    }

    fn pass_one(
        &mut self,
        own: &Place,
        name: &Name,
        pass: &Pass,
        contention: Contention,
    ) -> Result<Option<Published>, Stop> {
        let content = self.layout.dialect.content.write(pass.to);
        let claim = Claim {
            content: &content,
            mode: LOCK_MODE,
            prefix: TEMPORARY.as_ref(),
            durability: Durability::Memory,
        };
        for _ in 0..ATTEMPTS {
            let Some(mut judged) = self.passable(own, name, pass)? else { return Ok(None) };
            let broken = match self.guards.take(name, pass.from) {
                // A daemon's file is protected by its `flock(2)`; a session's file may have been made by any user.
                Some(held) if self.guards.is_a_daemons() => {
                    let broken = own.directory.replace_held(name, judged, &held, &claim);
                    if !matches!(broken, Ok(Breaking::Replaced(_))) {
                        let giver = self.identify(pass.from);
                        self.guards.keep(name, &giver, held, KEPT_FILES);
                    }
                    broken
                }
                _ => match self.hold(own, name, &mut judged, contention) {
                    Ok(Breakable::NotYet(cause)) => {
                        return Err(self.not_yet(own, name, contention, cause));
                    }
                    Ok(Breakable::Ours) | Err(_) => own.directory.replace(name, judged, &claim),
                },
            };
            match broken {
                Ok(Breaking::Replaced(published)) => return Ok(Some(published)),
                Ok(Breaking::Changed) => {}
                Ok(Breaking::Contended) => {
                    return Err(self.not_yet(own, name, contention, Cause::Breaking));
                }
                Err(error) => return Err(self.cannot_write(&error)),
            }
        }
        Err(self.busy(own, name, Busy::Unknown))
    }
}

/// The files that the receiver holds already.
type Passed = Vec<(Name, Published)>;
