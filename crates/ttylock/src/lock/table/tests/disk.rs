//! The model's machine: lock directory, state directory, gate, `flock(2)` and processes. Each method of [`Calls`] is one
//! system call, and nothing else happens between two of them. Pure.

use std::collections::{BTreeMap, BTreeSet};

/// A process that holds locks, by its number. No number is given twice here.
pub(super) type Holder = u8;

/// A process that makes calls.
pub(super) type Actor = u8;

/// The names of the one lock, the first one first.
pub(super) const NAMES: [u8; 2] = [0, 1];

/// A file as its record names it. The clock stands still: only the inode tells two files apart, unless a maker gives its
/// file another time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct File {
    pub(super) inode: u8,
    pub(super) time: i8,
}

/// An open file, and the holder that it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Open {
    pub(super) file: File,
    pub(super) names: Holder,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Entry {
    Lock(u8),
    Private { maker: Actor, number: u8 },
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Record {
    pub(super) holder: Holder,
    pub(super) names: Vec<u8>,
    /// The maker of the private names.
    pub(super) maker: Actor,
}

/// What the names of a lock lead to by right, as the answers to requests say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Right {
    pub(super) holder: Option<Holder>,
    /// The names that it has and that no foreign program has removed.
    pub(super) names: BTreeSet<u8>,
    /// Foreign programs have removed a name: then two can hold.
    pub(super) is_robbed: bool,
    /// The name that a foreign program has taken.
    pub(super) foreign: Option<u8>,
    pub(super) broken: Option<&'static str>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Disk {
    pub(super) links: BTreeMap<Entry, u8>,
    /// Time and holder.
    inodes: BTreeMap<u8, (i8, Holder)>,
    pub(super) records: BTreeMap<File, Record>,
    /// The links `from.`: of a receiver's file to a giver's.
    pub(super) from: BTreeMap<File, File>,
    flocks: BTreeMap<u8, Actor>,
    descriptors: BTreeSet<(Actor, u8)>,
    gate: Option<Actor>,
    pub(super) alive: BTreeSet<Holder>,
    /// The actors that make calls.
    pub(super) running: BTreeSet<Actor>,
    pub(super) right: Right,
}

/// Why two files change places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    Breaks,
    /// The name decides whose the lock is.
    Passes {
        from: Holder,
        to: Holder,
    },
    /// The name decides nothing, or goes back.
    Moves,
}

impl Disk {
    pub(super) fn at(&self, entry: Entry) -> Option<Open> {
        self.links.get(&entry).map(|inode| self.open(*inode))
    }

    fn open(&self, inode: u8) -> Open {
        let (time, names) = self.inodes[&inode];
        Open { file: File { inode, time }, names }
    }

    pub(super) fn create(&mut self, maker: Actor, entry: Entry, names: Holder) -> Open {
        let inode = (0..).find(|it| !self.inodes.contains_key(it)).unwrap();
        self.inodes.insert(inode, (0, names));
        self.links.insert(entry, inode);
        self.descriptors.insert((maker, inode));
        self.open(inode)
    }

    pub(super) fn unlink(&mut self, entry: Entry) {
        self.links.remove(&entry);
        self.clear();
    }

    /// Files without a name that nobody has open are gone, and their numbers are free.
    fn clear(&mut self) {
        let Self { links, inodes, descriptors, flocks, .. } = self;
        inodes.retain(|it, _| {
            links.values().any(|to| to == it) || descriptors.iter().any(|(_, of)| of == it)
        });
        flocks.retain(|it, _| inodes.contains_key(it));
    }

    /// The process of this actor has no descriptor any more, but of these files.
    pub(super) fn close(&mut self, actor: Actor, kept: Option<u8>) {
        self.flocks.retain(|inode, by| *by != actor || Some(*inode) == kept);
        self.descriptors.retain(|(by, inode)| *by != actor || Some(*inode) == kept);
        self.gate = self.gate.filter(|it| *it != actor);
        self.clear();
    }

    pub(super) fn ends(&mut self, holder: Holder) {
        self.alive.remove(&holder);
        if self.right.holder == Some(holder) {
            self.lose();
        }
    }

    fn lose(&mut self) {
        self.right.holder = None;
        self.right.names.clear();
    }

    /// A foreign program removes a name, whatever it leads to.
    pub(super) fn is_robbed_of(&mut self, name: u8) {
        self.unlink(Entry::Lock(name));
        self.right.names.remove(&name);
        self.right.is_robbed = true;
    }

    pub(super) fn breaks(&mut self, promise: &'static str) {
        self.right.broken.get_or_insert(promise);
    }

    /// Whether what this name leads to is the lock of a process to a reader in another pid namespace, to whom the number
    /// means nothing: by its record.
    pub(super) fn is_recorded(&self, name: u8, open: Open) -> bool {
        let record = self.records.get(&open.file);
        record.is_some_and(|it| it.holder == open.names && it.names.contains(&name))
    }

    /// The same by `flock(2)`.
    pub(super) fn is_flocked(&self, open: Open) -> bool {
        self.flocks.contains_key(&open.file.inode)
    }
}

/// What a call answered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Answer {
    Is(bool),
    Found(Option<Open>),
    Record(Option<Record>),
    Giver(Option<File>),
    From(Vec<(File, File)>),
    Entries(Vec<Entry>),
    Records(Vec<(File, Record)>),
}

/// The actor has made its call, or cannot make it now.
#[derive(Debug)]
pub(super) struct Pause;

pub(super) type Step<T = ()> = Result<T, Pause>;

/// One actor at its calls. A request is written as a function from its first call to its last: to make its next call, it
/// runs once more from the start, and the calls that were made answer as they did.
pub(super) struct Calls<'d> {
    pub(super) disk: &'d mut Disk,
    pub(super) me: Actor,
    pub(super) fault: super::Fault,
    pub(super) log: &'d mut Vec<Answer>,
    made: usize,
    /// How many further calls are made.
    left: usize,
    kept: Option<u8>,
    /// The last call, for the report.
    pub(super) last: &'static str,
}

macro_rules! calls {
    ($($answer:ident($type:ty) { $(
        $(#[$doc:meta])* $name:ident($disk:ident, $me:ident $(, $arg:ident: $of:ty)*) $work:block
    )* })*) => {$($(
        $(#[$doc])*
        pub(super) fn $name(&mut self $(, $arg: $of)*) -> Step<$type> {
            match self.call(stringify!($name), |$disk, $me| Answer::$answer($work))? {
                Answer::$answer(it) => Ok(it),
                other => panic!("another call had been made: {other:?}"),
            }
        }
    )*)*};
}

impl<'d> Calls<'d> {
    pub(super) fn new(
        disk: &'d mut Disk,
        me: Actor,
        fault: super::Fault,
        log: &'d mut Vec<Answer>,
        left: usize,
    ) -> Self {
        Self { disk, me, fault, log, made: 0, left, kept: None, last: "" }
    }

    fn call(
        &mut self,
        name: &'static str,
        work: impl FnOnce(&mut Disk, Actor) -> Answer,
    ) -> Step<Answer> {
        let made = self.made;
        self.made += 1;
        if let Some(answer) = self.log.get(made) {
            return Ok(answer.clone());
        }
        self.left = self.left.checked_sub(1).ok_or(Pause)?;
        self.last = name;
        self.log.push(work(self.disk, self.me));
        Ok(self.log[made].clone())
    }

    /// Waits until nobody else is in the gate.
    pub(super) fn enter(&mut self) -> Step {
        if self.made == self.log.len() && self.disk.gate.is_some() {
            return Err(Pause);
        }
        self.pass_the_gate().map(|_| ())
    }

    /// Whether it goes through the gate.
    pub(super) fn is_inside(&self) -> bool {
        self.disk.gate == Some(self.me)
    }

    /// This file stays open, and held, when the request is over.
    pub(super) fn keep(&mut self, file: File) {
        self.kept = Some(file.inode);
    }

    /// The request is over.
    pub(super) fn end(self) {
        self.disk.close(self.me, self.kept);
    }

    calls! {
        Is(bool) {
            pass_the_gate(disk, me) { disk.gate = Some(me); true }
            lives(disk, _me, holder: Holder) { disk.alive.contains(&holder) }
            is_running(disk, _me, actor: Actor) { disk.running.contains(&actor) }
            /// `false` also if there is no such file any more.
            flock(disk, me, file: File) {
                let is_there = disk.inodes.contains_key(&file.inode);
                disk.descriptors.extend(is_there.then_some((me, file.inode)));
                is_there && *disk.flocks.entry(file.inode).or_insert(me) == me
            }
            /// A further link to what is there.
            link(disk, _me, from: Entry, to: Entry) {
                let inode = disk.links[&from];
                let is_free = !disk.links.contains_key(&to);
                if is_free {
                    disk.links.insert(to, inode);
                }
                is_free
            }
            /// `false` if one of both is gone.
            exchange(disk, _me, private: Entry, name: u8, why: Why) {
                let both = (disk.links.get(&private).copied(), disk.links.get(&Entry::Lock(name)).copied());
                if let (Some(ours), Some(theirs)) = both {
                    disk.links.insert(private, theirs);
                    disk.links.insert(Entry::Lock(name), ours);
                    match why {
                        Why::Passes { from, to } if disk.open(theirs).names == from => {
                            disk.is_passed(ours, to);
                        }
                        Why::Passes { .. } | Why::Breaks | Why::Moves => {}
                    }
                }
                matches!(both, (Some(_), Some(_)))
            }
            remove(disk, _me, entry: Entry) { disk.unlink(entry); true }
            /// The owner's release.
            remove_own(disk, _me, name: u8, holder: Holder) {
                disk.unlink(Entry::Lock(name));
                if disk.right.holder == Some(holder) {
                    disk.lose();
                }
                true
            }
            write_record(disk, _me, file: File, record: Record) {
                let is_free = !disk.records.contains_key(&file);
                if is_free {
                    disk.records.insert(file, record);
                }
                is_free
            }
            remove_record(disk, _me, file: File) { disk.records.remove(&file); true }
            write_from(disk, _me, receivers: File, givers: File) { disk.from.insert(receivers, givers); true }
            remove_from(disk, _me, receivers: File) { disk.from.remove(&receivers); true }
            /// The answer to a LOCK. It leaves the gate.
            grant(disk, me, holder: Holder) {
                disk.close(me, None);
                disk.is_granted(holder);
                true
            }
            /// The same of a lock that nobody recorded: its file stays held.
            grant_unrecorded(disk, me, holder: Holder, file: File) {
                disk.close(me, Some(file.inode));
                disk.is_granted(holder);
                true
            }
        }
        Found(Option<Open>) {
            create(disk, me, private: Entry, holder: Holder) { Some(disk.create(me, private, holder)) }
            /// Opens and reads what the name leads to.
            find(disk, me, entry: Entry) {
                let found = disk.at(entry);
                disk.descriptors.extend(found.map(|it| (me, it.file.inode)));
                found
            }
            /// The same file with a time a second earlier.
            set_back(disk, _me, file: File) {
                disk.inodes.get_mut(&file.inode).unwrap().0 -= 1;
                Some(disk.open(file.inode))
            }
        }
        Record(Option<Record>) {
            record_of(disk, _me, file: File) { disk.records.get(&file).cloned() }
        }
        Giver(Option<File>) {
            giver_of(disk, _me, receivers: File) { disk.from.get(&receivers).copied() }
        }
        From(Vec<(File, File)>) {
            list_from(disk, _me) { disk.from.iter().map(|(to, of)| (*to, *of)).collect() }
        }
        Entries(Vec<Entry>) {
            list_private(disk, _me) {
                disk.links.keys().filter(|it| matches!(it, Entry::Private { .. })).copied().collect()
            }
        }
        Records(Vec<(File, Record)>) {
            list_records(disk, _me) { disk.records.iter().map(|(of, it)| (*of, it.clone())).collect() }
        }
    }
}

impl Disk {
    fn is_granted(&mut self, holder: Holder) {
        let is_held = self.right.holder.is_some() || self.right.foreign.is_some();
        if is_held && !self.right.is_robbed {
            self.breaks("two holders");
        }
        self.right.holder = Some(holder).filter(|it| self.alive.contains(it));
        let leads = |name: &u8| self.at(Entry::Lock(*name)).map(|it| it.names) == Some(holder);
        self.right.names = NAMES.into_iter().filter(leads).collect();
        if self.right.names.len() < NAMES.len() && !self.right.is_robbed {
            self.breaks("a lock without all its names");
        }
        if self.right.holder.is_none() {
            self.lose();
        }
    }

    /// The first name leads to the receiver's file from now on.
    fn is_passed(&mut self, receivers: u8, to: Holder) {
        self.right.holder = Some(to).filter(|it| self.alive.contains(it));
        let is_its = |name: &u8| self.links.get(&Entry::Lock(*name)) == Some(&receivers);
        self.right.names = NAMES.into_iter().filter(is_its).collect();
        if self.right.holder.is_none() {
            self.lose();
        }
    }
}
