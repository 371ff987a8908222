//! The command line of `dflock`, with the examples and exit codes at the end of its help. Words only; nothing here
//! connects or decides. Pure.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::FalseyValueParser;
use clap::{Args, Parser, Subcommand};
use wrapcmd::Form;

use crate::ServerAddress;

/// Leases on named locks and semaphores, from a dflockd server.
#[derive(Parser, Debug)]
#[command(name = "dflock", version, after_help = examples::ALL, max_term_width = 100)]
pub(super) struct Arguments {
    #[command(flatten)]
    pub(super) reach: Reach,
    /// Answer in JSON, also if it fails: one value on one line of standard output.
    #[arg(long, global = true)]
    json: bool,
    /// Print no answer, and no message if the lock is held: the exit code says it.
    #[arg(long, short = 'q', global = true)]
    quiet: bool,
    #[command(subcommand)]
    pub(super) command: Command,
}

impl Arguments {
    pub(super) fn form(&self) -> Form {
        match (self.quiet, self.json) {
            (true, _) => Form::Quiet,
            (false, true) => Form::Json,
            (false, false) => Form::Text,
        }
    }
}

/// How to reach the servers.
#[derive(Args, Debug)]
pub(super) struct Reach {
    /// HOST:PORT, `[V6]:PORT` or unix:PATH. If there are several, the CRC-32 of the key chooses one, as
    /// in all dflockd clients; list the same servers in the same order everywhere.
    #[arg(
        long = "server",
        short = 's',
        value_name = "ADDRESS",
        global = true,
        env = "DFLOCK_SERVERS",
        value_delimiter = ',',
        default_value = "127.0.0.1:6388"
    )]
    pub(super) servers: Vec<ServerAddress>,
    /// Instead of --server: addresses of one service, such as servers on one etcd, separated by commas
    /// or given more than once. If one does not answer, the next is asked.
    #[arg(
        long,
        value_name = "ADDRESS",
        global = true,
        env = "DFLOCK_ANY_OF",
        value_delimiter = ','
    )]
    pub(super) any_of: Vec<ServerAddress>,
    /// File with the auth token. Without it, the environment variable DFLOCK_AUTH_TOKEN is used.
    /// There is no option for the token itself: other users could read it from the process list.
    #[arg(long, value_name = "FILE", global = true, env = "DFLOCK_AUTH_TOKEN_FILE")]
    pub(super) auth_token_file: Option<PathBuf>,
    /// The servers' tokens begin with fences, though they do not say so: true of the Go server since 2.1.
    #[arg(long, global = true, env = "DFLOCK_TRUST_FENCES", value_parser = FalseyValueParser::new())]
    pub(super) trust_fences: bool,
    /// Speak TLS. The server's certificate must name its host, and be signed by an authority that this
    /// system trusts.
    #[arg(long, global = true)]
    pub(super) tls: bool,
    /// Trust the certificates in this PEM file instead. Turns TLS on.
    #[arg(long, value_name = "FILE", global = true)]
    pub(super) tls_ca: Option<PathBuf>,
    /// The name in the server's certificate, if it is not the host. Turns TLS on.
    #[arg(long, value_name = "NAME", global = true)]
    pub(super) tls_name: Option<String>,
    /// Seconds to look for a server that is away, to wait for a connection, and to wait for an answer
    /// that is overdue. `ping` and `stats` ask once.
    #[arg(long, value_name = "S", global = true, default_value = "10", value_parser = patience)]
    pub(super) patience: u32,
    /// The servers' --read-timeout: a server that hears nothing for this time gives the lock away.
    #[arg(long, value_name = "S", global = true, default_value = "23", value_parser = some_seconds)]
    pub(super) read_timeout: u32,
}

#[derive(Subcommand, Debug)]
pub(super) enum Command {
    /// Hold a lock while a command runs.
    ///
    /// The lease is renewed until the command ends. If it is lost, the command and what it
    /// started get TERM, and KILL after --grace. Signals to dflock go to the command. Its environment
    /// has DFLOCK_KEY, DFLOCK_TOKEN and DFLOCK_FENCE. The fence is a number that grows with every
    /// grant of the key, so that storage can refuse late writers. With --limit, DFLOCK_SLOT is the
    /// number of the slot held, from 0, and with --one-of DFLOCK_ITEM is the item. DFLOCK_KEYS,
    /// DFLOCK_TOKENS, DFLOCK_FENCES and DFLOCK_SLOTS list those of all keys, separated by blanks.
    /// After --key, the first word is the command.
    #[command(after_help = examples::RUN, override_usage = "\
        dflock run [OPTIONS] KEY COMMAND...\n       dflock run [OPTIONS] --key KEY [--key KEY]... COMMAND...")]
    Run(Run),
    /// Take a lock and print its token.
    ///
    /// A server with default settings releases everything when the connection closes, and the connection
    /// closes when this command ends. A server with a --disconnect-grace releases it that much
    /// later. If that is before the lease ends, this command fails with code 78. Then use `dflock run`,
    /// or --hold, or a server with --auto-release-on-disconnect=false.
    ///
    /// With --key, it prints the tokens of all locks, one on each line: KEY first, then those of --key in
    /// their order.
    #[command(after_help = examples::ACQUIRE, override_usage = "\
        dflock acquire [OPTIONS] KEY\n       dflock acquire [OPTIONS] --key KEY [--key KEY]...")]
    Acquire(Acquire),
    /// Release a lock by its token.
    #[command(after_help = examples::RELEASE)]
    Release(HeldArgs),
    /// Renew a lease by its token.
    #[command(after_help = examples::RENEW)]
    Renew(Renew),
    /// Print the holder of a lock whenever it changes.
    ///
    /// Prints the present holder as a line of JSON, and another line for each change, until a signal
    /// comes or nobody reads: key, holder (its --name), value (its --value), fence, since, and the
    /// number of holders. Changes that follow each other quickly may share one line; the last state is
    /// always printed. If the server goes away, dflock looks for it without end.
    #[command(after_help = examples::WATCH)]
    Watch(Watch),
    /// Show the holders of all locks.
    #[command(after_help = examples::STATS)]
    Stats(StatsArgs),
    /// Take a lock away from its holder (administrators).
    ///
    /// The next in line gets the lock at once. The old holder is told, and `dflock run` stops its command;
    /// for a moment both may work. Other clients may work on until they renew.
    #[command(after_help = examples::FORCE_RELEASE)]
    ForceRelease(ForceRelease),
    /// End a client's connection (administrators).
    #[command(after_help = examples::KICK)]
    Kick(Kick),
    /// Ask every server whether it answers.
    #[command(after_help = examples::PING)]
    Ping,
    /// Load a server and measure it.
    ///
    /// A pair is one acquire and its release. The command also counts grants beyond the limit of a
    /// key, which a correct server never gives.
    #[cfg(unix)]
    #[command(after_help = examples::BENCH)]
    Bench(Bench),
    /// Print a completion script.
    #[command(after_help = examples::COMPLETIONS)]
    Completions {
        /// For which shell.
        shell: wrapcmd::Shell,
    },
}

/// How a lock is claimed, or each of several.
#[derive(Args, Debug)]
pub(super) struct Terms {
    /// Seconds to wait in line. 0: do not wait. Not given: wait for ever.
    #[arg(long, short = 't', value_name = "S", value_parser = seconds)]
    pub(super) timeout: Option<u32>,
    /// Length of the lease in seconds, instead of the server's default.
    #[arg(long, value_name = "S", value_parser = some_seconds)]
    pub(super) ttl: Option<u32>,
    /// Share the lock with others that give this option. Without it, the lock has one holder alone.
    #[arg(long, conflicts_with = "limit")]
    pub(super) shared: bool,
    /// A semaphore of this many slots instead of a lock.
    #[arg(long, value_name = "N", value_parser = slots)]
    pub(super) limit: Option<u32>,
    /// The name of this holder in `dflock stats --long` and on the server's page, instead of user, host,
    /// process id and the command without its arguments.
    #[arg(long, value_name = "TEXT")]
    pub(super) name: Option<String>,
    /// Text about this holder that `dflock watch` prints for programs, such as its address:
    /// 1 to 256 bytes.
    #[arg(long, value_name = "TEXT")]
    pub(super) value: Option<String>,
}

/// The locks that are taken: all, or none.
#[derive(Args, Debug)]
pub(super) struct Keys {
    /// The name of the lock: 1 to 256 bytes without blanks.
    #[arg(required_unless_present = "keys")]
    key: Option<OsString>,
    /// Take this lock, too. May be given more than once; then all are taken, or none: if one of them
    /// cannot be had, the others are released. No order of keys leads to a deadlock.
    #[arg(long = "key", short, value_name = "KEY")]
    keys: Vec<OsString>,
}

impl Keys {
    /// As they were typed: the operand first.
    pub(super) fn names(&self) -> impl Iterator<Item = &OsString> {
        self.key.iter().chain(&self.keys)
    }
}

#[derive(Args, Debug)]
pub(super) struct Run {
    #[command(flatten)]
    pub(super) keys: Keys,
    #[command(flatten)]
    pub(super) terms: Terms,
    /// Hold one of these items, separated by commas: the key is a semaphore of as many slots, and each slot
    /// has its item. All who use the key must name the same items in the same order; dflock notices only
    /// another number of them.
    #[arg(long, value_name = "ITEM,...", value_delimiter = ',', conflicts_with_all = ["limit", "shared", "keys"])]
    pub(super) one_of: Vec<OsString>,
    /// Seconds between TERM and KILL when the lease is lost; at most a third of the lease, or of
    /// --read-timeout, counts. If the server cannot be reached, TERM comes this long before the
    /// lease ends.
    #[arg(long, value_name = "S", default_value = "5", value_parser = seconds)]
    pub(super) grace: u32,
    /// Seconds to look for the server after the connection broke. Not given: as long as the lease
    /// lasts, less --grace. A server with its default settings has given the lock away by then.
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub(super) reclaim: Option<u32>,
    /// Hold the lock for at least this many seconds, even if the command ends sooner: for a job that
    /// several hosts start at about the same time, and that only one of them should do.
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub(super) hold_for: Option<u32>,
    /// Exit code for busy and timed out, instead of 1 and 75; without --json no message either.
    #[arg(long = "conflict-exit-code", alias = "busy-exit-code", short = 'E', value_name = "N")]
    pub(super) busy_exit_code: Option<u8>,
    /// The command and its arguments; `--` before them is optional.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(super) command: Vec<OsString>,
}

#[derive(Args, Debug)]
pub(super) struct Acquire {
    #[command(flatten)]
    pub(super) keys: Keys,
    #[command(flatten)]
    pub(super) terms: Terms,
    /// Keep and renew it until standard input ends or a signal comes.
    #[arg(long)]
    pub(super) hold: bool,
}

#[derive(Args, Debug)]
pub(super) struct HeldArgs {
    /// The name of the lock.
    pub(super) key: OsString,
    /// What acquire printed.
    #[arg(env = "DFLOCK_TOKEN", hide_env_values = true)]
    pub(super) token: String,
}

#[derive(Args, Debug)]
pub(super) struct Renew {
    #[command(flatten)]
    pub(super) held: HeldArgs,
    /// Length of the lease from now in seconds, instead of the server's default.
    #[arg(long, value_name = "S", value_parser = some_seconds)]
    pub(super) ttl: Option<u32>,
}

#[derive(Args, Debug)]
pub(super) struct Watch {
    /// The name of the lock.
    pub(super) key: OsString,
    /// Print the present state, and end.
    #[arg(long)]
    pub(super) once: bool,
}

#[derive(Args, Debug)]
pub(super) struct StatsArgs {
    /// Only this lock: all its holders, and the line of those that wait for it.
    pub(super) key: Option<OsString>,
    /// Also show the names of the holders.
    #[arg(long, short = 'l')]
    pub(super) long: bool,
}

/// How to reach the HTTP side, and with what right.
#[derive(Args, Debug)]
pub(super) struct Admin {
    /// The servers' --http-port.
    #[arg(long, value_name = "PORT", default_value = "6389",
          value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) http_port: u16,
    /// File with the secret of the servers' --admin-token-file. Without it, the environment
    /// variable DFLOCK_ADMIN_TOKEN is used.
    #[arg(long, value_name = "FILE", env = "DFLOCK_ADMIN_TOKEN_FILE")]
    pub(super) admin_token_file: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(super) struct ForceRelease {
    /// The name of the lock.
    pub(super) key: OsString,
    #[command(flatten)]
    pub(super) admin: Admin,
}

#[derive(Args, Debug)]
pub(super) struct Kick {
    /// The number of the connection, as stats shows it.
    pub(super) connection: u64,
    #[command(flatten)]
    pub(super) admin: Admin,
}

#[cfg(unix)]
#[derive(Args, Debug)]
pub(super) struct Bench {
    /// Simultaneous connections.
    #[arg(long, short = 'c', value_name = "N", default_value = "10",
          value_parser = clap::value_parser!(u32).range(1..=60_000))]
    pub(super) connections: u32,
    /// Seconds to measure.
    #[arg(long, short = 'd', value_name = "S", default_value = "5", value_parser = some_seconds)]
    pub(super) duration: u32,
    /// Stop after this many pairs instead.
    #[arg(long, short = 'n', value_name = "N", conflicts_with = "duration",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) pairs: Option<u64>,
    /// Keys that all connections share [default: each connection has its own, and nobody waits].
    #[arg(long, short = 'k', value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) keys: Option<u32>,
    /// Pairs at once on each connection; more than 1 only without --keys.
    #[arg(long, value_name = "N", default_value = "1",
          value_parser = clap::value_parser!(u32).range(1..=1_024))]
    pub(super) depth: u32,
    /// Semaphores of this many slots; 1: locks.
    #[arg(long, value_name = "N", default_value = "1",
          value_parser = slots)]
    pub(super) limit: u32,
    /// Shared locks: all connections are readers, and hold a key together.
    #[arg(long, conflicts_with = "limit")]
    pub(super) shared: bool,
    /// Seconds an acquire may wait.
    #[arg(long, short = 't', value_name = "S", default_value = "30", value_parser = seconds)]
    pub(super) timeout: u32,
    /// Length of the leases in seconds.
    #[arg(long, value_name = "S", default_value = "33", value_parser = some_seconds)]
    pub(super) ttl: u32,
    /// Milliseconds of load before measuring starts.
    #[arg(long, value_name = "MS", default_value = "200")]
    pub(super) warm_up: u32,
    /// The prefix of the keys.
    #[arg(long, value_name = "TEXT", default_value = "bench")]
    pub(super) prefix: String,
}

#[cfg(unix)]
impl Bench {
    /// How many clients may hold a key together.
    pub(super) fn holders(&self) -> u32 {
        if self.shared { u32::MAX } else { self.limit }
    }

    /// How many different keys all connections use.
    pub(super) fn key_count(&self) -> u32 {
        self.keys.unwrap_or_else(|| self.connections.saturating_mul(self.depth))
    }
}

/// Whole seconds, as the protocol has them.
fn seconds(text: &str) -> Result<u32, String> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    let count = text.parse().ok().filter(|_| is_number);
    count.ok_or_else(|| format!("needs a whole number of seconds, 0 to {}", u32::MAX))
}

fn some_seconds(text: &str) -> Result<u32, String> {
    let count = seconds(text).ok().filter(|count| *count > 0);
    count.ok_or_else(|| format!("needs a whole number of seconds, 1 to {}", u32::MAX))
}

fn slots(text: &str) -> Result<u32, String> {
    let count = text.parse().ok().filter(|count| *count > 0);
    count.ok_or_else(|| format!("needs a number of slots, 1 to {}", u32::MAX))
}

fn patience(text: &str) -> Result<u32, String> {
    let count = some_seconds(text).ok().filter(|count| *count <= 3600);
    count.ok_or_else(|| "needs a whole number of seconds, 1 to 3600".to_owned())
}

/// The end of `--help`: examples for each command, and the exit codes.
mod examples {
    pub(super) const ALL: &str = "\
Examples:
  dflock run nightly -- nightly-report          one at a time in the whole fleet
  dflock run convert --limit 4 -- ffmpeg ...    at most four
  dflock run board --one-of b1,b2,b3 -- flash   one of three: $DFLOCK_ITEM
  dflock run data --shared -- make-report       any number, but not beside a run without --shared
  dflock run --key stock --key till -- count    both locks, or none
  dflock stats --long                           who holds what

The manual: man dflock

Exit codes:
  0   done
  1   busy (--timeout 0), or the token holds nothing
  64  wrong usage, or the key is in use with another --limit or number of items
  69  no server, or the server takes no more work
  71  the system refused something
  74  run: the lease was lost and the command was stopped
  75  timed out
  76  not a dflockd server, or one too old for shared locks, values, watching and slots
  77  the server refused the auth token
  78  unusable TLS or token file; acquire: the server would not keep the lock
run exits with the code of the command, 128+n when signal n ended it, 126 when
it cannot be executed and 127 when it is not found.";

    pub(super) const RUN: &str = "\
Examples:
  dflock run backup --timeout 0 -- rsync -a /srv /backup
  dflock run convert --limit 4 -- ffmpeg -i in.avi out.mp4
  dflock run board --one-of b1,b2,b3 -- sh -c 'flash \"$DFLOCK_ITEM\"'
  dflock run data --shared -- make-report
  dflock run --key stock --key till --timeout 10 -- count-stock";

    pub(super) const ACQUIRE: &str = "\
Examples:
  token=$(dflock acquire deploy --ttl 600) || exit
  dflock acquire deploy --timeout 30 --hold";

    pub(super) const RELEASE: &str = "\
Examples:
  dflock release deploy \"$token\"
  trap 'dflock release deploy \"$token\"' EXIT";

    pub(super) const RENEW: &str = "\
Examples:
  dflock renew deploy \"$token\"
  dflock renew deploy \"$token\" --ttl 600 || exit";

    pub(super) const WATCH: &str = "\
Examples:
  dflock run leader --value 10.0.0.1:8080 -- my-service
  dflock watch leader --once | jq -r .value
  dflock watch leader | while read -r line; do echo \"$line\"; done";

    pub(super) const STATS: &str = "\
Examples:
  dflock stats --long                 with the names of the holders
  dflock --json stats                 for programs";

    pub(super) const FORCE_RELEASE: &str = "\
Examples:
  dflock force-release nightly --admin-token-file /etc/dflock/admin
  DFLOCK_ADMIN_TOKEN=... dflock force-release nightly";

    pub(super) const KICK: &str = "\
Examples:
  dflock stats --long                 shows the numbers of connections
  dflock kick 17 --admin-token-file /etc/dflock/admin";

    pub(super) const PING: &str = "\
Examples:
  dflock ping
  dflock --server locks.example:6388 ping";

    #[cfg(unix)]
    pub(super) const BENCH: &str = "\
Examples:
  dflock bench                        ten connections, each with its own key
  dflock bench --connections 100 --keys 1 --duration 10";

    pub(super) const COMPLETIONS: &str = "\
Examples:
  source <(dflock completions bash)
  dflock completions fish >~/.config/fish/completions/dflock.fish";
}

#[cfg(all(test, unix))]
mod tests {
    use super::Arguments;
    use clap::Parser;
    use rstest::rstest;

    #[rstest]
    #[case("", true)]
    #[case("--connections 0", false)]
    #[case("--connections 60000", true)]
    #[case("--connections 60001", false)]
    #[case("--depth 0", false)]
    #[case("--depth 1024", true)]
    #[case("--depth 1025", false)]
    #[case("--keys 0", false)]
    #[case("--keys 1", true)]
    #[case("--limit 0", false)]
    #[case("--limit 2 --shared", false)]
    #[case("--shared", true)]
    #[case("--ttl 0", false)]
    #[case("--duration 0", false)]
    #[case("--pairs 0", false)]
    #[case("--pairs 1", true)]
    fn bench_is_only_asked_for_what_it_can_do(#[case] options: &str, #[case] can: bool) {
        let words = ["dflock", "bench"].into_iter().chain(options.split_whitespace());
        assert_eq!(Arguments::try_parse_from(words).is_ok(), can);
    }
}
