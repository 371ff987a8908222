//! The metrics in Prometheus' text format.

use crate::server::{Numbers, Tallies};
use leases::wire::refusal_status;
use leases::{Census, Counters, Histogram, Refusal, WAIT_BOUNDS_MICROS};
use std::fmt::Display;

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

/// Appends metrics: kind, name, what it says, and its samples.
macro_rules! push {
    ($text:ident: $($kind:ident $name:ident $help:literal $samples:expr;)*) => {
        $(push(&mut $text, [stringify!($kind), stringify!($name), $help], $samples);)*
    };
}

/// All metrics as text. One without a value is left out.
pub(super) fn text(numbers: &Numbers, http: &HttpNumbers) -> String {
    let Numbers { engine, census, connections: tallies, etcd, .. } = numbers;
    let Census { locks, semaphores, .. } = census;
    let version = label("version", env!("CARGO_PKG_VERSION"));
    let answers = http.answers.iter().map(|(status, count)| (label("code", status), count));
    let mut text = String::new();
    push! { text:
        gauge build_info "The version, as a label." [(version, 1)];
        gauge uptime_seconds "Seconds since the start." one(numbers.uptime.as_secs_f64());
        gauge draining "1 after the signal to end." one(u8::from(numbers.draining));
        gauge ready "1 until the signal to end." one(u8::from(!numbers.draining));
        gauge keys "Keys in the table; an idle key has neither holders nor waiters." keys(census);
        gauge locks_held "Holders of locks; each reader of a shared lock is one." one(locks.holders);
        gauge lock_readers "Holders that share a lock." one(census.lock_readers);
        gauge lock_waiters "Places in queues of locks." one(locks.waiters);
        gauge semaphore_holders "Slots of semaphores that are held." one(semaphores.holders);
        gauge semaphore_waiters "Places in queues of semaphores." one(semaphores.waiters);
        counter grants_total "Slots granted." one(engine.grants);
        counter renewals_total "Leases renewed by token." one(engine.renewals);
        counter releases_total "Slots released, by cause." releases(engine);
        counter log_lines_dropped_total "Log lines dropped: queue full, or rate limit." one(crate::log::dropped());
        counter lease_expiries_total "Leases that ran out." one(engine.expiries);
        counter wait_timeouts_total "Requests that timed out without a grant." one(engine.timeouts);
        counter refusals_total "Requests refused, by status." refusals(engine);
        histogram grant_wait_seconds "From request to grant, immediate ones included." waits(&engine.waits);
        gauge connections "Connections of lock clients." one(numbers.open_connections);
        gauge http_sessions "Sessions of HTTP clients, which are among the connections." one(numbers.sessions);
        gauge watchers "Clients that wait for changes of keys." one(numbers.watchers);
        counter connections_accepted_total "Connections accepted." one(tallies.accepted);
        counter connections_turned_away_total "Connections closed at once because of a cap." one(tallies.turned_away);
        counter protocol_errors_total "Frames refused and connections ended, by the code in the log." faults(tallies);
        counter auth_failures_total "Clients of both ports that did not show the secret." one(tallies.auth_failures);
        counter tls_failures_total "TLS handshakes of lock clients that failed." one(tallies.tls_failures);
        counter write_timeouts_total "Connections dropped because they did not read." one(tallies.write_timeouts);
        counter gone_while_waiting_total "Waiting connections whose peer went away." one(tallies.gone_while_waiting);
        gauge etcd_session "1 while etcd answers this server." etcd.map(|it| ("", u8::from(it.session)));
        gauge etcd_leader "1 while this server leads; the others pass their clients on to it." etcd.map(|it| ("", u8::from(it.leads)));
        counter etcd_calls_total "Calls to etcd." etcd.map(|it| ("", it.calls));
        counter etcd_unclear_total "Calls to etcd that did not get a clear answer." etcd.map(|it| ("", it.unclear));
        gauge etcd_no_space "1 while etcd has no space and nothing new is granted." etcd.map(|it| ("", u8::from(it.full)));
        gauge http_connections "Connections of the HTTP side." one(http.connections);
        counter http_connections_accepted_total "Connections of the HTTP side accepted." one(http.accepted);
        counter http_connections_pushed_out_total "Connections of the HTTP side closed to make room for others." one(http.pushed_out);
        counter http_responses_total "Answers of the HTTP side, by status." answers;
    }
    text
}

/// A sample is what follows the name, and a value.
fn push<L: Display, V: Display>(
    text: &mut String,
    [kind, name, help]: [&str; 3],
    samples: impl IntoIterator<Item = (L, V)>,
) {
    let mut head = format!("# HELP dflockd_{name} {help}\n# TYPE dflockd_{name} {kind}\n");
    for (labels, value) in samples {
        head.push_str(&format!("dflockd_{name}{labels} {value}\n"));
        text.push_str(&std::mem::take(&mut head));
    }
}

fn one<V>(value: V) -> [(&'static str, V); 1] {
    [("", value)]
}

/// The values of labels are our own and need no quoting.
fn label(name: &str, value: impl Display) -> String {
    format!("{{{name}=\"{value}\"}}")
}

fn keys(census: &Census) -> [(&'static str, usize); 4] {
    [
        ("{kind=\"lock\",state=\"in_use\"}", census.locks.in_use),
        ("{kind=\"semaphore\",state=\"in_use\"}", census.semaphores.in_use),
        ("{kind=\"lock\",state=\"idle\"}", census.locks.idle),
        ("{kind=\"semaphore\",state=\"idle\"}", census.semaphores.idle),
    ]
}

fn releases(engine: &Counters) -> [(String, u64); 2] {
    [("token", engine.releases), ("disconnect", engine.disconnect_releases)]
        .map(|(cause, count)| (label("cause", cause), count))
}

fn refusals(engine: &Counters) -> impl Iterator<Item = (String, u64)> {
    Refusal::ALL.into_iter().map(|refusal| {
        // Two refusals have the same word in the protocol; a label distinguishes them.
        let cause = if refusal == Refusal::NoSpace { ",cause=\"space\"" } else { "" };
        let labels = format!("{{status=\"{}\"{cause}}}", refusal_status(refusal));
        (labels, engine.refused(refusal))
    })
}

fn faults(tallies: &Tallies) -> impl Iterator<Item = (String, u64)> {
    tallies.faults.into_iter().enumerate().skip(3).map(|(code, count)| (label("code", code), count))
}

fn waits(waits: &Histogram) -> Vec<(String, f64)> {
    let bounds = WAIT_BOUNDS_MICROS.iter().map(|&bound| seconds(bound).to_string());
    let mut total = 0;
    let cumulated = waits.buckets.iter().map(|count| {
        total += count;
        total as f64
    });
    let buckets = bounds.chain(["+Inf".to_owned()]).map(|bound| label("le", bound));
    let mut samples: Vec<_> =
        buckets.map(|labels| format!("_bucket{labels}")).zip(cumulated).collect();
    samples.push(("_sum".to_owned(), seconds(waits.sum_micros)));
    samples.push(("_count".to_owned(), waits.count as f64));
    samples
}

/// Exact up to 285 years.
fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;
    use leases::Population;
    use leases_etcd::EtcdNumbers;
    use rstest::rstest;
    use std::time::Duration;

    fn sample() -> String {
        let mut waits = Histogram::default();
        for micros in [0, 100, 101, 70_000_000] {
            waits.record(micros);
        }
        let census = Census {
            locks: Population { in_use: 1, idle: 3, holders: 5, waiters: 7 },
            semaphores: Population { in_use: 2, idle: 4, holders: 6, waiters: 8 },
            lock_readers: 9,
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
                refusals: [21, 22, 23, 24, 25, 26, 27, 28, 29],
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
            sessions: 38,
            watchers: 37,
            census,
            etcd: Some(EtcdNumbers {
                session: true,
                leads: true,
                calls: 63,
                unclear: 64,
                full: true,
            }),
            draining: true,
            uptime: Duration::from_millis(1500),
        };
        let answers = vec![(200, 51), (404, 52)];
        text(&numbers, &HttpNumbers { connections: 53, accepted: 54, pushed_out: 55, answers })
    }

    /// `metrics_count_what_happened` shows the other numbers.
    #[rstest]
    #[case("dflockd_uptime_seconds 1.5")]
    #[case("dflockd_etcd_session 1")]
    #[case("dflockd_etcd_leader 1")]
    #[case("dflockd_etcd_calls_total 63")]
    #[case("dflockd_etcd_unclear_total 64")]
    #[case("dflockd_etcd_no_space 1")]
    #[case("dflockd_lock_readers 9")]
    #[case("dflockd_refusals_total{status=\"error_already_enqueued\"} 25")]
    #[case("dflockd_refusals_total{status=\"error_lease_expired\"} 26")]
    #[case("dflockd_refusals_total{status=\"error_draining\"} 28")]
    #[case("dflockd_refusals_total{status=\"error\",cause=\"space\"} 29")]
    #[case("dflockd_grant_wait_seconds_bucket{le=\"0.0001\"} 2")]
    #[case("dflockd_grant_wait_seconds_bucket{le=\"0.001\"} 3")]
    #[case("dflockd_grant_wait_seconds_bucket{le=\"60\"} 3")]
    #[case("dflockd_grant_wait_seconds_bucket{le=\"+Inf\"} 4")]
    #[case("dflockd_grant_wait_seconds_sum 70.000201")]
    #[case("dflockd_connections_accepted_total 31")]
    #[case("dflockd_connections_turned_away_total 32")]
    #[case("dflockd_protocol_errors_total{code=\"13\"} 0")]
    #[case("dflockd_auth_failures_total 33")]
    #[case("dflockd_write_timeouts_total 34")]
    #[case("dflockd_gone_while_waiting_total 35")]
    #[case("dflockd_http_connections_accepted_total 54")]
    #[case("dflockd_http_connections_pushed_out_total 55")]
    #[case("dflockd_http_sessions 38")]
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
        assert_eq!((names.len(), names.len()), (helps.len(), 37));
        assert!(text.ends_with('\n'));
    }
}
