# Completions of lfp, made from its command line.

_lfp_table='* --server .
* --direct -
* --json -
* -q,--quiet -
* -h,--help -
- -V,--version -
- who VERB
- run VERB
- list VERB
- lock VERB
- unlock VERB
- wait VERB
- ask VERB
- pass VERB
- clean VERB
- shim VERB
- adopt VERB
- completions VERB
- help VERB
help 1 =who,run,list,lock,unlock,wait,ask,pass,clean,shim,adopt,completions,help
who + DEVICE
who -w,--watch -
run 1 DEVICE
run -a,--also DEVICE
run -t,--timeout .
run --absent -
run --yield-on =TERM,INT,HUP,QUIT,KILL,USR1,USR2,CONT
run --exclusive -
run --no-fork -
run --shim -
run --no-shim -
run --ports -
run -E,--conflict-exit-code .
run + COMMAND
list -a,--all -
list -w,--watch -
lock 1 DEVICE
lock --pid .
lock -E,--conflict-exit-code .
lock --absent -
unlock 1 DEVICE
unlock --pid .
unlock -E,--conflict-exit-code .
unlock --force -
unlock --signal =TERM,INT,HUP,QUIT,KILL,USR1,USR2,CONT
unlock --grace .
wait 1 DEVICE
wait --pid .
wait -E,--conflict-exit-code .
wait --absent -
wait -t,--timeout .
ask 1 DEVICE
ask -t,--timeout .
ask -E,--conflict-exit-code .
pass 1 DEVICE
pass --pid .
pass -E,--conflict-exit-code .
pass --to .
shim --ports -
shim --also DEVICE
shim --exclusive -
shim --wait .
shim --or-plain -
shim + COMMAND
adopt 1 COMMAND
adopt --ports -
adopt --files -
adopt --undo -
completions 1 =bash,fish,zsh'

# Sets kind to what the row of command $1 says of $2: an option, or the number of a word (+: all further words).
_lfp_kind() {
    local row names help
    while read -r row names kind help; do
        if [[ $row == "$1" || $row == "*" ]] && [[ ,$names, == *",$2,"* ]]; then
            return
        fi
    done <<<"$_lfp_table"
    kind=
}

# Sets kind to that of the word at this place.
_lfp_place() {
    _lfp_kind "$command" "$1"
    [[ -n $kind ]] || _lfp_kind "$command" +
}

# Reads the words before the cursor. Sets command; kind, what the word at the cursor is; plain, if that word cannot be an
# option; and wrapped, the number of the first word of the wrapped command, if the cursor is or can be in it.
_lfp_walk() {
    local word number=0 place=0 value=
    command=- kind= plain= wrapped=
    for word; do
        number=$((number + 1))
        if [[ -n $value ]]; then
            # bash makes three words of --option=value.
            [[ $word == "=" ]] || value=
        elif [[ $word == -- && -z $plain ]]; then
            plain=yes
            _lfp_kind "$command" +
            [[ $kind != COMMAND ]] || { wrapped=$((number + 1)); return; }
        elif [[ $word == -?* && -z $plain ]]; then
            _lfp_kind "$command" "${word%%=*}"
            [[ $kind != FIRST || $place != 0 ]] || place=1
            [[ $kind == - || $word == *=* ]] || value=$kind
        else
            _lfp_kind - "$word"
            if [[ $command == - && $kind == VERB ]]; then
                command=$word
            else
                place=$((place + 1))
                _lfp_place "$place"
                [[ $kind != COMMAND ]] || { plain=yes wrapped=$number; return; }
            fi
        fi
    done
    if [[ -n $value ]]; then
        plain=yes kind=$value
    else
        _lfp_place $((place + 1))
        [[ $kind != COMMAND ]] || wrapped=$((number + 1))
        [[ $command != - || -n $plain$kind ]] || kind=VERB
    fi
}

_lfp() {
    local cur=${COMP_WORDS[COMP_CWORD]} command kind plain wrapped row names takes help word IFS=$' \t\n'
    local offered=()
    COMPREPLY=()
    [[ $cur != "=" ]] || cur=
    _lfp_walk "${COMP_WORDS[@]:1:COMP_CWORD-1}"
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
        done <<<"$_lfp_table"
        ;;
    esac
    for word in "${offered[@]}"; do
        [[ $word != "$cur"* ]] || COMPREPLY+=("$word")
    done
}

complete -F _lfp lfp
