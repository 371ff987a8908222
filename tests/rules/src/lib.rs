//! The rules of the source tree: what a pure file may name, how long files and functions are, which
//! files and crates use each other, that texts name only what exists, and why tests are left out.
//!
//! [`House`] is the tree as values; each rule is a function from it to the places that break the
//! rule. `tests/house/` holds the rules against the tree itself, and its file `planted.rs` sees
//! each rule catch what it is for. `cargo run -p rules` prints the tree with the files' heads.

mod api;
mod circles;
mod crates;
mod house;
mod needs;
mod paths;
mod purity;
mod readmes;
mod sizes;
mod sleepers;
mod twins;
mod words;

pub use api::{LIBRARIES, api, foreign, list_of, unlisted};
pub use circles::circles;
pub use crates::{Crate, crates_use_only_what_they_may};
pub use house::{Breach, House, Source, root};
pub use needs::needs;
pub use purity::purity;
pub use readmes::readmes;
pub use sizes::{heads, sizes};
pub use sleepers::sleepers;
pub use twins::{senses, twins};
pub use words::{Text, promises, words};
