"""Keywords of Python as words of the command line. Names and defaults are the command's."""

from __future__ import annotations

from typing import List, Mapping, Optional, Sequence, Union

Size = Union[str, int]
"""Bytes, or a text such as ``"2G"``."""

Value = Union[None, bool, str, int, float, Sequence[Union[str, int]]]


def words(flags: Mapping[str, Value]) -> List[str]:
    """``--size=2G`` of ``{"size": "2G"}``; a list is a flag for each, None and False are none."""
    said: List[str] = []
    for name, value in flags.items():
        flag = "--" + name.replace("_", "-")
        if value is True:
            said.append(flag)
        elif isinstance(value, (str, int, float)) and value is not False:
            said.append(f"{flag}={value}")
        elif value is not None and value is not False:
            said.extend(f"{flag}={one}" for one in value)
    return said


def several(value: Union[None, str, int, Sequence[Union[str, int]]]) -> Optional[Sequence[Union[str, int]]]:
    """One, or a list of them."""
    return [value] if isinstance(value, (str, int)) else value
