"""What can be wrong with an experiment."""


class TrainingError(Exception):
    """Training cannot begin or go on. The message names what is wrong, with both numbers, and says what to do."""
