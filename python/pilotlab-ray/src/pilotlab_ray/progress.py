"""Progress: a line that is overwritten on a terminal and in a notebook; otherwise a line from time to time."""

from __future__ import annotations

import sys
import time
from typing import TextIO

# Interval between lines that are not overwritten.
INTERVAL_S = 10.0


class Progress:
    """Shares that have finished."""

    def __init__(self, name: str, done: int, of: int, show: bool | None, file: TextIO | None = None) -> None:
        self._file = sys.stderr if file is None else file
        self._overwrite = self._file.isatty() or "ipykernel" in sys.modules
        self._show = self._overwrite if show is None else show
        self._name, self._done, self._of = name, done, of
        self._begun = self._printed = time.monotonic()
        self._computed = 0
        self._print()

    def add(self) -> None:
        """One share has finished."""
        self._done += 1
        self._computed += 1
        now = time.monotonic()
        if self._overwrite or now - self._printed >= INTERVAL_S or self._done == self._of:
            self._printed = now
            self._print()

    def close(self) -> None:
        """Ends the line."""
        if self._show and self._overwrite:
            print(file=self._file)

    def text(self, elapsed_s: float) -> str:
        """The line after a time."""
        text = f"{self._name}: {self._done} of {self._of} shares"
        left = self._of - self._done
        if left and self._computed:
            text += f", about {duration(elapsed_s / self._computed * left)} left"
        return text

    def _print(self) -> None:
        if not self._show:
            return
        line = self.text(time.monotonic() - self._begun)
        text = f"\r{line:<79}" if self._overwrite else line + "\n"
        print(text, end="", file=self._file, flush=True)


def duration(seconds: float) -> str:
    """A time as text, as `pilotlab` writes it."""
    minutes = round(seconds / 60)
    if minutes < 2:
        return f"{seconds:.0f} s"
    if minutes < 120:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"
