#compdef sema

autoload -U is-at-least

_sema() {
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
'-h[Print help]' \
'--help[Print help]' \
'-V[Print version]' \
'--version[Print version]' \
":: :_sema_commands" \
"*::: :->sema" \
&& ret=0
    case $state in
    (sema)
        words=($line[1] "${words[@]}")
        (( CURRENT += 1 ))
        curcontext="${curcontext%:*:*}:sema-command-$line[1]:"
        case $line[1] in
            (try)
_arguments "${_arguments_options[@]}" : \
'--slots=[How many may hold the lock at once; if more than one, the slots are PATH.1 to PATH.N]:N:_default' \
'--stale=[A lock older than this counts as old; 0\: no lock is ever stale \[default\: 3600\]]:SECS:_default' \
'--stale-when=[When a lock is stale. dead\: its holder is dead. host\: also if it was taken under this host name in a container that is not visible here. age\: also if it is old, even if its holder lives]:WHEN:(dead host age)' \
'--pid=[The process that holds the lock \[default\: the calling process\]]:PID:_default' \
'--tag=[The purpose of the lock; \`sema status\` shows it]:TAG:_default' \
'--mode=[Permission bits of the lock file, octal]:MODE:_default' \
'--json[Print one JSON value]' \
'-q[Print only errors; the exit code has the result]' \
'--quiet[Print only errors; the exit code has the result]' \
'(--pid)--persist[Take the lock without an owner\: it is held until \`sema release\`]' \
'-s[Share the lock with others that use --shared; without it, there is one holder]' \
'--shared[Share the lock with others that use --shared; without it, there is one holder]' \
'-h[Print help]' \
'--help[Print help]' \
':path -- The lock file; its directory must exist:_files' \
&& ret=0
;;
(acquire)
_arguments "${_arguments_options[@]}" : \
'--slots=[How many may hold the lock at once; if more than one, the slots are PATH.1 to PATH.N]:N:_default' \
'--stale=[A lock older than this counts as old; 0\: no lock is ever stale \[default\: 3600\]]:SECS:_default' \
'--stale-when=[When a lock is stale. dead\: its holder is dead. host\: also if it was taken under this host name in a container that is not visible here. age\: also if it is old, even if its holder lives]:WHEN:(dead host age)' \
'-w+[Give up after this many seconds, such as 10 or 0.5 \[default\: never\]]:SECS:_default' \
'--timeout=[Give up after this many seconds, such as 10 or 0.5 \[default\: never\]]:SECS:_default' \
'--pid=[The process that holds the lock \[default\: the calling process\]]:PID:_default' \
'--tag=[The purpose of the lock; \`sema status\` shows it]:TAG:_default' \
'--mode=[Permission bits of the lock file, octal]:MODE:_default' \
'--json[Print one JSON value]' \
'-q[Print only errors; the exit code has the result]' \
'--quiet[Print only errors; the exit code has the result]' \
'(--pid)--persist[Take the lock without an owner\: it is held until \`sema release\`]' \
'-s[Share the lock with others that use --shared; without it, there is one holder]' \
'--shared[Share the lock with others that use --shared; without it, there is one holder]' \
'-h[Print help]' \
'--help[Print help]' \
':path -- The lock file; its directory must exist:_files' \
&& ret=0
;;
(release)
_arguments "${_arguments_options[@]}" : \
'--slots=[How many may hold the lock at once; if more than one, the slots are PATH.1 to PATH.N]:N:_default' \
'--stale=[A lock older than this counts as old; 0\: no lock is ever stale \[default\: 3600\]]:SECS:_default' \
'--stale-when=[When a lock is stale. dead\: its holder is dead. host\: also if it was taken under this host name in a container that is not visible here. age\: also if it is old, even if its holder lives]:WHEN:(dead host age)' \
'--pid=[The process that holds the lock \[default\: the calling process\]]:PID:_default' \
'--slot=[Only this one of several slots]:NUMBER:_default' \
'--json[Print one JSON value]' \
'-q[Print only errors; the exit code has the result]' \
'--quiet[Print only errors; the exit code has the result]' \
'-f[Release the lock even if another process holds it]' \
'--force[Release the lock even if another process holds it]' \
'-h[Print help]' \
'--help[Print help]' \
':path -- The lock file; its directory must exist:_files' \
&& ret=0
;;
(touch)
_arguments "${_arguments_options[@]}" : \
'--slots=[How many may hold the lock at once; if more than one, the slots are PATH.1 to PATH.N]:N:_default' \
'--stale=[A lock older than this counts as old; 0\: no lock is ever stale \[default\: 3600\]]:SECS:_default' \
'--stale-when=[When a lock is stale. dead\: its holder is dead. host\: also if it was taken under this host name in a container that is not visible here. age\: also if it is old, even if its holder lives]:WHEN:(dead host age)' \
'--pid=[The process that holds the lock \[default\: the calling process\]]:PID:_default' \
'--json[Print one JSON value]' \
'-q[Print only errors; the exit code has the result]' \
'--quiet[Print only errors; the exit code has the result]' \
'-h[Print help]' \
'--help[Print help]' \
':path -- The lock file; its directory must exist:_files' \
&& ret=0
;;
(status)
_arguments "${_arguments_options[@]}" : \
'--slots=[How many may hold the lock at once; if more than one, the slots are PATH.1 to PATH.N]:N:_default' \
'--stale=[A lock older than this counts as old; 0\: no lock is ever stale \[default\: 3600\]]:SECS:_default' \
'--stale-when=[When a lock is stale. dead\: its holder is dead. host\: also if it was taken under this host name in a container that is not visible here. age\: also if it is old, even if its holder lives]:WHEN:(dead host age)' \
'--json[Print one JSON value]' \
'-q[Print only errors; the exit code has the result]' \
'--quiet[Print only errors; the exit code has the result]' \
'-h[Print help]' \
'--help[Print help]' \
':path -- The lock file; its directory must exist:_files' \
&& ret=0
;;
(wait)
_arguments "${_arguments_options[@]}" : \
'--slots=[How many may hold the lock at once; if more than one, the slots are PATH.1 to PATH.N]:N:_default' \
'--stale=[A lock older than this counts as old; 0\: no lock is ever stale \[default\: 3600\]]:SECS:_default' \
'--stale-when=[When a lock is stale. dead\: its holder is dead. host\: also if it was taken under this host name in a container that is not visible here. age\: also if it is old, even if its holder lives]:WHEN:(dead host age)' \
'-w+[Give up after this many seconds, such as 10 or 0.5 \[default\: never\]]:SECS:_default' \
'--timeout=[Give up after this many seconds, such as 10 or 0.5 \[default\: never\]]:SECS:_default' \
'--json[Print one JSON value]' \
'-q[Print only errors; the exit code has the result]' \
'--quiet[Print only errors; the exit code has the result]' \
'--all[Wait until nobody holds the lock\: with several slots, until all are free]' \
'-h[Print help]' \
'--help[Print help]' \
':path -- The lock file; its directory must exist:_files' \
&& ret=0
;;
(list)
_arguments "${_arguments_options[@]}" : \
'--stale=[A lock older than this counts as old; 0\: no lock is ever stale \[default\: 3600\]]:SECS:_default' \
'--stale-when=[When a lock is stale. dead\: its holder is dead. host\: also if it was taken under this host name in a container that is not visible here. age\: also if it is old, even if its holder lives]:WHEN:(dead host age)' \
'--only-stale[Show stale locks only]' \
'--json[Print one JSON value]' \
'-q[Print only errors; the exit code has the result]' \
'--quiet[Print only errors; the exit code has the result]' \
'-h[Print help]' \
'--help[Print help]' \
':directory -- The directory:_files' \
&& ret=0
;;
(clean)
_arguments "${_arguments_options[@]}" : \
'--slots=[How many may hold the lock at once; if more than one, the slots are PATH.1 to PATH.N]:N:_default' \
'--stale=[A lock older than this counts as old; 0\: no lock is ever stale \[default\: 3600\]]:SECS:_default' \
'--stale-when=[When a lock is stale. dead\: its holder is dead. host\: also if it was taken under this host name in a container that is not visible here. age\: also if it is old, even if its holder lives]:WHEN:(dead host age)' \
'--json[Print one JSON value]' \
'-q[Print only errors; the exit code has the result]' \
'--quiet[Print only errors; the exit code has the result]' \
'-h[Print help]' \
'--help[Print help]' \
':path -- The lock file; its directory must exist:_files' \
&& ret=0
;;
(run)
_arguments "${_arguments_options[@]}" : \
'--slots=[How many may hold the lock at once; if more than one, the slots are PATH.1 to PATH.N]:N:_default' \
'--stale=[A lock older than this counts as old; 0\: no lock is ever stale \[default\: 3600\]]:SECS:_default' \
'--stale-when=[When a lock is stale. dead\: its holder is dead. host\: also if it was taken under this host name in a container that is not visible here. age\: also if it is old, even if its holder lives]:WHEN:(dead host age)' \
'-w+[Give up after this many seconds, such as 10 or 0.5 \[default\: never\]]:SECS:_default' \
'--timeout=[Give up after this many seconds, such as 10 or 0.5 \[default\: never\]]:SECS:_default' \
'--tag=[The purpose of the lock; \`sema status\` shows it]:TAG:_default' \
'--mode=[Permission bits of the lock file, octal]:MODE:_default' \
'-E+[The exit code when the lock is held or the time is up, instead of 1]:CODE:_default' \
'--conflict-exit-code=[The exit code when the lock is held or the time is up, instead of 1]:CODE:_default' \
'*--with=[One more lock to hold; may be given several times]:PATH:_files' \
'()-c+[Run this line in a shell]:LINE:_default' \
'()--command=[Run this line in a shell]:LINE:_default' \
'--json[Print one JSON value]' \
'-q[Print only errors; the exit code has the result]' \
'--quiet[Print only errors; the exit code has the result]' \
'-s[Share the lock with others that use --shared; without it, there is one holder]' \
'--shared[Share the lock with others that use --shared; without it, there is one holder]' \
'(-w --timeout)-n[Give up at once if the lock is held]' \
'(-w --timeout)--nonblock[Give up at once if the lock is held]' \
'-v[Print to standard error the holder, how long the wait took, and the command]' \
'--verbose[Print to standard error the holder, how long the wait took, and the command]' \
'--bg[Return as soon as the command runs; it continues in the background, without input]' \
'-h[Print help]' \
'--help[Print help]' \
':path -- The lock file; its directory must exist:_files' \
'*::command -- The command and its arguments; `--` before them is optional:_default' \
&& ret=0
;;
(completions)
_arguments "${_arguments_options[@]}" : \
'-h[Print help]' \
'--help[Print help]' \
':shell -- bash, elvish, fish, powershell or zsh:(bash elvish fish powershell zsh)' \
&& ret=0
;;
(help)
_arguments "${_arguments_options[@]}" : \
":: :_sema__subcmd__help_commands" \
"*::: :->help" \
&& ret=0

    case $state in
    (help)
        words=($line[1] "${words[@]}")
        (( CURRENT += 1 ))
        curcontext="${curcontext%:*:*}:sema-help-command-$line[1]:"
        case $line[1] in
            (try)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(acquire)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(release)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(touch)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(status)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(wait)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(list)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(clean)
_arguments "${_arguments_options[@]}" : \
&& ret=0
;;
(run)
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

(( $+functions[_sema_commands] )) ||
_sema_commands() {
    local commands; commands=(
'try:Take a lock if it is free or stale' \
'acquire:Wait until a lock can be taken, and take it' \
'release:Release a lock' \
'touch:Renew a lock, so that it does not count as old' \
'status:Show who holds a lock' \
'wait:Wait until a lock is free or stale, without taking it' \
'list:Show all locks in a directory' \
'clean:Remove a lock if it is stale, or everything stale in a directory' \
'run:Run a command while holding a lock' \
'completions:Print completions for a shell' \
'help:Print this message or the help of the given subcommand(s)' \
    )
    _describe -t commands 'sema commands' commands "$@"
}
(( $+functions[_sema__subcmd__acquire_commands] )) ||
_sema__subcmd__acquire_commands() {
    local commands; commands=()
    _describe -t commands 'sema acquire commands' commands "$@"
}
(( $+functions[_sema__subcmd__clean_commands] )) ||
_sema__subcmd__clean_commands() {
    local commands; commands=()
    _describe -t commands 'sema clean commands' commands "$@"
}
(( $+functions[_sema__subcmd__completions_commands] )) ||
_sema__subcmd__completions_commands() {
    local commands; commands=()
    _describe -t commands 'sema completions commands' commands "$@"
}
(( $+functions[_sema__subcmd__help_commands] )) ||
_sema__subcmd__help_commands() {
    local commands; commands=(
'try:Take a lock if it is free or stale' \
'acquire:Wait until a lock can be taken, and take it' \
'release:Release a lock' \
'touch:Renew a lock, so that it does not count as old' \
'status:Show who holds a lock' \
'wait:Wait until a lock is free or stale, without taking it' \
'list:Show all locks in a directory' \
'clean:Remove a lock if it is stale, or everything stale in a directory' \
'run:Run a command while holding a lock' \
'completions:Print completions for a shell' \
'help:Print this message or the help of the given subcommand(s)' \
    )
    _describe -t commands 'sema help commands' commands "$@"
}
(( $+functions[_sema__subcmd__help__subcmd__acquire_commands] )) ||
_sema__subcmd__help__subcmd__acquire_commands() {
    local commands; commands=()
    _describe -t commands 'sema help acquire commands' commands "$@"
}
(( $+functions[_sema__subcmd__help__subcmd__clean_commands] )) ||
_sema__subcmd__help__subcmd__clean_commands() {
    local commands; commands=()
    _describe -t commands 'sema help clean commands' commands "$@"
}
(( $+functions[_sema__subcmd__help__subcmd__completions_commands] )) ||
_sema__subcmd__help__subcmd__completions_commands() {
    local commands; commands=()
    _describe -t commands 'sema help completions commands' commands "$@"
}
(( $+functions[_sema__subcmd__help__subcmd__help_commands] )) ||
_sema__subcmd__help__subcmd__help_commands() {
    local commands; commands=()
    _describe -t commands 'sema help help commands' commands "$@"
}
(( $+functions[_sema__subcmd__help__subcmd__list_commands] )) ||
_sema__subcmd__help__subcmd__list_commands() {
    local commands; commands=()
    _describe -t commands 'sema help list commands' commands "$@"
}
(( $+functions[_sema__subcmd__help__subcmd__release_commands] )) ||
_sema__subcmd__help__subcmd__release_commands() {
    local commands; commands=()
    _describe -t commands 'sema help release commands' commands "$@"
}
(( $+functions[_sema__subcmd__help__subcmd__run_commands] )) ||
_sema__subcmd__help__subcmd__run_commands() {
    local commands; commands=()
    _describe -t commands 'sema help run commands' commands "$@"
}
(( $+functions[_sema__subcmd__help__subcmd__status_commands] )) ||
_sema__subcmd__help__subcmd__status_commands() {
    local commands; commands=()
    _describe -t commands 'sema help status commands' commands "$@"
}
(( $+functions[_sema__subcmd__help__subcmd__touch_commands] )) ||
_sema__subcmd__help__subcmd__touch_commands() {
    local commands; commands=()
    _describe -t commands 'sema help touch commands' commands "$@"
}
(( $+functions[_sema__subcmd__help__subcmd__try_commands] )) ||
_sema__subcmd__help__subcmd__try_commands() {
    local commands; commands=()
    _describe -t commands 'sema help try commands' commands "$@"
}
(( $+functions[_sema__subcmd__help__subcmd__wait_commands] )) ||
_sema__subcmd__help__subcmd__wait_commands() {
    local commands; commands=()
    _describe -t commands 'sema help wait commands' commands "$@"
}
(( $+functions[_sema__subcmd__list_commands] )) ||
_sema__subcmd__list_commands() {
    local commands; commands=()
    _describe -t commands 'sema list commands' commands "$@"
}
(( $+functions[_sema__subcmd__release_commands] )) ||
_sema__subcmd__release_commands() {
    local commands; commands=()
    _describe -t commands 'sema release commands' commands "$@"
}
(( $+functions[_sema__subcmd__run_commands] )) ||
_sema__subcmd__run_commands() {
    local commands; commands=()
    _describe -t commands 'sema run commands' commands "$@"
}
(( $+functions[_sema__subcmd__status_commands] )) ||
_sema__subcmd__status_commands() {
    local commands; commands=()
    _describe -t commands 'sema status commands' commands "$@"
}
(( $+functions[_sema__subcmd__touch_commands] )) ||
_sema__subcmd__touch_commands() {
    local commands; commands=()
    _describe -t commands 'sema touch commands' commands "$@"
}
(( $+functions[_sema__subcmd__try_commands] )) ||
_sema__subcmd__try_commands() {
    local commands; commands=()
    _describe -t commands 'sema try commands' commands "$@"
}
(( $+functions[_sema__subcmd__wait_commands] )) ||
_sema__subcmd__wait_commands() {
    local commands; commands=()
    _describe -t commands 'sema wait commands' commands "$@"
}

if [ "$funcstack[1]" = "_sema" ]; then
    _sema "$@"
else
    compdef _sema sema
fi
