# Completion of `ludus` in fish. `ludus completion --help` says how it is installed.
function __ludus_candidates
    set -l words (commandline -opc)
    set -l word (commandline -ct)
    set -l program (string replace -r '^~/' "$HOME/" -- $words[1])
    command -sq -- $program; or set program ludus
    set -e words[1]
    command $program completion --candidates fish $words "$word" 2>/dev/null
end
complete --command ludus --no-files --arguments '(__ludus_candidates)'
