"""Follows a measurement's Job from its creation, or from where an earlier call left it, to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import typer

from wattkeeper.kube.client import describe
from wattkeeper.kube.errors import ApiError, TransientError
from wattkeeper.kube.manifests.tax_job import job_name
from wattkeeper.kube.tax_jobs import JobState, Progress, TaxJobs, stuck

#: How often the Job is looked at; its log, which is read whole, less often.
LOOK_SECONDS = 5.0
_LOOKS_A_LOG = 6
#: So many looks in a row may fail: an API server that is upgraded meanwhile comes back.
_FAILED_LOOKS = 60


class MeasurementFailedError(Exception):
    """No result: the message says why, and what to do."""


@dataclass(slots=True)
class Follower:
    """One Job. `start_seconds` is how long its pod may wait to start; `sleep` is the clock's."""

    jobs: TaxJobs
    node: str
    manifest: Callable[[], Awaitable[dict[str, Any]]]
    start_seconds: float
    again: bool = False
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    _said: int = field(default=0, init=False)
    _waited_for: str = field(default="", init=False)
    _log: str = field(default="", init=False)

    @property
    def name(self) -> str:
        return job_name(self.node)

    async def follow(self) -> tuple[Progress, str]:
        """How it ended, and its log. Raises MeasurementFailedError, ApiError."""
        await self._begin()
        waited = looks = 0.0
        while True:
            progress = await self._look()
            if progress.state.over:
                if progress.pod is not None:
                    await self._read_log(progress.pod)
                return progress, self._log
            if progress.state is JobState.WAITING:
                await self._wait(progress, waited)
                waited += LOOK_SECONDS
            elif progress.pod is not None and looks % _LOOKS_A_LOG == 0:
                await self._read_log(progress.pod)
            looks += 1
            await self.sleep(LOOK_SECONDS)

    async def _begin(self) -> None:
        """Create the Job, or take up the one that is there."""
        there = await self.jobs.look(self.name)
        if there is not None and (there.state is JobState.FAILED or (self.again and there.state.over)):
            await self.jobs.remove(self.name)
            while await self.jobs.look(self.name) is not None:
                await self.sleep(LOOK_SECONDS)
            there = None
        if there is None and await self.jobs.create(await self.manifest()):
            _say(f"created Job {self.name}")
        elif there is not None and there.state is JobState.SUCCEEDED:
            _say(f"Job {self.name} has measured already (--again measures anew)")
        else:
            _say(f"Job {self.name} was begun before: following it")

    async def _look(self) -> Progress:
        for attempt in range(_FAILED_LOOKS):
            try:
                progress = await self.jobs.look(self.name)
            except TransientError as error:
                if attempt + 1 == _FAILED_LOOKS:
                    raise
                _say(f"can't look at Job {self.name} ({describe(error)}), trying again")
                await self.sleep(LOOK_SECONDS)
            else:
                if progress is None:
                    raise MeasurementFailedError(f"Job {self.name} was deleted")
                return progress
        raise AssertionError("unreachable")

    async def _wait(self, progress: Progress, waited: float) -> None:
        if stuck(progress) or waited >= self.start_seconds:
            await self.jobs.remove(self.name)
            raise MeasurementFailedError(
                f"the Job didn't start within {self.start_seconds:g} s and is deleted again: "
                f"{progress.message}: free a GPU of {self.node} (cordon it first), or see --image, "
                "--runtime-class and --start-timeout"
            )
        if progress.message != self._waited_for:
            self._waited_for = progress.message
            _say(f"waiting: {progress.message}")

    async def _read_log(self, pod: str) -> None:
        """Read the log so far and say what is new in it; a log that can't be read now is read later."""
        try:
            self._log = await self.jobs.log(pod)
        except ApiError as error:
            _say(f"can't read the log ({describe(error)})")
            return
        lines = self._log.splitlines()
        for line in lines[self._said :]:
            if not line.startswith("{"):
                _say(line)
        self._said = len(lines)


def _say(text: str) -> None:
    typer.echo(text, err=True)
