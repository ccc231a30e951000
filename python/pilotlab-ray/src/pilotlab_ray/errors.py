"""Errors; each message says what to do."""

from pilotlab import PilotlabError, RefusedError

__all__ = ["PilotlabError", "RefusedError", "ShareError"]


class ShareError(PilotlabError):
    """A share failed, or was lost more often than it may be retried. Finished shares are kept."""

    def __init__(self, message: str, *, share: int, code: int | None = None, stderr: str = "") -> None:
        super().__init__(message)
        self.share = share
        """Number of the share, from 1."""
        self.code = code
        """Exit code of the program; `None` if the share was lost."""
        self.stderr = stderr
        """Last lines of the program's standard error."""
