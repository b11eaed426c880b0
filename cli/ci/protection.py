"""GitHub environments: who may use them, and what their jobs read.

An environment never exists without its protection: the call that creates it names the reviewers and allows no branch
yet. https://docs.github.com/rest/deployments/environments
"""

from collections.abc import Mapping, Sequence
from typing import Any

from cli.ci.github import Access
from cli.halt import Halt

type Reviewer = Mapping[str, Any]
"""`type` and `id` of a user or a team, as in GitHub's API."""


def repository_id(access: Access) -> int:
    """Return GitHub's number of the repository, which stays the same when the repository is renamed."""
    return access.call("GET", "")["id"]


def require_protected(access: Access, branch: str) -> None:
    """Check that nobody can push to the branch without a review, because the accounts trust it.

    Raises:
        Halt: it has no protection.
    """
    if not access.call("GET", f"branches/{branch}")["protected"]:
        raise Halt(
            f"expected a protected branch {branch}, got one to which everybody with write access may push;"
            " require pull requests with an approval in the repository's settings (Rules, or Branches)"
        )


def reviewers(access: Access, names: Sequence[str]) -> list[Reviewer]:
    """Look up people, by login, and teams, by ORGANIZATION/TEAM."""
    found: list[Reviewer] = []
    for name in names:
        organization, _, team = name.rpartition("/")
        path = f"/orgs/{organization}/teams/{team}" if organization else f"/users/{name}"
        found.append({"type": "Team" if organization else "User", "id": access.call("GET", path)["id"]})
    return found


def protect(access: Access, environment: str, branches: Sequence[str], reviewed_by: Sequence[Reviewer]) -> None:
    """Create or change the environment: only jobs on these branches can use it, after a review by one of `reviewed_by`.

    Without reviewers there is no review. Nobody can approve a run that they started.
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
    """Set variables of an environment, or of the repository if `environment` is None."""
    path = f"environments/{environment}/variables" if environment else "actions/variables"
    known = {each["name"] for each in access.listed(path, "variables")}
    for name, value in values.items():
        method, place = ("PATCH", f"{path}/{name}") if name in known else ("POST", path)
        access.call(method, place, {"name": name, "value": value})
