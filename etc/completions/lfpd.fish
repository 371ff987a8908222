# Completions of lfpd, made from its command line.

set --global __lfpd_table \
    '- --lock-dir DIR Write lock files to this directory instead of the system\'s own' \
    '- --search-dir DIR Search this directory for locks, instead of the built-in list (repeatable)' \
    '- --os =linux,freebsd,dragonfly,netbsd,openbsd,macos,solaris,illumos,aix,irix,unixware,tru64,qnx,generic Follow this system\'s conventions for lock files [default: this one]' \
    '- --state-dir DIR Keep the start times of lock holders here' \
    '- --idle-timeout . Close a connection that was idle for this many seconds' \
    '- --listen . Listen on `127.0.0.1:PORT`, `[::1]:PORT` or `unix:PATH` (repeatable)' \
    '- --max-connections . When listening: at most this many connections in all' \
    '- --max-per-user . When listening: at most this many connections of one user' \
    '- --banner-version . The version in the greeting' \
    '- --trust-pid - Let any client name any process, as the original server did' \
    '- --anyone - Let processes lock devices that they may not open' \
    '- --watch-opens - When listening: lock ports for programs that open them without a lock' \
    '- --exclusive - When listening: let nobody but its holder open a locked port' \
    '- --exclusive-except . With --exclusive: do not make this port exclusive (repeatable)' \
    '- --force-group . Let this group (name or number) release any lock by FORCE, as root may' \
    '- --log-level =error,warning,notice,info,debug Log level: error, warning, notice, info or debug' \
    '- --log-facility . Log under this syslog facility: daemon, uucp, local0' \
    '* -h,--help - Print help' \
    '- -V,--version - Print version' \

# What the row of a command says of an option, or of the number of a word (+: all further words).
function __lfpd_kind --argument-names command name
    for row in $__lfpd_table
        set -l cells (string split -m 3 ' ' -- $row)
        if contains -- $cells[1] $command '*'; and contains -- $name (string split , -- $cells[2])
            echo $cells[3]
            return
        end
    end
end

# The kind of the word at a place.
function __lfpd_place --argument-names command place
    set -l kind (__lfpd_kind $command $place)
    test -n "$kind"; or set kind (__lfpd_kind $command +)
    echo $kind
end

function __lfpd_complete
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
            set kind (__lfpd_kind $command +)
            if test "$kind" = COMMAND
                set -e words[1]
                break
            end
        else if string match -q -- '-?*' $word; and test $plain = no
            set kind (__lfpd_kind $command (string replace -r '=.*' '' -- $word))
            test "$kind" = FIRST; and test $place = 0; and set place 1
            test "$kind" = -; or string match -q -- '*=*' $word; or set value $kind
        else if test $command = -; and test "$(__lfpd_kind - $word)" = VERB
            set command $word
        else
            set place (math $place + 1)
            set kind (__lfpd_place $command $place)
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
        set kind (__lfpd_place $command (math $place + 1))
        if test -z "$kind"; and test $command = -; and test $plain = no
            set kind VERB
        end
    end
    if test $plain = no; and string match -q -- '--*=*' $cur
        set before (string replace -r '=.*' '=' -- $cur)
        set kind (__lfpd_kind $command (string replace -r '=.*' '' -- $cur))
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
            for row in $__lfpd_table
                set -l cells (string split -m 3 ' ' -- $row)
                contains -- $cells[1] $command '*'; or continue
                test "$cells[3]" = $kind; or string match -q -- 'OPTION-*' $kind$cells[2]; or continue
                printf '%s\t%s\n' (string split , -- $cells[2])[-1] "$cells[4]"
            end
    end
end

complete --command lfpd --no-files --arguments '(__lfpd_complete)'
