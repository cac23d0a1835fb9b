"""The pages of soak, bench, comparisons and published figures, without a browser: what they accept, refuse and say, and
that their values are those of the lines. DSF names the program."""

import contextlib
import copy
import html.parser
import importlib.util
import io
import json
import os
import sys
import tempfile
import unittest

import lines
from test_report import HOSTILE, ROOT, SCRIPT, Case, Reader, report

PUBLISHED = os.path.join(ROOT, "bench", "published.json")
RESULTS = os.path.join(ROOT, "bench", "results")


def page_maker():
    """The script's main(), in this process: a page then takes no new Python."""
    sys.path.insert(0, os.path.dirname(SCRIPT))
    spec = importlib.util.spec_from_file_location("page_maker", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.main


MAKE = page_maker()


def make(*words):
    """(exit code, standard output, standard error) of the script."""
    out, said = io.TextIOWrapper(io.BytesIO()), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(said):
        code = MAKE(list(words))
    out.seek(0)
    return code, out.read(), said.getvalue()


class Rows(html.parser.HTMLParser):
    """The cells of every row of a page's tables, as words."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.rows, self.inside = [], False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")
            self.inside = True

    def handle_endtag(self, tag):
        if tag in ("td", "th"):
            self.rows[-1][-1] = " ".join(self.rows[-1][-1].split())
            self.inside = False

    def handle_data(self, data):
        if self.inside:
            self.rows[-1][-1] += data

    def of(self, *words):
        """The first row that has all these cells."""
        return next(r for r in self.rows if all(w in r for w in words))


class LineCase(Case):
    """Without the dumps that other pages need."""
    maker = staticmethod(make)

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()

    def give(self, *documents):
        """A page of lists of lines, of documents, of paths."""
        paths = [d if isinstance(d, str) else self.save(f"given-{i}.json", lines.text(d if isinstance(d, list) else [d])) for i, d in enumerate(documents)]
        text, page = self.page(*paths)
        page.tables = Rows(text)
        return page

    def curves(self, page, kind):
        return [c for c in page.data["curves"] if c["kind"] == kind]

    def series(self, curve, name):
        return next(s for s in curve["series"] if s["name"].startswith(name))

    def points(self, curve, name):
        return [p[:2] for p in self.series(curve, name)["points"]]


class Program(LineCase):
    maker = staticmethod(report)

    def test_every_kept_result_makes_one_page(self):
        kept = [os.path.join(RESULTS, n) for n in sorted(os.listdir(RESULTS)) if n.split("-")[1].split(".")[0] in
                ("op", "decode", "prefill", "memory", "dump", "ceiling", "soak", "verify")]
        self.assertGreater(len(kept), 8)
        page = self.give(*kept, lines.soak(), PUBLISHED)
        for section in ("soak", "checks", "bench", "published", "sources"):
            self.assertIn(section, page.text)
        self.assertIn("failed", page.word)  # h200-verify-official.json holds a failure


class Soak(LineCase):
    def test_a_good_run_passes_and_its_curves_are_its_lines(self):
        run = lines.soak()
        page = self.give(run)
        self.assertIn("✓ passed", page.word)
        rungs = [x for x in run if x["soak"] == "rung"]
        for chunk, curve in zip((256, 1024), self.curves(page, "soak-length")):
            some = [r for r in rungs if r["chunk"] == chunk]
            for name, key in (("planned", "planned_bytes"), ("measured", "measured_bytes"), ("high water", "high_water_bytes")):
                self.assertEqual(self.points(curve, name), [[r["length"], r[key]] for r in some])
            self.assertEqual(self.points(curve, "fitted"), [[r["length"], 250 + 895.5 * r["length"] + 5970 * min(chunk, r["length"]) + 50000] for r in some])
        margin = self.curves(page, "soak-margin")[0]
        self.assertEqual(self.points(margin, "margin, chunk 256"), [[r["length"], r["margin_bytes"]] for r in rungs if r["chunk"] == 256])
        self.assertEqual({p[1] for p in self.points(margin, "asked for")}, {lines.MARGIN})
        depth = self.curves(page, "soak-depth")[0]
        longest = next(r for r in rungs if r["chunk"] == 256 and r["length"] == 1048576)
        self.assertEqual(self.points(depth, "chunk 256"), [[c["depth"], c["tokens"] / c["seconds"]] for c in longest["curve"]])
        for word in ("1\u202f048\u202f576", "experts: rows", "chunk x 6 x 500", "pass: values", "residual 0.4", "same"):
            self.assertIn(word, page.text["soak"])

    def test_memory_over_time_and_cycles(self):
        run = lines.soak(leak=65536)
        samples = [x for x in run if x["soak"] == "sample"]
        page = self.give(run)
        time = self.curves(page, "soak-time")[0]
        self.assertEqual(self.points(time, "the engine's own"), [[x["t_ms"] / 1e3, x["live_bytes"]] for x in samples])
        self.assertEqual([s["name"] for s in time["series"]], ["anonymous memory of the process", "the engine's own allocations"])  # nulls are none
        cycles = self.curves(page, "soak-cycles")[0]
        self.assertEqual(self.points(cycles, "the engine's own"), [[c, 65536 * c] for c in range(20)])
        self.assertEqual(self.points(cycles, "the limit"), [[0, 0], [19, 19 * 1048576]])
        self.assertIn("live_bytes 65536 a cycle (65536 to 65536); anon_bytes 65548 a cycle", cycles["caption"])

    def test_a_failed_run_names_its_culprit(self):
        page = self.give(lines.soak(over=10 << 20))
        self.assertIn("✕ failed", page.word)
        self.assertIn("culprit: index: scores", page.text["verdict"])
        self.assertIn("Culprit: index: scores", page.text["soak"])
        self.assertEqual(page.tables.of("index: scores", "chunk x context x 4")[3], "chunk × length")
        page = self.give(lines.soak(leak=65536))
        self.assertIn("live_bytes: 65536 bytes a cycle after rewind", page.text["verdict"])

    def test_a_verdict_is_counted_again(self):
        good = lines.soak()
        none = {"no verdict": good[:-1], "no check": [*good[:-1], {"soak": "verdict", "passed": True}]}
        for name, run in none.items():
            self.assertIn("not passed: nothing was compared", self.give(run).word, name)
        for spoil in ("passed", "check", "same", "slope"):
            run = copy.deepcopy(good)
            if spoil == "passed":
                run[-1]["passed"] = False
            elif spoil == "check":
                run[-1]["checks"][0].pop("passed")
            elif spoil == "same":
                run[3]["same"] = False
            else:
                next(x for x in run if x["soak"] == "slope")["passed"] = False
            self.assertIn("✕ failed", self.give(run).word, spoil)
        self.assertIn("✕ failed", self.give(good, lines.soak(leak=1)).word)
        run = copy.deepcopy(good)
        run[-1].update(passed=False, stopped="the machine has less than 512 MB to give")
        self.assertIn("stopped before its end: the machine has less than 512 MB", self.give(run).text["verdict"])

    def test_what_the_fit_is_without_is_added_where_it_is_told(self):
        run = lines.soak(chunks=(256,))
        run[2]["without_bytes"] = 70000
        self.assertEqual(self.points(self.curves(self.give(run), "soak-length")[0], "fitted")[1][1], 250 + 895.5 * 128 + 5970 * 128 + 70000)
        run[0]["budget"].pop()
        self.assertEqual([p[0] for p in self.points(self.curves(self.give(run), "soak-length")[0], "fitted")], [128])

    def test_an_arena_over_its_plan_is_told(self):
        run = lines.soak()
        run[2]["arenas"][1]["high_water"] += 64
        self.assertIn("caches at 128 tokens", self.give(run).text["soak"])

    def test_no_peak_is_lost_among_many_samples(self):
        run = lines.soak(cycles=400)
        peak = next(x for x in run if x["soak"] == "sample" and x["cycle"] == 333)
        peak["anon_bytes"] = 99_000_000
        page = self.give(run)
        time = self.curves(page, "soak-time")[0]
        self.assertLessEqual(len(time["series"][0]["points"]), 600)
        self.assertIn([peak["t_ms"] / 1e3, 99_000_000], self.points(time, "anonymous"))
        self.assertIn("Of every", time["caption"])

    def test_malformed_lines_are_refused_with_file_and_line(self):
        good = lines.text(lines.soak()).splitlines(keepends=True)
        self.refused("cut.json", "".join(good[:4]) + good[4][:30], "line 5")
        self.refused("word.json", good[0] + '{"soak": "ladder"}\n', "line 2", "ladder", "rung")
        self.refused("early.json", good[1] + good[0], "line 1", "before any line")
        self.refused("late.json", "".join(good) + good[1], f"line {len(good) + 1}", "after the verdict")
        for key, value in (("length", "long"), ("length", -1), ("length", None), ("planned_bytes", "many"), ("curve", {}), ("arenas", [1]), ("same", "yes")):
            line = {**json.loads(good[3]), key: value}
            self.refused("typed.json", "".join(good[:3]) + json.dumps(line) + "\n" + "".join(good[4:]), "typed.json: line 4", key)

    def test_what_is_missing_stays_missing(self):
        start, rung = {"soak": "start"}, {"soak": "rung", "length": 5}
        for run in ([start], [start, rung], [start, {"soak": "sample"}, {"soak": "fit"}, {"soak": "slope"}], [start, rung, {"soak": "verdict"}],
                    [start, {**rung, "curve": [{}], "arenas": [{}], "largest": [{}]}, {"soak": "verdict", "checks": [{}]}]):
            self.assertNotIn("✓", self.give(run).word, run)


class Bench(LineCase):
    def test_throughput_and_its_limits(self):
        run = [lines.decode(128, 8.0, 80.0, percent_of_physical=40.0), lines.decode(1024, 7.0, 77.0, percent_of_physical=35.0)]
        curve, = self.curves(self.give(run), "throughput-context")
        self.assertEqual(self.points(curve, "measured"), [[128, 8.0], [1024, 7.0]])
        for name, key in (("measured ceiling", "percent"), ("physical limit", "percent_of_physical")):
            got = [p[1] for p in self.series(curve, name)["points"]]
            for value, line in zip(got, run, strict=True):
                self.assertAlmostEqual(value, line["tokens_per_s"] * 100 / line[key])

    def test_a_prefill_stands_at_the_end_of_its_interval(self):
        def line(context, tokens, rate):
            return {**lines.decode(context, rate), "bench": "prefill", "tokens": tokens}
        page = self.give([line(0, 512, 90.0), line(4096, 512, 80.0)])
        curve, = self.curves(page, "throughput-context")
        self.assertEqual(self.points(curve, "measured"), [[512, 90.0], [4608, 80.0]])
        self.assertIn("512 tokens, 4096 tokens before", page.text["bench"])

    def test_a_batch_has_its_own_curve_of_the_whole_model(self):
        run = [lines.gpu_decode(1, 2000), lines.gpu_decode(8, 5000), lines.gpu_decode(64, 20000)]
        page = self.give(run)
        curve, = self.curves(page, "throughput-batch")
        self.assertEqual([[b, round(v, 6)] for b, v in self.points(curve, "measured")], [[1, 125.0], [8, 400.0], [64, 800.0]])
        self.assertEqual(round(self.points(curve, "physical limit")[0][1], 6), 312.5)
        self.assertEqual(self.curves(page, "throughput-context"), [])  # one depth is no curve
        low, high = self.series(curve, "measured")["points"][0][2:4]
        self.assertTrue(low < 125 < high)

    def test_a_prefill_at_depth(self):
        page = self.give([lines.gpu_prefill(4096, 40), lines.gpu_prefill(131072, 50), lines.gpu_prefill(1040384, 80)])
        curve, = self.curves(page, "throughput-context")
        self.assertEqual([[x, round(y, 3)] for x, y in self.points(curve, "measured")], [[4096, 25000], [131072, 20000], [1040384, 12500]])
        self.assertEqual(curve["y"]["div"], 1e3)

    def test_kernels_add_up_or_the_page_says_so(self):
        text = self.give([lines.decode(128)]).text["bench"]
        self.assertIn("The kernels add up to 99.5 % of the step: within 5 %.", text)
        self.assertNotIn("NOT within", text)
        # What lies outside is what is missing: it does not count as kernels.
        text = self.give([lines.decode(128, kernels=(("experts_up", 60.0), ("linear_g8", 34.0)), outside_steps_percent=6.0)]).text["bench"]
        self.assertIn("The kernels add up to 94 % of the step: NOT within 5 % of it.", text)
        self.assertIn("Kernels that do not add up to their step", text)
        self.assertIn("decode full4, 128 tokens before (94", " ".join(text.split()))
        self.assertIn("88 % of the step: NOT", self.give([lines.gpu_prefill(0, 40)]).text["bench"])
        self.assertIn("does not tell the step", self.give([{"bench": "decode", "step": [{"op": "x", "ns_per_token": 5}]}]).text["bench"])

    def test_a_bootstrap_interval_stands_before_the_quartiles(self):
        self.assertIn("2 1.9 – 2.5", self.give([lines.op("attn", "n=1", 2e6, interval=[1.9e6, 2.5e6])]).text["bench"])
        self.assertIn("2 1.98 – 2.02", self.give([lines.op("attn", "n=1", 2e6)]).text["bench"])
        for wrong in ([1], [3, 2], "wide", [1, "x"]):
            self.refused("interval.json", lines.op("attn", "n=1", 2e6, interval=wrong), "interval.json", "interval")

    def test_weak_figures_are_flagged(self):
        page = self.give([lines.op("attn", "n=1", 2e6, cv_percent=7.5, noisy=True, settled=False), lines.op("route", "n=1", 2e6, cv_percent=1.5, noisy=False)])
        self.assertIn("Weak figures: attn, n=1 (noisy and not settled when it began, 7.5\u202f%)", page.text["bench"])
        self.assertEqual((page.tables.of("attn")[-1], page.tables.of("route")[-1]), ("7.5", "1.5"))
        self.assertNotIn("Weak", self.give([lines.op("attn", "n=1", 2e6)]).text["bench"])

    def test_a_report_card_says_what_is_not_told(self):
        text = " ".join(self.give([lines.gpu_decode(8, 100)]).text["bench"].split())
        for word in ("9f8e7d6", "NVIDIA H200", "580.1", "1980 / 3201 MHz", "synthetic, seed 1", "0, 1, 20", "not told"):
            self.assertIn(word, text)
        told = {"driver": None, "clocks": {"processor_mhz": 2600.4, "sm_mhz": None}, "weights": "made", "seed": 3, "routing": "uniform", "graphs": False, "mode": "replay",
                "percent_of_ceiling": 61, "percent_of_physical": None, "output_hash": "00ff"}
        card = self.give([{**lines.op("attn", "n=1", 1e6), **told}]).tables.of("op attn")
        for word in ("2600 MHz", "made, seed 3", "uniform", "no", "replay", "61", "00ff", "not told"):
            self.assertIn(word, card)
        self.assertIn("refused: other bits", self.give([{**lines.gpu_decode(8, 100), "refused": "other bits"}]).text["bench"])


@unittest.skipUnless(os.environ.get("DSF"), "DSF names no program: it holds the judge")
class Changes(LineCase):
    def compare(self, old, new, *words):
        paths = [self.save(name, x if isinstance(x, str) else lines.text(x)) for name, x in (("old.json", old), ("new.json", new))]
        out = self.at("changes.html")
        code, _, said = report("--compare", paths[0], paths[1], *words, "-o", out)
        if code:
            return code, said
        with open(out, encoding="utf-8") as f:
            text = f.read()
        page = Reader(text)
        page.tables = Rows(text)
        return page

    def test_a_commit_against_itself_is_no_difference(self):
        run = [lines.op("attn", "n=1", 1e6), lines.decode(128), lines.gpu_prefill(4096, 40)]
        page = self.compare(run, run)
        self.assertIn("3 no difference; 0 only in the new, 0 only in the old", page.text["changes"])
        self.assertIn("✓ passed", page.word)
        self.assertNotIn("slower,", page.text["changes"])

    def test_the_most_important_comes_first_with_its_interval(self):
        old = [lines.op("attn", "n=1", 1e6), lines.op("swiglu", "n=1", 1e6), lines.op("route", "n=1", 1e6), lines.op("embed", "n=1", 1e6)]
        new = [lines.op("attn", "n=1", 1.01e6), lines.op("swiglu", "n=1", 0.8e6), lines.op("route", "n=1", 1.1e6), lines.op("embed", "n=1", 1.5e6)]
        page = self.compare(old, new)
        rows = [r[:2] for r in page.tables.rows if r and r[0] in ("slower", "faster", "no difference")]
        self.assertEqual(rows, [["slower", "op embed"], ["slower", "op route"], ["faster", "op swiglu"], ["no difference", "op attn"]])
        self.assertIn("50 47.2 to 52.8", page.tables.of("op embed"))  # twice the root of both spreads' squares to either side
        text = page.text["changes"]
        self.assertIn("2 of 4 measurements slower, most op embed n=1", text)
        self.assertIn("✕ failed", page.word)

    def test_the_kernel_behind_a_slower_step_is_named(self):
        old = [lines.decode(128, 8.0, 80.0)]
        new = [lines.decode(128, 6.4, 64.0, kernels=(("experts_up", 48.0), ("linear_g8", 51.6)))]
        page = self.compare(old, new)
        self.assertEqual(page.tables.of("slower")[1], "decode full4")
        kernels = [r for r in page.tables.rows if r and r[0] in ("experts_up", "linear_g8") and len(r) == 7]
        self.assertEqual([(r[0], float(r[3])) for r in kernels], [("linear_g8", 31250), ("experts_up", 0)])

    def test_what_has_no_pair_is_listed(self):
        page = self.compare([lines.op("attn", "n=1", 1e6), lines.op("old_only", "n=1", 1e6)], [lines.op("attn", "n=1", 1e6), lines.op("new_only", "n=1", 1e6)])
        self.assertIn("1 only in the new, 1 only in the old", page.text["changes"])
        for word in ("new_only", "old_only"):
            self.assertIn(word, page.text["changes"])
        page = self.compare([lines.op("attn", "n=1", 1e6)], [{**lines.op("attn", "n=1", 1e6), "machine": "another"}])
        self.assertIn("not passed: nothing was compared", page.word)

    def test_other_files_are_refused(self):
        good = lines.text([lines.op("attn", "n=1", 1e6)])
        code, said = self.compare(good + "{\n", good)
        self.assertEqual((code, "old.json: line 2" in said), (3, True), said)
        code, said = self.compare(good, good + "{\n")
        self.assertEqual((code, "new.json: line" in said and "begins at line 2" in said), (3, True), said)
        code, said = self.compare(lines.soak()[:1], good)
        self.assertEqual((code, "old.json: line 1: no measurement" in said), (3, True), said)
        self.assertEqual(report("--compare", self.at("old.json"), "-o", self.at("x.html"))[0], 2)
        code, _, said = report("--compare", self.at("old.json"), self.at("new.json"), "-o", self.at("old.json"))
        self.assertEqual((code, "one file" in said), (2, True), said)


class Alternated(LineCase):
    def test_two_builds_in_alternation(self):
        page = self.give([lines.alternated("decode at 64", 0.2, -0.5, 0.9, "no difference"), lines.alternated("op attn", -9, -11, -7, "faster"),
                          lines.alternated("prefill", 12, 10, 14, "slower", [("attn", 1, "no difference"), ("linear_g8", 30, "slower"), ("route", 55, "no difference")])])
        self.assertIn("✕ failed", page.word)
        self.assertIn("1 of 3 measurements slower, most prefill, in it linear_g8", page.text["verdict"])
        rows = [r[:2] for r in page.tables.rows if r and r[0] in ("slower", "faster", "no difference")]
        self.assertEqual(rows, [["slower", "prefill"], ["faster", "op attn"], ["no difference", "decode at 64"]])
        self.assertIn("12 10 to 14", page.tables.of("slower", "prefill"))
        kernels = [r for r in page.tables.rows if r and r[0] in ("attn", "linear_g8", "route")]
        self.assertEqual([(r[0], r[5], r[6]) for r in kernels],
                         [("linear_g8", "30 29 to 31", "slower"), ("route", "55 54 to 56", "no difference"), ("attn", "1 0 to 2", "no difference")])
        self.assertIn("✓ passed", self.give([lines.alternated("op attn", 0.2, -0.5, 0.9, "no difference")]).word)
        hidden = lines.alternated("decode", 1.2, 0.5, 1.9, "no difference", [("route", 25, "slower")])
        self.assertIn("most decode, in it route", self.give([hidden]).text["verdict"])

    def test_a_ratio_says_the_same(self):
        line = {"bench": "ab", "measured": "op", "op": "attn", "shape": "n=1", "pairs": 9,
                "whole": {"verdict": "slower", "ratio": 1.25, "interval": [1.2, 1.3], "old_ns": 1e6, "new_ns": 1.25e6},
                "operations": [{"op": "attn:avx512", "verdict": "slower", "ratio": 1.5, "interval": [1.4, 1.6], "old_ns": 4e5, "new_ns": 6e5}]}
        page = self.give([line, {"bench": "ab_verdict", "verdict": "slower", "cases": 1}])
        self.assertEqual(page.tables.of("slower", "op attn")[4:8], ["25 20 to 30", "", "1", "1.25"])
        self.assertEqual(page.tables.of("attn:avx512")[1:], ["400", "600", "200", "20", "50 40 to 60", "slower"])
        self.assertNotIn("bench", page.text)

    def test_a_wrong_output_is_no_figure(self):
        page = self.give([lines.alternated("op attn", 0, 0, 0, "no difference", refused="the outputs differ")])
        self.assertIn("✕ failed", page.word)
        self.assertIn("refused: the outputs differ", page.text["verdict"])


class Published(LineCase):
    OURS = [lines.gpu_prefill(0, 40), lines.gpu_prefill(100000, 50), lines.gpu_prefill(1040384, 90), lines.gpu_decode(1, 2000)]

    def model(self, *figures):
        with open(PUBLISHED, encoding="utf-8") as f:
            doc = json.load(f)
        return {**doc, "figures": list(figures)} if figures else doc

    def figure(self, **more):
        return {"kind": "prefill-average", "system": "theirs", "hardware": "8 x H20", "gpu": "H20", "gpus": 8, "context": 100000, "tok_s": 4000,
                "weights": "native", "date": "2026-09", "source": "a/b", **more}

    def row(self, page):
        """The words of the one row of its table."""
        return " ".join(page.text["published"].split())

    def test_without_measurements_every_row_says_so(self):
        doc = self.model()
        page = self.give(PUBLISHED)
        text, cells = self.row(page), [c for r in page.tables.rows for c in r]
        apart = sum(f["kind"] in ("cached-total", "prefill-unstated") for f in doc["figures"])
        self.assertEqual((cells.count("not measured"), cells.count("not compared")), (len(doc["figures"]) - apart, apart))
        for word in ("1 554", "810", "7 439", "zllm-lab/zllm"):
            self.assertIn(word, text)

    def test_ours_is_the_mean_over_the_prompt(self):
        """40 to 50 us over 100,000 tokens: 45 us, 22,222 tok/s on one GPU, 44.4 times their 500 on each of eight."""
        page = self.give(self.model(self.figure()), self.OURS)
        limit = 1e6 * ((8493465600 + 7296778240 + 6144 * 100000) / 1979e12 + 1543503872 / 989e12)
        theirs = 1e6 * ((8493465600 + 7296778240 + 6144 * 100000) / 296e12 + 1543503872 / 148e12) / 8
        self.assertEqual(page.tables.of("theirs")[3:9], ["4 000", "500", f"{100 * theirs * 4000 / 1e6:.3g}", "22 222", f"{100 * limit / 45:.3g}", "44.4"])
        self.assertIn("chunk 8192, depths 0 to 1040384", self.row(page))
        self.assertIn("by kind of layer", self.row(page))
        deep = self.figure(kind="prefill-at-depth", context=335096)  # a quarter of the way from 50 to 90
        self.assertEqual(self.give(self.model(deep), self.OURS).tables.of("theirs")[6], "16 667")

    def test_beyond_what_was_measured_is_not_measured(self):
        for figure in (self.figure(context=1048577), self.figure(context=8191), self.figure(kind="prefill-aggregate"), self.figure(context=None),
                       self.figure(kind="decode-single", drafting=5), self.figure(kind="decode-aggregate", drafting=0, streams=7)):
            self.assertIn("not measured", self.row(self.give(self.model(figure), self.OURS)), figure)
        self.assertIn("not compared", self.row(self.give(self.model(self.figure(kind="cached-total")), self.OURS)))
        self.assertIn("not measured", self.row(self.give(self.model(self.figure()), [{**x, "refused": "bits"} for x in self.OURS])))

    def test_decode_without_drafts_stands_beside_ours(self):
        page = self.give(self.model(self.figure(kind="decode-single", drafting=0, gpus=1, tok_s=25)), self.OURS)
        self.assertEqual(page.tables.of("theirs")[6:9], ["125", "40", "5"])  # tok/s, percent of the limit, a GPU to a GPU

    def test_the_limits_are_the_printed_ones(self):
        """Speed of light of one H200: 104.7k tok/s to 4,096 tokens, 78.2k to a million; a decode step at 4.3 TB/s: 3.03 ms,
        of 256 streams on 8 GPUs 8.49 ms (bench/limits.c prints the same)."""
        import published
        import results
        cost, h200 = published.limits_of(results.Fields(self.model(), "published")), {"fp8": 1979e12, "bf16": 989e12, "bytes_per_s": 4.3e12}
        self.assertAlmostEqual(published.prefill_limit(cost, h200, 4096, True) / 1e3, 104.7, delta=0.1)
        self.assertAlmostEqual(published.prefill_limit(cost, h200, 1 << 20, True) / 1e3, 78.2, delta=0.4)
        self.assertAlmostEqual(published.prefill_limit(cost, h200, 4096, False), published.prefill_limit(cost, h200, 8192, True))
        self.assertAlmostEqual(1e3 / published.decode_limit(cost, h200, 1, 1), 3.03, delta=0.005)
        self.assertAlmostEqual(1e3 * 256 / published.decode_limit(cost, h200, 8, 256), 8.49, delta=0.005)

    def test_every_figure_has_its_source_and_kind(self):
        doc = self.model()
        kinds = {k["kind"] for k in doc["kinds"]}
        for f in doc["figures"]:
            self.assertTrue(f["source"] and f["date"] and f["kind"] in kinds and f["basis"] in ("measured", "inferred"), f)
            if f["basis"] == "inferred":
                self.assertTrue(f.get("note"), f)
        for change, words in (({"kind": "prefill"}, ("figures[0].kind", "prefill-average")), ({"tok_s": 0}, ("tok_s",)), ({"source": ""}, ("source",)),
                              ({"tok_s": "fast"}, ("figures[0].tok_s",))):
            self.refused("figures.json", self.model(self.figure(**change)), *words)
        self.refused("bare.json", {"schema": "dsf-published-1"}, "prompt_flops")


class Names(LineCase):
    def test_names_stay_text(self):
        def hostile(name):
            run = lines.soak(chunks=(256,), cycles=3)
            run[0].update(model=name, machine=name, conditions=name, backend=name, prefill=name)
            run[0]["budget"][0].update(name=name, formula=name, phase=name, kind=name)
            run[1]["arenas"][0]["name"] = run[8]["arenas"][0]["name"] = run[8]["largest"][0]["formula"] = run[8]["hash"] = name
            run[-1].update(culprit=name, passed=False)
            run[-1]["checks"][0].update(name=name, words=name, passed=False)
            next(x for x in run if x["soak"] == "sample")["phase"] = name
            bench = [lines.decode(128, model=name, prefill=name, commit=name), lines.decode(256, model=name, prefill=name, commit=name)]
            with open(PUBLISHED, encoding="utf-8") as f:
                figures = json.load(f)
            figures["figures"] = [{"kind": "prefill-average", "system": name or "x", "hardware": name, "tok_s": 1, "source": name or "x", "note": name}]
            return run, bench, figures
        tags = lambda page: [tag for tag, _ in page.tags]  # noqa: E731
        plain = {False: tags(self.give(*hostile("plain"))), True: tags(self.give(*hostile("p" * 3000)))}
        for name in (HOSTILE[0], HOSTILE[1], HOSTILE[3], HOSTILE[5], HOSTILE[6], HOSTILE[7]):
            page = self.give(*hostile(name))
            self.assertEqual(tags(page), plain[len(name) > 1000], name[:40])
            self.assertEqual(len(page.scripts), 2)
            for tag, attrs in page.tags:
                self.assertFalse([a for a in attrs if a.startswith("on") or a == "style"], attrs)


if __name__ == "__main__":
    unittest.main()
