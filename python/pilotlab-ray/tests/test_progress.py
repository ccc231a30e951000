"""The progress line."""

from __future__ import annotations

import io

import pytest

from pilotlab_ray.progress import Progress, duration


class Terminal(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


def finish(progress: Progress, count: int) -> None:
    for _ in range(count):
        progress.add()
    progress.close()


def test_a_line_is_overwritten_on_a_terminal() -> None:
    file = Terminal()
    finish(Progress("e", 1, 3, None, file), 2)
    lines = [line.split(",")[0].strip() for line in file.getvalue().split("\r")]
    assert lines == ["", "e: 1 of 3 shares", "e: 2 of 3 shares", "e: 3 of 3 shares"]
    assert file.getvalue().endswith("\n")


def test_nothing_is_written_elsewhere_unless_requested() -> None:
    silent, lines, terminal = io.StringIO(), io.StringIO(), Terminal()
    finish(Progress("e", 0, 2, None, silent), 2)
    finish(Progress("e", 0, 2, True, lines), 2)
    finish(Progress("e", 0, 2, False, terminal), 2)
    assert (silent.getvalue(), terminal.getvalue()) == ("", "")
    assert lines.getvalue() == "e: 0 of 2 shares\ne: 2 of 2 shares\n"


def test_the_remaining_time_follows_from_shares_of_this_call() -> None:
    progress = Progress("e", 50, 100, False, io.StringIO())
    assert progress.text(10.0) == "e: 50 of 100 shares"
    finish(progress, 10)
    assert progress.text(60.0) == "e: 60 of 100 shares, about 4 min left"


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0 s"), (89, "89 s"), (90, "2 min"), (7200, "2 h 0 min"), (9000, "2 h 30 min")])
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text
