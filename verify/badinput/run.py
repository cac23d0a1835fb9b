#!/usr/bin/python3
"""Runs the table of bad inputs (rows.py) through the command: run.py DSF WORK [WORD...].

One line a row, and `N passed, N failed, N skipped`; exit 1 when a row failed. WORD: only rows whose
name holds it. A row fails when the exit code or a word differs, when the command dies, hangs or a
sanitizer speaks, or when something half-written is left behind.
"""

import importlib.util
import os
import resource
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from rows import ROWS  # noqa: E402

HANG = 120  # seconds
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class Folder:
    """A row's folder, with a model made of links to the sound one."""

    def __init__(self, dsf, work, number):
        self.command, self.work = dsf, work
        self.root = os.path.join(work, f"row{number}")
        self.model = os.path.join(self.root, "model")
        self.golden = os.path.join(work, "golden.h5")
        os.makedirs(self.model)
        os.mkdir(self.path("tmp"))
        for name in os.listdir(os.path.join(work, "mini")):
            os.link(os.path.join(work, "mini", name), os.path.join(self.model, name))

    def path(self, name):
        return os.path.join(self.root, name)

    def files(self):
        return os.listdir(self.model)

    def read_bytes(self, name):
        with open(os.path.join(self.model, name), "rb") as f:
            return f.read()

    def read(self, name):
        return self.read_bytes(name).decode()

    def remove(self, name):
        os.remove(os.path.join(self.model, name))

    def write(self, name, content):
        """Replaces a file of the model; the sound one, which it was a link to, stays."""
        self.remove(name)
        with open(os.path.join(self.model, name), "wb") as f:
            f.write(content.encode() if isinstance(content, str) else content)

    def put(self, name, content):
        with open(self.path(name), "wb") as f:
            f.write(content)

    def folder(self, name):
        os.mkdir(self.path(name))

    def same(self, name, content):
        """As `after`: whether the file is as it was."""
        with open(self.path(name), "rb") as f:
            return subprocess.CompletedProcess([], int(f.read() != content), b"", b"changed: " + name.encode())

    def dsf(self, *args):
        return subprocess.run([self.command, *args], capture_output=True, timeout=HANG, check=False)

    def fill(self, text):
        names = {"m": self.model, "d": self.root, "mini": os.path.join(self.work, "mini"), "g": self.golden,
                 "tiny": os.path.join(self.work, "tiny"), "t": os.path.join(self.work, "tiny.h5"),
                 "golden": os.path.join(ROOT, "golden", "mini")}
        for key, value in names.items():
            text = text.replace("{" + key + "}", value)
        return text


def prepared(size):
    """In the child: signals act, whatever nohup or a background shell had ignored; with `size`, files end there
    and the write fails instead of the process."""
    def apply():
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        if size:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    return apply


def started(folder, process, ready):
    """Waits until the process works: a first flush of its dump is over; with `ready` (stdout or stderr), until
    it said something there. Sanitizers and a busy machine make the way there long, so no time is assumed."""
    if ready == "tmp":
        while process.poll() is None and not os.listdir(folder.path("tmp")):
            time.sleep(0.002)
        return
    if ready:
        os.read(getattr(process, ready).fileno(), 1)
        return
    names = [folder.path("out.h5.part"), folder.path("out.h5.part.log")]
    begin, size, since = time.time(), 0, time.time()
    while time.time() < begin + HANG and process.poll() is None:
        time.sleep(0.05)
        now = sum(os.path.getsize(n) for n in names if os.path.exists(n))
        if now != size:
            size, since = now, time.time()
        elif size > 700000 and time.time() > since + 0.3:
            return


def call(folder, command, how):
    stdout = open(how["stdout"], "wb") if "stdout" in how else subprocess.PIPE
    size = how.get("limit")
    args = [os.fsencode(folder.fill(a)) for a in command if a]
    process = subprocess.Popen([folder.command, *args], stdin=subprocess.PIPE, stdout=stdout, stderr=subprocess.PIPE,
                               env={**os.environ, "TMPDIR": folder.path(how.get("tmp", "tmp"))},
                               preexec_fn=prepared(size), restore_signals=not size)
    if "signal" in how:
        started(folder, process, how.get("ready"))
        process.send_signal(how["signal"])
    try:
        out, err = process.communicate(how.get("stdin", b""), timeout=HANG)
    finally:
        process.kill()  # nothing, unless it hangs
    return process.returncode, (out or b"").decode(errors="replace") + err.decode(errors="replace")


def leftovers(folder):
    """Half-written files."""
    return [n for _, _, names in os.walk(folder.root) for n in names if n.endswith((".part", ".part.log"))]


def temporaries(folder):
    """A killed process may leave them; no other may."""
    return os.listdir(folder.path("tmp"))


def fault_of(folder, row):
    """None, or why the row failed."""
    _, make, command, code, words, after, _, how = row
    if make:
        make(folder)
    try:
        got, text = call(folder, command, how)
    except subprocess.TimeoutExpired:
        return f"hangs: no end after {HANG} s"
    said = " ".join(text.split())[:300].encode("ascii", "replace").decode()
    if "Sanitizer" in text or "runtime error:" in text:
        return "sanitizer: " + text[:2000]
    if got != code:
        return f"exit {got}, not {code}: {said}"
    for word in words:
        if not any(folder.fill(w) in text for w in word.split("|")):
            return f'"{word}" is not in: {said}'
    if code > 1 and len(text) > 20000:
        return f"a message of {len(text)} bytes"
    if code >= 0 and "kept" not in how and leftovers(folder):
        return f"left behind: {leftovers(folder)}"
    if code >= 0 and temporaries(folder):
        return f"temporaries left behind: {temporaries(folder)}"
    if code not in (0, 1, -9) and "kept" not in how and os.path.isfile(folder.path("out.h5")) and "stdout" not in how:
        return "an output file in spite of the failure"
    if after:
        done = after(folder)
        if done.returncode != 0:
            return f"afterwards exit {done.returncode}: {(done.stdout + done.stderr).decode(errors='replace')[:300]}"
    return None


def prepare(dsf, work):
    shutil.rmtree(work, ignore_errors=True)
    os.makedirs(work)
    for args in (["synth", "-o", f"{work}/mini"], ["synth", "--preset", "tiny", "-o", f"{work}/tiny"],
                 ["dump", f"{work}/mini", "--ids", "5,6,7,8,9,10,11,12,13,14,15", "-o", f"{work}/golden.h5"],
                 ["dump", f"{work}/tiny", "--ids", "5,6,7,8,9,10,11,12,13,14,15", "-o", f"{work}/tiny.h5"]):
        subprocess.run([dsf, *args], check=True, stdout=subprocess.DEVNULL)


def main():
    dsf, work, only = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]), sys.argv[3:]
    rows = [r for r in ROWS if all(w in r[0] for w in only)]
    prepare(dsf, work)
    passed = failed = skipped = 0
    for number, row in enumerate(rows):
        if row[6] and not importlib.util.find_spec(row[6]):
            print(f"skip {row[0]}: no python3-{row[6]}")
            skipped += 1
            continue
        folder = Folder(dsf, work, number)
        fault = fault_of(folder, row)
        print(f"FAILED {row[0]}: {fault}" if fault else f"ok {row[0]}", flush=True)
        passed, failed = passed + (not fault), failed + bool(fault)
        if not fault:
            shutil.rmtree(folder.root)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
