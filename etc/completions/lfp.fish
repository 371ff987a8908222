# Completions of lfp, made from its command line.

set --global __lfp_table \
    '* --server . Ask this service: unix:PATH, a path, or a loopback ADDRESS:PORT [default: /run/lfpd/lfpd.sock, then 127.0.0.1:50001]' \
    '* --direct - Ask no service; use the lock files themselves' \
    '* --json - Print JSON instead of text, also if it fails: one value on one line' \
    '* -q,--quiet - Print no answer, and no message if another process has the device: the exit code says it' \
    '* -h,--help - Print help' \
    '- -V,--version - Print version' \
    '- who VERB Show which processes hold these devices, and how' \
    '- run VERB Hold a device while a command runs' \
    '- list VERB Show every holder on this machine' \
    '- lock VERB Lock a device for a process, or name the holder' \
    '- unlock VERB Release a device for a process' \
    '- wait VERB Take a device for a process as soon as it is free' \
    '- ask VERB Ask the holder under `lfp run --yield-on` to release a device' \
    '- pass VERB Hand a device from one process to another, without a gap' \
    '- clean VERB Remove the locks of processes that are gone' \
    '- shim VERB Run a command with its locks taken through the service' \
    '- adopt VERB Make a program lock through the service for every user' \
    '- completions VERB Print the completions of a shell' \
    '- help VERB Print this message or the help of the given subcommand(s)' \
    'help 1 =who,run,list,lock,unlock,wait,ask,pass,clean,shim,adopt,completions,help ' \
    'who + DEVICE /dev/NAME or NAME [default: every device with a holder]' \
    'who -w,--watch - Show the table again whenever it changes' \
    'run 1 DEVICE /dev/NAME or NAME' \
    'run -a,--also DEVICE Hold this device as well: all of them, or none' \
    'run -t,--timeout . Wait for the device, for this many seconds [default: do not wait]' \
    'run --absent - Lock DEVICE even if there is no such device yet' \
    'run --yield-on =TERM,INT,HUP,QUIT,KILL,USR1,USR2,CONT Send the command this signal when another process waits for the device' \
    'run --exclusive - While the command has the device open, have the kernel refuse it to all other programs (TIOCEXCL)' \
    'run --no-fork - Become the command instead of waiting for its end, so that the process number stays' \
    'run --shim - Turn the command\'s lock files into locks of the service, so that it gets the port [default: where liblfp_preload.so is installed and can be loaded into COMMAND]' \
    'run --no-shim - Do not use liblfp_preload.so, even if it is installed' \
    'run --ports - With --shim, let programs that make no lock files lock every serial port they open' \
    'run -E,--conflict-exit-code . The exit code if another process has the device' \
    'run + COMMAND What to run, with its arguments' \
    'list -a,--all - Show free devices too' \
    'list -w,--watch - Show the table again whenever it changes' \
    'lock 1 DEVICE /dev/NAME or NAME' \
    'lock --pid . The process that holds the lock [default: the shell or program that called lfp]' \
    'lock -E,--conflict-exit-code . The exit code if another process has the device' \
    'lock --absent - Lock DEVICE even if there is no such device yet' \
    'unlock 1 DEVICE /dev/NAME or NAME' \
    'unlock --pid . The process that holds the lock [default: the shell or program that called lfp]' \
    'unlock -E,--conflict-exit-code . The exit code if another process has the device' \
    'unlock --force - Release the lock of any process: for root and the group of `lfpd --force-group`' \
    'unlock --signal =TERM,INT,HUP,QUIT,KILL,USR1,USR2,CONT Send the holder this signal first' \
    'unlock --grace . Wait this many seconds for the holder to release it' \
    'wait 1 DEVICE /dev/NAME or NAME' \
    'wait --pid . The process that holds the lock [default: the shell or program that called lfp]' \
    'wait -E,--conflict-exit-code . The exit code if another process has the device' \
    'wait --absent - Lock DEVICE even if there is no such device yet' \
    'wait -t,--timeout . Give up after this many seconds, such as 10 or 0.5 [default: never]' \
    'ask 1 DEVICE /dev/NAME or NAME' \
    'ask -t,--timeout . Wait this many seconds for the holder to release it' \
    'ask -E,--conflict-exit-code . The exit code if another process has the device' \
    'pass 1 DEVICE /dev/NAME or NAME' \
    'pass --pid . The process that holds the lock [default: the shell or program that called lfp]' \
    'pass -E,--conflict-exit-code . The exit code if another process has the device' \
    'pass --to . The process that gets the lock' \
    'shim --ports - Let programs that make no lock files lock every serial port they open' \
    'shim --also DEVICE Treat this device as a serial port too' \
    'shim --exclusive - Have the kernel refuse these ports to all other programs while they are open (TIOCEXCL)' \
    'shim --wait . Wait in line for a busy port, for this many seconds [default: do not wait]' \
    'shim --or-plain - If the library cannot be loaded into COMMAND, run COMMAND without it' \
    'shim + COMMAND What to run, with its arguments' \
    'adopt 1 COMMAND The name of a program in PATH' \
    'adopt --ports - Let it lock every serial port it opens (default)' \
    'adopt --files - Turn its lock files into locks of the service, but lock no ports that it only opens' \
    'adopt --undo - Remove the script again: the program starts as before' \
    'completions 1 =bash,fish,zsh ' \

# What the row of a command says of an option, or of the number of a word (+: all further words).
function __lfp_kind --argument-names command name
    for row in $__lfp_table
        set -l cells (string split -m 3 ' ' -- $row)
        if contains -- $cells[1] $command '*'; and contains -- $name (string split , -- $cells[2])
            echo $cells[3]
            return
        end
    end
end

# The kind of the word at a place.
function __lfp_place --argument-names command place
    set -l kind (__lfp_kind $command $place)
    test -n "$kind"; or set kind (__lfp_kind $command +)
    echo $kind
end

function __lfp_complete
    set -l words (commandline --current-process --tokenize --cut-at-cursor)
    set -e words[1]
    set -l cur "$(commandline --current-token --cut-at-cursor)"
    set -l command -
    set -l plain no
    set -l place 0
    set -l value
    set -l kind
    set -l before
    while set -q words[1]
        set -l word $words[1]
        if test -n "$value"
            set value
        else if test "$word" = --; and test $plain = no
            set plain yes
            set kind (__lfp_kind $command +)
            if test "$kind" = COMMAND
                set -e words[1]
                break
            end
        else if string match -q -- '-?*' $word; and test $plain = no
            set kind (__lfp_kind $command (string replace -r '=.*' '' -- $word))
            test "$kind" = FIRST; and test $place = 0; and set place 1
            test "$kind" = -; or string match -q -- '*=*' $word; or set value $kind
        else if test $command = -; and test "$(__lfp_kind - $word)" = VERB
            set command $word
        else
            set place (math $place + 1)
            set kind (__lfp_place $command $place)
            if test "$kind" = COMMAND
                set plain yes
                break
            end
        end
        set kind
        set -e words[1]
    end
    if test -n "$value"
        set plain yes
        set kind $value
    else if test -z "$kind"
        set kind (__lfp_place $command (math $place + 1))
        if test -z "$kind"; and test $command = -; and test $plain = no
            set kind VERB
        end
    end
    if test $plain = no; and string match -q -- '--*=*' $cur
        set before (string replace -r '=.*' '=' -- $cur)
        set kind (__lfp_kind $command (string replace -r '=.*' '' -- $cur))
        set cur (string replace -r '^[^=]*=' '' -- $cur)
    else if test $plain = no; and string match -q -- '-*' $cur
        set kind OPTION
    end
    switch "$kind"
        case COMMAND
            complete --do-complete (string join ' ' -- (string escape -- $words) "$cur")
        case FILE
            string replace -r -- '^' "$before" (__fish_complete_path "$cur")
        case DIR
            string replace -r -- '^' "$before" (__fish_complete_directories "$cur")
        case DEVICE
            # `set` takes patterns that match nothing.
            set -l ports /dev/tty* /dev/cu* /dev/rfcomm* /dev/serial/by-id/*
            set ports (string match -r '^/dev/(?:tty[A-Z]|cu[.a]|rfcomm|serial/by-id/).*' -- $ports)
            test -z "$cur"; or string match -q -- '/*' $cur; or set ports (string replace /dev/ '' -- $ports)
            string replace -r -- '^' "$before" $ports
        case '=*'
            string replace -r -- '^' "$before" (string split , -- (string sub -s 2 -- $kind))
        case OPTION VERB
            for row in $__lfp_table
                set -l cells (string split -m 3 ' ' -- $row)
                contains -- $cells[1] $command '*'; or continue
                test "$cells[3]" = $kind; or string match -q -- 'OPTION-*' $kind$cells[2]; or continue
                printf '%s\t%s\n' (string split , -- $cells[2])[-1] "$cells[4]"
            end
    end
end

complete --command lfp --no-files --arguments '(__lfp_complete)'
