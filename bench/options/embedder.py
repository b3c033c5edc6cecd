"""`python -m bench.options.embedder KIND CHECKPOINT THREADS`: somebody else's vectors, in a process of their own.

The first line that it reads are texts, as a JSON array. After that, a line is the name of a file that their vectors are
to be saved in, or empty: then they are made, and it writes how many seconds that took. It ends with its input.
"""

import json
import logging
import os
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

TORCH, ONNX, FASTEMBED = "sentence-transformers", "sentence-transformers, ONNX", "fastembed"
KINDS = (TORCH, ONNX, FASTEMBED)
BATCH = 32
"""What sentence-transformers takes if nobody says."""
GRAPH = "onnx/model.onnx"
"""Where sentence-transformers saves one."""

Encode = Callable[[list[str]], Any]
"""texts -> vectors [texts, numbers]"""


def open_library(kind: str, checkpoint: Path, threads: int) -> Encode:
    """Of a folder of sentence-transformers. ONNX leaves its graph there, which fastembed takes."""
    if kind == FASTEMBED:
        return _fastembed(checkpoint, threads)
    import torch
    from sentence_transformers import SentenceTransformer

    if kind == TORCH:
        torch.set_num_threads(threads)
        model = SentenceTransformer(str(checkpoint), device="cpu")
    else:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        arguments = {"provider": "CPUExecutionProvider", "session_options": options}
        model = SentenceTransformer(str(checkpoint), device="cpu", backend="onnx", model_kwargs=arguments)
        model.save_pretrained(str(checkpoint))
    return lambda texts: model.encode(texts, batch_size=BATCH, show_progress_bar=False)


def _fastembed(checkpoint: Path, threads: int) -> Encode:
    """By its own batches."""
    from fastembed import TextEmbedding
    from fastembed.common.model_description import ModelSource, PoolingType

    width = json.loads((checkpoint / "config.json").read_text())["hidden_size"]
    source = ModelSource(url="https://nowhere.invalid")  # the files are here
    TextEmbedding.add_custom_model("local", PoolingType.MEAN, True, source, width, GRAPH)
    model = TextEmbedding("local", threads=threads, specific_model_path=str(checkpoint))
    return lambda texts: np.array(list(model.embed(texts)))


def main() -> None:
    """Command line."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    kind, checkpoint, threads = sys.argv[1:]
    answers, sys.stdout = sys.stdout, sys.stderr
    encode, texts = open_library(kind, Path(checkpoint), int(threads)), json.loads(sys.stdin.readline())
    for line in sys.stdin:
        began = time.perf_counter()
        vectors = encode(texts)
        took = time.perf_counter() - began
        if file := line.strip():
            np.save(file, np.asarray(vectors, np.float32))
        print(took, file=answers, flush=True)


if __name__ == "__main__":
    main()
