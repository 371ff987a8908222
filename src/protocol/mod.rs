//! The Lock File Protocol: lines, commands, replies and the order of a session.
//!
//! Everything here is pure: bytes and answers in, bytes and questions out. It opens, reads,
//! writes and asks nothing.

pub mod command;
pub mod line;
pub mod reply;
pub mod session;
pub mod status;
