"""pandas and pyarrow, which are asked for only where a table is wanted."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Dict, List

if TYPE_CHECKING:
    import pandas
    import pyarrow

Row = Dict[str, Any]


def module(name: str) -> Any:
    """A module, or an error that says how to install it."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as missing:
        package = name.split(".")[0]
        if missing.name != package:
            raise
        raise ModuleNotFoundError(
            f"{package} is needed for this table and is not installed: pip install {package}", name=package
        ) from None


def to_pandas(rows: List[Row]) -> pandas.DataFrame:
    """Rows as a data frame."""
    frame: pandas.DataFrame = module("pandas").DataFrame(rows)
    return frame


def to_arrow(rows: List[Row]) -> pyarrow.Table:
    """Rows as a table of Arrow."""
    return module("pyarrow").Table.from_pylist(rows)
