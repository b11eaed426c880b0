"""Two made-up trials: one that held, one that did not."""

from chaos.trial import Result

HELD = Result(
    fault="follower-killed",
    what="a host that leads nothing is killed",
    broken=(),
    ended_as="Completed",
    endings=("KILLED", "DONE"),
    record="",
    charged=1,
    lost_steps=2,
    recovery_seconds=31.4,
    began=1000.0,
    struck=1030.0,
    ended=1120.0,
    commit="abc1234",
    curve=(((1010.0, 5.0), (1020.0, 4.0)), ((1061.4, 4.0), (1070.0, 3.0))),
)
LOST = Result(
    fault="host-stopped",
    what="a host hangs | without an end",
    broken=("expected 2 starts, got 1",),
    ended_as="Failed",
    endings=("HANG",),
    record="job-slice-1-1: step 11 did not end",
    charged=0,
    lost_steps=9,
    recovery_seconds=None,
    began=1120.0,
    struck=1150.0,
    ended=1300.0,
    commit="abc1234",
    curve=(((1130.0, 5.0), (1140.0, 4.0)),),
)
