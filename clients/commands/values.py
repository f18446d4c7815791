"""NAME=VALUE on the command line."""

import json

import click


def parse_pairs(pairs: tuple[str, ...], option: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{pair!r} is not NAME=VALUE", param_hint=option)
        found[name] = value
    return found


def parse_values(pairs: tuple[str, ...], option: str) -> dict[str, object]:
    """A value that is JSON, such as 3, true or "3", is what JSON says; any other is a text."""
    return {name: _json_or_text(value) for name, value in parse_pairs(pairs, option).items()}


def _json_or_text(value: str) -> object:
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value
