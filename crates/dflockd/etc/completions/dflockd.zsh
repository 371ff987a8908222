#compdef dflockd
# Completions of dflockd, made from its command line.

typeset -g _dflockd_table='- --host . address or host name to listen on
- --port . port to listen on; 0 lets the system choose
- --unix-socket FILE also listen on this Unix socket
- --http-host . address or host name for the HTTP port
- --http-port . HTTP port for locks, statistics, health, metrics and a web page; 0 for none
- --http-session-idle-timeout . seconds that HTTP clients are told; a session that is silent for twice as long ends
- --http-max-sessions . limit of HTTP sessions; 0 for none
- --http-max-sessions-per-ip . limit of HTTP sessions from one address; 0 for none
- --http-max-connections-per-ip . limit of HTTP connections from one address; 0 for none
- --http-rate-limit-per-ip . limit of HTTP requests a second from one address; 0 for none
- --http-rate-limit-burst . HTTP requests of one address that may come at once; 0 for as many as a second may bring
- --http-cors-allowed-origins . origins whose web pages may use the HTTP port, separated by commas; * for all
- --default-lease-ttl . length of a lease in seconds, if the request has none
- --lease-sweep-interval . accepted for compatibility, without effect; leases end on time without a sweep
- --gc-interval . seconds between searches for idle keys
- --gc-max-idle . seconds after which an idle key is forgotten
- --max-locks . limit of keys; when it is reached, the key that was idle for longest is forgotten
- --max-waiters . limit of waiters for each key; 0 for none
- --max-holds . limit of slots held, places in queues and enqueue records together; 0 for 100000 or twice --max-locks, whichever is more
- --max-holds-per-connection . the same limit for each connection; 0 for half of --max-holds
- --max-connections . limit of connections; 0 for none
- --max-watchers . limit of clients that wait for changes of keys; 0 for none
- --max-connections-per-ip . limit of connections from one address; 0 for none
- --read-timeout . seconds that a client may take for one line, or be silent between requests
- --write-timeout . seconds that a client may take to accept one reply; 0 for no limit
- --shutdown-timeout . seconds that clients may stay after SIGTERM or SIGINT; 0 for no limit; a leader on etcd does not wait
- --auto-release-on-disconnect - release the holds of a connection when it closes
- --disconnect-grace . seconds that a hold stays after its connection closed, so that the client can reconnect and renew it
- --tls-cert FILE certificate chain (PEM); needs --tls-key
- --tls-key FILE private key (PEM); needs --tls-cert
- --auth-token . secret that clients must send; other users of this machine can see it, so prefer --auth-token-file
- --auth-token-file FILE file with the secrets that clients may send, one in each line
- --auth-prefix-file FILE file with secrets for some keys only; each line has a prefix of keys, a blank, and a secret
- --admin-token-file FILE file with the secret of administrators, who can take holds away and end connections by HTTP
- --metrics-token-file FILE file with a secret for /metrics only
- --state-dir DIR directory in which holds are recorded, so that a restart forgets none
- --state-sync - answer only when the record is on the disk, so that a power failure forgets none either
- --startup-grace . seconds after the start in which nothing is granted; for servers without --state-dir, whose clients may still hold locks
- --store =memory,etcd where the locks are kept: memory (in this process), or etcd (where the servers of one service record them, so that they survive the loss of a machine)
- --advertise . host:port at which the other servers reach this one while it leads (--store etcd); by default where it listens, or its address towards etcd
- --etcd-endpoints . members of etcd, as host:port, separated by commas; the leader is used, or else the first that answers
- --etcd-prefix . prefix of all keys in etcd; servers with the same prefix are one service
- --etcd-ca FILE certificate authority of the members of etcd (PEM); turns TLS on
- --etcd-cert FILE certificate that the server sends to etcd (PEM); needs --etcd-key and --etcd-ca
- --etcd-key FILE private key of that certificate (PEM)
- --etcd-user . user of etcd; needs --etcd-password-file
- --etcd-password-file FILE file with the password of --etcd-user
- --debug - log connections and requests too
- --version - print the version and exit
* -h,--help - Print help'

# Sets kind to what the row of command $1 says of $2: an option, or the number of a word (+: all further words).
_dflockd_kind() {
    local row names help
    while read -r row names kind help; do
        if [[ $row == "$1" || $row == "*" ]] && [[ ,$names, == *",$2,"* ]]; then
            return
        fi
    done <<<"$_dflockd_table"
    kind=
}

# Sets kind to that of the word at this place.
_dflockd_place() {
    _dflockd_kind "$command" "$1"
    [[ -n $kind ]] || _dflockd_kind "$command" +
}

# Reads the words before the cursor. Sets command; kind, what the word at the cursor is; plain, if that word cannot be an
# option; and wrapped, the number of the first word of the wrapped command, if the cursor is or can be in it.
_dflockd_walk() {
    local word number=0 place=0 value=
    command=- kind= plain= wrapped=
    for word; do
        number=$((number + 1))
        if [[ -n $value ]]; then
            # bash makes three words of --option=value.
            [[ $word == "=" ]] || value=
        elif [[ $word == -- && -z $plain ]]; then
            plain=yes
            _dflockd_kind "$command" +
            [[ $kind != COMMAND ]] || { wrapped=$((number + 1)); return; }
        elif [[ $word == -?* && -z $plain ]]; then
            _dflockd_kind "$command" "${word%%=*}"
            [[ $kind != FIRST || $place != 0 ]] || place=1
            [[ $kind == - || $word == *=* ]] || value=$kind
        else
            _dflockd_kind - "$word"
            if [[ $command == - && $kind == VERB ]]; then
                command=$word
            else
                place=$((place + 1))
                _dflockd_place "$place"
                [[ $kind != COMMAND ]] || { plain=yes wrapped=$number; return; }
            fi
        fi
    done
    if [[ -n $value ]]; then
        plain=yes kind=$value
    else
        _dflockd_place $((place + 1))
        [[ $kind != COMMAND ]] || wrapped=$((number + 1))
        [[ $command != - || -n $plain$kind ]] || kind=VERB
    fi
}

_dflockd() {
    local cur=${words[CURRENT]} command kind plain wrapped row names takes help
    local -a offered
    _dflockd_walk "${(@)words[2,CURRENT-1]}"
    if [[ -z $plain && $cur == --*=* ]]; then
        _dflockd_kind "$command" "${cur%%=*}"
        compset -P 1 '*='
    elif [[ -z $plain && $cur == -* ]]; then
        kind=OPTION
    fi
    case $kind in
    COMMAND)
        words=("${(@)words[wrapped+1,-1]}")
        CURRENT=$((CURRENT - wrapped))
        _normal
        ;;
    FILE) _files ;;
    DIR) _files -/ ;;
    DEVICE)
        offered=(/dev/tty[A-Z]*(N) /dev/cu[.a]*(N) /dev/rfcomm*(N) /dev/serial/by-id/*(N))
        [[ -z $cur || $cur == (/|--)* ]] || offered=("${(@)offered#/dev/}")
        compadd -a offered
        ;;
    "="*) compadd -- "${(@s:,:)kind#=}" ;;
    OPTION | VERB)
        while read -r row names takes help; do
            [[ $row == "$command" || $row == "*" ]] || continue
            [[ $kind != "$takes" && $kind$names != OPTION-* ]] || offered+=("${names##*,}:$help")
        done <<<"$_dflockd_table"
        _describe dflockd offered
        ;;
    esac
}

if [[ ${funcstack[1]} == _dflockd ]]; then
    _dflockd "$@"
else
    compdef _dflockd dflockd
fi
