"""The longest names of a stack file become names that Google Cloud accepts."""

import re
from typing import Any

from infra.stack.tpu import all_shapes
from tests.infra.recording import Recording, Values, run_program, stack_values

_LIMITS = {
    "gcp:artifactregistry/repository:Repository": ("repositoryId", 63),
    "gcp:compute/firewall:Firewall": ("name", 63),
    "gcp:compute/network:Network": ("name", 63),
    "gcp:compute/resourcePolicy:ResourcePolicy": ("name", 63),
    "gcp:compute/router:Router": ("name", 63),
    "gcp:compute/routerNat:RouterNat": ("name", 63),
    "gcp:compute/subnetwork:Subnetwork": ("name", 63),
    "gcp:container/cluster:Cluster": ("name", 40),
    "gcp:container/nodePool:NodePool": ("name", 40),
    "gcp:serviceaccount/account:Account": ("accountId", 30),
    "gcp:storage/bucket:Bucket": ("name", 63),
}
"""Where each type has its name, and how long it may be."""


def _program(project: str, cluster: str, group: str, team: str) -> Recording:
    longest = max((shape for shape in all_shapes() if shape.generation == "7x"), key=lambda shape: len(shape.topology))
    values: Values = stack_values("dev")
    values["cloud"]["project"], values["cluster"]["name"] = project, cluster
    slices: Any = {"generation": "7x", "topology": longest.topology, "count": 3, "capacity": "spot"}
    values["slices"] = {group: slices | {"second_network": True}}
    values["network"] = {"nodes": "10.0.0.0/16", "pods": "10.128.0.0/9"}
    values["teams"] = {team: {"namespace": "people", "quota": {group: 3 * longest.chips}}}
    values["job"] |= {"team": team, "slices": {"group": group, "count": 1}, "host_network": True}
    values["job"]["mesh"] = {"replica": longest.devices // 64, "fsdp": 64}
    values["job"]["training"] = {"global_batch": longest.devices}
    return run_program(values)


def test_names_of_all_resources_keep_their_limits() -> None:
    for length in (1, 20):
        recording = _program("p" * 30, "c" * length, "g" * 30, "t" * 40)
        for kind, (key, limit) in _LIMITS.items():
            names = [found.inputs[key] for found in recording.of_type(kind)]
            assert names, kind
            for name in names:
                assert re.fullmatch(r"[a-z]([a-z0-9-]*[a-z0-9])?", name), name
                assert 6 * (key == "accountId") <= len(name) <= limit, name
