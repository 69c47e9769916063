"""Opens pages from file:// in headless Chromium (Debian's package)."""
import pathlib
import re
import subprocess
import tempfile

CHROMIUM = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr",
            "--disable-background-networking", "--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=2000"]


def call(page, *flags):
    with tempfile.TemporaryDirectory() as profile:
        done = subprocess.run([*CHROMIUM, f"--user-data-dir={profile}", *flags, pathlib.Path(page).resolve().as_uri()],
                              capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    wrong = [line for line in done.stderr.splitlines() if re.search(r"CONSOLE.*(Uncaught|Error|Failed|Refused)", line)]
    assert not wrong, wrong
    return done.stdout


def structure(page, script):
    """What `script`, the body of a function, returns after the page's own scripts have run: a text."""
    page = pathlib.Path(page)
    probe = page.with_name("probe-" + page.name)
    probe.write_text(page.read_text().replace("</body>", "<script>{document.body.dataset.probe = encodeURIComponent("
                                              f"JSON.stringify((() => {{{script}}})()))}}</script></body>"))
    import json
    import urllib.parse
    found = re.search(r'data-probe="([^"]*)"', call(probe, "--dump-dom"))
    assert found, "the page's scripts did not end"
    return json.loads(urllib.parse.unquote(found[1]))


def screenshot(page, picture, size=(1200, 900), dark=False):
    call(page, f"--screenshot={picture}", f"--window-size={size[0]},{size[1]}",
         f"--blink-settings=preferredColorScheme={0 if dark else 1}")
    png = pathlib.Path(picture).read_bytes()
    assert png[:8] == b"\x89PNG\r\n\x1a\n" and len(png) > 8000, f"{picture} shows little"
