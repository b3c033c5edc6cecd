"""BERT (Devlin et al. 2019): the encoder that is exported, and what only training needs of it."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from models.config import ModelConfig
from models.norms import make_norm
from models.transformer import Transformer
from training.encoders.config import Head


class Encoder(Transformer):
    """An encoder alone that is told which tokens are of a second sentence, with the head of an objective."""

    def __init__(self, config: ModelConfig, head: Head | None, labels: int = 0) -> None:
        """Random weights. head: None leaves it to others; labels: that a text or a token may have."""
        super().__init__(config)
        width = config.width
        self.head = head
        self.token_types = nn.Parameter(torch.zeros(2, width))
        if head in ("mlm", "text"):
            self.pooler = nn.Linear(width, width)
        if head == "mlm":
            self.transform, self.transform_norm = nn.Linear(width, width), make_norm(config)
            self.next_sentence = nn.Linear(width, 2)
        else:
            self.output_bias.requires_grad_(False)
        if head in ("text", "tokens"):
            self.classifier = nn.Linear(width, labels)
        for name, module in self.named_children():
            if name in ("pooler", "transform", "next_sentence", "classifier"):
                assert isinstance(module, nn.Linear)
                nn.init.normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)

    def read(self, ids: Tensor, lengths: Tensor, types: Tensor | None = None) -> Tensor:
        """The last hidden states [texts, tokens, width] of ids [texts, tokens].

        types: 0 for tokens of the first sentence, 1 for those of the second [texts, tokens]. None: there is one
        """
        tokens = ids.shape[1]
        kinds = self.token_types[0] if types is None else F.embedding(types, self.token_types)
        x = self._embed(ids, self.source_embedding) + self.source_positions[:tokens] + kinds
        return self._encoded(x.flatten(0, 1), lengths, tokens, None, None).view(*ids.shape, -1)

    def words(self, hidden: Tensor) -> Tensor:
        """Logits [tokens, vocabulary] of what stood at hidden tokens [tokens, width]."""
        transformed = self.transform_norm(F.gelu(self.transform(hidden)))
        return self.logits(transformed)[:, : self.config.source_vocab_size]

    def follows(self, hidden: Tensor) -> Tensor:
        """Logits [texts, 2] of hidden states [texts, tokens, width]: the second sentence follows, or is any other."""
        found: Tensor = self.next_sentence(self._pooled(hidden))
        return found

    def labels(self, hidden: Tensor) -> Tensor:
        """Logits of the labels [texts, 1, labels], or of each token [texts, tokens, labels]."""
        found: Tensor = self.classifier(hidden if self.head == "tokens" else self._pooled(hidden).unsqueeze(1))
        return found

    def _pooled(self, hidden: Tensor) -> Tensor:
        return torch.tanh(self.pooler(hidden[:, 0]))
