"""Shares on a node."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pilotlab_ray import worker
from pilotlab_ray.inputs import load


@pytest.fixture
def compute(experiment: Path, program: Path) -> Callable[[int], worker.Outcome]:
    """Computes a share of two."""

    def compute(share: int) -> worker.Outcome:
        inputs = load(experiment)
        work: worker.Work = {"program": "00", "file": inputs.file, "path": "/driver/e.toml", "arguments": ["--smoke"], "shares": 2}
        return worker.compute(work, share, program.read_bytes, inputs.files)

    return compute


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end, "timed out"
        time.sleep(0.01)  # between two looks at the condition


def test_results_have_the_path_of_the_machine_that_merges(compute: Callable[[int], worker.Outcome]) -> None:
    outcome = compute(2)
    assert (outcome["code"], set(outcome["files"])) == (0, {"e/shard.json", "e/values.csv"})  # no lock
    manifest = json.loads(outcome["files"]["e/shard.json"])
    assert manifest == {"shard": "2/2", "command": ["/driver/e.toml", "--smoke"]}


def test_a_manifest_of_another_experiment_is_refused() -> None:
    with pytest.raises(ValueError, match="programs of one version"):
        worker.moved(b'{"command": ["/other.toml"]}', "/own.toml", "/driver/e.toml")


def test_the_program_is_stored_once_and_nothing_else_remains(compute: Callable[[int], worker.Outcome], cache: Path) -> None:
    compute(1)
    [folder] = cache.iterdir()
    inode = (folder / "program-00").stat().st_ino
    compute(2)
    assert (folder / "program-00").stat().st_ino == inode
    assert {entry.name for entry in folder.iterdir()} == {"program-00", ".lock"}


def test_an_exit_code_is_returned_with_the_last_lines(compute: Callable[[int], worker.Outcome], experiment: Path) -> None:
    with experiment.open("a") as file:
        file.write("# fail 1\n")
    outcome = compute(1)
    assert (outcome["code"], outcome["files"]) == (3, {})
    assert outcome["stderr"].splitlines() == [f"line {at}" for at in range(30, 50)]


def test_a_program_that_is_ended_by_a_signal_may_be_retried(compute: Callable[[int], worker.Outcome], experiment: Path) -> None:
    with experiment.open("a") as file:
        file.write("# kill 1\n")
    with pytest.raises(ChildProcessError, match="SIGKILL"):
        compute(1)


def test_a_program_of_another_architecture_is_reported(compute: Callable[[int], worker.Outcome], program: Path) -> None:
    program.write_bytes(b"\x7fELF other")
    outcome = compute(1)
    assert outcome["code"] == 126
    assert "build the program for the architecture" in outcome["stderr"]


def test_the_program_ends_with_its_worker(tmp_path: Path) -> None:
    started = tmp_path / "pid"
    script = f"echo $$ > {started}.part; mv {started}.part {started}; exec sleep 1000"
    code = f"from pilotlab_ray import worker\nworker.execute(['/bin/sh', '-c', {script!r}], '/')"
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        wait_until(started.exists)
        process.send_signal(signal.SIGKILL)
    status = Path(f"/proc/{started.read_text().strip()}/status")
    wait_until(lambda: not status.exists() or "\nState:\tZ" in status.read_text())


def test_a_folder_that_others_can_write_is_refused(cache: Path) -> None:
    folder = worker.private_folder()
    assert folder.parent == cache
    folder.chmod(0o777)
    with pytest.raises(PermissionError, match="remove it"):
        worker.private_folder()


def test_what_was_not_used_for_a_month_is_removed(compute: Callable[[int], worker.Outcome]) -> None:
    folder = worker.private_folder()
    for name in ("program-old", "share-old/inputs", "share-running"):
        (folder / name).mkdir(parents=True)
    for name in ("program-old", "share-old"):
        os.utime(folder / name, (0, 0))
    compute(1)
    assert {entry.name for entry in folder.iterdir()} == {"program-00", "share-running", ".lock"}


@pytest.mark.parametrize("name", ["/etc/x", "../x", "a/../../x"])
def test_paths_out_of_the_folder_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="not in the folder"):
        worker.write_files(tmp_path / "folder", {name: b""})
