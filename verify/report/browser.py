"""A headless Chromium for tests of the page: what it was asked, what it said, what it shows."""

import base64
import json
import os
import shutil
import time

DRIVER = "/usr/bin/chromedriver"


def missing():
    """What is missing to run a browser, or None."""
    if not shutil.which("chromium"):
        return "chromium is not installed (ci/setup installs it)"
    if not os.path.exists(DRIVER):
        return "chromium-driver is not installed (ci/setup installs it)"
    try:
        import selenium  # noqa: F401
    except ImportError:
        return "python3-selenium is not installed (ci/setup installs it)"
    return None


class Browser:
    def __init__(self):
        from selenium import webdriver
        from selenium.webdriver.chrome.options import Options
        from selenium.webdriver.chrome.service import Service
        options = Options()
        words = ["--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--force-device-scale-factor=1", "--hide-scrollbars"]
        if os.geteuid() == 0:
            words.append("--no-sandbox")  # Chromium has none for root
        for word in words:
            options.add_argument(word)
        options.binary_location = shutil.which("chromium")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(service=Service(DRIVER), options=options)
        self.set = {}

    def close(self):
        self.driver.quit()

    def run(self, script, *args):
        return self.driver.execute_script(script, *args)

    def command(self, name, **args):
        return self.driver.execute_cdp_cmd(name, args)

    def settle(self, name, **args):
        """What stays set from page to page; nothing to wait for where it is already so."""
        if self.set.get(name) != args:
            self.command(name, **args)
            self.set[name] = args
            time.sleep(0.2)

    def size(self, width, height):
        self.settle("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500)

    def media(self, scheme="light", kind=""):
        self.settle("Emulation.setEmulatedMedia", media=kind, features=[{"name": "prefers-color-scheme", "value": scheme}])

    def open(self, path, fragment=""):
        self.driver.get("about:blank")
        self.drain()
        self.driver.get("file://" + os.path.abspath(path) + fragment)
        end = time.time() + 60
        while time.time() < end and self.run("return document.documentElement.dataset.ready") != "1":
            time.sleep(0.05)
        time.sleep(0.2)

    def drain(self):
        self.driver.get_log("browser")
        self.driver.get_log("performance")

    def said(self):
        """What the console said, errors and uncaught exceptions among it."""
        return [line["message"] for line in self.driver.get_log("browser")]

    def asked(self):
        """Addresses that the page asked for since it was opened."""
        found = []
        for line in self.driver.get_log("performance"):
            message = json.loads(line["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                found.append(message["params"]["request"]["url"])
        return found

    def shot(self, path, whole=True):
        width, height = self.run("return [innerWidth, document.documentElement.scrollHeight]")
        clip = {"x": 0, "y": 0, "width": width, "height": min(height, 12000), "scale": 1}
        args = {"captureBeyondViewport": True, "clip": clip} if whole else {}
        with open(path, "wb") as f:
            f.write(base64.b64decode(self.command("Page.captureScreenshot", **args)["data"]))
