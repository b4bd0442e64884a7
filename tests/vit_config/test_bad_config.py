"""What can be wrong in a schema or its file: one clear line each, with the field and its value."""

import json
import pickle
import re

import pytest

from parity.porting.fleet import FleetManifest
from tests.support.refusals import one_line
from tests.support.tiny import TINY
from vit_config import ConfigError, MissingFileError, Preprocess, Recipe, ViTConfig, preset
from vit_config.augmentation import Augment, Mix
from vit_config.presets.own import OWN
from vit_config.recipe_rules import GOES_WITH
from vit_config.rope import Rope

pytestmark = pytest.mark.quick

CONTRADICTIONS = {
    "patches that do not divide the image": (
        {"patch_size": (4, 5)},
        ["image_size = (21, 15)", "patch_size = (4, 5)", "nearest valid sizes are 20x15 and 24x15"],
    ),
    "a patch larger than the image": (
        {"patch_size": (28, 5)},
        ["image_size = (21, 15)", "patch_size = (28, 5)", "28x15"],
    ),
    "heads that do not divide the width": (
        {"num_heads": 7},
        ["num_heads = 7", "hidden_size = 30", "make the width a multiple"],
    ),
    "pool without a class token": (
        {"class_token": False},
        ['pool = "class"', "class_token = false", 'set pool = "mean"'],
    ),
    "norm of patches that a convolution never cuts": (
        {"patch_input_norm": True},
        ["patch_input_norm = true", 'patch_embed = "conv"', '"linear_hwc"'],
    ),
    "bias of a missing projection": (
        {"attention_out_proj": False},
        ["attention_out_bias = true", "attention_out_proj = false"],
    ),
    "softmax of a missing head": (
        {"head_activation": "softmax", "num_classes": 0},
        ['head_activation = "softmax"', "num_classes = 0"],
    ),
    "skipping the only block": (
        {"stochastic_depth": 0.1, "depth": 1},
        ["stochastic_depth = 0.1", "depth = 1"],
    ),
    "rows of a missing table": (
        {"pos_embed": "none", "pos_embed_prefix": "all"},
        ['pos_embed_prefix = "all"', 'pos_embed = "none"'],
    ),
    "resizing a missing table": (
        {"pos_embed": "none", "pos_embed_prefix": "none", "pos_embed_resize": "leading_rows"},
        ['pos_embed_resize = "leading_rows"', 'pos_embed = "none"'],
    ),
    "a grid with rows for prefix tokens": (
        {"pos_embed": "sincos2d", "pos_embed_prefix": "all", "hidden_size": 20},
        ['pos_embed_prefix = "all"', 'pos_embed = "sincos2d"'],
    ),
    "leading rows of a grid": (
        {
            "pos_embed": "sincos2d_simple",
            "pos_embed_prefix": "none",
            "pos_embed_resize": "leading_rows",
            "hidden_size": 20,
        },
        ['pos_embed_resize = "leading_rows"', 'pos_embed = "sincos2d_simple"'],
    ),
    "one projection with half a bias": (
        {
            "block": "parallel",
            "attention": "differential",
            "norm": "rmsnorm",
            "attention_out_bias": False,
        },
        ["one output projection", "attention_out_bias = false", "mlp_bias = true"],
    ),
    "pooling squares of no side": (
        {"pool": "soft", "class_token": False, "num_classes": 0},
        ['pool = "soft"', "pool_window = null", "give their side"],
    ),
    "one norm of several pooled tokens": (
        {
            "pool": "soft",
            "pool_window": 3,
            "class_token": False,
            "num_classes": 0,
            "final_norm": "post_pool",
        },
        ['pool = "soft"', 'final_norm = "post_pool"'],
    ),
    "a width that sines of a grid do not fill": (
        {"pos_embed": "sincos2d", "pos_embed_prefix": "none"},
        ['pos_embed = "sincos2d"', "hidden_size = 30", "divisible by 4"],
    ),
    "a width that sines do not fill": (
        {"pos_embed": "sincos1d", "hidden_size": 15, "num_heads": 5},
        ['pos_embed = "sincos1d"', "hidden_size = 15", "even"],
    ),
    "heads of a width that differential ones cannot have": (
        {"attention": "differential", "attention_head_dim": 8},
        ['attention = "differential"', "attention_head_dim = 8", "attention_head_dim = null"],
    ),
    "joined heads that no projection brings back to the width": (
        {"attention_head_dim": 7, "attention_out_proj": False, "attention_out_bias": False},
        ["attention_out_proj = false", "hidden_size = 30", "attention_head_dim = 7", "make 35"],
    ),
    "a distillation token beside a mean": (
        {"distill_token": True, "pool": "mean"},
        ["distill_token = true", "class_token = true", 'pool = "mean"'],
    ),
    "a layer before two heads": (
        {"head_hidden": 17, "distill_token": True},
        ["head_hidden = 17", "distill_token = true"],
    ),
    "a missing head without a bias": (
        {"head_bias": False, "num_classes": 0},
        ["head_bias = false", "num_classes = 0"],
    ),
    "images that no file holds": (
        {"image_size": 2**16, "patch_size": 2**10},
        ["image_size = (65536, 65536)", "4294967296 pixels", "33554432"],
    ),
    "more patches than any grid": (
        {"image_size": 2**12, "patch_size": 2},
        ["image_size = (4096, 4096)", "4194304 patches", "1048576"],
    ),
    "a table of positions for more": (
        {"pos_embed_grid": (2000, 2000), "dynamic_image_size": True},
        ["4000001 rows", "2097152"],
    ),
    "more parameters than memory": (
        {"hidden_size": 2**20, "num_heads": 8, "depth": 4096},
        ["hidden_size = 1048576", "depth = 4096", "1099511627776"],
    ),
    "a row for the class token only, of many": (
        {"pos_embed_prefix": "class"},
        ['pos_embed_prefix = "class"', "class_token = true", "register_tokens = 0"],
    ),
}


@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_a_contradiction_names_both_fields_and_values(case):
    changes, words = CONTRADICTIONS[case]
    with pytest.raises(ConfigError) as caught:
        TINY.replace(**changes)
    one_line(caught.value, *words)
    assert isinstance(caught.value, ValueError)


def test_what_a_contradiction_says_to_set_removes_it():
    followed = 0
    for changes, _ in CONTRADICTIONS.values():
        with pytest.raises(ConfigError) as caught:
            TINY.replace(**changes)
        todo = str(caught.value).partition("; set ")[2]
        fields = {name: json.loads(word) for name, word in re.findall(r'(\w+) = ("\w+"|\w+)', todo)}
        if fields:
            TINY.replace(**{**changes, **fields})
            followed += 1
    assert followed > 6


def test_all_contradictions_are_told_at_once():
    with pytest.raises(ConfigError) as caught:
        TINY.replace(num_heads=7, class_token=False, patch_size=(4, 5))
    one_line(caught.value, "num_heads = 7", "class_token = false", "patch_size = (4, 5)")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"hidden_sise": 30}, ["ViTConfig has no field 'hidden_sise'", "did you mean 'hidden_size'?"]),
        ({"zzz": 1}, ["no field 'zzz'", "the fields are image_size, patch_size"]),
        ({"num_heads": "4"}, ["ViTConfig.num_heads = '4'", "valid integer"]),
        ({"num_heads": 4.5}, ["ViTConfig.num_heads = 4.5", "integer"]),
        ({"num_heads": 0}, ["ViTConfig.num_heads = 0", "greater than 0"]),
        ({"mlp_dim": 10**9}, ["ViTConfig.mlp_dim = 1000000000", "less than or equal to 1048576"]),
        ({"register_tokens": 10**9}, ["register_tokens = 1000000000", "equal to 1048576"]),
        ({"num_classes": -1}, ["ViTConfig.num_classes = -1", "greater than or equal to 0"]),
        ({"class_token": 1}, ["ViTConfig.class_token = 1", "boolean"]),
        ({"image_size": True}, ["ViTConfig.image_size", "True", "tuple"]),
        ({"image_size": [21, 15, 3]}, ["ViTConfig.image_size", "(21, 15, 3)"]),
        ({"act": "gelu_new"}, ["ViTConfig.act = 'gelu_new'", "'gelu_tanh'"]),
        ({"dropout_embed": 1.0}, ["ViTConfig.dropout_embed = 1.0", "less than 1"]),
        ({"norm_eps": float("inf")}, ["ViTConfig.norm_eps = inf", "finite"]),
        ({"norm_eps": float("nan")}, ["ViTConfig.norm_eps = nan"]),
        ({"depth": "x", "mlp_dim": None}, ["ViTConfig.depth = 'x'", "ViTConfig.mlp_dim = None"]),
    ],
)
def test_an_unknown_or_mistyped_field_is_named_with_its_value(fields, words):
    with pytest.raises(ConfigError) as caught:
        ViTConfig(**fields)
    one_line(caught.value, *words)


RECIPE_CONTRADICTIONS = {
    "a warm-up as long as the run": (
        {"epochs": 3, "warmup_epochs": 3.0},
        ["warmup_epochs = 3.0", "epochs = 3", "shorter"],
    ),
    "a schedule that goes up": (
        {"final_learning_rate": 0.1},
        ["final_learning_rate = 0.1", "learning_rate = 0.001"],
    ),
    "a warm-up that goes down": (
        {"warmup_epochs": 1.0, "warmup_start": 0.1},
        ["warmup_start = 0.1", "learning_rate = 0.001"],
    ),
    "uneven parts": ({"batch_size": 10, "accumulate": 4}, ["batch_size = 10", "accumulate = 4"]),
    "names where a rule says what decays": (
        {"weight_decay": 0.1, "decayed": ("norm.weight",)},
        ['decay = "matrices"', "1 names in decayed"],
    ),
    "no names where names say what decays": (
        {"weight_decay": 0.1, "decay": "listed"},
        ['decay = "listed"', "0 names in decayed"],
    ),
    "moments of Adam in SGD": (
        {"optimizer": "sgd", "beta1": 0.8},
        ["beta1 = 0.8", 'optimizer = "sgd"', '"adamw" or "adam"'],
    ),
    "the second moment in SGD": (
        {"optimizer": "sgd", "beta2": 0.9},
        ["beta2 = 0.9", 'optimizer = "sgd"', '"adamw" or "adam"'],
    ),
    "an epsilon in SGD": (
        {"optimizer": "sgd", "adam_eps": 1e-6},
        ["adam_eps = 1e-06", 'optimizer = "sgd"', '"adamw" or "adam"'],
    ),
    "momentum in Adam": ({"momentum": 0.5}, ["momentum = 0.5", 'optimizer = "adamw"', '"sgd"']),
    "Nesterov in Adam": ({"nesterov": True}, ["nesterov = true", 'optimizer = "adamw"', '"sgd"']),
    "Nesterov without momentum": (
        {"optimizer": "sgd", "momentum": 0.0, "nesterov": True},
        ["nesterov = true", "momentum = 0.0"],
    ),
    "coupled decay by the schedule alone": (
        {"optimizer": "adam", "weight_decay": 0.1, "decay_times": "schedule"},
        ['decay_times = "schedule"', 'optimizer = "adam"', '"adamw"'],
    ),
    "a factor of no decay": (
        {"decay_times": "schedule"},
        ['decay_times = "schedule"', "weight_decay = 0.0"],
    ),
    "a rule for no decay": ({"decay": "all"}, ['decay = "all"', "weight_decay = 0.0"]),
    "an epsilon of no clipping": ({"clip_eps": 1e-6}, ["clip_eps = 1e-06", "clip_norm = null"]),
    "the start of no warm-up": ({"warmup_start": 0.0}, ["warmup_start = 0.0", "warmup_epochs = 0.0"]),
    "no warm-up that overlaps": (
        {"warmup_overlaps": True},
        ["warmup_overlaps = true", "warmup_epochs = 0.0"],
    ),
    "an end of a constant": (
        {"schedule": "constant", "final_learning_rate": 1e-4},
        ["final_learning_rate = 0.0001", 'schedule = "constant"', '"cosine" or "linear"'],
    ),
    "an end of a root": (
        {"schedule": "rsqrt", "reach_final": True},
        ["reach_final = true", 'schedule = "rsqrt"', '"cosine" or "linear"'],
    ),
    "steps of a cosine": ({"step_epochs": 2.0}, ["step_epochs = 2.0", 'schedule = "cosine"', '"step"']),
    "a factor of a cosine": (
        {"step_factor": 0.5},
        ["step_factor = 0.5", 'schedule = "cosine"', '"step"'],
    ),
    "the root's epochs of a cosine": (
        {"rsqrt_epochs": 2.0},
        ["rsqrt_epochs = 2.0", 'schedule = "cosine"', '"rsqrt"'],
    ),
    "half an epoch of warm-up by the epoch": (
        {"schedule_unit": "epoch", "warmup_epochs": 1.5},
        ["warmup_epochs = 1.5", 'schedule_unit = "epoch"'],
    ),
    "steps of half an epoch by the epoch": (
        {"schedule_unit": "epoch", "schedule": "step", "step_epochs": 1.5},
        ["step_epochs = 1.5", 'schedule_unit = "epoch"'],
    ),
    "layers counted for one rate": (
        {"layer_rule": "mae"},
        ['layer_rule = "mae"', "layer_decay = 1.0"],
    ),
    "LAMB of what does not decay": (
        {"optimizer": "lamb"},
        ['optimizer = "lamb"', "weight_decay = 0.0", '"adamw"'],
    ),
    "a threshold of a softmax": (
        {"label_threshold": 0.0},
        ["label_threshold = 0.0", 'loss = "softmax"', '"sigmoid" or "sigmoid_mean"'],
    ),
    "several labels by a softmax": (
        {"labels": "several"},
        ['labels = "several"', 'loss = "softmax"', '"sigmoid_mean"'],
    ),
    "equally many of each of several labels": (
        {"labels": "several", "loss": "sigmoid_mean", "sampling": "balanced"},
        ['labels = "several"', 'sampling = "balanced"', "leave it out"],
    ),
    "balanced twice": (
        {"class_weights": "balanced", "sampling": "balanced"},
        ['class_weights = "balanced"', 'sampling = "balanced"', "twice"],
    ),
    "a class that weighs nothing": (
        {"class_weights": (1.0, 0.0)},
        ["class_weights = [1.0, 0.0]", "greater than 0"],
    ),
    "an odd batch to mix": (
        {"batch_size": 7, "mix": Mix(mixup=0.8)},
        ["batch_size = 7", 'mix.style = "timm"'],
    ),
    "a share of no teacher": (
        {"distill_weight": 0.3},
        ["distill_weight = 0.3", 'distill = "none"', '"soft" or "hard"'],
    ),
    "the temperature of a choice": (
        {"distill": "hard", "distill_temperature": 3.0},
        ["distill_temperature = 3.0", 'distill = "hard"', '"soft"'],
    ),
    "the warm-up of no average": ({"ema_warmup": True}, ["ema_warmup = true", "ema = null"]),
    "a kernel that never computes in float64": (
        {"dtype": "float64", "kernel": "xla"},
        ['kernel = "xla"', 'dtype = "float64"'],
    ),
}


NESTED = {
    "a range the wrong way round": (
        Augment,
        {"crop": "torchvision", "crop_area": (0.9, 0.1)},
        ["crop_area = (0.9, 0.1)"],
    ),
    "a crop larger than the image": (
        Augment,
        {"crop": "torchvision", "crop_area": (0.9, 1.5)},
        ["crop_area ends at 1.5"],
    ),
    "a random crop of nothing": (Augment, {"crop": "random"}, ['crop = "random"', "crop_resize = null"]),
    "a size that nothing is cropped from": (
        Augment,
        {"crop_resize": 448},
        ['crop = "none"', "crop_resize = 448"],
    ),
    "an area of no crop": (
        Augment,
        {"crop_area": (0.05, 1.0)},
        ["augment.crop_area", 'augment.crop = "none"'],
    ),
    "a filter of TensorFlow's": (
        Augment,
        {"crop": "tensorflow", "crop_filter": "bilinear"},
        ['augment.crop_filter = "bilinear"', 'augment.crop = "tensorflow"'],
    ),
    "layers of no policy": (
        Augment,
        {"policy_layers": 3},
        ["augment.policy_layers = 3", 'augment.policy = "none"'],
    ),
    "a deviation of Big Vision's": (
        Augment,
        {"policy": "big_vision", "policy_deviation": 0.0},
        ["augment.policy_deviation = 0.0", 'augment.policy = "big_vision"'],
    ),
    "a way of mixing nothing": (Mix, {"mode": "elem"}, ['mix.mode = "elem"', "mix.mixup = 0.0"]),
    "cutmix of Big Vision's": (
        Mix,
        {"mixup": 0.2, "cutmix": 1.0, "style": "big_vision"},
        ["mix.cutmix = 1.0", '"big_vision"'],
    ),
    "a choice of one": (
        Mix,
        {"mixup": 0.2, "cutmix_share": 0.3},
        ["mix.cutmix_share = 0.3", "mix.cutmix = 0.0"],
    ),
}


@pytest.mark.parametrize("case", NESTED)
def test_a_contradiction_within_changes_of_images_names_both(case):
    schema, changes, words = NESTED[case]
    with pytest.raises(ConfigError) as caught:
        schema(**changes)
    one_line(caught.value, *words)


@pytest.mark.parametrize("case", RECIPE_CONTRADICTIONS)
def test_a_contradiction_of_a_recipe_names_both_fields_and_values(case):
    changes, words = RECIPE_CONTRADICTIONS[case]
    with pytest.raises(ConfigError) as caught:
        Recipe(**changes)
    one_line(caught.value, *words)


def test_every_field_that_needs_another_is_refused_without_it():
    tested = {name for changes, _ in RECIPE_CONTRADICTIONS.values() for name in changes}
    assert {field for field, _, _ in GOES_WITH} <= tested


@pytest.mark.parametrize(
    ("schema", "fields", "words"),
    [
        (Recipe, {"ema": 1.0}, ["Recipe.ema = 1.0", "less than 1"]),
        (Recipe, {"optimizer": "lion"}, ["Recipe.optimizer = 'lion'", "'adamw'"]),
        (Recipe, {"clip_norm": 0.0}, ["Recipe.clip_norm = 0.0", "greater than 0"]),
        (Recipe, {"batchsize": 8}, ["Recipe has no field 'batchsize'", "did you mean 'batch_size'?"]),
        (Recipe, {"learning_rate": float("inf")}, ["Recipe.learning_rate = inf", "finite"]),
        (Preprocess, {"mean": (0.5,)}, ["mean has 1 channels", "std has 3"]),
        (Preprocess, {"std": (0.5, 0.0, 0.5)}, ["std = (0.5, 0.0, 0.5)", "greater than 0"]),
        (Preprocess, {"mean": (0.5, float("nan"), 0.5)}, ["Preprocess.mean", "nan", "finite"]),
        (
            Preprocess,
            {"max_patches": 9, "crop_mode": "squash"},
            ["max_patches = 9", "crop_mode = squash"],
        ),
        (
            Rope,
            {"kind": "mixed", "reference_grid": (3, 2)},
            ["reference_grid = (3, 2)", 'kind = "mixed"'],
        ),
        (Rope, {"kind": "mixed", "offset": 0.5}, ["offset = 0.5", 'kind = "mixed"']),
        (Rope, {"kind": "mixed", "pairs": "half"}, ['pairs = "half"', 'kind = "mixed"']),
    ],
)
def test_the_other_schemas_say_it_as_clearly(schema, fields, words):
    with pytest.raises(ConfigError) as caught:
        schema(**fields)
    one_line(caught.value, *words)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"num_head": 5}', ["no field 'num_head'", "did you mean 'num_heads'?"]),
        (b'{"num_heads": "5"}', ["ViTConfig.num_heads = '5'"]),
        (b'{"hidden_size": 30, "num_heads": 7}', ["num_heads = 7", "hidden_size = 30"]),
        (b'{"num_heads": 5\n,}', ["not valid JSON at line 2"]),
        (b"[1, 2]", ["expected a JSON object, found list"]),
        (b"", ["not valid JSON at line 1"]),
        (b'{"norm_eps": Infinity}', ["norm_eps", "inf"]),
        (pickle.dumps({"num_heads": 5}), ["not valid JSON"]),
    ],
    ids=["unknown", "mistyped", "contradiction", "comma", "list", "empty", "infinity", "pickle"],
)
def test_a_config_file_is_named_with_what_is_wrong_in_it(tmp_path, content, words):
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        ViTConfig.load(path)
    one_line(caught.value, str(path), *words)


def test_a_mark_of_utf8_is_no_part_of_a_config_file(tmp_path):
    (tmp_path / "r.json").write_text('\ufeff{"seed": 3}', encoding="utf-8")
    (tmp_path / "r.toml").write_text("\ufeffseed = 3", encoding="utf-8")
    assert Recipe.load(tmp_path / "r.json").seed == Recipe.load(tmp_path / "r.toml").seed == 3


def test_no_internal_name_is_in_a_message():
    with pytest.raises(ConfigError, match=r"Recipe.class_weights = .*nan") as raised:
        Recipe(class_weights=(float("nan"), 1.0))
    assert "literal" not in str(raised.value)
    assert "tuple[" not in str(raised.value)


def test_a_missing_config_file_is_named(tmp_path):
    with pytest.raises(MissingFileError) as caught:
        ViTConfig.load(tmp_path / "nowhere.json")
    said = "give the path of a JSON or TOML config"
    one_line(caught.value, f"{tmp_path}/nowhere.json: no such file", said)
    assert isinstance(caught.value, FileNotFoundError)
    (tmp_path / "somewhere.toml").touch()
    for name, said in (("somewhere.tml", f": no such file; did you mean {tmp_path}/somewhere.toml?"),
                       ("", ": is a folder; give the path of")):  # fmt: skip
        with pytest.raises(MissingFileError) as caught:
            ViTConfig.load(tmp_path / name)
        one_line(caught.value, said)


def test_of_another_program_s_file_the_fields_are_listed_once():
    """And what is missing is not shown as the whole file that lacks it."""
    with pytest.raises(ConfigError) as caught:
        FleetManifest.from_json('{"architectures": ["ViT"], "torch_dtype": "float32"}', where="it")
    assert str(caught.value) == (
        "it: FleetManifest.folder is not stated; FleetManifest.checkpoints is not stated;"
        " FleetManifest has no field 'architectures'; FleetManifest has no field 'torch_dtype';"
        " the fields are version, folder, checkpoints"
    )


def test_a_path_is_no_preset(tmp_path):
    with pytest.raises(ConfigError) as caught:
        preset(str(tmp_path))
    one_line(caught.value, f"{tmp_path} is a path, which parity.load reads")


def test_an_unknown_preset_gets_a_suggestion():
    with pytest.raises(ConfigError) as caught:
        preset("vit_base_patch16")
    one_line(caught.value, "'vit_base_patch16'", "did you mean 'vit_base_patch16_224'?")
    with pytest.raises(ConfigError) as caught:
        preset("resnet")
    one_line(caught.value, "'resnet'", *OWN)
