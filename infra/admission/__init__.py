"""Would the queue admit a job, and at whose cost: Kueue's scheduler rehearsed, with no cluster.

Pure: plain frozen data in, a `Verdict` out. It follows Kueue 0.19.2 (`pkg/scheduler`, `pkg/cache`),
on what `infra.queues` renders: one resource, several flavors in order, queues alone or in a
flat cohort, limits, preemption, fair sharing. It is held against recorded decisions of the real one:
`benchmarks.admission`.

What it cannot know, and a verdict says so where it matters: whether hosts are free (topology-aware
scheduling counts them, queued capacity has to bring them), whether pods come up in time, and what
ends or is submitted meanwhile. Not modelled, since nothing here renders it: cohorts in cohorts,
partial admission, preemption gates, fair sharing between LocalQueues.
"""
