"""`fewview doctor`: what this installation has and where it looks."""

from __future__ import annotations

from fewview.cli._declared import DataDir
from fewview.cli._text import leads_to, print_text

OPTIONAL = ("narwhals", "typer", "rich", "matplotlib", "jinja2", "h5py", "safetensors", "pooch",
            "pandas", "pyarrow", "dask", "distributed")  # fmt: skip


@leads_to("fewview run")
def doctor(data_dir: DataDir = None) -> None:
    """Show versions, devices, threads, the data folder and the store."""
    import os
    import platform
    from importlib.metadata import PackageNotFoundError, version

    import torch
    from joblib import cpu_count
    from threadpoolctl import threadpool_info

    from fewview._version import __version__
    from fewview.datasets._catalogue import data_folder, get_spec, is_present, names
    from fewview.engine._registry import names as method_names
    from fewview.results._store import default_path

    def found(package: str) -> str:
        try:
            return version(package)
        except PackageNotFoundError:
            return "not installed"

    print_text(
        f"fewview {__version__} on Python {platform.python_version()}, {platform.platform()}"
    )
    print("\nversions")
    for package in ("numpy", "scipy", "scikit-learn", "torch", "threadpoolctl", *OPTIONAL):
        print(f"  {package:<14}{found(package)}")
    print("\ndevices")
    print(f"  cpu           {cpu_count()} core(s) for this process, {os.cpu_count()} in all")
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            facts = torch.cuda.get_device_properties(index)
            print(f"  cuda:{index}        {facts.name}, {facts.total_memory / 2**30:.0f} GiB")
    else:
        print("  cuda          none")
    print("\nthreads")
    print(f"  torch         {torch.get_num_threads()}")
    for pool in threadpool_info():
        name = pool.get("internal_api") or pool.get("user_api") or "?"
        print(f"  {name:<14}{pool['num_threads']}")
    folder = data_folder(data_dir)
    present = [name for name in names() if is_present(name, data_dir)]
    absent = [name for name in names() if name not in present]
    print("\ndata")
    print(f"  folder        {folder}" + ("" if folder.is_dir() else " (does not exist)"))
    print_text(f"  present       {', '.join(present)}", 16)
    if absent:
        fetchable = [name for name in absent if get_spec(name).fetchable]
        print_text(f"  absent        {', '.join(absent)}", 16)
        if fetchable:
            print_text(f"  can fetch     {', '.join(fetchable)}", 16)
    print("\nstore")
    print(f"  {default_path()}: {_store()}")
    print("\nmethods")
    print_text(f"  {', '.join(method_names())}", 2)


def _store() -> str:
    from fewview.ground._errors import FewviewError
    from fewview.results._store import Store, default_path

    if not default_path().exists():
        return "does not exist yet"
    try:
        with Store(default_path(), write=False) as store:
            return f"{len(store)} cell(s)"
    except FewviewError as error:
        return f"cannot be read ({error})"
