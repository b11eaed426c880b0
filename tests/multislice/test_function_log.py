from multislice.function_log import FunctionLog, of_function

BEGINS, ENDS = "call x: the function begins", "call x: the function has ended"


TORN = "0 is connected to 3 peer ranks. Expected number of connected peer ranks is : 3"


def test_of_a_log_the_function_has_what_lies_between_its_lines() -> None:
    lines = [
        "WARNING: early",
        BEGINS,
        "step 1",
        "[Gloo] Rank 0 is connected",
        TORN,
        "step 2",
        ENDS,
        "stopped: ValueError",
    ]
    assert list(of_function("x", lines)) == ["step 1", "step 2"]
    assert list(of_function("x", ["WARNING: early"])) == []


def test_a_last_line_that_was_not_ended_is_the_functions_and_ends_the_window_all_the_same() -> None:
    assert list(of_function("x", [BEGINS, f"100% done{ENDS}", "stopped"])) == ["100% done"]


def test_what_a_function_prints_of_another_call_opens_and_ends_nothing() -> None:
    lines = ["call y: the function begins", BEGINS, "call y: the function has ended", "more", ENDS]
    assert list(of_function("x", lines)) == ["call y: the function has ended", "more"]


def test_a_log_says_that_the_function_has_ended_and_opens_again_when_it_begins_anew() -> None:
    log = FunctionLog("x")
    assert [log.line(text) for text in (BEGINS, "a", ENDS, "b")] == [None, "a", None, None]
    assert log.ended
    assert [log.line(text) for text in (BEGINS, "c")] == [None, "c"]
