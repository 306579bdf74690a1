import pytest

from minibroker.protocol.steps import Steps, at_once


def counting(numbers: list[int], end: int) -> Steps[str]:
    for number in range(end):
        numbers.append(number)
        yield
    return "done"


def test_all_steps_run_and_their_result_is_returned():
    numbers: list[int] = []
    assert at_once(counting(numbers, 3)) == "done"
    assert numbers == [0, 1, 2]


def test_an_error_of_a_step_is_raised():
    def failing() -> Steps[None]:
        yield
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        at_once(failing())
