"""Tables of results."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

import pilotlab_ray
from pilotlab_ray import RefusedError

HEAD = "# schema=2\n# profile=p hash=00ff\n# experiment=e\n# file=experiments/e.toml\n# asked={}\n"
HEADER = "experiment,point,variant,policy,replication,seed,metric,unit,value\n"
RUNS = """\
# cell=00 rate=10,default,static
e,rate=10;z=0.5;mix=a,default,static,0,1,iops,IOPS,9.5
e,rate=10;z=0.5;mix=a,default,static,0,1,power_w,W,3e2
e,rate=10;z=0.5;mix=a,default,static,0,1,saturated,1,0
e,rate=20;z=1;mix=b,default,static,1,18446744073709551615,iops,IOPS,19
e,rate=20;z=1;mix=b,default,static,1,18446744073709551615,saturated,1,1
"""
INTERRUPTED = "e,rate=30;z=1;mix=b,default,static,0,1,iops,IOPS,1\ne,rate=30;z=1;mi"


def write(folder: Path, text: str, name: str = "values.csv") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    compression = "zstd" if name.endswith(".zst") else None
    with pa.output_stream(folder / name, compression=compression) as file:
        file.write(text.encode())
    return folder


def test_a_row_is_a_run_and_columns_have_types_and_units(tmp_path: Path) -> None:
    folder = write(tmp_path / "results/e", HEAD + HEADER + RUNS + INTERRUPTED)
    (folder / "results.json").write_text(json.dumps({"metrics": [{"key": "power_w", "title": "mean power"}]}))
    table = pilotlab_ray.read(tmp_path)
    assert table.to_pydict() == {
        "rate": [10, 20],
        "z": [0.5, 1.0],
        "mix": ["a", "b"],
        "variant": ["default", "default"],
        "policy": ["static", "static"],
        "replication": [0, 1],
        "seed": [1, 2**64 - 1],
        "iops": [9.5, 19.0],
        "power_w": [300.0, None],
        "saturated": [False, True],
    }
    assert [table.schema.field(name).type for name in ("rate", "z", "mix")] == [pa.int64(), pa.float64(), pa.string()]
    assert table.schema.field("power_w").metadata == {b"unit": b"W", b"title": b"mean power"}
    assert table.schema.field("iops").metadata == {b"unit": b"IOPS"}
    assert table.schema.metadata == {
        b"schema": b"2",
        b"profile": b"p",
        b"hash": b"00ff",
        b"experiment": b"e",
        b"file": b"experiments/e.toml",
    }


def test_a_plain_file_extends_a_compressed_one(tmp_path: Path) -> None:
    first, second = RUNS[: RUNS.index("e,rate=20")], RUNS[RUNS.index("e,rate=20") :]
    write(tmp_path / "a", HEAD + HEADER + RUNS)
    write(tmp_path / "b", HEAD + HEADER + first, "values.csv.zst")
    write(tmp_path / "b", HEAD + HEADER + second)
    assert pilotlab_ray.read(tmp_path / "a").equals(pilotlab_ray.read(tmp_path / "b"))


def test_measured_runs_and_points_without_parameters_are_read(tmp_path: Path) -> None:
    write(tmp_path, "# schema=2\n# host=node7 hash=1\n" + HEADER + "e,-,default,governor,0,1,iops,IOPS,5\n")
    table = pilotlab_ray.read(tmp_path)
    assert table.to_pylist() == [{"variant": "default", "policy": "governor", "replication": 0, "seed": 1, "iops": 5.0}]
    assert table.schema.metadata[b"host"] == b"node7"


def test_the_merged_results_of_a_run_are_read_not_its_shares(tmp_path: Path) -> None:
    write(tmp_path / "shard-1/e", "not read")
    write(tmp_path / "results/e", HEAD + HEADER + RUNS)
    assert pilotlab_ray.read(tmp_path).num_rows == 2


def test_other_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="has no values"):
        pilotlab_ray.read(tmp_path)
    write(tmp_path / "old", HEAD.replace("schema=2", "schema=1") + HEADER)
    with pytest.raises(RefusedError, match="another version"):
        pilotlab_ray.read(tmp_path)
    write(tmp_path / "old", HEAD + HEADER + "a,b\n")
    with pytest.raises(RefusedError, match="invalid line 'a,b'"):
        pilotlab_ray.read(tmp_path)
    write(tmp_path / "new", HEAD + HEADER)
    with pytest.raises(RefusedError, match="has 2 experiments"):
        pilotlab_ray.read(tmp_path)


def test_committed_results_are_read() -> None:
    results = Path(__file__).parents[3] / "results/fig3"
    if not results.is_dir():
        pytest.skip("not in the repository")
    table = pilotlab_ray.read(results)
    assert table.num_rows > 200
    assert set(table.column("rate").to_pylist()) >= {10_000, 10_240_000}
    assert table.schema.field("cpu_power_w").metadata[b"unit"] == b"W"
