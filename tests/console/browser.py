"""The console as a person uses it, in a headless Chromium, and what must never happen there."""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote, urlsplit

from playwright.sync_api import Browser, ConsoleMessage, Locator, Request, expect
from playwright.sync_api import sync_playwright as start_playwright

FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    "--disable-dev-shm-usage",
]
# Far more than anything here takes: the machine may be busy.
TIMEOUT_MS = 30_000
EXPECTED_FAILURE = re.compile(r"Failed to load resource")
expect.set_options(timeout=TIMEOUT_MS)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Debian's. Where it is missing tests fail: the console is not tested without a browser."""
    path = shutil.which("chromium")
    assert path is not None, "chromium is not installed: apt-get install chromium"
    with start_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


def address(*parts: str) -> str:
    """Of a view, as the console writes it."""
    return "#/" + "/".join(quote(part, safe="!'()*~") for part in parts)


class Console:
    """A page of its own, without anything from other tests. `close` says what went wrong in it."""

    def __init__(
        self, browser: Browser, url: str, *, width: int = 1280, dark: bool = False
    ) -> None:
        self.url = url
        self._context = browser.new_context(
            viewport={"width": width, "height": 800}, color_scheme="dark" if dark else "light"
        )
        self._context.set_default_timeout(TIMEOUT_MS)
        self.page = self._context.new_page()
        self.requests: list[Request] = []
        self.wrong: list[str] = []
        self.failures_expected = False  # such as a wrong password, which browsers tell as an error
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        self.page.on("dialog", lambda dialog: self.wrong.append(f"alert: {dialog.message}"))
        self._context.on("request", self._asked)

    def _said(self, message: ConsoleMessage) -> None:
        if message.type not in {"error", "warning"}:
            return
        if self.failures_expected and EXPECTED_FAILURE.search(message.text):
            return
        self.wrong.append(f"{message.type}: {message.text}")

    def _asked(self, request: Request) -> None:
        self.requests.append(request)
        if urlsplit(request.url).netloc != urlsplit(self.url).netloc:
            self.wrong.append(f"a request to another host: {request.url}")

    def close(self) -> None:
        self._context.close()
        self.assert_sound()

    def assert_sound(self) -> None:
        wrong, self.wrong = self.wrong, []
        assert not wrong, "\n".join(wrong)

    def begin(self) -> None:
        """Log in, and forget what was done here before."""
        self.failures_expected = False
        if self.page.url == "about:blank" or self.page.get_by_role("dialog").count():
            self.page.goto(self.url)
            self.page.evaluate("sessionStorage.clear(); localStorage.clear()")
            self.page.reload()
        if self.page.get_by_role("button", name="Log in").count():
            self.fill_in_login("guest", "guest")
        expect(self.page.get_by_role("button", name="Log out")).to_be_visible()
        self.page.evaluate(
            """() => {
                document.getElementById('notices').replaceChildren();
                sessionStorage.removeItem('leveret.vhost');
                localStorage.clear();
                delete document.documentElement.dataset.theme;
            }"""
        )
        self.page.emulate_media(color_scheme="light")
        self.open("overview")
        self.requests.clear()
        self.wrong.clear()

    def set_offline(self, *, offline: bool) -> None:
        self._context.set_offline(offline)

    # Getting about

    def log_in(self, user: str = "guest", password: str = "guest") -> None:
        self.page.goto(self.url)
        self.fill_in_login(user, password)
        expect(self.page.get_by_role("button", name="Log out")).to_be_visible()

    def fill_in_login(self, user: str, password: str) -> None:
        self.page.get_by_label("User").fill(user)
        self.page.get_by_label("Password").fill(password)
        self.page.get_by_role("button", name="Log in").click()

    def open(self, *parts: str) -> None:
        """A view by its address, with its data."""
        self.page.goto(self.url + address(*parts))
        self.loaded()

    def loaded(self) -> None:
        expect(self.page.get_by_text("Loading …")).to_have_count(0)
        expect(self.page.locator("#content > *").first).to_be_attached()

    @property
    def heading(self) -> Locator:
        return self.page.get_by_role("heading", level=1)

    def table(self, caption: str) -> Locator:
        return self.page.get_by_role("table", name=caption, exact=True)

    def row(self, caption: str, text: str) -> Locator:
        return self.table(caption).get_by_role("row").filter(has_text=text)

    # Doing things

    def drawer(self, title: str) -> Locator:
        """What opens below this title, opened."""
        drawer = self.page.locator("details").filter(
            has=self.page.locator("summary", has_text=title)
        )
        if drawer.get_attribute("open") is None:
            drawer.locator("summary").click()
        return drawer

    def fill(self, form: Locator, **values: str) -> None:
        """By labels, with underscores for spaces."""
        for label, value in values.items():
            form.get_by_label(label.replace("_", " "), exact=True).fill(value)

    def confirm(self, button: str) -> None:
        """Say yes in the dialog that asks."""
        dialog = self.page.get_by_role("dialog")
        expect(dialog).to_be_visible()
        dialog.get_by_role("button", name=button, exact=True).click()
        expect(dialog).to_have_count(0)

    def says(self, text: str) -> None:
        """In the region that screen readers hear."""
        notices = self.page.locator("#notices")
        expect(notices).to_contain_text(text)
        notices.evaluate("region => region.replaceChildren()")

    def wait_for_poll(self, count: int = 1) -> None:
        """Until the view has asked so many more times."""
        before = len(self.api_requests())
        while len(self.api_requests()) < before + count:
            self.page.wait_for_event("request")

    def api_requests(self) -> list[str]:
        paths = [urlsplit(request.url) for request in self.requests]
        return [f"{each.path}?{each.query}" for each in paths if each.path.startswith("/api/")]


def save(console: Console, path: Path) -> None:
    """What the page looks like, for whoever wonders why a test failed."""
    console.page.screenshot(path=path, full_page=True)
