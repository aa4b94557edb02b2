"""Which design is fastest at which fragmentation, in simulation: python sweep.py [DIRECTORY]"""

import sys
from typing import Dict, Optional

import superpage


def seconds(directory: Optional[str]) -> Dict[str, Dict[str, float]]:
    """The time of each design, by fragmentation."""
    sweep = superpage.lab.sweep(
        directory,
        designs=["base", "linux-4.3", "freebsd"],
        workloads="gups:size=64M,operations=1M",
        fragmentations=["none", "frag-50", "frag-100"],
        memory="1G",
        progress=lambda done, of: print(f"{done} of {of} cells", file=sys.stderr),
    )
    if sweep.failed:
        raise superpage.Error("; ".join(f"{what}: {why}" for what, why in sweep.failed))
    found: Dict[str, Dict[str, float]] = {}
    for row in sweep.document["cells"]:
        report = row["report"]
        time = report["wall_cycles"] / (report["mhz"] * 1e6)
        found.setdefault(report["cell"]["fragmentation"], {})[report["cell"]["design"]] = time
    return found


if __name__ == "__main__":
    for fragmentation, times in seconds(sys.argv[1] if len(sys.argv) > 1 else None).items():
        fastest = min(times, key=lambda design: times[design])
        print(f"{fragmentation:9} {fastest} ({times[fastest]:.3f} s)")
