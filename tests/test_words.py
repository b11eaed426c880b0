from tests.words import refused


def test_a_refused_word_is_found_in_comments_and_strings_with_its_line() -> None:
    source = '"""First.\n\nAnew."""\n\nvalue = 1  # nobody\ntext = f"{value} for ever"\n'
    assert list(refused(source)) == [(3, "Anew"), (5, "nobody"), (6, "for ever")]


def test_names_and_the_former_value_of_existing_run_are_not_prose() -> None:
    assert list(refused('nobody = "anew"\n')) == []
