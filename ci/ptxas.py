"""ptxas.py ALLOWED FILE...: faults in kept output of ptxas -v. A fault is a spill, or a remark that a
warpgroup instruction was serialised (C7510 and its siblings C7514 to C7519) or a register hint ignored
(C7508). ALLOWED: lines "file<space>part of the mangled name<space>reason"."""

import re
import sys

REMARK = re.compile(r"\(C75(08|10|1[4-9])\)")
FUNCTION = re.compile(r"(?:Compiling entry function|Function properties for|in the function|function) '?([A-Za-z0-9_$.]+)'?")
SPILL = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")


def allowed(path):
    rules = []
    for line in open(path, encoding="utf-8"):
        if line.strip() and not line.startswith("#"):
            name, part, reason = line.rstrip("\n").split(" ", 2)
            rules.append((name, part, reason))
    return rules


def faults(path):
    """(function, words) for every fault; also the number of kernels seen."""
    found, function, kernels = [], "?", 0
    for line in open(path, encoding="utf-8", errors="replace"):
        at = FUNCTION.search(line)
        if at:
            function = at.group(1)
            kernels += "Compiling entry function" in line
        spill = SPILL.search(line)
        if spill and (spill.group(2) != "0" or spill.group(3) != "0"):
            found.append((function, spill.group(0)))
        if REMARK.search(line):
            found.append((function, line.strip()))
    return found, kernels


def main():
    rules, kernels, bad, used = allowed(sys.argv[1]), 0, 0, set()
    for path in sys.argv[2:]:
        file = path.rsplit("/", 1)[-1].replace(".sm90.o.ptxas", ".cu")
        found, n = faults(path)
        kernels += n
        for function, words in found:
            rule = next((r for r in rules if r[0] == file and r[1] in function), None)
            if rule:
                used.add(rule)
                continue
            print(f"{file}: {function}: {words}")
            bad += 1
    for rule in rules:
        if rule not in used:
            print(f"ci/ptxas-allowed: nothing needs \"{rule[0]} {rule[1]}\" any more")
            bad += 1
    print(f"= {kernels} kernels, {bad} faults, {len(used)} allowed")
    return 1 if bad or kernels == 0 else 0


sys.exit(main())
