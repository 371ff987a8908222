# Completions of sema, made from its command line.

_sema_table='* --json -
* -q,--quiet -
* -h,--help -
- -V,--version -
- try VERB
- acquire VERB
- release VERB
- touch VERB
- status VERB
- wait VERB
- list VERB
- clean VERB
- run VERB
- completions VERB
- help VERB
help 1 =try,acquire,release,touch,status,wait,list,clean,run,completions,help
try 1 FILE
try --slots .
try --stale .
try --stale-when =dead,host,age
try --pid .
try --persist -
try --tag .
try -s,--shared -
try --mode .
acquire 1 FILE
acquire --slots .
acquire --stale .
acquire --stale-when =dead,host,age
acquire -t,--timeout .
acquire --pid .
acquire --persist -
acquire --tag .
acquire -s,--shared -
acquire --mode .
release 1 FILE
release --slots .
release --stale .
release --stale-when =dead,host,age
release --pid .
release -f,--force -
release --slot .
touch 1 FILE
touch --slots .
touch --stale .
touch --stale-when =dead,host,age
touch --pid .
status 1 FILE
status --slots .
status --stale .
status --stale-when =dead,host,age
wait 1 FILE
wait --slots .
wait --stale .
wait --stale-when =dead,host,age
wait -t,--timeout .
wait --all -
list 1 DIR
list --stale .
list --stale-when =dead,host,age
list --only-stale -
clean 1 FILE
clean --slots .
clean --stale .
clean --stale-when =dead,host,age
run 1 FILE
run --slots .
run --stale .
run --stale-when =dead,host,age
run -t,--timeout .
run --tag .
run -s,--shared -
run --mode .
run -n,--nonblock -
run -E,--conflict-exit-code .
run --with FILE
run -v,--verbose -
run --bg -
run -c,--command .
run + COMMAND
completions 1 =bash,fish,zsh'

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
    local cur=${COMP_WORDS[COMP_CWORD]} command kind plain wrapped row names takes help word IFS=$' \t\n'
    local offered=()
    COMPREPLY=()
    [[ $cur != "=" ]] || cur=
    _sema_walk "${COMP_WORDS[@]:1:COMP_CWORD-1}"
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
        done <<<"$_sema_table"
        ;;
    esac
    for word in "${offered[@]}"; do
        [[ $word != "$cur"* ]] || COMPREPLY+=("$word")
    done
}

complete -F _sema sema
