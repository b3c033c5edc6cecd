"""The one small graph that copies cached keys and values from row to row, on the device.

A *slot* is what one head keeps of one token: head_dim numbers, seen here as 8-byte lanes, so that the graph does not
ask what they are. The graph gathers slots of `source` and scatters them into `target`, which is written in place. Both
may be the same memory.

    source, target                  int64 [slots, lanes]
    source_table, target_table      int64 [tensors, 1, heads, 1 (, 1)]  where each head of each tensor begins
    source_starts, target_starts    int64 [rows, 1, 1 (, 1)]            where each row begins in its tensor
    source_places, target_places    int64 [length (, 1)]                0, 1, ..., length - 1
    moved                           int64 [slots, lanes]                `target` afterwards

The numbers of slots to read and to write are sums of three tables, so no node looks at a shape, and none runs on the
host.
"""

from engine.cuda.graphs.graph_file import INT64, graph_file

INPUTS: dict[str, tuple[int | str, ...]] = {
    "source": ("source_slots", "lanes"),
    "target": ("target_slots", "lanes"),
    "source_table": ("tensors", 1, "heads", 1),
    "target_table": ("tensors", 1, "heads", 1, 1),
    "source_starts": ("rows", 1, 1),
    "target_starts": ("rows", 1, 1, 1),
    "source_places": ("length",),
    "target_places": ("length", 1),
}
OUTPUT = "moved"

NODES = (
    ("Add", ("source_table", "source_starts"), "source_heads"),
    ("Add", ("source_heads", "source_places"), "read"),
    ("Add", ("target_table", "target_starts"), "target_heads"),
    ("Add", ("target_heads", "target_places"), "written"),
    ("Gather", ("source", "read"), "slots"),
    ("ScatterND", ("target", "written", "slots"), OUTPUT),
)


def move_graph() -> bytes:
    """The graph as an ONNX file."""
    inputs = {name: (INT64, shape) for name, shape in INPUTS.items()}
    return graph_file("move", NODES, inputs, {OUTPUT: inputs["target"]})
