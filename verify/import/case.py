"""What the tests of tools/import_dump.py share. Environment: DSF = the dsf binary; without it what needs dsf diff is
skipped by name. Tests of .pt files and of the script in IMPORT.md run where PyTorch is installed."""

import contextlib
import importlib.util
import io
import os
import shutil
import subprocess
import tempfile
import unittest
from types import SimpleNamespace

import h5py
import numpy as np

import foreign
from foreign import Engine, save
from import_dump import cli

IMPORT = os.path.join(foreign.ROOT, "tools", "import_dump.py")
MAPS = os.path.join(foreign.ROOT, "tools", "maps")
GOLDEN = os.path.join(foreign.ROOT, "golden", "mini")
MAP = os.path.join(foreign.HERE, "foreign.yaml")
DSF = os.environ.get("DSF")
TORCH = importlib.util.find_spec("torch") is not None


def golden(prompt):
    return os.path.join(GOLDEN, f"dump-{prompt}.h5")


def visible(shape):
    """Entries that a row sees, of a layer of ratio 1: a pool says nothing of the others (dump-schema.md 3)."""
    return np.tri(*shape, dtype=bool)


class Case(unittest.TestCase):
    """A scratch folder with the mini model's config."""

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="dsf-import-")
        self.addCleanup(shutil.rmtree, self.dir)
        os.mkdir(self.path("mini"))
        with h5py.File(golden("p2")) as f, open(self.path("mini", "config.json"), "wb") as out:
            out.write(f.attrs["config_json"])

    def path(self, *parts):
        return os.path.join(self.dir, *parts)

    def command(self, *args, dump="dump", mapping=MAP):
        return [self.path(dump), "--map", mapping, "--config", self.path("mini"), "-o", self.path("out.h5"), *args]

    def run_import(self, *args, **kw):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = cli.main(self.command(*args, **kw))
        return SimpleNamespace(returncode=code, stdout=out.getvalue(), stderr=err.getvalue())

    def imports(self, *args, **kw):
        done = self.run_import(*args, **kw)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def refuses(self, code, *words, args=(), **kw):
        """Exit status and message; no file is left behind."""
        done = self.run_import(*args, **kw)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        for word in words:
            self.assertIn(word, done.stderr)
        self.assertFalse(os.path.exists(self.path("out.h5")) or os.path.exists(self.path("out.h5.part")))

    def diff(self, a, b, code, *words):
        if not DSF:
            self.skipTest("dsf diff: no binary given in DSF")
        done = subprocess.run([DSF, "diff", a, b], capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        for word in words:
            self.assertIn(word, done.stdout)

    def same_bits(self, a, b):
        """Every tap of a is in b: bits, type, source type, labels. Returns how many."""
        count = 0
        with h5py.File(a) as left, h5py.File(b) as right:
            for path in foreign.walk(left):
                if path.endswith("_margin") or path.startswith("draft_all/"):
                    continue
                self.assertIn(path, right)
                x, y = left[path], right[path]
                self.assertEqual((x.dtype, x.shape), (y.dtype, y.shape), path)
                seen = visible(x.shape) if path.endswith("attn/pool") else ...
                self.assertEqual(x[()][seen].tobytes(), y[()][seen].tobytes(), path)
                if "rows" in x.attrs:
                    self.assertEqual(x.attrs["source_dtype"], y.attrs["source_dtype"], path)
                    self.assertTrue(np.array_equal(left[x.attrs["rows"]][()], right[y.attrs["rows"]][()]), path)
                    count += 1
        return count

    def export(self, prompt="p2", ranks=2, cuts=(), kind="npz"):
        engine = Engine(golden(prompt), ranks, cuts).export()
        save(engine, self.path("dump"), kind)
        return engine

    def resave(self, engine, kind="npz"):
        shutil.rmtree(self.path("dump"), ignore_errors=True)
        save(engine, self.path("dump"), kind)
