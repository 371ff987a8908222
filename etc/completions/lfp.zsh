#compdef lfp
# Completions of lfp, made from its command line.

typeset -g _lfp_table='* --server . Ask this service: unix:PATH, a path, or a loopback ADDRESS:PORT [default: /run/lfpd/lfpd.sock, then 127.0.0.1:50001]
* --direct - Ask no service; use the lock files themselves
* --json - Print JSON instead of text, also if it fails: one value on one line
* -q,--quiet - Print no answer, and no message if another process has the device: the exit code says it
* -h,--help - Print help
- -V,--version - Print version
- who VERB Show which processes hold these devices, and how
- run VERB Hold a device while a command runs
- list VERB Show every holder on this machine
- lock VERB Lock a device for a process, or name the holder
- unlock VERB Release a device for a process
- wait VERB Take a device for a process as soon as it is free
- ask VERB Ask the holder under `lfp run --yield-on` to release a device
- pass VERB Hand a device from one process to another, without a gap
- clean VERB Remove the locks of processes that are gone
- shim VERB Run a command with its locks taken through the service
- adopt VERB Make a program lock through the service for every user
- completions VERB Print the completions of a shell
- help VERB Print this message or the help of the given subcommand(s)
help 1 =who,run,list,lock,unlock,wait,ask,pass,clean,shim,adopt,completions,help 
who + DEVICE /dev/NAME or NAME [default: every device with a holder]
who -w,--watch - Show the table again whenever it changes
run 1 DEVICE /dev/NAME or NAME
run -a,--also DEVICE Hold this device as well: all of them, or none
run -t,--timeout . Wait for the device, for this many seconds [default: do not wait]
run --absent - Lock DEVICE even if there is no such device yet
run --yield-on =TERM,INT,HUP,QUIT,KILL,USR1,USR2,CONT Send the command this signal when another process waits for the device
run --exclusive - While the command has the device open, have the kernel refuse it to all other programs (TIOCEXCL)
run --no-fork - Become the command instead of waiting for its end, so that the process number stays
run --shim - Turn the command'\''s lock files into locks of the service, so that it gets the port [default: where liblfp_preload.so is installed and can be loaded into COMMAND]
run --no-shim - Do not use liblfp_preload.so, even if it is installed
run --ports - With --shim, let programs that make no lock files lock every serial port they open
run -E,--conflict-exit-code . The exit code if another process has the device
run + COMMAND What to run, with its arguments
list -a,--all - Show free devices too
list -w,--watch - Show the table again whenever it changes
lock 1 DEVICE /dev/NAME or NAME
lock --pid . The process that holds the lock [default: the shell or program that called lfp]
lock -E,--conflict-exit-code . The exit code if another process has the device
lock --absent - Lock DEVICE even if there is no such device yet
unlock 1 DEVICE /dev/NAME or NAME
unlock --pid . The process that holds the lock [default: the shell or program that called lfp]
unlock -E,--conflict-exit-code . The exit code if another process has the device
unlock --force - Release the lock of any process: for root and the group of `lfpd --force-group`
unlock --signal =TERM,INT,HUP,QUIT,KILL,USR1,USR2,CONT Send the holder this signal first
unlock --grace . Wait this many seconds for the holder to release it
wait 1 DEVICE /dev/NAME or NAME
wait --pid . The process that holds the lock [default: the shell or program that called lfp]
wait -E,--conflict-exit-code . The exit code if another process has the device
wait --absent - Lock DEVICE even if there is no such device yet
wait -t,--timeout . Give up after this many seconds, such as 10 or 0.5 [default: never]
ask 1 DEVICE /dev/NAME or NAME
ask -t,--timeout . Wait this many seconds for the holder to release it
ask -E,--conflict-exit-code . The exit code if another process has the device
pass 1 DEVICE /dev/NAME or NAME
pass --pid . The process that holds the lock [default: the shell or program that called lfp]
pass -E,--conflict-exit-code . The exit code if another process has the device
pass --to . The process that gets the lock
shim --ports - Let programs that make no lock files lock every serial port they open
shim --also DEVICE Treat this device as a serial port too
shim --exclusive - Have the kernel refuse these ports to all other programs while they are open (TIOCEXCL)
shim --wait . Wait in line for a busy port, for this many seconds [default: do not wait]
shim --or-plain - If the library cannot be loaded into COMMAND, run COMMAND without it
shim + COMMAND What to run, with its arguments
adopt 1 COMMAND The name of a program in PATH
adopt --ports - Let it lock every serial port it opens (default)
adopt --files - Turn its lock files into locks of the service, but lock no ports that it only opens
adopt --undo - Remove the script again: the program starts as before
completions 1 =bash,fish,zsh '

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
    local cur=${words[CURRENT]} command kind plain wrapped row names takes help
    local -a offered
    _lfp_walk "${(@)words[2,CURRENT-1]}"
    if [[ -z $plain && $cur == --*=* ]]; then
        _lfp_kind "$command" "${cur%%=*}"
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
        done <<<"$_lfp_table"
        _describe lfp offered
        ;;
    esac
}

if [[ ${funcstack[1]} == _lfp ]]; then
    _lfp "$@"
else
    compdef _lfp lfp
fi
