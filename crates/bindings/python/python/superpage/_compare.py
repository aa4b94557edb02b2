"""Comparisons of a program on base pages and on superpages."""

from __future__ import annotations

import io
import json as _json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Sequence, TypedDict, Union

from . import _frames, _superpage
from ._program import document
from ._words import Size, Value, several, words

if TYPE_CHECKING:
    import pandas
    import pyarrow
    from typing_extensions import Literal, NotRequired


class Arm(TypedDict):
    """An arm's measured runs: medians; None is unknown."""

    name: str
    runs: int
    failed_runs: int
    wall_seconds: Optional[float]
    user_seconds: Optional[float]
    system_seconds: Optional[float]
    minor_faults: Optional[float]
    major_faults: Optional[float]
    peak_bytes: Optional[float]
    metric: Optional[float]
    more_metrics: NotRequired[List[Optional[float]]]
    coverage: Optional[float]
    mean_coverage: Optional[float]
    end_coverage: Optional[float]
    eligible_coverage: Optional[float]
    zero_filled_bytes: Optional[float]
    thp_fault_fallbacks: Optional[int]
    compaction_stalls: Optional[int]
    coverage_from_warm_up: bool
    run_seconds: Optional[float]
    watch_share: Optional[float]
    longest_look_seconds: Optional[float]


class Interval(TypedDict):
    """Where the true ratio lies."""

    low: float
    high: float


class Verdict(TypedDict):
    """The word, and the numbers that it has."""

    verdict: Literal["faster", "slower", "same", "undecided", "did-not-take-effect", "no-data"]
    speedup: NotRequired[float]
    interval: NotRequired[Optional[Interval]]
    confidence: NotRequired[float]
    within: NotRequired[float]
    more_runs: NotRequired[int]
    why: NotRequired[str]


class Judgement(TypedDict):
    """A verdict on one arm in one quantity, against the first arm."""

    arm: str
    quantity: str
    is_primary: bool
    verdict: Verdict
    comparison: Optional[Dict[str, Any]]


class Comparison:
    """Runs of a program on several kinds of pages, and what they say. ``print`` shows the command's table."""

    def __init__(self, json: str) -> None:
        """Of a document that :attr:`json`, or ``superpage compare --json``, wrote."""
        analysis, self._text, self._csv = _superpage.analyse(json)
        self.json = json
        """The document: all facts, with every run (schema ``superpage.compare/1``)."""
        self.document: Dict[str, Any] = _json.loads(json)
        """The same, read."""
        analysed = _json.loads(analysis)
        self.arms: List[Arm] = analysed["arms"]
        """One for each arm; the first is the reference."""
        self.judgements: List[Judgement] = analysed["judgements"]
        """One for each arm but the reference and each quantity: wall time, and what the program printed."""

    @classmethod
    def read(cls, path: Union[str, os.PathLike[str]]) -> Comparison:
        """One that was saved."""
        return cls(Path(path).read_text("utf-8"))

    def judgement(self, arm: str, quantity: Optional[str] = None) -> Judgement:
        """That on an arm: in a quantity, or in the first that the comparison is about."""
        for one in self.judgements:
            if one["arm"] == arm and (one["is_primary"] if quantity is None else one["quantity"] == quantity):
                return one
        known = sorted({f"{one['arm']} in {one['quantity']}" for one in self.judgements})
        raise KeyError(f"no judgement on {arm} in {quantity or 'what it is about'}; there are: {', '.join(known)}")

    def to_pandas(self) -> pandas.DataFrame:
        """A row for each run, warm-ups included (``purpose`` tells them apart). A metric's column has the metric's name."""
        frame: pandas.DataFrame = _frames.module("pandas").read_csv(io.StringIO(self._csv))
        return frame.rename(columns=_frames.metric_names(self.document, list(frame.columns)))

    def to_arrow(self) -> pyarrow.Table:
        """The same as a table of Arrow."""
        table = _frames.module("pyarrow.csv").read_csv(io.BytesIO(self._csv.encode()))
        renamed = _frames.metric_names(self.document, table.column_names)
        return table.rename_columns([renamed.get(name, name) for name in table.column_names])

    def to_html(self) -> str:
        """The page that ``--html`` writes: one file, with every sample."""
        return _superpage.html(self.json)

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        said = [f"{one['arm']} {one['verdict']['verdict']}" for one in self.judgements if one["is_primary"]]
        return f"<superpage.Comparison: {'; '.join(said)}>"


def compare(
    program: Union[str, Sequence[str], None] = None,
    *,
    arms: Union[str, Sequence[str]] = (),
    aa: bool = False,
    pool: Literal["lend", "keep"] = "lend",
    metric: Union[str, Sequence[str]] = (),
    metric_name: Union[str, Sequence[str]] = (),
    metric_better: Union[str, Sequence[str]] = (),
    warm_memory: Literal["auto", "always", "never"] = "auto",
    ignore_failure: bool = False,
    predict: bool = False,
    size: Optional[Size] = None,
    seed: Optional[int] = None,
    threads: Optional[int] = None,
    operations: Optional[int] = None,
    iterations: Optional[int] = None,
    repeat: Optional[int] = None,
    lines: Optional[int] = None,
    burst: Optional[Size] = None,
    gap: Optional[int] = None,
    populate: bool = False,
    latency: bool = False,
    smallest: Optional[Size] = None,
    largest: Optional[Size] = None,
    graph: Optional[Literal["kronecker", "uniform"]] = None,
    offset: Optional[Size] = None,
    service: Optional[str] = None,
    load: Optional[str] = None,
    ready: Optional[str] = None,
    ready_timeout: Union[None, str, float] = None,
    setup: Optional[str] = None,
    prepare: Optional[str] = None,
    stop: Optional[str] = None,
    stop_timeout: Union[None, str, float] = None,
    teardown: Optional[str] = None,
    user: Optional[str] = None,
    suite: Union[None, str, os.PathLike[str]] = None,
    min_runs: Optional[int] = None,
    max_runs: Optional[int] = None,
    max_time: Union[None, str, float] = None,
    warmup: Optional[int] = None,
    confidence: Union[None, str, float] = None,
    within: Union[None, str, float] = None,
    same_within: Union[None, str, float] = None,
    same_at_most: Union[None, str, float] = None,
    min_coverage: Union[None, str, float] = None,
    progress: bool = False,
) -> Comparison:
    """Compare a program's speed on base pages, THP and hugetlb pages.

    ``program`` is the name of a built-in workload (``"gups"``), or a program with its arguments as a list; a server is
    given by ``service`` and ``load``. Each keyword is the option of ``superpage compare`` of that name (``arms`` is
    ``--arm``, ``user`` is ``--as``) and has its default: see docs/guide/compare.md. With ``progress``, what the command
    says of it goes to standard error.

    ^C ends it; settings that were changed are put back, and the exception has the runs so far as ``comparison``, or None.
    """
    flags: Dict[str, Value] = {
        "arm": several(arms), "aa": aa, "pool": pool,
        "metric": several(metric), "metric-name": several(metric_name), "metric-better": several(metric_better),
        "warm-memory": warm_memory, "ignore-failure": ignore_failure, "predict": predict,
        "size": size, "seed": seed, "threads": threads, "operations": operations, "iterations": iterations,
        "repeat": repeat, "lines": lines, "burst": burst, "gap": gap, "populate": populate, "latency": latency,
        "smallest": smallest, "largest": largest, "graph": graph, "offset": offset,
        "service": service, "load": load, "ready": ready, "ready-timeout": ready_timeout, "setup": setup,
        "prepare": prepare, "stop": stop, "stop-timeout": stop_timeout, "teardown": teardown, "as": user,
        "suite": None if suite is None else os.fspath(suite),
        "min-runs": min_runs, "max-runs": max_runs, "max-time": max_time, "warmup": warmup,
        "confidence": confidence, "within": within, "same-within": same_within, "same-at-most": same_at_most,
        "min-coverage": min_coverage,
    }
    if program is None:
        named: List[str] = []
    elif isinstance(program, str):
        named = [program]
    else:
        named = ["--", *program]
    try:
        return Comparison(document(["compare", *words(flags), *named], progress))
    except KeyboardInterrupt as stopped:
        made = getattr(stopped, "document", None)
        stopped.comparison = None if made is None else Comparison(made)  # type: ignore[attr-defined]
        raise
