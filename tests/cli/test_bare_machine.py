from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from fewview.cli._app import app
from fewview.evaluate.__main__ import main as bare_bench
from fewview.evaluate.__main__ import parser as bench_parser
from fewview.ground._flags import BENCH


def test_evaluate_needs_no_terminal_or_drawing_libraries() -> None:
    """`python -m fewview.evaluate` on a machine with numpy, scipy, scikit-learn and torch alone."""
    absent = ["typer", "rich", "matplotlib", "pooch", "h5py", "safetensors", "jinja2",
              "pandas", "pyarrow", "polars", "cachetools", "anndata", "dask"]  # fmt: skip
    script = (
        "import sys\n"
        f"for name in {absent!r}:\n    sys.modules[name] = None\n"
        "from fewview.evaluate.__main__ import main\n"
        "sys.exit(main(['digits', '--methods', 'proto,ugda,marginal,ptmap+ugda', '--eta', '0,0.3',"
        " '--splits', '1', '--episodes', '3', '--store', 'none']))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "proto" in done.stdout


def test_both_command_lines_have_the_declared_options() -> None:
    whole = get_command(app).commands["bench"]  # type: ignore[attr-defined]
    typed = {option.name: option for option in whole.params}
    parsed = {action.dest: action for action in bench_parser()._actions}
    for name, option in BENCH.items():
        assert tuple(typed[name].opts) == option.flags_of(name)
        assert tuple(parsed[name].option_strings) == option.flags_of(name)
        assert typed[name].help == parsed[name].help == option.help
        # Where nothing is typed, both give the same.
        assert (typed[name].default or None) == (parsed[name].default or None)
    assert set(typed) >= set(BENCH)


def test_a_bare_machine_looks_for_unknown_classes_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.json"
    words = ["digits", "--splits", "1", "--episodes", "3", "--open-set", "--json", str(path)]
    assert bare_bench(words) == 0
    assert "auroc" in capsys.readouterr().out
    assert '"auroc"' in path.read_text()
