//! A key with its holders and waiters as JSON. It cannot contain a token, because a [`Party`] has none. Pure.

use leases::wire::{Decimal, push_json_string};
use leases::{KeyView, Label, Party};
use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::Arc;

/// The clients of a [`KeyView`], in its order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clients {
    /// The holders.
    pub holders: Vec<Client>,
    /// The waiters.
    pub waiting: Vec<Client>,
}

/// A client that holds a key or waits for it. Nothing is known of one whose connection is gone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Client {
    /// The address that it is connected from; none for a Unix socket.
    pub address: Option<IpAddr>,
    /// The description that it gives of itself.
    pub label: Option<Arc<Label>>,
}

/// Appends the object of a key: its holders, the longest hold first, and its waiters in their order.
pub(crate) fn push_key(out: &mut String, view: &KeyView, clients: &Clients) {
    out.push_str("{\"key\":");
    push_json_string(out, &view.name);
    let (limit, held, waiters) = (view.limit, view.held, view.waiters);
    // Writing to a String cannot fail.
    let _ = write!(out, ",\"limit\":{limit},\"held\":{held},\"waiters\":{waiters}");
    let holders = view.holders.iter().zip(&clients.holders).rev();
    push_list(out, ",\"holders\":[", "held_s", holders);
    let waiting = view.waiting.iter().zip(&clients.waiting);
    push_list(out, ",\"queue\":[", "waiting_s", waiting);
    out.push('}');
}

fn push_list<'a>(
    out: &mut String,
    head: &str,
    since: &str,
    parties: impl Iterator<Item = (&'a Party, &'a Client)>,
) {
    out.push_str(head);
    for (count, (party, client)) in parties.enumerate() {
        if count > 0 {
            out.push(',');
        }
        let _ = write!(out, "{{\"connection\":{},\"address\":", party.serial);
        let _ = match client.address {
            Some(address) => write!(out, "\"{address}\""),
            None => write!(out, "null"),
        };
        if let Some(label) = &client.label {
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
