"""count_tests.py TESTLOG SUITE EXPECTED: counts the cases of a Meson run.

Prints a `skip` line for each skipped case and a sum. Fails when fewer cases are there than the line of SUITE
in EXPECTED says, or when a case was skipped for another reason than absent data or a sanitizer's own doing.
"""

import json
import re
import sys

ALLOWED = re.compile(r"shared|golden-official|not here|not on this machine|no reference data|no RssAnon|sanitizer's own", re.I)


def tap_cases(text):
    """(name, skipped reason or None) of each TAP line that passed."""
    for line in text.split("\n"):
        match = re.match(r"\s*ok(?:\s+\d+)?\s*-?\s*(.*)", line)
        if not match:
            continue
        name, _, directive = match.group(1).partition("# SKIP")
        yield name.strip(), directive.strip() if "# SKIP" in line else None


def main(log, suite, expected):
    with open(expected, encoding="ascii") as f:
        least = {name: int(n) for name, n in (line.split() for line in f if line.strip() and line[0] != "#")}
    passed, skipped, code = 0, 0, 0
    with open(log, encoding="utf-8") as f:
        runs = [json.loads(line) for line in f]
    for run in runs:
        cases = list(tap_cases(run.get("stdout", "")))
        if run["result"] == "SKIP" and not any(reason for _, reason in cases):
            print(f"error: {run['name']}: skipped as a whole: its tests were lost")
            code = 1
        inputs = re.search(r"^(\d+) inputs$", run.get("stdout", ""), re.M)
        if cases:
            passed += sum(reason is None for _, reason in cases)
        elif run["result"] == "OK":
            passed += int(inputs.group(1)) if inputs else 1
        for name, reason in cases:
            if reason is None:
                continue
            print(f"skip {name}: {reason}")
            skipped += 1
            if not ALLOWED.search(reason):
                print(f"error: {name}: a unit test may skip only for absent shared data or a sanitizer's own doing")
                code = 1
    if passed + skipped < least.get(suite, 1):
        print(f"error: {suite}: {passed} cases passed, {skipped} skipped; ci/expected asks for {least.get(suite, 1)}")
        code = 1
    print(f"= {passed} cases, {skipped} skipped, in {len(runs)} programs")
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
