"""What shape a recurrent encoder-decoder has. Torch-free."""

from typing import Literal

from pydantic import Field, model_validator

from models.config import ModelShape

Cell = Literal["rnn", "gru", "lstm"]
Score = Literal["none", "dot", "scaled_dot", "cosine", "general", "projected", "additive", "concat", "location"]
Attends = Literal["before", "after"]
FirstState = Literal["copied", "projected"]

GATES: dict[Cell, int] = {"rnn": 1, "gru": 3, "lstm": 4}
STATES: dict[Cell, tuple[str, ...]] = {"rnn": ("h",), "gru": ("h",), "lstm": ("h", "c")}
"""What a cell keeps."""
ADDED: tuple[Score, ...] = ("additive", "concat", "location")
"""Scores that are no product of a query with a key."""


class RecurrentConfig(ModelShape):
    """Every choice `models.architectures.recurrent.model.Recurrent` can be built with.

    All states have `width` numbers; in a bidirectional encoder, half of them read from the left, half from the right.
    """

    architecture: Literal["recurrent"]
    decoder_layers: int = Field(gt=0)
    cell: Cell = "gru"
    """"rnn": h' = tanh(W x + U h). "gru": Cho et al. 2014, where the reset gate stands after the product with U, as in
    cuDNN and PyTorch. "lstm": Hochreiter and Schmidhuber 1997, with forget gates (Gers et al. 2000)."""
    bidirectional: bool = True
    """The encoder's."""
    reverse_source: bool = False
    """The encoder reads its source from the end (Sutskever et al. 2014, section 3.3)."""
    first_state: FirstState = "projected"
    """"copied": each decoder layer starts with the last state of the encoder layer beside it (Sutskever et al. 2014).
    "projected": with tanh(W h) of the last encoder layer's last states (Cho et al. 2014; Bahdanau et al. 2015)."""
    score: Score = "additive"
    """How a state s of the decoder is compared with a hidden state h of the source; "none": not at all.

    dot s.h, scaled_dot s.h / sqrt(width), cosine b s.h / |s||h|, general s.Wh, projected (Qs).(Kh) / sqrt(width),
    additive and concat v.tanh(Ws + Uh), location (Ws)[place].
    """
    window: int | None = Field(default=None, gt=0)
    """Attention is to the token of the source at the target's place and to so many on either side (local-m of Luong et
    al. 2015, section 3.2); behind the source's end, to its last ones. None: to all."""
    attends: Attends = "before"
    """"before": with the state before the token, what is found goes into the cell (Bahdanau et al. 2015). "after": with
    the new state, what is found goes into the readout (Luong et al. 2015)."""
    input_feeding: bool = False
    """The readout goes into the next step's cell (Luong et al. 2015, section 3.3)."""
    scale_embedding: bool = False
    """Multiply token embeddings by sqrt(width), as Transformers do."""

    @model_validator(mode="after")
    def _consistent(self) -> "RecurrentConfig":
        if self.bidirectional and self.width % 2:
            raise ValueError(f"width is {self.width}; a bidirectional encoder takes an even number")
        if self.first_state == "copied" and self.encoder_layers != self.decoder_layers:
            raise ValueError(
                f"first_state is 'copied'; there are {self.encoder_layers} encoder layers and {self.decoder_layers} "
                "decoder layers: take as many, or 'projected'"
            )
        if self.score == "none" and self.window:
            raise ValueError(
                f"window is {self.window} and score is 'none'; without attention, there is nothing to limit"
            )
        if self.score == "none" and self.input_feeding:
            raise ValueError("input_feeding is true and score is 'none'; without attention, the state is the readout")
        return self

    @property
    def states(self) -> list[str]:
        """Names of the cells' states, layer by layer."""
        return [f"{part}{layer}" for layer in range(self.decoder_layers) for part in STATES[self.cell]]

    @property
    def directions(self) -> int:
        """Of the encoder."""
        return 2 if self.bidirectional else 1

    @property
    def decoder_head_dim(self) -> int:
        """Attention has one head."""
        return self.width

    @property
    def score_scale(self) -> float:
        """What a query times a key is multiplied by."""
        return self.width**-0.5 if self.score in ("scaled_dot", "projected") else 1.0

    @property
    def compares_keys(self) -> bool:
        """A score is a query's product with a key, and nothing more."""
        return self.score != "none" and self.score not in ADDED and self.window is None

    @property
    def adds(self) -> bool:
        """A score is v.tanh of a query and a key, added."""
        return self.score in ("additive", "concat")
