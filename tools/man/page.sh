#!/bin/sh
# page.sh PROGRAM COMMAND VERSION NOTES: writes a man page from what the program says of itself with
# --help, so that the two cannot differ. COMMAND "-" is the program itself; NOTES is a roff file that is
# put in before the examples, or "-".
program=$1 command=$2 version=$3 notes=$4
name=$(basename "$program")
"$program" --help >/dev/null || exit 1
if [ "$command" = - ]; then
    title=$name help=$("$program" --help) || exit 1
    summary=$(printf '%s\n' "$help" | sed -n '/^An engine/{s/\.$//;p;q;}; /^Checks/{s/: .*//;s/, .*//;p;q;}')
else
    title=$name-$command
    summary=$("$program" --help | sed -n "s/^  $command  *//p" | head -1)
    help=$("$program" "$command" --help 2>&1) || help="usage: $name $command

Not in this build. $help"
fi
printf '%s\n' "$help" | awk -v title="$title" -v name="$name" -v version="$version" -v summary="$summary" -v notes="$notes" '
function plain(s) { gsub(/\\/, "\\e", s); gsub(/-/, "\\-", s); if (s ~ /^[.\047]/) s = "\\&" s; return s }
function section(s) { print ".SH " s; state = s }
function put_notes(   line) {
    if (notes == "-" || noted++) return
    while ((getline line < notes) > 0) print line
}
BEGIN {
    printf ".TH \"%s\" 1 \"\" \"dsf %s\" \"dsf\"\n", toupper(title), version
    section("NAME"); print plain(title) " \\- " plain(summary)
}
/^usage: / || (NR == 1 && $1 == name) {
    sub(/^usage: /, ""); section("SYNOPSIS"); print ".nf"; print plain($0); next
}
state == "SYNOPSIS" && /^ / { sub(/^ +/, "    "); print plain($0); next }
state == "SYNOPSIS" { print ".fi"; section("DESCRIPTION") }
/^options:/ { section("OPTIONS"); next }
/^commands:/ { section("COMMANDS"); next }
/^example:/ { put_notes(); section("EXAMPLE"); print ".nf"; example = 1; next }
/^exit codes:/ || /^Exit code:/ { next }
/^dsf COMMAND --help/ { print ".PP"; print plain($0); next }
example { sub(/^  /, ""); if ($0 != "") print plain($0); next }
/^  +-/ || (state == "COMMANDS" && /^  [a-z]/) { # an entry: term, two spaces or more, text
    if (state == "DESCRIPTION") section("OPTIONS")
    sub(/^ +/, ""); at = match($0, /  +/)
    print ".TP"
    print ".B " plain(at ? substr($0, 1, at - 1) : $0)
    if (at) print plain(substr($0, at + RLENGTH))
    next
}
/^ +/ { sub(/^ +/, ""); print plain($0); next }
/^$/ { if (state == "DESCRIPTION" && printed) print ".PP"; next }
{ print plain($0); printed = 1 }
END {
    if (example) print ".fi"
    put_notes()
    section("EXIT STATUS")
    print ".TP\n0\ngood\n.TP\n1\nthe answer is no: mismatch, over budget, slower"
    print ".TP\n2\nusage\n.TP\n3\ncould not: missing file, device or feature"
    section("SEE ALSO")
    print title == "dsf" ? ".BR dsf\\-info (1)\nand so on, one page a command;\n.BR checkops (1)" : ".BR dsf (1)"
}'
