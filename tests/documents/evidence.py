"""Which test runs each command line that the documents tell people to type, or why none can.

A key is a command line, or the beginning of some, ended by `*`. Whoever writes a command into a document writes its
evidence here, or a test fails.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class RunBy:
    """A test runs the command, or the very function that the command is."""

    test: str
    says: str
    """Stands in the test's module where it runs it."""


@dataclass(frozen=True)
class NotHere:
    """No test can run it on a machine without a cloud."""

    reason: str
    instead: RunBy | None = None
    """What shows as much of it as can be shown here."""


_GOOGLE = "needs a project of Google Cloud"
_REGISTRY = "needs a package registry"
_HOURS = "takes from minutes to hours; its figures stand in docs/benchmarks.md"

_DATA = RunBy("tests/documents/test_data.py::test_its_commands_make_a_folder_that_trains", 'block("sh")')
_MODELS = RunBy("tests/documents/test_models.py::test_its_commands_take_weights_out_and_in_again", 'block("sh")')
_CI = "tests/documents/test_ci.py::test_each_environment_of_a_job_gets_an_account_that_it_alone_may_be"
_BACKENDS = "tests/chain/test_backends.py"
_CHAIN = "tests/chain/test_chain.py"
_READING = "tests/chain/test_operate_reading.py"
_CONTROL = "tests/chain/test_operate_control.py"

EVIDENCE: Mapping[str, RunBy | NotHere] = {
    # The chain on this machine.
    "make up": RunBy(f"{_CHAIN}::test_up_after_down_resumes_from_the_kept_checkpoint_and_tells_so", "assert up("),
    "make down": RunBy(f"{_CHAIN}::test_down_leaves_the_bucket_alone_and_no_node_process_or_port", "assert down("),
    "make down ARGS=--stop-jobs": RunBy(
        "tests/chain/test_queues.py::test_destroy_begins_with_jobs_and_queues_and_ends_with_operators_and_cluster",
        "stop_jobs=True",
    ),
    "make test": NotHere("runs this test"),
    "make train": RunBy(
        "tests/cli/test_train.py::test_a_job_trains_from_the_command_line_and_says_where_everything_is", "main("
    ),
    'make train ARGS="--data *': _DATA,
    'make train ARGS="--mesh *': RunBy("tests/documents/test_models.py::test_its_mesh_trains", 'block("console")'),
    'make train ARGS="--steps 20"': _MODELS,
    'make train ARGS="--initial-weights *': _MODELS,
    "make preview STACK=dev": RunBy(
        "tests/chain/test_previews.py::"
        "test_every_stack_previews_without_a_cloud_or_a_cluster_keeps_its_rules_and_tells_its_review",
        "preview",
    ),
    # Commands about a stack.
    "bin/multislice preview -s dev": RunBy(
        "tests/chain/test_previews.py::"
        "test_every_stack_previews_without_a_cloud_or_a_cluster_keeps_its_rules_and_tells_its_review",
        "preview",
    ),
    "bin/multislice review -s *": RunBy(
        "tests/documents/test_evidence.py::test_the_review_of_the_first_page_runs_offline", "review -s dev"
    ),
    "bin/multislice preflight *": RunBy(
        "tests/cli/test_preflight.py::test_the_exit_status_tells_whether_the_stack_s_job_fits", "preflight("
    ),
    "bin/multislice plan *": RunBy(
        "tests/cli/test_multislice.py::test_a_plan_is_made_from_the_words_of_its_options", "plan"
    ),
    "bin/multislice drift *": RunBy(
        "tests/chain/test_drift.py::"
        "test_every_change_is_named_with_what_up_would_do_and_up_repairs_it_under_the_running_job",
        "drift",
    ),
    "bin/multislice report *": RunBy(
        "tests/cli/test_report.py::test_a_job_of_the_sandbox_is_reported_by_its_name", "report"
    ),
    "bin/multislice env create *": RunBy(
        "tests/chain/test_environments.py::"
        "test_an_environment_is_made_listed_found_without_its_file_and_destroyed_without_a_trace",
        "create",
    ),
    "bin/multislice env list": RunBy(
        "tests/cli/environments/test_listing.py::"
        "test_environments_are_told_with_what_they_cost_and_the_next_to_end_comes_first",
        "show(",
    ),
    "bin/multislice env destroy pr-123": RunBy(
        "tests/cli/environments/test_destroy.py::test_stack_and_files_go_with_what_stood", "destroy"
    ),
    "bin/multislice env destroy --expired *": RunBy(
        "tests/cli/environments/test_destroy.py::"
        "test_all_that_expired_are_destroyed_and_one_that_stays_holds_up_no_other",
        "destroy",
    ),
    "bin/multislice status *": RunBy(f"{_READING}::test_status_tells_stack_job_and_dollars", "status"),
    "bin/multislice list *": RunBy(
        f"{_READING}::test_a_job_above_the_quota_is_explained_and_listed_in_its_place", "list"
    ),
    "bin/multislice logs *": RunBy(
        f"{_READING}::test_logs_are_followed_over_the_restart_of_a_killed_host_to_the_end", "logs"
    ),
    "bin/multislice explain *": RunBy(
        f"{_READING}::test_a_killed_host_is_named_as_the_cause_of_the_restart", "explain"
    ),
    "bin/multislice dashboard *": RunBy(
        "tests/chain/test_dashboard.py::test_the_page_shows_the_stack_until_ctrl_c", "dashboard"
    ),
    "bin/multislice suspend *": RunBy(
        f"{_CONTROL}::test_a_suspended_job_holds_no_chips_and_goes_on_when_it_is_resumed", "suspend"
    ),
    "bin/multislice resume *": RunBy(
        f"{_CONTROL}::test_a_suspended_job_holds_no_chips_and_goes_on_when_it_is_resumed", "resume"
    ),
    "bin/multislice priority *": RunBy(
        f"{_CONTROL}::test_another_priority_reaches_the_queue_and_up_can_change_it_again", "priority"
    ),
    "bin/multislice retry *": RunBy(
        f"{_CONTROL}::test_a_failed_job_is_retried_from_its_last_checkpoint_and_stays_pulumis", "retry"
    ),
    "bin/multislice cancel *": RunBy(f"{_CONTROL}::test_a_cancelled_job_is_gone_until_up_is_told_to_look", "cancel"),
    "bin/multislice shell *": RunBy(f"{_CONTROL}::test_a_shell_on_any_host_runs_what_it_is_given", "shell"),
    "bin/multislice profile *": RunBy(f"{_CONTROL}::test_a_profile_of_all_hosts_is_brought_here", "profile"),
    "bin/multislice doctor *": RunBy(f"{_CONTROL}::test_doctor_finds_nothing_wrong_and_asks_each_group", "doctor"),
    ".venv/bin/python -m examples *": RunBy(
        "tests/chain/test_functions.py::test_an_example_runs_on_slices", "examples"
    ),
    # This repository.
    "make lint": NotHere("`make test` begins with it"),
    "make format": NotHere("rewrites the sources that are tested"),
    "make fuzz": RunBy(
        "tests/fuzz/test_job_spec.py::test_a_damaged_specification_is_read_or_refused_with_its_exit_code", "@given"
    ),
    "make docs": RunBy("tests/documents/test_site.py::test_every_page_is_in_the_site", '"mkdocs", "build", "--strict"'),
    "make programs": RunBy(
        "tests/sandbox/test_programs.py::test_a_build_reports_each_program_in_turn_and_the_next_call_builds_nothing",
        "prepare(",
    ),
    "make environment": NotHere(_REGISTRY),
    "make bench": NotHere(_HOURS),
    "make lock": NotHere(_REGISTRY),
    "make licences": RunBy(
        "tests/cli/ci/test_licences.py::test_every_package_of_the_image_has_a_licence_that_is_allowed", "licences"
    ),
    "make sbom": RunBy(
        "tests/cli/ci/test_sbom.py::"
        "test_the_bill_names_every_package_of_the_lock_with_its_hashes_and_licence_and_nothing_of_today",
        "sbom",
    ),
    "make audit": NotHere(_REGISTRY),
    ".venv/bin/python -m pytest *": NotHere("runs tests"),
    "UPDATE_GOLDEN=1 .venv/bin/python -m pytest *": NotHere("rewrites the pages that are tested"),
    # Faults.
    "make chaos": RunBy("tests/chain/test_chaos.py::test_what_the_entry_of_a_fault_demands_holds", "carry_out("),
    "make chaos ARGS=*": RunBy("tests/documents/test_reliability.py::test_every_command_is_one", "parser"),
    ".venv/bin/python -m chaos --random *": NotHere("takes an hour and more; its figures stand in docs/reliability.md"),
    # Programs of the image.
    ".venv/bin/python -m workloads.data *": _DATA,
    ".venv/bin/python -m workloads.weights *": _MODELS,
    ".venv/bin/python -m workloads.training.export *": _MODELS,
    "python -m workloads.training report *": RunBy(
        "tests/workloads/report/test_command.py::test_the_report_is_a_command_of_the_trainer_that_needs_no_jax",
        "report",
    ),
    "tensorboard --logdir *": RunBy(
        "tests/workloads/training/test_tensorboard.py::test_tensorboard_reads_what_was_plotted", "tensorboard"
    ),
    "pip install xprof": NotHere(_REGISTRY),
    "xprof *": NotHere("XProf is no package of this repository"),
    # Pulumi.
    "pulumi stack init dev": RunBy(
        f"{_BACKENDS}::test_a_lost_state_comes_back_from_an_export", 'desk.pulumi("stack", "init", "dev")'
    ),
    "pulumi stack init prod --secrets-provider=*": NotHere(
        "needs a KMS key",
        RunBy(
            "tests/cli/environments/test_backend.py::test_a_stack_is_made_with_the_key_that_its_file_names",
            "--secrets-provider=gcpkms://",
        ),
    ),
    "pulumi login gs://*": RunBy(
        f"{_BACKENDS}::test_the_bucket_holds_state_and_history_with_secrets_encrypted", "gs://"
    ),
    "pulumi up --stack dev": NotHere(
        _GOOGLE,
        RunBy(f"{_CHAIN}::test_up_trains_to_the_last_step_and_leaves_a_checkpoint_in_the_bucket", ".up(ignore)"),
    ),
    "pulumi up --refresh --stack *": RunBy(
        "tests/chain/test_drift.py::"
        "test_every_change_is_named_with_what_up_would_do_and_up_repairs_it_under_the_running_job",
        ".refresh(ignore)",
    ),
    "pulumi preview --stack dev --policy-pack *": RunBy(
        "tests/chain/test_policy.py::test_a_mandatory_rule_stops_the_preview", "policy"
    ),
    "pulumi destroy --stack dev --run-program": NotHere(
        _GOOGLE,
        RunBy(
            "tests/chain/test_queues.py::test_destroy_begins_with_jobs_and_queues_and_ends_with_operators_and_cluster",
            "destroy",
        ),
    ),
    "PULUMI_K8S_DELETE_UNREACHABLE=true pulumi destroy --run-program": RunBy(
        "tests/chain/test_teardown.py::test_a_cluster_that_is_gone_does_not_block_destroy",
        'monkeypatch.setenv("PULUMI_K8S_DELETE_UNREACHABLE", "true")',
    ),
    "pulumi config set allow_interruption true": RunBy(
        "tests/chain/test_changes.py::test_an_agreed_change_ends_the_job_while_it_still_has_its_slices",
        'values["allow_interruption"] = True',
    ),
    "pulumi config set --secret --path *": RunBy(
        "tests/chain/test_secrets.py::"
        "test_the_secret_is_in_the_environment_of_the_process_and_a_changed_one_comes_with_its_next_start",
        "secret=True",
    ),
    "pulumi cancel *": RunBy(
        f"{_BACKENDS}::test_the_lock_of_an_update_that_died_is_lifted_by_cancel", 'desk.pulumi("cancel"'
    ),
    "pulumi refresh *": RunBy(
        f"{_CHAIN}::test_a_clean_stack_shows_no_change_even_after_a_refresh_has_read_what_controllers_wrote",
        "refresh(ignore)",
    ),
    "pulumi stack export *": RunBy(
        f"{_BACKENDS}::test_a_lost_state_comes_back_from_an_export", 'desk.pulumi("stack", "export"'
    ),
    "pulumi stack import *": RunBy(
        f"{_BACKENDS}::test_a_lost_state_comes_back_from_an_export", 'desk.pulumi("stack", "import"'
    ),
    # The cluster.
    "kubectl get nodes -o custom-columns=*": NotHere(
        "shows nodes in columns",
        RunBy("tests/chain/test_quarantine.py::test_a_trainer_marks_its_own_node_and_says_why", "BAD_HOST_KEY"),
    ),
    "kubectl taint nodes NODE *": NotHere(
        "takes back what the trainer wrote",
        RunBy("tests/chain/test_quarantine.py::test_a_trainer_marks_its_own_node_and_says_why", "BAD_HOST_KEY"),
    ),
    "kubectl get configmap multislice-dashboard *": RunBy(
        "tests/chain/test_monitoring.py::test_the_api_server_has_what_was_rendered", "kubectl"
    ),
    "kubectl create -f jobset.yaml -n NAMESPACE": RunBy(
        "tests/chain/test_access.py::test_a_member_submits_a_job_which_runs_sees_all_of_it_and_deletes_it", "kubectl"
    ),
    "kubectl port-forward *": NotHere(
        "the sandbox forwards no ports",
        RunBy("tests/chain/test_monitoring.py::test_every_host_answers_and_the_leader_for_the_job", "metrics"),
    ),
    "curl localhost:9464/metrics": RunBy(
        "tests/chain/test_monitoring.py::test_every_host_answers_and_the_leader_for_the_job", "connection.request("
    ),
    # Google Cloud and GitHub.
    "PROJECT=my-project *": NotHere(_GOOGLE),
    "gcloud *": NotHere(_GOOGLE),
    "NUMBER=$(gcloud *": RunBy(_CI, "bash"),
    "docker *": NotHere("needs Docker, and a registry that takes the image"),
    # Measurements.
    "python -m benchmarks.admission *": NotHere(
        _HOURS, RunBy(f"{_CHAIN}::test_admissions_are_rehearsed_as_kueue_decides_them", "carry_out(")
    ),
    "python -m benchmarks.preflight_table *": NotHere(
        _HOURS, RunBy("tests/benchmarks/test_preflight_table.py::test_every_design_of_the_list_is_a_job", "DESIGNS")
    ),
    "python -m benchmarks.*": NotHere(_HOURS),
    "python3 -m venv /tmp/levanter *": NotHere(_REGISTRY),
    "make bench ARGS=*": NotHere(_HOURS),
}


def evidence_for(line: str) -> list[str]:
    """Keys that the command line has, the longest first: that one counts."""
    keys = [key for key in EVIDENCE if line == key or (key.endswith("*") and line.startswith(key[:-1].rstrip(" ")))]
    return sorted(keys, key=len, reverse=True)
