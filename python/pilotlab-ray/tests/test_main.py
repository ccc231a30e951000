"""The command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from pilotlab_ray.__main__ import main, parser


def test_help_has_examples_and_fits_a_terminal() -> None:
    text = parser().format_help()
    assert "-- --set policy.sandman.settings.z=3" in text or "-- --set" in text
    assert "exit codes:" in text


def test_what_is_refused_has_exit_code_2(experiment: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    experiment.write_text("[workload]\nkind = 'fio'")
    assert main([str(experiment), "--out", str(tmp_path / "out")]) == 2
    assert "pilotlab submit slurm" in capsys.readouterr().err
    assert main([str(experiment), "--out", str(tmp_path / "out"), "--", "--shard", "1/2"]) == 2
    with pytest.raises(SystemExit) as error:
        main(["--out", "x"])
    assert error.value.code == 2
