import io

from rich.console import Console

from cli.answer import write_short

LINE = "look: multislice status tiny -s local --engine sandbox --sandbox a/folder/with/a/name/longer/than/a/line"


def read_output(as_json: str | None) -> str:
    file = io.StringIO()
    write_short(as_json, "job tiny", "cancelled", [LINE], Console(file=file, width=30))
    return file.getvalue()


def test_a_command_to_copy_stays_on_one_line_however_narrow_the_terminal() -> None:
    assert read_output(None) == f"job tiny  cancelled\n{LINE}\n"


def test_as_json_it_is_the_object_alone() -> None:
    assert read_output('{"a": 1}') == '{"a": 1}\n'
