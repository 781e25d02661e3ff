"""`python -m tests.bench [NAME…]`: run the benchmarks (all, or those of the modules named), print JSON."""

from __future__ import annotations

import importlib
import json
import os
import platform
import sys
from pathlib import Path


def main(wanted: list[str]) -> int:
    known = sorted(path.stem.removeprefix("bench_") for path in Path(__file__).parent.glob("bench_*.py"))
    if unknown := set(wanted) - set(known):
        print(
            f"no such benchmark: {', '.join(sorted(unknown))}; there are {', '.join(known)}", file=sys.stderr
        )
        return 2
    results = {}
    for name in wanted or known:
        print(f"==> {name}", file=sys.stderr)
        results[name] = importlib.import_module(f"tests.bench.bench_{name}").benchmarks()
    machine = {"python": platform.python_version(), "cores": os.cpu_count(), "machine": platform.machine()}
    print(json.dumps({"machine": machine, "benchmarks": results}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
