"""Foreign binary files (MATLAB, HDF5, parquet) are read in a process of their own.

Their parsers are large C libraries that a damaged or hostile file can crash, hang or make eat all
memory. So a child process reads the file, under limits on memory and time, and leaves arrays
(`.npy`) and plain values (JSON) in a temporary folder; nothing is ever unpickled. This module is
both sides: `load` here, `main` in the child.
"""

from __future__ import annotations

import importlib
import json
import os
import queue
import re
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import date, datetime
from pathlib import Path
from typing import IO, Any

import numpy as np

from fewview.errors import FewviewError, FewviewWarning
from fewview.files._file_contents import Contents
from fewview.files._limits import (
    SECONDS,
    memory_limit,
    time_limit,
    too_large,
    used_memory,
    whose_fault,
)
from fewview.files._npz import read_npy
from fewview.ground._whole_files import is_full, no_room_for_temporary, temporary_folder

_START_SECONDS = 120.0  # to start Python and import a parser, on a busy machine
_END_SECONDS = 10.0  # for a process that hung up to be gone
_REPLY = "reply.json"
_UNWRITTEN = b"unwritten "  # instead of a reply, with the bytes that the folder had no room for
_ARRAY, _DATE = "\0array", "\0date"  # keys that no name in a file can have
_NO_MEMORY = "memory allocation failed|unable to allocate"


def load(
    reader: Callable[..., Any], parsers: Sequence[str], called: str, path: Path, **options: Any
) -> Any:
    """Read a file in a child process, under limits that follow from its size.

    The reader, a function at the top of a module, is called there with the path, `memory` in bytes
    and the options (plain values); it gives dicts, lists, plain values and arrays of numbers. The
    modules `parsers` are imported before limits hold. Messages say that the file is `called` so.
    """
    size = path.stat().st_size
    memory, seconds = memory_limit(size), time_limit(size)
    request = {
        "module": reader.__module__,
        "function": reader.__name__,
        "parsers": parsers,
        "called": called,
        "path": os.fspath(path.resolve()),
        "options": {**options, "memory": memory},
        "memory": memory,
        "seconds": seconds,
    }
    with temporary_folder() as folder, _reader() as process:
        process.ask({**request, "folder": os.fspath(folder)}, seconds, called)
        try:
            text = (folder / _REPLY).read_bytes()
            reply = json.loads(text, object_hook=lambda value: _unpack(value, folder))
            if "memory" in reply:
                raise FewviewError(too_large(memory))
            if "error" in reply:
                raise FewviewError(reply["error"])
            told, content = reply["warnings"], reply["content"]
        except FewviewError:
            raise
        except (KeyError, TypeError, OSError, ValueError, RecursionError, MemoryError) as error:
            # A child whose memory was damaged may write anything.
            raise FewviewError(f"the reader left no usable result ({error!r})") from None
    for message in told:
        warnings.warn(message, FewviewWarning, stacklevel=4)
    return content


def load_contents(
    reader: Callable[..., Any], parsers: Sequence[str], called: str, path: Path, labels: str | None
) -> Contents:
    """Read a file with a whole data set in a child process; see `load`."""
    found = load(reader, parsers, called, path, labels=labels)
    try:
        return Contents(**found, name=path.stem)
    except TypeError as error:
        raise FewviewError(f"the reader left no usable result ({error!r})") from None


@contextmanager
def kept_reader() -> Iterator[None]:
    """Use one child process for all foreign files read inside the block (by the same thread).

    By default every file gets a process of its own, which takes from half a second (MATLAB) to two
    seconds (AnnData) to start. A process that crashed or was stopped is replaced.

    Example:
        >>> with kept_reader():
        ...     pass  # read many files
    """
    with _reader() as reader:
        token = _kept.set(reader)
        try:
            yield
        finally:
            _kept.reset(token)


@contextmanager
def _reader() -> Iterator[_Reader]:
    """The process that a block around this one keeps, or a new one."""
    kept = _kept.get()
    reader = kept or _Reader()
    try:
        yield reader
    finally:
        if kept is None:
            reader.stop()


_kept: ContextVar[_Reader | None] = ContextVar("_kept", default=None)


class _Reader:
    """The child process as seen from here; started when first asked."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self._lines: queue.Queue[bytes] = queue.Queue()
        self._errors: IO[bytes] | None = None

    def ask(self, request: dict[str, Any], seconds: float, called: str) -> None:
        """Send one request and wait until its reply lies in its folder."""
        try:
            process = self.process
            if process is None or process.poll() is not None:
                self.stop()
                process = self._start()
            assert process.stdin is not None
            with suppress(BrokenPipeError):
                process.stdin.write(json.dumps(request).encode() + b"\n")
                process.stdin.flush()
            # The parser is imported first; only then does the time of the file run.
            ready = self._line(_START_SECONDS)
            done = self._line(seconds) if ready == b"ready\n" else ready
        except BaseException:
            self.stop()
            raise
        if done == b"done\n":
            return
        if done is not None and done.startswith(_UNWRITTEN):
            needed = re.sub(rb"\D", b"", done)[:18]
            raise FewviewError(
                "cannot be read here, which is not the fault of the file: "
                f"{no_room_for_temporary(int(needed or 0) or None)}"
            )
        if done is None:
            self.stop()
            if ready is None:
                raise FewviewError(
                    f"cannot be read now, which is not the fault of the file: the reader of "
                    f"{called} files did not start within {_START_SECONDS:g} s"
                )
            raise FewviewError(
                f"took longer than {seconds:g} s to read and was given up; it is damaged, or if "
                f"you trust it (or this machine is busy) set {SECONDS} to more seconds"
            )
        try:
            code = process.wait(timeout=_END_SECONDS)
        except subprocess.TimeoutExpired:
            code = None  # it closed the pipe and lives on, or dies slowly on a busy machine
        detail = self._last_error()
        self.stop()
        if code is None:
            detail = "it hung up"
        elif code < 0:
            detail = signal.Signals(-code).name + (f", {detail}" if detail else "")
        detail = detail or f"exit status {code}"
        if ready != b"ready\n":
            raise FewviewError(
                "cannot be read here, which is not the fault of the file: the reader of "
                f"{called} files does not start ({detail}); install its library again"
            )
        if code == -signal.SIGKILL:
            raise FewviewError(
                f"made the {called} reader stop ({detail}); it was ended from outside, most likely "
                "because the machine ran out of memory"
            )
        raise FewviewError(
            f"made the {called} reader stop ({detail}); the file is most likely damaged, get it "
            "again"
        )

    def stop(self) -> None:
        """End the process, whatever it is doing."""
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with suppress(OSError):
                        stream.close()
        if self._errors is not None:
            self._errors.close()
            self._errors = None

    def _start(self) -> subprocess.Popen[bytes]:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  closed in stop()
        self._lines = queue.Queue()
        # -P: modules are never taken from the current folder, which may hold the foreign files.
        command = [sys.executable, "-P", "-c", "from fewview.files._guarded import main; main()"]
        pipe = subprocess.PIPE
        try:
            self.process = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=self._errors, env=_environment()
            )
        except OSError as error:
            raise FewviewError(f"cannot start a process to read it ({error})") from None
        forwarded = (self.process.stdout, self._lines)
        threading.Thread(target=_forward, args=forwarded, daemon=True).start()
        return self.process

    def _line(self, seconds: float) -> bytes | None:
        """Wait for a line of the child; empty when it ended, None when the time is over."""
        try:
            return self._lines.get(timeout=seconds)
        except queue.Empty:
            return None

    def _last_error(self) -> str:
        if self._errors is None:
            return ""
        self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, self._errors.tell() - 2000))
        lines = self._errors.read().decode("utf-8", "replace").strip().splitlines()
        return lines[-1][:200] if lines else ""


def _forward(stream: IO[bytes], lines: queue.Queue[bytes]) -> None:
    with suppress(OSError, ValueError):  # closed meanwhile
        for line in stream:
            lines.put(line)
    lines.put(b"")


def _environment() -> dict[str, str]:
    root = os.fspath(Path(__file__).resolve().parents[2])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        # One thread: no pools that reserve address space, which the limit counts.
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "MALLOC_ARENA_MAX": "1",
        "ARROW_DEFAULT_MEMORY_POOL": "system",
        # HDF5 would load shared libraries for the filters that a file names.
        "HDF5_PLUGIN_PRELOAD": "::",
    }


# ------------------------------------------------------------------ what crosses the border


class _UnwrittenError(Exception):
    """The folder has no room for so many bytes."""


@contextmanager
def _writing(size: int) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        # numpy says how many bytes were written, not why.
        if error.errno is None or is_full(error):
            raise _UnwrittenError(size) from error
        raise


def _pack(value: Any, folder: Path) -> Any:
    """Put an array into the folder, or say what JSON does not know, for `_unpack`."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "fiub":
        number = len(list(folder.iterdir()))
        with _writing(value.nbytes), (folder / f"{number}.npy").open("xb") as stream:
            np.lib.format.write_array(stream, value, allow_pickle=False)
        return {_ARRAY: number}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (date, datetime)):
        return {_DATE: value.isoformat()}
    raise TypeError(f"a {type(value).__name__}")


def _unpack(value: dict[str, Any], folder: Path) -> Any:
    if isinstance(value.get(_ARRAY), int):
        file = folder / f"{value[_ARRAY]}.npy"
        with file.open("rb") as stream:
            return read_npy(stream, file.stat().st_size)
    if isinstance(value.get(_DATE), str):
        text = value[_DATE]
        return datetime.fromisoformat(text) if "T" in text else date.fromisoformat(text)
    return value


# ------------------------------------------------------------------ the child


def main() -> None:
    """Answer requests, one JSON line each, until there are no more."""
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints must not look like a reply
    for line in sys.stdin.buffer:
        request = json.loads(line)
        reader = getattr(importlib.import_module(request["module"]), request["function"])
        for parser in request["parsers"]:
            importlib.import_module(parser)
        replies.write(b"ready\n")
        replies.flush()
        folder = Path(request["folder"])
        try:
            try:
                with _limits(request["memory"], request["seconds"]):
                    reply = _answer(reader, request, folder)
            except MemoryError:  # said here, where limits hold no more: even that takes memory
                reply = json.dumps({"memory": True})
            with _writing(len(reply)):
                (folder / _REPLY).write_text(reply, encoding="ascii")
            replies.write(b"done\n")
        except _UnwrittenError as error:
            replies.write(_UNWRITTEN + b"%d\n" % error.args[0])
        replies.flush()


def _answer(reader: Any, request: dict[str, Any], folder: Path) -> str:
    """Read, and give the reply as JSON: content and warnings, or an error."""
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", FewviewWarning)
            content = reader(Path(request["path"]), **request["options"])
        reply = {"content": content, "warnings": [str(entry.message) for entry in caught]}
        return json.dumps(reply, default=lambda value: _pack(value, folder))
    except FewviewError as error:
        return json.dumps({"error": str(error)})
    except (_UnwrittenError, MemoryError):
        raise
    except Exception as error:
        if re.search(_NO_MEMORY, str(error), re.IGNORECASE):
            raise MemoryError from error
        return json.dumps({"error": whose_fault(error, request["called"])})


@contextmanager
def _limits(memory: int, seconds: float) -> Iterator[None]:
    """Limit address space above what Python and the parsers take already, and time."""
    try:
        import resource
    except ImportError:  # not a POSIX system: the parent still watches the time
        yield
        return
    before = resource.getrlimit(resource.RLIMIT_AS)
    hard = before[1]
    wanted = (used_memory() or 2**30) + memory
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_AS, (wanted, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Should the parent be gone, the alarm ends the child.
    signal.setitimer(signal.ITIMER_REAL, seconds + 10)
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
        signal.setitimer(signal.ITIMER_REAL, 0)
