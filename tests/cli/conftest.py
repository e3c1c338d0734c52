"""Shared by the tests of the command line: the command, run in this process."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from fewview.cli import main

Invoke = Callable[..., tuple[int, str, str]]


@pytest.fixture
def invoke(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Invoke:
    """Run the command in this process: exit status, standard output, standard error."""

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["fewview", *arguments])
        code = 0
        try:
            main()
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else int(error.code is not None)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call
