from pathlib import Path

from sandbox.providers.cloud import Cloud

BUCKET = "gcp:storage/bucket:Bucket"


def test_a_kept_resource_is_found_listed_and_removed(tmp_path: Path) -> None:
    cloud = Cloud(tmp_path / "cloud")
    cloud.keep(BUCKET, "a/b", {"name": "b"})
    cloud.keep("gcp:storage/bucketIAMMember:BucketIAMMember", "b/r/m", {"role": "r"})
    assert cloud.find(BUCKET, "a/b") == {"name": "b"}
    assert list(cloud.every(BUCKET)) == [("a/b", {"name": "b"})]
    cloud.remove(BUCKET, "a/b")
    cloud.remove(BUCKET, "a/b")
    assert cloud.find(BUCKET, "a/b") is None


def test_ids_that_read_alike_are_kept_apart(tmp_path: Path) -> None:
    cloud = Cloud(tmp_path)
    cloud.keep(BUCKET, "one/name", {"n": 1})
    cloud.keep(BUCKET, "two/name", {"n": 2})
    assert [properties["n"] for _, properties in cloud.every(BUCKET)].count(1) == 1
    assert cloud.find(BUCKET, "two/name") == {"n": 2}


def test_a_file_edited_by_hand_is_what_the_cloud_says(tmp_path: Path) -> None:
    cloud = Cloud(tmp_path)
    cloud.keep(BUCKET, "b", {"versioning": "on"})
    (file,) = tmp_path.iterdir()
    file.write_text(file.read_text().replace('"on"', '"off"'))
    assert cloud.find(BUCKET, "b") == {"versioning": "off"}
