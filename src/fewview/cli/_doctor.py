"""`fewview doctor`: the versions, devices and folders of this installation."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, requires, version

from fewview.cli._declared import DataDir
from fewview.cli._text import print_text, shows


@shows("fewview doctor", "versions, devices and folders, to send with a report of a problem")
def doctor(data_dir: DataDir = None) -> None:
    """Show the versions of libraries, the devices, and the folders that are used."""
    import platform

    import torch
    from joblib import cpu_count

    from fewview._version import __version__
    from fewview.datasets._catalogue import data_folder
    from fewview.results._store import default_path

    print_text(
        f"fewview {__version__} on Python {platform.python_version()}, {platform.platform()}"
    )
    print("\nversions")
    for library, extra in _libraries():
        found = _installed(library) or f"not installed (fewview[{extra}])"
        print(f"  {library:<14}{found}")
    print("\ndevices")
    print(f"  cpu           {cpu_count()} core(s), {torch.get_num_threads()} thread(s) of torch")
    for index in range(torch.cuda.device_count()):
        facts = torch.cuda.get_device_properties(index)
        print(f"  cuda:{index}        {facts.name}, {facts.total_memory / 2**30:.0f} GiB")
    print("\nfolders")
    print_text(f"  data          {data_folder(data_dir)}", 16)
    print_text(f"  results       {default_path()}", 16)


def _libraries() -> list[tuple[str, str]]:
    """The libraries that fewview names, and the extra that needs each; "" where all do."""
    found = [
        re.match(r"([\w.-]+)>=[\d.]+(?:.*extra == ['\"](\w+)['\"])?", line)
        for line in requires("fewview") or ()
    ]
    named = [(match[1], match[2] or "") for match in found if match]
    without = ("all", "test", "docs", "dev")
    return [(library, extra) for library, extra in named if extra not in without]


def _installed(library: str) -> str | None:
    try:
        return version(library)
    except PackageNotFoundError:
        return None
