"""A real browser (Debian's Chromium through Playwright) in front of a console, and what must hold on every page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from browsing_tools import chromium
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, ViewportSize, sync_playwright

WIDE: ViewportSize = {"width": 1440, "height": 900}
NARROW: ViewportSize = {"width": 390, "height": 844}

#: What a screen reader and a person without a mouse need: fields, buttons and pictures with names, one heading.
NAMELESS = """() => {
  const found = [];
  const label = (node) => node.getAttribute("aria-label") || node.title || node.textContent.trim();
  const named = (node) => node.labels?.length || label(node);
  for (const node of document.querySelectorAll("input:not([type=hidden]), select, textarea"))
    if (!named(node)) found.push("field " + (node.name || node.outerHTML.slice(0, 80)));
  for (const node of document.querySelectorAll("button, a[href]"))
    if (!named(node)) found.push("control " + node.outerHTML.slice(0, 80));
  const headings = document.querySelectorAll("h1").length;
  if (headings !== 1) found.push("headings of the first order: " + headings);
  const ids = [...document.querySelectorAll("[id]")].map((node) => node.id);
  for (const id of ids) if (ids.indexOf(id) !== ids.lastIndexOf(id)) found.push("two of id " + id);
  return found;
}"""


@dataclass
class Tab:
    """A page and everything that went wrong in it."""

    page: Page
    address: str
    wrongs: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.wrongs.append(f"script: {error}"))
        self.page.on("request", self._asked)

    def _said(self, message: ConsoleMessage) -> None:
        # A status of 4xx or 5xx is said in the console as well: tests that want one expect it.
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.wrongs.append(f"console: {message.text}")

    def _asked(self, request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme not in ("data", "blob") and parts.netloc != urlsplit(self.address).netloc:
            self.wrongs.append(f"another host: {request.url}")

    def open(self, path: str, status: int = 200) -> Page:
        answer = self.page.goto(self.address + path)
        assert answer is not None
        assert (path, status) == (path, answer.status)
        return self.page

    def look(self) -> None:
        """What must hold on every page, whatever it shows."""
        assert [] == self.wrongs
        assert [] == self.page.evaluate(NAMELESS), self.page.url
        overflow = self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert overflow <= 0, f"{self.page.url} is {overflow} pixels too wide"
        assert self.page.evaluate("window.harmed") is None

    def fill(self, dialog: str, **values: Any) -> None:
        box = self.page.locator(f"dialog#{dialog}")
        for name, value in values.items():
            one = box.locator(f'[name="{name}"]')
            if isinstance(value, bool):
                one.set_checked(value)
            elif one.evaluate("node => node.tagName") == "SELECT":
                one.select_option(value)
            else:
                one.fill(str(value))

    def submit(self, dialog: str) -> None:
        self.page.locator(f"dialog#{dialog} footer button:not([type=button])").click()

    def open_dialog(self, dialog: str) -> None:
        self.page.locator(f'[data-dialog="{dialog}"]').first.click()
        self.page.locator(f"dialog#{dialog}[open]").wait_for()

    def wrong(self, dialog: str) -> str:
        line = self.page.locator(f"dialog#{dialog} .wrong")
        line.wait_for(state="visible")
        return line.inner_text()


@contextmanager
def browser_running() -> Iterator[Browser]:
    path = chromium()
    assert path is not None
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage"])
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def tab(
    browser: Browser, address: str, *, language: str = "en", narrow: bool = False, dark: bool = False, utc: bool = True
) -> Iterator[Tab]:
    context = browser.new_context(
        viewport=NARROW if narrow else WIDE,
        color_scheme="dark" if dark else "light",
        locale="zh-CN" if language == "zh" else "en-US",
        timezone_id="Asia/Shanghai",
        is_mobile=narrow,
        has_touch=narrow,
    )
    context.set_default_timeout(15_000)
    if utc:
        host = urlsplit(address).hostname
        context.add_cookies([{"name": "zone", "value": "utc", "domain": str(host), "path": "/"}])
    try:
        yield Tab(context.new_page(), address)
    finally:
        context.close()


def paths_of(found: Any, client: tuple[str, str] | None = None) -> dict[str, str]:
    """Every page of the console by a name, on a furnished cluster."""
    paths = {
        "overview": "/",
        "topics": "/topics",
        "topic": f"/topics/{found.orders}",
        "groups": "/groups?sort=-lag",
        "group": f"/groups/{found.group}",
        "messages": f"/messages?topic={found.payments}",
        "message": f"/messages/{found.order_id}?topic={found.orders}",
        "letters": "/letters",
        "letters-group": f"/letters/{found.dying}",
        "scheduled": "/scheduled",
        "transactions": "/transactions",
        "trace": f"/trace?id={found.traced_id}",
        "cluster": "/cluster",
        "clients": "/clients",
        "users": "/users",
        "settings": "/settings",
        "metrics": "/metrics",
        "api": "/api",
    }
    if client is not None:
        from urllib.parse import quote

        paths["client"] = f"/clients/{client[0]}/{quote(client[1], safe='')}"
    return paths


def shoot(tab: Tab, name: str, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    tab.page.screenshot(path=folder / f"{name}.png", full_page=True)
