"""The page of `dsf report` in a real headless Chromium. SHOTS names a folder for screenshots."""

import os
import unittest

import test_report
from browser import Browser, missing
from test_report import GOLDEN, HOSTILE, report

GUILTY = "layers/05/attn/topk"
VISIBLE = "return [...document.querySelectorAll('#c0 .table[data-name=taps] tbody tr')].filter(r => !r.hidden)"


@unittest.skipIf(missing(), missing())
class Page(test_report.Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.browser = Browser()
        at = lambda name: os.path.join(cls.folder.name, name)  # noqa: E731
        cls.full = at("full.html")
        words = [at(n) for n in ("verify.json", "diff.json", "graft.json", "bench.json")]
        code, _, said = report("-o", cls.full, "--reference", GOLDEN, "--ours", at("ours.h5"), *words)
        assert code == 0, said

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        super().tearDownClass()

    def setUp(self):
        self.browser.size(1280, 900)
        self.browser.media("light")

    def open(self, path=None, fragment=""):
        self.browser.open(path or self.full, fragment)
        self.run = self.browser.run
        if self.run("return document.documentElement.dataset.ready") != "1":
            self.fail(f"the page did not get ready: {self.browser.said()}")  # what is read is gone: not in every call

    def shot(self, name, whole=True):
        folder = os.environ.get("SHOTS")
        if folder:
            self.browser.shot(os.path.join(folder, name + ".png"), whole)

    def click(self, selector, n=0):
        self.run("document.querySelectorAll(arguments[0])[arguments[1]].click()", selector, n)

    def taps(self):
        return self.run(VISIBLE + ".map(r => r.cells[1].textContent)")

    def column(self, name):
        heads = self.run("return [...document.querySelectorAll('#c0 .table[data-name=taps] th')].map(h => h.textContent)")
        return next(i for i, head in enumerate(heads) if head.startswith(name))

    def test_it_opens_in_silence_and_asks_nothing(self):
        self.open()
        self.shot("desktop-light")
        self.assertEqual(self.browser.said(), [])
        asked = [url for url in self.browser.asked() if not url.startswith(("data:", "blob:", "about:"))]
        self.assertEqual(asked, ["file://" + self.full])

    def test_the_policy_stops_what_a_script_would_ask(self):
        self.open()
        stopped = self.browser.driver.execute_async_script(
            "const done = arguments[0]; fetch('https://example.org/').then(() => done('sent'), () => done('stopped'));")
        self.assertEqual(stopped, "stopped")
        self.assertTrue(any("Content Security Policy" in line or "Content-Security-Policy" in line for line in self.browser.said()))
        self.run("const s = document.createElement('script'); s.textContent = 'window.planted = 1'; document.body.append(s);")
        self.assertIsNone(self.run("return window.planted || null"))

    def test_every_kind_of_page_opens_in_silence(self):
        good = self.load("verify-good.json")
        pages = {"good": [good], "bench": [self.at("bench.json")], "bare-diff": [{"schema": "dsf-diff-1"}], "bare-verify": [{"schema": "dsf-verify-1"}],
                 "empty-taps": [{"schema": "dsf-diff-1", "first": {}, "taps": [{"path": "x", "row": {}, "flip": [{}]}], "budget": [{}]}],
                 "infinite": [{"schema": "dsf-diff-1", "taps": [{"path": "layers/00/out", "kind": "out", "layer": 0, "rel_l2": "inf", "ratio": "inf",
                                                                "row": {"label": [3], "rel_l2": ["inf"], "ratio": [None]}}]}],
                 "one-layer": [{"schema": "dsf-diff-1", "budget": [{"layer": 0, "measured": 0, "floor": 0, "budget": 0}], "taps": []}]}
        for name, results in pages.items():
            self.page(*results)
            self.open(self.at("page.html"))
            self.assertEqual(self.browser.said(), [], name)
            self.shot("page-" + name)

    def test_hostile_names_run_nothing_and_fit(self):
        for name in HOSTILE:
            self.page(*test_report.Hostile.hostile(self, name))
            self.browser.size(390, 844)
            self.open(self.at("page.html"))
            self.assertEqual(self.browser.said(), [], name[:40])
            self.assertEqual(self.run("return document.querySelectorAll('img, script').length"), 2)
            self.assertLessEqual(self.run("return document.documentElement.scrollWidth"), 390, name[:40])

    def test_tables_sort_by_click_and_by_key(self):
        self.open()
        column = self.column("over limit")
        head = f"#c0 .table[data-name=taps] th:nth-child({column + 1})"
        values = lambda: self.run(VISIBLE + f".map(r => r.cells[{column}].dataset.v)")  # noqa: E731
        self.click(head + " button")
        got = [float(v) for v in values() if v]
        self.assertEqual(got, sorted(got, reverse=True))
        self.assertGreater(got[0], 10)
        self.assertEqual(self.run(f"return document.querySelector('{head}').ariaSort"), "descending")
        from selenium.webdriver.common.keys import Keys
        self.run(f"document.querySelector('{head} button').focus()")
        self.browser.driver.switch_to.active_element.send_keys(Keys.ENTER)
        got = [float(v) for v in values() if v]
        self.assertEqual(got, sorted(got))
        self.assertEqual(self.run(f"return document.querySelector('{head}').ariaSort"), "ascending")
        self.assertEqual(self.run("return document.querySelectorAll('#c0 .table[data-name=taps] th[aria-sort]').length"), 1)
        # What has no value stays last, whichever way.
        why = self.column("reference")
        for _ in range(2):
            self.click(f"#c0 .table[data-name=taps] th:nth-child({why + 1}) button")
            told = self.run(VISIBLE + f".map(r => r.cells[{why}].dataset.v || '')")
            self.assertEqual(told.index(""), sum(v != "" for v in told))

    def test_tables_filter_by_text_and_by_failure(self):
        self.open()
        every = len(self.taps())
        box = self.browser.driver.find_element("css selector", "#c0 .table[data-name=taps] input")
        box.send_keys("topk 05")
        self.assertEqual(self.taps(), [GUILTY])
        self.assertIn(f"1 of {every}", self.run("return document.querySelector('#c0 .table[data-name=taps] .tools').textContent"))
        box.clear()
        box.send_keys(" ")
        self.click("#c0 .table[data-name=taps] .tools button")
        self.assertEqual(set(self.run(VISIBLE + ".map(r => r.cells[2].textContent)")), {"FAILED"})
        self.assertTrue(0 < len(self.taps()) < every)
        box.send_keys("no such tap")
        self.assertEqual(self.taps(), [])
        # A link shows its row whatever the filter hides.
        self.run("location.hash = '#tap=layers/00/in'")
        self.browser.driver.implicitly_wait(1)
        self.assertEqual(self.run("return document.querySelector('tr.chosen').dataset.tap"), "layers/00/in")
        self.assertFalse(self.run("return document.querySelector('tr.chosen').hidden"))

    def test_an_address_selects_row_cell_layer_and_values(self):
        self.open(fragment="#tap=layers%2F05%2Fattn%2Fo")
        self.shot("tap", whole=False)
        self.assertEqual(self.run("return document.querySelector('tr.chosen').dataset.tap"), "layers/05/attn/o")
        box = self.run("const b = document.querySelector('tr.chosen').getBoundingClientRect(); return [b.top, b.bottom, innerHeight]")
        self.assertTrue(0 <= box[0] < box[1] <= box[2], box)
        self.assertEqual(self.run("return document.querySelector('#c0 .heat select').selectedOptions[0].textContent"), "attn/o")
        self.assertIn("layers/05/attn/o", self.run("return document.querySelector('#c0 .said').textContent"))
        self.assertEqual(self.run("return document.querySelectorAll('#c0 .heat .cursor').length"), 1)
        self.assertEqual(self.run("return document.querySelectorAll('#c0 .growth .lane').length"), 1)
        self.assertEqual(self.run("return document.getElementById('tap').selectedOptions[0].textContent"), "layers/05/attn/o")
        self.open(fragment="#tap=" + GUILTY)
        self.assertEqual(self.run("return document.querySelector('#c0 .heat select').selectedOptions[0].textContent"), "attn/topk")
        self.assertIn("wrong", self.run("return document.querySelector('#c0 .said').textContent"))
        self.assertFalse(self.run("return document.getElementById('values-note').hidden"))
        for odd in ("#tap=%", "#tap=nowhere", "#tap=", "#x"):
            self.open(fragment=odd)
            self.assertEqual(self.browser.said(), [])

    def test_a_cell_leads_to_its_tap(self):
        self.open()
        self.run("""const s = document.querySelector('#c0 .heat svg[role=img]'), b = s.getBoundingClientRect();
            s.dispatchEvent(new MouseEvent('click', {clientX: b.left + 56 + (b.width - 62) * 0.9, clientY: b.top + 6 + 22 * 6.5}));""")
        self.assertRegex(self.run("return location.hash"), r"^#tap=layers%2F05%2F")
        self.assertIn("layer 05, token 57", self.run("return document.querySelector('#c0 .said').textContent"))

    def test_the_heat_map_tells_its_values_to_the_keyboard(self):
        self.open()
        from selenium.webdriver.common.keys import Keys
        self.run("document.querySelector('#c0 .heat svg[role=img]').focus()")
        said = []
        for key in (Keys.ARROW_RIGHT, Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ARROW_RIGHT):
            self.browser.driver.switch_to.active_element.send_keys(key)
            said.append(self.run("return document.querySelector('#c0 .said').textContent"))
        self.assertTrue(said[0].startswith("embed, token 0: bit-equal"), said)
        self.assertTrue(said[3].startswith("layer 01, token 1: 0."), said)

    def test_comparisons_and_taps_are_chosen(self):
        self.open()
        self.run("const s = document.getElementById('which'); s.value = '1'; s.dispatchEvent(new Event('change'))")
        self.assertEqual(self.run("return ['c0', 'c1'].map(id => document.getElementById(id).hidden)"), [True, False])
        self.assertEqual(self.run("return document.querySelectorAll('#c1 canvas').length"), 1)
        self.run("const s = document.getElementById('tap'); s.value = '2'; s.dispatchEvent(new Event('change'))")
        name = self.run("return document.getElementById('tap').selectedOptions[0].textContent")
        self.assertIn(name, self.run("return document.querySelector('#spread svg[role=img]').getAttribute('aria-label')"))
        self.assertEqual(self.browser.said(), [])

    def test_plots_have_a_summary_in_words(self):
        self.open()
        labels = self.run("return [...document.querySelectorAll('.plot svg')].map(s => s.getAttribute('aria-label'))")
        self.assertEqual(len(labels), 5)
        for part, label in zip(("57 cells beyond", "from layer 5 on", "9 are wrong", "relative L2", "diagonal"), labels):
            self.assertTrue(label and len(label) > 30, label)
            if part[0].isdigit() is False or part == "9 are wrong":
                self.assertIn(part, label)
        self.assertEqual(self.run("return [...document.querySelectorAll('input, select')].filter(i => !i.labels.length && !i.ariaLabel).length"), 0)
        self.assertEqual(self.run("return [...document.querySelectorAll('table')].filter(t => !t.caption).length"), 0)

    CONTRAST = """
        const rgb = c => c.match(/[\\d.]+/g).map(Number);
        const light = c => { const [r, g, b] = rgb(c).map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
            return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
        const ground = n => { for (; n; n = n.parentElement) { const c = getComputedStyle(n).backgroundColor; if ((rgb(c)[3] ?? 1) === 1) return c; } return 'rgb(255,255,255)'; };
        return [...document.querySelectorAll('main *, header *')].filter(n => n.checkVisibility() && n instanceof HTMLElement &&
            [...n.childNodes].some(c => c.nodeType === 3 && c.textContent.trim())).map(n => {
            const a = light(getComputedStyle(n).color), b = light(ground(n));
            return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), n.className + ' ' + n.tagName + ' ' + n.textContent.slice(0, 30)];
        }).filter(([ratio]) => ratio < 4.5).slice(0, 5);"""

    def test_text_has_contrast_in_light_and_dark(self):
        grounds = []
        for scheme in ("light", "dark"):
            self.browser.media(scheme)
            self.open(fragment="#tap=" + GUILTY)
            if scheme == "dark":
                self.shot("tap-dark", whole=False)
            self.assertEqual(self.run(self.CONTRAST), [], scheme)
            grounds.append(self.run("return getComputedStyle(document.body).backgroundColor"))
        self.assertNotEqual(*grounds)

    def test_colours_follow_the_system_and_the_button(self):
        ground = "return getComputedStyle(document.body).backgroundColor"
        pixel = """const c = document.querySelector('#c0 canvas'); return [...c.getContext('2d').getImageData(c.width - 20, 8 + 22 * 2.4, 1, 1).data].join()"""
        self.open()
        self.run("localStorage.clear()")
        light, light_cell = self.run(ground), self.run(pixel)
        self.browser.media("dark")
        dark, dark_cell = self.run(ground), self.run(pixel)
        self.shot("desktop-dark")
        self.assertNotEqual(light, dark)
        self.assertNotEqual(light_cell, dark_cell)
        self.click("#theme")
        self.assertEqual((self.run(ground), self.run(pixel)), (light, light_cell))
        self.open()
        self.assertEqual(self.run(ground), light)
        self.click("#theme")
        self.assertEqual(self.run(ground), dark)
        self.click("#theme")
        self.run("localStorage.clear()")

    def test_a_phone_needs_no_sideways_scroll(self):
        for width in (390, 320):
            self.browser.size(width, 844)
            self.open()
            self.assertLessEqual(self.run("return document.documentElement.scrollWidth"), width)
            wide = self.run("""return [...document.querySelectorAll('main *')].filter(n => n.checkVisibility() && !n.closest('.scroll') &&
                n.getBoundingClientRect().right > innerWidth + 1 && !n.closest('.hide')).map(n => n.tagName + '.' + n.className).slice(0, 5)""")
            self.assertEqual(wide, [])
            self.shot(f"phone-{width}")
        self.assertGreater(self.run("return document.querySelector('#c0 .table[data-name=taps] .scroll').scrollWidth"), 390)

    def test_it_prints_in_light_with_whole_tables(self):
        self.browser.media("dark", "print")
        self.open()
        self.assertEqual(self.run("return getComputedStyle(document.body).backgroundColor"), "rgb(255, 255, 255)")
        self.assertEqual(self.run("return getComputedStyle(document.querySelector('.scroll')).maxHeight"), "none")
        self.assertEqual(self.run("return getComputedStyle(document.querySelector('.tools')).display"), "none")
        self.browser.media("light")
        pdf = self.browser.command("Page.printToPDF", printBackground=True)["data"]
        self.assertGreater(len(pdf), 20000)
        if os.environ.get("SHOTS"):
            import base64
            with open(os.path.join(os.environ["SHOTS"], "print.pdf"), "wb") as f:
                f.write(base64.b64decode(pdf))

    def test_without_script_the_verdict_and_tables_are_there(self):
        self.browser.command("Emulation.setScriptExecutionDisabled", value=True)
        try:
            self.browser.driver.get("file://" + self.full)
            self.shot("no-script", whole=False)
        finally:
            self.browser.command("Emulation.setScriptExecutionDisabled", value=False)
        self.assertEqual(self.browser.run("return document.querySelectorAll('tr[data-tap]').length"), 2 * 231)
        self.assertIn("failed", self.browser.run("return document.getElementById('word').textContent"))


if __name__ == "__main__":
    unittest.main()
