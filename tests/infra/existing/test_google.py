"""What a stack needs of an existing cluster or subnet, as Google Cloud describes it."""

from dataclasses import replace
from typing import Any

import pytest

from infra.existing.checks import Needs, cluster_doubts, cluster_errors, dns_endpoint, subnet_errors
from infra.stack.settings.schema import ExistingNetwork
from tests.infra.recording import DNS_ENDPOINT

FITTING: dict[str, Any] = {
    "name": "shared",
    "masterVersion": "1.34.1-gke.100",
    "controlPlaneEndpointsConfigs": [
        {"dnsEndpointConfigs": [{"endpoint": DNS_ENDPOINT, "allowExternalTraffic": True}]}
    ],
    "workloadIdentityConfigs": [{"workloadPool": "my-project.svc.id.goog"}],
    "monitoringConfigs": [{"managedPrometheuses": [{"enabled": True}]}],
    "addonsConfigs": [{"gcsFuseCsiDriverConfigs": [{"enabled": True}]}],
    "authenticatorGroupsConfigs": [{"securityGroup": "gke-security-groups@example.com"}],
    "databaseEncryptions": [{"state": "ENCRYPTED"}],
    "datapathProvider": "ADVANCED_DATAPATH",
    "privateClusterConfigs": [{"enablePrivateNodes": True}],
    "clusterIpv4Cidr": "10.32.0.0/14",
    "servicesIpv4Cidr": "10.40.0.0/20",
}


@pytest.fixture
def all_needs(needs: Needs) -> Needs:
    """Everything that a stack can ask for."""
    return replace(needs, mounts=True, secrets=True, groups=True)


def test_a_cluster_with_all_that_the_stack_asks_for_fits(all_needs: Needs) -> None:
    assert not list(cluster_errors(FITTING, all_needs))
    assert not list(cluster_doubts(FITTING))
    assert dns_endpoint(FITTING) == DNS_ENDPOINT


def test_everything_that_is_missing_is_named_at_once_with_the_command_that_adds_it(all_needs: Needs) -> None:
    found = {error.path: error for error in cluster_errors({"masterVersion": "1.34.1-gke.100"}, all_needs)}
    assert found.keys() == {"cluster.existing", "datasets.mount", "monitoring.enabled", "teams", "secrets"}
    commands = [error.fix for error in cluster_errors({"masterVersion": "1.29.9-gke.1"}, all_needs)]
    assert all("gcloud container clusters update shared --location=us-east5" in command for command in commands)
    assert len(commands) == 7


def test_what_the_stack_does_not_use_is_not_asked_for(all_needs: Needs) -> None:
    plain = replace(all_needs, mounts=False, monitored=False, secrets=False, groups=False)
    assert {error.path for error in cluster_errors({"masterVersion": "1.34.1-gke.100"}, plain)} == {"cluster.existing"}


def test_an_autopilot_cluster_is_refused_without_further_advice(all_needs: Needs) -> None:
    (error,) = cluster_errors(FITTING | {"enableAutopilot": True}, all_needs)
    assert error.got == "Autopilot"


def test_an_endpoint_for_machines_inside_of_google_cloud_alone_does_not_do() -> None:
    inside = {"controlPlaneEndpointsConfigs": [{"dnsEndpointConfigs": [{"endpoint": DNS_ENDPOINT}]}]}
    assert dns_endpoint(inside) is None


def test_a_cluster_that_enforces_no_network_policies_is_a_doubt() -> None:
    assert list(cluster_doubts(FITTING | {"datapathProvider": ""}))
    assert not list(cluster_doubts(FITTING | {"datapathProvider": "", "networkPolicies": [{"enabled": True}]}))


def test_a_subnet_has_the_ranges_that_the_stack_file_names_and_reaches_google_privately() -> None:
    wanted = ExistingNetwork(network="corporate", subnet="tpus", pods="tpu-pods", services="tpu-services")
    ranges = [{"rangeName": name, "ipCidrRange": "10.0.0.0/20"} for name in ("tpu-pods", "tpu-services")]
    found = {
        "network": "https://www.googleapis.com/compute/v1/projects/host/global/networks/corporate",
        "secondaryIpRanges": ranges,
        "privateIpGoogleAccess": True,
    }
    assert not list(subnet_errors(found, wanted))
    bad = {**found, "secondaryIpRanges": ranges[:1], "privateIpGoogleAccess": False, "network": "default"}
    assert [error.path.rpartition(".")[2] for error in subnet_errors(bad, wanted)] == ["network", "services", "subnet"]
