"""What one host needs to train in a group of slices: its connections, its program and its data."""

import secrets
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from types import TracebackType
from typing import Self

import jax
import numpy as np
from etils import epath

from multislice_run.start import Start
from workloads.group.control import Control, GroupSize
from workloads.group.links import Links
from workloads.group.view import Endpoint, HostId, Register
from workloads.spec import JobSpec
from workloads.training.attention_trial import settle
from workloads.training.data import Batches, require_same_rows
from workloads.training.fingerprint import Fingerprints, Replicas
from workloads.training.group_schedule import GroupSchedule
from workloads.training.initial_weights import InitialWeights
from workloads.training.mesh import build_mesh
from workloads.training.rows import cache_folder, load_rows
from workloads.training.runtime import Processes
from workloads.training.slice_program import Shards, SliceProgram
from workloads.training.step import TrainState, compiler_options


class GroupHost:
    """What this host needs to take part in the group: where it listens, and its connections."""

    def __init__(self, spec: JobSpec, start: Start, me: HostId, address: str, processes: Processes):
        self.me = me
        self.register = Register(epath.Path(spec.storage.path), start.run_id, start.restart_attempt)
        self.schedule = GroupSchedule(spec.training, spec.quorum)
        self._stack = ExitStack()
        self.links = self._stack.enter_context(Links(me.slice, address, self.register.group))
        listener = socket.create_server((address, 0))
        control = f"{address}:{listener.getsockname()[1]}"
        own = processes.gather("endpoint", [secrets.token_hex(8), control, self.links.address])
        endpoints = {HostId(me.slice, worker): Endpoint(*each) for worker, each in enumerate(own)}
        wait = 60 * spec.training.start_minutes
        size = GroupSize(spec.slices.count, spec.slices.hosts, spec.quorum, wait)
        self.control = Control(self.register, me, size, endpoints, listener, self.schedule.decide)

    def __enter__(self) -> Self:
        self._stack.enter_context(self.control)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)


class Prepared:
    """The program and the data of one slice, which do not depend on the group."""

    def __init__(self, spec: JobSpec, processes: Processes, program_type: type[SliceProgram]):
        world = spec.of_one_slice
        self.mesh = build_mesh(world.mesh, world.slices, jax.devices())
        compiler = ThreadPoolExecutor(max_workers=1, thread_name_prefix="compile")
        self.attention = settle(world, self.mesh, compiler_options(world, self.mesh), processes)
        processes.deadline.expect("data and compilation", spec.training.prepare_minutes)
        self.program = program_type(self.attention.made_in(world), self.mesh, compiler)
        schedule = world.training
        marked = schedule.reads_marks
        rows = load_rows(spec.data, spec.model.vocab_size, schedule.sequence_length, cache_folder(), marked)
        require_same_rows(rows, processes)
        self.batches = Batches(rows, schedule, self.program.batch_sharding, spec.slices.count)
        self.initial_weights = InitialWeights.of(spec)
        self.replicas = Replicas(self.mesh.devices, world.slices)
        self.compile_seconds = self.program.prepare()
        self.program.prepare_fingerprints().result()
        self.state_shards = Shards(self.program.whole_shapes, np.dtype(np.float32))
        if self.program.frozen_shapes is not None:
            assert self.initial_weights, "the specification refuses adapters without weights"
            self.program.frozen = self.initial_weights.frozen(self.program.frozen_shapes, processes)

    def fingerprints(self, state: TrainState, step: int) -> Fingerprints:
        return self.replicas.require_equal(step, self.program.fingerprints(state))
