"""Operators as their Deployments want them, against an API that hands out one Deployment and nothing else."""

import threading
from pathlib import Path
from typing import Any, cast

import pytest

from sandbox import operators
from sandbox.operators import Operators
from sandbox.programs import Programs
from sandbox.site import Site

type Json = dict[str, Any]


class OneDeployment:
    """Remembers the first status that is reported."""

    def __init__(self, deployment: Json) -> None:
        self.deployment = deployment
        self.reported: Json = {}
        self.told = threading.Event()

    def request(self, method: str, path: str, *_: object) -> Json:
        return {"items": [self.deployment] if path.endswith("/deployments") else []}

    def patch(self, path: str, body: Json) -> None:
        assert path == "/apis/apps/v1/namespaces/jobset-system/deployments/jobset-controller/status"
        self.reported = body["status"]
        self.told.set()


def test_an_operator_of_no_replicas_does_not_run_and_is_reported_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    metadata = {"uid": "one", "name": "jobset-controller", "namespace": "jobset-system", "generation": 2}
    labels = {"control-plane": "controller-manager"}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"image": "registry.k8s.io/jobset/jobset:v0.12.0"}]}}
    status = {"observedGeneration": 1, "replicas": 1, "availableReplicas": 1}
    api = OneDeployment(
        {"metadata": metadata, "spec": {"replicas": 0, "selector": labels, "template": pod}, "status": status}
    )
    monkeypatch.setattr(operators, "administrator", lambda _site: api)
    stop = threading.Event()
    runs = threading.Thread(target=Operators(Site(tmp_path, 201), cast("Programs", None)).run, args=(stop,))
    runs.start()
    try:
        assert api.told.wait(10)
    finally:
        stop.set()
        runs.join(10)
    assert (api.reported["observedGeneration"], api.reported["availableReplicas"]) == (2, 0)
