"""Shares, their folder, and what a repeated call computes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from pilotlab_ray import RefusedError, ShareError, worker
from pilotlab_ray.driver import Job

from .conftest import InProcess


@pytest.fixture
def compute(experiment: Path, program: Path, tmp_path: Path, cluster: InProcess) -> Callable[..., pa.Table]:
    """Runs the experiment."""

    def compute(shares: int | None = None, arguments: tuple[str, ...] = ()) -> pa.Table:
        cluster.computed.clear()
        job = Job(experiment, tmp_path / "out", arguments, program, shares)
        return job.run(cluster.connect, False)[0]

    return compute


def test_shares_are_merged_into_a_table(compute: Callable[..., pa.Table], tmp_path: Path) -> None:
    table = compute(3, ("--smoke",))
    assert table.column("rate").to_pylist() == [1, 2, 3]
    log = [json.loads(line) for line in (tmp_path / "out/shares.jsonl").read_text().splitlines()]
    assert [line["share"] for line in log] == [1, 2, 3]
    assert all(line["host"] and line["seconds"] > 0 for line in log)


def test_there_are_four_shares_per_cpu_and_at_most_one_per_run(compute: Callable[..., pa.Table], cluster: InProcess) -> None:
    assert compute().num_rows == 4
    cluster.computed.clear()
    compute()
    assert cluster.computed == []


def test_there_are_no_more_shares_than_runs(compute: Callable[..., pa.Table]) -> None:
    assert compute(100).num_rows == 6


def test_a_failed_share_is_named_and_others_are_kept(
    compute: Callable[..., pa.Table], experiment: Path, cluster: InProcess, tmp_path: Path
) -> None:
    text = experiment.read_text()
    experiment.write_text(text + "# fail 3\n")
    with pytest.raises(ShareError, match=r"share 3/4 failed on .* with exit code 3:\n(.*\n)*line 49\nIt is not retried\. Correct") as error:
        compute()
    assert (error.value.share, error.value.code, error.value.stderr[-7:]) == (3, 3, "line 49")
    assert sorted(path.name for path in (tmp_path / "out").glob("shard-*")) == ["shard-1", "shard-2"]
    with pytest.raises(ShareError, match="share 3/4"):
        compute()
    assert cluster.computed == [3]
    experiment.write_text(text)
    with pytest.raises(RefusedError, match="differ in: inputs: specify another folder"):
        compute()


def test_a_repeated_call_computes_missing_shares(compute: Callable[..., pa.Table], cluster: InProcess, tmp_path: Path) -> None:
    whole = compute(3)
    (tmp_path / "out/shard-2").rename(tmp_path / "elsewhere")
    assert compute().equals(whole)
    assert cluster.computed == [2]


@pytest.mark.parametrize(("shares", "arguments", "what"), [(4, (), "shares"), (3, ("--smoke",), "arguments")])
def test_a_folder_of_another_plan_is_refused(compute: Callable[..., pa.Table], shares: int, arguments: tuple[str, ...], what: str) -> None:
    compute(3)
    with pytest.raises(RefusedError, match=f"differ in: {what}:"):
        compute(shares, arguments)


def test_a_folder_of_another_program_is_refused(compute: Callable[..., pa.Table], program: Path) -> None:
    compute(3)
    program.write_text(program.read_text() + "# changed\n")
    with pytest.raises(RefusedError, match="differ in: program:"):
        compute(3)


def test_other_folders_are_refused(compute: Callable[..., pa.Table], tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    with worker.locked(out / ".lock"), pytest.raises(RefusedError, match="another process"):
        compute()
    (out / "file").write_text("")
    with pytest.raises(RefusedError, match="has other files"):
        compute()
    (out / "plan.json").write_text("{}")
    with pytest.raises(RefusedError, match="is not of this version"):
        compute()


def test_arguments_are_checked(experiment: Path, program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    for shares, retries, what in ((0, 3, "shares"), (10_001, 3, "shares"), (3, -1, "retries")):
        with pytest.raises(RefusedError, match=what):
            Job(experiment, out, program=program, shares=shares, retries=retries)
    with pytest.raises(RefusedError, match="is not a program"):
        Job(experiment, out, program=tmp_path / "missing")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert Job(experiment, out).name == "e"
    monkeypatch.setenv("PATH", "/")
    with pytest.raises(RefusedError, match="not in PATH"):
        Job(experiment, out)


@pytest.mark.parametrize(("script", "message"), [("echo error: no >&2; exit 2", "^no$"), ("echo 1.0", "another version")])
def test_what_the_program_refuses_is_refused(experiment: Path, tmp_path: Path, script: str, message: str) -> None:
    program = tmp_path / "other"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    with pytest.raises(RefusedError, match=message):
        Job(experiment, tmp_path / "out", program=program)
    assert not (tmp_path / "out").exists()
