"""The picture of the README: from a stack file to jobs on slices, and what reads them."""

from infra.stack.tpu import SliceShape, resolve
from tests.documents.diagrams import arrow, card, document
from workloads.report.chart import element, picture, text

_WIDTH, _HEIGHT = 960, 398
_SLICES = 2
_HOST, _HOST_GAP = 26, 8
"""Size of the square of a host, and distance between two of them."""


def architecture() -> str:
    """Draw the stack file, the program, the cluster, its bucket, and the commands that need only a kubeconfig."""
    shape = resolve("v6e", "4x4")
    drawn = [
        card(
            "Stack file",
            ["project, region, zone", "TPU generation, topology", "teams and their quotas", "jobs, budget"],
            (16, 56, 196, 116),
            "box",
        ),
        arrow([(212, 114), (252, 114)]),
        card("Pulumi program", [], (252, 16, 216, 236), "box"),
        card("review", ["price, fit, pace, queue"], (264, 52, 192, 56), "inner"),
        card("preview", ["every change, policy rules"], (264, 116, 192, 56), "inner"),
        card("up", ["keeps slices that jobs use"], (264, 180, 192, 56), "inner"),
        arrow([(468, 114), (508, 114)]),
        *_cluster(shape),
        arrow([(726, 300), (726, 324)]),
        card("Bucket", ["checkpoints, metrics, records of every attempt"], (508, 324, 436, 56), "box"),
        arrow([(508, 288), (468, 288)]),
        arrow([(508, 352), (468, 352)]),
        card(
            "Commands that need only a kubeconfig",
            ["list, status, explain, logs, report", "rehearse: would the queue admit this job now?"]
            + ["also in clusters that xpk or gcluster created"],
            (16, 276, 452, 104),
            "box",
        ),
    ]
    about = (
        "The Pulumi program reads a stack file, and reviews, previews and deploys a cluster with Kueue, JobSet and"
        " TPU slices. Jobs write checkpoints and records to a bucket. Commands read both with a kubeconfig."
    )
    drawing = picture("Architecture", about, _WIDTH, _HEIGHT, *drawn)
    caption = (
        "In the sandbox, Pulumi, Kubernetes, Kueue and JobSet are the real programs, without Google Cloud and TPUs."
    )
    return document(caption, drawing, _WIDTH, _HEIGHT)


def _cluster(shape: SliceShape) -> list[str]:
    slices = [_slice(number, shape, 524 + 232 * number) for number in range(_SLICES)]
    return [
        card("GKE cluster, or the sandbox on one machine", [], (508, 16, 436, 284), "box"),
        card("Kueue", ["a queue for each team: quota, borrowing, preemption"], (520, 52, 412, 56), "inner"),
        card("JobSet", ["a job starts with all its slices, or not at all"], (520, 116, 412, 56), "inner"),
        *slices,
        arrow([(704, 244), (748, 244)]),
        arrow([(748, 244), (704, 244)]),
        text("DCN", 713, 234, class_="label"),
    ]


def _slice(number: int, shape: SliceShape, x: int) -> str:
    """Draw a slice with its hosts."""
    lines = ["", "", f"{shape.hosts} hosts, {shape.chips} chips", "JAX trainer, or yours"]
    outline = card(f"slice {number}", lines, (x - 4, 184, 180, 104), "inner")
    hosts = [
        element("rect", x=x + 8 + (_HOST + _HOST_GAP) * host, y=216, width=_HOST, height=_HOST, rx=4, class_="fill-1")
        for host in range(shape.hosts)
    ]
    return "".join([outline, *hosts])
