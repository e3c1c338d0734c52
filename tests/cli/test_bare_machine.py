from __future__ import annotations

import subprocess
import sys


def test_evaluate_needs_no_terminal_or_drawing_libraries() -> None:
    """`python -m fewview.evaluate` on a machine with numpy, scipy, scikit-learn and torch alone."""
    absent = ["typer", "rich", "matplotlib", "pooch", "h5py", "safetensors", "jinja2",
              "pandas", "pyarrow", "polars"]  # fmt: skip
    script = (
        "import sys\n"
        f"for name in {absent!r}:\n    sys.modules[name] = None\n"
        "from fewview.evaluate.__main__ import main\n"
        "sys.exit(main(['digits', '--splits', '1', '--episodes', '3', '--store', 'none']))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "proto" in done.stdout
