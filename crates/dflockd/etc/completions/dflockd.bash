# Completions of dflockd, made from its command line.

_dflockd_table='- --host .
- --port .
- --unix-socket FILE
- --http-host .
- --http-port .
- --http-session-idle-timeout .
- --http-max-sessions .
- --http-max-sessions-per-ip .
- --http-max-connections-per-ip .
- --http-rate-limit-per-ip .
- --http-rate-limit-burst .
- --http-cors-allowed-origins .
- --default-lease-ttl .
- --lease-sweep-interval .
- --gc-interval .
- --gc-max-idle .
- --max-locks .
- --max-waiters .
- --max-holds .
- --max-holds-per-connection .
- --max-connections .
- --max-watchers .
- --max-connections-per-ip .
- --read-timeout .
- --write-timeout .
- --shutdown-timeout .
- --auto-release-on-disconnect -
- --disconnect-grace .
- --tls-cert FILE
- --tls-key FILE
- --auth-token .
- --auth-token-file FILE
- --auth-prefix-file FILE
- --admin-token-file FILE
- --metrics-token-file FILE
- --state-dir DIR
- --state-sync -
- --startup-grace .
- --store =memory,etcd
- --advertise .
- --etcd-endpoints .
- --etcd-prefix .
- --etcd-ca FILE
- --etcd-cert FILE
- --etcd-key FILE
- --etcd-user .
- --etcd-password-file FILE
- --debug -
- --version -
* -h,--help -'

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
    local cur=${COMP_WORDS[COMP_CWORD]} command kind plain wrapped row names takes help word IFS=$' \t\n'
    local offered=()
    COMPREPLY=()
    [[ $cur != "=" ]] || cur=
    _dflockd_walk "${COMP_WORDS[@]:1:COMP_CWORD-1}"
    [[ -n $plain || $cur != -* ]] || kind=OPTION
    case $kind in
    COMMAND)
        # Of the package bash-completion.
        if declare -F _command_offset >/dev/null; then
            _command_offset "$wrapped"
        elif ((COMP_CWORD == wrapped)); then
            mapfile -t COMPREPLY < <(compgen -c -- "$cur")
        else
            compopt -o default
        fi
        return
        ;;
    FILE) compopt -o default ;;
    DIR) compopt -o dirnames ;;
    DEVICE)
        for word in /dev/tty[A-Z]* /dev/cu[.a]* /dev/rfcomm* /dev/serial/by-id/*; do
            [[ -z $cur || $cur == /* ]] || word=${word#/dev/}
            [[ $word == *[*]* ]] || offered+=("$word")
        done
        ;;
    "="*) IFS=, read -r -a offered <<<"${kind#=}" ;;
    OPTION | VERB)
        while read -r row names takes help; do
            [[ $row == "$command" || $row == "*" ]] || continue
            [[ $kind != "$takes" && $kind$names != OPTION-* ]] || offered+=("${names##*,}")
        done <<<"$_dflockd_table"
        ;;
    esac
    for word in "${offered[@]}"; do
        [[ $word != "$cur"* ]] || COMPREPLY+=("$word")
    done
}

complete -F _dflockd dflockd
