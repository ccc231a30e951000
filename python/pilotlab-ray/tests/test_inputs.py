"""Files that are sent to the nodes, and experiments that are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from pilotlab_ray import RefusedError
from pilotlab_ray.inputs import load


def test_files_that_pilotlab_reads_are_sent(home: Path, experiment: Path) -> None:
    inputs = load(experiment)
    assert set(inputs.files) == {
        "profiles/calibration/server.toml",
        "profiles/server.toml",
        "profiles/ssd/drive.toml",
        "papers/claims.toml",
        "experiments/deep.toml",
        "experiments/x/common.toml",
        "experiments/x/e.toml",
    }
    assert inputs.file == "experiments/x/e.toml"
    assert inputs.path == experiment.resolve()
    assert load(home / "experiments/x/e") == inputs


def test_the_hash_depends_on_each_content_and_path(home: Path, experiment: Path) -> None:
    before = load(experiment).hash
    assert load(experiment).hash == before
    (home / "profiles/server.toml").rename(home / "profiles/renamed.toml")
    renamed = load(experiment).hash
    (home / "experiments/deep.toml").write_text("title = 'changed'")
    assert len({before, renamed, load(experiment).hash}) == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[workload]\nkind = 'fio'", "pilotlab submit slurm"),
        ("include = ['measured.toml']", "pilotlab submit slurm"),
        ("[[pass]]\nname = 'p'", "run each of them"),
        ("title = 't'", "is not an experiment"),
        ("title = ", "e.toml"),
        ("include = ['e.toml']", "includes itself"),
        ("include = ['missing.toml']", "cannot read"),
        ("include = ['../../../outside.toml']", "move it there"),
        ("[trace]\nsource = 'traces/a.csv'\n[[policy]]\nname = 'a'", "--set trace.source=/PATH"),
        ("[trace]\nsource = '/a.csv'\nsizes = 'b.csv'\n[[policy]]\nname = 'a'", "--set trace.sizes=/PATH"),
    ],
)
def test_other_files_are_refused(experiment: Path, text: str, message: str) -> None:
    experiment.with_name("measured.toml").write_text("[workload]\nkind = 'fio'")
    (experiment.parents[3] / "outside.toml").write_text("")
    experiment.write_text(text)
    with pytest.raises(RefusedError, match=message):
        load(experiment)


@pytest.mark.parametrize("argument", ["trace.source=/a.csv", "trace.source='/a.csv'", "trace.source = surrogate:alibaba"])
@pytest.mark.parametrize("form", [["--set", "{}"], ["--set={}"]])
def test_a_trace_at_an_absolute_path_and_a_surrogate_are_accepted(experiment: Path, argument: str, form: list[str]) -> None:
    experiment.write_text("[trace]\nsource = 'a.csv'\n[[policy]]\nname = 'a'")
    assert load(experiment, [word.format(argument) for word in form])


@pytest.mark.parametrize("argument", ["--out", "--shard=1/2", "--all", "--workers", "--json"])
def test_options_that_are_set_here_are_refused(experiment: Path, argument: str) -> None:
    with pytest.raises(RefusedError, match="omit it"):
        load(experiment, ["--smoke", argument])


def test_a_folder_without_calibration_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "e.toml"
    path.write_text("[[policy]]\nname = 'a'")
    with pytest.raises(RefusedError, match="profiles/calibration"):
        load(path)
    with pytest.raises(RefusedError, match="name the file of an experiment"):
        load(tmp_path / "missing")
