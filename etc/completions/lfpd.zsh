#compdef lfpd

autoload -U is-at-least

_lfpd() {
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
'--lock-dir=[Write lock files to this directory instead of the system'\''s own]:DIR:_files' \
'*--search-dir=[Search this directory for locks, instead of the built-in list (repeatable)]:DIR:_files' \
'--os=[Follow this system'\''s conventions for lock files \[default\: this one\]]:NAME:_default' \
'--state-dir=[Keep the start times of lock holders here]:DIR:_files' \
'--idle-timeout=[Close a connection that was idle for this many seconds]:SECS:_default' \
'*--listen=[Listen on \`127.0.0.1\:PORT\`, \`\[\:\:1\]\:PORT\` or \`unix\:PATH\` (repeatable)]:ADDR:_default' \
'--max-connections=[When listening\: at most this many connections in all]:N:_default' \
'--max-per-user=[When listening\: at most this many connections of one user]:N:_default' \
'--banner-version=[The version in the greeting]:TEXT:_default' \
'*--exclusive-except=[With --exclusive\: do not make this port exclusive (repeatable)]:PORT:_default' \
'--force-group=[Let this group (name or number) release any lock by FORCE, as root may]:GROUP:_default' \
'--log-level=[Log level\: error, warning, notice, info or debug]:LEVEL:(error warning notice info debug)' \
'--log-facility=[Log under this syslog facility\: daemon, uucp, local0]:NAME:_default' \
'--trust-pid[Let any client name any process, as the original server did]' \
'--anyone[Let processes lock devices that they may not open]' \
'--watch-opens[When listening\: lock ports for programs that open them without a lock]' \
'(--trust-pid --anyone)--exclusive[When listening\: let nobody but its holder open a locked port]' \
'-h[Print help]' \
'--help[Print help]' \
'-V[Print version]' \
'--version[Print version]' \
&& ret=0
}

(( $+functions[_lfpd_commands] )) ||
_lfpd_commands() {
    local commands; commands=()
    _describe -t commands 'lfpd commands' commands "$@"
}

if [ "$funcstack[1]" = "_lfpd" ]; then
    _lfpd "$@"
else
    compdef _lfpd lfpd
fi
