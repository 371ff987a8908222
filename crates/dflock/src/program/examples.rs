//! The end of `--help`: examples for each command, and the exit codes. Pure.

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
