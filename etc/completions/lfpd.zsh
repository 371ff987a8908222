#compdef lfpd
# Completions of lfpd, made from its command line.

typeset -g _lfpd_table='- --lock-dir DIR Write lock files to this directory instead of the system'\''s own
- --search-dir DIR Search this directory for locks, instead of the built-in list (repeatable)
- --os =linux,freebsd,dragonfly,netbsd,openbsd,macos,solaris,illumos,aix,irix,unixware,tru64,qnx,generic Follow this system'\''s conventions for lock files [default: this one]
- --state-dir DIR Keep the start times of lock holders here
- --idle-timeout . Close a connection that was idle for this many seconds
- --listen . Listen on `127.0.0.1:PORT`, `[::1]:PORT` or `unix:PATH` (repeatable)
- --max-connections . When listening: at most this many connections in all
- --max-per-user . When listening: at most this many connections of one user
- --banner-version . The version in the greeting
- --trust-pid - Let any client name any process, as the original server did
- --anyone - Let processes lock devices that they may not open
- --watch-opens - When listening: lock ports for programs that open them without a lock
- --exclusive - When listening: let nobody but its holder open a locked port
- --exclusive-except . With --exclusive: do not make this port exclusive (repeatable)
- --force-group . Let this group (name or number) release any lock by FORCE, as root may
- --log-level =error,warning,notice,info,debug Log level: error, warning, notice, info or debug
- --log-facility . Log under this syslog facility: daemon, uucp, local0
* -h,--help - Print help
- -V,--version - Print version'

# Sets kind to what the row of command $1 says of $2: an option, or the number of a word (+: all further words).
_lfpd_kind() {
    local row names help
    while read -r row names kind help; do
        if [[ $row == "$1" || $row == "*" ]] && [[ ,$names, == *",$2,"* ]]; then
            return
        fi
    done <<<"$_lfpd_table"
    kind=
}

# Sets kind to that of the word at this place.
_lfpd_place() {
    _lfpd_kind "$command" "$1"
    [[ -n $kind ]] || _lfpd_kind "$command" +
}

# Reads the words before the cursor. Sets command; kind, what the word at the cursor is; plain, if that word cannot be an
# option; and wrapped, the number of the first word of the wrapped command, if the cursor is or can be in it.
_lfpd_walk() {
    local word number=0 place=0 value=
    command=- kind= plain= wrapped=
    for word; do
        number=$((number + 1))
        if [[ -n $value ]]; then
            # bash makes three words of --option=value.
            [[ $word == "=" ]] || value=
        elif [[ $word == -- && -z $plain ]]; then
            plain=yes
            _lfpd_kind "$command" +
            [[ $kind != COMMAND ]] || { wrapped=$((number + 1)); return; }
        elif [[ $word == -?* && -z $plain ]]; then
            _lfpd_kind "$command" "${word%%=*}"
            [[ $kind != FIRST || $place != 0 ]] || place=1
            [[ $kind == - || $word == *=* ]] || value=$kind
        else
            _lfpd_kind - "$word"
            if [[ $command == - && $kind == VERB ]]; then
                command=$word
            else
                place=$((place + 1))
                _lfpd_place "$place"
                [[ $kind != COMMAND ]] || { plain=yes wrapped=$number; return; }
            fi
        fi
    done
    if [[ -n $value ]]; then
        plain=yes kind=$value
    else
        _lfpd_place $((place + 1))
        [[ $kind != COMMAND ]] || wrapped=$((number + 1))
        [[ $command != - || -n $plain$kind ]] || kind=VERB
    fi
}

_lfpd() {
    local cur=${words[CURRENT]} command kind plain wrapped row names takes help
    local -a offered
    _lfpd_walk "${(@)words[2,CURRENT-1]}"
    if [[ -z $plain && $cur == --*=* ]]; then
        _lfpd_kind "$command" "${cur%%=*}"
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
        done <<<"$_lfpd_table"
        _describe lfpd offered
        ;;
    esac
}

if [[ ${funcstack[1]} == _lfpd ]]; then
    _lfpd "$@"
else
    compdef _lfpd lfpd
fi
