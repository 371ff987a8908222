# Completions of sema, made from its command line.

set --global __sema_table \
    '* --json - Print JSON instead of text, also if it fails: one value on one line' \
    '* -q,--quiet - Print no answer, and no message if the lock is held: the exit code says it' \
    '* -h,--help - Print help' \
    '- -V,--version - Print version' \
    '- try VERB Take a lock if it is free or stale' \
    '- acquire VERB Wait until a lock can be taken, and take it' \
    '- release VERB Release a lock' \
    '- touch VERB Renew a lock, so that it does not count as old' \
    '- status VERB Show who holds a lock' \
    '- wait VERB Wait until a lock is free or stale, without taking it' \
    '- list VERB Show all locks in a directory' \
    '- clean VERB Remove a lock if it is stale, or everything stale in a directory' \
    '- run VERB Run a command while holding a lock' \
    '- completions VERB Print completions for a shell' \
    '- help VERB Print this message or the help of the given subcommand(s)' \
    'help 1 =try,acquire,release,touch,status,wait,list,clean,run,completions,help ' \
    'try 1 FILE The lock file; its directory must exist' \
    'try --slots . How many may hold the lock at once; if more than one, the slots are PATH.1 to PATH.N' \
    'try --stale . A lock older than this counts as old; 0: no lock is ever stale [default: 3600]' \
    'try --stale-when =dead,host,age When a lock is stale. dead: its holder is dead. host: also if it was taken under this host name in a container that is not visible here. age: also if it is old, even if its holder lives' \
    'try --pid . The process that holds the lock [default: the calling process]' \
    'try --persist - Take the lock without an owner: it is held until `sema release`' \
    'try --tag . The purpose of the lock; `sema status` shows it' \
    'try -s,--shared - Share the lock with others that use --shared; without it, there is one holder' \
    'try --mode . Permission bits of the lock file, octal' \
    'acquire 1 FILE The lock file; its directory must exist' \
    'acquire --slots . How many may hold the lock at once; if more than one, the slots are PATH.1 to PATH.N' \
    'acquire --stale . A lock older than this counts as old; 0: no lock is ever stale [default: 3600]' \
    'acquire --stale-when =dead,host,age When a lock is stale. dead: its holder is dead. host: also if it was taken under this host name in a container that is not visible here. age: also if it is old, even if its holder lives' \
    'acquire -t,--timeout . Give up after this many seconds, such as 10 or 0.5 [default: never]' \
    'acquire --pid . The process that holds the lock [default: the calling process]' \
    'acquire --persist - Take the lock without an owner: it is held until `sema release`' \
    'acquire --tag . The purpose of the lock; `sema status` shows it' \
    'acquire -s,--shared - Share the lock with others that use --shared; without it, there is one holder' \
    'acquire --mode . Permission bits of the lock file, octal' \
    'release 1 FILE The lock file; its directory must exist' \
    'release --slots . How many may hold the lock at once; if more than one, the slots are PATH.1 to PATH.N' \
    'release --stale . A lock older than this counts as old; 0: no lock is ever stale [default: 3600]' \
    'release --stale-when =dead,host,age When a lock is stale. dead: its holder is dead. host: also if it was taken under this host name in a container that is not visible here. age: also if it is old, even if its holder lives' \
    'release --pid . The process that holds the lock [default: the calling process]' \
    'release -f,--force - Release the lock even if another process holds it' \
    'release --slot . Only this one of several slots' \
    'touch 1 FILE The lock file; its directory must exist' \
    'touch --slots . How many may hold the lock at once; if more than one, the slots are PATH.1 to PATH.N' \
    'touch --stale . A lock older than this counts as old; 0: no lock is ever stale [default: 3600]' \
    'touch --stale-when =dead,host,age When a lock is stale. dead: its holder is dead. host: also if it was taken under this host name in a container that is not visible here. age: also if it is old, even if its holder lives' \
    'touch --pid . The process that holds the lock [default: the calling process]' \
    'status 1 FILE The lock file; its directory must exist' \
    'status --slots . How many may hold the lock at once; if more than one, the slots are PATH.1 to PATH.N' \
    'status --stale . A lock older than this counts as old; 0: no lock is ever stale [default: 3600]' \
    'status --stale-when =dead,host,age When a lock is stale. dead: its holder is dead. host: also if it was taken under this host name in a container that is not visible here. age: also if it is old, even if its holder lives' \
    'wait 1 FILE The lock file; its directory must exist' \
    'wait --slots . How many may hold the lock at once; if more than one, the slots are PATH.1 to PATH.N' \
    'wait --stale . A lock older than this counts as old; 0: no lock is ever stale [default: 3600]' \
    'wait --stale-when =dead,host,age When a lock is stale. dead: its holder is dead. host: also if it was taken under this host name in a container that is not visible here. age: also if it is old, even if its holder lives' \
    'wait -t,--timeout . Give up after this many seconds, such as 10 or 0.5 [default: never]' \
    'wait --all - Wait until nobody holds the lock: with several slots, until all are free' \
    'list 1 DIR The directory' \
    'list --stale . A lock older than this counts as old; 0: no lock is ever stale [default: 3600]' \
    'list --stale-when =dead,host,age When a lock is stale. dead: its holder is dead. host: also if it was taken under this host name in a container that is not visible here. age: also if it is old, even if its holder lives' \
    'list --only-stale - Show stale locks only' \
    'clean 1 FILE The lock file; its directory must exist' \
    'clean --slots . How many may hold the lock at once; if more than one, the slots are PATH.1 to PATH.N' \
    'clean --stale . A lock older than this counts as old; 0: no lock is ever stale [default: 3600]' \
    'clean --stale-when =dead,host,age When a lock is stale. dead: its holder is dead. host: also if it was taken under this host name in a container that is not visible here. age: also if it is old, even if its holder lives' \
    'run 1 FILE The lock file; its directory must exist' \
    'run --slots . How many may hold the lock at once; if more than one, the slots are PATH.1 to PATH.N' \
    'run --stale . A lock older than this counts as old; 0: no lock is ever stale [default: 3600]' \
    'run --stale-when =dead,host,age When a lock is stale. dead: its holder is dead. host: also if it was taken under this host name in a container that is not visible here. age: also if it is old, even if its holder lives' \
    'run -t,--timeout . Give up after this many seconds, such as 10 or 0.5 [default: never]' \
    'run --tag . The purpose of the lock; `sema status` shows it' \
    'run -s,--shared - Share the lock with others that use --shared; without it, there is one holder' \
    'run --mode . Permission bits of the lock file, octal' \
    'run -n,--nonblock - Give up at once if the lock is held' \
    'run -E,--conflict-exit-code . The exit code when the lock is held or the time is up, instead of 1' \
    'run --with FILE One more lock to hold; may be given several times' \
    'run -v,--verbose - Print to standard error the holder, how long the wait took, and the command' \
    'run --bg - Return as soon as the command runs; it continues in the background, without input' \
    'run -c,--command . Run this line in a shell' \
    'run + COMMAND The command and its arguments; `--` before them is optional' \
    'completions 1 =bash,fish,zsh For which shell' \

# What the row of a command says of an option, or of the number of a word (+: all further words).
function __sema_kind --argument-names command name
    for row in $__sema_table
        set -l cells (string split -m 3 ' ' -- $row)
        if contains -- $cells[1] $command '*'; and contains -- $name (string split , -- $cells[2])
            echo $cells[3]
            return
        end
    end
end

# The kind of the word at a place.
function __sema_place --argument-names command place
    set -l kind (__sema_kind $command $place)
    test -n "$kind"; or set kind (__sema_kind $command +)
    echo $kind
end

function __sema_complete
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
            set kind (__sema_kind $command +)
            if test "$kind" = COMMAND
                set -e words[1]
                break
            end
        else if string match -q -- '-?*' $word; and test $plain = no
            set kind (__sema_kind $command (string replace -r '=.*' '' -- $word))
            test "$kind" = FIRST; and test $place = 0; and set place 1
            test "$kind" = -; or string match -q -- '*=*' $word; or set value $kind
        else if test $command = -; and test "$(__sema_kind - $word)" = VERB
            set command $word
        else
            set place (math $place + 1)
            set kind (__sema_place $command $place)
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
        set kind (__sema_place $command (math $place + 1))
        if test -z "$kind"; and test $command = -; and test $plain = no
            set kind VERB
        end
    end
    if test $plain = no; and string match -q -- '--*=*' $cur
        set before (string replace -r '=.*' '=' -- $cur)
        set kind (__sema_kind $command (string replace -r '=.*' '' -- $cur))
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
            for row in $__sema_table
                set -l cells (string split -m 3 ' ' -- $row)
                contains -- $cells[1] $command '*'; or continue
                test "$cells[3]" = $kind; or string match -q -- 'OPTION-*' $kind$cells[2]; or continue
                printf '%s\t%s\n' (string split , -- $cells[2])[-1] "$cells[4]"
            end
    end
end

complete --command sema --no-files --arguments '(__sema_complete)'
