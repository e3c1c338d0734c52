"""The process that reads foreign files: its limits hold, and whatever it does is a clear error."""

from __future__ import annotations

import os
import tempfile
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest
import scipy.io

import fewview.files._guarded as foreign
from fewview.errors import FewviewError, FewviewWarning
from fewview.files._limits import memory_limit, time_limit
from fewview.samples._data import MultiViewData

read, write = MultiViewData.read, MultiViewData.write


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a.mat"
    scipy.io.savemat(path, {"a": np.ones((2, 3)), "gt": [[1], [2]]})
    return path


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the child leaves its results."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def replace_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    """Let the child do something else where it would read a MATLAB file."""
    (tmp_path / "site").mkdir(exist_ok=True)
    code = f"""\
    import fewview.files._matlab, os, sys, time, warnings
    import numpy as np
    from fewview.errors import FewviewError, FewviewWarning

    def load(paths, memory, labels):
        {body}

    fewview.files._matlab.load_matlab = load
    """
    (tmp_path / "site" / "sitecustomize.py").write_text(dedent(code))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))


DEEDS: dict[str, tuple[str, str]] = {
    "abort": ("os.abort()", r"made the MATLAB reader stop \(SIGABRT"),
    "leave": ("os._exit(3)", r"made the MATLAB reader stop \(exit status 3\)"),
    "last words": (
        "os.write(2, b'bad heap'); os._exit(3)", r"made the MATLAB reader stop \(bad heap\)"),
    "fill memory": ("np.ones(10**8)", r"needs more than 0\.3 GiB of memory.*READ_MEMORY"),
    "fill memory in C": (
        "raise OSError('memory allocation failed for H5Dread')", r"needs more than 0\.3 GiB"),
    "fill memory with bytes": ("[bytes(10**7) for _ in range(100)]", r"needs more than 0\.3 GiB"),
    "no memory to say so": (
        "import fewview.files._guarded as g, resource as r; say = g.json.dumps; "
        "held = r.getrlimit(r.RLIMIT_AS); g.json.dumps = lambda *a, **k: "
        "np.ones(10**8) if r.getrlimit(r.RLIMIT_AS) == held else say(*a, **k); raise MemoryError",
        r"needs more than 0\.3 GiB"),
    "raise": ("raise KeyError('x')", r"KeyError \('x'\) in \S+, a library's.*does not suit"),
    "say damage": (
        "raise KeyError('bad header, file is truncated')",
        "is not a readable MATLAB file, or is damaged or cut short"),
    "damage by kind": ("raise EOFError", "is not a readable MATLAB file, or is damaged"),
    "recurse": ("return load(paths, memory, labels)", "RecursionError.*a library's"),
    # What our own reader does wrong is never called damage.
    "return an object": ("return object()", r"own reader of MATLAB.*TypeError.*_guarded\.py"),
    "return objects": ("return {'views': np.array([None])}", "own reader of MATLAB.*report this"),
    "slip": (
        "import fewview.files._matlab as m; m._is_hdf5(None)",
        r"own reader.*AttributeError.*_matlab\.py, line \d+"),
    "a library slips on foreign bytes": (
        "import json; json.loads(None)", r"TypeError.*in __init__\.py, a library's.*doctor"),
    "leave nonsense": (
        "import fewview.files._guarded as f; f._pack = lambda *_: {f._ARRAY: 1}; "
        "return {'views': np.ones(1)}",
        "the reader left no usable result"),
    "refuse": ("raise FewviewError('holds nothing')", r"a\.mat: holds nothing"),
    "no torch": ("raise FewviewError(str('torch' in sys.modules))", r"a\.mat: False"),
    "no samples": (
        "raise FewviewError(str(sorted({name.split('.')[1] for name in sys.modules if "
        "name.startswith('fewview.')})))", r"a\.mat: \['_version', 'errors', 'files', 'ground'\]"),
    "another version of a library": (
        "np.sort([2, 1], strange=True)",
        r"not the fault of the file.*TypeError.*unexpected keyword argument 'strange'.*upgrade"),
    "a library that is not there": (
        "import strange_parser", "not the fault of the file.*ModuleNotFoundError"),
    "fill the disk with an array": (
        "import resource as r; r.setrlimit(r.RLIMIT_FSIZE, (1000, 1000)); "
        "return {'views': np.ones(10**6)}",
        r"not the fault of the file: no room is left in \S+temporary .*, 8.0 MB needed.*TMPDIR"),
    "fill the disk with words": (
        "import resource as r; r.setrlimit(r.RLIMIT_FSIZE, (1000, 1000)); "
        "return {'views': 'x' * 10**6}",
        r"not the fault of the file: no room is left in .*, 1.0 MB needed"),
    "no sklearn": ("raise FewviewError(str('sklearn' in sys.modules))", r"a\.mat: False"),
}  # fmt: skip


@pytest.mark.parametrize("deed", DEEDS)
def test_deeds_of_the_child(
    deed: str, file: Path, temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body, message = DEEDS[deed]
    file.write_bytes(b"\x89HDF\r\n\x1a\n")  # h5py is imported faster than scipy
    replace_reader(tmp_path, monkeypatch, body)
    monkeypatch.setenv("FEWVIEW_READ_MEMORY", "300M")
    with pytest.raises(FewviewError, match=message) as caught:
        read(file)
    assert str(caught.value).startswith(f"{file}: ")
    assert not list(temporary.iterdir())


LIBRARIES = {
    "a.mat": "import scipy.io as m; m.loadmat = {}",
    "v73.mat": "import h5py as m; m.File = {}",
    "a.h5ad": "import anndata.io as m; m.read_elem = {}",
    "a.h5mu": "import anndata.io as m; m.read_elem = {}",
    "tables": "import pyarrow.parquet as m; m.ParquetFile = {}",
    "a.npz": "np.lib.format.read_magic",
    "arrays": "np.lib.format.read_magic",
}
FAULTS = {
    "TypeError('f() got an unexpected keyword argument')": "not the fault of the file.*upgrade",
    "AttributeError(\"module 'numpy' has no attribute 'float'\")": "not the fault of the file",
    "TypeError('an integer is required')": "a library's.*fewview doctor",
    "OSError(28, 'No space left on device')": "not the fault of the file: .*No space left",
}


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_library_that_fails_is_not_damage_of_the_file(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, data = tmp_path / name, MultiViewData({"a": np.ones((2, 3))}, ["x", "y"])
    if name == "v73.mat":
        path.write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(600))
    else:
        data.write(path, format={"tables": "parquet", "arrays": "npy"}.get(name))
    (tmp_path / "site").mkdir()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    for fault, told in FAULTS.items():
        if LIBRARIES[name].startswith("np."):  # read in this process

            def fails(*_: object, fault: str = fault) -> None:
                raise eval(fault)

            monkeypatch.setattr(np.lib.format, "read_magic", fails)
        else:
            code = f"def fails(*_, **__):\n    raise {fault}\n{LIBRARIES[name].format('fails')}"
            (tmp_path / "site" / "sitecustomize.py").write_text(code)
        with pytest.raises(FewviewError, match=told) as caught:
            read(path)
        assert str(caught.value).startswith(str(path))
        assert "damaged" not in str(caught.value)


def test_a_library_that_cannot_be_imported_is_not_damage(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "site" / "scipy").mkdir(parents=True)
    (tmp_path / "site" / "scipy" / "__init__.py").write_text("raise ImportError('libgomp.so.1')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    with pytest.raises(
        FewviewError, match=r"not the fault of the file.*not start.*libgomp"
    ) as told:
        read(file)
    assert "damaged" not in str(told.value)


def test_a_child_that_never_ends(
    file: Path, temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_reader(tmp_path, monkeypatch, f"open({str(tmp_path / 'pid')!r}, 'w').write("
                   "str(os.getpid())); time.sleep(1000)")  # fmt: skip
    monkeypatch.setenv("FEWVIEW_READ_SECONDS", "0.5")
    start = time.perf_counter()
    with pytest.raises(FewviewError, match=r"took longer than 0\.5 s to read.*READ_SECONDS"):
        read(file)
    assert time.perf_counter() - start < 60
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
    assert not list(temporary.iterdir())


def test_a_child_that_hangs_up_and_lingers(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pipe is closed, as after a crash, but the process is slow to end."""
    replace_reader(tmp_path, monkeypatch, "os.closerange(3, 100); time.sleep(1000)")
    monkeypatch.setattr(foreign, "_END_SECONDS", 0.5, raising=False)
    start = time.perf_counter()
    with pytest.raises(FewviewError, match=r"made the MATLAB reader stop \(it hung up\)"):
        read(file)
    assert time.perf_counter() - start < 60


def test_chatter_and_warnings(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_reader(
        tmp_path,
        monkeypatch,
        "print('done'); os.write(1, b'done\\\\n'); warnings.warn('strange', FewviewWarning); "
        "return {'views': {'v': np.ones((1, 2))}, 'ids': ['x']}",
    )
    with pytest.warns(FewviewWarning, match="strange"):
        data = read(file)
    assert data == MultiViewData({"v": [[1.0, 1.0]]}, ids=["x"])


def test_a_reader_can_be_kept_and_is_replaced_when_it_dies(file: Path) -> None:
    with foreign.kept_reader():
        read(file)
        kept = foreign._kept.get()
        assert kept is not None
        process = kept.process
        with foreign.kept_reader():
            read(file)
        assert foreign._kept.get() is kept
        assert kept.process is process
        assert process is not None
        process.kill()
        process.wait()
        assert read(file).view_dims == {"a": 3}
        assert kept.process is not process
    assert foreign._kept.get() is None
    assert kept.process is None


def test_threads_do_not_share_a_reader(file: Path) -> None:
    with foreign.kept_reader(), ThreadPoolExecutor(3) as pool:
        assert {data.n_samples for data in pool.map(read, [file] * 3)} == {2}
        kept = foreign._kept.get()
        assert kept is not None
        assert kept.process is None, "only the thread of the block uses it"


def test_modules_beside_the_file_are_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = MultiViewData({"a": [[1.0]]}, ["x"])
    for suffix in (".mat", ".h5ad", ".h5mu"):
        write(data, tmp_path / f"a{suffix}")
    for module in ("h5py", "scipy", "numpy", "json", "sitecustomize", "fewview"):
        (tmp_path / f"{module}.py").write_text("open('executed', 'w')\n")
    monkeypatch.chdir(tmp_path)
    for suffix in (".mat", ".h5ad", ".h5mu"):
        assert read(f"a{suffix}") == data
    assert not (tmp_path / "executed").exists()


def test_limits_grow_with_the_file_and_can_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    assert memory_limit(0) == 2**31
    assert memory_limit(10**9) > 10**10
    assert time_limit(10**9) > 2 * time_limit(0)
    for text, size in (
        ("500M", 500 * 2**20),
        ("1.5 GiB", 3 * 2**29),
        ("1000", 1000),
        ("2kb", 2048),
    ):
        monkeypatch.setenv("FEWVIEW_READ_MEMORY", text)
        assert memory_limit(10**12) == size
    monkeypatch.setenv("FEWVIEW_READ_SECONDS", "7.5")
    assert time_limit(10**12) == 7.5
    for text in ("much", "1.2.3G", "-5M"):
        monkeypatch.setenv("FEWVIEW_READ_MEMORY", text)
        with pytest.raises(FewviewError, match="give a size such as 500M"):
            memory_limit(1)
    for text in ("long", "-1", "nan", "inf", "0"):
        monkeypatch.setenv("FEWVIEW_READ_SECONDS", text)
        with pytest.raises(FewviewError, match="give a number of seconds"):
            time_limit(1)


def test_what_does_not_fit_the_limit_of_an_npz(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez_compressed(tmp_path / "a.npz", view_a=np.zeros((2000, 100)), view_b=np.ones((2000, 9)))
    assert read(tmp_path / "a.npz").view_dims == {"a": 100, "b": 9}
    monkeypatch.setenv("FEWVIEW_READ_MEMORY", "1M")
    with pytest.raises(FewviewError, match=r"a\.npz: needs more than 0\.0 GiB"):
        read(tmp_path / "a.npz")


def test_reading_is_quiet(file: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read(file)
