"""The walk over timm's architectures: equal ones pass, and whatever is wrong is named, never guessed."""

import json

import numpy as np
import pytest
import torch

import evidence.timm_sweep.architecture
from evidence.timm_sweep import peer
from evidence.timm_sweep.__main__ import main
from evidence.timm_sweep.architecture import check_architecture
from evidence.timm_sweep.shrink import DEPTH, GRID, shrunk_arguments, shrunk_schema
from parity.porting.dialects import find_dialects
from parity.porting.dialects.table import bind_ours, bind_theirs
from parity.porting.dialects.transfer import read, write
from parity.porting.formats import Stored
from vit_config import PRESETS, ViTConfig

# between them: every block, attention, pool, position kind, norm and MLP that timm has
VARIED = [
    "vit_base_patch16_224",
    "deit_tiny_distilled_patch16_224",
    "vit_so400m_patch14_siglip_gap_384",
    "vit_giant_patch14_reg4_dinov2",
    "aimv2_large_patch14_224",
    "beit3_base_patch16_224",
    "vit_small_patch16_18x2_224",
    "vit_base_patch16_rpn_224",
    "vit_dpwee_patch16_reg1_gap_256",
    "vit_dwee_patch16_reg1_gap_256",
    "vit_base_patch16_xp_224",
    "vit_base_patch16_clip_quickgelu_224",
    "vit_huge_patch16_radio_v3",
    "eva_giant_patch14_224",
    "eva02_base_patch16_clip_224",
    "eva02_large_patch14_448",
    "vit_base_patch16_dinov3",
    "vit_base_patch16_rope_mixed_224",
    "vit_pe_core_base_patch16_224",
    "vit_large_patch16_sapiens2",
    "beitv2_base_patch16_224",
    "naflexvit_base_patch16_par_gap",
    "naflexvit_base_patch16_parfac_gap",
    "naflexvit_base_patch16_siglip",
    "naflexvit_base_patch16_radio_v3",
    "gemma4_vit_167m",
    "gemma4_vit_570m_enc",
]
MODULES = peer.architectures()
QUICK = {
    "vit_base_patch16_224",
    "eva02_base_patch16_clip_224",
    "test_vit3",
    "naflexvit_base_patch16_siglip",
    "gemma4_vit_167m",
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=[] if n in QUICK else [pytest.mark.slow, pytest.mark.exhaustive])
        for n in VARIED
    ],
)
def test_an_architecture_of_timm_is_equal(name):
    result = check_architecture(name, MODULES[name], seed=1)
    assert result.passed, result.problems
    assert result.tensors > 50
    assert set(result.to_timm) == {"JAX", "PyTorch"}


@pytest.mark.parametrize("name", VARIED)
def test_shrinking_leaves_every_switch_alone(name):
    cfg = PRESETS[name]
    small = shrunk_schema(cfg, peer.create_abstract(name, **shrunk_arguments(cfg, MODULES[name])))
    sizes = {
        "image_size", "depth", "hidden_size", "num_heads", "num_kv_heads", "mlp_dim", "num_classes",
        "pos_embed_grid", "pool_num_heads", "pool_mlp_dim",
    }  # fmt: skip
    changed = {field for field in ViTConfig.fields() if getattr(cfg, field) != getattr(small, field)}
    assert changed <= sizes
    assert small.depth == DEPTH >= 3
    assert small.num_heads >= 3
    assert small.grid == tuple(side * (cfg.pool_window or 1) for side in GRID)
    assert len(set(small.kv_heads)) == len(set(cfg.kv_heads))
    assert bool(small.num_classes) == bool(cfg.num_classes)


def wrong(monkeypatch, name, **changes):
    """The verdict on an architecture whose preset is wrong."""
    presets = {name: PRESETS[name].replace(**changes)}
    monkeypatch.setattr(evidence.timm_sweep.architecture, "PRESETS", presets)
    return check_architecture(name, MODULES[name])


@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        ("vit_tiny_patch16_224", {"act": "gelu_tanh"}, "logits differ from timm's"),
        ("vit_tiny_patch16_224", {"norm_eps": 1e-5}, "tokens differ from timm's"),
        ("vit_tiny_patch16_224", {"class_token": False, "pool": "mean"}, "cls_token: absent in the"),
        ("vit_tiny_patch16_224", {"num_heads": 6}, "tokens differ from timm's"),
        ("vit_tiny_patch16_224", {"mlp_dim": 700}, "blocks.0.mlp.fc1.weight: (700, 192) in the"),
        ("beit_base_patch16_224", {"k_bias": True}, "blocks.0.attn.q_bias: absent in the"),
        ("eva02_tiny_patch14_224", {"rope": None}, "tokens differ from timm's"),
        ("gemma4_vit_570m_enc", {"attention_scale": None}, "tokens differ from timm's"),
    ],
)
def test_a_wrong_preset_is_named(monkeypatch, name, changes, said):
    if "num_heads" in changes:  # shrinking would hide it
        monkeypatch.setattr("evidence.timm_sweep.shrink.shrunk_arguments", lambda cfg, module: SMALL)
        monkeypatch.setattr("evidence.timm_sweep.shrink.shrunk_schema", lambda cfg, model: SMALL_SCHEMA)
    result = wrong(monkeypatch, name, **changes)
    assert not result.passed
    assert any(said in problem for problem in result.problems), result.problems


SMALL = {"img_size": (32, 48), "depth": 3, "embed_dim": 24, "num_heads": 3}
SMALL_SCHEMA = ViTConfig(
    image_size=(32, 48), depth=3, hidden_size=24, num_heads=6, mlp_dim=96, num_classes=1000
)


def test_an_unknown_architecture_is_refused_by_name(monkeypatch, capsys):
    known = {name: cfg for name, cfg in PRESETS.items() if name != "test_vit2"}
    monkeypatch.setattr(evidence.timm_sweep.architecture, "PRESETS", known)
    assert main(["test_vit2", "--processes", "1"]) == 1
    out = capsys.readouterr().out
    assert "test_vit2: timm has it, but no preset describes it" in out
    assert "0 of 1 architectures" in out


def test_a_broken_peer_is_a_verdict_and_not_the_end(monkeypatch):
    def broken(name, **changes):
        raise AssertionError("not this one")

    monkeypatch.setattr(peer, "create_float64", broken)
    result = check_architecture("test_vit2", "vision_transformer")
    assert result.problems == ("AssertionError: not this one",)


@pytest.mark.slow
@pytest.mark.exhaustive  # continuous integration walks a share of all of them
def test_the_command_walks_in_two_processes_and_writes_json(tmp_path, capsys):
    path = tmp_path / "family.json"
    arguments = ["test_vit", "beit_*_224", "--processes", "2", "--json", str(path)]
    assert main(arguments) == 0
    assert "3 of 3 architectures of timm" in capsys.readouterr().out
    data = json.loads(path.read_text())
    assert data["passed"] is True
    assert [each["passed"] for each in data["architectures"]] == [True] * 3
    assert data["architectures"][0]["to_timm"]["JAX"]["logits"] <= 1e-12


def test_full_size_leaves_out_the_larger(capsys):
    arguments = ["test_vit*", "--full-size", "--max-parameters", "4e5"]
    assert main([*arguments, "--processes", "1"]) == 0
    assert "1 of 1 architectures" in (out := capsys.readouterr().out)
    assert "3 larger ones left out" in out


def test_timm_is_itself_again_afterwards():
    peer.create_float64("eva02_tiny_patch14_224", depth=1)
    assert torch.float32 is torch.zeros(1).dtype
    assert torch.zeros(1, dtype=torch.float64).float().dtype == torch.float32


def test_timms_own_rotary_table_is_ours_rounded():
    """timm makes it in float32 whatever the model's type; the walk asks it for float64."""
    from vit_config.numerics.rope import rotation_table

    cfg = PRESETS["vit_base_patch16_dinov3"]
    rope = peer.import_timm().create_model("vit_base_patch16_dinov3", depth=1).rope
    sine = rope.get_embed(shape=list(cfg.grid)).numpy()[:, : cfg.head_dim // 2]
    ours = np.sin(rotation_table(cfg.rope, cfg.grid, cfg.head_dim))
    assert 0 < np.abs(sine - ours).max() < 1e-5


@pytest.mark.parametrize(
    ("name", "spelling"),
    [
        ("beit_base_patch16_224", "timm-beit"),
        ("eva02_base_patch14_224", "timm-eva-split"),
        ("eva_giant_patch14_224", "timm-eva"),
        ("test_vit3", "timm-vit"),
    ],
)
def test_the_dialect_writes_what_it_read(name, spelling):
    (dialect,) = find_dialects(spelling)
    cfg = PRESETS[name]
    model = peer.create_abstract(name, **shrunk_arguments(cfg, MODULES[name]))
    small = shrunk_schema(cfg, model)
    stream = np.random.default_rng(0)
    shapes = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    state = {name: Stored.of(stream.standard_normal(shape)) for name, shape in shapes.items()}
    arrays = read(bind_theirs(dialect.tables[0], shapes)[0], state)
    bound, left = bind_ours(dialect.tables[0], small, arrays)
    back = write(bound, arrays, small)
    assert not left
    assert set(back) == set(state)
    for key, value in state.items():
        np.testing.assert_array_equal(back[key].load(), value.load())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--dtype", "float32"], "no option --dtype"),
        (["--processes", "0"], "--processes 0"),
        (["resnet*"], "timm has no architecture resnet*"),
        (["test_vit", "nonesuch"], "no architecture nonesuch"),
        (["--seed", "-1"], "--seed -1"),
        (["--max-parameters", "5"], "--max-parameters: goes with --full-size only"),
        (["--full-size", "--max-parameters", "1"], "leaves none of 269"),
        (["--json", "nowhere/report.json"], "nowhere: no such folder"),
    ],
)
def test_the_sweep_refuses_in_one_line(arguments, said, capsys):
    assert main([*arguments]) == 2
    err = capsys.readouterr().err
    assert err.startswith("python -m evidence.timm_sweep: ")
    assert said in err
    assert err.count("\n") == 1
