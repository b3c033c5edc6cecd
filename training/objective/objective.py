"""The model under training and, in distillation, its teacher: batch -> loss."""

import torch
from torch import Tensor, nn

from models.architectures.architecture import Architecture
from models.config import ModelConfig
from models.transformer import Transformer
from training.config import Distillation
from training.data.batches import Batch
from training.errors import TrainingError
from training.objective import losses
from training.objective.notes import TeacherNotes


class Translation(nn.Module):
    """Learns the target text."""

    def __init__(self, model: Architecture, label_smoothing: float) -> None:
        super().__init__()
        self.model = model
        self.label_smoothing = label_smoothing

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The loss, summed over target tokens, and the cross-entropy without smoothing."""
        _, starts = self.model.encode_source(batch.source_ids, batch.source_lengths)
        hidden = self.model.decode_target(starts, batch.source_lengths, batch.inputs)[-1]
        # Without the padding: the output projection is the larger half of a small model's work.
        return text_loss(self.model, hidden[batch.is_token.flatten()], batch, self.label_smoothing)


class WordLevelDistillation(nn.Module):
    """Matches a teacher's logits after each beginning of the target (Hinton et al. 2015; Kim and Rush 2016, 3.1)."""

    def __init__(
        self,
        model: Transformer,
        teacher: Transformer,
        settings: Distillation,
        label_smoothing: float,
        notes: TeacherNotes | None = None,
    ) -> None:
        """Raises TrainingError where the teacher is of another vocabulary, or its tables are not the student's."""
        super().__init__()
        check_teacher(model, teacher, settings)
        self.model = model
        self.label_smoothing = label_smoothing
        self.teacher = teacher.requires_grad_(False)  # its dropout is off, whether it trains or not
        self._settings = settings
        self._notes = notes
        self._one_encoder = same_encoder(model, teacher)
        if self._one_encoder:
            with torch.no_grad():  # what the student's encoder will give, once it serves
                teacher.source_positions.copy_(model.source_positions)
        table = teacher.output_weight[: teacher.config.target_vocab_size]
        self.register_buffer("gram", losses.gram_matrix(table), persistent=False)

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The weighted loss, summed over target tokens, and the part of it that matches logits."""
        settings, tokens = self._settings, batch.is_token.flatten()
        memory, theirs = self._ask(batch, tokens)
        if not self._one_encoder:
            memory = self.model.encode(batch.source_ids, batch.source_lengths)
        ours = [state[tokens] for state in self.model.decode(memory, batch.source_lengths, batch.inputs)]
        matched = self._match(ours[-1], theirs[-1], batch.labels[batch.is_token])
        loss = matched
        if settings.hidden:
            pairs = zip(ours[:-1], theirs[:-1], strict=True)
            loss = loss + settings.hidden * sum(losses.hidden_error(a, b) for a, b in pairs)
        if settings.cross_entropy:
            text, _ = text_loss(self.model, ours[-1], batch, self.label_smoothing)
            loss = loss + settings.cross_entropy * text
        return loss, matched

    @torch.no_grad()
    def _ask(self, batch: Batch, tokens: Tensor) -> tuple[Tensor, list[Tensor]]:
        """The teacher's memory and hidden states [target tokens, width], as many as `noted_states`."""
        notes = self._notes if self.training else None  # they are of the training text
        if notes is not None and notes.taken(batch.rows):
            memory, hidden = notes.read(batch.rows)
            return memory.to(tokens.device), [state.to(tokens.device) for state in hidden]
        memory = self.teacher.encode(batch.source_ids, batch.source_lengths)
        states = self.teacher.decode(memory, batch.source_lengths, batch.inputs)
        hidden = [state[tokens] for state in states[-noted_states(self.teacher, self._settings) :]]
        if notes is not None:
            notes.take(batch.rows, memory, hidden)
        return memory, hidden

    def _match(self, ours: Tensor, theirs: Tensor, labels: Tensor) -> Tensor:
        """The weighted error of the logits that follow from hidden states [target tokens, width]."""
        settings, vocabulary = self._settings, slice(self.model.config.target_vocab_size)
        if settings.match == "gram":
            loss = settings.logits * self._squared_error(ours, theirs)
        else:
            loss = settings.logits * self._divergence(ours, theirs, vocabulary)
        if settings.in_batch:
            loss = loss + settings.in_batch * self._divergence(ours, theirs, labels.unique())
        return loss

    def _squared_error(self, ours: Tensor, theirs: Tensor) -> Tensor:
        assert isinstance(self.gram, Tensor)
        ours, theirs = self.model.decoder_norm(ours), self.teacher.decoder_norm(theirs)
        # The difference of two near vectors, squared, is no work for bf16.
        with torch.autocast(ours.device.type, enabled=False):
            return losses.squared_logit_error(ours.float(), theirs.float(), self.gram)

    def _divergence(self, ours: Tensor, theirs: Tensor, among: Tensor | slice) -> Tensor:
        """Of the next-token distributions from the teacher's, as if there were no tokens but those `among`."""
        both = ((self.model, ours), (self.teacher, theirs))
        student, teacher = (
            model.logits(hidden, (model.output_weight[among], model.output_bias[among])) for model, hidden in both
        )
        return losses.divergence(student, teacher)


Objective = Translation | WordLevelDistillation


def text_loss(model: Architecture, hidden: Tensor, batch: Batch, smoothing: float) -> tuple[Tensor, Tensor]:
    """Cross-entropy of the target, smoothed and plain.

    hidden: the last hidden states [target tokens, width]
    """
    logits = model.logits(hidden)[:, : model.config.target_vocab_size]
    return losses.cross_entropy(logits, batch.labels[batch.is_token], smoothing, model.config.pad_id)


def noted_states(teacher: Transformer, settings: Distillation) -> int:
    """How many hidden states of a target token are matched: the last one, or those after each self-attention too."""
    return teacher.config.decoder_layers + 1 if settings.hidden else 1


def check_teacher(model: Transformer, teacher: Transformer, settings: Distillation) -> None:
    """Raises TrainingError where the teacher's logits cannot be matched."""
    where, ours, theirs = settings.teacher, model.config, teacher.config
    if _vocabulary(ours) != _vocabulary(theirs):
        raise TrainingError(
            f"{where} has vocabularies of {theirs.source_vocab_size} and {theirs.target_vocab_size} tokens and the "
            f"special ids {_vocabulary(theirs)[2:]}; the student has {ours.source_vocab_size}, "
            f"{ours.target_vocab_size} and {_vocabulary(ours)[2:]}. Both must have the same vocabulary"
        )
    if settings.hidden and (ours.width, ours.decoder_layers) != (theirs.width, theirs.decoder_layers):
        raise TrainingError(
            f"{where} has {theirs.decoder_layers} decoder layers of width {theirs.width}, the student "
            f"{ours.decoder_layers} of width {ours.width}; set distillation.hidden = 0"
        )
    if settings.notes and not same_encoder(model, teacher):
        raise TrainingError(
            f"distillation.notes needs the encoder of the teacher, frozen. Start with {where} and "
            'start.freeze = ["encoder.*", "source_embedding"], or set distillation.notes = false'
        )
    if settings.match == "gram" and not _same_output(model, teacher):
        raise TrainingError(
            'distillation.match = "gram" needs the output table and the output bias of the teacher, frozen. Start with '
            f'{where} and start.freeze = ["source_embedding", "output_bias"], or set distillation.match = "kl"'
        )


def same_encoder(model: Transformer, teacher: Transformer) -> bool:
    """Whether the student's encoder is the teacher's, and stays so: then it has to run only once.

    The position tables may differ (Marian's frequencies are not quite Hugging Face's): the student's is taken for both.
    """
    theirs = dict(teacher.named_parameters())
    return all(
        name in theirs and not ours.requires_grad and same_rounded(ours, theirs[name])
        for name, ours in model.named_parameters()
        if name.startswith("encoder") or name == "source_embedding"
    )


def _same_output(model: Transformer, teacher: Transformer) -> bool:
    ours, theirs = (model.output_weight, model.output_bias), (teacher.output_weight, teacher.output_bias)
    return all(not mine.requires_grad and same_rounded(mine, other) for mine, other in zip(ours, theirs, strict=True))


def same_rounded(ours: Tensor, theirs: Tensor) -> bool:
    """Whether two tensors are the same in fp16, which is how checkpoints keep them."""
    return ours.shape == theirs.shape and torch.equal(ours.half(), theirs.half())


def _vocabulary(config: ModelConfig) -> tuple[int, ...]:
    return (
        config.source_vocab_size,
        config.target_vocab_size,
        config.pad_id,
        config.end_id,
        config.decoder_start_id,
    )
