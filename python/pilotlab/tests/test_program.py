"""Results of a short run of the program in PILOTLAB, with this package and with `pandas` alone."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

import pilotlab

ROOT = Path(__file__).parents[3]
HEADER = ["experiment", "point", "variant", "policy", "replication", "seed", "metric", "unit", "value"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = os.environ.get("PILOTLAB")
    if program is None:
        pytest.skip("PILOTLAB does not name the program")
    out = tmp_path_factory.mktemp("out")
    words = ["run", "papers/sandman/fig3.toml", "--smoke", "--at", "rate=10000", "--out", str(out)]
    subprocess.run([program, *words], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return out / "fig3"


def test_the_package_reads_the_results(folder: Path) -> None:
    frame = pilotlab.read_table(folder)
    assert set(frame.column("rate").to_pylist()) == {10_000}
    assert min(frame.column("cpu_power_w").to_pylist()) > 0
    assert frame.schema.metadata[b"experiment"] == b"fig3"
    assert frame.schema.field("cpu_power_w").metadata[b"title"]


def test_plain_pandas_reads_both_files(folder: Path) -> None:
    pd = pytest.importorskip("pandas")
    pytest.importorskip("zstandard")
    summary, values = (pd.read_csv(folder / name) for name in ("results.csv", "values.csv.zst"))
    assert list(values.columns) == HEADER
    assert not values.isna().any(axis=None)
    assert {"rate", "policy", "cpu_power_w"} <= set(summary.columns)


def test_the_notebook_draws_three_figures(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pandas")
    monkeypatch.setenv("MPLBACKEND", "agg")
    plt = pytest.importorskip("matplotlib.pyplot")
    monkeypatch.setenv("RESULTS", str(folder))
    notebook = json.loads((ROOT / "docs/results.ipynb").read_text())
    names: dict[str, Any] = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
            assert cell["outputs"] == []
    figures = [plt.figure(number).axes[0] for number in plt.get_fignums()]
    assert len(figures) == 3
    policies = set(pilotlab.read_table(folder).column("policy").to_pylist())
    for axes in figures:
        assert {text.get_text() for text in axes.get_legend().get_texts()} == policies
        assert all(len(line.get_xdata()) > 0 for line in axes.get_lines())
