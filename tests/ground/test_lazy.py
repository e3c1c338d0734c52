"""Modules that are loaded when they are first used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import sys, threading
sys.path.insert(0, sys.argv[1])
from fewview.ground._lazy import postpone
postpone("slow", "slow_whole", "absent")
import slow, slow_whole
assert "loaded" not in vars(sys), vars(sys)["loaded"]
assert slow.__file__ and slow.__spec__.name == "slow" and "loaded" not in vars(sys)
found = []
threads = [threading.Thread(target=lambda: found.append(slow.late)) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert found == [7] * 8 and sys.loaded == ["slow"], (found, sys.loaded)
assert type(slow) is type(sys)
try:
    slow.nothing
    raise SystemExit("it has a name that it does not have")
except AttributeError as error:
    assert "has no attribute 'nothing'" in str(error)
from slow_whole.part import value
assert value == 3 and sys.loaded == ["slow", "slow_whole", "part"], sys.loaded
try:
    import absent
    raise SystemExit("it is there")
except ImportError:
    pass
"""


def test_postponed_modules_are_loaded_once_and_whole(tmp_path: Path) -> None:
    note = "import sys\nsys.loaded = [*getattr(sys, 'loaded', ()), {!r}]\n"
    wait = "import time\ntime.sleep(0.2)\n"
    (tmp_path / "slow.py").write_text(note.format("slow") + wait + "late = 7\n")
    (tmp_path / "slow_whole").mkdir()
    (tmp_path / "slow_whole" / "__init__.py").write_text(note.format("slow_whole") + "base = 3\n")
    (tmp_path / "slow_whole" / "part.py").write_text(
        note.format("part") + "from slow_whole import base\nvalue = base\n"
    )
    command = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    out = subprocess.run(command, capture_output=True, text=True, check=False)
    assert out.returncode == 0, out.stderr


def test_commands_start_without_what_scikit_learn_hardly_uses(tmp_path: Path) -> None:
    code = (
        "import sys; from fewview.cli import main; sys.argv = ['fewview', 'methods', 'ugda']\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "assert 'sklearn.base' in sys.modules and 'torch' in sys.modules\n"
        "assert 'scipy.stats._stats_py' not in sys.modules\n"
        "assert 'pandas.core.frame' not in sys.modules and 'sklearn.cluster' not in sys.modules\n"
        "import scipy.stats, pandas\n"
        "assert scipy.stats.norm.cdf(0) == 0.5 and pandas.DataFrame({'a': [1]}).shape == (1, 1)\n"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert out.returncode == 0, out.stderr
