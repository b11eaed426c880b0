import stat

import pytest

from sandbox import certificates
from sandbox.site import Site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    site = Site(tmp_path_factory.mktemp("site"), 64)
    certificates.ensure(site)
    return site


def test_only_their_owner_can_read_keys(site: Site):
    keys = [*site.pki.glob("*.key"), *site.pki.glob("*token*"), site.kubeconfig]
    assert len(keys) > 5
    assert {stat.S_IMODE(key.stat().st_mode) for key in keys} == {0o600}


def test_the_administrators_token_is_known_to_the_api_server(site: Site):
    token, user, _, group = (site.pki / "tokens.csv").read_text().strip().split(",")
    assert token == (site.pki / "admin.token").read_text()
    assert (user, group) == ("sandbox-admin", "system:masters")


def test_a_second_call_changes_nothing(site: Site):
    before = {path: path.read_bytes() for path in site.pki.iterdir()}
    certificates.ensure(site)
    assert {path: path.read_bytes() for path in site.pki.iterdir()} == before
