"""The check of an exercise: a student's function beside a reference, on small cases.

The next cell of a notebook calls the function by `use`, and so runs before it is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from textwrap import shorten
from typing import Any

import numpy as np

LONGEST_SHOWN = 60  # characters of an argument


def check(
    student_function: Callable[..., Any],
    reference: Callable[..., Any],
    cases: Sequence[Any],
    hints: Mapping[Callable[..., Any], str] | None = None,
) -> None:
    """Print the first case in which a function differs from a reference, or that none does.

    Parameters
    ----------
    student_function : callable
        The function to check.  A stub, which returns None, is "not written yet".
    reference : callable
        A function that is right.
    cases : sequence
        The arguments of each call: a tuple, or a single argument.  Functions get copies.
    hints : mapping of callable to str, optional
        Known wrong functions, and what to tell a student whose function answers as they do.
    """
    for number, case in enumerate(cases, 1):
        arguments = case if isinstance(case, tuple) else (case,)
        call = f"Case {number}, {student_function.__name__}({', '.join(map(_shorten, arguments))})"
        try:
            answer = student_function(*deepcopy(arguments))
        except NotImplementedError:
            answer = None
        except Exception as error:  # whatever the student's code raises
            print(" ".join(f"{call}: {type(error).__name__}: {error}".split()))
            return
        if answer is None or answer is ...:
            print("Not written yet: the function returns nothing.")
            return
        difference = _difference(reference(*deepcopy(arguments)), answer)
        if difference:
            print(f"Not yet. {call}: {difference}")
            for wrong_function, hint in (hints or {}).items():
                if not _difference(wrong_function(*deepcopy(arguments)), answer):
                    print(f"Hint: {hint}")
            return
    print(f"Right in all {len(cases)} cases.")


def use(student_function: Callable[..., Any], reference: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function that answers as a student's, or as the reference while that is a stub.

    Parameters
    ----------
    student_function, reference : callable
        As in `check`.
    """

    def answer(*arguments: Any) -> Any:
        with suppress(NotImplementedError):
            result = student_function(*arguments)
            if result is not None and result is not ...:
                return result
        return reference(*arguments)

    return answer


def _difference(expected: Any, answer: Any) -> str:
    """Describe the first difference of an answer; the text is empty if there is none."""
    expected = np.asarray(expected, dtype=float) + 0.0  # which makes -0 a 0
    try:
        numbers = np.asarray(answer, dtype=float)
    except (TypeError, ValueError):
        return f"numbers are expected; you have {_shorten(answer)}."
    if numbers.shape != expected.shape:
        return f"the shape {expected.shape} is expected; you have {numbers.shape}."
    is_wrong = ~np.isclose(numbers, expected, atol=1e-6, equal_nan=True)
    if not is_wrong.any():
        return ""
    index = tuple(np.argwhere(is_wrong)[0].tolist())
    where = f"at {list(index)} " if index else ""
    return f"{where}{expected[index]:.4g} is expected; you have {numbers[index]:.4g}."


def _shorten(value: Any) -> str:
    """Write a value in one short line."""
    return shorten(repr(value), LONGEST_SHOWN, placeholder="...")
