//! Delays for clients that guess secrets.

use crate::server::access::AuthToken;
use leases::Moment;

/// The time between two answers to wrong secrets: a hundred answers a second, for all clients together.
const STEP_MICROS: u64 = 10_000;
/// The longest delay of such an answer.
const MOST_MICROS: u64 = 20_000_000;

/// When the last wrong secret is answered.
#[derive(Default)]
pub(in crate::server) struct Penalties(Moment);

impl Penalties {
    /// The time of the answer to a client that shows a wrong secret now. Such answers are delayed and given one after
    /// another, however many clients try at the same time.
    pub(in crate::server) fn next(&mut self, now: Moment) -> Moment {
        let after_last = self.0.after_micros(STEP_MICROS);
        let most = now.after_micros(MOST_MICROS);
        self.0 = now.after_micros(AuthToken::COOL_DOWN_MICROS).max(after_last).min(most);
        self.0
    }
}
