"""Why a run of `dragoman bulk` does not begin, or ends early."""


class BulkError(Exception):
    """The run ends. What is finished stays; the message says where it stands and what to do."""


class WrongUsage(BulkError):
    """It does not begin: what is asked for cannot be done."""
