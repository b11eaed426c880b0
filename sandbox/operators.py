"""Runs the JobSet and Kueue managers that the Helm charts declare, as processes of this machine.

For these two Deployments this replaces the Deployment controller and the kubelet: each manager runs with its chart's
configuration, its own ServiceAccount's token and its Service's address. `configuration` changes only the settings that
assume a pod. When a manager answers `/readyz`, its Deployment is reported available.
"""

import base64
import logging
import os
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import urllib3
import yaml

from infra.cluster.kubernetes import APPLY_PATCH, JSON_PATCH, UNREACHABLE, Json
from sandbox import certificates
from sandbox.programs import OPERATORS, Programs, ProgramsError
from sandbox.servers import ServerProcess, answers
from sandbox.site import Site, administrator

_log = logging.getLogger(__name__)

_VERSION_LABEL = "app.kubernetes.io/version"
"""Label of a Deployment with its chart's version. Images of unpublished charts have no version."""
_WEBHOOK_KINDS = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
_CONFIG_KEY = "controller_manager_config.yaml"
_HEALTH_PORT = 8081
_AS_SANDBOX = {"fieldManager": "sandbox-operators", "force": "true"}
_NOWHERE = "192.0.2.1"
"""Address of all endpoints. It is never used, because the API server accepts no loopback addresses."""
_TOKEN_SECONDS = 30 * 24 * 3600
_STOP_SECONDS = 5
_TICK_SECONDS = 0.2
_SETTLED_TICK_SECONDS = 1.0


@dataclass
class _Operator:
    """A manager that was started for one generation of its Deployment."""

    deployment: Json
    server: ServerProcess
    health_url: str
    available: bool = False


class Operators:
    """Runs one manager process for each operator Deployment in the API."""

    def __init__(self, site: Site, programs: Programs) -> None:
        self._site = site
        self._programs = programs
        self._api = administrator(site)
        self._pool = urllib3.PoolManager()
        self._running: dict[str, _Operator] = {}

    def run(self, stop: threading.Event) -> None:
        """Reconcile until `stop` is set, then stop the managers. Needs the API server."""
        while not stop.is_set():
            try:
                settled = self._reconcile()
            except UNREACHABLE as error:
                # The API server may be down for a moment; the next tick tries again.
                _log.warning("reconciling the operators: %s", error)
                settled = False
            stop.wait(_SETTLED_TICK_SECONDS if settled else _TICK_SECONDS)
        for operator in self._running.values():
            operator.server.stop(_STOP_SECONDS)

    def _reconcile(self) -> bool:
        deployments = self._api.request("GET", "/apis/apps/v1/deployments")["items"]
        known = [
            deployment
            for deployment in deployments
            if program_of(deployment) is not None and "deletionTimestamp" not in deployment["metadata"]
        ]
        wanted = {deployment["metadata"]["uid"]: deployment for deployment in known if deployment["spec"]["replicas"]}
        for uid, operator in list(self._running.items()):
            generation = wanted[uid]["metadata"]["generation"] if uid in wanted else None
            if generation != operator.deployment["metadata"]["generation"] or not operator.server.running():
                operator.server.stop(_STOP_SECONDS)
                del self._running[uid]
        for deployment in known:
            if not deployment["spec"]["replicas"]:
                self._publish(deployment)
        for uid, deployment in wanted.items():
            if (operator := self._running.get(uid)) is None:
                self._start(deployment)
            elif not operator.available and answers(operator.health_url, self._pool):
                self._publish(operator.deployment)
                operator.available = True
        return len(self._running) == len(wanted) and all(operator.available for operator in self._running.values())

    def _start(self, deployment: Json) -> None:
        """Start the manager, unless some of the chart's other objects do not exist yet."""
        name, namespace = program_of(deployment), deployment["metadata"]["namespace"]
        assert name is not None
        settings = self._chart_settings(deployment)
        if settings is None:
            return
        certificates_of = settings["internalCertManagement"]
        service = self._api.find(f"/api/v1/namespaces/{namespace}/services/{certificates_of['webhookServiceName']}")
        if service is None or not self._prepare_certificates(name, namespace, settings):
            return
        kubeconfig = self._kubeconfig(deployment)
        if kubeconfig is None:
            return
        try:
            program = self._programs.operator(name, deployment["metadata"]["labels"].get(_VERSION_LABEL)).path
        except ProgramsError as error:
            _log.error("%s is not started: %s", name, error)
            return
        folder, address = self._folder(name), service["spec"]["clusterIP"]
        (folder / "config.yaml").write_text(yaml.safe_dump(configuration(settings, address, folder / "serving")))
        (folder / "kubeconfig").write_text(kubeconfig)
        declared = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
        flags = [flag for flag in declared if not flag.startswith("--config=")]
        flags += [f"--config={folder / 'config.yaml'}", f"--kubeconfig={folder / 'kubeconfig'}"]
        environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "TMPDIR": str(folder), "GOGC": "50"}
        server = ServerProcess.start(name, [str(program), *flags], self._site.logs / f"{name}.log", environment)
        health_url = f"http://{address}:{_HEALTH_PORT}/readyz"
        self._running[deployment["metadata"]["uid"]] = _Operator(deployment, server, health_url)

    def _chart_settings(self, deployment: Json) -> Json | None:
        volumes = deployment["spec"]["template"]["spec"]["volumes"]
        name = next(volume["configMap"]["name"] for volume in volumes if "configMap" in volume)
        found = self._api.find(f"/api/v1/namespaces/{deployment['metadata']['namespace']}/configmaps/{name}")
        return None if found is None else yaml.safe_load(found["data"][_CONFIG_KEY])

    def _prepare_certificates(self, name: str, namespace: str, settings: Json) -> bool:
        """Write key pairs where the manager's certificate rotator looks, as after an earlier run.

        The rotator would create them, but several seconds later. Return False while the Secret or the webhooks do not
        exist.
        """
        service = settings["internalCertManagement"]["webhookServiceName"]
        folder = self._folder(name)
        if not (folder / "ca.crt").exists():
            ca = certificates.authority(f"{name}-ca", [f"{name}-ca"])
            server = certificates.sign(ca, f"{service}.{namespace}.svc", dns_names=[f"{service}.{namespace}.svc"])
            certificates.write(server, folder, "tls")
            certificates.write(ca, folder, "ca")
        (folder / "serving").mkdir(exist_ok=True)
        contents = {key: (folder / key).read_bytes() for key in ("ca.crt", "ca.key", "tls.crt", "tls.key")}
        for key, content in contents.items():
            (folder / "serving" / key).write_bytes(content)
        secret = settings["internalCertManagement"]["webhookSecretName"]
        data = {key: base64.b64encode(content).decode() for key, content in contents.items()}
        if self._api.patch(f"/api/v1/namespaces/{namespace}/secrets/{secret}", {"data": data}) is None:
            return False
        return not _insists_on_folder(settings) or self._inject_authority(data["ca.crt"], namespace, service)

    def _inject_authority(self, ca: str, namespace: str, service: str) -> bool:
        """Do the rotator's other task: write the authority into the webhooks that call `service`.

        Return False while no such webhook of either kind exists.
        """
        found = set[str]()
        for kind in _WEBHOOK_KINDS:
            collection = f"/apis/admissionregistration.k8s.io/v1/{kind}"
            for item in self._api.request("GET", collection)["items"]:
                called = [webhook["clientConfig"].get("service", {}) for webhook in item["webhooks"]]
                patch = [
                    {"op": "add", "path": f"/webhooks/{index}/clientConfig/caBundle", "value": ca}
                    for index, each in enumerate(called)
                    if (each.get("namespace"), each.get("name")) == (namespace, service)
                ]
                if patch:
                    found.add(kind)
                    self._api.patch(f"{collection}/{item['metadata']['name']}", patch, JSON_PATCH)
        return found == set(_WEBHOOK_KINDS)

    def _kubeconfig(self, deployment: Json) -> str | None:
        account = deployment["spec"]["template"]["spec"]["serviceAccountName"]
        path = f"/api/v1/namespaces/{deployment['metadata']['namespace']}/serviceaccounts/{account}"
        if self._api.find(path) is None:
            return None
        request = {"spec": {"audiences": [], "expirationSeconds": _TOKEN_SECONDS}}
        token = self._api.request("POST", f"{path}/token", request)["status"]["token"]
        ca = (self._site.pki / "ca.crt").read_bytes()
        return certificates.kubeconfig(self._site.api_server_url, ca, {"token": token})

    def _folder(self, name: str) -> Path:
        folder = self._site.root / "operators" / name
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
        return folder

    def _publish(self, deployment: Json) -> None:
        metadata, replicas = deployment["metadata"], deployment["spec"]["replicas"]
        if deployment.get("status", {}).get("observedGeneration") == metadata["generation"]:
            return
        counts = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
        status = {
            "observedGeneration": metadata["generation"],
            **dict.fromkeys(counts, replicas),
            "conditions": [
                {"type": "Available", "status": "True", "reason": "MinimumReplicasAvailable"},
                {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"},
            ],
        }
        services = self._api.request("GET", f"/api/v1/namespaces/{metadata['namespace']}/services")["items"]
        for path, manifest in list_awaited(deployment, services):
            self._api.request("PATCH", path, manifest, _AS_SANDBOX, APPLY_PATCH)
        # Changing the annotation by another path would be a new generation.
        path = f"/apis/apps/v1/namespaces/{metadata['namespace']}/deployments/{metadata['name']}/status"
        self._api.patch(path, {"metadata": {"annotations": _revision(deployment)}, "status": status})


def program_of(deployment: Json) -> str | None:
    """Return the operator that the last path element of the Deployment's image names; None if it is another program."""
    image = deployment["spec"]["template"]["spec"]["containers"][0]["image"]
    name = image.split("@")[0].rpartition("/")[2].partition(":")[0]
    return name if name in OPERATORS else None


def list_awaited(deployment: Json, services: Iterable[Json]) -> list[tuple[str, Json]]:
    """Return the objects, besides the status, that the published Kubernetes plugin waits for, with their paths and in
    order.

    They are a ReplicaSet of the Deployment's revision and Endpoints of the Services.
    """
    metadata, spec = deployment["metadata"], deployment["spec"]
    namespace = f"namespaces/{metadata['namespace']}"
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": metadata["name"], "uid": metadata["uid"]}
    name = f"{metadata['name']}-{metadata['generation']}"
    replica_set: Json = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": name,
            "labels": spec["template"]["metadata"]["labels"],
            "annotations": _revision(deployment),
            "ownerReferences": [{**owner, "controller": True}],
        },
        "spec": {field: spec[field] for field in ("replicas", "selector", "template")},
    }
    path = f"/apis/apps/v1/{namespace}/replicasets/{name}"
    ready = {field: spec["replicas"] for field in ("replicas", "readyReplicas", "availableReplicas")}
    status = {field: replica_set[field] for field in ("apiVersion", "kind")} | {"status": ready}
    awaited = [(path, replica_set), (f"{path}/status", status)]
    for service in services:
        endpoints: Json = {"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": service["metadata"]["name"]}}
        ports = [{"name": port.get("name", ""), "port": port["port"]} for port in service["spec"].get("ports", [])]
        endpoints["subsets"] = [{"addresses": [{"ip": _NOWHERE}], "ports": ports}]
        awaited.append((f"/api/v1/{namespace}/endpoints/{service['metadata']['name']}", endpoints))
    return awaited


def _revision(deployment: Json) -> dict[str, str]:
    return {"deployment.kubernetes.io/revision": str(deployment["metadata"]["generation"])}


def _insists_on_folder(settings: Json) -> bool:
    """Return whether the rotator insists on a fixed folder of the machine, as JobSet 0.12 does."""
    return settings["apiVersion"].startswith("config.jobset.x-k8s.io/")


def configuration(settings: Json, address: str, serving: Path) -> Json:
    """Return the chart's configuration, with the Service's address in place of a pod's.

    It has no leader election (there is one process, and an API pause must not end it), no metrics port, no visibility
    server, which would write below `/`, and no certificate rotator of JobSet (see `_insists_on_folder`).
    """
    changed = settings | {
        "leaderElection": {"leaderElect": False},
        "webhook": {"host": address, "port": Site.webhook_port, "certDir": str(serving)},
        "health": {"healthProbeBindAddress": f"{address}:{_HEALTH_PORT}"},
        "metrics": {"bindAddress": "0"},
    }
    if _insists_on_folder(settings):
        return changed | {"internalCertManagement": {"enable": False}}
    return changed | {"featureGates": {**settings.get("featureGates", {}), "VisibilityOnDemand": False}}
