"""Acting as a ServiceAccount: a kubeconfig with its token and nothing else."""

from pathlib import Path

import yaml

from tests.cluster.access import Cluster
from tests.cluster.certificates import write_private


def as_service_account(cluster: Cluster, namespace: str, name: str, path: Path) -> Cluster:
    """The same cluster with the rights of ``namespace``/``name``; ``path`` is where its kubeconfig goes."""
    token = cluster.kubectl("create", "token", name, f"--namespace={namespace}", "--duration=1h").strip()
    configuration = yaml.safe_load(cluster.kubectl("config", "view", "--raw", "--minify", "--flatten"))
    user = f"{namespace}-{name}"
    configuration["users"] = [{"name": user, "user": {"token": token}}]
    configuration["contexts"][0]["context"] |= {"user": user, "namespace": "default"}
    write_private(path, yaml.safe_dump(configuration))
    return Cluster(path, cluster.binaries)
