"""Simulates Kueue's scheduler without a cluster: whether the queue would admit a job, and which jobs it would preempt.

It follows Kueue 0.19.2 (`pkg/scheduler`, `pkg/cache`) for what `infra.stack.kueue` renders: one resource, several
flavors in order, queues in one flat cohort or none, limits, preemption, fair sharing. `benchmarks.kueue_trials`
compares it with recorded decisions of the real Kueue.

It cannot know whether hosts are free (topology-aware scheduling counts them, queued capacity has to create them),
whether pods start in time, or which jobs end or are submitted in the meantime. A verdict says so where it matters.
Nested cohorts, partial admission, preemption gates and fair sharing between LocalQueues are not modelled, because
no stack uses them. `multislice rehearse` names them if it finds them in another cluster; its tests replay decisions of
the real Kueue in such clusters."""
