#compdef semats
# Completions of semats, made from its command line.

typeset -g _semats_table='* -t,--tag . The purpose of the lock
* --timeout . Give up waiting after this many milliseconds
* -f,--force - Release the lock even if another process holds it
* -j,--json - Print JSON
* -v,--verbose - Print each step to standard error
* --version - Show the version
* -h,--help - Print help
- acquire VERB Wait until the lock is free and take it
- try-acquire VERB Take the lock if it is free
- release VERB Release the lock
- status VERB Show who holds the lock
- clean VERB Remove the lock if it is stale, and old temporary files
acquire 1 FILE 
try-acquire 1 FILE 
release 1 FILE 
status 1 FILE 
clean 1 FILE '

# Sets kind to what the row of command $1 says of $2: an option, or the number of a word (+: all further words).
_semats_kind() {
    local row names help
    while read -r row names kind help; do
        if [[ $row == "$1" || $row == "*" ]] && [[ ,$names, == *",$2,"* ]]; then
            return
        fi
    done <<<"$_semats_table"
    kind=
}

# Sets kind to that of the word at this place.
_semats_place() {
    _semats_kind "$command" "$1"
    [[ -n $kind ]] || _semats_kind "$command" +
}

# Reads the words before the cursor. Sets command; kind, what the word at the cursor is; plain, if that word cannot be an
# option; and wrapped, the number of the first word of the wrapped command, if the cursor is or can be in it.
_semats_walk() {
    local word number=0 place=0 value=
    command=- kind= plain= wrapped=
    for word; do
        number=$((number + 1))
        if [[ -n $value ]]; then
            # bash makes three words of --option=value.
            [[ $word == "=" ]] || value=
        elif [[ $word == -- && -z $plain ]]; then
            plain=yes
            _semats_kind "$command" +
            [[ $kind != COMMAND ]] || { wrapped=$((number + 1)); return; }
        elif [[ $word == -?* && -z $plain ]]; then
            _semats_kind "$command" "${word%%=*}"
            [[ $kind != FIRST || $place != 0 ]] || place=1
            [[ $kind == - || $word == *=* ]] || value=$kind
        else
            _semats_kind - "$word"
            if [[ $command == - && $kind == VERB ]]; then
                command=$word
            else
                place=$((place + 1))
                _semats_place "$place"
                [[ $kind != COMMAND ]] || { plain=yes wrapped=$number; return; }
            fi
        fi
    done
    if [[ -n $value ]]; then
        plain=yes kind=$value
    else
        _semats_place $((place + 1))
        [[ $kind != COMMAND ]] || wrapped=$((number + 1))
        [[ $command != - || -n $plain$kind ]] || kind=VERB
    fi
}

_semats() {
    local cur=${words[CURRENT]} command kind plain wrapped row names takes help
    local -a offered
    _semats_walk "${(@)words[2,CURRENT-1]}"
    if [[ -z $plain && $cur == --*=* ]]; then
        _semats_kind "$command" "${cur%%=*}"
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
        done <<<"$_semats_table"
        _describe semats offered
        ;;
    esac
}

if [[ ${funcstack[1]} == _semats ]]; then
    _semats "$@"
else
    compdef _semats semats
fi
