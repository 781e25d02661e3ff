"""Settings from the environment: each variable read, each mistake named with its cure."""

import dataclasses

import pytest

from wattkeeper.settings import PREFIX, Settings, SettingsError, describe, variable_of


def test_the_defaults_hold_without_any_variable() -> None:
    assert Settings.from_environment({"PATH": "/bin", "WATTKEEPER_DATA": "/data"}) == Settings()


def test_every_setting_is_read_from_its_variable() -> None:
    environment = {
        "WATTKEEPER_NAMESPACES": "team-a, team-b",
        "WATTKEEPER_LEASE_NAMESPACE": "power",
        "WATTKEEPER_LEASE_DURATION_SECONDS": "30",
        "WATTKEEPER_RENEW_DEADLINE_SECONDS": "20.5",
        "WATTKEEPER_LISTEN_PORT": "0",
        "WATTKEEPER_VALIDATE_PODS": "False",
        "WATTKEEPER_LOG_FORMAT": "json",
        "WATTKEEPER_WORKERS": " 4 ",
    }
    settings = Settings.from_environment(environment)
    assert settings.namespaces == ("team-a", "team-b")
    assert settings.lease_namespace == "power"
    assert (settings.lease_duration_seconds, settings.renew_deadline_seconds) == (30, 20.5)
    assert (settings.listen_port, settings.validate_pods, settings.log_format) == (0, False, "json")
    assert settings.workers == 4


def test_overrides_win() -> None:
    environment = {"WATTKEEPER_NAMESPACES": "a"}
    assert Settings.from_environment(environment, {"namespaces": ("b",)}).namespaces == ("b",)


@pytest.mark.parametrize(
    ("variable", "value", "cure"),
    [
        ("WORKERS", "many", "write a whole number from 1 to 64"),
        ("WORKERS", "0", "write a whole number from 1 to 64"),
        ("WORKERS", "1e3", "write a whole number"),
        ("WORKERS", "٣", "write a whole number"),
        ("LISTEN_PORT", "tcp://10.0.0.1:80", "write a whole number from 0 to 65535"),
        ("SETTLE_SECONDS", "NaN", "write seconds from 0 to 60"),
        ("SETTLE_SECONDS", "inf", "write seconds from 0 to 60"),
        ("SETTLE_SECONDS", "-1", "write seconds from 0 to 60"),
        ("SWEEP_INTERVAL_SECONDS", "", "write seconds"),
        ("NAMESPACES", "Team_A", "write a Kubernetes name"),
        ("LEASE_NAME", "a/b", "write a Kubernetes name"),
        ("LOG_LEVEL", "loud", "write one of debug, info, warning, error"),
        ("VALIDATE_PODS", "perhaps", "write true or false"),
    ],
)
def test_what_cannot_be_read_names_the_variable_and_the_cure(variable: str, value: str, cure: str) -> None:
    with pytest.raises(SettingsError) as refused:
        Settings.from_environment({PREFIX + variable: value})
    (problem,) = refused.value.problems
    assert problem.startswith(f"{PREFIX}{variable}: {cure}")
    assert repr(value) in problem


def test_all_problems_are_told_at_once() -> None:
    environment = {"WATTKEEPER_WORKERS": "x", "WATTKEEPER_LOG_LEVEL": "y"}
    with pytest.raises(SettingsError) as refused:
        Settings.from_environment(environment)
    assert len(refused.value.problems) == 2


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"lease_duration_seconds": 10}, "WATTKEEPER_RENEW_DEADLINE_SECONDS"),
        ({"renew_deadline_seconds": 2.0, "lease_duration_seconds": 4}, "WATTKEEPER_RETRY_PERIOD_SECONDS"),
    ],
)
def test_lease_times_that_contradict_each_other(given: dict[str, float], named: str) -> None:
    with pytest.raises(SettingsError, match=named):
        Settings(**given)  # type: ignore[arg-type]


def test_they_are_frozen_and_each_is_documented() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Settings().workers = 2  # type: ignore[misc]
    described = describe()
    assert [name for name, _, _ in described] == [variable_of(each) for each in dataclasses.fields(Settings)]
    for name, _, doc in described:
        assert doc.endswith("."), name
        # Times say their unit.
        assert not name.endswith("_SECONDS") or doc.startswith("s. "), name


def test_the_identity_tells_processes_of_one_host_apart() -> None:
    assert Settings(identity="pod-1").own_identity == "pod-1"
    assert Settings().own_identity.rpartition("_")[2].isdigit()
