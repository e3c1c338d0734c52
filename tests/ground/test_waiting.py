"""Threads that wait sleep, unless the user says otherwise."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from fewview.ground._waiting import SAID_BY_USER, wait_asleep


@pytest.mark.parametrize("said", [{}, {"GOMP_SPINCOUNT": "7"}, {"OMP_WAIT_POLICY": "ACTIVE"}])
def test_what_the_user_says_stays(said: dict[str, str]) -> None:
    found = dict(said)
    wait_asleep(found)
    assert found == (said or {"GOMP_SPINCOUNT": "1000"})


def test_it_is_said_before_torch_is_loaded() -> None:
    script = (
        "import os, sys, fewview; print('torch' in sys.modules, os.environ['GOMP_SPINCOUNT']); "
        "fewview.Proto; print('torch' in sys.modules)"
    )
    environment = {k: v for k, v in os.environ.items() if k not in SAID_BY_USER}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False", "1000", "True"]
