from .support import trials


def test_x() -> None:
    assert trials(3) == 3
