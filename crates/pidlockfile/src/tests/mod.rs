//! Every step can fail, or its process die there, and the steps of several processes come in every order.

mod corpus;
pub(crate) mod faults;
mod order;
mod schedule;
mod step;
mod swap;
