complete -c lfpd -l lock-dir -d 'Write lock files to this directory instead of the system\'s own' -r -F
complete -c lfpd -l search-dir -d 'Search this directory for locks, instead of the built-in list (repeatable)' -r -F
complete -c lfpd -l os -d 'Follow this system\'s conventions for lock files [default: this one]' -r
complete -c lfpd -l state-dir -d 'Keep the start times of lock holders here' -r -F
complete -c lfpd -l idle-timeout -d 'Close a connection that was idle for this many seconds' -r
complete -c lfpd -l listen -d 'Listen on `127.0.0.1:PORT`, `[::1]:PORT` or `unix:PATH` (repeatable)' -r
complete -c lfpd -l max-connections -d 'When listening: at most this many connections in all' -r
complete -c lfpd -l max-per-user -d 'When listening: at most this many connections of one user' -r
complete -c lfpd -l banner-version -d 'The version in the greeting' -r
complete -c lfpd -l exclusive-except -d 'With --exclusive: do not make this port exclusive (repeatable)' -r
complete -c lfpd -l force-group -d 'Let this group (name or number) release any lock by FORCE, as root may' -r
complete -c lfpd -l log-level -d 'Log level: error, warning, notice, info or debug' -r -f -a "error\t''
warning\t''
notice\t''
info\t''
debug\t''"
complete -c lfpd -l log-facility -d 'Log under this syslog facility: daemon, uucp, local0' -r
complete -c lfpd -l trust-pid -d 'Let any client name any process, as the original server did'
complete -c lfpd -l anyone -d 'Let processes lock devices that they may not open'
complete -c lfpd -l watch-opens -d 'When listening: lock ports for programs that open them without a lock'
complete -c lfpd -l exclusive -d 'When listening: let nobody but its holder open a locked port'
complete -c lfpd -s h -l help -d 'Print help'
complete -c lfpd -s V -l version -d 'Print version'
