"""Two LLMDeployments never both get the last GPU, and the older one comes first."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.cluster.fixtures import FleetFactory
from tests.cluster.nodes import gpu_node
from tests.e2e.operators import Models, Operator

pytestmark = pytest.mark.e2e

ROUNDS = 15


def placed(models: Models, names: list[str]) -> list[str]:
    return [name for name in names if models.status(name).get("pool")]


def decided(models: Models, names: list[str]) -> bool:
    return all(models.status(name).get("phase") in ("Ready", "Unschedulable") for name in names)


def test_two_at_once_for_the_last_gpu(models: Models, fleet: FleetFactory, operator: Operator) -> None:
    fleet([gpu_node("last-l4", "L4")])
    with ThreadPoolExecutor(2) as at_once:
        for number in range(ROUNDS):
            names = [f"a-{number}", f"b-{number}"]
            made = list(at_once.map(models.create, names))
            models.cluster.wait(
                lambda names=names: f"both are decided: {[models.status(n).get('phase') for n in names]}",
                lambda names=names: decided(models, names),
            )
            winners = placed(models, names)
            assert len(winners) == 1, f"round {number}: {winners}"
            (loser,) = set(names) - set(winners)
            assert models.deployment(loser) is None
            assert not models.pods(loser)
            order = sorted(
                made, key=lambda each: (each["metadata"]["creationTimestamp"], each["metadata"]["uid"])
            )
            times = {each["metadata"]["creationTimestamp"] for each in made}
            if len(times) == 2:
                assert winners == [order[0]["metadata"]["name"]]
            # The one that waits gets the GPU as soon as it is free.
            models.delete(winners[0])
            models.wait_phase(loser, "Ready")
            models.delete(loser)
            models.cluster.wait("the GPU is free", lambda loser=loser: not models.pods(loser))


def test_many_at_once_fill_the_fleet_exactly(models: Models, fleet: FleetFactory, operator: Operator) -> None:
    """Six for four GPUs on three nodes: four run, two wait, no pod is ever without a node."""
    fleet([gpu_node("fill-l4-0", "L4", 2), gpu_node("fill-l4-1", "L4"), gpu_node("fill-l4-2", "L4")])
    names = [f"llama-{number}" for number in range(6)]
    with ThreadPoolExecutor(6) as at_once:
        list(at_once.map(models.create, names))
    models.cluster.wait(
        lambda: f"all are decided: {[models.status(name) for name in names]}\n{operator.tail()}",
        lambda: decided(models, names),
    )
    winners = placed(models, names)
    assert len(winners) == 4
    assert all(pod.spec.node_name for name in winners for pod in models.pods(name))
    assert all(models.deployment(name) is None for name in set(names) - set(winners))


def test_replicas_that_were_promised_are_not_given_away(
    models: Models, fleet: FleetFactory, operator: Operator
) -> None:
    """The older one asks for more than is free: its claim on the next GPU stands against the younger."""
    fleet([gpu_node("claim-l4-0", "L4", 2)])
    models.create("wide", replicas=2)
    models.wait_phase("wide", "Ready")
    models.patch("wide", {"replicas": 3})
    models.cluster.wait("a pod waits", lambda: len(models.pods("wide")) == 3)
    models.create("young")
    models.wait_phase("young", "Unschedulable")
    fleet([gpu_node("claim-l4-1", "L4")])
    models.wait_phase("wide", "Ready")
    assert models.status("wide")["readyReplicas"] == 3
    assert models.wait_phase("young", "Unschedulable")
