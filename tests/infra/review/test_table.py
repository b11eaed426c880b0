import re
from dataclasses import replace
from html import unescape
from io import StringIO

from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from rich.console import Console

from infra.review.table import WIDTH, State, Table, as_markdown, as_text, renderable

words = st.text(
    st.characters(min_codepoint=32, max_codepoint=0x2FF, exclude_categories=["C"]), min_size=1, max_size=150
)


def table(state: State = "good") -> Table:
    rows = [("trillium", "16", "unknown"), ("cubes|[a]", "2,048", "1.20")]
    return Table("Price", "$3 an hour", state, ("group", "chips", "$/h"), rows, ["Not in it: disks_and *more*."])


@settings(deadline=None)
@given(st.lists(st.tuples(words, words, words), max_size=5), words)
def test_no_line_is_wider_than_a_log_whatever_the_words(rows: list[tuple[str, ...]], verdict: str) -> None:
    text = as_text([Table("Queue", verdict, "good", ("a", "b", "c"), rows, [verdict])])
    assert max(map(len, text.splitlines())) <= WIDTH


def test_colours_are_for_terminals_alone() -> None:
    def printed(*, terminal: bool) -> str:
        file = StringIO()
        console = Console(file=file, force_terminal=terminal, width=WIDTH, _environ={"TERM": "xterm-16color"})
        console.print(renderable([table("bad")]))
        return file.getvalue()

    assert "\x1b[" not in printed(terminal=False)
    assert "\x1b[1;31m$3 an hour" in printed(terminal=True)
    assert "\x1b[" not in as_text([table()])


def test_markdown_has_the_same_words_and_takes_none_for_a_mark() -> None:
    assert as_markdown([table()]).splitlines() == [
        "### Price",
        "",
        "**$3 an hour**",
        "",
        "| group | chips | $/h |",
        "| --- | --: | --: |",
        "| trillium | 16 | unknown |",
        r"| cubes\|\[a\] | 2,048 | 1.20 |",
        "",
        r"Not in it: disks\_and \*more\*.",
    ]


HOSTILE = [
    "![pixel](https://evil.example/p.png)",
    "https://a.example/<img/src=https://evil.example/p.png>",
    "https://a.example/![pixel](https://evil.example/p.png)",
    "[click](https://evil.example)",
    "<img src=x> &lt; &#64;",
    "`code` **strong** ~~gone~~",
]


@given(st.sampled_from(HOSTILE) | words | st.tuples(words, st.sampled_from(HOSTILE)).map(" ".join))
def test_words_of_others_are_words_in_markdown(text: str) -> None:
    html = (
        MarkdownIt("commonmark")
        .enable(["table", "strikethrough"])
        .render(as_markdown([Table("Drift", "found", "bad", ("a", "b"), [(text, "x")], [text])]))
    )
    assert not {"a", "img", "code", "del", "em"} & set(re.findall("<([a-z]+)", html))
    assert html.count("<strong>") == 1
    (cell,) = re.findall("<td[^>]*>(.*)</td>", html)[:1]
    assert " ".join(unescape(cell).replace("\u200b", "").split()) == " ".join(text.split())


def test_foreign_text_mentions_no_user_and_links_no_issue() -> None:
    (*_, note) = as_markdown([Table("", "", "bad", (), (), ["@team see #12 of a@b.example"])]).splitlines()
    assert note == "@&#8203;team see #&#8203;12 of a@b.example"


def printed(table: Table, columns: int) -> list[str]:
    console = Console(file=StringIO(), width=columns, color_system=None)
    with console.capture() as captured:
        console.print(renderable([table]))
    return [line.rstrip() for line in captured.get().splitlines()]


PRICE = Table(
    "Price",
    "$43.20 an hour",
    "good",
    ("group", "capacity", "$/chip h", "$/month", "where"),
    [("trillium", "on-demand", "2.7000", "28,382", "a zone of us-east5, in the table of prices")],
    whole=(0, 1, 2, 3),
    spare=(3, 2),
)


def test_a_narrow_terminal_breaks_lines_between_words() -> None:
    without_spare = replace(PRICE, spare=(), whole=())
    for columns in range(58, 85):
        words = {word for line in printed(without_spare, columns)[1:] for word in line.split()}
        assert {"trillium", "on-demand", "capacity", "2.7000", "28,382", "us-east5,"} <= words


def test_columns_that_can_be_spared_are_left_out_before_a_whole_cell_breaks() -> None:
    heads = {columns: printed(PRICE, columns)[1].split("  ") for columns in (60, 52, 40)}
    found = {columns: {head.strip() for head in each if head} for columns, each in heads.items()}
    assert found[60] == {"group", "capacity", "$/chip h", "$/month", "where"}
    assert found[52] == {"group", "capacity", "$/chip h", "where"}
    assert found[40] == {"group", "capacity", "where"}


def test_a_word_that_is_too_long_for_the_terminal_breaks_and_no_other_one() -> None:
    path = "x" * 60
    lines = printed(Table("Bucket", "", "good", ("subject", "result", "n"), [("bucket", f"{path} is read", "1")]), 50)
    assert "".join(line for line in lines[3:]).count("x") == 60
    assert {"bucket", "subject", "result"} <= {word for line in lines for word in line.split()}
    assert max(map(len, lines)) <= 50


def test_cells_that_are_not_to_break_are_never_cut() -> None:
    whole = Table("Plan", "", "good", ("slices", "$"), [("16 x v6e 4x4", "2,092")], whole=(0, 1))
    text = "".join(printed(whole, 12)).replace("─", "").replace("Plan", "")
    assert sorted("".join(text.split())) == sorted("slices$16xv6e4x42,092")
