"""Opens pages from file:// in one headless Chromium (Debian's package), by its debugging pipe."""
import atexit
import base64
import functools
import json
import os
import pathlib
import select
import subprocess
import tempfile
import time

SIZE = (1200, 1050)
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--disable-extensions",
         "--disable-background-networking", "--disable-dev-shm-usage", "--host-resolver-rules=MAP * ~NOTFOUND"]


class Browser:
    """One page, which goes from file to file. Any error of a script, and any request of a network, is an assertion."""

    def __init__(self, timeout=300):
        self.timeout, self.count, self.rest, self.events = timeout, 0, b"", []
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        atexit.register(self.close)
        ours, theirs = os.pipe(), os.pipe()  # what it reads as 3, what it writes as 4
        self.process = subprocess.Popen(
            ["sh", "-c", f'exec "$@" 3<&{ours[0]} 4>&{theirs[1]}', "sh", "chromium", *FLAGS, "--remote-debugging-pipe",
             f"--user-data-dir={self.profile.name}"],
            pass_fds=(ours[0], theirs[1]), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(ours[0])
        os.close(theirs[1])
        self.to, self.by = ours[1], theirs[0]
        self.session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def close(self):
        self.process.kill()
        self.process.wait()
        self.profile.cleanup()

    def message(self, deadline):
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.by], [], [], max(0, deadline - time.monotonic()))
            assert ready, f"the browser said nothing for {self.timeout} s"
            more = os.read(self.by, 1 << 20)
            assert more, "the browser has ended"
            self.rest += more
        text, _, self.rest = self.rest.partition(b"\0")
        return json.loads(text)

    def call(self, method, **parameters):
        self.count += 1
        session = {"sessionId": self.session} if self.session else {}
        text = json.dumps({"id": self.count, "method": method, "params": parameters, **session}).encode() + b"\0"
        while text:
            text = text[os.write(self.to, text):]
        deadline = time.monotonic() + self.timeout
        while (answer := self.message(deadline)).get("id") != self.count:
            self.events.append(answer)
        assert "error" not in answer, (method, answer)
        return answer["result"]

    def evaluate(self, script):
        """What `script`, the body of a function, returns."""
        done = self.call("Runtime.evaluate", expression=f"(async () => {{{script}}})()", returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def open(self, page, size, dark):
        url = pathlib.Path(page).resolve().as_uri()
        self.events.clear()
        self.call("Emulation.setDeviceMetricsOverride", width=size[0], height=size[1], deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        done = self.call("Page.navigate", url=url)
        assert not done.get("errorText"), (url, done["errorText"])
        deadline = time.monotonic() + self.timeout
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self.message(deadline))
        self.evaluate("await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));")

    def check(self):
        """That nothing went wrong since `open`."""
        for event in self.events:
            method, what = event.get("method"), event.get("params", {})
            assert method != "Runtime.exceptionThrown", what["exceptionDetails"]
            assert method != "Log.entryAdded" or what["entry"]["level"] != "error", what["entry"]
            url = what["request"]["url"] if method == "Network.requestWillBeSent" else "file:"
            assert url.startswith(("file:", "data:")), f"the page asks for {url}"


@functools.cache
def browser():
    return Browser()


def structure(page, script, size=SIZE):
    """What `script`, the body of a function, returns after the page's own scripts have run."""
    browser().open(page, size, dark=False)
    found = browser().evaluate(script)
    browser().check()
    return found


# What is wrong with how a page is laid out: texts that lie on each other. Of a text in a box that cuts it, what is seen.
LAYOUT = """
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), boxes = [];
for (let node = walker.nextNode(); node; node = walker.nextNode()) {
  if (!node.data.trim() || node.parentElement.closest("script, style, noscript, option, title, sub")) continue;
  if (!node.parentElement.checkVisibility({ visibilityProperty: true })) continue;
  const range = document.createRange();
  range.selectNodeContents(node);
  for (const line of range.getClientRects()) {
    let [left, top, right, bottom] = [line.left, line.top, line.right, line.bottom];
    for (let around = node.parentElement; around; around = around.parentElement) {
      if (getComputedStyle(around).overflow === "visible" || around === document.documentElement || around === document.body) continue;
      const box = around.getBoundingClientRect();
      [left, top, right, bottom] = [Math.max(left, box.left), Math.max(top, box.top), Math.min(right, box.right), Math.min(bottom, box.bottom)];
    }
    if (right - left > 2 && bottom - top > 2) boxes.push({ left, top, right, bottom, text: node.data.trim(), in: node.parentElement });
  }
}
boxes.sort((a, b) => a.top - b.top);
const wrong = [];
for (let n = 0; n < boxes.length && wrong.length < 5; ++n)
  for (let m = n + 1; m < boxes.length && boxes[m].top < boxes[n].bottom; ++m) {
    const [a, b] = [boxes[n], boxes[m]], width = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    // Lines of one text may be closer than their letters are high.
    if (width > 2 && a.bottom - b.top > 0.35 * Math.min(a.bottom - a.top, b.bottom - b.top) && a.in !== b.in) wrong.push([a.text, b.text]);
  }
return wrong;
"""


def screenshot(page, picture, size=SIZE, dark=False):
    """`size`: width, and the height or None for that of the page."""
    browser().open(page, (size[0], size[1] or 1000), dark)
    if not size[1]:
        height = browser().evaluate("return Math.ceil(document.body.getBoundingClientRect().bottom);")
        browser().open(page, (size[0], height), dark)
    wide = browser().evaluate("return document.documentElement.scrollWidth - innerWidth;")
    assert wide <= 0, f"{page} is {wide} pixels wider than a window of {size[0]}"
    wrong = browser().evaluate(LAYOUT)
    assert not wrong, f"texts of {page} lie on each other in a window of {size[0]} pixels: {wrong}"
    png = base64.b64decode(browser().call("Page.captureScreenshot", format="png")["data"])
    browser().check()
    assert len(png) > 8000, f"{picture} shows little"
    pathlib.Path(picture).write_bytes(png)


def screenshots(page, picture, folder):
    """The page as `picture`, and in `folder` dark and in a narrow window."""
    screenshot(page, picture, (1200, None))
    for name, width, dark in (("dark", 1200, True), ("narrow", 400, False), ("narrow-dark", 400, True)):
        screenshot(page, pathlib.Path(folder) / f"{pathlib.Path(picture).stem}-{name}.png", (width, None), dark)
