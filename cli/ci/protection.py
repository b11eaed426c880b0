"""GitHub environments: who may use them, and what their jobs read.

An environment exists with its protection or not at all: the call that makes it allows no branch yet, and names the
reviewers. https://docs.github.com/rest/deployments/environments
"""

from collections.abc import Mapping, Sequence
from typing import Any

from cli.ci.github import Access
from cli.halt import Halt

type Reviewer = Mapping[str, Any]
"""Type and id, as GitHub wants them."""


def repository_id(access: Access) -> int:
    """The number by which GitHub knows the repository, whatever its name."""
    return access.call("GET", "")["id"]


def require_protected(access: Access, branch: str) -> None:
    """Accounts trust the branch, so nobody may push to it what nobody has reviewed.

    Raises:
        Halt: it has no protection.
    """
    if not access.call("GET", f"branches/{branch}")["protected"]:
        raise Halt(
            f"expected a protected branch {branch}, got one to which everybody with write access may push;"
            " require pull requests with an approval in the repository's settings (Rules, or Branches)"
        )


def reviewers(access: Access, names: Sequence[str]) -> list[Reviewer]:
    """People, by login, and teams, as ORGANIZATION/TEAM."""
    found: list[Reviewer] = []
    for name in names:
        organization, _, team = name.rpartition("/")
        path = f"/orgs/{organization}/teams/{team}" if organization else f"/users/{name}"
        found.append({"type": "Team" if organization else "User", "id": access.call("GET", path)["id"]})
    return found


def protect(access: Access, environment: str, branches: Sequence[str], reviewed_by: Sequence[Reviewer]) -> None:
    """Make the environment, or change it, so that only jobs on these branches use it, after a review by one of these.

    No reviewers: without a review. Nobody reviews what they started themselves.
    """
    path = f"environments/{environment}"
    policy = {"protected_branches": False, "custom_branch_policies": True}
    own = {"reviewers": reviewed_by, "prevent_self_review": bool(reviewed_by), "deployment_branch_policy": policy}
    access.call("PUT", path, own)
    allowed = {
        each["name"]: each["id"] for each in access.listed(f"{path}/deployment-branch-policies", "branch_policies")
    }
    for name in allowed.keys() - set(branches):
        access.call("DELETE", f"{path}/deployment-branch-policies/{allowed[name]}")
    for name in sorted(set(branches) - allowed.keys()):
        access.call("POST", f"{path}/deployment-branch-policies", {"name": name})


def put_variables(access: Access, values: Mapping[str, str], environment: str | None = None) -> None:
    """Set variables of an environment, or of the repository for all of them."""
    path = f"environments/{environment}/variables" if environment else "actions/variables"
    known = {each["name"] for each in access.listed(path, "variables")}
    for name, value in values.items():
        method, place = ("PATCH", f"{path}/{name}") if name in known else ("POST", path)
        access.call(method, place, {"name": name, "value": value})
