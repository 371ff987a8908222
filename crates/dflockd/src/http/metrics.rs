//! The metrics in Prometheus' text format.

use crate::server::{EtcdNumbers, Numbers};
use leases::wire::refusal_status;
use leases::{Histogram, Refusal, WAIT_BOUNDS_MICROS};
use std::fmt::{Display, Write as _};

/// The content type of version 0.0.4 of the format.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The counters of HTTP itself.
#[derive(Clone, Debug, Default)]
pub(super) struct HttpNumbers {
    /// Connections now.
    pub(super) connections: usize,
    /// Connections accepted so far.
    pub(super) accepted: u64,
    /// Connections that were closed to make room.
    pub(super) pushed_out: u64,
    /// Answers by status.
    pub(super) answers: Vec<(u16, u64)>,
}

/// All metrics as text.
pub(super) fn text(numbers: &Numbers, http: &HttpNumbers) -> String {
    let mut page = Page(String::new());
    page.now(numbers);
    page.locks(numbers);
    page.connections(numbers);
    if let Some(etcd) = &numbers.etcd {
        page.etcd(etcd);
    }
    page.http(http);
    page.0
}

struct Page(String);

impl Page {
    // Writing to a String cannot fail.
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = write!(self.0, "# HELP dflockd_{name} {help}\n# TYPE dflockd_{name} {kind}\n");
    }

    /// `labels` is in the form of the text, with braces. The values are our own and need no quoting.
    fn sample(&mut self, name: &str, labels: &str, value: impl Display) {
        let _ = writeln!(self.0, "dflockd_{name}{labels} {value}");
    }

    fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.head(name, "gauge", help);
        self.sample(name, "", value);
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.head(name, "counter", help);
        self.sample(name, "", value);
    }

    fn now(&mut self, numbers: &Numbers) {
        self.head("build_info", "gauge", "The version, as a label.");
        let version = concat!("{version=\"", env!("CARGO_PKG_VERSION"), "\"}");
        self.sample("build_info", version, 1);
        let uptime = numbers.uptime.as_secs_f64();
        self.gauge("uptime_seconds", "Seconds since the start.", uptime);
        let draining = u8::from(numbers.draining);
        self.gauge("draining", "1 after the signal to end.", draining);
        self.gauge("ready", "1 until the signal to end.", 1 - draining);
        let census = &numbers.census;
        self.head(
            "keys",
            "gauge",
            "Keys in the table; an idle key has neither holders nor waiters.",
        );
        for (kind, state, count) in [
            ("lock", "in_use", census.locks),
            ("semaphore", "in_use", census.semaphores),
            ("lock", "idle", census.idle_locks),
            ("semaphore", "idle", census.idle_semaphores),
        ] {
            self.sample("keys", &format!("{{kind=\"{kind}\",state=\"{state}\"}}"), count);
        }
        self.gauge(
            "locks_held",
            "Holders of locks; each reader of a shared lock is one.",
            census.lock_holders,
        );
        self.gauge("lock_readers", "Holders that share a lock.", census.lock_readers);
        self.gauge("lock_waiters", "Places in queues of locks.", census.lock_waiters);
        self.gauge(
            "semaphore_holders",
            "Slots of semaphores that are held.",
            census.semaphore_holders,
        );
        self.gauge(
            "semaphore_waiters",
            "Places in queues of semaphores.",
            census.semaphore_waiters,
        );
    }

    fn locks(&mut self, numbers: &Numbers) {
        let engine = &numbers.engine;
        self.counter("grants_total", "Slots granted.", engine.grants);
        self.counter("renewals_total", "Leases renewed by token.", engine.renewals);
        self.head("releases_total", "counter", "Slots released, by cause.");
        self.sample("releases_total", "{cause=\"token\"}", engine.releases);
        self.sample("releases_total", "{cause=\"disconnect\"}", engine.disconnect_releases);
        self.counter(
            "log_lines_dropped_total",
            "Log lines dropped: queue full, or rate limit.",
            crate::log::dropped(),
        );
        self.counter("lease_expiries_total", "Leases that ran out.", engine.expiries);
        self.counter(
            "wait_timeouts_total",
            "Requests that timed out without a grant.",
            engine.timeouts,
        );
        self.head("refusals_total", "counter", "Requests refused, by status.");
        for refusal in Refusal::ALL {
            // Refusals with the same word on the wire have different labels here.
            let cause = match refusal {
                Refusal::NoSpace => ",cause=\"space\"",
                Refusal::Unavailable => ",cause=\"store\"",
                Refusal::MaxLocks
                | Refusal::MaxWaiters
                | Refusal::LimitMismatch
                | Refusal::NotEnqueued
                | Refusal::AlreadyEnqueued
                | Refusal::LeaseExpired
                | Refusal::NotHeld
                | Refusal::Draining => "",
            };
            let labels = format!("{{status=\"{}\"{cause}}}", refusal_status(refusal));
            self.sample("refusals_total", &labels, engine.refused(refusal));
        }
        self.waits(&engine.waits);
    }

    fn waits(&mut self, waits: &Histogram) {
        let name = "grant_wait_seconds";
        self.head(name, "histogram", "From request to grant, immediate ones included.");
        let bounds = WAIT_BOUNDS_MICROS.iter().map(|&bound| seconds(bound).to_string());
        let bounds = bounds.chain(["+Inf".to_owned()]);
        let mut total = 0;
        for (bound, count) in bounds.zip(waits.buckets) {
            total += count;
            self.sample(&format!("{name}_bucket"), &format!("{{le=\"{bound}\"}}"), total);
        }
        self.sample(&format!("{name}_sum"), "", seconds(waits.sum_micros));
        self.sample(&format!("{name}_count"), "", waits.count);
    }

    fn connections(&mut self, numbers: &Numbers) {
        let tallies = &numbers.connections;
        self.gauge("connections", "Connections of lock clients.", numbers.open_connections);
        self.gauge("watchers", "Clients that wait for changes of keys.", numbers.watchers);
        self.counter("connections_accepted_total", "Connections accepted.", tallies.accepted);
        self.counter(
            "connections_turned_away_total",
            "Connections closed at once because of a cap.",
            tallies.turned_away,
        );
        self.head(
            "protocol_errors_total",
            "counter",
            "Frames refused and connections ended, by the code in the log.",
        );
        for (code, count) in tallies.faults.iter().enumerate().skip(3) {
            self.sample("protocol_errors_total", &format!("{{code=\"{code}\"}}"), count);
        }
        self.counter(
            "auth_failures_total",
            "Lock clients that did not show the secret.",
            tallies.auth_failures,
        );
        self.counter(
            "tls_failures_total",
            "TLS handshakes of lock clients that failed.",
            tallies.tls_failures,
        );
        self.counter(
            "write_timeouts_total",
            "Connections dropped because they did not read.",
            tallies.write_timeouts,
        );
        self.counter(
            "gone_while_waiting_total",
            "Waiting connections whose peer went away.",
            tallies.gone_while_waiting,
        );
    }

    fn etcd(&mut self, etcd: &EtcdNumbers) {
        let session = u8::from(etcd.session);
        self.gauge("etcd_session", "1 while this server is registered in etcd.", session);
        let lost = "Registrations in etcd that were lost.";
        self.counter("etcd_sessions_lost_total", lost, etcd.sessions_lost);
        let servers = "Servers registered under this prefix, this one included.";
        self.gauge("etcd_servers", servers, etcd.front_ends);
        self.counter("etcd_calls_total", "Calls to etcd.", etcd.calls);
        let transactions = "Transactions in etcd; one call takes several.";
        self.counter("etcd_transactions_total", transactions, etcd.transactions);
        let unclear = "Calls to etcd with an unknown outcome.";
        self.counter("etcd_unclear_total", unclear, etcd.unclear);
        let full = "1 while etcd has no space and nothing new is granted.";
        self.gauge("etcd_no_space", full, u8::from(etcd.full));
        let tombstones = "Requests with an unknown outcome that were made void.";
        self.counter("etcd_tombstones_total", tombstones, etcd.tombstones);
        self.gauge("etcd_mirrors", "Contended keys that are watched.", etcd.mirrors);
    }

    fn http(&mut self, http: &HttpNumbers) {
        self.gauge("http_connections", "Connections of the HTTP side.", http.connections);
        self.counter(
            "http_connections_accepted_total",
            "Connections of the HTTP side accepted.",
            http.accepted,
        );
        self.counter(
            "http_connections_pushed_out_total",
            "Connections of the HTTP side closed to make room for others.",
            http.pushed_out,
        );
        self.head("http_responses_total", "counter", "Answers of the HTTP side, by status.");
        for (status, count) in &http.answers {
            self.sample("http_responses_total", &format!("{{code=\"{status}\"}}"), count);
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a sum of 2^53 microseconds is 285 years")]
fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::Tallies;
    use leases::{Census, Counters};
    use rstest::rstest;
    use std::time::Duration;

    fn sample() -> String {
        let mut waits = Histogram::default();
        for micros in [0, 100, 101, 70_000_000] {
            waits.record(micros);
        }
        let census = Census {
            locks: 1,
            semaphores: 2,
            idle_locks: 3,
            idle_semaphores: 4,
            lock_holders: 5,
            lock_readers: 9,
            semaphore_holders: 6,
            lock_waiters: 7,
            semaphore_waiters: 8,
        };
        let mut faults = [0; 14];
        faults[4] = 44;
        let numbers = Numbers {
            engine: Counters {
                grants: 11,
                releases: 12,
                disconnect_releases: 13,
                renewals: 14,
                expiries: 15,
                timeouts: 16,
                refusals: [21, 22, 23, 24, 25, 26, 27, 28, 29, 30],
                waits,
            },
            connections: Tallies {
                accepted: 31,
                turned_away: 32,
                faults,
                auth_failures: 33,
                tls_failures: 37,
                write_timeouts: 34,
                gone_while_waiting: 35,
            },
            open_connections: 36,
            watchers: 37,
            census,
            etcd: Some(EtcdNumbers {
                session: true,
                sessions_lost: 61,
                front_ends: 62,
                calls: 63,
                transactions: 67,
                unclear: 64,
                full: true,
                tombstones: 65,
                mirrors: 66,
            }),
            draining: true,
            uptime: Duration::from_millis(1500),
        };
        let answers = vec![(200, 51), (404, 52)];
        text(&numbers, &HttpNumbers { connections: 53, accepted: 54, pushed_out: 55, answers })
    }

    #[rstest]
    #[case("dflockd_uptime_seconds 1.5")]
    #[case("dflockd_draining 1")]
    #[case("dflockd_ready 0")]
    #[case("dflockd_etcd_session 1")]
    #[case("dflockd_etcd_sessions_lost_total 61")]
    #[case("dflockd_etcd_servers 62")]
    #[case("dflockd_etcd_calls_total 63")]
    #[case("dflockd_etcd_transactions_total 67")]
    #[case("dflockd_etcd_unclear_total 64")]
    #[case("dflockd_etcd_no_space 1")]
    #[case("dflockd_etcd_tombstones_total 65")]
    #[case("dflockd_etcd_mirrors 66")]
    #[case("dflockd_keys{kind=\"lock\",state=\"in_use\"} 1")]
    #[case("dflockd_keys{kind=\"semaphore\",state=\"in_use\"} 2")]
    #[case("dflockd_keys{kind=\"lock\",state=\"idle\"} 3")]
    #[case("dflockd_keys{kind=\"semaphore\",state=\"idle\"} 4")]
    #[case("dflockd_locks_held 5")]
    #[case("dflockd_lock_readers 9")]
    #[case("dflockd_semaphore_holders 6")]
    #[case("dflockd_lock_waiters 7")]
    #[case("dflockd_semaphore_waiters 8")]
    #[case("dflockd_grants_total 11")]
    #[case("dflockd_releases_total{cause=\"token\"} 12")]
    #[case("dflockd_releases_total{cause=\"disconnect\"} 13")]
    #[case("dflockd_renewals_total 14")]
    #[case("dflockd_lease_expiries_total 15")]
    #[case("dflockd_wait_timeouts_total 16")]
    #[case("dflockd_refusals_total{status=\"error_max_locks\"} 21")]
    #[case("dflockd_refusals_total{status=\"error_max_waiters\"} 22")]
    #[case("dflockd_refusals_total{status=\"error_limit_mismatch\"} 23")]
    #[case("dflockd_refusals_total{status=\"error_not_enqueued\"} 24")]
    #[case("dflockd_refusals_total{status=\"error_already_enqueued\"} 25")]
    #[case("dflockd_refusals_total{status=\"error_lease_expired\"} 26")]
    #[case("dflockd_refusals_total{status=\"error\"} 27")]
    #[case("dflockd_refusals_total{status=\"error_draining\"} 28")]
    #[case("dflockd_refusals_total{status=\"error\",cause=\"space\"} 29")]
    #[case("dflockd_refusals_total{status=\"error_draining\",cause=\"store\"} 30")]
    #[case("dflockd_grant_wait_seconds_bucket{le=\"0.0001\"} 2")]
    #[case("dflockd_grant_wait_seconds_bucket{le=\"0.001\"} 3")]
    #[case("dflockd_grant_wait_seconds_bucket{le=\"60\"} 3")]
    #[case("dflockd_grant_wait_seconds_bucket{le=\"+Inf\"} 4")]
    #[case("dflockd_grant_wait_seconds_sum 70.000201")]
    #[case("dflockd_grant_wait_seconds_count 4")]
    #[case("dflockd_connections 36")]
    #[case("dflockd_connections_accepted_total 31")]
    #[case("dflockd_connections_turned_away_total 32")]
    #[case("dflockd_protocol_errors_total{code=\"4\"} 44")]
    #[case("dflockd_protocol_errors_total{code=\"13\"} 0")]
    #[case("dflockd_auth_failures_total 33")]
    #[case("dflockd_write_timeouts_total 34")]
    #[case("dflockd_gone_while_waiting_total 35")]
    #[case("dflockd_http_connections 53")]
    #[case("dflockd_http_connections_accepted_total 54")]
    #[case("dflockd_http_connections_pushed_out_total 55")]
    #[case("dflockd_http_responses_total{code=\"200\"} 51")]
    #[case("dflockd_http_responses_total{code=\"404\"} 52")]
    fn each_number_has_its_line(#[case] line: &str) {
        let text = sample();
        assert_eq!(text.lines().filter(|l| *l == line).count(), 1, "{line} in\n{text}");
    }

    #[test]
    fn each_name_is_explained_once() {
        let text = sample();
        let helps: Vec<&str> = text.lines().filter(|l| l.starts_with("# HELP ")).collect();
        let types = text.lines().filter(|l| l.starts_with("# TYPE ")).count();
        assert_eq!(helps.len(), types);
        let mut names: Vec<_> = helps.iter().map(|l| l.split(' ').nth(2).unwrap()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), helps.len());
        assert!(text.ends_with('\n'));
    }
}
