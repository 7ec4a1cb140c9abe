"""Prevents repeated reads of imported archives in a Python worker of Spark."""

from __future__ import annotations

import sys
from pathlib import Path
from zipimport import zipimporter

import pyspark


def forget_importers() -> None:
    """Have Python forget its importers of Spark's own archives, which it makes again when it needs one.

    Spark invalidates them before each task: each then reads the directory of its archive anew. There are about 17 of
    them, which takes longer than to read a million rows. Archives of the user's are left alone: they may change.
    """
    packed = next((place for place in Path(pyspark.__file__).parents if place.is_file()), None)
    if packed is None:
        return
    installed = packed.parent.parent.parent  # lib, python, and what also has the jars
    for place, importer in list(sys.path_importer_cache.items()):
        if isinstance(importer, zipimporter) and Path(importer.archive).is_relative_to(installed):
            sys.path_importer_cache.pop(place, None)
