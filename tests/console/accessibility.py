"""What a screen reader needs of a page, looked for in the page itself."""

from pathlib import Path

from playwright.sync_api import Page

_CHECKS = Path(__file__).with_suffix(".js").read_text()


def faults(page: Page) -> list[str]:
    """Inputs without labels, buttons without names, headings out of order, and so on."""
    return _run(page, "faults")


def faint_texts(page: Page) -> list[str]:
    """Those with less contrast than WCAG's AA asks for, 4.5 to 1."""
    return _run(page, "faintTexts")


def _run(page: Page, name: str) -> list[str]:
    found: list[str] = page.evaluate(f"() => (({_CHECKS}\n).{name})()")
    return found
