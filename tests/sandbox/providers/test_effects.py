from pathlib import Path
from typing import Any, cast

import pytest
import urllib3

from infra.cluster.kubernetes import ApiServer, Json
from sandbox import builds
from sandbox.providers.cloud import CLUSTER, PROJECT_MEMBER, PROJECT_SERVICE, Cloud
from sandbox.providers.effects import BucketEffect, NodePoolEffect, require_node_pool
from sandbox.providers.plugin import Refusal
from sandbox.servers import Supervision, start_gcs
from sandbox.site import Site, create
from tests.chain.stack import ignore


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"name": "a", "nodeCount": 4, "initialNodeCount": 4}, "both initial_node_count and node_count on node pool a"),
        ({"upgradeSettings": {"strategy": "BLUE_GREEN", "maxSurge": 1}}, "Surge upgrade settings may not be changed"),
    ],
)
def test_a_new_pool_whose_settings_exclude_each_other_is_refused(properties: Json, message: str) -> None:
    with pytest.raises(Refusal, match=message):
        require_node_pool(properties, None)


def test_an_existing_pool_is_judged_by_what_changes() -> None:
    surge = {"maxSurge": 0, "maxUnavailable": 1}
    require_node_pool({"upgradeSettings": {"strategy": "SURGE"} | surge}, None)
    require_node_pool({"upgradeSettings": {"strategy": "BLUE_GREEN"} | surge}, {"upgradeSettings": surge})
    with pytest.raises(Refusal, match="Surge upgrade settings"):
        require_node_pool({"upgradeSettings": {"strategy": "BLUE_GREEN"}}, {"upgradeSettings": surge})


class Requests:
    """An API server that only remembers what it is asked."""

    def __init__(self) -> None:
        self.made: list[tuple[str, str]] = []

    def request(self, method: str, path: str, *arguments: Any, **options: Any) -> dict[str, Any]:
        self.made.append((method, path.rpartition("/")[2]))
        return {}

    def find(self, path: str) -> None:
        return None


def test_a_bucket_goes_with_its_objects_but_not_with_folders_of_its_own(tmp_path: Path) -> None:
    site = create(tmp_path)
    supervision = Supervision(site.servers)
    start_gcs(site, builds.prepare(ignore), supervision)
    try:
        buckets = BucketEffect(site)
        for name in ("flat", "hierarchical"):
            properties: Json = {"name": name, "project": "p", "location": "US-EAST5", "forceDestroy": True}
            buckets.create(properties)
            stored = f"{site.gcs_url}/upload/storage/v1/b/{name}/o?uploadType=media&name=run/checkpoint"
            assert urllib3.request("POST", stored, body=b"weights").status == 200
            if name == "flat":
                buckets.delete(properties)
                assert buckets.observe(properties) is None
            else:
                with pytest.raises(Refusal, match="Error 409: The bucket you tried to delete is not empty"):
                    buckets.delete(properties | {"hierarchicalNamespace": {"enabled": True}})
    finally:
        supervision.stop()


def test_nodes_that_stream_images_need_the_api_and_the_right_to_use_it(tmp_path: Path) -> None:
    cloud, api = Cloud(tmp_path), Requests()
    cloud.keep(CLUSTER, "c", {"name": "c", "location": "us-east5-b", "masterVersion": "1.36.2-gke.0"})
    effect = NodePoolEffect(Site(tmp_path, 64), cloud, lambda: cast(ApiServer, api))
    config = {"machineType": "n2-standard-8", "serviceAccount": "nodes@p", "gcfsConfig": {"enabled": True}}
    pool = {"name": "system", "cluster": "c", "nodeCount": 1, "nodeConfig": config}
    with pytest.raises(Refusal, match=r"needs the API containerfilesystem\.googleapis\.com; enable it"):
        effect.create(pool)
    cloud.keep(PROJECT_SERVICE, "s", {"service": "containerfilesystem.googleapis.com"})
    cloud.keep(PROJECT_MEMBER, "a", {"member": "serviceAccount:nodes@p", "role": "roles/viewer"})
    with pytest.raises(Refusal, match=r"grant it to serviceAccount:nodes@p"):
        effect.create(pool)
    role = "roles/serviceusage.serviceUsageConsumer"
    cloud.keep(PROJECT_MEMBER, "b", {"member": "serviceAccount:nodes@p", "role": role})
    effect.create(pool)
    assert api.made == [("POST", "nodes")]
