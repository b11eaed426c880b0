"""One clone of the repository for all tests that run commands of the documents."""

import pytest

from tests.documents.clone import Clone, clone_in


@pytest.fixture(scope="session")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    """A clone. Files that commands of one page write stay for the next page."""
    return clone_in(tmp_path_factory.mktemp("clone"))
