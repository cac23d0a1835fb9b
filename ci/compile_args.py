"""compile_args.py BUILD FILE: the compiler arguments of FILE in BUILD, without compiler, input and output."""

import json
import os
import shlex
import sys


def main(build, source):
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as f:
        rows = json.load(f)
    for row in rows:
        if os.path.realpath(os.path.join(row["directory"], row["file"])) != os.path.realpath(source):
            continue
        words, keep, drop = shlex.split(row["command"]), [], 0
        for word in words[1:]:
            if drop or word in ("-MD", "-MQ", "-MF", "-o", "-c"):
                drop = 0 if drop else word in ("-MQ", "-MF", "-o")
                continue
            keep.append(word)
        print(shlex.join(keep))
        return 0
    return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
