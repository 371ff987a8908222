# Completions of dflockd, made from its command line.

set --global __dflockd_table \
    '- --host . address or host name to listen on' \
    '- --port . port to listen on; 0 lets the system choose' \
    '- --unix-socket FILE also listen on this Unix socket' \
    '- --http-host . address or host name for the HTTP port' \
    '- --http-port . HTTP port for locks, statistics, health, metrics and a web page; 0 for none' \
    '- --http-session-idle-timeout . seconds that HTTP clients are told; a session that is silent for twice as long ends' \
    '- --http-max-sessions . limit of HTTP sessions; 0 for none' \
    '- --http-max-sessions-per-ip . limit of HTTP sessions from one address; 0 for none' \
    '- --http-max-connections-per-ip . limit of HTTP connections from one address; 0 for none' \
    '- --http-rate-limit-per-ip . limit of HTTP requests a second from one address; 0 for none' \
    '- --http-rate-limit-burst . HTTP requests of one address that may come at once; 0 for as many as a second may bring' \
    '- --http-cors-allowed-origins . origins whose web pages may use the HTTP port, separated by commas; * for all' \
    '- --default-lease-ttl . length of a lease in seconds, if the request has none' \
    '- --lease-sweep-interval . accepted for compatibility, without effect; leases end on time without a sweep' \
    '- --gc-interval . seconds between searches for idle keys' \
    '- --gc-max-idle . seconds after which an idle key is forgotten' \
    '- --max-locks . limit of keys; when it is reached, the key that was idle for longest is forgotten' \
    '- --max-waiters . limit of waiters for each key; 0 for none' \
    '- --max-holds . limit of slots held, places in queues and enqueue records together; 0 for 100000 or twice --max-locks, whichever is more' \
    '- --max-holds-per-connection . the same limit for each connection; 0 for half of --max-holds' \
    '- --max-connections . limit of connections; 0 for none' \
    '- --max-watchers . limit of clients that wait for changes of keys; 0 for none' \
    '- --max-connections-per-ip . limit of connections from one address; 0 for none' \
    '- --read-timeout . seconds that a client may take for one line, or be silent between requests' \
    '- --write-timeout . seconds that a client may take to accept one reply; 0 for no limit' \
    '- --shutdown-timeout . seconds that clients may stay after SIGTERM or SIGINT; 0 for no limit; a leader on etcd does not wait' \
    '- --auto-release-on-disconnect - release the holds of a connection when it closes' \
    '- --disconnect-grace . seconds that a hold stays after its connection closed, so that the client can reconnect and renew it' \
    '- --tls-cert FILE certificate chain (PEM); needs --tls-key' \
    '- --tls-key FILE private key (PEM); needs --tls-cert' \
    '- --auth-token . secret that clients must send; other users of this machine can see it, so prefer --auth-token-file' \
    '- --auth-token-file FILE file with the secrets that clients may send, one in each line' \
    '- --auth-prefix-file FILE file with secrets for some keys only; each line has a prefix of keys, a blank, and a secret' \
    '- --admin-token-file FILE file with the secret of administrators, who can take holds away and end connections by HTTP' \
    '- --metrics-token-file FILE file with a secret for /metrics only' \
    '- --state-dir DIR directory in which holds are recorded, so that a restart forgets none' \
    '- --state-sync - answer only when the record is on the disk, so that a power failure forgets none either' \
    '- --startup-grace . seconds after the start in which nothing is granted; for servers without --state-dir, whose clients may still hold locks' \
    '- --store =memory,etcd where the locks are kept: memory (in this process), or etcd (where the servers of one service record them, so that they survive the loss of a machine)' \
    '- --advertise . host:port at which the other servers reach this one while it leads (--store etcd); by default where it listens, or its address towards etcd' \
    '- --etcd-endpoints . members of etcd, as host:port, separated by commas; the leader is used, or else the first that answers' \
    '- --etcd-prefix . prefix of all keys in etcd; servers with the same prefix are one service' \
    '- --etcd-ca FILE certificate authority of the members of etcd (PEM); turns TLS on' \
    '- --etcd-cert FILE certificate that the server sends to etcd (PEM); needs --etcd-key and --etcd-ca' \
    '- --etcd-key FILE private key of that certificate (PEM)' \
    '- --etcd-user . user of etcd; needs --etcd-password-file' \
    '- --etcd-password-file FILE file with the password of --etcd-user' \
    '- --debug - log connections and requests too' \
    '- --version - print the version and exit' \
    '* -h,--help - Print help' \

# What the row of a command says of an option, or of the number of a word (+: all further words).
function __dflockd_kind --argument-names command name
    for row in $__dflockd_table
        set -l cells (string split -m 3 ' ' -- $row)
        if contains -- $cells[1] $command '*'; and contains -- $name (string split , -- $cells[2])
            echo $cells[3]
            return
        end
    end
end

# The kind of the word at a place.
function __dflockd_place --argument-names command place
    set -l kind (__dflockd_kind $command $place)
    test -n "$kind"; or set kind (__dflockd_kind $command +)
    echo $kind
end

function __dflockd_complete
    set -l words (commandline --current-process --tokenize --cut-at-cursor)
    set -e words[1]
    set -l cur "$(commandline --current-token --cut-at-cursor)"
    set -l command -
    set -l plain no
    set -l place 0
    set -l value
    set -l kind
    set -l before
    while set -q words[1]
        set -l word $words[1]
        if test -n "$value"
            set value
        else if test "$word" = --; and test $plain = no
            set plain yes
            set kind (__dflockd_kind $command +)
            if test "$kind" = COMMAND
                set -e words[1]
                break
            end
        else if string match -q -- '-?*' $word; and test $plain = no
            set kind (__dflockd_kind $command (string replace -r '=.*' '' -- $word))
            test "$kind" = FIRST; and test $place = 0; and set place 1
            test "$kind" = -; or string match -q -- '*=*' $word; or set value $kind
        else if test $command = -; and test "$(__dflockd_kind - $word)" = VERB
            set command $word
        else
            set place (math $place + 1)
            set kind (__dflockd_place $command $place)
            if test "$kind" = COMMAND
                set plain yes
                break
            end
        end
        set kind
        set -e words[1]
    end
    if test -n "$value"
        set plain yes
        set kind $value
    else if test -z "$kind"
        set kind (__dflockd_place $command (math $place + 1))
        if test -z "$kind"; and test $command = -; and test $plain = no
            set kind VERB
        end
    end
    if test $plain = no; and string match -q -- '--*=*' $cur
        set before (string replace -r '=.*' '=' -- $cur)
        set kind (__dflockd_kind $command (string replace -r '=.*' '' -- $cur))
        set cur (string replace -r '^[^=]*=' '' -- $cur)
    else if test $plain = no; and string match -q -- '-*' $cur
        set kind OPTION
    end
    switch "$kind"
        case COMMAND
            complete --do-complete (string join ' ' -- (string escape -- $words) "$cur")
        case FILE
            string replace -r -- '^' "$before" (__fish_complete_path "$cur")
        case DIR
            string replace -r -- '^' "$before" (__fish_complete_directories "$cur")
        case DEVICE
            # `set` takes patterns that match nothing.
            set -l ports /dev/tty* /dev/cu* /dev/rfcomm* /dev/serial/by-id/*
            set ports (string match -r '^/dev/(?:tty[A-Z]|cu[.a]|rfcomm|serial/by-id/).*' -- $ports)
            test -z "$cur"; or string match -q -- '/*' $cur; or set ports (string replace /dev/ '' -- $ports)
            string replace -r -- '^' "$before" $ports
        case '=*'
            string replace -r -- '^' "$before" (string split , -- (string sub -s 2 -- $kind))
        case OPTION VERB
            for row in $__dflockd_table
                set -l cells (string split -m 3 ' ' -- $row)
                contains -- $cells[1] $command '*'; or continue
                test "$cells[3]" = $kind; or string match -q -- 'OPTION-*' $kind$cells[2]; or continue
                printf '%s\t%s\n' (string split , -- $cells[2])[-1] "$cells[4]"
            end
    end
end

complete --command dflockd --no-files --arguments '(__dflockd_complete)'
