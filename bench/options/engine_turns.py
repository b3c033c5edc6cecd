"""A turn of the engine of whatever checkout this runs in: see `bench.options.before`.

The first line that it reads are texts, as a JSON array; every other line is a batch and beams, such as "8 1". It
answers with target tokens in a second of processor time, of all its threads. It ends with its input.
"""

import json
import sys
import time
from pathlib import Path

from bench.cpu.sides.ours import Ours
from bench.cpu.work import Work


def main() -> None:
    """Command line: a package."""
    answers, sys.stdout = sys.stdout, sys.stderr
    texts, engines = tuple(json.loads(sys.stdin.readline())), dict[str, Ours]()
    for line in sys.stdin:
        batch, num_beams = map(int, line.split())
        if line not in engines:
            engines[line] = Ours(Path(sys.argv[1]), "auto")
            engines[line].prepare(Work(texts, num_beams, batch))
        began = time.process_time()
        tokens = engines[line].translate()
        print(tokens / (time.process_time() - began), file=answers, flush=True)


if __name__ == "__main__":
    main()
