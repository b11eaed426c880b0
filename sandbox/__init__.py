"""Google Cloud and Kubernetes on one machine: runs the same program and trainer without a cloud."""
