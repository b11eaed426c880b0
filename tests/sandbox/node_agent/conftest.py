"""Starts pods on this machine, whose containers restart after a twentieth of a second at first."""

import threading
from collections.abc import Generator
from pathlib import Path
from typing import cast

import pytest

from infra.cluster.kubernetes import ApiServer
from sandbox.node_agent.container import Machine, PodNames
from sandbox.node_agent.pod import Pod
from sandbox.node_agent.pod_worker import PodWorker
from sandbox.site import Site
from tests.checkout import ROOT
from tests.sandbox.node_agent.pods import surroundings
from tests.sandbox.node_agent.trials import Begin, RecordedApi, Trial


@pytest.fixture
def begin(tmp_path: Path) -> Generator[Begin]:
    trials: list[Trial] = []

    def begin(me: Pod, broken: str = "") -> Trial:
        site = Site(tmp_path, 201)
        api = RecordedApi(me.manifest)
        names = PodNames(site)
        names.update(me)
        machine = Machine(
            site,
            Path("/usr/bin/python3"),
            ROOT,
            cast("ApiServer", api),
            names,
            threading.Event(),
            restart_seconds=0.05,
        )
        trial = Trial(PodWorker(machine, surroundings(me)), api, site, machine.silent, machine.broken)
        machine.broken[me.node] = broken
        trial.worker.start()
        trials.append(trial)
        return trial

    yield begin
    for trial in trials:
        trial.worker.forget()
        trial.worker.join(20)
