"""Replays a trace of jobs on the queues of a stack or a cluster: waits, idle chips, evictions and dollars.

`infra.review.admission` decides who is admitted and who is preempted. This package adds time: jobs end, lose work, and
wait for hosts. It knows quotas and numbers of chips, but not where in a data centre a slice is."""
