#compdef sema
# Completions of sema, made from its command line.

typeset -g _sema_table='* --json - Print JSON instead of text, also if it fails: one value on one line
* -q,--quiet - Print no answer, and no message if the lock is held: the exit code says it
* -h,--help - Print help
- -V,--version - Print version
- try VERB Take a lock if it is free or stale
- acquire VERB Wait until a lock can be taken, and take it
- release VERB Release a lock
- touch VERB Renew a lock, so that it does not count as old
- status VERB Show who holds a lock
- wait VERB Wait until a lock is free or stale, without taking it
- list VERB Show all locks in a directory
- clean VERB Remove a lock if it is stale, or everything stale in a directory
- run VERB Run a command while holding a lock
- completions VERB Print completions for a shell
- help VERB Print this message or the help of the given subcommand(s)
help 1 =try,acquire,release,touch,status,wait,list,clean,run,completions,help 
try 1 FILE The lock file; its directory must exist
try --slots . How many may hold the lock at once; if more than one, the slots are PATH.1 to PATH.N
try --stale . A lock older than this counts as old; 0: no lock is ever stale [default: 3600]
try --stale-when =dead,host,age When a lock is stale. dead: its holder is dead. host: also if it was taken under this host name in a container that is not visible here. age: also if it is old, even if its holder lives
try --pid . The process that holds the lock [default: the calling process]
try --persist - Take the lock without an owner: it is held until `sema release`
try --tag . The purpose of the lock; `sema status` shows it
try -s,--shared - Share the lock with others that use --shared; without it, there is one holder
try --mode . Permission bits of the lock file, octal
acquire 1 FILE The lock file; its directory must exist
acquire --slots . How many may hold the lock at once; if more than one, the slots are PATH.1 to PATH.N
acquire --stale . A lock older than this counts as old; 0: no lock is ever stale [default: 3600]
acquire --stale-when =dead,host,age When a lock is stale. dead: its holder is dead. host: also if it was taken under this host name in a container that is not visible here. age: also if it is old, even if its holder lives
acquire -t,--timeout . Give up after this many seconds, such as 10 or 0.5 [default: never]
acquire --pid . The process that holds the lock [default: the calling process]
acquire --persist - Take the lock without an owner: it is held until `sema release`
acquire --tag . The purpose of the lock; `sema status` shows it
acquire -s,--shared - Share the lock with others that use --shared; without it, there is one holder
acquire --mode . Permission bits of the lock file, octal
release 1 FILE The lock file; its directory must exist
release --slots . How many may hold the lock at once; if more than one, the slots are PATH.1 to PATH.N
release --stale . A lock older than this counts as old; 0: no lock is ever stale [default: 3600]
release --stale-when =dead,host,age When a lock is stale. dead: its holder is dead. host: also if it was taken under this host name in a container that is not visible here. age: also if it is old, even if its holder lives
release --pid . The process that holds the lock [default: the calling process]
release -f,--force - Release the lock even if another process holds it
release --slot . Only this one of several slots
touch 1 FILE The lock file; its directory must exist
touch --slots . How many may hold the lock at once; if more than one, the slots are PATH.1 to PATH.N
touch --stale . A lock older than this counts as old; 0: no lock is ever stale [default: 3600]
touch --stale-when =dead,host,age When a lock is stale. dead: its holder is dead. host: also if it was taken under this host name in a container that is not visible here. age: also if it is old, even if its holder lives
touch --pid . The process that holds the lock [default: the calling process]
status 1 FILE The lock file; its directory must exist
status --slots . How many may hold the lock at once; if more than one, the slots are PATH.1 to PATH.N
status --stale . A lock older than this counts as old; 0: no lock is ever stale [default: 3600]
status --stale-when =dead,host,age When a lock is stale. dead: its holder is dead. host: also if it was taken under this host name in a container that is not visible here. age: also if it is old, even if its holder lives
wait 1 FILE The lock file; its directory must exist
wait --slots . How many may hold the lock at once; if more than one, the slots are PATH.1 to PATH.N
wait --stale . A lock older than this counts as old; 0: no lock is ever stale [default: 3600]
wait --stale-when =dead,host,age When a lock is stale. dead: its holder is dead. host: also if it was taken under this host name in a container that is not visible here. age: also if it is old, even if its holder lives
wait -t,--timeout . Give up after this many seconds, such as 10 or 0.5 [default: never]
wait --all - Wait until nobody holds the lock: with several slots, until all are free
list 1 DIR The directory
list --stale . A lock older than this counts as old; 0: no lock is ever stale [default: 3600]
list --stale-when =dead,host,age When a lock is stale. dead: its holder is dead. host: also if it was taken under this host name in a container that is not visible here. age: also if it is old, even if its holder lives
list --only-stale - Show stale locks only
clean 1 FILE The lock file; its directory must exist
clean --slots . How many may hold the lock at once; if more than one, the slots are PATH.1 to PATH.N
clean --stale . A lock older than this counts as old; 0: no lock is ever stale [default: 3600]
clean --stale-when =dead,host,age When a lock is stale. dead: its holder is dead. host: also if it was taken under this host name in a container that is not visible here. age: also if it is old, even if its holder lives
run 1 FILE The lock file; its directory must exist
run --slots . How many may hold the lock at once; if more than one, the slots are PATH.1 to PATH.N
run --stale . A lock older than this counts as old; 0: no lock is ever stale [default: 3600]
run --stale-when =dead,host,age When a lock is stale. dead: its holder is dead. host: also if it was taken under this host name in a container that is not visible here. age: also if it is old, even if its holder lives
run -t,--timeout . Give up after this many seconds, such as 10 or 0.5 [default: never]
run --tag . The purpose of the lock; `sema status` shows it
run -s,--shared - Share the lock with others that use --shared; without it, there is one holder
run --mode . Permission bits of the lock file, octal
run -n,--nonblock - Give up at once if the lock is held
run -E,--conflict-exit-code . The exit code when the lock is held or the time is up, instead of 1
run --with FILE One more lock to hold; may be given several times
run -v,--verbose - Print to standard error the holder, how long the wait took, and the command
run --bg - Return as soon as the command runs; it continues in the background, without input
run -c,--command . Run this line in a shell
run + COMMAND The command and its arguments; `--` before them is optional
completions 1 =bash,fish,zsh For which shell'

# Sets kind to what the row of command $1 says of $2: an option, or the number of a word (+: all further words).
_sema_kind() {
    local row names help
    while read -r row names kind help; do
        if [[ $row == "$1" || $row == "*" ]] && [[ ,$names, == *",$2,"* ]]; then
            return
        fi
    done <<<"$_sema_table"
    kind=
}

# Sets kind to that of the word at this place.
_sema_place() {
    _sema_kind "$command" "$1"
    [[ -n $kind ]] || _sema_kind "$command" +
}

# Reads the words before the cursor. Sets command; kind, what the word at the cursor is; plain, if that word cannot be an
# option; and wrapped, the number of the first word of the wrapped command, if the cursor is or can be in it.
_sema_walk() {
    local word number=0 place=0 value=
    command=- kind= plain= wrapped=
    for word; do
        number=$((number + 1))
        if [[ -n $value ]]; then
            # bash makes three words of --option=value.
            [[ $word == "=" ]] || value=
        elif [[ $word == -- && -z $plain ]]; then
            plain=yes
            _sema_kind "$command" +
            [[ $kind != COMMAND ]] || { wrapped=$((number + 1)); return; }
        elif [[ $word == -?* && -z $plain ]]; then
            _sema_kind "$command" "${word%%=*}"
            [[ $kind != FIRST || $place != 0 ]] || place=1
            [[ $kind == - || $word == *=* ]] || value=$kind
        else
            _sema_kind - "$word"
            if [[ $command == - && $kind == VERB ]]; then
                command=$word
            else
                place=$((place + 1))
                _sema_place "$place"
                [[ $kind != COMMAND ]] || { plain=yes wrapped=$number; return; }
            fi
        fi
    done
    if [[ -n $value ]]; then
        plain=yes kind=$value
    else
        _sema_place $((place + 1))
        [[ $kind != COMMAND ]] || wrapped=$((number + 1))
        [[ $command != - || -n $plain$kind ]] || kind=VERB
    fi
}

_sema() {
    local cur=${words[CURRENT]} command kind plain wrapped row names takes help
    local -a offered
    _sema_walk "${(@)words[2,CURRENT-1]}"
    if [[ -z $plain && $cur == --*=* ]]; then
        _sema_kind "$command" "${cur%%=*}"
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
        done <<<"$_sema_table"
        _describe sema offered
        ;;
    esac
}

if [[ ${funcstack[1]} == _sema ]]; then
    _sema "$@"
else
    compdef _sema sema
fi
