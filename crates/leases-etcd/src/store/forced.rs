//! Forced release: an administrator takes away all holds of a key.

use super::Inner;
use super::calls::BUDGET_MICROS;
use super::keys::{Share, Span, Stage, Ticket, read_limit};
use super::mirror;
use super::rpc::{KeyValue, RangeRequest};
use super::seats::Phase;
use super::txn::{Changed, Guard};
use leases::{Effect, Moment, Refusal, Unreachable};
use std::sync::Arc;

impl Inner {
    /// Takes away all holds of a key, for an administrator; returns how many there were.
    pub(super) async fn take_away(self: Arc<Self>, key: Arc<[u8]>) -> Result<usize, Unreachable> {
        let until = self.now().after_micros(BUDGET_MICROS);
        let holds = self.holds_of(&key, until).await.map_err(|_| Unreachable)?;
        let mut count = 0;
        for (nonce, create) in holds {
            // Identified by the create revision, so a renewal meanwhile does not save the hold.
            let end = self.end(&key, nonce, Guard::Create(create), until).await;
            if matches!(end.map_err(|_| Unreachable)?, Changed::Done(_) | Changed::Vanished) {
                count += 1;
                self.taken_away(nonce);
            }
        }
        self.stir();
        Ok(count)
    }

    /// The nonce and create revision of each hold of a key, of all clients.
    async fn holds_of(&self, key: &[u8], until: Moment) -> Result<Vec<(u64, i64)>, Refusal> {
        let request = RangeRequest { key: self.names.limit(key), ..RangeRequest::default() };
        let answer = self.range(request, until).await?;
        let Some(limit) = answer.kvs.first().and_then(|kv| read_limit(&kv.value)) else {
            return Ok(Vec::new());
        };
        let Span { from, to } = self.names.tickets(key);
        let request = RangeRequest { key: from, range_end: to, ..RangeRequest::default() };
        let mut tickets = self.range(request, until).await?.kvs;
        tickets.sort_unstable_by_key(|kv| kv.create_revision);
        tickets.truncate(mirror::holders(limit, tickets.iter().map(|kv| Share::read(&kv.value))));
        // A ticket that is still marked as waiting is a hold if the one before it has gone.
        let is_held =
            |kv: &KeyValue| Ticket::read(&kv.value).is_some_and(|it| it.stage == Stage::Held);
        let hold = |kv: &KeyValue| Some((self.names.read_ticket(&kv.key)?.1, kv.create_revision));
        Ok(tickets.iter().filter(|kv| is_held(kv)).filter_map(hold).collect())
    }

    /// Removes a hold that was taken away from our tables.
    fn taken_away(self: &Arc<Self>, nonce: u64) {
        let mut state = self.state();
        state.changes += 1;
        state.counters.releases += 1;
        if let Some(mine) = state.drop_ticket(nonce) {
            let standing = mine.ticket.standing;
            for party in [standing.owner, standing.renewer].into_iter().flatten() {
                if let Some(conn) = state.seats.of(party) {
                    state.effects.push_back(Effect::Taken(conn, mine.grant().token));
                }
            }
            state.note_left(&mine.key, self.now());
            state.lose_record(mine.conn, &mine.key, nonce, Phase::Lost);
            self.take_turns(&mut state, &mine.key);
        }
    }
}
