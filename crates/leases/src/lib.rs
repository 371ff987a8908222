//! Lease locks and semaphores as one state machine without input or output: (now, request) → answer and
//! effects. [`wire`] has the text of the protocol, both ways, [`journal`] the boundary to the record of holds.
//!
//! What to call, and in which order:
//! 1. [`Engine::connect`] for a connection, before its first request.
//! 2. [`Engine::ask`] for each request. After [`Verdict::Later`], ask nothing more for that connection until its
//!    answer has come as an [`Effect::Answer`], or [`Engine::cancel`] has withdrawn the request.
//! 3. [`Engine::advance`] when [`Engine::next_deadline`] has come.
//! 4. [`Engine::disconnect`] when the connection has ended; the id is free then.
//!
//! After each of these, take the effects ([`Engine::take_effect`]).
//!
//! It never reads a clock, a socket or a random source: `now` and the [`Mint`] are given.
//! The same calls give the same answers. Time must not run backwards between calls.
//!
//! ```
//! use leases::{Answer, Caps, Claim, Engine, Key, Mint, Moment, Request, Seconds, Token, Verdict};
//!
//! struct Numbers(u64);
//! impl Mint for Numbers {
//!     fn token(&mut self) -> Token {
//!         self.0 += 1;
//!         Token::new(self.0, 0) // The second half must be random, so that nobody can guess a token.
//!     }
//! }
//!
//! let mut engine = Engine::new(Caps::DEFAULT, Numbers(0), std::hash::RandomState::new());
//! let (one, other) = (engine.connect(1), engine.connect(2));
//! let key = Key::new(b"nightly").unwrap();
//! let take = Request::Acquire { key, claim: Claim::LOCK, timeout: Seconds::from_u16(10), ttl: None };
//! let now = Moment::from_micros(0);
//! let Verdict::Now(Answer::Granted(grant)) = engine.ask(now, one, take) else { panic!() };
//! assert_eq!(engine.ask(now, other, take), Verdict::Later); // It waits for its turn.
//! engine.ask(now, one, Request::Release { key, token: Some(grant.token) });
//! assert!(engine.take_effect().is_some()); // The other connection has the lock now.
//! ```

#![warn(clippy::exhaustive_enums, clippy::exhaustive_structs)]

mod engine;
pub mod journal;
pub mod wire;

/// The README's examples are tests, too.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use engine::{
    Answer, AutoRelease, Caps, Census, Claim, ConnId, Counters, Cursor, Effect, Engine, Forced,
    Grant, Histogram, Key, KeyLine, KeyView, Keys, Label, LeaseStart, Limit, MAX_KEY_BYTES,
    MAX_KEYS, MAX_SECONDS, Mint, Moment, Party, Population, Progress, Refusal, Request, Seconds,
    Sight, TOKEN_DIGITS, Token, Ttl, Verdict, WAIT_BOUNDS_MICROS, read_hex,
};
