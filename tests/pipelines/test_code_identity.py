"""The identity of code sees what the code does, and no words about it."""

from galaxydit.pipelines.code_identity import code_identity, without_texts


def test_code_is_the_same_with_other_words_and_another_with_other_numbers():
    first = without_texts('"""What it does."""\n\ndef f(x):\n    """Half."""\n    return x / 2\n')
    assert without_texts("def f(x):  # halves\n    return x / 2\n") == first
    assert without_texts("def f(x):\n    return x / 3\n") != first
    one = without_texts("A = 1\n")
    assert without_texts('A = 1\n"""One."""\n') == without_texts('A = 1\n"""A number."""\n') == one
    assert one != without_texts("A = 2\n")


def test_the_identity_of_this_project_is_sixteen_digits():
    assert len(code_identity()) == 16
    assert int(code_identity(), 16) >= 0
