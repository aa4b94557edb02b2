"""Compares a program on base pages and on superpages: python compare.py sort -S 1G big.txt"""

import sys
from typing import List

import superpage


def gain(program: List[str]) -> float:
    """How many times as fast superpages make it; 1 where nothing is proven."""
    result = superpage.compare(program, arms=["base", "thp"], max_time="60s")
    print(result)
    verdict = result.judgement("thp")["verdict"]
    return verdict["speedup"] if verdict["verdict"] in ("faster", "slower") else 1.0


if __name__ == "__main__":
    try:
        print(f"{gain(sys.argv[1:]):.2f}")
    except superpage.Error as error:
        sys.exit(f"{error}")
