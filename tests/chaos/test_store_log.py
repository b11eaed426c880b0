from chaos.store_log import reads_of_arrays

RUN = "bucket/o/job%2Fruns%2Fr1%2Fcheckpoints%2F"
COMMIT = (
    "/upload/storage/v1/b/bucket/o?uploadType=resumable&name=job/runs/r1/checkpoints/{}/commit_success.txt&upload_id=1"
)
ARRAY = f"/storage/v1/b/{RUN}{{}}%2Fstate%2Focdbt.process_0%2Fd%2Fcc36?alt=media&tensorstore=1"


def request(method: str, url: str, status: int = 200) -> str:
    return f'level=INFO msg="127.0.0.1 - - [25/Nov/2026:22:42:12 +0000] \\"{method} {url} HTTP/1.1\\" {status} 0\\n"'


def test_only_arrays_of_complete_checkpoints_of_the_job_count() -> None:
    log = [
        request("GET", ARRAY.format(20), 206),  # by whoever writes it
        request("POST", COMMIT.format(20)),
        request("GET", ARRAY.format(20), 206),
        request("GET", ARRAY.format(20), 404),
        request("GET", ARRAY.format(40), 206),
        request("GET", ARRAY.format(20).replace("job", "other"), 206),
        request("GET", f"/storage/v1/b/{RUN}20%2F_CHECKPOINT_METADATA"),
        "no request",
    ]
    assert reads_of_arrays(log, "job") == 1
    assert reads_of_arrays(log[1:], "other") == 0
