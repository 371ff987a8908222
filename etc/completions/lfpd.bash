_lfpd() {
    local i cur prev opts cmd
    COMPREPLY=()
    if [[ "${BASH_VERSINFO[0]}" -ge 4 ]]; then
        cur="$2"
    else
        cur="${COMP_WORDS[COMP_CWORD]}"
    fi
    prev="$3"
    cmd=""
    opts=""

    for i in "${COMP_WORDS[@]:0:COMP_CWORD}"
    do
        case "${cmd},${i}" in
            ",$1")
                cmd="lfpd"
                ;;
            *)
                ;;
        esac
    done

    case "${cmd}" in
        lfpd)
            opts="-h -V --lock-dir --search-dir --os --state-dir --idle-timeout --listen --max-connections --max-per-user --banner-version --trust-pid --anyone --watch-opens --exclusive --exclusive-except --force-group --log-level --log-facility --help --version"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 1 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --lock-dir)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --search-dir)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --os)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --state-dir)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --idle-timeout)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --listen)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --max-connections)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --max-per-user)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --banner-version)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --exclusive-except)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --force-group)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --log-level)
                    COMPREPLY=($(compgen -W "error warning notice info debug" -- "${cur}"))
                    return 0
                    ;;
                --log-facility)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
    esac
}

if [[ "${BASH_VERSINFO[0]}" -eq 4 && "${BASH_VERSINFO[1]}" -ge 4 || "${BASH_VERSINFO[0]}" -gt 4 ]]; then
    complete -F _lfpd -o nosort -o bashdefault -o default lfpd
else
    complete -F _lfpd -o bashdefault -o default lfpd
fi
