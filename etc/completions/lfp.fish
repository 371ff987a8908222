# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_lfp_global_optspecs
    string join \n server= direct json h/help V/version
end

function __fish_lfp_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_lfp_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_lfp_using_subcommand
    set -l cmd (__fish_lfp_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c lfp -n "__fish_lfp_needs_command" -l server -d 'Ask this service: unix:PATH, a path, or a loopback ADDRESS:PORT [default: /run/lfpd/lfpd.sock, then 127.0.0.1:50001]' -r
complete -c lfp -n "__fish_lfp_needs_command" -l direct -d 'Ask no service; use the lock files themselves'
complete -c lfp -n "__fish_lfp_needs_command" -l json -d 'Print JSON instead of text'
complete -c lfp -n "__fish_lfp_needs_command" -s h -l help -d 'Print help'
complete -c lfp -n "__fish_lfp_needs_command" -s V -l version -d 'Print version'
complete -c lfp -n "__fish_lfp_needs_command" -f -a "lock" -d 'Lock a device for a process, or name the holder'
complete -c lfp -n "__fish_lfp_needs_command" -f -a "unlock" -d 'Release a device for a process'
complete -c lfp -n "__fish_lfp_needs_command" -f -a "ask" -d 'Ask the holder under `lfp run --yield-on` to release a device'
complete -c lfp -n "__fish_lfp_needs_command" -f -a "pass" -d 'Hand a device from one process to another, without a gap'
complete -c lfp -n "__fish_lfp_needs_command" -f -a "wait" -d 'Take a device for a process as soon as it is free'
complete -c lfp -n "__fish_lfp_needs_command" -f -a "who" -d 'Show which processes hold these devices, and how'
complete -c lfp -n "__fish_lfp_needs_command" -f -a "list" -d 'Show every holder on this machine'
complete -c lfp -n "__fish_lfp_needs_command" -f -a "run" -d 'Hold a device while a command runs'
complete -c lfp -n "__fish_lfp_needs_command" -f -a "shim" -d 'Run a command with its locks taken through the service'
complete -c lfp -n "__fish_lfp_needs_command" -f -a "adopt" -d 'Make a program lock through the service for every user'
complete -c lfp -n "__fish_lfp_needs_command" -f -a "clean" -d 'Remove the locks of processes that are gone'
complete -c lfp -n "__fish_lfp_needs_command" -f -a "completions" -d 'Print the completions of a shell'
complete -c lfp -n "__fish_lfp_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c lfp -n "__fish_lfp_using_subcommand lock" -l pid -d 'The process that holds the lock [default: the shell or program that called lfp]' -r
complete -c lfp -n "__fish_lfp_using_subcommand lock" -s E -l conflict-exit-code -d 'The exit code if another process has the device' -r
complete -c lfp -n "__fish_lfp_using_subcommand lock" -l server -d 'Ask this service: unix:PATH, a path, or a loopback ADDRESS:PORT [default: /run/lfpd/lfpd.sock, then 127.0.0.1:50001]' -r
complete -c lfp -n "__fish_lfp_using_subcommand lock" -l direct -d 'Ask no service; use the lock files themselves'
complete -c lfp -n "__fish_lfp_using_subcommand lock" -l json -d 'Print JSON instead of text'
complete -c lfp -n "__fish_lfp_using_subcommand lock" -s h -l help -d 'Print help'
complete -c lfp -n "__fish_lfp_using_subcommand unlock" -l pid -d 'The process that holds the lock [default: the shell or program that called lfp]' -r
complete -c lfp -n "__fish_lfp_using_subcommand unlock" -s E -l conflict-exit-code -d 'The exit code if another process has the device' -r
complete -c lfp -n "__fish_lfp_using_subcommand unlock" -l signal -d 'Send the holder this signal first' -r
complete -c lfp -n "__fish_lfp_using_subcommand unlock" -l grace -d 'Wait this many seconds for the holder to release it' -r
complete -c lfp -n "__fish_lfp_using_subcommand unlock" -l server -d 'Ask this service: unix:PATH, a path, or a loopback ADDRESS:PORT [default: /run/lfpd/lfpd.sock, then 127.0.0.1:50001]' -r
complete -c lfp -n "__fish_lfp_using_subcommand unlock" -l force -d 'Release the lock of any process: for root and the group of `lfpd --force-group`'
complete -c lfp -n "__fish_lfp_using_subcommand unlock" -l direct -d 'Ask no service; use the lock files themselves'
complete -c lfp -n "__fish_lfp_using_subcommand unlock" -l json -d 'Print JSON instead of text'
complete -c lfp -n "__fish_lfp_using_subcommand unlock" -s h -l help -d 'Print help'
complete -c lfp -n "__fish_lfp_using_subcommand ask" -l timeout -d 'Wait this many seconds for the holder to release it' -r
complete -c lfp -n "__fish_lfp_using_subcommand ask" -s E -l conflict-exit-code -d 'The exit code if another process has the device' -r
complete -c lfp -n "__fish_lfp_using_subcommand ask" -l server -d 'Ask this service: unix:PATH, a path, or a loopback ADDRESS:PORT [default: /run/lfpd/lfpd.sock, then 127.0.0.1:50001]' -r
complete -c lfp -n "__fish_lfp_using_subcommand ask" -l direct -d 'Ask no service; use the lock files themselves'
complete -c lfp -n "__fish_lfp_using_subcommand ask" -l json -d 'Print JSON instead of text'
complete -c lfp -n "__fish_lfp_using_subcommand ask" -s h -l help -d 'Print help'
complete -c lfp -n "__fish_lfp_using_subcommand pass" -l pid -d 'The process that holds the lock [default: the shell or program that called lfp]' -r
complete -c lfp -n "__fish_lfp_using_subcommand pass" -s E -l conflict-exit-code -d 'The exit code if another process has the device' -r
complete -c lfp -n "__fish_lfp_using_subcommand pass" -l to -d 'The process that gets the lock' -r
complete -c lfp -n "__fish_lfp_using_subcommand pass" -l server -d 'Ask this service: unix:PATH, a path, or a loopback ADDRESS:PORT [default: /run/lfpd/lfpd.sock, then 127.0.0.1:50001]' -r
complete -c lfp -n "__fish_lfp_using_subcommand pass" -l direct -d 'Ask no service; use the lock files themselves'
complete -c lfp -n "__fish_lfp_using_subcommand pass" -l json -d 'Print JSON instead of text'
complete -c lfp -n "__fish_lfp_using_subcommand pass" -s h -l help -d 'Print help'
complete -c lfp -n "__fish_lfp_using_subcommand wait" -l pid -d 'The process that holds the lock [default: the shell or program that called lfp]' -r
complete -c lfp -n "__fish_lfp_using_subcommand wait" -s E -l conflict-exit-code -d 'The exit code if another process has the device' -r
complete -c lfp -n "__fish_lfp_using_subcommand wait" -l timeout -d 'Give up after this many seconds, such as 10 or 0.5 [default: never]' -r
complete -c lfp -n "__fish_lfp_using_subcommand wait" -l server -d 'Ask this service: unix:PATH, a path, or a loopback ADDRESS:PORT [default: /run/lfpd/lfpd.sock, then 127.0.0.1:50001]' -r
complete -c lfp -n "__fish_lfp_using_subcommand wait" -l direct -d 'Ask no service; use the lock files themselves'
complete -c lfp -n "__fish_lfp_using_subcommand wait" -l json -d 'Print JSON instead of text'
complete -c lfp -n "__fish_lfp_using_subcommand wait" -s h -l help -d 'Print help'
complete -c lfp -n "__fish_lfp_using_subcommand who" -l server -d 'Ask this service: unix:PATH, a path, or a loopback ADDRESS:PORT [default: /run/lfpd/lfpd.sock, then 127.0.0.1:50001]' -r
complete -c lfp -n "__fish_lfp_using_subcommand who" -s q -l quiet -d 'Print nothing; exit with 0 if one of them has a holder, with 1 if none has'
complete -c lfp -n "__fish_lfp_using_subcommand who" -s w -l watch -d 'Show the table again whenever it changes'
complete -c lfp -n "__fish_lfp_using_subcommand who" -l direct -d 'Ask no service; use the lock files themselves'
complete -c lfp -n "__fish_lfp_using_subcommand who" -l json -d 'Print JSON instead of text'
complete -c lfp -n "__fish_lfp_using_subcommand who" -s h -l help -d 'Print help'
complete -c lfp -n "__fish_lfp_using_subcommand list" -l server -d 'Ask this service: unix:PATH, a path, or a loopback ADDRESS:PORT [default: /run/lfpd/lfpd.sock, then 127.0.0.1:50001]' -r
complete -c lfp -n "__fish_lfp_using_subcommand list" -s a -l all -d 'Show free devices too'
complete -c lfp -n "__fish_lfp_using_subcommand list" -s w -l watch -d 'Show the table again whenever it changes'
complete -c lfp -n "__fish_lfp_using_subcommand list" -l direct -d 'Ask no service; use the lock files themselves'
complete -c lfp -n "__fish_lfp_using_subcommand list" -l json -d 'Print JSON instead of text'
complete -c lfp -n "__fish_lfp_using_subcommand list" -s h -l help -d 'Print help'
complete -c lfp -n "__fish_lfp_using_subcommand run" -s a -l also -d 'Hold this device as well: all of them, or none' -r
complete -c lfp -n "__fish_lfp_using_subcommand run" -l timeout -d 'Wait for the device, for this many seconds [default: do not wait]' -r
complete -c lfp -n "__fish_lfp_using_subcommand run" -l yield-on -d 'Send the command this signal when another process waits for the device' -r
complete -c lfp -n "__fish_lfp_using_subcommand run" -s E -l conflict-exit-code -d 'The exit code if another process has the device' -r
complete -c lfp -n "__fish_lfp_using_subcommand run" -l server -d 'Ask this service: unix:PATH, a path, or a loopback ADDRESS:PORT [default: /run/lfpd/lfpd.sock, then 127.0.0.1:50001]' -r
complete -c lfp -n "__fish_lfp_using_subcommand run" -l exclusive -d 'While the command has the device open, have the kernel refuse it to all other programs (TIOCEXCL)'
complete -c lfp -n "__fish_lfp_using_subcommand run" -l no-fork -d 'Become the command instead of waiting for its end, so that the process number stays'
complete -c lfp -n "__fish_lfp_using_subcommand run" -l shim -d 'Turn the command\'s lock files into locks of the service, so that it gets the port [default: where liblfp_preload.so is installed and can be loaded into COMMAND]'
complete -c lfp -n "__fish_lfp_using_subcommand run" -l no-shim -d 'Do not use liblfp_preload.so, even if it is installed'
complete -c lfp -n "__fish_lfp_using_subcommand run" -l ports -d 'With --shim, let programs that make no lock files lock every serial port they open'
complete -c lfp -n "__fish_lfp_using_subcommand run" -l direct -d 'Ask no service; use the lock files themselves'
complete -c lfp -n "__fish_lfp_using_subcommand run" -l json -d 'Print JSON instead of text'
complete -c lfp -n "__fish_lfp_using_subcommand run" -s h -l help -d 'Print help'
complete -c lfp -n "__fish_lfp_using_subcommand shim" -l also -d 'Treat this device as a serial port too' -r
complete -c lfp -n "__fish_lfp_using_subcommand shim" -l wait -d 'Wait in line for a busy port, for this many seconds [default: do not wait]' -r
complete -c lfp -n "__fish_lfp_using_subcommand shim" -l server -d 'Ask this service: unix:PATH, a path, or a loopback ADDRESS:PORT [default: /run/lfpd/lfpd.sock, then 127.0.0.1:50001]' -r
complete -c lfp -n "__fish_lfp_using_subcommand shim" -l ports -d 'Let programs that make no lock files lock every serial port they open'
complete -c lfp -n "__fish_lfp_using_subcommand shim" -l exclusive -d 'Have the kernel refuse these ports to all other programs while they are open (TIOCEXCL)'
complete -c lfp -n "__fish_lfp_using_subcommand shim" -l or-plain -d 'If the library cannot be loaded into COMMAND, run COMMAND without it'
complete -c lfp -n "__fish_lfp_using_subcommand shim" -l direct -d 'Ask no service; use the lock files themselves'
complete -c lfp -n "__fish_lfp_using_subcommand shim" -l json -d 'Print JSON instead of text'
complete -c lfp -n "__fish_lfp_using_subcommand shim" -s h -l help -d 'Print help'
complete -c lfp -n "__fish_lfp_using_subcommand adopt" -l server -d 'Ask this service: unix:PATH, a path, or a loopback ADDRESS:PORT [default: /run/lfpd/lfpd.sock, then 127.0.0.1:50001]' -r
complete -c lfp -n "__fish_lfp_using_subcommand adopt" -l ports -d 'Let it lock every serial port it opens (default)'
complete -c lfp -n "__fish_lfp_using_subcommand adopt" -l files -d 'Turn its lock files into locks of the service, but lock no ports that it only opens'
complete -c lfp -n "__fish_lfp_using_subcommand adopt" -l undo -d 'Remove the script again: the program starts as before'
complete -c lfp -n "__fish_lfp_using_subcommand adopt" -l direct -d 'Ask no service; use the lock files themselves'
complete -c lfp -n "__fish_lfp_using_subcommand adopt" -l json -d 'Print JSON instead of text'
complete -c lfp -n "__fish_lfp_using_subcommand adopt" -s h -l help -d 'Print help'
complete -c lfp -n "__fish_lfp_using_subcommand clean" -l server -d 'Ask this service: unix:PATH, a path, or a loopback ADDRESS:PORT [default: /run/lfpd/lfpd.sock, then 127.0.0.1:50001]' -r
complete -c lfp -n "__fish_lfp_using_subcommand clean" -l direct -d 'Ask no service; use the lock files themselves'
complete -c lfp -n "__fish_lfp_using_subcommand clean" -l json -d 'Print JSON instead of text'
complete -c lfp -n "__fish_lfp_using_subcommand clean" -s h -l help -d 'Print help'
complete -c lfp -n "__fish_lfp_using_subcommand completions" -l server -d 'Ask this service: unix:PATH, a path, or a loopback ADDRESS:PORT [default: /run/lfpd/lfpd.sock, then 127.0.0.1:50001]' -r
complete -c lfp -n "__fish_lfp_using_subcommand completions" -l direct -d 'Ask no service; use the lock files themselves'
complete -c lfp -n "__fish_lfp_using_subcommand completions" -l json -d 'Print JSON instead of text'
complete -c lfp -n "__fish_lfp_using_subcommand completions" -s h -l help -d 'Print help'
complete -c lfp -n "__fish_lfp_using_subcommand help; and not __fish_seen_subcommand_from lock unlock ask pass wait who list run shim adopt clean completions help" -f -a "lock" -d 'Lock a device for a process, or name the holder'
complete -c lfp -n "__fish_lfp_using_subcommand help; and not __fish_seen_subcommand_from lock unlock ask pass wait who list run shim adopt clean completions help" -f -a "unlock" -d 'Release a device for a process'
complete -c lfp -n "__fish_lfp_using_subcommand help; and not __fish_seen_subcommand_from lock unlock ask pass wait who list run shim adopt clean completions help" -f -a "ask" -d 'Ask the holder under `lfp run --yield-on` to release a device'
complete -c lfp -n "__fish_lfp_using_subcommand help; and not __fish_seen_subcommand_from lock unlock ask pass wait who list run shim adopt clean completions help" -f -a "pass" -d 'Hand a device from one process to another, without a gap'
complete -c lfp -n "__fish_lfp_using_subcommand help; and not __fish_seen_subcommand_from lock unlock ask pass wait who list run shim adopt clean completions help" -f -a "wait" -d 'Take a device for a process as soon as it is free'
complete -c lfp -n "__fish_lfp_using_subcommand help; and not __fish_seen_subcommand_from lock unlock ask pass wait who list run shim adopt clean completions help" -f -a "who" -d 'Show which processes hold these devices, and how'
complete -c lfp -n "__fish_lfp_using_subcommand help; and not __fish_seen_subcommand_from lock unlock ask pass wait who list run shim adopt clean completions help" -f -a "list" -d 'Show every holder on this machine'
complete -c lfp -n "__fish_lfp_using_subcommand help; and not __fish_seen_subcommand_from lock unlock ask pass wait who list run shim adopt clean completions help" -f -a "run" -d 'Hold a device while a command runs'
complete -c lfp -n "__fish_lfp_using_subcommand help; and not __fish_seen_subcommand_from lock unlock ask pass wait who list run shim adopt clean completions help" -f -a "shim" -d 'Run a command with its locks taken through the service'
complete -c lfp -n "__fish_lfp_using_subcommand help; and not __fish_seen_subcommand_from lock unlock ask pass wait who list run shim adopt clean completions help" -f -a "adopt" -d 'Make a program lock through the service for every user'
complete -c lfp -n "__fish_lfp_using_subcommand help; and not __fish_seen_subcommand_from lock unlock ask pass wait who list run shim adopt clean completions help" -f -a "clean" -d 'Remove the locks of processes that are gone'
complete -c lfp -n "__fish_lfp_using_subcommand help; and not __fish_seen_subcommand_from lock unlock ask pass wait who list run shim adopt clean completions help" -f -a "completions" -d 'Print the completions of a shell'
complete -c lfp -n "__fish_lfp_using_subcommand help; and not __fish_seen_subcommand_from lock unlock ask pass wait who list run shim adopt clean completions help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
