//! Buffers for replies: the bytes of a connection are always in a buffer of its own; only spare memory is
//! shared between the connections of a thread. Pure.

/// Replies are collected up to about this much before they are sent.
pub(super) const REPLY_BYTES: usize = 16 * 1024;

/// The bytes that a connection has to send. No other connection can write or read them.
#[derive(Debug, Default)]
pub(super) struct Outbox(Vec<u8>);

/// Memory for an [`Outbox`] while its connection works. Nothing is ever in it: it gives and takes
/// memory, never bytes, so an idle connection pays for no buffer and no connection can leave its
/// replies to the next one.
#[derive(Debug)]
pub(super) struct Room(Vec<u8>);

impl Room {
    pub(super) fn new() -> Self {
        Self(Vec::with_capacity(REPLY_BYTES))
    }

    /// Lends the memory to a connection that works and has nothing unsent.
    #[inline]
    pub(super) fn lend(&mut self, outbox: &mut Outbox) {
        if outbox.0.is_empty() && self.0.capacity() > 0 {
            outbox.0 = std::mem::take(&mut self.0);
        }
    }

    /// Takes the memory back from a connection that becomes idle; its unsent bytes move into memory of its own.
    #[inline]
    pub(super) fn take_back(&mut self, outbox: &mut Outbox) {
        let is_lent = self.0.capacity() == 0;
        match (outbox.0.is_empty(), is_lent) {
            (true, true) => std::mem::swap(&mut self.0, &mut outbox.0),
            (true, false) => outbox.0 = Vec::new(),
            (false, true) => {
                let unsent = outbox.0.as_slice().to_vec();
                self.0 = std::mem::replace(&mut outbox.0, unsent);
                self.0.clear();
            }
            (false, false) => {}
        }
    }
}

impl Outbox {
    /// The buffer for the next reply.
    pub(super) const fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }

    pub(super) fn push(&mut self, reply: &[u8]) {
        self.0.extend_from_slice(reply);
    }

    #[inline]
    pub(super) fn unsent(&self) -> &[u8] {
        &self.0
    }

    /// Removes bytes that were sent.
    pub(super) fn sent(&mut self, count: usize) {
        if count >= self.0.len() {
            self.0.clear();
        } else {
            self.0.drain(..count);
        }
    }

    /// Replaces the unsent replies, which are not true any more.
    pub(super) fn replace(&mut self, reply: &[u8]) {
        self.0.clear();
        self.push(reply);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The next connection finds no bytes that an earlier one left unsent.
    #[test]
    fn bytes_stay_with_their_connection() {
        let mut room = Room::new();
        let (mut first, mut second) = (Outbox::default(), Outbox::default());
        room.lend(&mut first);
        first.push(b"of the first");
        first.sent(3);
        room.take_back(&mut first);
        room.lend(&mut second);
        assert!(second.unsent().is_empty() && second.bytes().capacity() >= REPLY_BYTES);
        second.push(b"second");
        second.sent(6);
        room.take_back(&mut second);
        assert_eq!(second.bytes().capacity(), 0, "one that rests costs nothing");
        // It continues with its own memory.
        room.lend(&mut first);
        assert_eq!(first.unsent(), b"the first");
        assert!(first.bytes().capacity() < 100);
        first.replace(b"no");
        room.take_back(&mut first);
        assert_eq!(first.unsent(), b"no");
        first.sent(2);
        room.take_back(&mut first);
        assert_eq!(first.bytes().capacity(), 0);
        // The room has its memory back.
        assert!(room.0.is_empty() && room.0.capacity() >= REPLY_BYTES);
    }
}
