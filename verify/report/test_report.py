"""The page of `dsf report`, without a browser: what it accepts, refuses and says. DSF names the program; without
it the script is run alone. ci/check-report runs this and test_browser.py."""

import base64
import hashlib
import html.parser
import json
import math
import os
import re
import struct
import subprocess
import sys
import tempfile
import unittest

import h5py
import numpy

import fixtures

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
GOLDEN = os.path.join(ROOT, "golden", "mini", "dump-p0.h5")
SCRIPT = os.path.join(ROOT, "tools", "report", "report.py")
MOST_BYTES = 15_000_000


def report(*words):
    """(exit code, standard output, standard error) of dsf report."""
    dsf = os.environ.get("DSF")
    command = [dsf, "report"] if dsf else [sys.executable, "-B", SCRIPT]
    done = subprocess.run([*command, *words], capture_output=True, text=True, timeout=300, check=False)
    return done.returncode, done.stdout, done.stderr


class Reader(html.parser.HTMLParser):
    """The elements of a page; the text of its scripts; the verdict's word."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.scripts, self.style, self.text, self.inside = [], [], "", {}, []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.inside.append((tag, dict(attrs).get("id")))
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag):
        while self.inside and self.inside.pop()[0] != tag:
            pass

    def handle_data(self, data):
        if not self.inside:
            return
        if self.inside[-1][0] == "script":
            self.scripts[-1] += data
        elif self.inside[-1][0] == "style":
            self.style += data
        for _, ident in self.inside:
            if ident:
                self.text[ident] = self.text.get(ident, "") + data

    @property
    def data(self):
        return json.loads(self.scripts[0])

    @property
    def word(self):
        return self.text["word"].strip()


class Case(unittest.TestCase):
    maker = staticmethod(report)

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        fixtures.write(GOLDEN, cls.folder.name)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def at(self, name):
        return os.path.join(self.folder.name, name)

    def load(self, name):
        with open(self.at(name), encoding="utf-8") as f:
            return json.load(f)

    def save(self, name, value):
        with open(self.at(name), "w", encoding="utf-8") as f:
            f.write(value if isinstance(value, str) else json.dumps(value))
        return self.at(name)

    def page(self, *words):
        """The page of results given as paths or as values."""
        paths = [w if isinstance(w, str) else self.save(f"value-{i}.json", w) for i, w in enumerate(words)]
        out = self.at("page.html")
        code, _, said = self.maker("-o", out, *paths)
        self.assertEqual((code, said), (0, ""))
        with open(out, encoding="utf-8") as f:
            text = f.read()
        self.assertLess(len(text.encode("utf-8")), MOST_BYTES)
        return text, Reader(text)

    def refused(self, name, value, *words):
        path = self.save(name, value) if value is not None else self.at(name)
        code, out, said = self.maker("-o", self.at("never.html"), path)
        self.assertEqual((code, out), (3, ""), said)
        self.assertFalse(os.path.exists(self.at("never.html")))
        self.assertNotIn("Traceback", said)
        for word in (name, *words):
            self.assertIn(word, said)


class Results(Case):
    def test_a_kind_is_known_by_content_not_by_name(self):
        os.replace(self.save("bench-copy.json", self.load("verify-good.json")), self.at("bench-of-what.txt"))
        _, page = self.page(self.at("bench-of-what.txt"))
        self.assertIn("passed", page.word)

    def test_unknown_schemas_are_refused_by_name(self):
        self.refused("soak.json", {"schema": "dsf-soak-1"}, "dsf-soak-1", "dsf-verify-1")
        self.refused("future.json", {"schema": "dsf-diff-2", "taps": []}, "dsf-diff-2")
        self.refused("none.json", {"taps": []}, "schema")

    def test_what_is_no_result_is_refused_in_words(self):
        self.refused("empty.json", "", "empty")
        self.refused("broken.json", '{"schema": "dsf-diff-1",\n "taps": [}', "line 2")
        self.refused("list.json", "[1, 2]", "a list")
        self.refused("deep.json", "[" * 200000, "deep.json")
        self.refused("ours.h5", None, "a dump")
        self.refused("absent.json", None, "No such file")
        with open(self.at("bytes.json"), "wb") as f:
            f.write(b'{"schema": "\xff"}')
        self.refused("bytes.json", None, "byte 12")

    def test_a_result_is_not_overwritten(self):
        result, page = self.save("twice.json", self.load("diff.json")), self.at("twice.html")
        before = self.load("twice.json")
        for make in (os.link, os.symlink):
            make(result, page)
            for out in (result, page):
                code, _, said = report(result, "-o", out)
                self.assertNotEqual(code, 0)
                self.assertIn("one file", said)
                self.assertEqual(self.load("twice.json"), before)
            os.unlink(page)
        os.link(self.at("ours.h5"), page)
        code, _, said = report("--reference", GOLDEN, "--ours", self.at("ours.h5"), "-o", page)
        self.assertNotEqual(code, 0)
        self.assertIn("one file", said)

    def test_a_field_of_another_type_is_refused_with_its_place(self):
        doc = self.load("diff.json")
        for path, value in (("ratio", "high"), ("path", 7), ("rows", 1.5), ("row", []), ("flip", [{"class": "maybe"}]),
                            ("row", {"label": [1, 2], "ratio": [1]}), ("at_row", "<b>")):
            tap = {**doc["taps"][0], path: value}
            self.refused("typed.json", {**doc, "taps": [tap]}, "taps[0]." + path)
        self.refused("typed.json", {**doc, "taps": {}}, ".taps: an object")
        self.refused("typed.json", {"schema": "dsf-graft-1"}, '"diff"')

    def test_missing_fields_stay_missing(self):
        for doc in ({"schema": "dsf-verify-1"}, {"schema": "dsf-diff-1"}, {"schema": "dsf-graft-1", "diff": {}},
                    {"schema": "dsf-verify-1", "checks": [{}]}, {"schema": "dsf-diff-1", "taps": [{}, {"path": "x"}]},
                    {"schema": "dsf-diff-1", "first": {}, "taps": [{"path": "x", "row": {}, "flip": [{}]}], "budget": [{}]}):
            _, page = self.page(doc)
            self.assertNotIn("✓", page.word, doc)
        self.page({"bench": "op"}, {"bench": "memory"}, {"bench": "ceiling"}, {"bench": "decode", "step": [{}]}, {"bench": "comm", "x": 1})
        self.page({"bench": "op_device"}, {"bench": "decode_device", "operations": [{}]}, {"bench": "prefill_device"})

    def test_the_lines_of_a_gpu_are_rows_of_the_tables(self):
        op = {"bench": "op_device", "op": "linear_g8", "use": "wq_a", "us": {"median": 142.7, "spread": 0.001, "n": 25},
              "percent_of_physical": 38.0, "limit": "arithmetic"}
        step = {"bench": "decode_device", "layer_list": "0,1,2", "batch": 8, "context": 4096, "percent_of_physical": 46.1,
                "graph_us": {"median": 6327.5, "spread": 0.001, "n": 20},
                "operations": [{"op": "experts_up", "variant": "sm90fp8", "us": 2485.1, "percent": 39.3}]}
        text = self.page(op, step, {**op, "op": "attn", "refused": "not the same bits"})[1].text["bench"]
        for word in ("linear_g8 wq_a", "decode, batch 8, layers 0-2", "experts_up", "not the same bits"):
            self.assertIn(word, text)

    def test_a_failed_write_leaves_what_was_there(self):
        out = self.save("kept.html", "kept")
        code, _, _ = report("-o", out, self.save("bad.json", "{"))
        self.assertEqual(code, 3)
        with open(out, encoding="utf-8") as f:
            self.assertEqual(f.read(), "kept")
        self.assertEqual(report("-o", self.at("no/such/folder.html"), self.at("verify.json"))[0], 3)


class Verdicts(Case):
    def test_a_failure_anywhere_is_the_verdict(self):
        good, bad = self.load("verify-good.json"), self.load("verify.json")
        self.assertIn("✓ passed", self.page(good)[1].word)
        self.assertIn("✕ failed", self.page(good, bad)[1].word)
        self.assertIn("✕ failed", self.page(good, self.load("diff.json"))[1].word)

    def test_nothing_compared_is_not_passed(self):
        good = self.load("verify-good.json")
        empty = {**good, "checks": [{**c, "compared": 0} for c in good["checks"]]}
        skipped = {**good, "checks": [{**c, "verdict": "skip"} for c in good["checks"]]}
        one = {**good, "checks": [{**good["checks"][0], "compared": 0}, *good["checks"][1:]]}
        diff = {**self.load("diff.json"), "good": True, "taps": [], "taps_compared": 0, "first": None}
        for doc in (empty, skipped, one, {**good, "checks": []}, diff, {"schema": "dsf-graft-1", "diff": diff}):
            for others in ((), (good,)):
                word = self.page(doc, *others)[1].word
                self.assertIn("not passed: nothing was compared", word)

    def test_a_result_that_contradicts_itself_failed(self):
        bad = {**self.load("verify.json"), "pass": True}
        self.assertIn("failed", self.page(bad)[1].word)
        self.assertIn("failed", self.page({**self.load("verify-good.json"), "pass": False})[1].word)
        self.assertIn("failed", self.page({**self.load("diff.json"), "good": True})[1].word)
        odd = self.load("verify-good.json")
        odd["checks"][3]["verdict"] = "surely"
        self.assertIn("failed", self.page(odd)[1].word)

    def test_provisional_limits_are_no_pass(self):
        doc = {**self.load("diff.json"), "good": False, "provisional": True}
        self.assertIn("failed", self.page(doc)[1].word)
        doc["taps"] = [{**t, "verdict": "provisional"} for t in doc["taps"]]
        self.assertIn("not judged", self.page(doc)[1].word)

    def test_a_graft_is_judged_by_itself(self):
        doc = self.load("graft.json")
        _, page = self.page(doc)
        self.assertIn("layers/07/ffn/y", page.text["c0"])  # wrong by itself too
        self.assertIn("rows beyond the window", page.text["c0"])
        _, page = self.page({**doc, "carried": doc["diff"]})
        self.assertEqual(len(page.data["comparisons"]), 2)
        self.assertIn("free run", page.text["verdict"])

    def test_measurements_alone_judge_nothing(self):
        self.assertIn("not judged", self.page(self.at("bench.json"))[1].word)
        self.assertIn("not judged", self.page({**self.load("diff.json"), "gated": False})[1].word)
        over = {"bench": "memory", "within": False}
        self.assertIn("failed", self.page(self.load("verify-good.json"), over)[1].word)

    def test_the_verdict_tells_what_was_compared_with_what(self):
        page = self.page(self.at("verify.json"), self.at("diff.json"))[1]
        for word in ("golden/mini", "ours.h5", "noise_floor.json", "b7d1f0c4a95e4be2", "dump-p0.h5", "mini/p0, free-running"):
            self.assertIn(word, page.text["verdict"])

    def test_the_first_divergence_has_pattern_and_causes(self):
        text = self.page(self.at("diff.json"))[1].text["c0"]
        for word in ("inputs agree (ratio 1.02)", "40.3", "rows beyond the window", "candidate pool ignored"):
            self.assertIn(word, text)


HOSTILE = ['</script><script>alert(1)</script>', '"><img src=x onerror=alert(1)>', "<!--<script>", "{{ 7*7 }}", "'; alert(1); '", "\u2028\u2029\x00\x07",
           "\ud800", "x" * 3000, "javascript:alert(1)", "../../../etc/passwd", "=1+1", "&lt;b&gt;&#60;"]


class Hostile(Case):
    def hostile(self, name):
        diff = self.load("diff.json")
        diff.update(verdict=name, model=name, floor=name, mode=name, notes=name, reference=name, ours=name, absent=[name])
        diff["first"].update(path=name, sentence=name, pattern=name, causes=[name])
        for t in diff["taps"][:40]:
            t.update(path=name + t["path"], kind=name, verdict=name, why=name)
        verify = self.load("verify.json")
        verify.update(digest=name, variants=name, backend=name, first_divergence=name)
        verify["checks"][0].update(suite=name, check=name, verdict=name, words=name, derivation=name, figure=name)
        verify["checks"][5]["at"]["path"] = name
        bench = {"bench": name, "machine": name, name: name}
        op = {"bench": "op", "op": name, "shape": name, "conditions": name, "limit": name}
        return diff, verify, bench, op

    def test_names_stay_text(self):
        tags = lambda name: [tag for tag, _ in self.page(*self.hostile(name))[1].tags]  # noqa: E731
        plain = {False: tags("plain"), True: tags("p" * 3000)}  # a long value is folded
        for name in HOSTILE:
            text, page = self.page(*self.hostile(name))
            self.assertEqual([tag for tag, _ in page.tags], plain[len(name) > 1000], name[:40])
            self.assertEqual(len(page.scripts), 2)
            self.assertNotIn("49", page.word)
            for tag, attrs in page.tags:
                self.assertFalse([a for a in attrs if a.startswith("on") or a == "style"], attrs)
                for a in ("href", "src"):
                    self.assertTrue(attrs.get(a, "#").startswith("#"), attrs)

    def test_data_in_the_page_is_the_data(self):
        name = HOSTILE[0]
        _, page = self.page(self.hostile(name)[0])
        self.assertIn(name, [k["kind"] for k in page.data["comparisons"][0]["heat"]["kinds"]])
        self.assertNotIn("<", page.scripts[0])

    def test_the_policy_lets_only_the_own_script_run(self):
        text, page = self.page(self.at("diff.json"), self.at("bench.json"))
        policy = next(a["content"] for tag, a in page.tags if tag == "meta" and a.get("http-equiv") == "Content-Security-Policy")
        self.assertIn("default-src 'none'", policy)
        self.assertNotIn("unsafe", policy)
        for kind, body in (("script", page.scripts[1]), ("style", page.style)):
            digest = base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()
            self.assertIn(f"{kind}-src 'sha256-{digest}'", policy)
        self.assertEqual(re.findall(r"\b(?:https?:)?//[a-z0-9.-]+\.[a-z]{2,}", text.replace("http://www.w3.org/2000/svg", "")), [])
        self.assertEqual([tag for tag, _ in page.tags if tag in ("link", "iframe", "object", "base", "img", "form")], [])


class Numbers(Case):
    def cells(self, page, kind, comparison=0):
        heat = page.data["comparisons"][comparison]["heat"]
        found = next(k for k in heat["kinds"] if k["kind"] == kind)
        raw = base64.b64decode(found["cells"])
        values = struct.unpack(f"<{len(raw) // 4}f", raw)
        columns = len(heat["axes"][found["axis"]]["first"])
        return heat, [values[i:i + columns] for i in range(0, len(values), columns)] if columns else []

    def test_no_number_is_worst_and_absent_is_absent(self):
        def tap(layer, labels, ratio):
            return {"path": f"layers/{layer:02d}/out", "kind": "out", "layer": layer, "verdict": "FAILED", "rel_l2": None, "ratio": "inf",
                    "row": {"label": labels, "rel_l2": ratio, "ratio": ratio}}
        doc = {"schema": "dsf-diff-1", "good": False, "taps": [tap(0, [0, 2], [0.5, None]), tap(1, [1, 2], ["inf", 1e300])]}
        text, page = self.page(doc)
        heat, rows = self.cells(page, "out")
        self.assertEqual(heat["axes"]["token"]["first"], [0, 1, 2])
        self.assertEqual(rows[0][0], 0.5)
        self.assertTrue(math.isnan(rows[0][1]) and math.isinf(rows[0][2]))
        self.assertTrue(math.isnan(rows[1][0]) and math.isinf(rows[1][1]) and math.isinf(rows[1][2]))
        self.assertNotRegex(page.scripts[0], r"\b(NaN|Infinity)\b")
        self.assertIn("∞", page.text["c0"])

    def test_a_failure_that_no_row_tells_is_seen_at_its_row(self):
        row = {"label": [4, 5, 6], "rel_l2": [0.1] * 3, "ratio": [0.1] * 3}
        tap = {"path": "layers/00/out", "kind": "out", "layer": 0, "verdict": "FAILED", "ratio": "inf", "at_row": 5, "row": row}
        heat, rows = self.cells(self.page({"schema": "dsf-diff-1", "good": False, "taps": [tap]})[1], "out")
        self.assertEqual([math.isinf(v) for v in rows[0]], [False, True, False])

    def test_what_is_not_judged_is_marked_so(self):
        row = {"label": [4], "rel_l2": [0.1], "ratio": ["inf"]}
        taps = [{"path": f"layers/{i:02d}/in", "kind": "in", "layer": i, "verdict": v, "row": row} for i, v in enumerate(["exact", "reported"])]
        heat = self.page({"schema": "dsf-diff-1", "good": True, "taps": taps})[1].data["comparisons"][0]["heat"]
        self.assertEqual(heat["kinds"][0]["reported"], [1])

    def test_literal_nan_is_read_as_missing(self):
        text = json.dumps({"schema": "dsf-diff-1", "good": False, "taps": [{"path": "x", "ratio": math.nan, "rel_l2": math.inf}]})
        self.assertIn("NaN", text)
        self.page(self.save("nan.json", text))

    def test_the_heat_map_is_binned_by_the_maximum_and_says_so(self):
        n, layers = 4096, 150
        taps = [{"path": f"layers/{i:02d}/{kind}", "kind": kind, "layer": i, "verdict": "within", "ratio": 0.5,
                 "row": {"label": list(range(n)), "rel_l2": [], "ratio": [0.25] * n}} for i in range(layers) for kind in ("mid", "out")]
        taps[2 * 77 + 1]["row"]["ratio"][1234] = 33.0
        _, page = self.page({"schema": "dsf-diff-1", "good": True, "taps": taps})
        heat, rows = self.cells(page, "out")
        axis = heat["axes"]["token"]
        self.assertLessEqual(len(rows), 128)
        self.assertLessEqual(len(axis["first"]), 512)
        self.assertEqual((axis["labels"], axis["per"] * len(axis["first"]) >= n), (n, True))
        bad = [(i, j) for i, row in enumerate(rows) for j, v in enumerate(row) if v != 0.25]
        self.assertEqual(len(bad), 1)
        (lane, column), = bad
        self.assertEqual(rows[lane][column], 33.0)
        self.assertIn("77", heat["lanes"][lane])
        self.assertTrue(axis["first"][column] <= 1234 <= axis["last"][column])

    def test_sparse_labels_take_no_empty_columns(self):
        labels = [5, 1000, 1000000]
        tap = {"path": "layers/00/out", "kind": "out", "layer": 0, "row": {"label": labels, "rel_l2": [0, 0, 0], "ratio": [0, 1, 2]}}
        _, page = self.page({"schema": "dsf-diff-1", "taps": [tap]})
        self.assertEqual(self.cells(page, "out")[0]["axes"]["token"]["first"], labels)

    def test_entries_have_an_axis_of_their_own(self):
        heat = self.page(self.at("diff.json"))[1].data["comparisons"][0]["heat"]
        axis = {k["kind"]: k["axis"] for k in heat["kinds"]}
        self.assertEqual((axis["attn/kv_main"], axis["attn/o"]), ("entry", "token"))
        self.assertEqual([k for k, a in axis.items() if a == "entry"], ["attn/latent", "attn/kv_main", "attn/index_k"])

    def test_many_flips_are_cut_with_the_wrong_ones_kept(self):
        flips = [{"label": i, "margin": 1e-4, "lost": [1], "gained": [2], "class": "tie"} for i in range(5000)]
        flips[4321]["class"] = "wrong"
        doc = {"schema": "dsf-diff-1", "taps": [{"path": "layers/03/attn/topk", "kind": "attn/topk", "layer": 3, "discrete": True, "flip": flips}]}
        _, page = self.page(doc)
        told = page.data["comparisons"][0]["flips"]
        self.assertEqual((len(told), told[0][4], told[0][2]), (1000, "wrong", 4321))
        self.assertIn("5\u202f000", page.text["c0"])

    def test_medians_stand_with_their_intervals(self):
        text = self.page(self.at("bench.json"))[1].text["bench"]
        for word in ("112 106 – 117", "92.8", "135 122 – 148", "60.9"):
            self.assertIn(word, text)


class Dumps(Case):
    def pair(self, *words, change=None):
        ours = self.at("changed.h5")
        with h5py.File(self.at("ours.h5"), "r") as a, h5py.File(ours, "w") as b:
            for name, value in a.attrs.items():
                b.attrs[name] = value
            for name in a:
                a.copy(name, b)
            if change:
                change(b)
        out = self.at("dumps.html")
        code, _, said = report("-o", out, "--reference", GOLDEN, "--ours", ours, *words)
        if code:
            return code, said
        with open(out, encoding="utf-8") as f:
            return 0, Reader(f.read()).data["dumps"]

    def test_every_value_is_in_the_histogram(self):
        taps = self.pair("--tap", "layers/07/out,layers/00/out")[1]
        self.assertEqual([t["tap"] for t in taps], ["layers/00/out", "layers/07/out"])
        for t in taps:
            self.assertEqual((sum(t["hist"]), t["n"]), (64 * 4 * 128, 64 * 4 * 128))
            self.assertEqual(t["q"], sorted(t["q"], key=lambda p: p[0]))
        self.assertTrue(taps[0]["exact"])
        self.assertFalse(taps[1]["exact"])

    def test_taps_are_named_as_diff_names_them(self):
        def chosen(glob):
            return [t["tap"] for t in self.pair("--tap", glob)[1]]
        every = [f"layers/{i:02d}/attn/q" for i in range(10)]
        self.assertEqual(chosen("attn/q"), every)
        self.assertEqual(chosen("layers/*/attn/q"), every)
        self.assertEqual(chosen("layers/03/**/q"), ["layers/03/attn/q"])
        self.assertEqual(chosen("layers/0?/attn/[q],embed"), ["embed"])  # no classes there either
        code, said = self.pair("--tap", "layers/*/q")  # a star keeps to its segment
        self.assertEqual(code, 3)
        self.assertIn("no tap of values", said)

    def test_rows_are_joined_by_label(self):
        def shuffle(f):
            order = numpy.random.default_rng(1).permutation(64)[:50]
            x, labels = f["layers/00/out"][:][order], f["positions"][:][order]
            del f["layers/00/out"], f["positions"]
            f["positions"] = labels.astype("i4")
            f["layers/00/out"] = x
            f["layers/00/out"].attrs["rows"] = "/positions"
        tap, = self.pair("--tap", "layers/00/out", change=shuffle)[1]
        self.assertEqual((tap["exact"], tap["n"]), (True, 50 * 4 * 128))

    def test_values_that_are_no_numbers_are_told(self):
        def spoil(f):
            f["layers/03/out"][7, 2, 5:9] = numpy.nan
        tap, = self.pair("--tap", "layers/03/out", change=spoil)[1]
        self.assertEqual((tap["lost"], tap["n"]), (4, 64 * 4 * 128 - 4))

        def spoil_all(f):
            f["layers/03/out"][...] = numpy.inf
        self.assertTrue(self.pair("--tap", "layers/03/out", change=spoil_all)[1][0]["empty"])

    def test_other_files_are_refused(self):
        def other(f):
            f.attrs["schema"] = "dsv41-dump-9"
        self.assertIn("dsv41-dump-9", self.pair(change=other)[1])

        def narrow(f):
            del f["embed"]
            f["embed"] = numpy.zeros((64, 3), "f4")
        code, said = self.pair("--tap", "embed", change=narrow)
        self.assertEqual(code, 3)
        self.assertIn("embed", said)
        self.assertIn("nosuch", self.pair("--tap", "nosuch/*")[1])
        code, _, said = report("-o", self.at("x.html"), "--reference", GOLDEN, "--ours", self.at("verify.json"))
        self.assertEqual((code, "HDF5" in said), (3, True))

    def test_floors_come_from_the_comparison(self):
        out = self.at("both.html")
        code, _, said = report("-o", out, "--reference", GOLDEN, "--ours", self.at("ours.h5"), self.at("diff.json"))
        self.assertEqual((code, said), (0, ""))
        with open(out, encoding="utf-8") as f:
            taps = Reader(f.read()).data["dumps"]
        self.assertIn("layers/05/attn/o", [t["tap"] for t in taps])
        tap = next(t for t in taps if t["tap"] == "layers/05/attn/o")
        self.assertGreater(tap["rel"], 10 * tap["floor"])


if __name__ == "__main__":
    unittest.main()
