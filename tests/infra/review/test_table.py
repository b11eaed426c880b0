import re
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


def test_numbers_are_right_aligned_and_names_left_aligned() -> None:
    lines = as_text([table()]).splitlines()
    head, first, second = (next(line for line in lines if word in line) for word in ("group", "trillium", "cubes"))
    assert head.startswith("group")
    assert second.startswith("cubes|[a]"), "brackets are no markup"
    assert first.index("16") + 2 == second.index("2,048") + 5 == head.index("chips") + 5
    assert len(first) == len(second) == len(head)


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
