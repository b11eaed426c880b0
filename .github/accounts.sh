#!/usr/bin/env bash
# Creates the Google Cloud accounts of one stack's GitHub environments, with rights in the project of that stack only.
# docs/how-to/ci.md says what must exist before. The script can be repeated.
set -euo pipefail

usage="usage: $0 STACK PROJECT projects/PROJECT/locations/LOCATION/keyRings/RING/cryptoKeys/KEY OWNER/NAME [unattended]"
[ $# -ge 4 ] || { echo "$usage" >&2; exit 2; }
stack=$1 project=$2 key=$3 repository=$4 attended=${5:-attended}
case $key in "projects/$project/"*) ;; *) echo "expected a key of the project $project, got $key" >&2; exit 2 ;; esac

# Succeeds if the object exists already.
create() {
  local said
  said=$(gcloud "$@" --project "$project" --quiet 2>&1) || case $said in
    *"already exists"*) ;;
    *) echo "$said" >&2; return 1 ;;
  esac
}

# The accounts trust the branch main, and workflows without a review run from it.
approvals=$(gh api "repos/$repository/rules/branches/main" \
  --jq '[.[] | select(.type == "pull_request") | .parameters.required_approving_review_count] | max // 0')
[ "$approvals" -ge 1 ] || { echo "expected a ruleset that requires approvals on main of $repository" >&2; exit 1; }

# The code of a pull request, and a deployment, run only after a review.
[ "$attended" = unattended ] && reviewed="preview-$stack" || reviewed="preview-$stack $stack"
for name in $reviewed; do
  rules=$(gh api "repos/$repository/environments/$name" --jq '[.protection_rules[].type] | join(" ")')
  case $rules in
    *required_reviewers*) ;;
    *) echo "expected required reviewers in the environment $name of $repository" >&2; exit 1 ;;
  esac
done

# The number stays the same when the repository is renamed. Only previews run code of other branches than main.
number=$(gcloud projects describe "$project" --format "value(projectNumber)")
id=$(gh api "repos/$repository" --jq .id)
branches="assertion.ref == 'refs/heads/main' || assertion.environment.startsWith('preview-')"
pool=projects/$number/locations/global/workloadIdentityPools/github
gcloud services enable cloudkms.googleapis.com iam.googleapis.com iamcredentials.googleapis.com sts.googleapis.com \
  --project "$project" --quiet
create iam workload-identity-pools create github --location global
create iam workload-identity-pools providers create-oidc repository --location global --workload-identity-pool github \
  --issuer-uri https://token.actions.githubusercontent.com --attribute-mapping google.subject=assertion.sub \
  --attribute-condition "assertion.repository_id == '$id' && ($branches)"
# `multislice drift` and `multislice enforce-budget` need permissions that no narrow predefined role has.
create iam roles create driftReader --permissions container.secrets.get,storage.managedFolders.get
create iam roles create budgetBrake --permissions container.thirdPartyObjects.update

# An account for deployments can grant and revoke only the roles of the nodes, so that it cannot become an owner:
# https://cloud.google.com/iam/docs/setting-limits-on-granting-roles. The condition has commas, so its delimiter is `;`.
nodes="['roles/container.defaultNodeServiceAccount', 'roles/serviceusage.serviceUsageConsumer']"
grants="api.getAttribute('iam.googleapis.com/modifiedGrantsByRole', []).hasOnly($nodes)"
bound="^;^title=roles-of-the-nodes;expression=$grants"

# account NAME STATE_ROLE KEY_ROLE ROLE...: the jobs of the environment NAME can use it once it has all its rights.
account() {
  local name=$1 state_role=$2 key_role=$3 email=github-$1@$project.iam.gserviceaccount.com role condition
  shift 3
  create iam service-accounts create "github-$name"
  gcloud kms keys add-iam-policy-binding "$key" --role "$key_role" --member "serviceAccount:$email" --quiet
  gcloud storage buckets add-iam-policy-binding "gs://$project-pulumi-state" --role "$state_role" \
    --member "serviceAccount:$email" --quiet
  for role in "$@"; do
    [ "$role" = roles/resourcemanager.projectIamAdmin ] && condition=$bound || condition=None
    gcloud projects add-iam-policy-binding "$project" --role "$role" --member "serviceAccount:$email" \
      --condition "$condition" --quiet
  done
  gh variable set WORKLOAD_IDENTITY_PROVIDER --body "$pool/providers/repository" --repo "$repository" --env "$name"
  gh variable set SERVICE_ACCOUNT --body "$email" --repo "$repository" --env "$name"
  gh variable set PULUMI_BACKEND_URL --body "gs://$project-pulumi-state" --repo "$repository" --env "$name"
  gcloud iam service-accounts add-iam-policy-binding "$email" --project "$project" \
    --role roles/iam.workloadIdentityUser \
    --member "principal://iam.googleapis.com/$pool/subject/repo:$repository:environment:$name" --quiet
}

account "preview-$stack" roles/storage.objectViewer roles/cloudkms.cryptoKeyDecrypter \
  roles/container.viewer roles/storage.bucketViewer
account "drift-$stack" roles/storage.objectViewer roles/cloudkms.cryptoKeyDecrypter \
  roles/artifactregistry.reader roles/compute.viewer roles/container.viewer roles/iam.securityReviewer \
  roles/monitoring.notificationChannelViewer roles/serviceusage.serviceUsageConsumer roles/storage.bucketViewer \
  "projects/$project/roles/driftReader"
account "budget-$stack" roles/storage.objectViewer roles/cloudkms.cryptoKeyDecrypter \
  roles/container.viewer roles/storage.bucketViewer roles/storage.objectViewer "projects/$project/roles/budgetBrake"
account "$stack" roles/storage.objectUser roles/cloudkms.cryptoKeyEncrypterDecrypter \
  roles/artifactregistry.admin roles/compute.admin roles/container.admin roles/iam.serviceAccountAdmin \
  roles/iam.serviceAccountUser roles/monitoring.notificationChannelEditor roles/resourcemanager.projectIamAdmin \
  roles/serviceusage.serviceUsageAdmin roles/storage.admin
