"""Functions of a pipeline's own come from beside its file, and hide nobody else's modules."""

import sys
from pathlib import Path

import pytest

from spark.etl.importing import load
from spark.etl.postgres_copy import Copying


def test_a_module_beside_the_file_is_found_and_does_not_hide_an_installed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "beside_the_file.py").write_text("def double(value):\n    return 2 * value\n")
    (tmp_path / "colorsys.py").write_text("raise RuntimeError\n")
    assert load("beside_the_file:double", tmp_path, "here")(4) == 8
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    assert load("colorsys:rgb_to_hsv", tmp_path, "here").__module__ == "colorsys"


def test_what_goes_to_tasks_does_not_show_the_password() -> None:
    copying = Copying("host=h password=secret", '"staging"', ("a",), ())
    assert "secret" not in repr(copying)
