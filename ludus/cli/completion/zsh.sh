#compdef ludus
# Completion of `ludus` in zsh. `ludus completion --help` says how it is installed.
_ludus() {
    local program=${(Q)words[1]} ends text help
    local -a complete open
    whence -p -- ${~program} >/dev/null && program=${~program} || program=ludus
    while IFS=$'\t' read -r ends text help; do
        text=${text//:/\\:}${help:+:$help}
        if [[ $ends == 1 ]]; then complete+=("$text"); else open+=("$text"); fi
    done < <(command $program completion --candidates zsh "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)
    (( $#complete )) && _describe -t words word complete
    (( $#open )) && _describe -t beginnings beginning open -S ''
    (( $#complete || $#open ))
}
if [[ $funcstack[1] == _ludus ]]; then _ludus "$@"; else compdef _ludus ludus; fi
