"""Whether the queue would admit a job, and which jobs it would preempt: Kueue's scheduler simulated, without a cluster.

It follows Kueue 0.19.2 (`pkg/scheduler`, `pkg/cache`) for what `infra.queues` renders: one resource, several flavors in
order, queues in one flat cohort or none, limits, preemption, fair sharing. `benchmarks.admission` compares it with
recorded decisions of the real Kueue.

It cannot know whether hosts are free (topology-aware scheduling counts them, queued capacity has to bring them),
whether pods start in time, and what ends or is submitted meanwhile; a verdict says so where it matters. Cohorts in
cohorts, partial admission, preemption gates and fair sharing between LocalQueues are not modelled, because nothing here
uses them."""
