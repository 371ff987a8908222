//! What must hold for any bytes: used by the fuzz target and by ordinary tests.

/// Any state files can be read, and nothing impossible comes out of them.
pub(crate) fn state(bytes: &[u8]) {
    dflockd::server::check_state(bytes);
}
