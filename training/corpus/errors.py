"""Why a corpus cannot be built."""

from training.errors import TrainingError


class CorpusError(TrainingError):
    """The message names what is missing or broken, and says what to do."""
