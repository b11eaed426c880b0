"""Examples: functions on slices (`rules`), trainers of other frameworks, and a Pulumi program with components."""
