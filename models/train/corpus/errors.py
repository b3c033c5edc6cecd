"""Why a corpus cannot be built."""


class CorpusError(Exception):
    """The message names what is missing or broken, and says what to do."""
