from pathlib import Path

import pytest

from infra.cluster.kubernetes import ApiError
from multislice import CallError, CallGone, NoSuchStack, Refused, forget
from multislice.call import Call
from multislice.place import Place
from multislice.submission import find_call
from tests.multislice.known import NAMESPACE, Objects, files, place


@pytest.fixture
def both(tmp_path: Path, objects: Objects) -> Place:
    """The same stack with a second team."""
    return place(tmp_path, objects, another="another")


def test_a_call_is_found_by_its_name(stack: Place, call: Call) -> None:
    assert find_call(call.id, stack) == call
    with pytest.raises(CallGone, match=r"stack local has no call 'other'; it was cancelled, or ended more than a day"):
        find_call("other", stack)


def test_who_may_look_into_one_teams_namespace_finds_the_calls_there(both: Place, call: Call, objects: Objects) -> None:
    objects.fails["/namespaces/another/"] = ApiError(403, "Forbidden", "not yours")
    assert find_call(call.id, both).namespace == NAMESPACE
    with pytest.raises(CallGone, match="'other'; namespaces that you may not read: another; it was"):
        find_call("other", both)


def test_a_call_of_another_team_is_not_taken_for_ones_own(both: Place, call: Call, objects: Objects) -> None:
    """Members of another team make a JobSet of that name, which may name any result and any key."""
    theirs = {path.replace(f"/{NAMESPACE}/", "/another/"): jobset for path, jobset in objects.found.items()}
    own = next(team for team, namespace in both.settings.namespaces.items() if namespace == NAMESPACE)
    for jobsets in (objects.found | theirs, theirs):
        objects.found = jobsets
        with pytest.raises(Refused, match="expected the team of call .* another.*pass team="):
            find_call(call.id, both)
    with pytest.raises(CallGone):
        find_call(call.id, both, own)
    with pytest.raises(Refused, match="expected a team of stack local"):
        find_call(call.id, both, "nobody")


@pytest.mark.parametrize("fault", [ApiError(401, "", "log in"), OSError("away")])
def test_a_cluster_that_cannot_be_asked_is_reported(stack: Place, objects: Objects, fault: Exception) -> None:
    objects.fails["GET"] = fault
    with pytest.raises(NoSuchStack, match="the cluster of stack local cannot be reached: (log in|away); check that"):
        find_call("train-1f2e3d4c", stack)


def test_a_call_of_another_version_is_reported(stack: Place, call: Call, objects: Objects) -> None:
    (jobset,) = objects.found.values()
    container = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0]
    container["env"][0]["value"] = '{"id": "x", "of": "tomorrow"}'
    with pytest.raises(CallError, match="was created by another version of this package"):
        find_call(call.id, stack)


def test_the_files_of_another_teams_call_are_not_removed(
    both: Place, call: Call, objects: Objects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("multislice.submission.place", lambda *_: both)
    before = files(tmp_path)
    forget(call.id, stack="local", team="another")
    assert files(tmp_path) == before
    assert objects.found


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_call_is_forgotten_with_its_jobset_or_when_its_files_alone_are_left(
    call: Call, objects: Objects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cancelled: bool
) -> None:
    monkeypatch.setattr("multislice.submission.place", lambda *_: call.place)
    if cancelled:
        call.cancel()
    call.files.write("output/model", b"weights")
    forget(call.id, stack="local")
    assert not objects.found
    assert files(tmp_path) == []


@pytest.mark.parametrize("name", ["", "..", "train", "../train-1f2e3d4c", "train-1f2e3d4c/.."])
def test_what_is_no_name_of_a_call_is_not_forgotten(name: str) -> None:
    with pytest.raises(Refused, match="expected the name of a call, .* nothing was removed"):
        forget(name, stack="local")
