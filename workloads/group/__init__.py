"""The slices of a job with `slice_failure: continue`: who trains together, and what they tell each other."""
