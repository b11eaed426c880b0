"""The stack files in docs/how-to/data.md are accepted."""

import yaml

from infra.stack.settings.read import parse
from tests.documents.pages import DOCS, blocks
from tests.infra.one_job import only_training
from tests.infra.recording import stack_values
from workloads.spec import token_folders

TEXT = (DOCS / "how-to" / "data.md").read_text()


def test_its_stack_files_are_accepted() -> None:
    folder, mixture = (yaml.safe_load(block)["job"]["data"] for block in blocks(TEXT, "yaml"))
    for data, paths in (
        (folder, {"data": "gs://BUCKET/tokens"}),
        (mixture, {"data.datasets.code": "gs://BUCKET/code", "data.datasets.web": "gs://BUCKET/web"}),
    ):
        values = stack_values("dev")
        values["job"]["data"] = data
        spec = only_training(parse(values)).data
        assert spec
        assert {setting: folder.path for setting, folder in token_folders(spec).items()} == paths
