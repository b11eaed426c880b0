"""The end of a stack whose cluster is gone already. Leaves the sandbox stopped."""

import pytest
from pulumi.automation import CommandError

from sandbox import daemon
from tests.chain.stack import Chain, ignore
from tests.infra.recording import stack_values

pytestmark = pytest.mark.complete


def test_a_cluster_that_is_gone_does_not_block_destroy(chain: Chain, monkeypatch: pytest.MonkeyPatch):
    values = stack_values("local")
    values["teams"]["research"]["admission"] = "hold"
    chain.engine_on(values).up(ignore)
    daemon.stop(chain.site)
    for record in [*chain.site.cloud.glob("container.*")]:
        record.unlink()
    engine = chain.engine_on(values)
    with pytest.raises(CommandError, match="PULUMI_K8S_DELETE_UNREACHABLE=true pulumi destroy --run-program"):
        engine.destroy(ignore)
    monkeypatch.setenv("PULUMI_K8S_DELETE_UNREACHABLE", "true")
    engine.destroy(ignore)
    assert [resource["type"] for resource in engine.resources()] == ["gcp:storage/bucket:Bucket"]
