# Prints what a line becomes in zsh when Tab is pressed at its end: a real zsh on a terminal of its
# own, with the completion functions (_NAME) of the directory $1, and the line $2.
zmodload zsh/zpty zsh/zselect || exit
scratch=$(mktemp -d) || exit
trap 'rm -rf $scratch' EXIT
export HOME=$scratch ZDOTDIR=$scratch TERM=dumb

zpty shell zsh -f -i || exit
say() { zpty -w shell "$1" }
say "fpath=(${(q)1} \$fpath); autoload -Uz compinit; compinit -u -D"
say "tell() { print -r -- \$BUFFER >$scratch/new; mv $scratch/new $scratch/line }"
say "zle -N tell; bindkey '^I' complete-word '^X' tell"
# In two parts, so that what is echoed is not taken for the prompt.
say 'PS1=THE-"PROMPT> "'
zpty -r -m shell heard '*THE-PROMPT> *' || exit
zpty -n -w shell "$2"$'\t\x18'

# Hundredths of a second.
for ((passed = 0; passed < 3000; passed++)); do
    if [[ -e $scratch/line ]]; then
        print -r -- "$(<$scratch/line)"
        exit 0
    fi
    zselect -t 1
done
zpty -r -t shell heard
print -r -u 2 -- "zsh completed nothing: $heard"
exit 1
