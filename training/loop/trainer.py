"""The training loop."""

import math
import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from models.architectures.architecture import Architecture
from models.architectures.recurrent.model import Recurrent
from training.config import Run
from training.data.batches import BatchOrder, Rows, make_batch, target_tokens
from training.data.text import Corpus
from training.errors import TrainingError
from training.loop import state
from training.loop.optimizers import make_optimizers
from training.loop.outputs import Outputs
from training.loop.processes import Processes, multiplies_bf16
from training.loop.progress import Display, Rate, TensorBoard
from training.loop.schedule import learning_rate
from training.loop.state import Progress
from training.loop.validation import Score

SHOWN_EVERY = 10
"""Steps between two looks at the loss, for which a GPU has to be waited for."""


class Trainer:
    """One run, from its last checkpoint to its last step."""

    def __init__(
        self,
        experiment: Run,
        objective: nn.Module,
        model: Architecture,
        corpus: Corpus,
        score: Callable[[], Score],
        processes: Processes,
    ) -> None:
        """Loads the last checkpoint, if there is one. Raises TrainingError where it does not fit.

        objective: Batch -> the loss and what is shown of it, each summed over target tokens; holds `model`
        """
        self.experiment, self.model, self.processes = experiment, model, processes
        self.outputs = Outputs(experiment.output)
        self.progress = Progress()
        self._score = score
        self._corpus = corpus
        self._optimizers = make_optimizers(experiment.optimizer, model)
        self._resume()
        self._reseed()
        self._order = BatchOrder(corpus, experiment.batches.tokens, experiment.seed, self.progress.position)
        self._objective = distributed(objective, processes)
        self._autocast = autocast(experiment, processes.device)

    @property
    def finished(self) -> bool:
        """Nothing is left to do, or more of it would not help."""
        progress, training, validation = self.progress, self.experiment.training, self.experiment.validation
        best = -math.inf if progress.best_score is None else progress.best_score
        return (
            progress.step >= training.max_steps
            or progress.processor_seconds >= (training.processor_seconds or math.inf)
            or progress.worse >= (validation.patience or math.inf)
            or best >= (validation.enough or math.inf)
        )

    def run(self, display: Display, board: TensorBoard | None) -> None:
        """Trains until `finished`. board: None in all processes but the first."""
        self._objective.train()
        rate, shown = Rate(), torch.zeros(3, dtype=torch.float64, device=self.processes.device)
        started = time.process_time()
        while not self.finished:
            batches = self._order.take(self.experiment.batches.accumulate * self.processes.count)
            tokens = target_tokens(self._corpus, batches)
            norm = self._update(batches, tokens, shown)
            rate.add(tokens)
            step = self.progress.step
            if step % SHOWN_EVERY == 0:
                now = time.process_time()
                shown[2], started = now - started, now
                self._show(display, board, shown, float(norm), rate.read())
            if step % self.experiment.validation.every_steps == 0:
                self._validate(display, board)
            if step % self.experiment.checkpoints.every_steps == 0 or self.finished:
                self._save()

    def _update(self, batches: list[Rows], tokens: int, shown: Tensor) -> Tensor:
        """One step of the optimizer. Returns the norm of the gradient before clipping.

        tokens: of all batches of all processes. shown: gets the loss, and the tokens it is a sum over
        """
        settings, processes = self.experiment.optimizer, self.processes
        self.progress.step += 1
        if isinstance(self.model, Recurrent):
            done = self.progress.step / self.experiment.training.max_steps
            self.model.sampled = done * self.experiment.training.scheduled_sampling
        self.progress.position = self._order.position
        for rows in processes.share(batches):
            batch = make_batch(self._corpus, rows, self.model.config).to(processes.device)
            with self._autocast():
                loss, seen = self._objective(batch)
            # The gradients of the processes are averaged, not added: each counts so many times as much.
            (loss * (processes.count / tokens)).backward()
            shown[0] += seen.detach()
        shown[1] += tokens / processes.count
        trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        norm = nn.utils.clip_grad_norm_(trained, settings.clip_norm)
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(self.progress.step, settings, self.experiment.training.max_steps)
            optimizer.step()
            optimizer.zero_grad()
        return norm

    def _show(self, display: Display, board: TensorBoard | None, shown: Tensor, norm: float, rate: float) -> None:
        """shown: sums of the loss, its tokens, and seconds of this process since the last look, which begin anew."""
        total, tokens, seconds = self.processes.sum(shown.clone()).tolist()
        shown.zero_()
        self.progress.processor_seconds += seconds
        self._check_finite(norm)
        loss, step = total / tokens, self.progress.step
        if board is not None:
            values = {
                "loss": loss,
                "learning_rate": self._optimizers[0].param_groups[0]["lr"],
                "gradient_norm": norm,
                "target_tokens": tokens,
                "target_tokens_per_second": rate,
                "processor_seconds": self.progress.processor_seconds,
                "epoch": self.progress.position.epoch,
            }
            board.write(step, "train", values)
        display.update(step, f"epoch {self.progress.position.epoch + 1}, loss {loss:.3f}, {rate:,.0f} tokens/s")

    def _validate(self, display: Display, board: TensorBoard | None) -> None:
        score = self.processes.broadcast(self._score() if self.processes.first else None)
        assert score is not None
        self._check_finite(score.loss)
        progress = self.progress
        if progress.measure not in (None, score.measure):  # `validation.sentences` was 0 before, or is now
            display.say(f"the best by {progress.measure} counts no more: from now on it is that by {score.measure}")
            progress.best_score, progress.worse = None, 0
        progress.measure = score.measure
        if progress.best_score is None or score.value > progress.best_score:
            progress.best_score, progress.worse = score.value, 0
            if self.processes.first:
                state.save(self.outputs, self.outputs.best, {"model": self.model.state_dict(), "step": progress.step})
        else:
            progress.worse += 1
        display.say(f"step {progress.step}: validation {score}" + (" (best)" if progress.worse == 0 else ""))
        if board is not None:
            board.write(progress.step, "validation", score.values | {"processor_seconds": progress.processor_seconds})

    def _save(self) -> None:
        self._check_finite(sum(float(parameter.detach().sum()) for parameter in self.model.parameters()))
        if self.processes.first:
            keep = self.experiment.checkpoints.average
            state.save_state(self.outputs, keep, self.progress, self.model, self._optimizers)
        self._reseed()

    def _reseed(self) -> None:
        """At every checkpoint, so that a run that goes on from it draws what it would have drawn."""
        self.processes.reseed(self.experiment.seed, self.progress.step)

    def _check_finite(self, value: float) -> None:
        if not math.isfinite(value):
            raise TrainingError(
                f"training diverged before step {self.progress.step}: {value} is no finite number. Lower "
                f"optimizer.peak_learning_rate or raise optimizer.warmup_steps; {self.outputs.kept}"
            )

    def _resume(self) -> None:
        found = self.outputs.all_checkpoints()
        if found:
            self.progress = state.load_state(found[-1], self.model, self._optimizers, self.processes.device)
        elif self.processes.first:
            self.outputs.best.unlink(missing_ok=True)  # of a run whose checkpoints were deleted


def distributed(objective: nn.Module, processes: Processes) -> nn.Module:
    """Gives every process the mean of all processes' gradients."""
    if processes.count == 1:
        return objective
    return DistributedDataParallel(objective, [processes.device] if processes.device.type == "cuda" else None)


def autocast(experiment: Run, device: torch.device) -> Callable[[], torch.autocast]:
    """Matrix products in bf16, where the experiment or the device says so."""
    wanted = experiment.training.precision
    enabled = multiplies_bf16(device) if wanted == "auto" else wanted == "bf16"
    return partial(torch.autocast, device.type, torch.bfloat16, enabled)
