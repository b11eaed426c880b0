from pathlib import Path

from etils import epath

from cli.profile.captures import captures, download


def left(run: Path, name: str, *files: str) -> None:
    folder = run / "profiles" / "plugins" / "profile" / name
    folder.mkdir(parents=True)
    for file in files:
        (folder / file).write_text(file)


def test_a_capture_tells_its_steps_and_whose_traces_are_there(tmp_path: Path) -> None:
    left(tmp_path, "0-12-16", "00000-a.xplane.pb", "00001-b.xplane.pb", "00000-a.trace.json.gz")
    left(tmp_path, "1-40-44")
    found = captures(epath.Path(tmp_path))
    assert (found["0-12-16"].steps, found["0-12-16"].hosts) == ((12, 16), 2)
    assert (found["1-40-44"].steps, found["1-40-44"].hosts) == ((40, 44), 0)


def test_what_other_tools_leave_there_is_no_capture(tmp_path: Path) -> None:
    left(tmp_path, "2026_01_05_12_00_00", "host.xplane.pb")
    assert captures(epath.Path(tmp_path)) == {}


def test_a_run_without_profiles_has_none(tmp_path: Path) -> None:
    assert captures(epath.Path(tmp_path)) == {}


def test_a_capture_is_brought_to_where_xprof_looks_for_it(tmp_path: Path) -> None:
    left(tmp_path / "run", "0-12-16", "00000-a.xplane.pb")
    run = epath.Path(tmp_path / "run")
    copy = download(run, captures(run)["0-12-16"], epath.Path(tmp_path / "here"))
    assert Path(copy) == tmp_path / "here" / "plugins" / "profile" / "0-12-16"
    assert (tmp_path / "here/plugins/profile/0-12-16/00000-a.xplane.pb").read_text() == "00000-a.xplane.pb"
