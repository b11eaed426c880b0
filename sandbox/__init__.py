"""Google Cloud and Kubernetes on one machine: the same program and trainer, with no cloud."""
