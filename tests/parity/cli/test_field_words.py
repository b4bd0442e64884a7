"""The words of other libraries lead to the flag that does the same here."""

import pytest

from parity.cli import main
from parity.cli.compare_runs import CompareRuns
from parity.cli.convert import ConvertFiles
from parity.cli.embed import Embed
from parity.cli.export import Export
from parity.cli.match import Match
from parity.cli.predict import Predict
from parity.cli.support.command_line import flags_of
from parity.cli.support.train_flags import Options
from vit_config import ConfigError, ViTConfig
from vit_config.field_words import WORDS
from vit_config.recipe import Recipe

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
    "compare-runs": {"--rtol": "--limit"}, "diff": {"--device": "--device-b"},
    "embed": {"--output": "--out", "-o": "--out"},
    "predict": {"--topk": "--k", "--candidate-labels": "--labels", "--backend": "--framework"},
}  # fmt: skip


@pytest.mark.parametrize(
    ("command", "word", "flag"),
    [(command, *pair) for command, words in SAID.items() for pair in words.items()],
)
def test_a_word_of_the_field_leads_to_its_flag(command, word, flag, capsys):
    sides = [] if command in ("train", "convert", "match") else ["a", "b"]
    needed = ["--to", "onnx"] if command == "export" and flag != "--to" else []
    assert main([command, *sides, *needed, word, "1"]) == 2
    assert f"no option {word}; did you mean {flag}?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "word", "why"),
    [
        ("diff", "--tol=1e-3", "no tolerance is given by hand"),
        ("check", "--atol", "no tolerance is given by hand"),
        ("predict", "--device", "JAX computes on the accelerator that it finds"),
        ("eval", "--cpu", "JAX_PLATFORMS=cpu"),
    ],
)
def test_a_word_without_a_flag_has_its_reason(command, word, why, capsys):
    assert main([command, "a", "b", word, "1"]) == 2
    assert why in capsys.readouterr().err


@pytest.mark.parametrize(
    ("schema", "word", "field"),
    [
        (Recipe, "lr", "learning_rate"),
        (Recipe, "wd", "weight_decay"),
        (ViTConfig, "num_labels", "num_classes"),
        (ViTConfig, "drop_path", "stochastic_depth"),
        (ViTConfig, "embed_dim", "hidden_size"),
        (ViTConfig, "num_hidden_layers", "depth"),
        (ViTConfig, "num_attention_heads", "num_heads"),
        (ViTConfig, "intermediate_size", "mlp_dim"),
        (ViTConfig, "in_chans", "in_channels"),
    ],
)
def test_a_word_of_the_field_leads_to_a_schemas_field(schema, word, field):
    with pytest.raises(ConfigError, match=f"has no field '{word}'; did you mean '{field}'\\?"):
        schema(**{word: 3})


def test_every_flag_there_is():
    """Of one of the commands; and no word leads to two flags of one command."""
    of = [flags_of(kind) for kind in (Options, Export, Predict, ConvertFiles, Embed, Match, CompareRuns)]
    assert set(WORDS) <= {flag for flags in of for flag in flags}
    for flags in of:
        every = [word for flag, words in WORDS.items() if flag in flags for word in words.split()]
        assert sorted(every) == sorted(set(every))
