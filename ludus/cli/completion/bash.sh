# Completion of `ludus` in bash. `ludus completion --help` says how it is installed.
_ludus() {
    local program=${COMP_WORDS[0]/#\~\//$HOME/}
    type -P -- "$program" >/dev/null || program=ludus
    mapfile -t COMPREPLY < <(
        command "$program" completion --candidates bash "${COMP_LINE:0:COMP_POINT}" "$COMP_WORDBREAKS" 2>/dev/null
    )
}
complete -o nospace -F _ludus ludus
