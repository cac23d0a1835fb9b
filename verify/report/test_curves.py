"""The curves of soak and bench in a real headless Chromium: axes, lines of limits, values by pointer and by key. SHOTS
names a folder for screenshots."""

import math
import os
import unittest

import lines
import test_browser
from browser import Browser, missing
from test_lines import PUBLISHED, LineCase

# Of every plot: kind, ticks of both axes with their places, marks and lines of each series.
PLOTS = """
    return [...document.querySelectorAll('.curve')].map(host => {
        const s = host.querySelector('.plot svg'), data = JSON.parse(document.getElementById('data').textContent).curves[host.dataset.n];
        const texts = [...s.querySelectorAll('text')], at = n => Number(n.getAttribute('x'));
        const ticks = end => texts.filter(t => t.getAttribute('text-anchor') === end && /[0-9]/.test(t.textContent));
        return {kind: data.kind, width: s.getBoundingClientRect().width,
            x: ticks('middle').map(t => [t.textContent, at(t)]),
            y: ticks('end').filter(t => at(t) < 58).map(t => [t.textContent, Number(t.getAttribute('y')) - 4]),
            axes: texts.map(t => t.textContent).filter(t => /[a-z]{3}/.test(t)),
            spots: [...s.querySelectorAll('.spot')].map(m => m.getAttribute('transform').match(/[\\d.]+/g).map(Number)),
            lines: [...s.querySelectorAll('path.line')].map(p => [p.dataset.series, p.getAttribute('d'), getComputedStyle(p).strokeDasharray]),
            title: s.querySelector('title').textContent, desc: s.querySelector('desc').textContent, label: s.getAttribute('aria-label'), role: s.getAttribute('role')};
    });"""


@unittest.skipIf(missing(), missing())
class Curves(LineCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.browser = Browser()
        cls.run_lines = lines.soak()
        cls.bench = [lines.gpu_decode(1, 2000), lines.gpu_decode(8, 5000), lines.gpu_decode(64, 20000),
                     lines.gpu_prefill(4096, 40), lines.gpu_prefill(131072, 50), lines.gpu_prefill(1040384, 80)]
        cls.full = os.path.join(cls.folder.name, "full.html")
        paths = []
        for i, given in enumerate((cls.run_lines, lines.soak(leak=65536, over=10 << 20), cls.bench)):
            paths.append(os.path.join(cls.folder.name, f"full-{i}.json"))
            with open(paths[-1], "w", encoding="utf-8") as f:
                f.write(lines.text(given))
        code, _, said = cls.maker("-o", cls.full, *paths, PUBLISHED)
        assert code == 0, said

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        super().tearDownClass()

    open = test_browser.Page.open
    shot = test_browser.Page.shot

    def setUp(self):
        self.browser.size(1280, 900)
        self.browser.media("light")
        self.open()

    def plots(self, kind):
        return [p for p in self.run(PLOTS) if p["kind"] == kind]

    def tip(self):
        return self.run("const t = document.getElementById('tip'); return t.hidden ? '' : t.textContent")

    def point_at(self, spot, kind):
        """Moves the pointer to a mark of the first plot of a kind, with the browser's own events."""
        place = self.run("""
            const host = [...document.querySelectorAll('.curve')].find(h => JSON.parse(document.getElementById('data').textContent).curves[h.dataset.n].kind === arguments[0]);
            host.scrollIntoView({block: 'center', behavior: 'instant'});
            const b = host.querySelectorAll('.plot .spot')[arguments[1]].getBoundingClientRect();
            return [b.left + b.width / 2, b.top + b.height / 2];""", kind, spot)
        self.browser.command("Input.dispatchMouseEvent", type="mouseMoved", x=place[0], y=place[1])
        return self.tip()

    def test_it_opens_in_silence_and_asks_nothing(self):
        self.shot("lines-light")
        self.assertEqual(self.browser.said(), [])
        asked = [url for url in self.browser.asked() if not url.startswith(("data:", "blob:", "about:"))]
        self.assertEqual(asked, ["file://" + self.full])

    def test_every_plot_has_axes_and_words(self):
        plots = self.run(PLOTS)
        kinds = [p["kind"] for p in plots]
        run = ["soak-length", "soak-length", "soak-margin", "soak-depth", "soak-time", "soak-cycles"]
        self.assertEqual(kinds, [*run, *run, "throughput-batch", "throughput-context"])
        for p in plots:
            self.assertGreaterEqual(min(len(p["x"]), len(p["y"])), 2, p["kind"])
            self.assertEqual(len(p["axes"]), 2, p["axes"])
            self.assertEqual((p["role"], p["label"]), ("img", p["title"]))
            self.assertTrue(len(p["title"]) > 40 and len(p["desc"]) > 10, p)
        length = self.plots("soak-length")[0]
        self.assertEqual(length["axes"], ["tokens of the prompt", "memory, MB"])
        self.assertEqual([t for t, _ in length["x"]], ["128", "512", "2K", "8K", "32K", "128K", "512K"])

    def value_at(self, plot, y, scale):
        """What the axis says at this height; scale: of two of its ticks to the ends of a straight line, and back."""
        (forth, back), ticks = scale, [(scale[0](float(t)), y) for t, y in plot["y"]]
        (v0, y0), (v1, y1) = ticks[0], ticks[-1]
        return back(v0 + (y - y0) * (v1 - v0) / (y1 - y0))

    def test_marks_stand_where_the_axes_say(self):
        plot, = self.plots("throughput-batch")
        places = dict(plot["x"])
        self.assertEqual([t for t in ("1", "8", "64") if t in places], ["1", "8", "64"])
        for (x, y), (label, wanted) in zip(plot["spots"], (("1", 125), ("8", 400), ("64", 800)), strict=True):
            self.assertAlmostEqual(self.value_at(plot, y, (float, float)), wanted, delta=3)
            self.assertAlmostEqual(x, places[label], delta=0.6)
        self.assertAlmostEqual(places["8"] - places["1"], places["64"] - places["8"], delta=0.6)  # a logarithmic axis
        plot, scale = self.plots("soak-length")[0], (math.log10, lambda v: 10 ** v)
        rungs = [r for r in self.run_lines if r["soak"] == "rung" and r["chunk"] == 256]
        for rung, (_, y) in zip(rungs, plot["spots"]):  # the measured ones come first; the axis is in MB
            self.assertAlmostEqual(self.value_at(plot, y, scale) * 1e6 / rung["measured_bytes"], 1, delta=0.02)

    def test_lines_of_limits_are_above_and_dashed(self):
        plot, = self.plots("throughput-batch")
        first = {name: float(d.split()[1].split("L")[0]) for name, d, _ in plot["lines"]}
        self.assertLess(first["physical limit"], first["measured ceiling"])
        self.assertLess(first["measured ceiling"], first["measured"])
        dashed = {name: dash != "none" for name, _, dash in plot["lines"]}
        self.assertEqual(dashed, {"measured": False, "measured ceiling": True, "physical limit": True})
        self.assertEqual({name for name, _, _ in self.plots("soak-length")[0]["lines"]}, {"planned", "measured", "fitted"})
        self.assertIn("asked for", [name for name, _, _ in self.plots("soak-margin")[0]["lines"]])

    def test_the_pointer_tells_the_value_of_the_line(self):
        rungs = [r for r in self.run_lines if r["soak"] == "rung" and r["chunk"] == 256]
        said = self.point_at(len(rungs) - 1, "soak-length")  # the measured marks come first
        self.assertIn("1\u202f048\u202f576 tokens", said)
        self.assertIn(f"{rungs[-1]['measured_bytes'] / 1e6:.3g}\u202fMB", said)
        said = self.point_at(1, "throughput-batch")
        self.assertIn("batch 8\n400 tok/s", said)
        self.browser.command("Input.dispatchMouseEvent", type="mouseMoved", x=2, y=2)
        self.assertEqual(self.tip(), "")

    def test_the_keys_tell_every_value_in_order(self):
        from selenium.webdriver.common.keys import Keys
        self.run("""[...document.querySelectorAll('.curve')].find(h => JSON.parse(document.getElementById('data').textContent).curves[h.dataset.n].kind
            === 'throughput-context').querySelector('svg.points').focus()""")
        said = []
        for key in (Keys.ARROW_RIGHT, Keys.END, Keys.ARROW_LEFT, Keys.HOME):
            self.browser.driver.switch_to.active_element.send_keys(key)
            said.append(self.tip())
        self.assertIn("4\u202f096 tokens before", said[0])
        self.assertIn("1\u202f040\u202f384 tokens before", said[1])
        self.assertNotEqual(said[2], said[1])
        self.assertEqual(said[3], said[0])
        self.assertEqual(self.run("return document.activeElement.querySelector('.cursor').getAttribute('visibility')"), "visible")
        self.run("document.activeElement.blur()")
        self.assertEqual(self.tip(), "")

    def test_the_culprit_is_on_the_page(self):
        self.assertIn("failed", self.run("return document.getElementById('word').textContent"))
        self.assertIn("Culprit: index: scores", self.run("return document.getElementById('soak1').textContent"))
        self.assertEqual(self.run("return document.querySelectorAll('#soak .failed').length"), 0)

    def test_figures_sort_by_each_gpu(self):
        host = "#published .table[data-kind=prefill-average]"
        column = self.run(f"return [...document.querySelectorAll('{host} th')].findIndex(h => h.textContent === 'ours / theirs')")
        self.run(f"document.querySelectorAll('{host} th button')[{column}].click()")
        got = self.run(f"return [...document.querySelectorAll('{host} tbody tr')].map(r => r.cells[{column}].dataset.v)")
        known = [float(v) for v in got if v]
        self.assertEqual(known, sorted(known, reverse=True))
        self.assertTrue(known and got[-1] == "")

    def test_text_has_contrast_and_marks_too(self):
        for scheme in ("light", "dark"):
            self.browser.media(scheme)
            self.open()
            self.shot("lines-" + scheme)
            self.assertEqual(self.run(test_browser.Page.CONTRAST), [], scheme)
            low = self.run("""
                const rgb = c => c.match(/[\\d.]+/g).map(Number), light = c => { const [r, g, b] = rgb(c).map(v => v / 255)
                    .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
                const ground = light(getComputedStyle(document.body).backgroundColor);
                return [...document.querySelectorAll('.plot path.line')].map(p => { const a = light(getComputedStyle(p).stroke);
                    return [(Math.max(a, ground) + 0.05) / (Math.min(a, ground) + 0.05), p.dataset.series]; }).filter(([r]) => r < 3);""")
            self.assertEqual(low, [], scheme)

    def test_a_phone_needs_no_sideways_scroll(self):
        self.browser.size(320, 844)
        self.open()
        self.shot("lines-phone")
        self.assertLessEqual(self.run("return document.documentElement.scrollWidth"), 320)
        for p in self.run(PLOTS):
            self.assertTrue(0 < p["width"] <= 320, p["kind"])
            self.assertGreaterEqual(len(p["x"]), 2)
        said = self.point_at(3, "soak-length")  # where marks are narrow the nearest one speaks
        self.assertIn("256 tokens", said)
        self.assertNotIn("129 tokens", said)

    def test_a_resized_plot_tells_once(self):
        """Each drawing anew would add a listener, were they the drawing's."""
        self.browser.size(900, 900)
        self.assertIn("batch 8\n400 tok/s", self.point_at(1, "throughput-batch"))
        self.assertEqual(self.run("return document.querySelectorAll('.curve svg.points').length"), 14)

    def test_bare_lines_open_in_silence(self):
        start, rung = {"soak": "start"}, {"soak": "rung", "length": 0, "planned_bytes": 0, "measured_bytes": 0}
        for bare in ([start], [start, rung], [start, {**rung, "curve": [{"depth": 0, "tokens": 1, "seconds": 0}]}, {"soak": "sample", "t_ms": 0, "anon_bytes": 0}],
                     [lines.decode(0, 1e-9), lines.decode(1, 1e12)], [{**lines.gpu_decode(1, 1e-300), "percent_of_physical": 1e300}, lines.gpu_decode(2, 5)]):
            self.give(bare)
            self.browser.open(self.at("page.html"))
            self.assertEqual(self.browser.said(), [], bare)

    def test_without_script_the_values_are_there(self):
        self.browser.command("Emulation.setScriptExecutionDisabled", value=True)
        try:
            self.browser.driver.get("file://" + self.full)
        finally:
            self.browser.command("Emulation.setScriptExecutionDisabled", value=False)
        text = self.browser.run("return document.body.textContent")
        for word in ("Culprit: index: scores", "experts: rows", "of the step: NOT within", "vLLM, Burlesque1"):
            self.assertIn(word, text)


if __name__ == "__main__":
    unittest.main()
