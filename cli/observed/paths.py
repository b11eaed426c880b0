"""Where kinds of objects lie in the API of a cluster. `{}` stands for a namespace."""

from infra.names import KUEUE_API_VERSION

JOBSET_API = "jobset.x-k8s.io/v1alpha2"
"""Group and version of JobSets."""

JOBSETS = f"/apis/{JOBSET_API}/namespaces/{{}}/jobsets"
WORKLOADS = f"/apis/{KUEUE_API_VERSION}/namespaces/{{}}/workloads"
QUEUES = f"/apis/{KUEUE_API_VERSION}/clusterqueues"
JOBS = "/apis/batch/v1/namespaces/{}/jobs"
PODS = "/api/v1/namespaces/{}/pods"
SECRETS = "/api/v1/namespaces/{}/secrets"
EVENTS = "/api/v1/namespaces/{}/events"
NODES = "/api/v1/nodes"
