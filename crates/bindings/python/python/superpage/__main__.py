"""The command, as it is in this package: ``superpage`` and ``python -m superpage``."""

from __future__ import annotations

import os
import sys

from ._program import PROGRAM


def main() -> None:
    """Becomes the command."""
    try:
        os.execv(PROGRAM, ["superpage", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"superpage: {PROGRAM}: {error.strerror}; install the package anew")


if __name__ == "__main__":
    main()
