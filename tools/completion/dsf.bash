# bash completion for dsf. Commands and options come from --help of the dsf that is installed.
_dsf()
{
    local word=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]} before=${COMP_WORDS[COMP_CWORD - 1]}
    if [ "$COMP_CWORD" -eq 1 ]; then
        mapfile -t COMPREPLY < <(compgen -W "$("$1" --help 2>/dev/null |
            sed -nE '/not in this /d; s/^  ([a-z]+)  .*/\1/p') --help --version" -- "$word")
    elif [[ $word == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$("$1" "$command" --help 2>/dev/null |
            sed -nE 's/^  (-[-a-z]+).*/\1/p')" -- "$word")
    else
        case $before in
        --prefill) mapfile -t COMPREPLY < <(compgen -W 'exact cone replay' -- "$word") ;;
        --preset) mapfile -t COMPREPLY < <(compgen -W 'mini tiny full' -- "$word") ;;
        --suite) mapfile -t COMPREPLY < <(compgen -W "$("$1" verify --list 2>/dev/null | cut -d' ' -f1)" -- "$word") ;;
        --format) mapfile -t COMPREPLY < <(compgen -W "table json md csv sql ds4" -- "$word") ;;
        --log) mapfile -t COMPREPLY < <(compgen -W 'error warn info debug' -- "$word") ;;
        *) compopt -o filenames && mapfile -t COMPREPLY < <(compgen -f -- "$word") ;;
        esac
    fi
}
complete -F _dsf dsf
