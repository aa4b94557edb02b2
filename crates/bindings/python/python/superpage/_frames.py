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
    """Rows as a data frame. A column of numbers is numeric also where some or all are unknown (NaN)."""
    frame: pandas.DataFrame = module("pandas").DataFrame(rows)
    for name in frame.columns:
        values = [row.get(name) for row in rows]
        if any(value is None for value in values) and all(_is_number_or_none(value) for value in values):
            frame[name] = frame[name].astype("float64")
    return frame


def _is_number_or_none(value: Any) -> bool:
    return value is None or (isinstance(value, (int, float)) and not isinstance(value, bool))


def metric_names(document: Dict[str, Any], columns: List[str]) -> Dict[str, str]:
    """The columns of a comparison's metrics, with the metrics' names; ``metric_NAME`` where a column is called NAME."""
    metrics = [document.get("metric"), *document.get("more_metrics", [])]
    renamed: Dict[str, str] = {}
    for index, metric in enumerate(metrics):
        column = "metric" if index == 0 else f"metric_{index + 1}"
        if metric is not None and column in columns:
            name = str(metric["name"])
            renamed[column] = f"metric_{name}" if name in columns else name
    return renamed


def to_arrow(rows: List[Row]) -> pyarrow.Table:
    """Rows as a table of Arrow."""
    return module("pyarrow").Table.from_pylist(rows)
