"""Functions and classes of a pipeline's own, by import path; also from beside its file."""

import importlib
import sys
from pathlib import Path
from typing import Any

from pyspark import cloudpickle

from spark.etl.errors import SpecError


def load(path: str, directory: Path, where: str) -> Any:
    """What `package.module:name` means. Raises SpecError.

    A module from beside the pipeline's file goes to Spark's workers as a whole: they need not find
    it. Others must be installed where the workers run.
    """
    module_name, _, attributes = path.partition(":")
    if str(directory) not in sys.path:
        sys.path.append(str(directory))  # last: a json.py beside the file is nobody else's json
    try:
        module = importlib.import_module(module_name)
        found: Any = module
        for name in attributes.split("."):
            found = getattr(found, name)
    except Exception as error:
        raise SpecError(f"{where}: cannot import {path}: {error!r}") from error
    file = getattr(module, "__file__", None)
    if file is not None and Path(file).resolve().is_relative_to(directory):
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return found
