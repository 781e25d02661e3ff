"""`wattkeeper tax measure` and `publish`: options, the Job that is followed, the result that is kept."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from tests.stub_driver.build import CONSTRUCTED
from wattkeeper.cli import app, tax_job
from wattkeeper.cli.tax_follow import LOOK_SECONDS, Follower, MeasurementFailedError
from wattkeeper.cli.tax_measure import EXIT_FAILED, EXIT_NOT_ALONE, Timing
from wattkeeper.kube.errors import ApiError, DeniedError, TransientError
from wattkeeper.kube.manifests.tax_result import tax_results
from wattkeeper.kube.tax_jobs import JobState, OperatorImage, Progress

WAITING = Progress(JobState.WAITING, "ContainerCreating", "pod")
RUNNING = Progress(JobState.RUNNING, "", "pod")
DONE = Progress(JobState.SUCCEEDED, "", "pod", 0)
BUSY = Progress(JobState.FAILED, "GPU GPU-1 isn't ours alone", "pod", EXIT_NOT_ALONE)
LOG = "bare_idle: 90 s to settle\n" + CONSTRUCTED.read_text() + "NVIDIA: an idle context costs 40.0 W\n"


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["tax", *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.stdout, result.stderr


# ---- options -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "give either --local or --node NODE"),
        (["--local", "--node=n"], "give either --local or --node NODE"),
        (["--local", "--levels=0,4"], "--levels must be at least three"),
        (["--local", "--levels=0,four,8"], "--levels: must be numbers with commas between, got '0,four,8'"),
        (["--local", "--interval=30"], "--interval: write a duration with its unit"),
        (["--local", "--interval=2m"], "--interval must be from 0.1 to 60 s, got 120 s"),
        (["--local", "--bare=20s"], "--bare must last at least 2 intervals of 30 s, got 20 s"),
        (["--node=n", "--start-timeout=soon"], "--start-timeout: write a duration"),
    ],
)
def test_an_option_that_cannot_be_used(options: list[str], message: str) -> None:
    code, out, err = run("measure", *options)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {message}") and err.count("\n") == 1


def test_the_job_is_printed() -> None:
    options = ("--image=example.test/w:1", "--levels=0,4,16", "--level=10m", "--disable-perf-boost")
    code, out, _ = run("measure", "--node=gpu-7", "--print", *options, "--runtime-class=nvidia")
    job = yaml.safe_load(out)
    pod = job["spec"]["template"]["spec"]
    assert code == 0 and pod["runtimeClassName"] == "nvidia"
    assert pod["containers"][0]["args"][4:] == [
        "--bare=2100s",
        "--level=600s",
        "--settle=90s",
        "--interval=30s",
        "--levels=0,4,16",
        "--disable-perf-boost",
    ]
    # 90 s + 35 min, then three levels of 90 s + 10 min; a tenth more, and the time to start.
    assert job["spec"]["activeDeadlineSeconds"] == round(1.1 * (2190 + 3 * 690)) + 900


# ---- following ---------------------------------------------------------------------------------------
IMAGE = OperatorImage("example.test/wattkeeper:1", "Always", ("registry",))


@dataclass
class Jobs:
    """Stands in for `TaxJobs`: looks are answered in turn, the last one for ever; anything else fails."""

    looks: list[Progress | Exception | None]
    log_text: str = LOG
    image: OperatorImage | None = IMAGE
    refuses: ApiError | None = None
    created: list[dict[str, Any]] = field(default_factory=list)
    removed: int = 0
    kept: list[dict[str, Any]] = field(default_factory=list)
    slept: float = 0.0

    async def look(self, _name: str) -> Progress | None:
        found = self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]
        if isinstance(found, Exception):
            raise found
        return found

    async def create(self, manifest: dict[str, Any]) -> bool:
        self.created.append(manifest)
        return True

    async def remove(self, _name: str) -> None:
        self.removed += 1

    async def log(self, _pod: str) -> str:
        return self.log_text

    async def operator_image(self) -> OperatorImage | None:
        return self.image

    async def keep(self, config_map: dict[str, Any]) -> None:
        if self.refuses is not None:
            raise self.refuses
        self.kept.append(copy.deepcopy(config_map))

    async def sleep(self, seconds: float) -> None:
        self.slept += seconds
        assert self.slept < 24 * 3600, "it never ends"


async def _manifest() -> dict[str, Any]:
    return {"kind": "Job"}


def follower(jobs: Jobs, *, again: bool = False, start_seconds: float = 600.0) -> Follower:
    return Follower(jobs, "gpu-7", _manifest, start_seconds, again, jobs.sleep)  # type: ignore[arg-type]


async def test_a_job_is_created_and_followed_to_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    jobs = Jobs([None, WAITING, WAITING, *[RUNNING] * 20, DONE])
    progress, log = await follower(jobs).follow()
    assert (progress, log, jobs.removed) == (DONE, LOG, 0)
    assert len(jobs.created) == 1
    said = capsys.readouterr().err.splitlines()
    assert said == [
        "created Job wattkeeper-tax-gpu-7",
        "waiting: ContainerCreating",
        "bare_idle: 90 s to settle",
        "NVIDIA: an idle context costs 40.0 W",
    ]  # each line once, though the log is read again and again


@pytest.mark.parametrize("there", [WAITING, RUNNING])
async def test_a_job_that_runs_is_followed(there: Progress) -> None:
    jobs = Jobs([there, there, DONE])
    assert (await follower(jobs, again=True).follow())[0] is DONE
    assert (jobs.created, jobs.removed) == ([], 0)


async def test_a_result_that_is_there_is_taken() -> None:
    jobs = Jobs([DONE])
    assert (await follower(jobs).follow())[1] == LOG
    assert jobs.created == []


@pytest.mark.parametrize(("there", "again"), [(DONE, True), (BUSY, False)])
async def test_what_failed_or_is_wanted_again_is_measured_anew(there: Progress, again: bool) -> None:
    jobs = Jobs([there, there, None, RUNNING, DONE])
    assert (await follower(jobs, again=again).follow())[0] is DONE
    assert (len(jobs.created), jobs.removed) == (1, 1)


async def test_a_job_that_never_starts_is_taken_away() -> None:
    pending = Progress(JobState.WAITING, "no GPU of the node is free for it", "pod")
    jobs = Jobs([None, pending])
    with pytest.raises(MeasurementFailedError, match="is free for it: free a GPU of gpu-7"):
        await follower(jobs, start_seconds=120).follow()
    assert jobs.removed == 1 and jobs.slept == 120
    stuck = Jobs([None, Progress(JobState.WAITING, "InvalidImageName: no", "pod")])
    with pytest.raises(MeasurementFailedError, match="InvalidImageName"):
        await follower(stuck).follow()
    assert stuck.slept == 0


async def test_a_job_that_somebody_deletes() -> None:
    with pytest.raises(MeasurementFailedError, match="wattkeeper-tax-gpu-7 was deleted"):
        await follower(Jobs([None, RUNNING, None])).follow()


async def test_an_api_server_that_is_away_for_a_while() -> None:
    away = TransientError("GET", 503, "ServiceUnavailable", "away")
    jobs = Jobs([None, RUNNING, *[away] * 20, DONE])
    assert (await follower(jobs).follow())[0] is DONE
    assert jobs.slept == 21 * LOOK_SECONDS
    with pytest.raises(TransientError):
        await follower(Jobs([None, RUNNING, away])).follow()


# ---- the whole command -------------------------------------------------------------------------------


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Jobs:
    """The commands meet these Jobs instead of a cluster's."""
    jobs = Jobs([None, RUNNING, DONE])

    async def with_jobs(work: Any, *_where: object) -> int:
        try:
            return int(await work(jobs))
        except MeasurementFailedError as error:
            tax_job.typer.echo(f"error: {error}", err=True)
            return EXIT_FAILED

    def follow(*arguments: Any) -> Follower:
        return Follower(*arguments, jobs.sleep)

    monkeypatch.setattr(tax_job, "_with_jobs", with_jobs)
    monkeypatch.setattr(tax_job, "Follower", follow)
    monkeypatch.chdir(tmp_path)
    return jobs


def test_a_measurement_by_a_job_is_kept_and_printed(cluster: Jobs) -> None:
    code, out, err = run("measure", "--node=gpu-7")
    assert code == 0, err
    assert "+40.0 W" in out and "kept for the operator in ConfigMap wattkeeper-system/wattkeeper-tax-" in err
    (config_map,) = cluster.kept
    found, problems = tax_results([config_map])
    assert list(found) == ["GPU-00000000-0000-0000-0000-000000000000"] and problems == []
    assert config_map["metadata"]["annotations"] == {"wattkeeper.dev/node": "gpu-7"}
    (job,) = cluster.created
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert (container["image"], container["imagePullPolicy"]) == ("example.test/wattkeeper:1", "Always")


def test_the_readings_of_a_job_go_where_they_are_wanted(cluster: Jobs, tmp_path: Path) -> None:
    assert run("measure", "--node=gpu-7", "--record=here.jsonl")[0] == 0
    assert (tmp_path / "here.jsonl").read_text() == CONSTRUCTED.read_text()
    cluster.looks = [DONE]
    assert run("measure", "--node=gpu-7", "--record=-")[1] == CONSTRUCTED.read_text()


def test_a_job_that_failed_keeps_nothing(cluster: Jobs, tmp_path: Path) -> None:
    cluster.looks = [None, RUNNING, BUSY]
    code, out, err = run("measure", "--node=gpu-7", "--record=evidence.jsonl")
    assert (code, out, cluster.kept) == (EXIT_NOT_ALONE, "", [])
    assert "error: GPU GPU-1 isn't ours alone" in err
    assert (tmp_path / "evidence.jsonl").exists()


def test_a_log_that_was_cut_is_no_measurement(cluster: Jobs) -> None:
    cluster.log_text = "\n".join(LOG.splitlines()[12:])  # the bare board's readings are gone
    code, _, err = run("measure", "--node=gpu-7")
    assert (code, cluster.kept) == (EXIT_FAILED, [])
    assert "holds no whole measurement: no bare readings" in err


def test_a_result_that_cannot_be_kept_is_not_lost(cluster: Jobs, tmp_path: Path) -> None:
    cluster.refuses = DeniedError("PATCH", 403, "Forbidden", "not you")
    code, _, err = run("measure", "--node=gpu-7")
    (file,) = tmp_path.glob("tax-GPU-*.jsonl")
    assert code == EXIT_FAILED and f"not you; its readings are in {file.name}" in err
    assert file.read_text() == CONSTRUCTED.read_text()


def test_without_an_operator_the_image_has_to_be_said(cluster: Jobs) -> None:
    cluster.image = None
    code, _, err = run("measure", "--node=gpu-7")
    assert code == EXIT_FAILED and "give --image" in err and cluster.created == []


# ---- publishing --------------------------------------------------------------------------------------


def test_a_recording_is_published(cluster: Jobs) -> None:
    code, out, _ = run("publish", str(CONSTRUCTED), "--node=gpu-7", "--print")
    assert code == 0
    (printed,) = yaml.safe_load_all(out)
    code, _, err = run("publish", str(CONSTRUCTED), "--node=gpu-7")
    assert code == 0 and "an idle context costs 40.0 W" in err and "too short for the operator" in err
    assert cluster.kept == [printed]


def test_what_is_no_recording_is_not_published(tmp_path: Path) -> None:
    empty, mixed = tmp_path / "empty.jsonl", tmp_path / "mixed.jsonl"
    empty.write_text("")
    lines = CONSTRUCTED.read_text().splitlines()
    mixed.write_text("\n".join([*lines, lines[0].replace("GPU-0000", "GPU-1111")]))
    for file, message in (
        (tmp_path / "missing", "can't be read"),
        (empty, "0 boards in one recording: must be one"),
        (mixed, "2 boards in one recording"),
    ):
        code, out, err = run("publish", str(file), "--print")
        assert (code, out) == (2, "") and err.startswith(f"error: {file}: ") and message in err


def test_the_jobs_options_give_the_same_timing_again() -> None:
    timing = Timing(
        levels_gib=(0, 0.5, 16),
        bare_seconds=2100,
        level_seconds=1200,
        settle_seconds=90,
        interval_seconds=0.5,
        unboosted=False,
    )
    options = ["--node=n", "--image=i", "--print"]
    _, out, _ = run("measure", *options, *timing.arguments())
    container = yaml.safe_load(out)["spec"]["template"]["spec"]["containers"][0]
    assert container["args"][4:] == list(timing.arguments())
