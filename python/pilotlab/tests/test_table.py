"""Tables of results."""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import pilotlab
from pilotlab import RefusedError

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
    table = pilotlab.read_table(tmp_path)
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
    assert pilotlab.read_table(tmp_path / "a").equals(pilotlab.read_table(tmp_path / "b"))


def pack(text: str) -> bytes:
    """As `pilotlab` writes `values.csv.zst`: header and rows, then the comment lines in a skipped frame."""
    lines = text.splitlines(keepends=True)
    rows, comments = (
        pa.compress("".join(line for line in lines if line.startswith("#") == is_comment).encode(), "zstd", asbytes=True)
        for is_comment in (False, True)
    )
    return bytes(rows + struct.pack("<II", 0x184D2A50, len(comments)) + comments)


def test_comments_of_a_packed_file_are_read_from_the_skipped_frame(tmp_path: Path) -> None:
    write(tmp_path / "plain", HEAD + HEADER + RUNS)
    (tmp_path / "packed").mkdir()
    (tmp_path / "packed/values.csv.zst").write_bytes(pack(HEAD + HEADER + RUNS))
    plain, packed = (pilotlab.read_table(tmp_path / name) for name in ("plain", "packed"))
    assert packed.equals(plain)
    assert packed.schema.metadata == plain.schema.metadata


def test_with_pandas_the_result_is_a_data_frame(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    frame = pilotlab.read(write(tmp_path, HEAD + HEADER + RUNS))
    assert isinstance(frame, pd.DataFrame)
    assert frame.groupby("rate").iops.mean().to_dict() == {10: 9.5, 20: 19.0}
    assert frame.attrs["profile"] == "p"
    assert frame.attrs["units"] == {"iops": "IOPS", "power_w": "W"}


def test_without_pandas_the_result_is_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert isinstance(pilotlab.read(write(tmp_path, HEAD + HEADER + RUNS)), pa.Table)


def test_measured_runs_and_points_without_parameters_are_read(tmp_path: Path) -> None:
    write(tmp_path, "# schema=2\n# host=node7 hash=1\n" + HEADER + "e,-,default,governor,0,1,iops,IOPS,5\n")
    table = pilotlab.read_table(tmp_path)
    assert table.to_pylist() == [{"variant": "default", "policy": "governor", "replication": 0, "seed": 1, "iops": 5.0}]
    assert table.schema.metadata[b"host"] == b"node7"


def test_the_merged_results_of_a_run_are_read_not_its_shares(tmp_path: Path) -> None:
    write(tmp_path / "shard-1/e", "not read")
    write(tmp_path / "results/e", HEAD + HEADER + RUNS)
    assert pilotlab.read_table(tmp_path).num_rows == 2


def test_other_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="has no values"):
        pilotlab.read_table(tmp_path)
    write(tmp_path / "old", HEAD.replace("schema=2", "schema=1") + HEADER)
    with pytest.raises(RefusedError, match="another version"):
        pilotlab.read_table(tmp_path)
    write(tmp_path / "old", HEAD + HEADER + "a,b\n")
    with pytest.raises(RefusedError, match="invalid line 'a,b'"):
        pilotlab.read_table(tmp_path)
    write(tmp_path / "new", HEAD + HEADER)
    with pytest.raises(RefusedError, match="has 2 experiments"):
        pilotlab.read_table(tmp_path)


def test_committed_results_are_read() -> None:
    results = Path(__file__).parents[3] / "papers/sandman/results/fig3"
    if not results.is_dir():
        pytest.skip("not in the repository")
    table = pilotlab.read_table(results)
    assert table.num_rows > 200
    assert set(table.column("rate").to_pylist()) >= {10_000, 10_240_000}
    assert table.schema.field("cpu_power_w").metadata[b"unit"] == b"W"
