"""The words of other libraries lead to the flag that does the same here."""

import pytest

from parity.cli import main
from parity.cli.convert import ConvertFiles
from parity.cli.embed import Embed
from parity.cli.export import Export
from parity.cli.match import Match
from parity.cli.predict import Predict
from parity.cli.support.command_line import flags_of
from parity.cli.support.field_words import WORDS
from parity.cli.support.train_flags import Options

SAID = {
    "train": {
        "--recipe.ema-decay": "--recipe.ema", "--lr": "--recipe.learning-rate",
        "--min-lr": "--recipe.final-learning-rate", "--sched": "--recipe.schedule",
        "--warmup-steps": "--recipe.warmup-epochs", "--warmup_ratio": "--recipe.warmup-fraction",
        "--wd": "--recipe.weight-decay", "--opt": "--recipe.optimizer",
        "--batch-size": "--recipe.batch-size", "--epochs": "--recipe.epochs", "--seed": "--recipe.seed",
        "--max_grad_norm": "--recipe.clip-norm",
        "--gradient-accumulation-steps": "--recipe.accumulate", "--llrd": "--recipe.layer-decay",
        "--smoothing": "--recipe.label-smoothing", "--mixup": "--recipe.mix.mixup",
        "--cutmix": "--recipe.mix.cutmix", "--aa": "--recipe.augment.policy",
        "--reprob": "--recipe.augment.erase", "--class-weight": "--recipe.class-weights",
        "--val-split": "--recipe.validation-fraction", "--amp": "--dtype", "--fp16": "--dtype",
        "--drop-path": "--model.stochastic-depth", "--nb-classes": "--model.num-classes",
        "--img-size": "--model.image-size", "--early-stopping": "--patience", "--pretrained": "--init",
        "--output-dir": "--run-dir", "--num-workers": "--workers", "--gpus": "--mesh",
        "--lora-r": "--lora-rank", "--gradient-checkpointing": "--remat",
        "--load-best-model-at-end": "--best", "--freeze-backbone": "--freeze",
    },
    "export": {
        "--opset-version": "--opset", "--dynamic": "--batch", "--imgsz": "--image-size",
        "--half": "--dtype",
        "--format": "--to", "--quantize": "--dtype",
    },
    "convert": {"--overwrite": "--force"}, "match": {"--ignore": "--apart-from"},
    "embed": {"--output": "--out", "-o": "--out"},
    "predict": {"--topk": "--k", "--candidate-labels": "--labels", "--backend": "--framework"},
}  # fmt: skip


@pytest.mark.parametrize(
    ("command", "word", "flag"),
    [(command, *pair) for command, words in SAID.items() for pair in words.items()],
)
def test_a_word_of_the_field_leads_to_its_flag(command, word, flag, capsys):
    needed = ["a", "b", *(["--to", "onnx"] if flag != "--to" else ())] if command == "export" else []
    assert main([command, *(["a", "b"] if command in ("predict", "embed") else needed), word, "1"]) == 2
    assert f"no option {word}; did you mean {flag}?" in capsys.readouterr().err


def test_every_flag_there_is():
    """Of one of the commands; and no word leads to two flags of one command."""
    of = [flags_of(kind) for kind in (Options, Export, Predict, ConvertFiles, Embed, Match)]
    assert set(WORDS) <= {flag for flags in of for flag in flags}
    for flags in of:
        every = [word for flag, words in WORDS.items() if flag in flags for word in words.split()]
        assert sorted(every) == sorted(set(every))
