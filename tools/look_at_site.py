"""Look at each page of the built site in a browser without a window, as wide as a screen and as a phone.

    make site && python tools/look_at_site.py [--folder build/site] [--shots FOLDER]

Loads every page at 1300 and at 390 pixels. Exit status 1 if an image does not load, a link inside the
site leads nowhere, or something is cut off: a table, a picture or a link that reaches over the edge of
what is shown and cannot be scrolled to; on the front page also what can be.
Needs Chromium or Chrome; without one only links and images are checked,
and that is said.
"""

from __future__ import annotations

import argparse
import functools
import html
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

from vit_config.errors import first_line

WIDTHS = (1300, 390)
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
DRIVER = """<!doctype html><iframe id=f style="border:0;height:2000px"></iframe><script>
const pages = PAGES, widths = WIDTHS, frame = document.getElementById("f"), found = [];
const scrolls = (e, top) => {
  for (let each = e; each && each !== top; each = each.parentElement)
    if (["auto", "scroll"].includes(getComputedStyle(each).overflowX)) return true;
  return false;
};
async function look(page, width) {
  frame.style.width = width + "px";
  await new Promise(done => { frame.onload = done; frame.src = page; });
  const body = frame.contentDocument.body, say = what => found.push([page, width, what]);
  for (const image of body.querySelectorAll("img"))
    if (!image.naturalWidth) say("image does not load: " + image.getAttribute("src"));
  for (const e of body.querySelectorAll("[role=main] :is(table, img, a, pre)")) {
    const box = e.getBoundingClientRect(), name = e.tagName.toLowerCase();
    const reachable = page !== "index.html" && scrolls(e, body);  // on the first nothing is sought
    if (box.width && box.right > width + 1 && !reachable)
      say("cut off: " + name + " " + e.textContent.trim().slice(0, 50));
  }
}
(async () => {
  for (const page of pages) for (const width of widths) await look(page, width);
  await fetch("/", {method: "POST", body: JSON.stringify(found)});
})();
</script>"""
SECONDS = 300
"""Longest time for all pages."""


def dead(folder: Path) -> list[str]:
    """Links to pages and places, and images, that the site does not have."""
    pages = {path: path.read_text(encoding="utf-8") for path in sorted(folder.rglob("*.html"))}
    places = {path: {*re.findall(r'(?:id|name)="([^"]+)"', text)} for path, text in pages.items()}
    problems = []
    for path, text in pages.items():
        for link in re.findall(r'(?:href|src)="([^"]+)"', text):
            target, _, place = unquote(html.unescape(link)).partition("#")
            if re.match(r"[a-z]+:|//", target) or path.name == "404.html":
                continue
            there = (path.parent / target.partition("?")[0]).resolve() if target else path
            there = there / "index.html" if there.is_dir() else there
            if not there.is_file() or (place and there in places and place not in places[there]):
                problems.append(f"{path.relative_to(folder)}: leads nowhere: {link}")
    return problems


def seen(folder: Path, browser: str, shots: Path | None) -> list[str]:
    """Return the problems that a browser finds in the pages."""
    pages = [path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*.html"))]
    pages = [page for page in pages if page not in ("404.html", "search.html")]
    driver = folder / "_look.html"
    driver.write_text(DRIVER.replace("PAGES", json.dumps(pages)).replace("WIDTHS", json.dumps(WIDTHS)))
    answer: queue.Queue[list[tuple[str, int, str]]] = queue.Queue()

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_POST(self) -> None:
            answer.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            pass  # the browser has gone on to the next page

    server = Server(("127.0.0.1", 0), functools.partial(Handler, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    command = [browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command += [f"--user-data-dir={profile}"]
        for width in WIDTHS if shots else ():
            for page in pages:
                name = f"{page.removesuffix('.html').replace('/', '_')}_{width}.png"
                shot = [f"--screenshot={shots}/{name}", f"--window-size={width},1600"]
                subprocess.run([*command, *shot, f"{address}/{page}"], capture_output=True, check=True)
        looking = subprocess.Popen(
            [*command, "--window-size=1400,2200", "--remote-debugging-port=0", f"{address}/_look.html"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        try:
            findings = answer.get(timeout=SECONDS)
        except queue.Empty:
            return [f"{browser} did not finish in {SECONDS} seconds"]
        finally:
            os.killpg(looking.pid, signal.SIGTERM)
            looking.wait()
            server.shutdown()
            driver.unlink()
    return [f"{page}, {width} pixels: {problem}" for page, width, problem in findings]


def main() -> int:
    parser = argparse.ArgumentParser(description=first_line(__doc__))
    parser.add_argument("--folder", type=Path, default=Path("build/site"))
    parser.add_argument("--shots", type=Path, help="folder for a picture of each page")
    arguments = parser.parse_args()
    if not (arguments.folder / "index.html").is_file():
        parser.error(f"{arguments.folder}: no site; make site")
    if arguments.shots:
        arguments.shots.mkdir(parents=True, exist_ok=True)
    problems = dead(arguments.folder)
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        print("no Chromium here: links and images were checked, not what is shown", file=sys.stderr)
    else:
        problems += seen(arguments.folder.resolve(), browser, arguments.shots)
    print(*problems, f"{len(problems)} found", sep="\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
