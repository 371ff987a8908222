//! The client side: where servers are, which of them a key lives on.

mod address;

pub use address::{AddressError, DEFAULT_PORT, ServerAddress};
