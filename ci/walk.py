"""Runs the console blocks of a page in the working directory and compares what comes out.

walk.py PAGE          exit 1 where the output differs (numbers of seconds may)
walk.py PAGE --write  puts the output of this run into the page instead
"""

import re
import subprocess
import sys

BLOCK = re.compile(r"(?<=^```console\n)(.*?)(?=^```$)", re.S | re.M)


def same(said, written):
    """Apart from durations, which differ from run to run."""
    def plain(text):
        return re.sub(r" +\d+\.\d+ s\b", " S s", text)

    return plain(said) == plain(written)


def main(page, write=False):
    with open(page, encoding="utf-8") as f:
        text = f.read()
    shell = subprocess.Popen(["bash"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    wrong = commands = 0

    def run(command):
        shell.stdin.write(f"{command}\necho; echo '=== end'\n")
        shell.stdin.flush()
        lines = []
        while (line := shell.stdout.readline()) not in ("=== end\n", ""):
            lines.append(line)
        return "".join(lines[:-1])  # the empty line of echo

    def block(match):
        nonlocal wrong, commands
        steps = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", match.group(1), re.M)
        out = ""
        for command, written in steps:
            said = run(command)
            commands += 1
            out += f"$ {command}\n{said}"
            if not write and not same(said, written):
                wrong += 1
                print(f"$ {command}\n--- the page says\n{written}--- it says\n{said}")
        return out

    new = BLOCK.sub(block, text)
    if write:
        with open(page, "w", encoding="utf-8") as f:
            f.write(new)
    print(f"= {commands - wrong} of {commands} commands as the page says")
    return 1 if wrong or not commands else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], "--write" in sys.argv[2:]))
