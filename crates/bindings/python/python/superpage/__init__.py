"""Superpages ("huge pages") measured and simulated.

``superpage.compare("gups", size="2G")`` runs a program on base pages and on superpages and says how much faster it was;
``superpage.lab`` carries designs of operating systems out on a simulated machine; ``superpage.trace`` reads recorded
streams of page accesses. Results are the documents that the command ``superpage`` prints with ``--json``.
"""

from ._compare import Arm, Comparison, Interval, Judgement, Verdict, compare
from ._superpage import Error, __version__
from . import lab, trace

__all__ = ["Arm", "Comparison", "Error", "Interval", "Judgement", "Verdict", "__version__", "compare", "lab", "trace"]
