"""Work in steps is done to its end, whoever runs it."""

import pytest

from minibroker.protocol.steps import (
    COUNTED_ITEMS,
    FEW_ITEMS,
    RELEASED_ITEMS,
    WAITING,
    Steps,
    apply_to_items_in_steps,
    clear_arrays_in_steps,
    count_items_in_steps,
    fits_in_one_step,
    remove_items_in_portions,
    run_all_steps,
)


def counting(numbers: list[int], end: int) -> Steps[str]:
    for number in range(end):
        numbers.append(number)
        yield
    return "done"


def test_all_steps_run_and_their_result_is_returned():
    numbers: list[int] = []
    assert run_all_steps(counting(numbers, 3)) == "done"
    assert numbers == [0, 1, 2]


def test_an_error_of_a_step_is_raised():
    def failing() -> Steps[None]:
        yield
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        run_all_steps(failing())


def test_each_item_of_a_sequence_takes_one_step():
    steps = apply_to_items_in_steps(str, [1, 2, 3])
    assert [next(steps) for _ in range(3)] == [None, None, None]
    assert run_all_steps(apply_to_items_in_steps(str, [1, 2, 3])) == ["1", "2", "3"]


def test_arrays_are_emptied_in_steps_with_nested_ones_first():
    inner = list(range(2 * RELEASED_ITEMS))
    outer = [inner, 1]
    steps = clear_arrays_in_steps([outer, inner])
    for left in RELEASED_ITEMS, 0:
        next(steps)
        assert (len(outer), len(inner)) == (2, left)
    assert sum(1 for _ in steps) == 1
    assert outer == []


def test_items_are_removed_from_a_list_in_order_and_in_portions():
    items = list(range(5))
    portions = remove_items_in_portions(items, 2)
    assert next(portions) == [0, 1]
    assert sorted(items) == [2, 3, 4]
    assert list(portions) == [[2, 3], [4]]
    assert items == []


def test_counting_items_stops_once_they_do_not_fit_in_one_step():
    portions = iter([[1]] * FEW_ITEMS)
    assert not fits_in_one_step(portions)
    assert len(list(portions)) == FEW_ITEMS - FEW_ITEMS // 2 - 1
    assert fits_in_one_step([[1]] * (FEW_ITEMS // 2)) and fits_in_one_step([[1] * (FEW_ITEMS - 1)])


def test_keys_are_counted_and_released_in_steps():
    keys = [number % 2_500 for number in range(5_000)]
    steps = count_items_in_steps(iter(keys))
    assert sum(1 for _ in steps) == 5_000 // COUNTED_ITEMS
    counts = run_all_steps(count_items_in_steps(iter(keys)))
    assert list(counts.items()) == [(number, 2) for number in range(2_500)]
    assert (len(counts), counts[2_500], 7 in counts) == (2_500, 0, True)
    assert sum(1 for _ in counts.release_keys_in_steps()) >= 2_500 // RELEASED_ITEMS
    assert list(counts) == []


def test_steps_that_wait_for_other_work_cannot_be_run_all_at_once():
    def waiting() -> Steps[None]:
        yield WAITING

    with pytest.raises(RuntimeError, match="steps that wait for other work cannot run at once"):
        run_all_steps(waiting())
