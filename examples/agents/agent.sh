#!/bin/sh
# An agent behind a command: the first legal action.
while read -r line; do
    case $line in
        '{"type":"hello"'*) echo '{"type":"ready","serves":"many"}' ;;
        '{"type":"act"'*)
            legal=${line#*'"legal":['}
            echo "{\"action\":${legal%%[],]*}}"
            ;;
    esac
done
