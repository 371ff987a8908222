# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_sema_global_optspecs
    string join \n h/help V/version
end

function __fish_sema_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_sema_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_sema_using_subcommand
    set -l cmd (__fish_sema_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c sema -n "__fish_sema_needs_command" -s h -l help -d 'Print help'
complete -c sema -n "__fish_sema_needs_command" -s V -l version -d 'Print version'
complete -c sema -n "__fish_sema_needs_command" -f -a "try" -d 'Take a lock if it is free or stale'
complete -c sema -n "__fish_sema_needs_command" -f -a "acquire" -d 'Wait until a lock can be taken, and take it'
complete -c sema -n "__fish_sema_needs_command" -f -a "release" -d 'Release a lock'
complete -c sema -n "__fish_sema_needs_command" -f -a "touch" -d 'Renew a lock, so that it does not count as old'
complete -c sema -n "__fish_sema_needs_command" -f -a "status" -d 'Show who holds a lock'
complete -c sema -n "__fish_sema_needs_command" -f -a "wait" -d 'Wait until a lock is free or stale, without taking it'
complete -c sema -n "__fish_sema_needs_command" -f -a "list" -d 'Show all locks in a directory'
complete -c sema -n "__fish_sema_needs_command" -f -a "clean" -d 'Remove a lock if it is stale, or everything stale in a directory'
complete -c sema -n "__fish_sema_needs_command" -f -a "run" -d 'Run a command while holding a lock'
complete -c sema -n "__fish_sema_needs_command" -f -a "completions" -d 'Print completions for a shell'
complete -c sema -n "__fish_sema_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c sema -n "__fish_sema_using_subcommand try" -l slots -d 'How many may hold the lock at once; if more than one, the slots are PATH.1 to PATH.N' -r
complete -c sema -n "__fish_sema_using_subcommand try" -l stale -d 'A lock older than this counts as old; 0: no lock is ever stale [default: 3600]' -r
complete -c sema -n "__fish_sema_using_subcommand try" -l stale-when -d 'When a lock is stale. dead: its holder is dead. host: also if it was taken under this host name in a container that is not visible here. age: also if it is old, even if its holder lives' -r -f -a "dead\t''
host\t''
age\t''"
complete -c sema -n "__fish_sema_using_subcommand try" -l pid -d 'The process that holds the lock [default: the calling process]' -r
complete -c sema -n "__fish_sema_using_subcommand try" -l tag -d 'The purpose of the lock; `sema status` shows it' -r
complete -c sema -n "__fish_sema_using_subcommand try" -l mode -d 'Permission bits of the lock file, octal' -r
complete -c sema -n "__fish_sema_using_subcommand try" -l json -d 'Print one JSON value'
complete -c sema -n "__fish_sema_using_subcommand try" -s q -l quiet -d 'Print only errors; the exit code has the result'
complete -c sema -n "__fish_sema_using_subcommand try" -l persist -d 'Take the lock without an owner: it is held until `sema release`'
complete -c sema -n "__fish_sema_using_subcommand try" -s s -l shared -d 'Share the lock with others that use --shared; without it, there is one holder'
complete -c sema -n "__fish_sema_using_subcommand try" -s h -l help -d 'Print help'
complete -c sema -n "__fish_sema_using_subcommand acquire" -l slots -d 'How many may hold the lock at once; if more than one, the slots are PATH.1 to PATH.N' -r
complete -c sema -n "__fish_sema_using_subcommand acquire" -l stale -d 'A lock older than this counts as old; 0: no lock is ever stale [default: 3600]' -r
complete -c sema -n "__fish_sema_using_subcommand acquire" -l stale-when -d 'When a lock is stale. dead: its holder is dead. host: also if it was taken under this host name in a container that is not visible here. age: also if it is old, even if its holder lives' -r -f -a "dead\t''
host\t''
age\t''"
complete -c sema -n "__fish_sema_using_subcommand acquire" -s w -l timeout -d 'Give up after this many seconds, such as 10 or 0.5 [default: never]' -r
complete -c sema -n "__fish_sema_using_subcommand acquire" -l pid -d 'The process that holds the lock [default: the calling process]' -r
complete -c sema -n "__fish_sema_using_subcommand acquire" -l tag -d 'The purpose of the lock; `sema status` shows it' -r
complete -c sema -n "__fish_sema_using_subcommand acquire" -l mode -d 'Permission bits of the lock file, octal' -r
complete -c sema -n "__fish_sema_using_subcommand acquire" -l json -d 'Print one JSON value'
complete -c sema -n "__fish_sema_using_subcommand acquire" -s q -l quiet -d 'Print only errors; the exit code has the result'
complete -c sema -n "__fish_sema_using_subcommand acquire" -l persist -d 'Take the lock without an owner: it is held until `sema release`'
complete -c sema -n "__fish_sema_using_subcommand acquire" -s s -l shared -d 'Share the lock with others that use --shared; without it, there is one holder'
complete -c sema -n "__fish_sema_using_subcommand acquire" -s h -l help -d 'Print help'
complete -c sema -n "__fish_sema_using_subcommand release" -l slots -d 'How many may hold the lock at once; if more than one, the slots are PATH.1 to PATH.N' -r
complete -c sema -n "__fish_sema_using_subcommand release" -l stale -d 'A lock older than this counts as old; 0: no lock is ever stale [default: 3600]' -r
complete -c sema -n "__fish_sema_using_subcommand release" -l stale-when -d 'When a lock is stale. dead: its holder is dead. host: also if it was taken under this host name in a container that is not visible here. age: also if it is old, even if its holder lives' -r -f -a "dead\t''
host\t''
age\t''"
complete -c sema -n "__fish_sema_using_subcommand release" -l pid -d 'The process that holds the lock [default: the calling process]' -r
complete -c sema -n "__fish_sema_using_subcommand release" -l slot -d 'Only this one of several slots' -r
complete -c sema -n "__fish_sema_using_subcommand release" -l json -d 'Print one JSON value'
complete -c sema -n "__fish_sema_using_subcommand release" -s q -l quiet -d 'Print only errors; the exit code has the result'
complete -c sema -n "__fish_sema_using_subcommand release" -s f -l force -d 'Release the lock even if another process holds it'
complete -c sema -n "__fish_sema_using_subcommand release" -s h -l help -d 'Print help'
complete -c sema -n "__fish_sema_using_subcommand touch" -l slots -d 'How many may hold the lock at once; if more than one, the slots are PATH.1 to PATH.N' -r
complete -c sema -n "__fish_sema_using_subcommand touch" -l stale -d 'A lock older than this counts as old; 0: no lock is ever stale [default: 3600]' -r
complete -c sema -n "__fish_sema_using_subcommand touch" -l stale-when -d 'When a lock is stale. dead: its holder is dead. host: also if it was taken under this host name in a container that is not visible here. age: also if it is old, even if its holder lives' -r -f -a "dead\t''
host\t''
age\t''"
complete -c sema -n "__fish_sema_using_subcommand touch" -l pid -d 'The process that holds the lock [default: the calling process]' -r
complete -c sema -n "__fish_sema_using_subcommand touch" -l json -d 'Print one JSON value'
complete -c sema -n "__fish_sema_using_subcommand touch" -s q -l quiet -d 'Print only errors; the exit code has the result'
complete -c sema -n "__fish_sema_using_subcommand touch" -s h -l help -d 'Print help'
complete -c sema -n "__fish_sema_using_subcommand status" -l slots -d 'How many may hold the lock at once; if more than one, the slots are PATH.1 to PATH.N' -r
complete -c sema -n "__fish_sema_using_subcommand status" -l stale -d 'A lock older than this counts as old; 0: no lock is ever stale [default: 3600]' -r
complete -c sema -n "__fish_sema_using_subcommand status" -l stale-when -d 'When a lock is stale. dead: its holder is dead. host: also if it was taken under this host name in a container that is not visible here. age: also if it is old, even if its holder lives' -r -f -a "dead\t''
host\t''
age\t''"
complete -c sema -n "__fish_sema_using_subcommand status" -l json -d 'Print one JSON value'
complete -c sema -n "__fish_sema_using_subcommand status" -s q -l quiet -d 'Print only errors; the exit code has the result'
complete -c sema -n "__fish_sema_using_subcommand status" -s h -l help -d 'Print help'
complete -c sema -n "__fish_sema_using_subcommand wait" -l slots -d 'How many may hold the lock at once; if more than one, the slots are PATH.1 to PATH.N' -r
complete -c sema -n "__fish_sema_using_subcommand wait" -l stale -d 'A lock older than this counts as old; 0: no lock is ever stale [default: 3600]' -r
complete -c sema -n "__fish_sema_using_subcommand wait" -l stale-when -d 'When a lock is stale. dead: its holder is dead. host: also if it was taken under this host name in a container that is not visible here. age: also if it is old, even if its holder lives' -r -f -a "dead\t''
host\t''
age\t''"
complete -c sema -n "__fish_sema_using_subcommand wait" -s w -l timeout -d 'Give up after this many seconds, such as 10 or 0.5 [default: never]' -r
complete -c sema -n "__fish_sema_using_subcommand wait" -l json -d 'Print one JSON value'
complete -c sema -n "__fish_sema_using_subcommand wait" -s q -l quiet -d 'Print only errors; the exit code has the result'
complete -c sema -n "__fish_sema_using_subcommand wait" -l all -d 'Wait until nobody holds the lock: with several slots, until all are free'
complete -c sema -n "__fish_sema_using_subcommand wait" -s h -l help -d 'Print help'
complete -c sema -n "__fish_sema_using_subcommand list" -l stale -d 'A lock older than this counts as old; 0: no lock is ever stale [default: 3600]' -r
complete -c sema -n "__fish_sema_using_subcommand list" -l stale-when -d 'When a lock is stale. dead: its holder is dead. host: also if it was taken under this host name in a container that is not visible here. age: also if it is old, even if its holder lives' -r -f -a "dead\t''
host\t''
age\t''"
complete -c sema -n "__fish_sema_using_subcommand list" -l only-stale -d 'Show stale locks only'
complete -c sema -n "__fish_sema_using_subcommand list" -l json -d 'Print one JSON value'
complete -c sema -n "__fish_sema_using_subcommand list" -s q -l quiet -d 'Print only errors; the exit code has the result'
complete -c sema -n "__fish_sema_using_subcommand list" -s h -l help -d 'Print help'
complete -c sema -n "__fish_sema_using_subcommand clean" -l slots -d 'How many may hold the lock at once; if more than one, the slots are PATH.1 to PATH.N' -r
complete -c sema -n "__fish_sema_using_subcommand clean" -l stale -d 'A lock older than this counts as old; 0: no lock is ever stale [default: 3600]' -r
complete -c sema -n "__fish_sema_using_subcommand clean" -l stale-when -d 'When a lock is stale. dead: its holder is dead. host: also if it was taken under this host name in a container that is not visible here. age: also if it is old, even if its holder lives' -r -f -a "dead\t''
host\t''
age\t''"
complete -c sema -n "__fish_sema_using_subcommand clean" -l json -d 'Print one JSON value'
complete -c sema -n "__fish_sema_using_subcommand clean" -s q -l quiet -d 'Print only errors; the exit code has the result'
complete -c sema -n "__fish_sema_using_subcommand clean" -s h -l help -d 'Print help'
complete -c sema -n "__fish_sema_using_subcommand run" -l slots -d 'How many may hold the lock at once; if more than one, the slots are PATH.1 to PATH.N' -r
complete -c sema -n "__fish_sema_using_subcommand run" -l stale -d 'A lock older than this counts as old; 0: no lock is ever stale [default: 3600]' -r
complete -c sema -n "__fish_sema_using_subcommand run" -l stale-when -d 'When a lock is stale. dead: its holder is dead. host: also if it was taken under this host name in a container that is not visible here. age: also if it is old, even if its holder lives' -r -f -a "dead\t''
host\t''
age\t''"
complete -c sema -n "__fish_sema_using_subcommand run" -s w -l timeout -d 'Give up after this many seconds, such as 10 or 0.5 [default: never]' -r
complete -c sema -n "__fish_sema_using_subcommand run" -l tag -d 'The purpose of the lock; `sema status` shows it' -r
complete -c sema -n "__fish_sema_using_subcommand run" -l mode -d 'Permission bits of the lock file, octal' -r
complete -c sema -n "__fish_sema_using_subcommand run" -s E -l conflict-exit-code -d 'The exit code when the lock is held or the time is up, instead of 1' -r
complete -c sema -n "__fish_sema_using_subcommand run" -l with -d 'One more lock to hold; may be given several times' -r -F
complete -c sema -n "__fish_sema_using_subcommand run" -s c -l command -d 'Run this line in a shell' -r
complete -c sema -n "__fish_sema_using_subcommand run" -l json -d 'Print one JSON value'
complete -c sema -n "__fish_sema_using_subcommand run" -s q -l quiet -d 'Print only errors; the exit code has the result'
complete -c sema -n "__fish_sema_using_subcommand run" -s s -l shared -d 'Share the lock with others that use --shared; without it, there is one holder'
complete -c sema -n "__fish_sema_using_subcommand run" -s n -l nonblock -d 'Give up at once if the lock is held'
complete -c sema -n "__fish_sema_using_subcommand run" -s v -l verbose -d 'Print to standard error the holder, how long the wait took, and the command'
complete -c sema -n "__fish_sema_using_subcommand run" -l bg -d 'Return as soon as the command runs; it continues in the background, without input'
complete -c sema -n "__fish_sema_using_subcommand run" -s h -l help -d 'Print help'
complete -c sema -n "__fish_sema_using_subcommand completions" -s h -l help -d 'Print help'
complete -c sema -n "__fish_sema_using_subcommand help; and not __fish_seen_subcommand_from try acquire release touch status wait list clean run completions help" -f -a "try" -d 'Take a lock if it is free or stale'
complete -c sema -n "__fish_sema_using_subcommand help; and not __fish_seen_subcommand_from try acquire release touch status wait list clean run completions help" -f -a "acquire" -d 'Wait until a lock can be taken, and take it'
complete -c sema -n "__fish_sema_using_subcommand help; and not __fish_seen_subcommand_from try acquire release touch status wait list clean run completions help" -f -a "release" -d 'Release a lock'
complete -c sema -n "__fish_sema_using_subcommand help; and not __fish_seen_subcommand_from try acquire release touch status wait list clean run completions help" -f -a "touch" -d 'Renew a lock, so that it does not count as old'
complete -c sema -n "__fish_sema_using_subcommand help; and not __fish_seen_subcommand_from try acquire release touch status wait list clean run completions help" -f -a "status" -d 'Show who holds a lock'
complete -c sema -n "__fish_sema_using_subcommand help; and not __fish_seen_subcommand_from try acquire release touch status wait list clean run completions help" -f -a "wait" -d 'Wait until a lock is free or stale, without taking it'
complete -c sema -n "__fish_sema_using_subcommand help; and not __fish_seen_subcommand_from try acquire release touch status wait list clean run completions help" -f -a "list" -d 'Show all locks in a directory'
complete -c sema -n "__fish_sema_using_subcommand help; and not __fish_seen_subcommand_from try acquire release touch status wait list clean run completions help" -f -a "clean" -d 'Remove a lock if it is stale, or everything stale in a directory'
complete -c sema -n "__fish_sema_using_subcommand help; and not __fish_seen_subcommand_from try acquire release touch status wait list clean run completions help" -f -a "run" -d 'Run a command while holding a lock'
complete -c sema -n "__fish_sema_using_subcommand help; and not __fish_seen_subcommand_from try acquire release touch status wait list clean run completions help" -f -a "completions" -d 'Print completions for a shell'
complete -c sema -n "__fish_sema_using_subcommand help; and not __fish_seen_subcommand_from try acquire release touch status wait list clean run completions help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
