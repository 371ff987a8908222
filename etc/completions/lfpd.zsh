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
'*--search-dir=[Look for other programs'\'' locks here too; replaces the built-in list (repeatable)]:DIR:_files' \
'--os=[Follow this system'\''s conventions for lock files \[default\: this one\]]:NAME:_default' \
'--state-dir=[Keep the start times of lock holders here]:DIR:_files' \
'--idle-timeout=[Close a connection that has asked nothing for so many seconds]:SECS:_default' \
'*--listen=[Listen on \`127.0.0.1\:PORT\`, \`\[\:\:1\]\:PORT\` or \`unix\:PATH\` for many clients, instead of serving standard input (repeatable)]:ADDR:_default' \
'--max-connections=[When listening\: so many connections in all]:N:_default' \
'--max-per-user=[When listening\: so many connections of one user]:N:_default' \
'--banner-version=[What the greeting calls the version]:TEXT:_default' \
'--force-group=[Let members of this group (name or number) release anybody'\''s lock by FORCE, as root may]:GROUP:_default' \
'--log-level=[Log this and what is graver]:LEVEL:(error warning notice info debug)' \
'--log-facility=[Log under this syslog facility\: daemon, uucp, local0 ...]:NAME:_default' \
'--trust-pid[Let any client name any process, as the original server did]' \
'--anyone[Let processes that may not open a device lock it all the same]' \
'--watch-opens[When listening\: take the lock of a port for whoever has held it open for a second without one; needs CAP_SYS_ADMIN to begin]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
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
