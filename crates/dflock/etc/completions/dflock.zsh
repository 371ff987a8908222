#compdef dflock

autoload -U is-at-least

_dflock() {
    typeset -A opt_args
    typeset -a _arguments_options
    local ret=1

    if is-at-least 5.2; then
        _arguments_options=(-s -S -C)
    else
        _arguments_options=(-s -C)
    fi

    local context curcontext="$curcontext" state line
    _arguments "${_arguments_options[@]}" : \
'*-s+[HOST\:PORT, \`\[V6\]\:PORT\` or unix\:PATH. If there are several, the CRC-32 of the key chooses one, as in all dflockd clients; list the same servers in the same order everywhere]:ADDRESS:_default' \
'*--server=[HOST\:PORT, \`\[V6\]\:PORT\` or unix\:PATH. If there are several, the CRC-32 of the key chooses one, as in all dflockd clients; list the same servers in the same order everywhere]:ADDRESS:_default' \
'*--any-of=[Instead of --server\: addresses of one service, such as servers on one etcd, separated by commas or given more than once. If one does not answer, the next is asked]:ADDRESS:_default' \
'--auth-token-file=[File with the auth token. Without it, the environment variable DFLOCK_AUTH_TOKEN is used. There is no option for the token itself\: other users could read it from the process list]:FILE:_files' \
'--tls-ca=[Trust the certificates in this PEM file instead. Turns TLS on]:FILE:_files' \
'--tls-name=[The name in the server'\''s certificate, if it is not the host. Turns TLS on]:NAME:_default' \
'--patience=[Seconds to look for a server that is away, to wait for a connection, and to wait for an answer that is overdue. \`ping\` and \`stats\` ask once]:S:_default' \
'--read-timeout=[The servers'\'' --read-timeout\: a server that hears nothing for this time gives the lock away]:S:_default' \
'--tls[Speak TLS. The server'\''s certificate must name its host, and be signed by an authority that this system trusts]' \
'--json[Answer in JSON, one object on one line]' \
'-h[Print help]' \
'--help[Print help]' \
'-V[Print version]' \
'--version[Print version]' \
":: :_dflock_commands" \
"*::: :->dflock" \
&& ret=0
    case $state in
    (dflock)
        words=($line[1] "${words[@]}")
        (( CURRENT += 1 ))
        curcontext="${curcontext%:*:*}:dflock-command-$line[1]:"
        case $line[1] in
            (run)
_arguments "${_arguments_options[@]}" : \
'*-k+[Hold this lock, too. May be given more than once; then all are held, or none\: if one of them cannot be had, the others are released. No order of keys leads to a deadlock]:KEY:_default' \
'*--key=[Hold this lock, too. May be given more than once; then all are held, or none\: if one of them cannot be had, the others are released. No order of keys leads to a deadlock]:KEY:_default' \
'-t+[Seconds to wait in line. 0\: do not wait. Not given\: wait for ever]:S:_default' \
'--timeout=[Seconds to wait in line. 0\: do not wait. Not given\: wait for ever]:S:_default' \
'--ttl=[Length of the lease in seconds, instead of the server'\''s default]:S:_default' \
'--limit=[A semaphore of this many slots instead of a lock]:N:_default' \
'--name=[The name of this holder in \`dflock stats --long\` and on the server'\''s page, instead of user, host, process id and the command without its arguments]:TEXT:_default' \
'--value=[Text about this holder that \`dflock watch\` prints for programs, such as its address\: 1 to 256 bytes]:TEXT:_default' \
'--grace=[Seconds between TERM and KILL when the lease is lost; at most a third of the lease, or of --read-timeout, counts. If the server cannot be reached, TERM comes this long before the lease ends]:S:_default' \
'--reclaim=[Seconds to look for the server after the connection broke. Not given\: as long as the lease lasts, less --grace. A server with its default settings has given the lock away by then]:S:_default' \
'--hold-for=[Hold the lock for at least this many seconds, even if the command ends sooner\: for a job that several hosts start at about the same time, and that only one of them should do]:S:_default' \
'-E+[Exit code for busy and timed out, instead of 1 and 75; without --json no message either]:N:_default' \
'--busy-exit-code=[Exit code for busy and timed out, instead of 1 and 75; without --json no message either]:N:_default' \
'*-s+[HOST\:PORT, \`\[V6\]\:PORT\` or unix\:PATH. If there are several, the CRC-32 of the key chooses one, as in all dflockd clients; list the same servers in the same order everywhere]:ADDRESS:_default' \
'*--server=[HOST\:PORT, \`\[V6\]\:PORT\` or unix\:PATH. If there are several, the CRC-32 of the key chooses one, as in all dflockd clients; list the same servers in the same order everywhere]:ADDRESS:_default' \
'*--any-of=[Instead of --server\: addresses of one service, such as servers on one etcd, separated by commas or given more than once. If one does not answer, the next is asked]:ADDRESS:_default' \
'--auth-token-file=[File with the auth token. Without it, the environment variable DFLOCK_AUTH_TOKEN is used. There is no option for the token itself\: other users could read it from the process list]:FILE:_files' \
'--tls-ca=[Trust the certificates in this PEM file instead. Turns TLS on]:FILE:_files' \
'--tls-name=[The name in the server'\''s certificate, if it is not the host. Turns TLS on]:NAME:_default' \
'--patience=[Seconds to look for a server that is away, to wait for a connection, and to wait for an answer that is overdue. \`ping\` and \`stats\` ask once]:S:_default' \
'--read-timeout=[The servers'\'' --read-timeout\: a server that hears nothing for this time gives the lock away]:S:_default' \
'(--limit)--shared[Share the lock with others that give this option. Without it, the lock has one holder alone]' \
'--tls[Speak TLS. The server'\''s certificate must name its host, and be signed by an authority that this system trusts]' \
'--json[Answer in JSON, one object on one line]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'::key -- The name of the lock\: 1 to 256 bytes without blanks:_default' \
'*::command -- The command and its arguments:_default' \
&& ret=0
;;
(acquire)
_arguments "${_arguments_options[@]}" : \
'-t+[Seconds to wait in line. 0\: do not wait. Not given\: wait for ever]:S:_default' \
'--timeout=[Seconds to wait in line. 0\: do not wait. Not given\: wait for ever]:S:_default' \
'--ttl=[Length of the lease in seconds, instead of the server'\''s default]:S:_default' \
'--limit=[A semaphore of this many slots instead of a lock]:N:_default' \
'--name=[The name of this holder in \`dflock stats --long\` and on the server'\''s page, instead of user, host, process id and the command without its arguments]:TEXT:_default' \
'--value=[Text about this holder that \`dflock watch\` prints for programs, such as its address\: 1 to 256 bytes]:TEXT:_default' \
'*-s+[HOST\:PORT, \`\[V6\]\:PORT\` or unix\:PATH. If there are several, the CRC-32 of the key chooses one, as in all dflockd clients; list the same servers in the same order everywhere]:ADDRESS:_default' \
'*--server=[HOST\:PORT, \`\[V6\]\:PORT\` or unix\:PATH. If there are several, the CRC-32 of the key chooses one, as in all dflockd clients; list the same servers in the same order everywhere]:ADDRESS:_default' \
'*--any-of=[Instead of --server\: addresses of one service, such as servers on one etcd, separated by commas or given more than once. If one does not answer, the next is asked]:ADDRESS:_default' \
'--auth-token-file=[File with the auth token. Without it, the environment variable DFLOCK_AUTH_TOKEN is used. There is no option for the token itself\: other users could read it from the process list]:FILE:_files' \
'--tls-ca=[Trust the certificates in this PEM file instead. Turns TLS on]:FILE:_files' \
'--tls-name=[The name in the server'\''s certificate, if it is not the host. Turns TLS on]:NAME:_default' \
'--patience=[Seconds to look for a server that is away, to wait for a connection, and to wait for an answer that is overdue. \`ping\` and \`stats\` ask once]:S:_default' \
'--read-timeout=[The servers'\'' --read-timeout\: a server that hears nothing for this time gives the lock away]:S:_default' \
'(--limit)--shared[Share the lock with others that give this option. Without it, the lock has one holder alone]' \
'--hold[Keep and renew the lock until standard input ends or a signal comes]' \
'--tls[Speak TLS. The server'\''s certificate must name its host, and be signed by an authority that this system trusts]' \
'--json[Answer in JSON, one object on one line]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
':key -- The name of the lock\: 1 to 256 bytes without blanks:_default' \
&& ret=0
;;
(release)
_arguments "${_arguments_options[@]}" : \
'*-s+[HOST\:PORT, \`\[V6\]\:PORT\` or unix\:PATH. If there are several, the CRC-32 of the key chooses one, as in all dflockd clients; list the same servers in the same order everywhere]:ADDRESS:_default' \
'*--server=[HOST\:PORT, \`\[V6\]\:PORT\` or unix\:PATH. If there are several, the CRC-32 of the key chooses one, as in all dflockd clients; list the same servers in the same order everywhere]:ADDRESS:_default' \
'*--any-of=[Instead of --server\: addresses of one service, such as servers on one etcd, separated by commas or given more than once. If one does not answer, the next is asked]:ADDRESS:_default' \
'--auth-token-file=[File with the auth token. Without it, the environment variable DFLOCK_AUTH_TOKEN is used. There is no option for the token itself\: other users could read it from the process list]:FILE:_files' \
'--tls-ca=[Trust the certificates in this PEM file instead. Turns TLS on]:FILE:_files' \
'--tls-name=[The name in the server'\''s certificate, if it is not the host. Turns TLS on]:NAME:_default' \
'--patience=[Seconds to look for a server that is away, to wait for a connection, and to wait for an answer that is overdue. \`ping\` and \`stats\` ask once]:S:_default' \
'--read-timeout=[The servers'\'' --read-timeout\: a server that hears nothing for this time gives the lock away]:S:_default' \
'--tls[Speak TLS. The server'\''s certificate must name its host, and be signed by an authority that this system trusts]' \
'--json[Answer in JSON, one object on one line]' \
'-h[Print help]' \
'--help[Print help]' \
':key -- The name of the lock:_default' \
':token -- What acquire printed:_default' \
&& ret=0
;;
(renew)
_arguments "${_arguments_options[@]}" : \
'--ttl=[Length of the lease from now in seconds, instead of the server'\''s default]:S:_default' \
'*-s+[HOST\:PORT, \`\[V6\]\:PORT\` or unix\:PATH. If there are several, the CRC-32 of the key chooses one, as in all dflockd clients; list the same servers in the same order everywhere]:ADDRESS:_default' \
'*--server=[HOST\:PORT, \`\[V6\]\:PORT\` or unix\:PATH. If there are several, the CRC-32 of the key chooses one, as in all dflockd clients; list the same servers in the same order everywhere]:ADDRESS:_default' \
'*--any-of=[Instead of --server\: addresses of one service, such as servers on one etcd, separated by commas or given more than once. If one does not answer, the next is asked]:ADDRESS:_default' \
'--auth-token-file=[File with the auth token. Without it, the environment variable DFLOCK_AUTH_TOKEN is used. There is no option for the token itself\: other users could read it from the process list]:FILE:_files' \
'--tls-ca=[Trust the certificates in this PEM file instead. Turns TLS on]:FILE:_files' \
'--tls-name=[The name in the server'\''s certificate, if it is not the host. Turns TLS on]:NAME:_default' \
'--patience=[Seconds to look for a server that is away, to wait for a connection, and to wait for an answer that is overdue. \`ping\` and \`stats\` ask once]:S:_default' \
'--read-timeout=[The servers'\'' --read-timeout\: a server that hears nothing for this time gives the lock away]:S:_default' \
'--tls[Speak TLS. The server'\''s certificate must name its host, and be signed by an authority that this system trusts]' \
'--json[Answer in JSON, one object on one line]' \
'-h[Print help]' \
'--help[Print help]' \
':key -- The name of the lock:_default' \
':token -- What acquire printed:_default' \
&& ret=0
;;
(watch)
_arguments "${_arguments_options[@]}" : \
'*-s+[HOST\:PORT, \`\[V6\]\:PORT\` or unix\:PATH. If there are several, the CRC-32 of the key chooses one, as in all dflockd clients; list the same servers in the same order everywhere]:ADDRESS:_default' \
'*--server=[HOST\:PORT, \`\[V6\]\:PORT\` or unix\:PATH. If there are several, the CRC-32 of the key chooses one, as in all dflockd clients; list the same servers in the same order everywhere]:ADDRESS:_default' \
'*--any-of=[Instead of --server\: addresses of one service, such as servers on one etcd, separated by commas or given more than once. If one does not answer, the next is asked]:ADDRESS:_default' \
'--auth-token-file=[File with the auth token. Without it, the environment variable DFLOCK_AUTH_TOKEN is used. There is no option for the token itself\: other users could read it from the process list]:FILE:_files' \
'--tls-ca=[Trust the certificates in this PEM file instead. Turns TLS on]:FILE:_files' \
'--tls-name=[The name in the server'\''s certificate, if it is not the host. Turns TLS on]:NAME:_default' \
'--patience=[Seconds to look for a server that is away, to wait for a connection, and to wait for an answer that is overdue. \`ping\` and \`stats\` ask once]:S:_default' \
'--read-timeout=[The servers'\'' --read-timeout\: a server that hears nothing for this time gives the lock away]:S:_default' \
'--once[Print the present state, and end]' \
'--tls[Speak TLS. The server'\''s certificate must name its host, and be signed by an authority that this system trusts]' \
'--json[Answer in JSON, one object on one line]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
':key -- The name of the lock:_default' \
&& ret=0
;;
(stats)
_arguments "${_arguments_options[@]}" : \
'*-s+[HOST\:PORT, \`\[V6\]\:PORT\` or unix\:PATH. If there are several, the CRC-32 of the key chooses one, as in all dflockd clients; list the same servers in the same order everywhere]:ADDRESS:_default' \
'*--server=[HOST\:PORT, \`\[V6\]\:PORT\` or unix\:PATH. If there are several, the CRC-32 of the key chooses one, as in all dflockd clients; list the same servers in the same order everywhere]:ADDRESS:_default' \
'*--any-of=[Instead of --server\: addresses of one service, such as servers on one etcd, separated by commas or given more than once. If one does not answer, the next is asked]:ADDRESS:_default' \
'--auth-token-file=[File with the auth token. Without it, the environment variable DFLOCK_AUTH_TOKEN is used. There is no option for the token itself\: other users could read it from the process list]:FILE:_files' \
'--tls-ca=[Trust the certificates in this PEM file instead. Turns TLS on]:FILE:_files' \
'--tls-name=[The name in the server'\''s certificate, if it is not the host. Turns TLS on]:NAME:_default' \
'--patience=[Seconds to look for a server that is away, to wait for a connection, and to wait for an answer that is overdue. \`ping\` and \`stats\` ask once]:S:_default' \
'--read-timeout=[The servers'\'' --read-timeout\: a server that hears nothing for this time gives the lock away]:S:_default' \
'-l[Also show the names of the holders]' \
'--long[Also show the names of the holders]' \
'--tls[Speak TLS. The server'\''s certificate must name its host, and be signed by an authority that this system trusts]' \
'--json[Answer in JSON, one object on one line]' \
'-h[Print help]' \
'--help[Print help]' \
&& ret=0
;;
(force-release)
_arguments "${_arguments_options[@]}" : \
'--http-port=[The servers'\'' --http-port]:PORT:_default' \
'--admin-token-file=[File with the secret of the servers'\'' --admin-token-file. Without it, the environment variable DFLOCK_ADMIN_TOKEN is used]:FILE:_files' \
'*-s+[HOST\:PORT, \`\[V6\]\:PORT\` or unix\:PATH. If there are several, the CRC-32 of the key chooses one, as in all dflockd clients; list the same servers in the same order everywhere]:ADDRESS:_default' \
'*--server=[HOST\:PORT, \`\[V6\]\:PORT\` or unix\:PATH. If there are several, the CRC-32 of the key chooses one, as in all dflockd clients; list the same servers in the same order everywhere]:ADDRESS:_default' \
'*--any-of=[Instead of --server\: addresses of one service, such as servers on one etcd, separated by commas or given more than once. If one does not answer, the next is asked]:ADDRESS:_default' \
'--auth-token-file=[File with the auth token. Without it, the environment variable DFLOCK_AUTH_TOKEN is used. There is no option for the token itself\: other users could read it from the process list]:FILE:_files' \
'--tls-ca=[Trust the certificates in this PEM file instead. Turns TLS on]:FILE:_files' \
'--tls-name=[The name in the server'\''s certificate, if it is not the host. Turns TLS on]:NAME:_default' \
'--patience=[Seconds to look for a server that is away, to wait for a connection, and to wait for an answer that is overdue. \`ping\` and \`stats\` ask once]:S:_default' \
'--read-timeout=[The servers'\'' --read-timeout\: a server that hears nothing for this time gives the lock away]:S:_default' \
'--tls[Speak TLS. The server'\''s certificate must name its host, and be signed by an authority that this system trusts]' \
'--json[Answer in JSON, one object on one line]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
':key -- The name of the lock:_default' \
&& ret=0
;;
(kick)
_arguments "${_arguments_options[@]}" : \
'--http-port=[The servers'\'' --http-port]:PORT:_default' \
'--admin-token-file=[File with the secret of the servers'\'' --admin-token-file. Without it, the environment variable DFLOCK_ADMIN_TOKEN is used]:FILE:_files' \
'*-s+[HOST\:PORT, \`\[V6\]\:PORT\` or unix\:PATH. If there are several, the CRC-32 of the key chooses one, as in all dflockd clients; list the same servers in the same order everywhere]:ADDRESS:_default' \
'*--server=[HOST\:PORT, \`\[V6\]\:PORT\` or unix\:PATH. If there are several, the CRC-32 of the key chooses one, as in all dflockd clients; list the same servers in the same order everywhere]:ADDRESS:_default' \
'*--any-of=[Instead of --server\: addresses of one service, such as servers on one etcd, separated by commas or given more than once. If one does not answer, the next is asked]:ADDRESS:_default' \
'--auth-token-file=[File with the auth token. Without it, the environment variable DFLOCK_AUTH_TOKEN is used. There is no option for the token itself\: other users could read it from the process list]:FILE:_files' \
'--tls-ca=[Trust the certificates in this PEM file instead. Turns TLS on]:FILE:_files' \
'--tls-name=[The name in the server'\''s certificate, if it is not the host. Turns TLS on]:NAME:_default' \
'--patience=[Seconds to look for a server that is away, to wait for a connection, and to wait for an answer that is overdue. \`ping\` and \`stats\` ask once]:S:_default' \
'--read-timeout=[The servers'\'' --read-timeout\: a server that hears nothing for this time gives the lock away]:S:_default' \
'--tls[Speak TLS. The server'\''s certificate must name its host, and be signed by an authority that this system trusts]' \
'--json[Answer in JSON, one object on one line]' \
'-h[Print help]' \
'--help[Print help]' \
':connection -- The number of the connection, as stats shows it:_default' \
&& ret=0
;;
(ping)
_arguments "${_arguments_options[@]}" : \
'*-s+[HOST\:PORT, \`\[V6\]\:PORT\` or unix\:PATH. If there are several, the CRC-32 of the key chooses one, as in all dflockd clients; list the same servers in the same order everywhere]:ADDRESS:_default' \
'*--server=[HOST\:PORT, \`\[V6\]\:PORT\` or unix\:PATH. If there are several, the CRC-32 of the key chooses one, as in all dflockd clients; list the same servers in the same order everywhere]:ADDRESS:_default' \
'*--any-of=[Instead of --server\: addresses of one service, such as servers on one etcd, separated by commas or given more than once. If one does not answer, the next is asked]:ADDRESS:_default' \
'--auth-token-file=[File with the auth token. Without it, the environment variable DFLOCK_AUTH_TOKEN is used. There is no option for the token itself\: other users could read it from the process list]:FILE:_files' \
'--tls-ca=[Trust the certificates in this PEM file instead. Turns TLS on]:FILE:_files' \
'--tls-name=[The name in the server'\''s certificate, if it is not the host. Turns TLS on]:NAME:_default' \
'--patience=[Seconds to look for a server that is away, to wait for a connection, and to wait for an answer that is overdue. \`ping\` and \`stats\` ask once]:S:_default' \
'--read-timeout=[The servers'\'' --read-timeout\: a server that hears nothing for this time gives the lock away]:S:_default' \
'--tls[Speak TLS. The server'\''s certificate must name its host, and be signed by an authority that this system trusts]' \
'--json[Answer in JSON, one object on one line]' \
'-h[Print help]' \
'--help[Print help]' \
&& ret=0
;;
(bench)
_arguments "${_arguments_options[@]}" : \
'-c+[Simultaneous connections]:N:_default' \
'--connections=[Simultaneous connections]:N:_default' \
'-d+[Seconds to measure]:S:_default' \
'--duration=[Seconds to measure]:S:_default' \
'(-d --duration)-n+[Stop after this many pairs instead]:N:_default' \
'(-d --duration)--pairs=[Stop after this many pairs instead]:N:_default' \
'-k+[Keys that all connections share \[default\: each connection has its own, and nobody waits\]]:N:_default' \
'--keys=[Keys that all connections share \[default\: each connection has its own, and nobody waits\]]:N:_default' \
'--depth=[Pairs at once on each connection; more than 1 only without --keys]:N:_default' \
'--limit=[Semaphores of this many slots; 1\: locks]:N:_default' \
'-t+[Seconds an acquire may wait]:S:_default' \
'--timeout=[Seconds an acquire may wait]:S:_default' \
'--ttl=[Length of the leases in seconds]:S:_default' \
'--warm-up=[Milliseconds of load before measuring starts]:MS:_default' \
'--prefix=[The prefix of the keys]:TEXT:_default' \
'*-s+[HOST\:PORT, \`\[V6\]\:PORT\` or unix\:PATH. If there are several, the CRC-32 of the key chooses one, as in all dflockd clients; list the same servers in the same order everywhere]:ADDRESS:_default' \
'*--server=[HOST\:PORT, \`\[V6\]\:PORT\` or unix\:PATH. If there are several, the CRC-32 of the key chooses one, as in all dflockd clients; list the same servers in the same order everywhere]:ADDRESS:_default' \
'*--any-of=[Instead of --server\: addresses of one service, such as servers on one etcd, separated by commas or given more than once. If one does not answer, the next is asked]:ADDRESS:_default' \
'--auth-token-file=[File with the auth token. Without it, the environment variable DFLOCK_AUTH_TOKEN is used. There is no option for the token itself\: other users could read it from the process list]:FILE:_files' \
'--tls-ca=[Trust the certificates in this PEM file instead. Turns TLS on]:FILE:_files' \
'--tls-name=[The name in the server'\''s certificate, if it is not the host. Turns TLS on]:NAME:_default' \
'--patience=[Seconds to look for a server that is away, to wait for a connection, and to wait for an answer that is overdue. \`ping\` and \`stats\` ask once]:S:_default' \
'--read-timeout=[The servers'\'' --read-timeout\: a server that hears nothing for this time gives the lock away]:S:_default' \
'(--limit)--shared[Shared locks\: all connections are readers, and hold a key together]' \
'--tls[Speak TLS. The server'\''s certificate must name its host, and be signed by an authority that this system trusts]' \
'--json[Answer in JSON, one object on one line]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
&& ret=0
;;
(completions)
_arguments "${_arguments_options[@]}" : \
'*-s+[HOST\:PORT, \`\[V6\]\:PORT\` or unix\:PATH. If there are several, the CRC-32 of the key chooses one, as in all dflockd clients; list the same servers in the same order everywhere]:ADDRESS:_default' \
'*--server=[HOST\:PORT, \`\[V6\]\:PORT\` or unix\:PATH. If there are several, the CRC-32 of the key chooses one, as in all dflockd clients; list the same servers in the same order everywhere]:ADDRESS:_default' \
'*--any-of=[Instead of --server\: addresses of one service, such as servers on one etcd, separated by commas or given more than once. If one does not answer, the next is asked]:ADDRESS:_default' \
'--auth-token-file=[File with the auth token. Without it, the environment variable DFLOCK_AUTH_TOKEN is used. There is no option for the token itself\: other users could read it from the process list]:FILE:_files' \
'--tls-ca=[Trust the certificates in this PEM file instead. Turns TLS on]:FILE:_files' \
'--tls-name=[The name in the server'\''s certificate, if it is not the host. Turns TLS on]:NAME:_default' \
'--patience=[Seconds to look for a server that is away, to wait for a connection, and to wait for an answer that is overdue. \`ping\` and \`stats\` ask once]:S:_default' \
'--read-timeout=[The servers'\'' --read-timeout\: a server that hears nothing for this time gives the lock away]:S:_default' \
'--tls[Speak TLS. The server'\''s certificate must name its host, and be signed by an authority that this system trusts]' \
'--json[Answer in JSON, one object on one line]' \
'-h[Print help]' \
'--help[Print help]' \
':shell -- For which shell:(bash elvish fish powershell zsh)' \
&& ret=0
;;
(help)
_arguments "${_arguments_options[@]}" : \
":: :_dflock__subcmd__help_commands" \
"*::: :->help" \
&& ret=0

    case $state in
    (help)
        words=($line[1] "${words[@]}")
        (( CURRENT += 1 ))
        curcontext="${curcontext%:*:*}:dflock-help-command-$line[1]:"
        case $line[1] in
            (run)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(acquire)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(release)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(renew)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(watch)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(stats)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(force-release)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(kick)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(ping)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(bench)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(completions)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(help)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
        esac
    ;;
esac
;;
        esac
    ;;
esac
}

(( $+functions[_dflock_commands] )) ||
_dflock_commands() {
    local commands; commands=(
'run:Hold a lock while a command runs' \
'acquire:Take a lock and print its token' \
'release:Release a lock by its token' \
'renew:Renew a lease by its token' \
'watch:Print the holder of a lock whenever it changes' \
'stats:Show the holders of all locks' \
'force-release:Take a lock away from its holder (administrators)' \
'kick:End a client'\''s connection (administrators)' \
'ping:Ask every server whether it answers' \
'bench:Load a server and measure it' \
'completions:Print a completion script' \
'help:Print this message or the help of the given subcommand(s)' \
    )
    _describe -t commands 'dflock commands' commands "$@"
}
(( $+functions[_dflock__subcmd__acquire_commands] )) ||
_dflock__subcmd__acquire_commands() {
    local commands; commands=()
    _describe -t commands 'dflock acquire commands' commands "$@"
}
(( $+functions[_dflock__subcmd__bench_commands] )) ||
_dflock__subcmd__bench_commands() {
    local commands; commands=()
    _describe -t commands 'dflock bench commands' commands "$@"
}
(( $+functions[_dflock__subcmd__completions_commands] )) ||
_dflock__subcmd__completions_commands() {
    local commands; commands=()
    _describe -t commands 'dflock completions commands' commands "$@"
}
(( $+functions[_dflock__subcmd__force-release_commands] )) ||
_dflock__subcmd__force-release_commands() {
    local commands; commands=()
    _describe -t commands 'dflock force-release commands' commands "$@"
}
(( $+functions[_dflock__subcmd__help_commands] )) ||
_dflock__subcmd__help_commands() {
    local commands; commands=(
'run:Hold a lock while a command runs' \
'acquire:Take a lock and print its token' \
'release:Release a lock by its token' \
'renew:Renew a lease by its token' \
'watch:Print the holder of a lock whenever it changes' \
'stats:Show the holders of all locks' \
'force-release:Take a lock away from its holder (administrators)' \
'kick:End a client'\''s connection (administrators)' \
'ping:Ask every server whether it answers' \
'bench:Load a server and measure it' \
'completions:Print a completion script' \
'help:Print this message or the help of the given subcommand(s)' \
    )
    _describe -t commands 'dflock help commands' commands "$@"
}
(( $+functions[_dflock__subcmd__help__subcmd__acquire_commands] )) ||
_dflock__subcmd__help__subcmd__acquire_commands() {
    local commands; commands=()
    _describe -t commands 'dflock help acquire commands' commands "$@"
}
(( $+functions[_dflock__subcmd__help__subcmd__bench_commands] )) ||
_dflock__subcmd__help__subcmd__bench_commands() {
    local commands; commands=()
    _describe -t commands 'dflock help bench commands' commands "$@"
}
(( $+functions[_dflock__subcmd__help__subcmd__completions_commands] )) ||
_dflock__subcmd__help__subcmd__completions_commands() {
    local commands; commands=()
    _describe -t commands 'dflock help completions commands' commands "$@"
}
(( $+functions[_dflock__subcmd__help__subcmd__force-release_commands] )) ||
_dflock__subcmd__help__subcmd__force-release_commands() {
    local commands; commands=()
    _describe -t commands 'dflock help force-release commands' commands "$@"
}
(( $+functions[_dflock__subcmd__help__subcmd__help_commands] )) ||
_dflock__subcmd__help__subcmd__help_commands() {
    local commands; commands=()
    _describe -t commands 'dflock help help commands' commands "$@"
}
(( $+functions[_dflock__subcmd__help__subcmd__kick_commands] )) ||
_dflock__subcmd__help__subcmd__kick_commands() {
    local commands; commands=()
    _describe -t commands 'dflock help kick commands' commands "$@"
}
(( $+functions[_dflock__subcmd__help__subcmd__ping_commands] )) ||
_dflock__subcmd__help__subcmd__ping_commands() {
    local commands; commands=()
    _describe -t commands 'dflock help ping commands' commands "$@"
}
(( $+functions[_dflock__subcmd__help__subcmd__release_commands] )) ||
_dflock__subcmd__help__subcmd__release_commands() {
    local commands; commands=()
    _describe -t commands 'dflock help release commands' commands "$@"
}
(( $+functions[_dflock__subcmd__help__subcmd__renew_commands] )) ||
_dflock__subcmd__help__subcmd__renew_commands() {
    local commands; commands=()
    _describe -t commands 'dflock help renew commands' commands "$@"
}
(( $+functions[_dflock__subcmd__help__subcmd__run_commands] )) ||
_dflock__subcmd__help__subcmd__run_commands() {
    local commands; commands=()
    _describe -t commands 'dflock help run commands' commands "$@"
}
(( $+functions[_dflock__subcmd__help__subcmd__stats_commands] )) ||
_dflock__subcmd__help__subcmd__stats_commands() {
    local commands; commands=()
    _describe -t commands 'dflock help stats commands' commands "$@"
}
(( $+functions[_dflock__subcmd__help__subcmd__watch_commands] )) ||
_dflock__subcmd__help__subcmd__watch_commands() {
    local commands; commands=()
    _describe -t commands 'dflock help watch commands' commands "$@"
}
(( $+functions[_dflock__subcmd__kick_commands] )) ||
_dflock__subcmd__kick_commands() {
    local commands; commands=()
    _describe -t commands 'dflock kick commands' commands "$@"
}
(( $+functions[_dflock__subcmd__ping_commands] )) ||
_dflock__subcmd__ping_commands() {
    local commands; commands=()
    _describe -t commands 'dflock ping commands' commands "$@"
}
(( $+functions[_dflock__subcmd__release_commands] )) ||
_dflock__subcmd__release_commands() {
    local commands; commands=()
    _describe -t commands 'dflock release commands' commands "$@"
}
(( $+functions[_dflock__subcmd__renew_commands] )) ||
_dflock__subcmd__renew_commands() {
    local commands; commands=()
    _describe -t commands 'dflock renew commands' commands "$@"
}
(( $+functions[_dflock__subcmd__run_commands] )) ||
_dflock__subcmd__run_commands() {
    local commands; commands=()
    _describe -t commands 'dflock run commands' commands "$@"
}
(( $+functions[_dflock__subcmd__stats_commands] )) ||
_dflock__subcmd__stats_commands() {
    local commands; commands=()
    _describe -t commands 'dflock stats commands' commands "$@"
}
(( $+functions[_dflock__subcmd__watch_commands] )) ||
_dflock__subcmd__watch_commands() {
    local commands; commands=()
    _describe -t commands 'dflock watch commands' commands "$@"
}

if [ "$funcstack[1]" = "_dflock" ]; then
    _dflock "$@"
else
    compdef _dflock dflock
fi
