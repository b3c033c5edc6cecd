"""Triton's perf_analyzer, unchanged, against the three models of a server with models/zoo/en-pt, by hand. Prints JSON.

    python tests/server/kserve/perf_analyzer.py 127.0.0.1:8500 perf_analyzer

What follows the server is the command; its wheel (2.60.0) wants glibc 2.38 or newer, so that it may be one in another
root: `chroot /srv/trixie perf_analyzer`. Ends with 1 where a model's statistics are not those of its requests.
"""

import json
import re
import subprocess
import sys
from typing import Any

SETTINGS = (
    *("-i", "grpc", "--shape", "text:1", "--string-data", "The cat sleeps on the sofa."),
    *("--concurrency-range", "2", "--measurement-mode", "count_windows", "--measurement-request-count", "30"),
    *("--stability-percentage", "90", "--max-trials", "4"),
)
ANEW = ("--request-parameter", "no_cache:true:bool")
"""Else the answer to the one text would be kept."""
MODELS = {
    "en-pt": ("-b", "2", *ANEW),
    "en-pt.stream": ("-b", "1", "--streaming", "--async", *ANEW),
    "en-pt.encode": ("-b", "2"),
}
FIGURES = {
    "calls": r"Request count: (\d+)",
    "texts_per_s": r"Throughput: ([\d.]+) infer/sec",
    "server_calls": r"Successful request count: (\d+)",
    "server_texts": r"Inference count: (\d+)",
    "server_infer_us": r"compute infer (\d+) usec",
}
"""In what it prints, of its callers first."""


def told(model: str, target: str, command: list[str]) -> dict[str, Any]:
    asked = [*command, "-m", model, "-u", target, *SETTINGS, *MODELS[model]]
    ran = subprocess.run(asked, capture_output=True, text=True, timeout=120)
    if ran.returncode:
        return {"failed": (ran.stderr or ran.stdout)[-300:]}
    found = {name: re.search(figure, ran.stdout) for name, figure in FIGURES.items()}
    return {name: float(one[1]) if one else None for name, one in found.items()}


def main() -> int:
    target, *command = sys.argv[1:]
    found = {model: told(model, target, command or ["perf_analyzer"]) for model in MODELS}
    print(json.dumps(found, indent=1))
    return 0 if all(one.get("server_calls") and one["server_infer_us"] for one in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
