#compdef lfp

autoload -U is-at-least

_lfp() {
    typeset -A opt_args
    typeset -a _arguments_options
    local ret=1

    if is-at-least 5.2; then
        _arguments_options=(-s -S -C)
    else
        _arguments_options=(-s -C)
    fi

    local context curcontext="$curcontext" state line
    _arguments "${_arguments_options[@]}" : \
'(--direct)--server=[Ask this service\: unix\:PATH, a path, or a loopback ADDRESS\:PORT \[default\: /run/lfpd/lfpd.sock, then 127.0.0.1\:50001\]]:ADDR:_default' \
'--direct[Ask no service; use the lock files themselves]' \
'--json[Print JSON instead of text]' \
'-h[Print help]' \
'--help[Print help]' \
'-V[Print version]' \
'--version[Print version]' \
":: :_lfp_commands" \
"*::: :->lfp" \
&& ret=0
    case $state in
    (lfp)
        words=($line[1] "${words[@]}")
        (( CURRENT += 1 ))
        curcontext="${curcontext%:*:*}:lfp-command-$line[1]:"
        case $line[1] in
            (lock)
_arguments "${_arguments_options[@]}" : \
'--pid=[The process that holds the lock \[default\: the shell or program that called lfp\]]:PID:_default' \
'-E+[The exit code if another process has the device]:CODE:_default' \
'--conflict-exit-code=[The exit code if another process has the device]:CODE:_default' \
'(--direct)--server=[Ask this service\: unix\:PATH, a path, or a loopback ADDRESS\:PORT \[default\: /run/lfpd/lfpd.sock, then 127.0.0.1\:50001\]]:ADDR:_default' \
'--direct[Ask no service; use the lock files themselves]' \
'--json[Print JSON instead of text]' \
'-h[Print help]' \
'--help[Print help]' \
':device -- /dev/NAME or NAME:_default' \
&& ret=0
;;
(unlock)
_arguments "${_arguments_options[@]}" : \
'--pid=[The process that holds the lock \[default\: the shell or program that called lfp\]]:PID:_default' \
'-E+[The exit code if another process has the device]:CODE:_default' \
'--conflict-exit-code=[The exit code if another process has the device]:CODE:_default' \
'--signal=[Send the holder this signal first]:SIGNAL:_default' \
'--grace=[Wait this many seconds for the holder to release it]:SECS:_default' \
'(--direct)--server=[Ask this service\: unix\:PATH, a path, or a loopback ADDRESS\:PORT \[default\: /run/lfpd/lfpd.sock, then 127.0.0.1\:50001\]]:ADDR:_default' \
'--force[Release the lock of any process\: for root and the group of \`lfpd --force-group\`]' \
'--direct[Ask no service; use the lock files themselves]' \
'--json[Print JSON instead of text]' \
'-h[Print help]' \
'--help[Print help]' \
':device -- /dev/NAME or NAME:_default' \
&& ret=0
;;
(ask)
_arguments "${_arguments_options[@]}" : \
'--timeout=[Wait this many seconds for the holder to release it]:SECS:_default' \
'-E+[The exit code if another process has the device]:CODE:_default' \
'--conflict-exit-code=[The exit code if another process has the device]:CODE:_default' \
'(--direct)--server=[Ask this service\: unix\:PATH, a path, or a loopback ADDRESS\:PORT \[default\: /run/lfpd/lfpd.sock, then 127.0.0.1\:50001\]]:ADDR:_default' \
'--direct[Ask no service; use the lock files themselves]' \
'--json[Print JSON instead of text]' \
'-h[Print help]' \
'--help[Print help]' \
':device -- /dev/NAME or NAME:_default' \
&& ret=0
;;
(pass)
_arguments "${_arguments_options[@]}" : \
'--pid=[The process that holds the lock \[default\: the shell or program that called lfp\]]:PID:_default' \
'-E+[The exit code if another process has the device]:CODE:_default' \
'--conflict-exit-code=[The exit code if another process has the device]:CODE:_default' \
'--to=[The process that gets the lock]:PID:_default' \
'(--direct)--server=[Ask this service\: unix\:PATH, a path, or a loopback ADDRESS\:PORT \[default\: /run/lfpd/lfpd.sock, then 127.0.0.1\:50001\]]:ADDR:_default' \
'--direct[Ask no service; use the lock files themselves]' \
'--json[Print JSON instead of text]' \
'-h[Print help]' \
'--help[Print help]' \
':device -- /dev/NAME or NAME:_default' \
&& ret=0
;;
(wait)
_arguments "${_arguments_options[@]}" : \
'--pid=[The process that holds the lock \[default\: the shell or program that called lfp\]]:PID:_default' \
'-E+[The exit code if another process has the device]:CODE:_default' \
'--conflict-exit-code=[The exit code if another process has the device]:CODE:_default' \
'--timeout=[Give up after this many seconds, such as 10 or 0.5 \[default\: never\]]:SECS:_default' \
'(--direct)--server=[Ask this service\: unix\:PATH, a path, or a loopback ADDRESS\:PORT \[default\: /run/lfpd/lfpd.sock, then 127.0.0.1\:50001\]]:ADDR:_default' \
'--direct[Ask no service; use the lock files themselves]' \
'--json[Print JSON instead of text]' \
'-h[Print help]' \
'--help[Print help]' \
':device -- /dev/NAME or NAME:_default' \
&& ret=0
;;
(who)
_arguments "${_arguments_options[@]}" : \
'(--direct)--server=[Ask this service\: unix\:PATH, a path, or a loopback ADDRESS\:PORT \[default\: /run/lfpd/lfpd.sock, then 127.0.0.1\:50001\]]:ADDR:_default' \
'(-w --watch)-q[Print nothing; exit with 0 if one of them has a holder, with 1 if none has]' \
'(-w --watch)--quiet[Print nothing; exit with 0 if one of them has a holder, with 1 if none has]' \
'-w[Show the table again whenever it changes]' \
'--watch[Show the table again whenever it changes]' \
'--direct[Ask no service; use the lock files themselves]' \
'--json[Print JSON instead of text]' \
'-h[Print help]' \
'--help[Print help]' \
'*::devices -- /dev/NAME or NAME \[default\: every device with a holder\]:_default' \
&& ret=0
;;
(list)
_arguments "${_arguments_options[@]}" : \
'(--direct)--server=[Ask this service\: unix\:PATH, a path, or a loopback ADDRESS\:PORT \[default\: /run/lfpd/lfpd.sock, then 127.0.0.1\:50001\]]:ADDR:_default' \
'-a[Show free devices too]' \
'--all[Show free devices too]' \
'-w[Show the table again whenever it changes]' \
'--watch[Show the table again whenever it changes]' \
'--direct[Ask no service; use the lock files themselves]' \
'--json[Print JSON instead of text]' \
'-h[Print help]' \
'--help[Print help]' \
&& ret=0
;;
(run)
_arguments "${_arguments_options[@]}" : \
'*-a+[Hold this device as well\: all of them, or none]:DEVICE:_default' \
'*--also=[Hold this device as well\: all of them, or none]:DEVICE:_default' \
'--timeout=[Wait for the device, for this many seconds \[default\: do not wait\]]:SECS:_default' \
'(--no-fork)--yield-on=[Send the command this signal when another process waits for the device]:SIGNAL:_default' \
'-E+[The exit code if another process has the device]:CODE:_default' \
'--conflict-exit-code=[The exit code if another process has the device]:CODE:_default' \
'(--direct)--server=[Ask this service\: unix\:PATH, a path, or a loopback ADDRESS\:PORT \[default\: /run/lfpd/lfpd.sock, then 127.0.0.1\:50001\]]:ADDR:_default' \
'(--no-fork)--exclusive[While the command has the device open, have the kernel refuse it to all other programs (TIOCEXCL)]' \
'--no-fork[Become the command instead of waiting for its end, so that the process number stays]' \
'(--no-shim)--shim[Turn the command'\''s lock files into locks of the service, so that it gets the port \[default\: where liblfp_preload.so is installed and can be loaded into COMMAND\]]' \
'--no-shim[Do not use liblfp_preload.so, even if it is installed]' \
'--ports[With --shim, let programs that make no lock files lock every serial port they open]' \
'--direct[Ask no service; use the lock files themselves]' \
'--json[Print JSON instead of text]' \
'-h[Print help]' \
'--help[Print help]' \
':device -- /dev/NAME or NAME:_default' \
'*::command -- What to run, with its arguments:_default' \
&& ret=0
;;
(shim)
_arguments "${_arguments_options[@]}" : \
'*--also=[Treat this device as a serial port too]:DEVICE:_default' \
'--wait=[Wait in line for a busy port, for this many seconds \[default\: do not wait\]]:SECS:_default' \
'(--direct)--server=[Ask this service\: unix\:PATH, a path, or a loopback ADDRESS\:PORT \[default\: /run/lfpd/lfpd.sock, then 127.0.0.1\:50001\]]:ADDR:_default' \
'--ports[Let programs that make no lock files lock every serial port they open]' \
'--exclusive[Have the kernel refuse these ports to all other programs while they are open (TIOCEXCL)]' \
'--or-plain[If the library cannot be loaded into COMMAND, run COMMAND without it]' \
'--direct[Ask no service; use the lock files themselves]' \
'--json[Print JSON instead of text]' \
'-h[Print help]' \
'--help[Print help]' \
'*::command -- What to run, with its arguments:_default' \
&& ret=0
;;
(adopt)
_arguments "${_arguments_options[@]}" : \
'(--direct)--server=[Ask this service\: unix\:PATH, a path, or a loopback ADDRESS\:PORT \[default\: /run/lfpd/lfpd.sock, then 127.0.0.1\:50001\]]:ADDR:_default' \
'--ports[Let it lock every serial port it opens (default)]' \
'(--ports)--files[Turn its lock files into locks of the service, but lock no ports that it only opens]' \
'(--ports --files)--undo[Remove the script again\: the program starts as before]' \
'--direct[Ask no service; use the lock files themselves]' \
'--json[Print JSON instead of text]' \
'-h[Print help]' \
'--help[Print help]' \
':program -- The name of a program in PATH:_default' \
&& ret=0
;;
(clean)
_arguments "${_arguments_options[@]}" : \
'(--direct)--server=[Ask this service\: unix\:PATH, a path, or a loopback ADDRESS\:PORT \[default\: /run/lfpd/lfpd.sock, then 127.0.0.1\:50001\]]:ADDR:_default' \
'--direct[Ask no service; use the lock files themselves]' \
'--json[Print JSON instead of text]' \
'-h[Print help]' \
'--help[Print help]' \
&& ret=0
;;
(completions)
_arguments "${_arguments_options[@]}" : \
'(--direct)--server=[Ask this service\: unix\:PATH, a path, or a loopback ADDRESS\:PORT \[default\: /run/lfpd/lfpd.sock, then 127.0.0.1\:50001\]]:ADDR:_default' \
'--direct[Ask no service; use the lock files themselves]' \
'--json[Print JSON instead of text]' \
'-h[Print help]' \
'--help[Print help]' \
':shell:(bash elvish fish powershell zsh)' \
&& ret=0
;;
(help)
_arguments "${_arguments_options[@]}" : \
":: :_lfp__subcmd__help_commands" \
"*::: :->help" \
&& ret=0

    case $state in
    (help)
        words=($line[1] "${words[@]}")
        (( CURRENT += 1 ))
        curcontext="${curcontext%:*:*}:lfp-help-command-$line[1]:"
        case $line[1] in
            (lock)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(unlock)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(ask)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(pass)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(wait)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(who)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(list)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(run)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(shim)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(adopt)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(clean)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(completions)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(help)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
        esac
    ;;
esac
;;
        esac
    ;;
esac
}

(( $+functions[_lfp_commands] )) ||
_lfp_commands() {
    local commands; commands=(
'lock:Lock a device for a process, or name the holder' \
'unlock:Release a device for a process' \
'ask:Ask the holder under \`lfp run --yield-on\` to release a device' \
'pass:Hand a device from one process to another, without a gap' \
'wait:Take a device for a process as soon as it is free' \
'who:Show which processes hold these devices, and how' \
'list:Show every holder on this machine' \
'run:Hold a device while a command runs' \
'shim:Run a command with its locks taken through the service' \
'adopt:Make a program lock through the service for every user' \
'clean:Remove the locks of processes that are gone' \
'completions:Print the completions of a shell' \
'help:Print this message or the help of the given subcommand(s)' \
    )
    _describe -t commands 'lfp commands' commands "$@"
}
(( $+functions[_lfp__subcmd__adopt_commands] )) ||
_lfp__subcmd__adopt_commands() {
    local commands; commands=()
    _describe -t commands 'lfp adopt commands' commands "$@"
}
(( $+functions[_lfp__subcmd__ask_commands] )) ||
_lfp__subcmd__ask_commands() {
    local commands; commands=()
    _describe -t commands 'lfp ask commands' commands "$@"
}
(( $+functions[_lfp__subcmd__clean_commands] )) ||
_lfp__subcmd__clean_commands() {
    local commands; commands=()
    _describe -t commands 'lfp clean commands' commands "$@"
}
(( $+functions[_lfp__subcmd__completions_commands] )) ||
_lfp__subcmd__completions_commands() {
    local commands; commands=()
    _describe -t commands 'lfp completions commands' commands "$@"
}
(( $+functions[_lfp__subcmd__help_commands] )) ||
_lfp__subcmd__help_commands() {
    local commands; commands=(
'lock:Lock a device for a process, or name the holder' \
'unlock:Release a device for a process' \
'ask:Ask the holder under \`lfp run --yield-on\` to release a device' \
'pass:Hand a device from one process to another, without a gap' \
'wait:Take a device for a process as soon as it is free' \
'who:Show which processes hold these devices, and how' \
'list:Show every holder on this machine' \
'run:Hold a device while a command runs' \
'shim:Run a command with its locks taken through the service' \
'adopt:Make a program lock through the service for every user' \
'clean:Remove the locks of processes that are gone' \
'completions:Print the completions of a shell' \
'help:Print this message or the help of the given subcommand(s)' \
    )
    _describe -t commands 'lfp help commands' commands "$@"
}
(( $+functions[_lfp__subcmd__help__subcmd__adopt_commands] )) ||
_lfp__subcmd__help__subcmd__adopt_commands() {
    local commands; commands=()
    _describe -t commands 'lfp help adopt commands' commands "$@"
}
(( $+functions[_lfp__subcmd__help__subcmd__ask_commands] )) ||
_lfp__subcmd__help__subcmd__ask_commands() {
    local commands; commands=()
    _describe -t commands 'lfp help ask commands' commands "$@"
}
(( $+functions[_lfp__subcmd__help__subcmd__clean_commands] )) ||
_lfp__subcmd__help__subcmd__clean_commands() {
    local commands; commands=()
    _describe -t commands 'lfp help clean commands' commands "$@"
}
(( $+functions[_lfp__subcmd__help__subcmd__completions_commands] )) ||
_lfp__subcmd__help__subcmd__completions_commands() {
    local commands; commands=()
    _describe -t commands 'lfp help completions commands' commands "$@"
}
(( $+functions[_lfp__subcmd__help__subcmd__help_commands] )) ||
_lfp__subcmd__help__subcmd__help_commands() {
    local commands; commands=()
    _describe -t commands 'lfp help help commands' commands "$@"
}
(( $+functions[_lfp__subcmd__help__subcmd__list_commands] )) ||
_lfp__subcmd__help__subcmd__list_commands() {
    local commands; commands=()
    _describe -t commands 'lfp help list commands' commands "$@"
}
(( $+functions[_lfp__subcmd__help__subcmd__lock_commands] )) ||
_lfp__subcmd__help__subcmd__lock_commands() {
    local commands; commands=()
    _describe -t commands 'lfp help lock commands' commands "$@"
}
(( $+functions[_lfp__subcmd__help__subcmd__pass_commands] )) ||
_lfp__subcmd__help__subcmd__pass_commands() {
    local commands; commands=()
    _describe -t commands 'lfp help pass commands' commands "$@"
}
(( $+functions[_lfp__subcmd__help__subcmd__run_commands] )) ||
_lfp__subcmd__help__subcmd__run_commands() {
    local commands; commands=()
    _describe -t commands 'lfp help run commands' commands "$@"
}
(( $+functions[_lfp__subcmd__help__subcmd__shim_commands] )) ||
_lfp__subcmd__help__subcmd__shim_commands() {
    local commands; commands=()
    _describe -t commands 'lfp help shim commands' commands "$@"
}
(( $+functions[_lfp__subcmd__help__subcmd__unlock_commands] )) ||
_lfp__subcmd__help__subcmd__unlock_commands() {
    local commands; commands=()
    _describe -t commands 'lfp help unlock commands' commands "$@"
}
(( $+functions[_lfp__subcmd__help__subcmd__wait_commands] )) ||
_lfp__subcmd__help__subcmd__wait_commands() {
    local commands; commands=()
    _describe -t commands 'lfp help wait commands' commands "$@"
}
(( $+functions[_lfp__subcmd__help__subcmd__who_commands] )) ||
_lfp__subcmd__help__subcmd__who_commands() {
    local commands; commands=()
    _describe -t commands 'lfp help who commands' commands "$@"
}
(( $+functions[_lfp__subcmd__list_commands] )) ||
_lfp__subcmd__list_commands() {
    local commands; commands=()
    _describe -t commands 'lfp list commands' commands "$@"
}
(( $+functions[_lfp__subcmd__lock_commands] )) ||
_lfp__subcmd__lock_commands() {
    local commands; commands=()
    _describe -t commands 'lfp lock commands' commands "$@"
}
(( $+functions[_lfp__subcmd__pass_commands] )) ||
_lfp__subcmd__pass_commands() {
    local commands; commands=()
    _describe -t commands 'lfp pass commands' commands "$@"
}
(( $+functions[_lfp__subcmd__run_commands] )) ||
_lfp__subcmd__run_commands() {
    local commands; commands=()
    _describe -t commands 'lfp run commands' commands "$@"
}
(( $+functions[_lfp__subcmd__shim_commands] )) ||
_lfp__subcmd__shim_commands() {
    local commands; commands=()
    _describe -t commands 'lfp shim commands' commands "$@"
}
(( $+functions[_lfp__subcmd__unlock_commands] )) ||
_lfp__subcmd__unlock_commands() {
    local commands; commands=()
    _describe -t commands 'lfp unlock commands' commands "$@"
}
(( $+functions[_lfp__subcmd__wait_commands] )) ||
_lfp__subcmd__wait_commands() {
    local commands; commands=()
    _describe -t commands 'lfp wait commands' commands "$@"
}
(( $+functions[_lfp__subcmd__who_commands] )) ||
_lfp__subcmd__who_commands() {
    local commands; commands=()
    _describe -t commands 'lfp who commands' commands "$@"
}

if [ "$funcstack[1]" = "_lfp" ]; then
    _lfp "$@"
else
    compdef _lfp lfp
fi
