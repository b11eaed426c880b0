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
    """Stands where it runs it: in the test, or in what of its module the test names."""


@dataclass(frozen=True)
class NotHere:
    """No test can run it on a machine without a cloud."""

    reason: str
    instead: RunBy | None = None
    """What shows as much of it as can be shown here."""


_GOOGLE = "needs a project of Google Cloud"
_REGISTRY = "needs a package registry"
_VARIABLE = "tests name the backend in the environment, and leave the login of this machine as it is"
_HOURS = "takes from minutes to hours; its figures stand in docs/benchmarks.md"

_DATA = RunBy("tests/documents/test_data.py::test_its_commands_make_a_folder_that_trains", 'block("sh")')
_MODELS = RunBy("tests/documents/test_models.py::test_its_commands_take_weights_out_and_in_again", 'block("sh")')
_CI = "tests/documents/test_ci.py::test_each_environment_of_a_job_gets_an_account_that_it_alone_may_be"
_PREVIEW = "tests/cli/test_preview.py::test_a_plan_is_made_offline_and_everything_is_told"
_PLANS = "tests/cli/commands/test_plans.py"
_ENVIRONMENTS = "tests/cli/commands/test_environments.py"
_OF_THE_BACKEND = (
    "tests/cli/environments/test_backend.py::"
    "test_a_stack_is_known_and_restored_without_its_file_after_an_update_that_failed"
)
_HELP = RunBy(
    "tests/documents/test_references.py::test_a_page_that_is_made_is_what_the_program_says_today",
    "command_line_reference.reference",
)
_BACKENDS = "tests/chain/test_backends.py"
_CHAIN = "tests/chain/test_chain.py"
_READING = "tests/chain/test_operate_reading.py"
_ANSWERS = f"{_READING}::test_status_list_explain_and_report_answer_people_and_programs"
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
    "make preview *": RunBy(_PREVIEW, "preview(replace(DEV"),
    "make up ARGS=--help": _HELP,
    "make down ARGS=--help": _HELP,
    "make train ARGS=--help": _HELP,
    # Commands about a stack.
    "bin/multislice preview *": RunBy(_PREVIEW, "preview(replace(DEV"),
    "bin/multislice review *": RunBy(
        "tests/documents/test_evidence.py::test_the_review_of_the_first_page_runs_offline", "review -s dev"
    ),
    "bin/multislice preflight *": RunBy(
        f"{_PLANS}::test_a_preflight_leaves_the_compiled_programs_where_it_is_told_to", '"preflight"'
    ),
    "bin/multislice plan *": RunBy(f"{_PLANS}::test_a_plan_is_told_drawn_and_ordered_as_it_is_asked_for", '"plan"'),
    "bin/multislice drift *": RunBy(
        "tests/chain/test_drift.py::"
        "test_every_change_is_named_with_what_up_would_do_and_up_repairs_it_under_the_running_job",
        "drifted(",
    ),
    "bin/multislice env create *": RunBy(
        f"{_ENVIRONMENTS}::test_an_environment_is_made_of_the_stack_for_the_time_that_is_asked_for", '"create"'
    ),
    "bin/multislice env list *": RunBy(
        f"{_ENVIRONMENTS}::test_environments_are_listed_all_or_those_alone_whose_time_is_over", '"list"'
    ),
    "bin/multislice env destroy *": RunBy(
        f"{_ENVIRONMENTS}::test_environments_are_destroyed_by_name_or_when_their_time_is_over", '"destroy"'
    ),
    "bin/multislice status *": RunBy(_ANSWERS, '"status"'),
    "bin/multislice list *": RunBy(_ANSWERS, '"list"'),
    "bin/multislice explain *": RunBy(_ANSWERS, '"explain"'),
    "bin/multislice report *": RunBy(_ANSWERS, '"report"'),
    "bin/multislice logs *": RunBy(f"{_READING}::test_logs_are_those_that_the_command_line_asks_for", '"logs"'),
    "bin/multislice --install-completion": NotHere(
        "writes into the settings of the shell",
        RunBy("tests/cli/test_completion.py::test_names_of_commands_stacks_and_jobs_are_offered", "complete_bash"),
    ),
    "bin/multislice dashboard *": RunBy(
        "tests/chain/test_dashboard.py::test_the_page_shows_the_stack_until_ctrl_c", '"dashboard"'
    ),
    "bin/multislice suspend *": RunBy(
        f"{_CONTROL}::test_a_suspended_job_holds_no_chips_and_goes_on_when_it_is_resumed", '"suspend"'
    ),
    "bin/multislice resume *": RunBy(
        f"{_CONTROL}::test_a_suspended_job_holds_no_chips_and_goes_on_when_it_is_resumed", '"resume"'
    ),
    "bin/multislice priority *": RunBy(
        f"{_CONTROL}::test_another_priority_reaches_the_queue_and_up_can_change_it_again", '"priority"'
    ),
    "bin/multislice retry *": RunBy(
        f"{_CONTROL}::test_a_failed_job_is_retried_from_its_last_checkpoint_and_stays_pulumis", '"retry"'
    ),
    "bin/multislice cancel *": RunBy(f"{_CONTROL}::test_a_cancelled_job_is_gone_until_up_is_told_to_look", '"cancel"'),
    "bin/multislice shell *": RunBy(f"{_CONTROL}::test_a_shell_on_any_host_runs_what_it_is_given", '"shell"'),
    "bin/multislice profile *": RunBy(f"{_CONTROL}::test_a_profile_of_all_hosts_is_brought_here", '"profile"'),
    "bin/multislice doctor *": RunBy(f"{_CONTROL}::test_doctor_finds_nothing_wrong_and_asks_each_group", '"doctor"'),
    ".venv/bin/python -m examples *": RunBy(
        "tests/chain/test_functions.py::test_an_example_runs_on_slices", '"examples"'
    ),
    # This repository.
    "make lint": NotHere("`make test` begins with it"),
    "make format": NotHere("rewrites the sources that are tested"),
    "make fuzz": RunBy(
        "tests/fuzz/test_job_spec.py::test_a_damaged_specification_is_read_or_refused_with_its_exit_code", "given("
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
        "tests/cli/ci/test_licences.py::test_every_package_of_the_image_has_a_licence_that_is_allowed",
        "require_allowed(",
    ),
    "make sbom": RunBy(
        "tests/cli/ci/test_sbom.py::"
        "test_the_bill_names_every_package_of_the_lock_with_its_hashes_and_licence_and_nothing_of_today",
        "bill_of_materials(",
    ),
    "make audit": NotHere(_REGISTRY),
    ".venv/bin/python -m pytest *": NotHere("runs tests"),
    "UPDATE_GOLDEN=1 .venv/bin/python -m pytest *": NotHere("rewrites the pages that are tested"),
    # Faults.
    "make chaos": RunBy("tests/chain/test_chaos.py::test_what_the_entry_of_a_fault_demands_holds", "carry_out("),
    "make chaos ARGS=*": RunBy(
        "tests/documents/test_reliability.py::test_every_command_is_one", "parser().parse_args("
    ),
    ".venv/bin/python -m chaos --random *": NotHere("takes an hour and more; its figures stand in docs/reliability.md"),
    # Programs of the image.
    ".venv/bin/python -m workloads.data *": _DATA,
    ".venv/bin/python -m workloads.weights *": _MODELS,
    ".venv/bin/python -m workloads.training.export *": _MODELS,
    "python -m workloads.training report *": RunBy(
        "tests/workloads/report/test_command.py::test_the_report_is_a_command_of_the_trainer_that_needs_no_jax",
        "'workloads.training', 'report'",
    ),
    "tensorboard --logdir *": NotHere(
        "serves until it is stopped",
        RunBy(
            "tests/workloads/training/test_tensorboard.py::test_tensorboard_reads_what_was_plotted", "EventAccumulator("
        ),
    ),
    "pip install xprof": NotHere(_REGISTRY),
    "xprof *": NotHere("XProf is no package of this repository"),
    # Pulumi.
    "pulumi stack init *": RunBy(
        f"{_BACKENDS}::test_a_lost_state_comes_back_from_an_export", 'desk.pulumi("stack", "init", "dev")'
    ),
    "pulumi stack ls": RunBy(_OF_THE_BACKEND, "backend.names()"),
    "pulumi stack output *": RunBy(_OF_THE_BACKEND, "backend.outputs("),
    "pulumi stack change-secrets-provider": NotHere("needs a KMS key"),
    "pulumi stack init prod --secrets-provider=*": NotHere(
        "needs a KMS key",
        RunBy(
            "tests/cli/environments/test_backend.py::test_a_stack_is_made_with_the_key_that_its_file_names",
            "--secrets-provider=gcpkms://",
        ),
    ),
    "pulumi login": NotHere("needs an account of Pulumi Cloud"),
    "pulumi login --local": NotHere(
        _VARIABLE,
        RunBy(f"{_BACKENDS}::test_a_stack_moves_to_another_backend_with_its_secrets_encrypted_all_the_way", "file://"),
    ),
    "pulumi login gs://*": NotHere(
        _VARIABLE,
        RunBy(f"{_BACKENDS}::test_the_bucket_holds_state_and_history_with_secrets_encrypted", 'f"gs://{BUCKET}"'),
    ),
    "pulumi up *": NotHere(
        _GOOGLE,
        RunBy(f"{_CHAIN}::test_up_trains_to_the_last_step_and_leaves_a_checkpoint_in_the_bucket", ".up(ignore)"),
    ),
    "pulumi up --refresh *": RunBy(
        "tests/chain/test_drift.py::"
        "test_every_change_is_named_with_what_up_would_do_and_up_repairs_it_under_the_running_job",
        ".refresh(ignore)",
    ),
    "pulumi up --plan *": RunBy(
        "tests/chain/test_plans.py::test_a_saved_plan_is_carried_out_and_nothing_else", ".up(happened, plan)"
    ),
    "pulumi import": NotHere("needs an object that no stack has"),
    "pulumi preview *": NotHere(
        _GOOGLE,
        RunBy(
            f"{_CHAIN}::test_a_clean_stack_shows_no_change_even_after_a_refresh_has_read_what_controllers_wrote",
            ".preview(ignore)",
        ),
    ),
    "pulumi policy publish": NotHere("needs an organization on Pulumi Cloud"),
    "pulumi preview --stack dev --policy-pack *": RunBy(
        "tests/chain/test_policy.py::test_a_mandatory_rule_stops_the_preview", "PolicyPack("
    ),
    "pulumi destroy *": NotHere(
        _GOOGLE,
        RunBy(
            "tests/chain/test_queues.py::test_destroy_begins_with_jobs_and_queues_and_ends_with_operators_and_cluster",
            ".destroy(operations, stop_jobs=True)",
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
    "pulumi stack export --show-secrets": RunBy(
        f"{_BACKENDS}::test_a_stack_moves_to_another_backend_with_its_secrets_encrypted_all_the_way", '"--show-secrets"'
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
        "tests/chain/test_monitoring.py::test_the_api_server_has_what_was_rendered", 'objects("configmaps")'
    ),
    "kubectl create -f jobset.yaml -n NAMESPACE": RunBy(
        "tests/chain/test_access.py::test_a_member_submits_a_job_which_runs_sees_all_of_it_and_deletes_it",
        'ada.request("POST", JOBSETS',
    ),
    "kubectl port-forward *": NotHere(
        "the sandbox forwards no ports",
        RunBy("tests/chain/test_monitoring.py::test_every_host_answers_and_the_leader_for_the_job", "METRICS_PORT"),
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
        _HOURS, RunBy(f"{_CHAIN}::test_admissions_are_rehearsed_as_kueue_decides_them", "disagreements(")
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
    # Sentences name the commands of `bin/multislice` without its folder.
    typed = f"bin/{line}" if line.startswith("multislice ") else line
    keys = [key for key in EVIDENCE if typed == key or (key.endswith("*") and f"{typed} ".startswith(key[:-1]))]
    return sorted(keys, key=len, reverse=True)
