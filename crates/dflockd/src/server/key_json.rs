//! A key with its holders and waiters as JSON. It cannot contain a token, because a [`Party`] has none. Pure.

use leases::wire::{Decimal, push_json_string};
use leases::{KeyView, Party};
use std::fmt::Write as _;
use std::net::IpAddr;

/// Appends the object of a key: its holders, the longest hold first, and its waiters in their order. `addresses` has those
/// of the holders and then those of the waiters, in the order of `view`.
pub(crate) fn push_key(out: &mut String, view: &KeyView, addresses: &[Option<IpAddr>]) {
    out.push_str("{\"key\":");
    push_json_string(out, &view.name);
    let (limit, held, waiters) = (view.limit, view.held, view.waiters);
    // Writing to a String cannot fail.
    let _ = write!(out, ",\"limit\":{limit},\"held\":{held},\"waiters\":{waiters}");
    let holders = view.holders.iter().zip(addresses).rev();
    push_list(out, ",\"holders\":[", "held_s", holders);
    let waiting = view.waiting.iter().zip(addresses.iter().skip(view.holders.len()));
    push_list(out, ",\"queue\":[", "waiting_s", waiting);
    out.push('}');
}

fn push_list<'a>(
    out: &mut String,
    head: &str,
    since: &str,
    parties: impl Iterator<Item = (&'a Party, &'a Option<IpAddr>)>,
) {
    out.push_str(head);
    for (count, (party, address)) in parties.enumerate() {
        if count > 0 {
            out.push(',');
        }
        let _ = write!(out, "{{\"connection\":{},\"address\":", party.serial);
        let _ = match address {
            Some(address) => write!(out, "\"{address}\""),
            None => write!(out, "null"),
        };
        if let Some(label) = &party.label {
            for (field, text) in [("name", &label.name), ("value", &label.value)] {
                if !text.is_empty() {
                    let _ = write!(out, ",\"{field}\":");
                    push_json_string(out, text.as_bytes());
                }
            }
        }
        if party.is_reader {
            out.push_str(",\"reader\":true");
        }
        let _ = write!(out, ",\"{since}\":{}", Decimal(party.since_micros));
        if let Some(left) = party.left_micros {
            let here = party.conn.is_some();
            let _ = write!(out, ",\"lease_left_s\":{},\"connected\":{here}", Decimal(left));
        }
        out.push('}');
    }
    out.push(']');
}
