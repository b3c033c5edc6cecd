"""Encoder-decoders of recurrences, with attention and without.

Sutskever et al. 2014, "Sequence to Sequence Learning with Neural Networks"; Cho et al. 2014, "Learning Phrase
Representations using RNN Encoder-Decoder"; Bahdanau et al. 2015, "Neural Machine Translation by Jointly Learning to
Align and Translate"; Luong et al. 2015, "Effective Approaches to Attention-based Neural Machine Translation".
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from models.architectures.architecture import Architecture, Decoded
from models.architectures.recurrent.cells import RecurrentCell
from models.architectures.recurrent.config import STATES, RecurrentConfig
from models.architectures.recurrent.encoder import RecurrentEncoder
from models.architectures.recurrent.source_attention import Attend, Look, SourceAttention, softmax_look
from models.attention import attention
from models.attention.nodes import Scoring, takes_ours


class Recurrent(Architecture):
    """The model: every choice of `RecurrentConfig`."""

    config: RecurrentConfig

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__(config, config.scale_embedding)
        width = config.width
        self.attends = config.score != "none"
        self.encoder = RecurrentEncoder(config)
        self.first = nn.ModuleList(nn.Linear(width, width) for _ in config.states if config.first_state == "projected")
        fed = (self.attends and config.attends == "before") + config.input_feeding
        self.decoder = nn.ModuleList(
            RecurrentCell(config.cell, width if layer else (1 + fed) * width, width)
            for layer in range(config.decoder_layers)
        )
        if self.attends:
            self.attention = SourceAttention(config)
            self.readout = nn.Linear(2 * width, width)
        self.decoder_norm = nn.Identity()
        self.dropout = nn.Dropout(0.0)
        self.sampled = 0.0
        """While training, how often a token that the model finds itself is fed in place of the target's (Bengio et al.
        2015, "Scheduled Sampling for Sequence Prediction with Recurrent Neural Networks")."""
        self._initialise()

    def encode_source(self, ids: Tensor, lengths: Tensor) -> tuple[Tensor, list[Tensor]]:
        """See Architecture: the cells' first states, then the keys and hidden states that attention looks at."""
        read = self.encoder(self._embed(ids, self.source_embedding), lengths)
        hidden = read[-1].hidden
        if self.config.first_state == "copied":
            states = [state for layer in read for state in layer.last]
        else:
            states = [torch.tanh(first(read[-1].last[0])) for first in self.first]
        if not self.attends:
            return hidden, states
        return hidden, [*states, self.attention.keys(hidden).unsqueeze(1), hidden.unsqueeze(1)]

    def decode_target(self, starts: Sequence[Tensor], source_lengths: Tensor, target_ids: Tensor) -> list[Tensor]:
        """See Architecture: what the output layer takes, alone. Token by token, as a package computes it."""
        states, look = list(starts[: len(self.config.states)]), self.look(starts, source_lengths)
        if self.config.input_feeding:
            states.append(torch.zeros_like(states[0]))
        readouts: list[Tensor] = []
        for position, ids in enumerate(target_ids.unbind(1)):
            attend = self.attending(look, starts, source_lengths, position)
            readout, _, states = self.step(self._chosen(ids, readouts), states, attend)
            readouts.append(readout)
        return [torch.stack(readouts, 1).flatten(0, 1)]

    def decode_step(
        self,
        ids: Tensor,
        positions: Tensor,
        total: Tensor,
        source_last: Tensor,
        source_total: Tensor,
        target_past: Sequence[Tensor],
        cross_past: Sequence[Tensor],
        cross_last: Sequence[Tensor],
        slots: Tensor | None = None,
    ) -> Decoded:
        """See Architecture. target_past: the cells' states, and with input feeding the readout before."""
        if not self.attends:
            readout, _, states = self.step(ids, target_past, None)
            return readout, None, states
        source_present: list[Tensor] = []

        def attend(state: Tensor) -> tuple[Tensor, Tensor]:
            if takes_ours():
                return self.attention.look(state, cross_past, source_last)
            at = torch.minimum(positions, source_last)
            comparison = self.attention.compare(state, cross_past[0], source_total, at)
            scoring = Scoring(self.config.score_scale, comparison.bias)
            found, *present = attention.cached_attention(
                comparison.query, cross_last, cross_past, source_last, source_total, 1, scoring
            )
            source_present.extend(present)
            return found, comparison.told

        readout, told, states = self.step(ids, target_past, attend)
        return readout, told, [*states, *source_present]

    def look(self, starts: Sequence[Tensor], source_lengths: Tensor) -> Look | None:
        """At padded sources, of which `encode_source` gave this. None: without attention."""
        return softmax_look(starts[-2], starts[-1], source_lengths, self.config.score_scale) if self.attends else None

    def attending(
        self, look: Look | None, starts: Sequence[Tensor], source_lengths: Tensor, position: int
    ) -> Attend | None:
        """How `step` looks at them for the target token at a position."""
        if look is None:
            return None
        keys, at = starts[-2], (source_lengths - 1).clamp(max=position)

        def attend(state: Tensor) -> tuple[Tensor, Tensor]:
            comparison = self.attention.compare(state, keys, source_lengths.max(), at)
            return look(comparison), comparison.told

        return attend

    def step(
        self, ids: Tensor, past: Sequence[Tensor], attend: Attend | None
    ) -> tuple[Tensor, Tensor | None, list[Tensor]]:
        """One token of each row: what the output layer takes, what tells where it looked, and the states after it.

        ids: [rows]; past: the states; attend: to the source, where there is attention
        """
        fed, states = past[len(self.config.states) :], past[: len(self.config.states)]
        given = [self.dropout(self._embed(ids, self.target_embedding)), *fed]
        share = len(STATES[self.config.cell])
        found: Tensor | None = None
        told: Tensor | None = None
        if attend is not None and self.config.attends == "before":
            found, told = attend(states[-share])
            given.append(found)
        x, present = torch.cat(given, 1), list[Tensor]()
        for index, cell in enumerate(self.decoder):
            new = cell(self.dropout(x) if index else x, states[index * share :][:share])
            present += new
            x = new[0]
        if attend is None:
            return self.dropout(x), None, present
        if found is None:
            found, told = attend(x)
        readout = torch.tanh(self.readout(torch.cat([x, found], 1)))
        return self.dropout(readout), told, [*present, readout] if fed else present

    @torch.no_grad()
    def _chosen(self, ids: Tensor, readouts: Sequence[Tensor]) -> Tensor:
        """The target's tokens, or some of the model's own after the readouts so far, see `sampled`."""
        if not (self.training and self.sampled and readouts):
            return ids
        own = self.logits(readouts[-1]).argmax(1)
        return torch.where(torch.rand(ids.shape, device=ids.device) < self.sampled, own, ids)
