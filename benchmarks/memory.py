"""Peak memory of one piece of work, on the CPU and on a GPU."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import torch

STATUS = Path("/proc/self/status")
RESET = Path("/proc/self/clear_refs")


@dataclass
class Peak:
    """Filled in when the work is done.

    Attributes:
        bytes: most memory held on top of what was held before.
        total: most memory held by the process (on a GPU: by its tensors).
    """

    bytes: int = 0
    total: int = 0


@contextmanager
def peak_memory(device: str = "cpu") -> Iterator[Peak]:
    """Measure the work inside the block."""
    peak = Peak()
    if device.startswith("cuda"):
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        yield peak
        peak.total = torch.cuda.max_memory_allocated()
        peak.bytes = peak.total - before
        return
    _forget_peak()
    before = _status("VmRSS")
    yield peak
    peak.total = _status("VmHWM")
    peak.bytes = max(0, peak.total - before)


def _forget_peak() -> None:
    """Linux keeps one peak per process; this sets it back to the present size."""
    with suppress(OSError):  # where that fails the peak is that of the whole run so far
        RESET.write_text("5")


def _status(name: str) -> int:
    if not STATUS.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    for line in STATUS.read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    return 0
