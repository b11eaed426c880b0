from pathlib import Path

import pytest

from infra.kubernetes import ApiError
from multislice import CallError, CallGone, NoSuchStack, Refused, forget
from multislice.submission import find_call, forget_call, submit
from tests.multislice.known import NAMESPACE, Objects, place
from tests.multislice.test_submission import PACKED, WISH

FORBIDDEN = ApiError(403, "Forbidden", "not yours")


def test_a_call_is_found_by_its_name(tmp_path: Path, objects: Objects) -> None:
    stack = place(tmp_path, objects)
    call = submit(PACKED, WISH, stack)
    assert find_call(call.id, stack) == call
    with pytest.raises(CallGone, match=r"stack local has no call 'other'; it was cancelled, or ended more than a day"):
        find_call("other", stack)


def test_who_may_look_into_one_teams_namespace_finds_the_calls_there(tmp_path: Path, objects: Objects) -> None:
    call = submit(PACKED, WISH, place(tmp_path, objects))
    both = place(tmp_path, objects, another="another")
    objects.fails["/namespaces/another/"] = FORBIDDEN
    assert find_call(call.id, both).namespace == NAMESPACE
    with pytest.raises(CallGone, match="'other'; namespaces that you may not read: another; it was"):
        find_call("other", both)


def test_a_call_of_another_team_is_not_taken_for_ones_own(tmp_path: Path, objects: Objects) -> None:
    """Members of another team make a JobSet of that name, which may name any result and any key."""
    call = submit(PACKED, WISH, place(tmp_path, objects))
    both = place(tmp_path, objects, another="another")
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


def test_the_files_of_another_teams_call_are_not_removed(tmp_path: Path, objects: Objects) -> None:
    call = submit(PACKED, WISH, place(tmp_path, objects))
    both = place(tmp_path, objects, another="another")
    before = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    forget_call(call.id, both, "another")
    assert sorted(path for path in tmp_path.rglob("*") if path.is_file()) == before
    assert objects.found


def test_a_cluster_that_cannot_be_asked_is_reported(tmp_path: Path, objects: Objects) -> None:
    objects.fails["GET"] = OSError("no route to host")
    with pytest.raises(
        NoSuchStack, match="the cluster of stack local cannot be reached: no route to host; check that you"
    ):
        find_call("train-1f2e3d4c", place(tmp_path, objects))


def test_a_call_of_another_version_is_reported(tmp_path: Path, objects: Objects) -> None:
    stack = place(tmp_path, objects)
    call = submit(PACKED, WISH, stack)
    (jobset,) = objects.found.values()
    container = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0]
    container["env"][0]["value"] = '{"id": "x", "of": "tomorrow"}'
    with pytest.raises(CallError, match="was created by another version of this package"):
        find_call(call.id, stack)


def test_a_call_is_forgotten_with_its_jobset_or_when_its_files_alone_are_left(tmp_path: Path, objects: Objects) -> None:
    stack = place(tmp_path, objects)
    calls = [submit(PACKED, WISH, stack) for _ in range(2)]
    calls[0].cancel()
    for call in calls:
        call.files.write("output/model", b"weights")
        forget_call(call.id, stack)
    assert not objects.found
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("name", ["", "..", "train", "../train-1f2e3d4c", "train-1f2e3d4c/.."])
def test_what_is_no_name_of_a_call_is_not_forgotten(name: str) -> None:
    with pytest.raises(Refused, match="expected the name of a call, .* nothing was removed"):
        forget(name, stack="local")
