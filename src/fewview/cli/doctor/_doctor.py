"""`fewview doctor`: what this installation has, whether it works, and what to do where not."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from fewview.cli._declared import DataDir
from fewview.cli._text import print_text, shows, suggest
from fewview.ground._errors import FewviewError


@shows(
    "fewview doctor", "versions, devices and a dozen seconds of trials",
    "fewview doctor --full", "every method and every example of the documentation; minutes",
)  # fmt: skip
def doctor(
    data_dir: DataDir = None,
    full: Annotated[
        bool, typer.Option("--full", help="Try every method and every example; minutes.")
    ] = False,
) -> None:
    """Show versions, devices, threads and folders, and try whether everything works.

    Libraries are compared with what fewview needs, a file and a model are written and read, and a
    small table is compared with recorded digits. Where something is off, it says what to do, and
    the exit status is 1.
    """
    import os
    import platform

    from fewview._version import __version__
    from fewview.cli.doctor._trials import installed, missing_extras, requirements

    print_text(
        f"fewview {__version__} on Python {platform.python_version()}, {platform.platform()}"
    )
    print("\nversions")
    for library, least, extra in requirements():
        needed = f"at least {least}" + (f", for fewview[{extra}]" if extra else "")
        if extra not in ("all", "test", "docs", "dev"):
            print(f"  {library:<14}{installed(library) or 'not installed':<16}{needed}")
    _show_machine(os.cpu_count())
    _show_data(data_dir)
    print("\ncan be added")
    for line in missing_extras() or ["nothing; all extras are here"]:
        print(f"  {line}")
    if _try_all(full):
        raise typer.Exit(1)
    suggest("fewview run")


def _show_machine(cores: int | None) -> None:
    print("\ndevices")
    try:
        import torch
        from joblib import cpu_count
        from threadpoolctl import threadpool_info
    except Exception as error:  # a torch that is broken fails in any way it likes
        print_text(f"  cannot be asked ({error})", 2)
        return
    print(f"  cpu           {cpu_count()} core(s) for this process, {cores} in all")
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


def _show_data(data_dir: str | None) -> None:
    from fewview.datasets._catalogue import data_folder, get_spec, is_present, names

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


def _try_all(full: bool) -> int:
    """Run all trials and tell each one; how many are off."""
    from time import perf_counter

    from fewview.cli.doctor._trials import trials

    print("\ntrials")
    off = 0
    for trial in trials(full):
        sys.stdout.flush()  # a trial may end the process
        start = perf_counter()
        try:
            found = trial.run()
        except Exception as error:  # whatever is broken must be told, with what to do
            off += 1
            kind = "" if isinstance(error, FewviewError) else f"{type(error).__name__}: "
            reason = " ".join(f"{kind}{error}".split())
            advice = getattr(error, "advice", trial.advice)
            print_text(f"  {trial.name:<14}OFF: {reason}\n{'':<16}do: {advice}", 16)
        else:
            print_text(f"  {trial.name:<14}ok, {found} ({perf_counter() - start:.1f} s)", 16)
    told = "everything works" if not off else f"{off} trial(s) are off; see 'do:' above"
    print(f"\n{told}")
    return off
