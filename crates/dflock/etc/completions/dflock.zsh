#compdef dflock
# Completions of dflock, made from its command line.

typeset -g _dflock_table='* -s,--server . HOST:PORT, `[V6]:PORT` or unix:PATH. If there are several, the CRC-32 of the key chooses one, as in all dflockd clients; list the same servers in the same order everywhere
* --any-of . Instead of --server: addresses of one service, such as servers on one etcd, separated by commas or given more than once. If one does not answer, the next is asked
* --auth-token-file FILE File with the auth token. Without it, the environment variable DFLOCK_AUTH_TOKEN is used. There is no option for the token itself: other users could read it from the process list
* --trust-fences - The servers'\'' tokens begin with fences, though they do not say so: true of the Go server since 2.1
* --tls - Speak TLS. The server'\''s certificate must name its host, and be signed by an authority that this system trusts
* --tls-ca FILE Trust the certificates in this PEM file instead. Turns TLS on
* --tls-name . The name in the server'\''s certificate, if it is not the host. Turns TLS on
* --patience . Seconds to look for a server that is away, to wait for a connection, and to wait for an answer that is overdue. `ping` and `stats` ask once
* --read-timeout . The servers'\'' --read-timeout: a server that hears nothing for this time gives the lock away
* --json - Answer in JSON, also if it fails: one value on one line of standard output
* -q,--quiet - Print no answer, and no message if the lock is held: the exit code says it
* -h,--help - Print help
- -V,--version - Print version
- run VERB Hold a lock while a command runs
- acquire VERB Take a lock and print its token
- release VERB Release a lock by its token
- renew VERB Renew a lease by its token
- watch VERB Print the holder of a lock whenever it changes
- stats VERB Show the holders of all locks
- force-release VERB Take a lock away from its holder (administrators)
- kick VERB End a client'\''s connection (administrators)
- ping VERB Ask every server whether it answers
- bench VERB Load a server and measure it
- completions VERB Print a completion script
- help VERB Print this message or the help of the given subcommand(s)
help 1 =run,acquire,release,renew,watch,stats,force-release,kick,ping,bench,completions,help 
run 1 . The name of the lock: 1 to 256 bytes without blanks
run -k,--key FIRST Take this lock, too. May be given more than once; then all are taken, or none: if one of them cannot be had, the others are released. No order of keys leads to a deadlock
run -t,--timeout . Seconds to wait in line. 0: do not wait. Not given: wait for ever
run --ttl . Length of the lease in seconds, instead of the server'\''s default
run --shared - Share the lock with others that give this option. Without it, the lock has one holder alone
run --limit . A semaphore of this many slots instead of a lock
run --name . The name of this holder in `dflock stats --long` and on the server'\''s page, instead of user, host, process id and the command without its arguments
run --value . Text about this holder that `dflock watch` prints for programs, such as its address: 1 to 256 bytes
run --one-of . Hold one of these items, separated by commas: the key is a semaphore of as many slots, and each slot has its item. All who use the key must name the same items in the same order; dflock notices only another number of them
run --grace . Seconds between TERM and KILL when the lease is lost; at most a third of the lease, or of --read-timeout, counts. If the server cannot be reached, TERM comes this long before the lease ends
run --reclaim . Seconds to look for the server after the connection broke. Not given: as long as the lease lasts, less --grace. A server with its default settings has given the lock away by then
run --hold-for . Hold the lock for at least this many seconds, even if the command ends sooner: for a job that several hosts start at about the same time, and that only one of them should do
run -E,--conflict-exit-code . Exit code for busy and timed out, instead of 1 and 75; without --json no message either
run + COMMAND The command and its arguments; `--` before them is optional
acquire 1 . The name of the lock: 1 to 256 bytes without blanks
acquire -k,--key FIRST Take this lock, too. May be given more than once; then all are taken, or none: if one of them cannot be had, the others are released. No order of keys leads to a deadlock
acquire -t,--timeout . Seconds to wait in line. 0: do not wait. Not given: wait for ever
acquire --ttl . Length of the lease in seconds, instead of the server'\''s default
acquire --shared - Share the lock with others that give this option. Without it, the lock has one holder alone
acquire --limit . A semaphore of this many slots instead of a lock
acquire --name . The name of this holder in `dflock stats --long` and on the server'\''s page, instead of user, host, process id and the command without its arguments
acquire --value . Text about this holder that `dflock watch` prints for programs, such as its address: 1 to 256 bytes
acquire --hold - Keep and renew it until standard input ends or a signal comes
release 1 . The name of the lock
release 2 . What acquire printed
renew 1 . The name of the lock
renew 2 . What acquire printed
renew --ttl . Length of the lease from now in seconds, instead of the server'\''s default
watch 1 . The name of the lock
watch --once - Print the present state, and end
stats 1 . Only this lock: all its holders, and the line of those that wait for it
stats -l,--long - Also show the names of the holders
force-release 1 . The name of the lock
force-release --http-port . The servers'\'' --http-port
force-release --admin-token-file FILE File with the secret of the servers'\'' --admin-token-file. Without it, the environment variable DFLOCK_ADMIN_TOKEN is used
kick 1 . The number of the connection, as stats shows it
kick --http-port . The servers'\'' --http-port
kick --admin-token-file FILE File with the secret of the servers'\'' --admin-token-file. Without it, the environment variable DFLOCK_ADMIN_TOKEN is used
bench -c,--connections . Simultaneous connections
bench -d,--duration . Seconds to measure
bench -n,--pairs . Stop after this many pairs instead
bench -k,--keys . Keys that all connections share [default: each connection has its own, and nobody waits]
bench --depth . Pairs at once on each connection; more than 1 only without --keys
bench --limit . Semaphores of this many slots; 1: locks
bench --shared - Shared locks: all connections are readers, and hold a key together
bench -t,--timeout . Seconds an acquire may wait
bench --ttl . Length of the leases in seconds
bench --warm-up . Milliseconds of load before measuring starts
bench --prefix . The prefix of the keys
completions 1 =bash,fish,zsh For which shell'

# Sets kind to what the row of command $1 says of $2: an option, or the number of a word (+: all further words).
_dflock_kind() {
    local row names help
    while read -r row names kind help; do
        if [[ $row == "$1" || $row == "*" ]] && [[ ,$names, == *",$2,"* ]]; then
            return
        fi
    done <<<"$_dflock_table"
    kind=
}

# Sets kind to that of the word at this place.
_dflock_place() {
    _dflock_kind "$command" "$1"
    [[ -n $kind ]] || _dflock_kind "$command" +
}

# Reads the words before the cursor. Sets command; kind, what the word at the cursor is; plain, if that word cannot be an
# option; and wrapped, the number of the first word of the wrapped command, if the cursor is or can be in it.
_dflock_walk() {
    local word number=0 place=0 value=
    command=- kind= plain= wrapped=
    for word; do
        number=$((number + 1))
        if [[ -n $value ]]; then
            # bash makes three words of --option=value.
            [[ $word == "=" ]] || value=
        elif [[ $word == -- && -z $plain ]]; then
            plain=yes
            _dflock_kind "$command" +
            [[ $kind != COMMAND ]] || { wrapped=$((number + 1)); return; }
        elif [[ $word == -?* && -z $plain ]]; then
            _dflock_kind "$command" "${word%%=*}"
            [[ $kind != FIRST || $place != 0 ]] || place=1
            [[ $kind == - || $word == *=* ]] || value=$kind
        else
            _dflock_kind - "$word"
            if [[ $command == - && $kind == VERB ]]; then
                command=$word
            else
                place=$((place + 1))
                _dflock_place "$place"
                [[ $kind != COMMAND ]] || { plain=yes wrapped=$number; return; }
            fi
        fi
    done
    if [[ -n $value ]]; then
        plain=yes kind=$value
    else
        _dflock_place $((place + 1))
        [[ $kind != COMMAND ]] || wrapped=$((number + 1))
        [[ $command != - || -n $plain$kind ]] || kind=VERB
    fi
}

_dflock() {
    local cur=${words[CURRENT]} command kind plain wrapped row names takes help
    local -a offered
    _dflock_walk "${(@)words[2,CURRENT-1]}"
    if [[ -z $plain && $cur == --*=* ]]; then
        _dflock_kind "$command" "${cur%%=*}"
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
        done <<<"$_dflock_table"
        _describe dflock offered
        ;;
    esac
}

if [[ ${funcstack[1]} == _dflock ]]; then
    _dflock "$@"
else
    compdef _dflock dflock
fi
