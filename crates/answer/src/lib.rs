//! What the commands of this workspace answer: JSON, and standard output whose loss does not go
//! unnoticed. Never decides what is answered.

mod json;
mod output;

pub use json::Value;
pub use output::print;
