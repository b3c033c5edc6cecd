"""The five steps of an export: load, trace, save, verify, publish."""

import shutil
from dataclasses import replace

from export.arguments import Options
from export.inputs import adapt, check_name, open_device, open_shortlist, read_samples
from export.manifest import make_manifest, package_files
from export.progress import Progress
from export.save import save, save_beside
from export.stored_weights import STORED, StoredWeights
from export.trace import Graphs, trace
from export.variant import variant
from export.verification.verify import verify
from models.checkpoint import load_checkpoint
from models.package.folder import draft, publish, publish_beside
from models.package.manifest import WEIGHTS, Manifest


def export(options: Options, progress: Progress) -> tuple[Manifest, Graphs]:
    """Loads, traces, saves, verifies and publishes. Until then nothing is where the package belongs."""
    texts = read_samples(options.samples, options.verify_samples)
    with progress.stage("load"):
        checkpoint = adapt(load_checkpoint(options.checkpoint), options)
        shortlist = open_shortlist(checkpoint)
        name = check_name(options.name or checkpoint.name)
        model = variant(checkpoint.model, options.precision, options.attention)
        device = open_device(options, checkpoint)
        stored = StoredWeights(options.checkpoint / STORED) if options.in_place else None
    with draft(options.out or options.checkpoint / "package") as folder:
        with progress.stage("trace"):
            graphs = trace(model, options.attention, checkpoint.shortlist is not None)
        with progress.stage("save"):
            saved = save(graphs, folder) if stored is None else save_beside(graphs, folder, stored)
            files = replace(saved, shortlist=shortlist)
            for file_name, file in package_files(checkpoint, stored).items():
                shutil.copyfile(file, folder / file_name)
        with progress.stage("verify") as tell:
            certificate = verify(checkpoint, options.checkpoint, files, texts, device, tell)
        with progress.stage("publish"):
            weights = WEIGHTS if stored is None else stored.file.name
            manifest = make_manifest(checkpoint, name, files, certificate, weights)
            if options.out is None:
                publish_beside(folder, manifest, options.checkpoint)
            else:
                publish(folder, manifest, options.out)
    return manifest, graphs
