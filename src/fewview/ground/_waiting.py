"""How threads of torch wait for each other."""

from __future__ import annotations

from collections.abc import MutableMapping

# Looks of a thread at whether there is work before it sleeps: what GNU's OpenMP itself takes where
# there are more threads than cores (its usual number is 300 000, milliseconds).
LOOKS = "1000"
SAID_BY_USER = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")


def wait_asleep(environment: MutableMapping[str, str]) -> None:
    """Let threads that wait sleep soon, unless the user says how they wait.

    Awake, a thread that waits for another holds its core. Where that other one has no core, since
    somebody else works on the machine or a container was given fewer cores than it sees, answers
    take many times as long; where all cores are free, sleeping costs nothing that can be measured.
    It is read when torch is loaded.
    """
    if not any(name in environment for name in SAID_BY_USER):
        environment["GOMP_SPINCOUNT"] = LOOKS
