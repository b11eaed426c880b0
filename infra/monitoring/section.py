"""What a stack file says of monitoring."""

from workloads.spec import Spec


class Monitoring(Spec):
    """Metrics in Google Managed Prometheus, alerts on them, and a dashboard for Grafana; see `docs/monitoring.md`."""

    enabled: bool = True
    """Whether the stack declares what is collected, its alerts and the dashboard. The cluster has Managed
    Prometheus either way, and the trainer's hosts answer whoever asks them for metrics."""
