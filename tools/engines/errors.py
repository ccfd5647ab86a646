"""The two ways in which an engine is not to be had: the machine lacks something, or the engine failed."""


class Unavailable(Exception):
    """This machine lacks what an engine needs; the text says what to install or to set."""


class EngineFailed(Exception):
    """An engine did not start, or went away; the text ends with the tail of its log."""
