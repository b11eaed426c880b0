from sandbox.providers.manifests import forced, manager_of, remembered, taken_over
from sandbox.providers.values import Object

OWN = "pulumi-kubernetes-1a2b3c4d"


def entry(manager: str, operation: str, *fields: str, **more: str) -> Object:
    return {
        "manager": manager,
        "operation": operation,
        "fieldsV1": {"f:data": {f"f:{name}": {} for name in fields}},
    } | more


def live(*entries: Object) -> Object:
    return {"metadata": {"managedFields": [*entries]}}


def test_an_object_keeps_its_manager_from_one_state_to_the_next() -> None:
    new = manager_of({})
    assert new != manager_of({})
    assert manager_of(remembered({}, new)) == new


def test_what_the_creator_and_kubectl_wrote_becomes_the_objects_own() -> None:
    others = [entry("kueue", "Update", "c"), entry("pulumi-kubernetes", "Update", "d", subresource="status")]
    taken = [entry("pulumi-kubernetes", "Update", "a"), entry("kubectl-patch", "Update", "b")]
    assert taken_over(live(*others, *taken), OWN) == [*others, entry(OWN, "Apply", "a", "b")]
    owned = [entry(OWN, "Apply", "x"), entry("kubectl", "Apply", "y")]
    assert taken_over(live(*owned, *others), OWN) == [*others, entry(OWN, "Apply", "x", "y")]


def test_nothing_is_taken_from_other_programs_or_from_another_apply_of_pulumi() -> None:
    others = [entry("python-urllib3", "Update", "a"), entry("pulumi-kubernetes-ffffffff", "Apply", "b")]
    assert taken_over(live(*others, entry(OWN, "Apply", "c")), OWN) is None


def test_fields_of_others_are_taken_where_the_object_says_so_and_in_previews_of_its_first_update() -> None:
    plain: Object = {"metadata": {}}
    ours: Object = {"metadata": {"annotations": {"pulumi.com/patchForce": "true"}}}
    created, updated = live(entry("pulumi-kubernetes", "Update", "a")), live(entry(OWN, "Apply", "a"))
    assert forced(ours, updated, preview=False)
    assert forced(plain, created, preview=True)
    assert not forced(plain, created, preview=False)
    assert not forced(plain, updated, preview=True)
    assert forced(plain, live(), preview=False)
