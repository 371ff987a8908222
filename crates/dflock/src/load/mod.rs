//! A load generator: many connections, one thread, and a check that the locks really excluded.
//!
//! It drives any server that speaks the protocol and never needs anything of ours on the other
//! side. It must stay cheap, so that it measures the server's core and not its own: no runtime, no
//! allocation per request, one read and one write for whatever is ready.

mod connection;
mod histogram;
mod ledger;
mod plan;
mod report;
mod run;
mod sys;

pub use histogram::Histogram;
pub use plan::{Keys, Length, MAX_CONNECTIONS, MAX_DEPTH, MAX_PREFIX_BYTES, Plan, PlanError};
pub use report::{Refusals, Report};
pub use run::{LoadError, run};
