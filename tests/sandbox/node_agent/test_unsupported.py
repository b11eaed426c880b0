from typing import Any

import pytest

from sandbox.node_agent.unsupported import unsupported
from tests.sandbox.node_agent.pods import container, pod

BEGINNING = "The sandbox does not run this pod because it does not support "
VOLUMES: list[dict[str, Any]] = [
    {"name": "scratch", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
    {"name": "all", "projected": {"sources": [{"configMap": {}}, {"secret": {}}, {"serviceAccountToken": {}}]}},
]
SUPPORTED = container(
    envFrom=[{"configMapRef": {"name": "settings"}}],
    env=[{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}],
    lifecycle={"postStart": {"exec": {"command": ["true"]}}, "preStop": {"sleep": {"seconds": 1}}},
    readinessProbe={"httpGet": {"port": 80}, "periodSeconds": 1},
    volumeMounts=[{"name": "scratch", "mountPath": "/data", "subPath": "a", "mountPropagation": "None"}],
    securityContext={"runAsUser": 10001},
)


MOUNT = {"name": "d", "mountPath": "/d", "subPathExpr": "$(A)"}


def volume(**kind: Any) -> dict[str, Any]:
    return {"volumes": [{"name": "d", **kind}]}


def test_an_ordinary_pod_is_not_refused() -> None:
    assert unsupported(pod(containers=[SUPPORTED], volumes=VOLUMES, hostNetwork=True, restartPolicy="Always")) is None


@pytest.mark.parametrize(
    ("fields", "part"),
    [
        ({"hostAliases": [{"ip": "1.2.3.4"}]}, "hostAliases"),
        (volume(hostPath={"path": "/"}), "volume 'd' of kind hostPath"),
        (volume(csi={"driver": "another"}), "volume 'd' of kind csi"),
        (volume(persistentVolumeClaim={"claimName": "c"}), "volume 'd' of kind persistentVolumeClaim"),
        (volume(projected={"sources": [{"clusterTrustBundle": {}}]}), "volume 'd' of kind clusterTrustBundle"),
    ],
)
def test_what_a_pod_has_beyond_that_is_named(fields: dict[str, Any], part: str) -> None:
    assert unsupported(pod(**fields)) == f"{BEGINNING}{part}."


@pytest.mark.parametrize(
    ("fields", "part"),
    [
        ({"command": []}, "the entry point of container 'main', because images are not run here and it has no command"),
        ({"volumeDevices": [{}]}, "volumeDevices of container 'main'"),
        ({"livenessProbe": {"grpc": {"port": 1}}}, "the action of livenessProbe of container 'main'"),
        ({"lifecycle": {"stopSignal": "SIGUSR1"}}, "stopSignal of container 'main'"),
        ({"volumeMounts": [MOUNT]}, "subPathExpr of mount '/d' of container 'main'"),
        ({"env": [{"name": "A", "valueFrom": {"fileKeyRef": {}}}]}, "fileKeyRef of variable 'A' of container 'main'"),
    ],
)
def test_what_a_container_has_beyond_that_is_named(fields: dict[str, Any], part: str) -> None:
    me = container() | fields
    assert unsupported(pod(containers=[me])) == f"{BEGINNING}{part}."
    assert unsupported(pod(initContainers=[me | {"name": "main"}])) == f"{BEGINNING}{part}."


def test_all_parts_are_named_at_once() -> None:
    several = pod(hostAliases=[{}], containers=[container("one", command=[]), container("two", volumeDevices=[{}])])
    said = unsupported(several)
    assert said is not None
    assert said.count(",") == 3
