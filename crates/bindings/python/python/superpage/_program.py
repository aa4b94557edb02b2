"""The command that this package brings, and its library beside it."""

# See docs/decisions/python.md#1.

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import List, Optional, Sequence

from ._superpage import Error

PROGRAM = str(Path(__file__).absolute().parent / "bin" / "superpage")
_PREFIX = "superpage: "


def document(words: Sequence[str], progress: bool) -> str:
    """The document that the command writes with ``--json``.

    It runs as a process of its own: what is measured is not this process, whose memory each fork would copy, and whose
    children are not the experiment's. What it says on standard error is passed on. ^C ends it as it would at a terminal:
    what it changed is put back, and what was raised here has ``document``, that of the runs so far, or None.
    """
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "document.json")
        quiet = [] if progress else ["--quiet"]
        command = [PROGRAM, words[0], "--json", "--output", str(file), *quiet, *words[1:]]
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                encoding="utf-8", errors="replace",
            )
        except OSError as error:
            raise Error(f"{PROGRAM}: {error.strerror}; install the package anew") from None
        said: Optional[_Listener] = None
        try:
            said = _Listener(process)
            code = process.wait()
        except BaseException as stop:
            process.send_signal(signal.SIGINT)
            _until_it_ends(process)
            if said is not None:
                said.rest()
            stop.document = _text(file)  # type: ignore[attr-defined]
            raise
        said.rest()
        made = _text(file)
        if made is None:
            raise Error(said.last or f"superpage ended with {code} and said nothing")
        return made


def _text(file: Path) -> Optional[str]:
    return file.read_text("utf-8") if file.exists() else None


def _until_it_ends(process: subprocess.Popen[str]) -> None:
    while True:
        try:
            process.wait()
            return
        except KeyboardInterrupt:
            continue


class _Listener:
    """Reads standard error to its end. Passes on each line but the last, which is the reason if the program failed."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.last: Optional[str] = None
        self._process = process
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        for line in self._process.stderr or ():
            if self.last is not None:
                print(_PREFIX + self.last, file=sys.stderr)
            self.last = line.rstrip("\n").replace(_PREFIX, "", 1)

    def rest(self) -> None:
        """Waits for the end; the last line is no error where the command did what it was asked."""
        self._thread.join()
        if self._process.stderr:
            self._process.stderr.close()
        if self._process.returncode not in (2, 3) and self.last is not None:
            print(_PREFIX + self.last, file=sys.stderr)
