"""Computes shares as tasks of Ray."""

from __future__ import annotations

import logging
import os
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

import ray
from ray import cloudpickle
from ray.exceptions import RayError, RayTaskError

from . import worker
from .errors import RefusedError, ShareError

# The nodes do not need this package.
cloudpickle.register_pickle_by_value(worker)  # type: ignore[no-untyped-call]


class Cluster(Protocol):
    """Where shares are computed."""

    def cpus(self) -> int:
        """Number of CPUs."""

    def compute(
        self, work: worker.Work, shares: list[int], program: bytes, inputs: Mapping[str, bytes], retries: int
    ) -> Generator[tuple[int, worker.Outcome]]:
        """Outcomes of shares as they finish. Raises `ShareError` if one is lost; then, or if it is closed, the others are cancelled."""


class RayCluster:
    """The cluster that this process is connected to."""

    def cpus(self) -> int:
        resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
        return max(1, int(resources.get("CPU", 1)))

    def compute(
        self, work: worker.Work, shares: list[int], program: bytes, inputs: Mapping[str, bytes], retries: int
    ) -> Generator[tuple[int, worker.Outcome]]:
        common, binary, files = ray.put(work), ray.put(program), ray.put(dict(inputs))
        # Ray retries tasks of lost workers and nodes. A program that was ended by a signal counts as one.
        options: dict[str, Any] = {"num_cpus": 1, "max_retries": retries, "retry_exceptions": [ChildProcessError]}
        task: Any = ray.remote(worker.compute_task)
        pending = {}
        for share in shares:
            named = task.options(name=f"{work['file']} {share}/{work['shares']}", **options)
            pending[named.remote(common, share, [binary], files)] = share
        try:
            while pending:
                [done], _ = ray.wait(list(pending), num_returns=1)
                share = pending.pop(done)
                yield share, _outcome(done, share, retries)
        finally:
            for left in pending:
                ray.cancel(left, force=True)


def _outcome(task: Any, share: int, retries: int) -> worker.Outcome:
    try:
        outcome: worker.Outcome = ray.get(task)
    except RayTaskError as error:
        text = f"share {share}: {error.cause}\nCorrect the cause and repeat the call, which computes what is missing"
        raise ShareError(text, share=share) from error
    except RayError as error:
        lost = f"share {share} was lost more than {retries} times" if retries else f"share {share} was lost"
        advice = "Repeat the call, which computes what is missing, or increase `retries`"
        raise ShareError(f"{lost}: {str(error).strip()}\n{advice}", share=share) from error
    return outcome


@contextmanager
def connected(address: str | None) -> Iterator[Cluster]:
    """A connection to the cluster at an address.

    Without an address, to the cluster of this process, or of RAY_ADDRESS, or to a local one, which ends with the connection.
    """
    if ray.is_initialized():
        if address is not None:
            raise RefusedError(f"address {address}: this process is connected to Ray: omit the address, or call ray.shutdown() before")
        yield RayCluster()
        return
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    local: dict[str, Any] = {"include_dashboard": False} if address == "local" else {}
    try:
        ray.init(address, log_to_driver=False, logging_level=logging.WARNING, **local)
    except Exception as error:  # of many types, also `Exception`
        what = "start Ray" if address == "local" else f"connect to Ray at {address}"
        raise RefusedError(f"cannot {what}: {error}") from error
    try:
        yield RayCluster()
    finally:
        ray.shutdown()
