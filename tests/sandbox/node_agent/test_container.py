from pathlib import Path

from sandbox.node_agent.container import PodNames, full_names, peer_lines
from sandbox.node_agent.pod import Pod
from sandbox.site import Site
from tests.sandbox.node_agent.pods import SITE, pod


def worker(index: int, generation: str = "a", created: str = "2026-01-01T00:00:00Z", phase: str = "Running") -> Pod:
    return pod(
        f"train-slice-0-{index}-{generation}",
        hostname=f"train-slice-0-{index}",
        subdomain="train",
        metadata={"creationTimestamp": created},
        status={"phase": phase},
    )


def addresses(lines: str) -> dict[str, str]:
    return {name: line.split("\t")[0] for line in lines.splitlines() for name in line.split("\t")[1].split()}


def test_a_peer_has_every_name_that_cluster_dns_would_give_it() -> None:
    peer = worker(1)
    names = addresses(peer_lines(SITE, [peer]))
    short = "train-slice-0-1.train"
    assert names == dict.fromkeys(
        [f"{short}.team.svc.cluster.local", f"{short}.team.svc", f"{short}.team", short],
        SITE.pod_address("team", peer.name),
    )


def test_a_peer_without_subdomain_and_one_that_ended_have_no_name() -> None:
    assert peer_lines(SITE, [pod("alone"), worker(0, phase="Failed")]) == ""


def test_a_replaced_pod_leaves_its_name_to_the_newer_one() -> None:
    old, new = worker(0, "zzz"), worker(0, "aaa", created="2026-01-01T00:00:05Z")
    # Of two pods of one second, the one that stays is the newer one.
    leaving, staying = worker(0, "zzz"), worker(0, "aaa")
    leaving.metadata["deletionTimestamp"] = "2026-01-01T00:00:30Z"
    for pods in ([old, new], [new, old], [staying, leaving]):
        assert addresses(peer_lines(SITE, pods))["train-slice-0-0.train"] == SITE.pod_address(
            "team", "train-slice-0-0-aaa"
        )


def test_peers_come_and_go_in_a_file_that_stays_the_same_file(tmp_path: Path) -> None:
    names = PodNames(Site(tmp_path, 201))
    me, peer = worker(0), worker(1)
    names.update(me)
    names.hosts_file(me).parent.mkdir(parents=True)
    path = names.create(me)
    inode = path.stat().st_ino
    alone = path.read_text()
    own = SITE.pod_address("team", me.name)
    assert addresses(alone) == dict.fromkeys([*full_names(me), "train-slice-0-0", "localhost"], own)
    names.update(peer)
    assert "train-slice-0-1.train" in addresses(path.read_text())
    names.remove(peer)
    assert path.read_text() == alone
    assert path.stat().st_ino == inode
