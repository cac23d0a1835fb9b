"""verify/BUGLOG.md against the tree: every row of the bug log there once, every test it names exists
(a unit test also names the row), the counts on top are right. Exit 1 with a line for each fault.
"""

import pathlib
import re
import sys

LOG = "verify/BUGLOG.md"
ABSENT = {5, 13, 21, 29, 37, 45, 53, 61, 69, 77, 85, 93}  # numbers that the bug log does not use
GROUPS = {"A": (1, 34), "B": (35, 54), "C": (55, 76), "D": (78, 94)}
TITLES = {"A": "weights, scales, number formats", "B": "what V4.1 brought",
          "C": "long contexts, memory, index widths", "D": "caches, windows, restoring"}


def read(path):
    return pathlib.Path(path).read_text(encoding="utf-8")


def unit_tests():
    """suite/name -> the text of the test, with the comment that stands right before it."""
    tests = {}
    for path in pathlib.Path("verify/unit").glob("test_*.c"):
        text = read(path)
        for m in re.finditer(r"^Test\((\w+), (\w+)", text, re.M):
            before = text[:m.start()]
            begin = before.rfind("/*") if before.rstrip().endswith("*/") else m.start()
            end = text.find("\n}", m.start())
            tests[f"{m[1]}/{m[2]}"] = text[begin:end]
    return tests


class Tree:
    """What a row may name."""

    def __init__(self):
        self.tests = unit_tests()
        mutants = [line.split("\t") for line in read("verify/mutants/table.tsv").splitlines()]
        self.names = {
            "mutant": {row[0] for row in mutants if len(row) > 3},
            "input": set(re.findall(r'^row\("([^"]+)"', read("verify/badinput/rows.py"), re.M)),
            "road": set(re.findall(r"^ +X\((\w+), \"", read("verify/states/states.h"), re.M)),
            "harness": set(re.findall(r"^(\w+)\)", read("verify/mutants/harness"), re.M)),
            "checkops": set(re.findall(r"\bdsf_op_(\w+)\b", "".join(
                read(p) for p in pathlib.Path("kernels/ops").glob("*.h")))),
        }

    def fault(self, row, name):
        """Why this name is no test of the row; None when it is."""
        if name.startswith("ci/"):
            return None if pathlib.Path(name).exists() else "no such script"
        kind, _, rest = name.partition(" ")
        if rest:
            return None if rest in self.names.get(kind, ()) else f"no {kind} of this name"
        if name not in self.tests:
            return "no unit test of this name"
        return None if row in self.tests[name] else f"the test does not mention {row}"


def check_row(tree, row, shown, faults):
    names = re.findall(r"`([^`]+)`", shown)
    if shown.startswith("not here: "):
        names = [n for n in names if "/" in n]
    elif not names:
        faults.append(f"{row}: neither a test nor a reason")
    for name in names:
        why = tree.fault(row, name)
        if why:
            faults.append(f"{row}: `{name}`: {why}")
    return names


def counts(rows):
    """The table on top, as it must read."""
    lines, total = [], [0, 0, 0]
    for group, (first, last) in GROUPS.items():
        of = [shown for number, shown in rows if first <= number <= last]
        absent = sum(shown.startswith("not here: ") for shown in of)
        line = [len(of), len(of) - absent, absent]
        total = [a + b for a, b in zip(total, line)]
        lines.append(f"| {group}: {TITLES[group]} | {line[0]} | {line[1]} | {line[2]} |")
    return lines + [f"| all | {total[0]} | {total[1]} | {total[2]} |"]


def main():
    text, tree, faults, used = read(LOG), Tree(), [], set()
    rows = [(int(m[1]), m[2].strip()) for m in re.finditer(r"^\| B-(\d\d) \| [^|]+ \| ([^|]+) \|$", text, re.M)]
    want = [n for a, b in GROUPS.values() for n in range(a, b + 1) if n not in ABSENT]
    have = [number for number, _ in rows]
    if have != want:
        faults += [f"B-{n:02} is not there" for n in want if n not in have]
        faults += [f"B-{n:02} is no row of the log" for n in have if n not in want]
        faults += ["rows repeat or are out of order"]
    for number, shown in rows:
        used.update(check_row(tree, f"B-{number:02}", shown, faults))
    faults += [f"the counts on top lack: {line}" for line in counts(rows) if line not in text.splitlines()]
    # The other way round: a test that says that it is for a row is named by the row.
    for name, body in tree.tests.items():
        if name.startswith("bug/") and name not in used:
            faults.append(f"`{name}` is named by no row")
    for fault in faults:
        print(f"{LOG}: {fault}")
    print(f"= {len(rows)} rows, {len(used)} tests named")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
