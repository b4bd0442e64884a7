"""``parity predict``: predict the classes of images, by a checkpoint of any dialect."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from parity.cli.eval import stated_preprocess
from parity.cli.support.command_line import parse
from parity.cli.support.reading import parse_fields, shown_as
from parity.cli.support.run_weights import OfModel, runs_here
from vit_config.errors import ConfigError, InputError, MissingFileError, one_line
from vit_config.terminal import complain

if TYPE_CHECKING:
    import numpy as np

    from parity.porting.models.loaded import Loaded, Prediction


@dataclass(frozen=True)
class Predict(OfModel):
    """Print the most probable classes of images. A file that is no image, or damaged, is named and
    passed over; exit status: 0, 1 if that happened, 2 if no image could be used or for other bad input.
    """

    images: Annotated[tuple[str, ...], tyro.conf.Positional, shown_as("IMAGE ...")]
    """Image files, or folders of them; - reads names from standard input, one a line."""
    k: int = 5
    """Classes to name for each image."""
    fields: Annotated[tuple[str, ...], shown_as("FIELD=VALUE ...", name="set")] = ()
    """Fields of the schema that the file leaves open, as for `parity convert`; text.act=gelu is of the
    text tower."""
    labels: Annotated[str | None, shown_as("A,B,...")] = None
    """Classes in words, of a CLIP or a SigLIP: each image is compared with their texts."""
    template: str = "{}"
    """Text of each of these classes, with {} in its place, such as "a photo of {}"."""
    json: Annotated[Path | None, shown_as("FILE")] = None
    """Also write the result as JSON to this file, one object a line."""
    csv: Annotated[Path | None, shown_as("FILE")] = None
    """Also write the result as CSV to this file, one row an image."""
    features: Annotated[Path | None, shown_as("FILE.npy")] = None
    """Also write the input of the head, (images, D) float32, in the order of the answers; a model
    without a head then names no classes."""


def main(argv: list[str], prog: str = "parity predict") -> int:
    """Run the command, which the user calls `prog`.

    Returns:
        0; 1 if some images could not be used.
    """
    arguments = parse(Predict, runs_here(argv), prog=prog)

    from parity.porting.models.loaded import rank_classes

    k, labels = arguments.k, labels_of(arguments.labels, arguments.template)
    loaded = arguments.load(given=parse_fields(arguments.fields))
    classes = loaded.most_probable
    if labels:
        loaded.check_k(k)
        k = min(k, len(labels))
        embedded = loaded.texts.embed([arguments.template.replace("{}", each) for each in labels])

        def classes(logits: np.ndarray, k: int) -> list[list[Prediction]]:
            return rank_classes(loaded.texts.compare(logits, embedded).probabilities, labels, k)

    elif loaded.has_classes or arguments.features is None:
        loaded.check_predicts(k)
    else:
        k = 0
    files = {"json": arguments.json, "csv": arguments.csv, "features": arguments.features}
    return answer(loaded, arguments.images, prog=prog, k=k, classes=classes, files=files)


def answer(
    loaded: Loaded,
    given: tuple[str, ...],
    *,
    prog: str,
    k: int,
    classes: Callable[[np.ndarray, int], list[list[Prediction]]],
    files: dict[str, Path | None],
    embedded: bool = False,
) -> int:
    """Answer images batch by batch, as their names come in; what cannot be used is named and left out.

    Args:
        given: files, folders, or - for names from standard input.
        k: classes to name for each image; with 0 none are.
        classes: returns the k classes of each image, given logits (B, classes).
        files: the files to write, as `Answers` takes them.
        embedded: whether features are the outputs, to be compared with texts, not what the head sees.

    Returns:
        0; 1 if some images could not be used.

    Raises:
        ConfigError: no image is given, also on standard input; no file is written then.
        InputError: no image could be used; no file is written or replaced then.
    """
    if not given:
        raise ConfigError("no image; give files, folders of them, or - for names from standard input")
    from parity.cli.support.answers import Answers, names_of
    from parity.porting.models.loaded import BATCH
    from vit_config.images.orientation import is_turned_file

    counts = stated_preprocess(loaded).exif == "ignore"
    coming, total = images_of(names_of(given, sys.stdin or ())), None
    if "-" not in given:
        listed = list(coming)
        coming, total = iter(listed), len(listed)
    done = answered = refused = turned = 0
    with Answers(prog, k=k, **files) as answers:
        while some := list(islice(coming, BATCH)):
            ready = []
            for path, error in some:
                try:
                    if error is not None:
                        raise error
                    ready.append((path, loaded.fitted(path)))
                    turned += counts and is_turned_file(path)
                except (InputError, MissingFileError) as error:
                    if total == 1:
                        raise
                    refused += 1
                    complain(f"{prog}: {one_line(str(error))}")
            if ready:
                batch = loaded.batched([pixels for _, pixels in ready])
                logits, pooled = loaded.seen_in_batch(batch)
                named = classes(logits, k) if k else [[]] * len(ready)
                for number, (path, _) in enumerate(ready):
                    answers.add(path, named[number], (logits if embedded else pooled)[number])
                answered += len(ready)
            done += len(some)
            answers.tell(done, total)
        if not done:
            raise ConfigError("no image: standard input is empty; give names of files there, one a line")
        if not answered:
            unwritten = "; no file is written" if any(files.values()) else ""
            raise InputError(f"no image of {refused} could be used, see above{unwritten}")
    if turned:
        of = "1 photo" if turned == 1 else f"{turned} photos"
        complain(f"note: the camera noted of {of} that it is turned; --exif apply turns it first")
    if refused:
        what = "1 image was" if refused == 1 else f"{refused} images were"
        complain(f"{prog}: {what} passed over, {answered} answered")
    return 1 if refused else 0


def labels_of(text: str | None, template: str) -> list[str]:
    """Return the classes in words that --labels and --template ask for; none if the model's own are.

    Raises:
        ConfigError: an empty one, one given twice, or a template that has no place for it.
    """
    if text is None:
        if template != "{}":
            raise ConfigError(f"--template {template!r} is of --labels; give both")
        return []
    labels = [each.strip() for each in text.split(",")]
    if not all(labels) or len(set(labels)) != len(labels):
        raise ConfigError(f"--labels {text!r}: one is empty or given twice")
    if "{}" not in template:
        raise ConfigError(f"--template {template!r}: has no {{}}, where each label goes")
    return labels


def images_of(names: Iterable[str]) -> Iterator[tuple[str, MissingFileError | None]]:
    """Yield the files that are meant, in order, of a folder all images below it; each with its error."""
    from vit_train.sources.folder import PICTURES
    from vit_train.sources.place import files_below

    for name in names:
        if not (folder := Path(name)).is_dir():
            yield name, None
            continue
        paths = [str(folder / inside / file) for inside, file in files_below(folder, PICTURES)]
        yield from ((path, None) for path in paths)
        if not paths:
            endings = ", ".join(PICTURES)
            yield name, MissingFileError(f"{name}: no image in this folder; they end in {endings}")
