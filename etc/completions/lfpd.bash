# Completions of lfpd, made from its command line.

_lfpd_table='- --lock-dir DIR
- --search-dir DIR
- --os =linux,freebsd,dragonfly,netbsd,openbsd,macos,solaris,illumos,aix,irix,unixware,tru64,qnx,generic
- --state-dir DIR
- --idle-timeout .
- --listen .
- --max-connections .
- --max-per-user .
- --banner-version .
- --trust-pid -
- --anyone -
- --watch-opens -
- --exclusive -
- --exclusive-except .
- --force-group .
- --log-level =error,warning,notice,info,debug
- --log-facility .
* -h,--help -
- -V,--version -'

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
    local cur=${COMP_WORDS[COMP_CWORD]} command kind plain wrapped row names takes help word IFS=$' \t\n'
    local offered=()
    COMPREPLY=()
    [[ $cur != "=" ]] || cur=
    _lfpd_walk "${COMP_WORDS[@]:1:COMP_CWORD-1}"
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
        done <<<"$_lfpd_table"
        ;;
    esac
    for word in "${offered[@]}"; do
        [[ $word != "$cur"* ]] || COMPREPLY+=("$word")
    done
}

complete -F _lfpd lfpd
