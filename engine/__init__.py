"""Package in, hypotheses out. Knows no network, no Prometheus and no settings file."""

import os

# Else ONNX Runtime, from 1.31 on, keeps a database in the home folder for its makers. It looks once, when it is loaded.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
