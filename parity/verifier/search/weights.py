"""Pairing the gradients of two programs by the parameters that they are taken of.

Parameters belong together by their numbers where these tell, as trained ones do. Before training they
do not: all norms hold ones and zeros, all biases zeros. Such parameters belong together where their
gradients are the same, else where they are used alike. Whatever is open then is compared as a whole:
however it belongs together, the numbers of A's gradients must be those of B's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from parity.measure.nearness import MOST
from parity.verifier.programs.backward import GRADIENT
from parity.verifier.programs.fingerprint import fingerprint_distances, same
from parity.verifier.programs.operation import Operation
from parity.verifier.programs.program import Program
from parity.verifier.search.aligned import aligned
from parity.verifier.search.meeting import Index, is_noise
from parity.verifier.search.packed import Links, holds_the_same, mark_of_all
from parity.verifier.search.pairing import Paired, Pairs
from parity.verifier.search.uses import Uses

ALIKE = 0.5
"""Share of common uses above which two leaves of one number are used alike: a layer's projection of
queries, keys and values is not all layers' of queries."""

Named = dict[int, tuple[str, int]]
"""Path and operation of each gradient, by the operation of its leaf."""

Group = tuple[list[int], list[int]]
"""Leaves of A and of B that together hold the same numbers."""


def pair_gradients(a: Program, b: Program) -> Paired:
    """Return the pairs of gradients to compare, and the names of the gradients without a counterpart.

    Both programs come from `backward.record_gradients`. Parameters that are packed, split or stacked on
    one side are paired with all that hold their numbers on the other.
    """
    of_a, of_b = gradients_of(a), gradients_of(b)
    groups = groups_of(a, b, of_a, of_b)
    pairs: Pairs = []
    a.is_aligned = True
    for mine, theirs in groups:
        pairs.append(aligned(a, b, [(leaf, of_a[leaf]) for leaf in mine],
                             [(leaf, of_b[leaf]) for leaf in theirs]))  # fmt: skip
    paired = {leaf for mine, _ in groups for leaf in mine}, {leaf for _, mine in groups for leaf in mine}
    left_out, tally, unread = [], {}, []
    for program, named, known in ((a, of_a, paired[0]), (b, of_b, paired[1])):
        readers = program.consumers()
        for leaf, (path, gradient) in named.items():
            if leaf not in known and program.operations[leaf].kind == "constant":
                continue  # an array of NumPy's that a function finds, which nobody trains
            if leaf not in known and _is_unread(program, readers[leaf], gradient):
                unread += [path.removeprefix(f"{GRADIENT}.")] if program is a else []
                continue
            kind = "inputs" if program.operations[leaf].kind == "input" else "parameters"
            if program is a:
                compared, every = tally.get(kind, (0, 0))
                tally[kind] = compared + (leaf in known), every + 1
            if leaf not in known:
                left_out.append(f"{program.name}'s {path.removeprefix(f'{GRADIENT}.')}")
    zero = [
        f"{program.name}'s {named[leaf][0].removeprefix(f'{GRADIENT}.')}"
        for program, named, leaf in _zero_in_theory(a, b, of_a, of_b, groups)
    ]
    tally = dict(sorted(tally.items(), reverse=True))
    return Paired(pairs, left_out, tally, tuple(zero), tuple(unread))


def _read(program: Program, named: Named, leaves: Sequence[int]) -> list[int]:
    """Return the leaves that reach an output."""
    readers = program.consumers()
    return [leaf for leaf in leaves if not _is_unread(program, readers[leaf], named[leaf][1])]


def _is_unread(program: Program, readers: Sequence[int], gradient: int) -> bool:
    """Return whether a leaf reaches no output, as a mask token in evaluation: its gradient is zeros of
    its shape."""
    alone = all(i == gradient or program.operations[i].name.startswith("zeros") for i in readers)
    return alone and program.operations[gradient].number == 0


def _zero_in_theory(
    a: Program, b: Program, of_a: Named, of_b: Named, groups: Iterable[Group]
) -> Iterable[tuple[Program, Named, int]]:
    """Yield the leaves whose gradients are nothing but round-off; those of B only where A packs them."""
    for mine, theirs in groups:
        noisy = [leaf for leaf in mine if is_noise(a.operations[of_a[leaf][1]])]
        yield from ((a, of_a, leaf) for leaf in noisy)
        if not noisy:
            yield from ((b, of_b, y) for y in theirs if is_noise(b.operations[of_b[y][1]]))


def gradients_of(program: Program) -> Named:
    """Return the output that is the gradient of each leaf, for leaves that have one."""
    leaves = {op.label: op.index for op in program.operations if op.run is None}
    gradients: Named = {}
    for path, index in program.outputs:
        name = path.removeprefix(f"{GRADIENT}.")
        labels = [name, f"trees.{name}", name.removeprefix("inputs.")] if name != path else []
        leaf = next((leaves[label] for label in labels if label in leaves), None)
        if leaf is not None:
            gradients[leaf] = path, index
    return gradients


def groups_of(a: Program, b: Program, of_a: Named, of_b: Named) -> list[Group]:
    """Return the leaves that belong together: one and one first, then several."""
    uses = Uses(a, b)
    groups: list[Group] = [([x], [y]) for x, y in _one_and_one(a, b, of_a, of_b, uses)]
    rest_a = [x for x in of_a if not any(x in mine for mine, _ in groups)]
    rest_b = [y for y in of_b if not any(y in theirs for _, theirs in groups)]
    links = Links(a, b, {x: of_a[x][1] for x in rest_a}, {y: of_b[y][1] for y in rest_b}, uses)
    for linked in (links.by_numbers, links.by_use, links.by_module, links.by_number):
        for whole in _together(rest_a, rest_b, linked):
            read = _read(a, of_a, whole[0]), _read(b, of_b, whole[1])
            group = next((each for each in (whole, read) if holds_the_same(a, b, *each)), None)
            if group:
                groups += _told_apart(a, b, of_a, of_b, uses, group)
                rest_a = [x for x in rest_a if x not in group[0]]
                rest_b = [y for y in rest_b if y not in group[1]]
                links.know(group)
    rest = _read(a, of_a, rest_a), _read(b, of_b, rest_b)
    return groups + _only_ones(a, b, *rest, links)


def _only_ones(
    a: Program, b: Program, mine: Sequence[int], theirs: Sequence[int], links: Links
) -> list[Group]:
    """Pair what is left of one number on both sides and alone has its shape, in some order of its axes:
    a head of zeros, whose use tells nothing where what it reads differs."""
    shapes = [
        Counter(_matrix(program, each) for each in leaves)
        for program, leaves in ((a, mine), (b, theirs))
    ]
    return [
        ([x], [y])
        for x in mine
        for y in theirs
        if (shape := _matrix(a, x)) == _matrix(b, y) and len(shape) > 1
        if shapes[0][shape] == shapes[1][shape] == 1 and links.by_number(x, y)
    ]


def _matrix(program: Program, leaf: int) -> tuple[int, ...]:
    """Return the sorted lengths of a leaf's axes."""
    return tuple(sorted(n for n in program.operations[leaf].shape if n > 1))


def _told_apart(
    a: Program, b: Program, of_a: Named, of_b: Named, uses: Uses, group: Group
) -> list[Group]:
    """Return a group, or its leaves one by one if its gradients differ however they belong together: to
    say which of them do."""
    of_x = [a.operations[of_a[x][1]] for x in group[0]]
    of_y = [b.operations[of_b[y][1]] for y in group[1]]
    apart = max(fingerprint_distances(mark_of_all(of_x), mark_of_all(of_y)))
    sizes = [sorted(op.size for op in each) for each in (of_x, of_y)]
    if apart <= MOST.norm or all(map(is_noise, of_x)) or sizes[0] != sizes[1]:
        return [group]
    mine, theirs = {x: of_a[x] for x in group[0]}, {y: of_b[y] for y in group[1]}
    pairs = _one_and_one(a, b, mine, theirs, uses, alike=-1.0)
    return [([x], [y]) for x, y in pairs] if len(pairs) == len(group[0]) else [group]


def _one_and_one(
    a: Program, b: Program, of_a: Named, of_b: Named, uses: Uses, alike: float = ALIKE
) -> list[tuple[int, int]]:
    """Pair leaves that hold the same numbers: those whose gradients are the same first, then those that
    are used alike, then those whose gradients are nearest.

    Leaves that hold one number many times are paired by their gradients or their use alone, of which
    they must share more than `alike`.
    """
    leaves = Index(a, of_a.keys())
    ranked = []
    for order, y in enumerate(of_b):
        op = b.operations[y]
        assert op.mark is not None
        partners = [each.index for each in leaves.find(op.mark) if each.size == op.size]
        telling = op.number is None
        if telling and len(partners) == 1:
            ranked.append((False, 0.0, 0.0, order, partners[0], y))
            continue
        of_y = b.operations[of_b[y][1]]
        for x in partners:
            of_x = a.operations[of_a[x][1]]
            other, shared = not _is_same(of_x, of_y), uses.shared(x, y)
            if telling or shared > alike or not other:
                ranked.append((other, -shared, _apart(of_x, of_y), order, x, y))
    taken: set[int] = set()
    pairs = []
    for *_, x, y in sorted(ranked):
        if x not in taken and ~y not in taken:  # leaves of B by their complements
            taken |= {x, ~y}
            pairs.append((x, y))
    return pairs


def _is_same(x: Operation, y: Operation) -> bool:
    """Return whether two gradients hold the same numbers and are not zero, in theory or altogether."""
    assert x.mark is not None
    assert y.mark is not None
    zero = is_noise(x) or is_noise(y) or not x.mark.any()
    return not zero and same(x.mark, y.mark, x.near.or_more(y.near))


def _apart(x: Operation, y: Operation) -> float:
    """Return how far two gradients are apart, in any order of their numbers."""
    assert x.mark is not None
    assert y.mark is not None
    return max(fingerprint_distances(x.mark, y.mark))


def _together(
    mine: Sequence[int], theirs: Sequence[int], linked: Callable[[int, int], bool]
) -> list[Group]:
    """Return the sets of leaves that are linked with each other, directly or by way of others."""
    groups: list[Group] = []
    for y in theirs:
        here = [x for x in mine if linked(x, y)]
        if not here:
            continue
        touched = [group for group in groups if set(group[0]) & set(here)]
        groups = [group for group in groups if group not in touched]
        own = dict.fromkeys([*here, *(x for group in touched for x in group[0])])
        groups.append((sorted(own), sorted([y, *(each for group in touched for each in group[1])])))
    return groups
