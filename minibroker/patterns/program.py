"""Compiles the tree of a pattern to a program, and finds the names that it matches as a whole.

A program is run as the set of instructions that can be reached (Thompson). Sets that were reached before are cached,
with their successors, as the states of an automaton. The time is linear in the length of a name, for any pattern.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

from minibroker.patterns.characters import WORD
from minibroker.patterns.syntax import (
    Assertion,
    Characters,
    Choice,
    InvalidPattern,
    Node,
    PatternReader,
    PlaceNode,
    Repeat,
    Sequence,
)
from minibroker.protocol.steps import Steps, run_all_steps

MAXIMUM_LENGTH = 10_000  # of a pattern, in characters
MAXIMUM_SIZE = 5000  # of a program, in instructions
MAXIMUM_EFFORT = 1_000_000  # what finding names may cost, in instructions looked at: about a second of one core


class InstructionKind(IntEnum):
    """What an instruction does."""

    CHARACTERS = 0  # goes on if the character is in `argument`
    PLACE = 1  # goes on if the place is as `argument` says
    SPLIT = 2  # goes on at the next instruction, and at `argument`
    JUMP = 3  # goes on at `argument`
    MATCH = 4


ProgramState = frozenset[int]


class CharacterContext(NamedTuple):
    """What comes before the next character: the places in the program, whether nothing else, whether part of a word."""

    state: ProgramState
    at_start: bool
    word: bool

    def list_assertions(self, character: str | None) -> frozenset[Assertion]:
        """Return the assertions that hold here if `character` comes next, None for the end."""
        boundary = self.word != (character is not None and _is_word(character))
        holding = {Assertion.WORD_BOUNDARY if boundary else Assertion.NO_WORD_BOUNDARY}
        if self.at_start:
            holding.add(Assertion.START)
        if character is None:
            holding.add(Assertion.END)
        return frozenset(holding)


class Pattern:
    """A compiled pattern. `effort` is what finding names with it has cost so far."""

    def __init__(self, text: str) -> None:
        """Compile a pattern. Raises InvalidPattern."""
        if len(text) > MAXIMUM_LENGTH:
            raise InvalidPattern("expression is too long")
        self.text = text
        self.effort = 0
        self._kinds: list[InstructionKind] = []
        self._arguments: list[int] = []
        self._places: list[Assertion] = list(Assertion)
        self._add_instructions_of_node(PatternReader(text).read_pattern())
        self._add_instruction(InstructionKind.MATCH)
        self._following: dict[CharacterContext, dict[str, ProgramState]] = {}  # by character: what is reached after it
        self._ends: dict[CharacterContext, bool] = {}  # whether the name may end there

    def select_matching_names(self, names: Iterable[str]) -> Steps[frozenset[str]]:
        """Return the (ASCII) names that match as a whole. Raises InvalidPattern if that takes too long."""
        self.effort = 0
        found = []
        for name in names:
            if (yield from self._matches_name(name)):
                found.append(name)
            yield
        return frozenset(found)

    def matches(self, name: str) -> bool:
        """Return whether the whole name matches. Raises InvalidPattern if finding out takes too long."""
        return run_all_steps(self._matches_name(name))

    def _matches_name(self, name: str) -> Steps[bool]:
        before = CharacterContext(frozenset((0,)), True, False)
        for character in name:
            following = self._following.setdefault(before, {})
            state = following.get(character)
            if state is None:
                state = following[character] = self._advance_over_character(before, character)
                yield
            if not state:
                return False
            before = CharacterContext(state, False, _is_word(character))
        if before not in self._ends:
            closed = self._list_instructions_reached_without_character(before.state, before.list_assertions(None))
            self._ends[before] = any(self._kinds[index] is InstructionKind.MATCH for index in closed)
        return self._ends[before]

    def _advance_over_character(self, before: CharacterContext, character: str) -> ProgramState:
        bit = ord(character)
        return frozenset(
            index + 1
            for index in self._list_instructions_reached_without_character(
                before.state, before.list_assertions(character)
            )
            if self._kinds[index] is InstructionKind.CHARACTERS and self._arguments[index] >> bit & 1
        )

    def _list_instructions_reached_without_character(
        self, state: ProgramState, true_assertions: frozenset[Assertion]
    ) -> set[int]:
        """Return all instructions that are reached from `state` without a character."""
        waiting = list(state)
        reached = set(waiting)
        while waiting:
            index = waiting.pop()
            kind, argument = self._kinds[index], self._arguments[index]
            following: tuple[int, ...] = ()
            if kind is InstructionKind.SPLIT:
                following = (index + 1, argument)
            elif kind is InstructionKind.JUMP:
                following = (argument,)
            elif kind is InstructionKind.PLACE and self._places[argument] in true_assertions:
                following = (index + 1,)
            for each in following:
                if each not in reached:
                    reached.add(each)
                    waiting.append(each)
        self.effort += len(reached)
        if self.effort > MAXIMUM_EFFORT:
            raise InvalidPattern("expression takes too long to match")
        return reached

    # --- compiling ------------------------------------------------------------------------------

    def _add_instruction(self, kind: InstructionKind, argument: int = 0) -> int:
        if len(self._kinds) >= MAXIMUM_SIZE:
            raise InvalidPattern("expression is too large")
        self._kinds.append(kind)
        self._arguments.append(argument)
        return len(self._kinds) - 1

    def _add_instructions_of_node(self, node: Node) -> None:
        if isinstance(node, Characters):
            self._add_instruction(InstructionKind.CHARACTERS, node.bits)
        elif isinstance(node, PlaceNode):
            self._add_instruction(InstructionKind.PLACE, self._places.index(node.assertion))
        elif isinstance(node, Sequence):
            for part in node.parts:
                self._add_instructions_of_node(part)
        elif isinstance(node, Choice):
            self._add_instructions_of_choice(node)
        else:
            self._add_instructions_of_repeat(node)

    def _add_instructions_of_choice(self, node: Choice) -> None:
        jumps = []
        for part in node.parts[:-1]:
            split = self._add_instruction(InstructionKind.SPLIT)
            self._add_instructions_of_node(part)
            jumps.append(self._add_instruction(InstructionKind.JUMP))
            self._arguments[split] = len(self._kinds)
        self._add_instructions_of_node(node.parts[-1])
        for jump in jumps:
            self._arguments[jump] = len(self._kinds)

    def _add_instructions_of_repeat(self, node: Repeat) -> None:
        for _ in range(node.least):
            self._add_instructions_of_node(node.part)
        if node.most is None:
            split = self._add_instruction(InstructionKind.SPLIT)
            self._add_instructions_of_node(node.part)
            self._add_instruction(InstructionKind.JUMP, split)
            self._arguments[split] = len(self._kinds)
            return
        splits = []
        for _ in range(node.most - node.least):
            splits.append(self._add_instruction(InstructionKind.SPLIT))
            self._add_instructions_of_node(node.part)
        for split in splits:
            self._arguments[split] = len(self._kinds)


def _is_word(character: str) -> bool:
    return bool(WORD >> ord(character) & 1)
