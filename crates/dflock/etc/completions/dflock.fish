# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_dflock_global_optspecs
    string join \n s/server= any-of= auth-token-file= tls tls-ca= tls-name= patience= read-timeout= json h/help V/version
end

function __fish_dflock_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_dflock_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_dflock_using_subcommand
    set -l cmd (__fish_dflock_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c dflock -n "__fish_dflock_needs_command" -s s -l server -d 'HOST:PORT, `[V6]:PORT` or unix:PATH. If there are several, the CRC-32 of the key chooses one, as in all dflockd clients; list the same servers in the same order everywhere' -r
complete -c dflock -n "__fish_dflock_needs_command" -l any-of -d 'Instead of --server: addresses of one service, such as servers on one etcd, separated by commas or given more than once. If one does not answer, the next is asked' -r
complete -c dflock -n "__fish_dflock_needs_command" -l auth-token-file -d 'File with the auth token. Without it, the environment variable DFLOCK_AUTH_TOKEN is used. There is no option for the token itself: other users could read it from the process list' -r -F
complete -c dflock -n "__fish_dflock_needs_command" -l tls-ca -d 'Trust the certificates in this PEM file instead. Turns TLS on' -r -F
complete -c dflock -n "__fish_dflock_needs_command" -l tls-name -d 'The name in the server\'s certificate, if it is not the host. Turns TLS on' -r
complete -c dflock -n "__fish_dflock_needs_command" -l patience -d 'Seconds to look for a server that is away, to wait for a connection, and to wait for an answer that is overdue. `ping` and `stats` ask once' -r
complete -c dflock -n "__fish_dflock_needs_command" -l read-timeout -d 'The servers\' --read-timeout: a server that hears nothing for this time gives the lock away' -r
complete -c dflock -n "__fish_dflock_needs_command" -l tls -d 'Speak TLS. The server\'s certificate must name its host, and be signed by an authority that this system trusts'
complete -c dflock -n "__fish_dflock_needs_command" -l json -d 'Answer in JSON, one object on one line'
complete -c dflock -n "__fish_dflock_needs_command" -s h -l help -d 'Print help'
complete -c dflock -n "__fish_dflock_needs_command" -s V -l version -d 'Print version'
complete -c dflock -n "__fish_dflock_needs_command" -f -a "run" -d 'Hold a lock while a command runs'
complete -c dflock -n "__fish_dflock_needs_command" -f -a "acquire" -d 'Take a lock and print its token'
complete -c dflock -n "__fish_dflock_needs_command" -f -a "release" -d 'Release a lock by its token'
complete -c dflock -n "__fish_dflock_needs_command" -f -a "renew" -d 'Renew a lease by its token'
complete -c dflock -n "__fish_dflock_needs_command" -f -a "watch" -d 'Print the holder of a lock whenever it changes'
complete -c dflock -n "__fish_dflock_needs_command" -f -a "stats" -d 'Show the holders of all locks'
complete -c dflock -n "__fish_dflock_needs_command" -f -a "force-release" -d 'Take a lock away from its holder (administrators)'
complete -c dflock -n "__fish_dflock_needs_command" -f -a "kick" -d 'End a client\'s connection (administrators)'
complete -c dflock -n "__fish_dflock_needs_command" -f -a "ping" -d 'Ask every server whether it answers'
complete -c dflock -n "__fish_dflock_needs_command" -f -a "bench" -d 'Load a server and measure it'
complete -c dflock -n "__fish_dflock_needs_command" -f -a "completions" -d 'Print a completion script'
complete -c dflock -n "__fish_dflock_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c dflock -n "__fish_dflock_using_subcommand run" -s k -l key -d 'Hold this lock, too. May be given more than once; then all are held, or none: if one of them cannot be had, the others are released. No order of keys leads to a deadlock' -r
complete -c dflock -n "__fish_dflock_using_subcommand run" -s t -l timeout -d 'Seconds to wait in line. 0: do not wait. Not given: wait for ever' -r
complete -c dflock -n "__fish_dflock_using_subcommand run" -l ttl -d 'Length of the lease in seconds, instead of the server\'s default' -r
complete -c dflock -n "__fish_dflock_using_subcommand run" -l limit -d 'A semaphore of this many slots instead of a lock' -r
complete -c dflock -n "__fish_dflock_using_subcommand run" -l name -d 'The name of this holder in `dflock stats --long` and on the server\'s page, instead of user, host, process id and the command without its arguments' -r
complete -c dflock -n "__fish_dflock_using_subcommand run" -l value -d 'Text about this holder that `dflock watch` prints for programs, such as its address: 1 to 256 bytes' -r
complete -c dflock -n "__fish_dflock_using_subcommand run" -l grace -d 'Seconds between TERM and KILL when the lease is lost; at most a third of the lease, or of --read-timeout, counts. If the server cannot be reached, TERM comes this long before the lease ends' -r
complete -c dflock -n "__fish_dflock_using_subcommand run" -l reclaim -d 'Seconds to look for the server after the connection broke. Not given: as long as the lease lasts, less --grace. A server with its default settings has given the lock away by then' -r
complete -c dflock -n "__fish_dflock_using_subcommand run" -l hold-for -d 'Hold the lock for at least this many seconds, even if the command ends sooner: for a job that several hosts start at about the same time, and that only one of them should do' -r
complete -c dflock -n "__fish_dflock_using_subcommand run" -s E -l busy-exit-code -d 'Exit code for busy and timed out, instead of 1 and 75; without --json no message either' -r
complete -c dflock -n "__fish_dflock_using_subcommand run" -s s -l server -d 'HOST:PORT, `[V6]:PORT` or unix:PATH. If there are several, the CRC-32 of the key chooses one, as in all dflockd clients; list the same servers in the same order everywhere' -r
complete -c dflock -n "__fish_dflock_using_subcommand run" -l any-of -d 'Instead of --server: addresses of one service, such as servers on one etcd, separated by commas or given more than once. If one does not answer, the next is asked' -r
complete -c dflock -n "__fish_dflock_using_subcommand run" -l auth-token-file -d 'File with the auth token. Without it, the environment variable DFLOCK_AUTH_TOKEN is used. There is no option for the token itself: other users could read it from the process list' -r -F
complete -c dflock -n "__fish_dflock_using_subcommand run" -l tls-ca -d 'Trust the certificates in this PEM file instead. Turns TLS on' -r -F
complete -c dflock -n "__fish_dflock_using_subcommand run" -l tls-name -d 'The name in the server\'s certificate, if it is not the host. Turns TLS on' -r
complete -c dflock -n "__fish_dflock_using_subcommand run" -l patience -d 'Seconds to look for a server that is away, to wait for a connection, and to wait for an answer that is overdue. `ping` and `stats` ask once' -r
complete -c dflock -n "__fish_dflock_using_subcommand run" -l read-timeout -d 'The servers\' --read-timeout: a server that hears nothing for this time gives the lock away' -r
complete -c dflock -n "__fish_dflock_using_subcommand run" -l shared -d 'Share the lock with others that give this option. Without it, the lock has one holder alone'
complete -c dflock -n "__fish_dflock_using_subcommand run" -l tls -d 'Speak TLS. The server\'s certificate must name its host, and be signed by an authority that this system trusts'
complete -c dflock -n "__fish_dflock_using_subcommand run" -l json -d 'Answer in JSON, one object on one line'
complete -c dflock -n "__fish_dflock_using_subcommand run" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dflock -n "__fish_dflock_using_subcommand acquire" -s t -l timeout -d 'Seconds to wait in line. 0: do not wait. Not given: wait for ever' -r
complete -c dflock -n "__fish_dflock_using_subcommand acquire" -l ttl -d 'Length of the lease in seconds, instead of the server\'s default' -r
complete -c dflock -n "__fish_dflock_using_subcommand acquire" -l limit -d 'A semaphore of this many slots instead of a lock' -r
complete -c dflock -n "__fish_dflock_using_subcommand acquire" -l name -d 'The name of this holder in `dflock stats --long` and on the server\'s page, instead of user, host, process id and the command without its arguments' -r
complete -c dflock -n "__fish_dflock_using_subcommand acquire" -l value -d 'Text about this holder that `dflock watch` prints for programs, such as its address: 1 to 256 bytes' -r
complete -c dflock -n "__fish_dflock_using_subcommand acquire" -s s -l server -d 'HOST:PORT, `[V6]:PORT` or unix:PATH. If there are several, the CRC-32 of the key chooses one, as in all dflockd clients; list the same servers in the same order everywhere' -r
complete -c dflock -n "__fish_dflock_using_subcommand acquire" -l any-of -d 'Instead of --server: addresses of one service, such as servers on one etcd, separated by commas or given more than once. If one does not answer, the next is asked' -r
complete -c dflock -n "__fish_dflock_using_subcommand acquire" -l auth-token-file -d 'File with the auth token. Without it, the environment variable DFLOCK_AUTH_TOKEN is used. There is no option for the token itself: other users could read it from the process list' -r -F
complete -c dflock -n "__fish_dflock_using_subcommand acquire" -l tls-ca -d 'Trust the certificates in this PEM file instead. Turns TLS on' -r -F
complete -c dflock -n "__fish_dflock_using_subcommand acquire" -l tls-name -d 'The name in the server\'s certificate, if it is not the host. Turns TLS on' -r
complete -c dflock -n "__fish_dflock_using_subcommand acquire" -l patience -d 'Seconds to look for a server that is away, to wait for a connection, and to wait for an answer that is overdue. `ping` and `stats` ask once' -r
complete -c dflock -n "__fish_dflock_using_subcommand acquire" -l read-timeout -d 'The servers\' --read-timeout: a server that hears nothing for this time gives the lock away' -r
complete -c dflock -n "__fish_dflock_using_subcommand acquire" -l shared -d 'Share the lock with others that give this option. Without it, the lock has one holder alone'
complete -c dflock -n "__fish_dflock_using_subcommand acquire" -l hold -d 'Keep and renew the lock until standard input ends or a signal comes'
complete -c dflock -n "__fish_dflock_using_subcommand acquire" -l tls -d 'Speak TLS. The server\'s certificate must name its host, and be signed by an authority that this system trusts'
complete -c dflock -n "__fish_dflock_using_subcommand acquire" -l json -d 'Answer in JSON, one object on one line'
complete -c dflock -n "__fish_dflock_using_subcommand acquire" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dflock -n "__fish_dflock_using_subcommand release" -s s -l server -d 'HOST:PORT, `[V6]:PORT` or unix:PATH. If there are several, the CRC-32 of the key chooses one, as in all dflockd clients; list the same servers in the same order everywhere' -r
complete -c dflock -n "__fish_dflock_using_subcommand release" -l any-of -d 'Instead of --server: addresses of one service, such as servers on one etcd, separated by commas or given more than once. If one does not answer, the next is asked' -r
complete -c dflock -n "__fish_dflock_using_subcommand release" -l auth-token-file -d 'File with the auth token. Without it, the environment variable DFLOCK_AUTH_TOKEN is used. There is no option for the token itself: other users could read it from the process list' -r -F
complete -c dflock -n "__fish_dflock_using_subcommand release" -l tls-ca -d 'Trust the certificates in this PEM file instead. Turns TLS on' -r -F
complete -c dflock -n "__fish_dflock_using_subcommand release" -l tls-name -d 'The name in the server\'s certificate, if it is not the host. Turns TLS on' -r
complete -c dflock -n "__fish_dflock_using_subcommand release" -l patience -d 'Seconds to look for a server that is away, to wait for a connection, and to wait for an answer that is overdue. `ping` and `stats` ask once' -r
complete -c dflock -n "__fish_dflock_using_subcommand release" -l read-timeout -d 'The servers\' --read-timeout: a server that hears nothing for this time gives the lock away' -r
complete -c dflock -n "__fish_dflock_using_subcommand release" -l tls -d 'Speak TLS. The server\'s certificate must name its host, and be signed by an authority that this system trusts'
complete -c dflock -n "__fish_dflock_using_subcommand release" -l json -d 'Answer in JSON, one object on one line'
complete -c dflock -n "__fish_dflock_using_subcommand release" -s h -l help -d 'Print help'
complete -c dflock -n "__fish_dflock_using_subcommand renew" -l ttl -d 'Length of the lease from now in seconds, instead of the server\'s default' -r
complete -c dflock -n "__fish_dflock_using_subcommand renew" -s s -l server -d 'HOST:PORT, `[V6]:PORT` or unix:PATH. If there are several, the CRC-32 of the key chooses one, as in all dflockd clients; list the same servers in the same order everywhere' -r
complete -c dflock -n "__fish_dflock_using_subcommand renew" -l any-of -d 'Instead of --server: addresses of one service, such as servers on one etcd, separated by commas or given more than once. If one does not answer, the next is asked' -r
complete -c dflock -n "__fish_dflock_using_subcommand renew" -l auth-token-file -d 'File with the auth token. Without it, the environment variable DFLOCK_AUTH_TOKEN is used. There is no option for the token itself: other users could read it from the process list' -r -F
complete -c dflock -n "__fish_dflock_using_subcommand renew" -l tls-ca -d 'Trust the certificates in this PEM file instead. Turns TLS on' -r -F
complete -c dflock -n "__fish_dflock_using_subcommand renew" -l tls-name -d 'The name in the server\'s certificate, if it is not the host. Turns TLS on' -r
complete -c dflock -n "__fish_dflock_using_subcommand renew" -l patience -d 'Seconds to look for a server that is away, to wait for a connection, and to wait for an answer that is overdue. `ping` and `stats` ask once' -r
complete -c dflock -n "__fish_dflock_using_subcommand renew" -l read-timeout -d 'The servers\' --read-timeout: a server that hears nothing for this time gives the lock away' -r
complete -c dflock -n "__fish_dflock_using_subcommand renew" -l tls -d 'Speak TLS. The server\'s certificate must name its host, and be signed by an authority that this system trusts'
complete -c dflock -n "__fish_dflock_using_subcommand renew" -l json -d 'Answer in JSON, one object on one line'
complete -c dflock -n "__fish_dflock_using_subcommand renew" -s h -l help -d 'Print help'
complete -c dflock -n "__fish_dflock_using_subcommand watch" -s s -l server -d 'HOST:PORT, `[V6]:PORT` or unix:PATH. If there are several, the CRC-32 of the key chooses one, as in all dflockd clients; list the same servers in the same order everywhere' -r
complete -c dflock -n "__fish_dflock_using_subcommand watch" -l any-of -d 'Instead of --server: addresses of one service, such as servers on one etcd, separated by commas or given more than once. If one does not answer, the next is asked' -r
complete -c dflock -n "__fish_dflock_using_subcommand watch" -l auth-token-file -d 'File with the auth token. Without it, the environment variable DFLOCK_AUTH_TOKEN is used. There is no option for the token itself: other users could read it from the process list' -r -F
complete -c dflock -n "__fish_dflock_using_subcommand watch" -l tls-ca -d 'Trust the certificates in this PEM file instead. Turns TLS on' -r -F
complete -c dflock -n "__fish_dflock_using_subcommand watch" -l tls-name -d 'The name in the server\'s certificate, if it is not the host. Turns TLS on' -r
complete -c dflock -n "__fish_dflock_using_subcommand watch" -l patience -d 'Seconds to look for a server that is away, to wait for a connection, and to wait for an answer that is overdue. `ping` and `stats` ask once' -r
complete -c dflock -n "__fish_dflock_using_subcommand watch" -l read-timeout -d 'The servers\' --read-timeout: a server that hears nothing for this time gives the lock away' -r
complete -c dflock -n "__fish_dflock_using_subcommand watch" -l once -d 'Print the present state, and end'
complete -c dflock -n "__fish_dflock_using_subcommand watch" -l tls -d 'Speak TLS. The server\'s certificate must name its host, and be signed by an authority that this system trusts'
complete -c dflock -n "__fish_dflock_using_subcommand watch" -l json -d 'Answer in JSON, one object on one line'
complete -c dflock -n "__fish_dflock_using_subcommand watch" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dflock -n "__fish_dflock_using_subcommand stats" -s s -l server -d 'HOST:PORT, `[V6]:PORT` or unix:PATH. If there are several, the CRC-32 of the key chooses one, as in all dflockd clients; list the same servers in the same order everywhere' -r
complete -c dflock -n "__fish_dflock_using_subcommand stats" -l any-of -d 'Instead of --server: addresses of one service, such as servers on one etcd, separated by commas or given more than once. If one does not answer, the next is asked' -r
complete -c dflock -n "__fish_dflock_using_subcommand stats" -l auth-token-file -d 'File with the auth token. Without it, the environment variable DFLOCK_AUTH_TOKEN is used. There is no option for the token itself: other users could read it from the process list' -r -F
complete -c dflock -n "__fish_dflock_using_subcommand stats" -l tls-ca -d 'Trust the certificates in this PEM file instead. Turns TLS on' -r -F
complete -c dflock -n "__fish_dflock_using_subcommand stats" -l tls-name -d 'The name in the server\'s certificate, if it is not the host. Turns TLS on' -r
complete -c dflock -n "__fish_dflock_using_subcommand stats" -l patience -d 'Seconds to look for a server that is away, to wait for a connection, and to wait for an answer that is overdue. `ping` and `stats` ask once' -r
complete -c dflock -n "__fish_dflock_using_subcommand stats" -l read-timeout -d 'The servers\' --read-timeout: a server that hears nothing for this time gives the lock away' -r
complete -c dflock -n "__fish_dflock_using_subcommand stats" -s l -l long -d 'Also show the names of the holders'
complete -c dflock -n "__fish_dflock_using_subcommand stats" -l tls -d 'Speak TLS. The server\'s certificate must name its host, and be signed by an authority that this system trusts'
complete -c dflock -n "__fish_dflock_using_subcommand stats" -l json -d 'Answer in JSON, one object on one line'
complete -c dflock -n "__fish_dflock_using_subcommand stats" -s h -l help -d 'Print help'
complete -c dflock -n "__fish_dflock_using_subcommand force-release" -l http-port -d 'The servers\' --http-port' -r
complete -c dflock -n "__fish_dflock_using_subcommand force-release" -l admin-token-file -d 'File with the secret of the servers\' --admin-token-file. Without it, the environment variable DFLOCK_ADMIN_TOKEN is used' -r -F
complete -c dflock -n "__fish_dflock_using_subcommand force-release" -s s -l server -d 'HOST:PORT, `[V6]:PORT` or unix:PATH. If there are several, the CRC-32 of the key chooses one, as in all dflockd clients; list the same servers in the same order everywhere' -r
complete -c dflock -n "__fish_dflock_using_subcommand force-release" -l any-of -d 'Instead of --server: addresses of one service, such as servers on one etcd, separated by commas or given more than once. If one does not answer, the next is asked' -r
complete -c dflock -n "__fish_dflock_using_subcommand force-release" -l auth-token-file -d 'File with the auth token. Without it, the environment variable DFLOCK_AUTH_TOKEN is used. There is no option for the token itself: other users could read it from the process list' -r -F
complete -c dflock -n "__fish_dflock_using_subcommand force-release" -l tls-ca -d 'Trust the certificates in this PEM file instead. Turns TLS on' -r -F
complete -c dflock -n "__fish_dflock_using_subcommand force-release" -l tls-name -d 'The name in the server\'s certificate, if it is not the host. Turns TLS on' -r
complete -c dflock -n "__fish_dflock_using_subcommand force-release" -l patience -d 'Seconds to look for a server that is away, to wait for a connection, and to wait for an answer that is overdue. `ping` and `stats` ask once' -r
complete -c dflock -n "__fish_dflock_using_subcommand force-release" -l read-timeout -d 'The servers\' --read-timeout: a server that hears nothing for this time gives the lock away' -r
complete -c dflock -n "__fish_dflock_using_subcommand force-release" -l tls -d 'Speak TLS. The server\'s certificate must name its host, and be signed by an authority that this system trusts'
complete -c dflock -n "__fish_dflock_using_subcommand force-release" -l json -d 'Answer in JSON, one object on one line'
complete -c dflock -n "__fish_dflock_using_subcommand force-release" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dflock -n "__fish_dflock_using_subcommand kick" -l http-port -d 'The servers\' --http-port' -r
complete -c dflock -n "__fish_dflock_using_subcommand kick" -l admin-token-file -d 'File with the secret of the servers\' --admin-token-file. Without it, the environment variable DFLOCK_ADMIN_TOKEN is used' -r -F
complete -c dflock -n "__fish_dflock_using_subcommand kick" -s s -l server -d 'HOST:PORT, `[V6]:PORT` or unix:PATH. If there are several, the CRC-32 of the key chooses one, as in all dflockd clients; list the same servers in the same order everywhere' -r
complete -c dflock -n "__fish_dflock_using_subcommand kick" -l any-of -d 'Instead of --server: addresses of one service, such as servers on one etcd, separated by commas or given more than once. If one does not answer, the next is asked' -r
complete -c dflock -n "__fish_dflock_using_subcommand kick" -l auth-token-file -d 'File with the auth token. Without it, the environment variable DFLOCK_AUTH_TOKEN is used. There is no option for the token itself: other users could read it from the process list' -r -F
complete -c dflock -n "__fish_dflock_using_subcommand kick" -l tls-ca -d 'Trust the certificates in this PEM file instead. Turns TLS on' -r -F
complete -c dflock -n "__fish_dflock_using_subcommand kick" -l tls-name -d 'The name in the server\'s certificate, if it is not the host. Turns TLS on' -r
complete -c dflock -n "__fish_dflock_using_subcommand kick" -l patience -d 'Seconds to look for a server that is away, to wait for a connection, and to wait for an answer that is overdue. `ping` and `stats` ask once' -r
complete -c dflock -n "__fish_dflock_using_subcommand kick" -l read-timeout -d 'The servers\' --read-timeout: a server that hears nothing for this time gives the lock away' -r
complete -c dflock -n "__fish_dflock_using_subcommand kick" -l tls -d 'Speak TLS. The server\'s certificate must name its host, and be signed by an authority that this system trusts'
complete -c dflock -n "__fish_dflock_using_subcommand kick" -l json -d 'Answer in JSON, one object on one line'
complete -c dflock -n "__fish_dflock_using_subcommand kick" -s h -l help -d 'Print help'
complete -c dflock -n "__fish_dflock_using_subcommand ping" -s s -l server -d 'HOST:PORT, `[V6]:PORT` or unix:PATH. If there are several, the CRC-32 of the key chooses one, as in all dflockd clients; list the same servers in the same order everywhere' -r
complete -c dflock -n "__fish_dflock_using_subcommand ping" -l any-of -d 'Instead of --server: addresses of one service, such as servers on one etcd, separated by commas or given more than once. If one does not answer, the next is asked' -r
complete -c dflock -n "__fish_dflock_using_subcommand ping" -l auth-token-file -d 'File with the auth token. Without it, the environment variable DFLOCK_AUTH_TOKEN is used. There is no option for the token itself: other users could read it from the process list' -r -F
complete -c dflock -n "__fish_dflock_using_subcommand ping" -l tls-ca -d 'Trust the certificates in this PEM file instead. Turns TLS on' -r -F
complete -c dflock -n "__fish_dflock_using_subcommand ping" -l tls-name -d 'The name in the server\'s certificate, if it is not the host. Turns TLS on' -r
complete -c dflock -n "__fish_dflock_using_subcommand ping" -l patience -d 'Seconds to look for a server that is away, to wait for a connection, and to wait for an answer that is overdue. `ping` and `stats` ask once' -r
complete -c dflock -n "__fish_dflock_using_subcommand ping" -l read-timeout -d 'The servers\' --read-timeout: a server that hears nothing for this time gives the lock away' -r
complete -c dflock -n "__fish_dflock_using_subcommand ping" -l tls -d 'Speak TLS. The server\'s certificate must name its host, and be signed by an authority that this system trusts'
complete -c dflock -n "__fish_dflock_using_subcommand ping" -l json -d 'Answer in JSON, one object on one line'
complete -c dflock -n "__fish_dflock_using_subcommand ping" -s h -l help -d 'Print help'
complete -c dflock -n "__fish_dflock_using_subcommand bench" -s c -l connections -d 'Simultaneous connections' -r
complete -c dflock -n "__fish_dflock_using_subcommand bench" -s d -l duration -d 'Seconds to measure' -r
complete -c dflock -n "__fish_dflock_using_subcommand bench" -s n -l pairs -d 'Stop after this many pairs instead' -r
complete -c dflock -n "__fish_dflock_using_subcommand bench" -s k -l keys -d 'Keys that all connections share [default: each connection has its own, and nobody waits]' -r
complete -c dflock -n "__fish_dflock_using_subcommand bench" -l depth -d 'Pairs at once on each connection; more than 1 only without --keys' -r
complete -c dflock -n "__fish_dflock_using_subcommand bench" -l limit -d 'Semaphores of this many slots; 1: locks' -r
complete -c dflock -n "__fish_dflock_using_subcommand bench" -s t -l timeout -d 'Seconds an acquire may wait' -r
complete -c dflock -n "__fish_dflock_using_subcommand bench" -l ttl -d 'Length of the leases in seconds' -r
complete -c dflock -n "__fish_dflock_using_subcommand bench" -l warm-up -d 'Milliseconds of load before measuring starts' -r
complete -c dflock -n "__fish_dflock_using_subcommand bench" -l prefix -d 'The prefix of the keys' -r
complete -c dflock -n "__fish_dflock_using_subcommand bench" -s s -l server -d 'HOST:PORT, `[V6]:PORT` or unix:PATH. If there are several, the CRC-32 of the key chooses one, as in all dflockd clients; list the same servers in the same order everywhere' -r
complete -c dflock -n "__fish_dflock_using_subcommand bench" -l any-of -d 'Instead of --server: addresses of one service, such as servers on one etcd, separated by commas or given more than once. If one does not answer, the next is asked' -r
complete -c dflock -n "__fish_dflock_using_subcommand bench" -l auth-token-file -d 'File with the auth token. Without it, the environment variable DFLOCK_AUTH_TOKEN is used. There is no option for the token itself: other users could read it from the process list' -r -F
complete -c dflock -n "__fish_dflock_using_subcommand bench" -l tls-ca -d 'Trust the certificates in this PEM file instead. Turns TLS on' -r -F
complete -c dflock -n "__fish_dflock_using_subcommand bench" -l tls-name -d 'The name in the server\'s certificate, if it is not the host. Turns TLS on' -r
complete -c dflock -n "__fish_dflock_using_subcommand bench" -l patience -d 'Seconds to look for a server that is away, to wait for a connection, and to wait for an answer that is overdue. `ping` and `stats` ask once' -r
complete -c dflock -n "__fish_dflock_using_subcommand bench" -l read-timeout -d 'The servers\' --read-timeout: a server that hears nothing for this time gives the lock away' -r
complete -c dflock -n "__fish_dflock_using_subcommand bench" -l shared -d 'Shared locks: all connections are readers, and hold a key together'
complete -c dflock -n "__fish_dflock_using_subcommand bench" -l tls -d 'Speak TLS. The server\'s certificate must name its host, and be signed by an authority that this system trusts'
complete -c dflock -n "__fish_dflock_using_subcommand bench" -l json -d 'Answer in JSON, one object on one line'
complete -c dflock -n "__fish_dflock_using_subcommand bench" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c dflock -n "__fish_dflock_using_subcommand completions" -s s -l server -d 'HOST:PORT, `[V6]:PORT` or unix:PATH. If there are several, the CRC-32 of the key chooses one, as in all dflockd clients; list the same servers in the same order everywhere' -r
complete -c dflock -n "__fish_dflock_using_subcommand completions" -l any-of -d 'Instead of --server: addresses of one service, such as servers on one etcd, separated by commas or given more than once. If one does not answer, the next is asked' -r
complete -c dflock -n "__fish_dflock_using_subcommand completions" -l auth-token-file -d 'File with the auth token. Without it, the environment variable DFLOCK_AUTH_TOKEN is used. There is no option for the token itself: other users could read it from the process list' -r -F
complete -c dflock -n "__fish_dflock_using_subcommand completions" -l tls-ca -d 'Trust the certificates in this PEM file instead. Turns TLS on' -r -F
complete -c dflock -n "__fish_dflock_using_subcommand completions" -l tls-name -d 'The name in the server\'s certificate, if it is not the host. Turns TLS on' -r
complete -c dflock -n "__fish_dflock_using_subcommand completions" -l patience -d 'Seconds to look for a server that is away, to wait for a connection, and to wait for an answer that is overdue. `ping` and `stats` ask once' -r
complete -c dflock -n "__fish_dflock_using_subcommand completions" -l read-timeout -d 'The servers\' --read-timeout: a server that hears nothing for this time gives the lock away' -r
complete -c dflock -n "__fish_dflock_using_subcommand completions" -l tls -d 'Speak TLS. The server\'s certificate must name its host, and be signed by an authority that this system trusts'
complete -c dflock -n "__fish_dflock_using_subcommand completions" -l json -d 'Answer in JSON, one object on one line'
complete -c dflock -n "__fish_dflock_using_subcommand completions" -s h -l help -d 'Print help'
complete -c dflock -n "__fish_dflock_using_subcommand help; and not __fish_seen_subcommand_from run acquire release renew watch stats force-release kick ping bench completions help" -f -a "run" -d 'Hold a lock while a command runs'
complete -c dflock -n "__fish_dflock_using_subcommand help; and not __fish_seen_subcommand_from run acquire release renew watch stats force-release kick ping bench completions help" -f -a "acquire" -d 'Take a lock and print its token'
complete -c dflock -n "__fish_dflock_using_subcommand help; and not __fish_seen_subcommand_from run acquire release renew watch stats force-release kick ping bench completions help" -f -a "release" -d 'Release a lock by its token'
complete -c dflock -n "__fish_dflock_using_subcommand help; and not __fish_seen_subcommand_from run acquire release renew watch stats force-release kick ping bench completions help" -f -a "renew" -d 'Renew a lease by its token'
complete -c dflock -n "__fish_dflock_using_subcommand help; and not __fish_seen_subcommand_from run acquire release renew watch stats force-release kick ping bench completions help" -f -a "watch" -d 'Print the holder of a lock whenever it changes'
complete -c dflock -n "__fish_dflock_using_subcommand help; and not __fish_seen_subcommand_from run acquire release renew watch stats force-release kick ping bench completions help" -f -a "stats" -d 'Show the holders of all locks'
complete -c dflock -n "__fish_dflock_using_subcommand help; and not __fish_seen_subcommand_from run acquire release renew watch stats force-release kick ping bench completions help" -f -a "force-release" -d 'Take a lock away from its holder (administrators)'
complete -c dflock -n "__fish_dflock_using_subcommand help; and not __fish_seen_subcommand_from run acquire release renew watch stats force-release kick ping bench completions help" -f -a "kick" -d 'End a client\'s connection (administrators)'
complete -c dflock -n "__fish_dflock_using_subcommand help; and not __fish_seen_subcommand_from run acquire release renew watch stats force-release kick ping bench completions help" -f -a "ping" -d 'Ask every server whether it answers'
complete -c dflock -n "__fish_dflock_using_subcommand help; and not __fish_seen_subcommand_from run acquire release renew watch stats force-release kick ping bench completions help" -f -a "bench" -d 'Load a server and measure it'
complete -c dflock -n "__fish_dflock_using_subcommand help; and not __fish_seen_subcommand_from run acquire release renew watch stats force-release kick ping bench completions help" -f -a "completions" -d 'Print a completion script'
complete -c dflock -n "__fish_dflock_using_subcommand help; and not __fish_seen_subcommand_from run acquire release renew watch stats force-release kick ping bench completions help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
