"""The mistakes that are put into styles: what the product may call each, and what it needs to show."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Fault:
    """One kind of mistake."""

    summary: str
    causes: frozenset[str]
    """Names that are right."""
    feature: str = ""
    """What a size needs."""
    sizes: tuple[str, ...] = ()
    """The classes of size where it can be seen; none where in all."""
    in_block: bool = True


def _fault(
    summary: str, *causes: str, feature: str = "", sizes: tuple[str, ...] = (), whole: bool = False
):
    return Fault(summary, frozenset(causes), feature, sizes, not whole)


MOVED = ("reshaped without moving axes", "axis split the other way round", "transposed", "permuted")
EXCHANGED = ("other value read", "operands exchanged", "permuted", "steps exchanged")
MEANS = ("mean", "everything")
FIRST_TOKEN = ("tiny", "width 8", "one head", "six heads", "layer scale", "registers", "qk norm")
ODD_HEADS = ("tiny", "one head", "everything", "layer scale")
"""Classes whose widths of a head are no powers of four."""
MANY_BLOCKS = ("tiny", "six heads", "layer scale", "everything", "qk norm", "mean")

FAULTS = {
    "epsilon": _fault("epsilon 1e-5 in the first norm of a block", "epsilon"),
    "every epsilon": _fault("epsilon 1e-5 in all norms", "epsilon", whole=True),
    "last epsilon": _fault("epsilon 1e-5 in the last norm", "epsilon", whole=True),
    "tanh gelu": _fault("GELU by tanh", "activation"),
    "quick gelu": _fault("x sigmoid(1.702 x) for GELU", "activation"),
    "gelu for quick gelu": _fault("GELU for x sigmoid(1.702 x)", "activation"),
    "factor of quick gelu": _fault("1.7 for 1.702", "number", "factor"),
    "no scale": _fault("scores without their scale", "scale left out"),
    "scale of width": _fault(
        "scale of the width, not of a head",
        "number",
        "factor",
        sizes=("tiny", "six heads", "mean", "square", "everything", "registers"),
    ),
    "float32 scale": _fault(
        "scale rounded to float32", "number", "factor", sizes=("tiny", "everything", "layer scale")
    ),
    "head order": _fault(
        "heads are not moved back beside their channels",
        *MOVED,
        sizes=("tiny", "six heads", "registers", "everything", "mean"),
    ),
    "packing": _fault(
        "q, k, v read as (heads, 3, channels)", *MOVED, sizes=("tiny", "six heads", "registers", "mean")
    ),
    "causal mask": _fault("a causal mask", "causal mask", "mask"),
    "softmax axis": _fault("softmax over the queries", "axis"),
    "dropout scale": _fault("the scale of dropout in evaluation", "one scale too many", "factor"),
    "no bias": _fault("the bias of fc1 is never added", "bias left out"),
    "no norm bias": _fault("the bias of the second norm is never added", "bias left out"),
    "no gain": _fault("the gain of the second norm is never used", "gain left out"),
    "no residual": _fault("the attention's branch without its skip", "residual left out"),
    "detached gain": _fault("no gradient to the gain of the first norm", "detached"),
    "detached bias": _fault("no gradient to the bias of fc1", "detached"),
    "detached fc1": _fault("no gradient to fc1", "detached"),
    "detached gamma": _fault(
        "no gradient to the factors of the layer scale", "detached", feature="layer scale"
    ),
    "detached positions": _fault("no gradient to the positions", "detached", whole=True),
    "detached skip": _fault("no gradient through the attention's skip", "detached"),
    "detached attention": _fault("no gradient through the attention weights", "detached"),
    "detached mlp": _fault("no gradient through the MLP to what is in front of it", "detached"),
    "gammas exchanged": _fault(
        "the factors of one branch at the other", *EXCHANGED, feature="layer scale"
    ),
    "q norm missing": _fault("queries are not normalised", "norm left out", feature="qk norm"),
    "q and k norms exchanged": _fault(
        "the norms of queries and keys exchanged", *EXCHANGED, feature="qk norm"
    ),
    "last block not called": _fault(
        "the last block is not called", "left out", "layer left out", sizes=MANY_BLOCKS, whole=True
    ),
    "layers reversed": _fault(
        "blocks in reversed order", "reversed", "permuted", sizes=MANY_BLOCKS, whole=True
    ),
    "layers as strings": _fault("blocks sorted as strings", "permuted", sizes=("deep",), whole=True),
    "no last norm": _fault("the last norm left out", "norm left out", whole=True),
    "no first norm": _fault("the norm in front of the blocks left out", "norm left out", whole=True),
    "n - 1": _fault("variance over n - 1", "n - 1 for n"),
    "rms": _fault("the mean is not subtracted", "term left out", "RMS norm for layer norm"),
    "positions shifted": _fault(
        "positions shifted by a token", "shifted", "permuted", "one step too many", whole=True
    ),
    "channels reversed": _fault("BGR for RGB", "reversed", "permuted", whole=True),
    "pixels transposed": _fault("rows and columns of a patch exchanged", "transposed", whole=True),
    "constants of pixels": _fault(
        "pixels normalised once more",
        "numbers",
        "number",
        "one step too many",
        "one scale too many",
        "one term too many",
        "factor",
        whole=True,
    ),
    "weight transposed": _fault("the square matrix behind the heads transposed", "transposed"),
    "prefix in mean": _fault(
        "the mean of the prefix too", "reduction", feature="mean", sizes=MEANS, whole=True
    ),
    "second token": _fault(
        "the second token for the first", "index", "slice", sizes=FIRST_TOKEN, whole=True
    ),
    "custom gradient": _fault("a wrong factor in a derivative by hand", "factor", "number"),
    "padding seen": _fault(
        "padded keys take part",
        "mask",
        "term left out",
        "left out",
        sizes=("tiny", "six heads", "qk norm", "registers"),
    ),
}
NOT_DEAD = frozenset(
    {"tanh gelu", "quick gelu", "gelu for quick gelu", "factor of quick gelu", "custom gradient"}
)
"""Mistakes in an activation that a model with ReLU has not."""
NAMES_ALONE = frozenset(
    {"gammas exchanged", "q and k norms exchanged", "layers reversed", "layers as strings"}
)
"""Mistakes that are the same function under other names where arrays are alike: not with fresh ones."""
TOLD = dict.fromkeys(NAMES_ALONE, re.compile(r" holds A's \S+ (instead of|where A reads) \S+$")) | {
    "pixels transposed": re.compile(r" holds A's \S+ with the axes of \[.*\] in the order ")
}
"""What a sentence about a wrong parameter must say, where it has no name before it."""
WEIGHTS = frozenset({"layers reversed", "layers as strings", "last block not called"})
"""Mistakes of which weights go where: a place that shows a parameter is at the right one."""


@cache
def marks(file: str) -> dict[int, frozenset[str]]:
    """The mistakes that each line of a file is a place of: its statement asks for them, or a comment in
    it or alone on the line above it says so."""
    text = Path(file).read_text(encoding="utf-8")
    lines = ["", *text.splitlines()]
    found: dict[int, frozenset[str]] = {}
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.stmt):
            continue
        body = getattr(node, "body", None)
        last = body[0].lineno - 1 if body else node.end_lineno or node.lineno
        span = range(node.lineno, max(last, node.lineno) + 1)
        above = lines[node.lineno - 1].strip()
        own = [lines[number] for number in span] + [above] * above.startswith("# wrong:")
        names = frozenset().union(*map(_marked, own))
        if isinstance(node, ast.If):  # what is done where it asks for a mistake is one
            span = range(node.lineno, (node.body[-1].end_lineno or node.lineno) + 1)
        found |= {number: found.get(number, frozenset()) | names for number in span}
    return found


def _marked(line: str) -> frozenset[str]:
    code, _, comment = line.partition("# wrong:")
    comment = comment.partition("#")[0]
    said = (
        {each.strip() for each in comment.split(",")} if re.fullmatch("[a-z0-9, -]+", comment) else set()
    )
    return frozenset(said | {*re.findall(r'(?:wrong|first)\("([^"]+)"', code)})


def is_place(file: str, line: int, name: str) -> bool:
    """Whether a line is one where a mistake is made."""
    return Path(file).parent == FOLDER and name in marks(file).get(line, ())
