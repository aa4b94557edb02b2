"""Recorded streams of page accesses (``.spt``), as columns."""

from __future__ import annotations

import json as _json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, NamedTuple, Union

from . import _frames, _superpage

if TYPE_CHECKING:
    import pandas
    import pyarrow

__all__ = ["Batch", "Event", "Trace", "open"]

RECORDS = 1 << 20
"""Records in a batch, about."""


class Event(NamedTuple):
    """What happens before a record: a system call, a mark of the program, its pace."""

    record: int
    event: str


UNKNOWN_ADDRESS = 2**64 - 1
"""The address of a page whose place is not known."""


@dataclass(frozen=True)
class Batch:
    """Records of a trace: columns of one length. ``numpy.asarray`` takes each without a copy."""

    page: memoryview
    """Pages, numbered densely: ``region << 9 | slot`` (u32)."""
    write: memoryview[bool]
    """Whether it writes (bool)."""
    count: memoryview
    """How many accesses of the program, in a row, a record stands for (u32)."""
    address: memoryview
    """Addresses of the pages in their process (u64); :data:`UNKNOWN_ADDRESS` (Arrow: null) of a region whose number stood
    for several places one after the other, which :meth:`Trace.spans` lists."""
    events: List[Event]
    """What happens between them; ``record`` is an index into this batch, or its length."""

    def __len__(self) -> int:
        return len(self.page)

    def to_arrow(self) -> pyarrow.RecordBatch:
        """Copies only ``write``, which Arrow keeps as bits."""
        arrow = _frames.module("pyarrow")

        def column(kind: Any, values: Any) -> Any:
            return arrow.Array.from_buffers(kind, len(values), [None, arrow.py_buffer(values)])

        def known(addresses: Any) -> Any:
            compute = _frames.module("pyarrow.compute")
            unknown = compute.equal(addresses, arrow.scalar(UNKNOWN_ADDRESS, arrow.uint64()))
            return compute.if_else(unknown, arrow.scalar(None, arrow.uint64()), addresses)

        return arrow.RecordBatch.from_pydict({
            "page": column(arrow.uint32(), self.page),
            "write": column(arrow.uint8(), self.write).cast(arrow.bool_()),
            "count": column(arrow.uint32(), self.count),
            "address": known(column(arrow.uint64(), self.address)),
        })


class Trace:
    """A trace; iterating gives its batches. Its accesses are read as they are asked for."""

    def __init__(self, path: Union[str, os.PathLike[str]]) -> None:
        self._path = os.fspath(path)
        self.json = _superpage.Trace(self._path).info()
        self.info: Dict[str, Any] = _json.loads(self.json)
        """What its head and foot say (``superpage.trace/1``): :attr:`json` is its text."""

    def batches(self, records: int = RECORDS, *, chunk: int = 0) -> Iterator[Batch]:
        """Its records from a chunk on, about so many at a time."""
        if records < 1:
            raise ValueError(f"records={records}: a batch has at least 1")
        reader = _superpage.Trace(self._path)
        reader.seek(chunk)
        while True:
            columns = reader.next(records)
            if columns is None:
                return
            page, write, count, address, events = columns
            yield Batch(
                memoryview(page).cast("I"),
                memoryview(write).cast("?"),
                memoryview(count).cast("I"),
                memoryview(address).cast("Q"),
                [Event(*event) for event in events],
            )

    def __iter__(self) -> Iterator[Batch]:
        return self.batches()

    def spans(self) -> List[Dict[str, int]]:
        """Which regions of 512 pages are which addresses of which process."""
        spans: List[Dict[str, int]] = self.info["spans"]
        return spans

    def to_arrow(self) -> pyarrow.Table:
        """All records: 17 bytes for each in memory."""
        arrow = _frames.module("pyarrow")
        columns = {"page": "uint32", "write": "bool_", "count": "uint32", "address": "uint64"}
        schema = arrow.schema([(name, getattr(arrow, kind)()) for name, kind in columns.items()])
        return arrow.Table.from_batches([batch.to_arrow() for batch in self], schema)

    def to_pandas(self) -> pandas.DataFrame:
        """The same as a data frame."""
        frames, numpy = _frames.module("pandas"), _frames.module("numpy")
        batches = list(self)

        def column(name: str, kind: str) -> Any:
            parts = [numpy.asarray(getattr(batch, name)) for batch in batches]
            return numpy.concatenate(parts) if parts else numpy.empty(0, kind)

        kinds = {"page": "uint32", "write": "bool", "count": "uint32", "address": "uint64"}
        frame: pandas.DataFrame = frames.DataFrame({name: column(name, kind) for name, kind in kinds.items()})
        return frame

    def __repr__(self) -> str:
        return f"<superpage.trace.Trace: {self.info['workload']}, {self.info['accesses']} accesses>"


def open(path: Union[str, os.PathLike[str]]) -> Trace:
    """A trace that ``superpage record`` or ``superpage trace import`` wrote."""
    return Trace(path)
