"""The host processes of a job for the tests: started, watched against a deadline, and never left behind."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Timer

from cli.hosts import Hosts, start_hosts
from workloads.spec import JobSpec


@contextmanager
def running_hosts(
    spec: JobSpec, attempt: int, folder: Path, timeout_seconds: float, environment: Mapping[str, str]
) -> Generator[Hosts]:
    """All hosts of `spec`, killed after `timeout_seconds`; every host's log is printed when the block fails."""
    with start_hosts(spec, "run-1", attempt, folder, environment) as hosts:
        deadline = Timer(timeout_seconds, hosts.stop, kwargs={"grace_seconds": 0})
        deadline.start()
        try:
            yield hosts
        except BaseException:
            print_logs(hosts)
            raise
        finally:
            deadline.cancel()


def print_logs(hosts: Hosts) -> None:
    for host in hosts.all:
        print(f"===== {host.log.name}, {host.address}, exit code {host.process.poll()}")
        print(host.log.read_text(errors="replace"))
