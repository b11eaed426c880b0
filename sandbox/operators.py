"""Runs the JobSet and Kueue managers that the Helm charts declare, as processes of this machine.

It stands in for the Deployment controller and the kubelet for these two Deployments alone: each
runs with its chart's configuration, its own ServiceAccount's token and its Service's address. Of
the configuration only what binds it to a pod is changed (see `_configuration`). When a manager
answers `/readyz`, its Deployment is reported available.
"""

import base64
import json
import logging
import os
import threading
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from kubernetes import client, config

from sandbox import certificates
from sandbox.programs import Programs
from sandbox.server_process import ServerProcess
from sandbox.site import Site

_log = logging.getLogger(__name__)

OPERATORS = ("jobset", "kueue")
"""Programs that are run; a Deployment is one of them when its image's last path element says so."""

_WEBHOOK_KINDS = ("mutating_webhook_configuration", "validating_webhook_configuration")
_CONFIG_KEY = "controller_manager_config.yaml"
_HEALTH_PORT = 8081
_WEBHOOK_PORT = 443
_TOKEN_SECONDS = 30 * 24 * 3600
_STOP_SECONDS = 5
_TICK_SECONDS = 0.2
_SETTLED_TICK_SECONDS = 1.0


@dataclass
class _Operator:
    """A manager that was started for one generation of its Deployment."""

    deployment: client.V1Deployment
    server: ServerProcess
    health_url: str
    available: bool = False


class Operators:
    """Keeps one manager process for each operator Deployment in the API."""

    def __init__(self, site: Site, programs: Programs) -> None:
        self._site = site
        self._programs = programs
        self._running: dict[str, _Operator] = {}

    def run(self, stop: threading.Event) -> None:
        """Reconcile until `stop` is set, then stop the managers. Needs the API server."""
        api = config.new_client_from_config(str(self._site.kubeconfig))
        self._apps, self._core = client.AppsV1Api(api), client.CoreV1Api(api)
        self._admission = client.AdmissionregistrationV1Api(api)
        while not stop.is_set():
            try:
                settled = self._reconcile()
            except Exception:
                # The API server may be down for a moment; the next tick asks again.
                _log.exception("reconciling the operators failed")
                settled = False
            stop.wait(_SETTLED_TICK_SECONDS if settled else _TICK_SECONDS)
        for operator in self._running.values():
            operator.server.stop(_STOP_SECONDS)

    def _reconcile(self) -> bool:
        wanted = {
            deployment.metadata.uid: deployment
            for deployment in self._apps.list_deployment_for_all_namespaces().items
            if _program(deployment) is not None and deployment.metadata.deletion_timestamp is None
        }
        for uid, operator in list(self._running.items()):
            if uid not in wanted or self._outdated(operator, wanted[uid]):
                operator.server.stop(_STOP_SECONDS)
                del self._running[uid]
        for uid, deployment in wanted.items():
            if uid not in self._running:
                self._start(deployment)
            else:
                self._report(self._running[uid])
        return len(self._running) == len(wanted) and all(operator.available for operator in self._running.values())

    def _outdated(self, operator: _Operator, deployment: client.V1Deployment) -> bool:
        changed = operator.deployment.metadata.generation != deployment.metadata.generation
        return changed or not operator.server.running()

    def _start(self, deployment: client.V1Deployment) -> None:
        name, namespace = _program(deployment), deployment.metadata.namespace
        assert name is not None
        try:
            settings = self._chart_settings(deployment)
            service_name = settings["internalCertManagement"]["webhookServiceName"]
            service = self._core.read_namespaced_service(service_name, namespace)
            address = service.spec.cluster_ip
            ca_pem = self._fill_secret(
                name, namespace, settings["internalCertManagement"]["webhookSecretName"], service_name
            )
            if _insists_on_folder(settings) and not self._inject_authority(ca_pem, namespace, service_name):
                return  # So are its webhooks.
            kubeconfig = self._kubeconfig(deployment)
        except client.ApiException as error:
            if error.status == 404:
                return  # The chart's other objects are still on their way.
            raise
        folder = self._folder(name)
        configuration = _configuration(settings, address, self._serving(name))
        (folder / "config.yaml").write_text(yaml.safe_dump(configuration))
        (folder / "kubeconfig").write_text(kubeconfig)
        command = [
            str(self._programs.path(name)),
            *_flags(deployment),
            f"--config={folder / 'config.yaml'}",
            f"--kubeconfig={folder / 'kubeconfig'}",
        ]
        environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "TMPDIR": str(folder), "GOGC": "50"}
        server = ServerProcess.start(name, command, self._site.logs / f"{name}.log", environment)
        self._running[deployment.metadata.uid] = _Operator(deployment, server, f"http://{address}:{_HEALTH_PORT}/readyz")

    def _chart_settings(self, deployment: client.V1Deployment) -> dict[str, Any]:
        volumes = deployment.spec.template.spec.volumes
        name = next(volume.config_map.name for volume in volumes if volume.config_map)
        config_map = self._core.read_namespaced_config_map(name, deployment.metadata.namespace)
        return yaml.safe_load(config_map.data[_CONFIG_KEY])

    def _fill_secret(self, name: str, namespace: str, secret: str, service: str) -> bytes:
        """Put key pairs where the manager's certificate rotator looks, as after an earlier run.

        The rotator would make them itself, but only at its second look, several seconds later.
        Returns the authority's certificate.
        """
        folder, serving = self._folder(name), self._serving(name)
        if not (folder / "ca.crt").exists():
            ca = certificates.authority(f"{name}-ca", [f"{name}-ca"])
            server = certificates.signed(ca, f"{service}.{namespace}.svc", dns_names=[f"{service}.{namespace}.svc"])
            certificates.write(server, folder, "tls")
            certificates.write(ca, folder, "ca")
        serving.mkdir(exist_ok=True)
        contents = {key: (folder / key).read_bytes() for key in ("ca.crt", "ca.key", "tls.crt", "tls.key")}
        for key, content in contents.items():
            (serving / key).write_bytes(content)
        data = {key: base64.b64encode(content).decode() for key, content in contents.items()}
        self._core.patch_namespaced_secret(secret, namespace, {"data": data})
        return contents["ca.crt"]

    def _inject_authority(self, ca_pem: bytes, namespace: str, service: str) -> bool:
        """Do the rotator's other work: name the authority in the webhooks that call `service`.

        False when there are no such webhooks of either kind yet.
        """
        value = base64.b64encode(ca_pem).decode()
        found = set[str]()
        for kind in _WEBHOOK_KINDS:
            for item in getattr(self._admission, f"list_{kind}")().items:
                patch = [
                    {"op": "add", "path": f"/webhooks/{index}/clientConfig/caBundle", "value": value}
                    for index, webhook in enumerate(item.webhooks)
                    if _calls(webhook, namespace, service)
                ]
                if patch:
                    found.add(kind)
                    getattr(self._admission, f"patch_{kind}")(item.metadata.name, patch)
        return found == set(_WEBHOOK_KINDS)

    def _kubeconfig(self, deployment: client.V1Deployment) -> str:
        account, namespace = deployment.spec.template.spec.service_account_name, deployment.metadata.namespace
        request = client.AuthenticationV1TokenRequest(
            spec=client.V1TokenRequestSpec(audiences=[], expiration_seconds=_TOKEN_SECONDS)
        )
        answer = self._core.create_namespaced_service_account_token(account, namespace, request)
        ca = (self._site.pki / "ca.crt").read_bytes()
        return certificates.kubeconfig(self._site.api_server_url, ca, {"token": answer.status.token})

    def _serving(self, name: str) -> Path:
        return self._folder(name) / "serving"

    def _folder(self, name: str) -> Path:
        folder = self._site.root / "operators" / name
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
        return folder

    def _report(self, operator: _Operator) -> None:
        if operator.available or not _ready(operator.health_url):
            return
        metadata = operator.deployment.metadata
        replicas = operator.deployment.spec.replicas
        status = {
            "observedGeneration": metadata.generation,
            "replicas": replicas,
            "updatedReplicas": replicas,
            "readyReplicas": replicas,
            "availableReplicas": replicas,
            "conditions": [
                {"type": "Available", "status": "True", "reason": "MinimumReplicasAvailable"},
                {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"},
            ],
        }
        self._apps.patch_namespaced_deployment_status(metadata.name, metadata.namespace, {"status": status})
        operator.available = True


def _program(deployment: client.V1Deployment) -> str | None:
    image = deployment.spec.template.spec.containers[0].image
    name = image.split("@")[0].rpartition("/")[2].partition(":")[0]
    return name if name in OPERATORS else None


def _flags(deployment: client.V1Deployment) -> list[str]:
    return [flag for flag in deployment.spec.template.spec.containers[0].args if not flag.startswith("--config=")]


def _calls(webhook: Any, namespace: str, service: str) -> bool:
    called = webhook.client_config.service
    return called is not None and (called.namespace, called.name) == (namespace, service)


def _insists_on_folder(settings: dict[str, Any]) -> bool:
    """Whether the rotator insists on a fixed folder of the machine, as JobSet 0.12 does."""
    return settings["apiVersion"].startswith("config.jobset.x-k8s.io/")


def _configuration(settings: dict[str, Any], address: str, serving: Path) -> dict[str, Any]:
    """The chart's configuration with what makes a pod of it replaced by the Service's address.

    No leader election (one process, and an API pause must not end it), no metrics port, no
    visibility server, which would write below `/`, and for JobSet no rotator (see
    `_insists_on_folder`).
    """
    changed = json.loads(json.dumps(settings))
    changed["leaderElection"] = {"leaderElect": False}
    changed["webhook"] = {"host": address, "port": _WEBHOOK_PORT, "certDir": str(serving)}
    changed["health"] = {"healthProbeBindAddress": f"{address}:{_HEALTH_PORT}"}
    changed["metrics"] = {"bindAddress": "0"}
    if _insists_on_folder(settings):
        changed["internalCertManagement"] = {"enable": False}
    else:
        changed["featureGates"] = {**changed.get("featureGates", {}), "VisibilityOnDemand": False}
    return changed


def _ready(url: str) -> bool:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=1) as response:
            return response.status == 200
    except (urllib.error.URLError, OSError):
        return False
