"""Errors; each message says what to do."""


class PilotlabError(Exception):
    """Base of the errors of this package and of `pilotlab-ray`."""


class RefusedError(PilotlabError):
    """An argument, the experiment or the folder was refused; nothing was run."""
