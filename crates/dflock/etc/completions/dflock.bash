# Completions of dflock, made from its command line.

_dflock_table='* -s,--server .
* --any-of .
* --auth-token-file FILE
* --trust-fences -
* --tls -
* --tls-ca FILE
* --tls-name .
* --patience .
* --read-timeout .
* --json -
* -q,--quiet -
* -h,--help -
- -V,--version -
- run VERB
- acquire VERB
- release VERB
- renew VERB
- watch VERB
- stats VERB
- force-release VERB
- kick VERB
- ping VERB
- bench VERB
- completions VERB
- help VERB
help 1 =run,acquire,release,renew,watch,stats,force-release,kick,ping,bench,completions,help
run 1 .
run -k,--key FIRST
run -t,--timeout .
run --ttl .
run --shared -
run --limit .
run --name .
run --value .
run --one-of .
run --grace .
run --reclaim .
run --hold-for .
run -E,--conflict-exit-code .
run + COMMAND
acquire 1 .
acquire -k,--key FIRST
acquire -t,--timeout .
acquire --ttl .
acquire --shared -
acquire --limit .
acquire --name .
acquire --value .
acquire --hold -
release 1 .
release 2 .
renew 1 .
renew 2 .
renew --ttl .
watch 1 .
watch --once -
stats 1 .
stats -l,--long -
force-release 1 .
force-release --http-port .
force-release --admin-token-file FILE
kick 1 .
kick --http-port .
kick --admin-token-file FILE
bench -c,--connections .
bench -d,--duration .
bench -n,--pairs .
bench -k,--keys .
bench --depth .
bench --limit .
bench --shared -
bench -t,--timeout .
bench --ttl .
bench --warm-up .
bench --prefix .
completions 1 =bash,fish,zsh'

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
    local cur=${COMP_WORDS[COMP_CWORD]} command kind plain wrapped row names takes help word IFS=$' \t\n'
    local offered=()
    COMPREPLY=()
    [[ $cur != "=" ]] || cur=
    _dflock_walk "${COMP_WORDS[@]:1:COMP_CWORD-1}"
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
        done <<<"$_dflock_table"
        ;;
    esac
    for word in "${offered[@]}"; do
        [[ $word != "$cur"* ]] || COMPREPLY+=("$word")
    done
}

complete -F _dflock dflock
