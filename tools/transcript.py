"""Run the commands of a page and put what they print into it: python tools/transcript.py docs/porting.md

A page has blocks of ``console``; every line in them that begins with ``$ `` is run, in one folder that
begins with the example checkpoint, and what it prints follows it. The suite runs the page again and
compares (tests/repository/test_pages.py); digests and durations are masked.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent
BLOCK = re.compile(r"(?<=```console\n).*?(?=```)", re.DOTALL)
SCRIPT = re.compile(r"<!-- (\w+\.py) -->\n```python\n(.*?)```", re.DOTALL)
AS_READERS = REPOSITORY / "tools" / "as_readers"


def make_example(folder: Path, page: str) -> None:
    """Files that the commands of a page work on."""
    if page == "verifying.md":
        for name in ("port.py", "steps.py"):
            shutil.copy(REPOSITORY / "docs" / name, folder)
    elif page == "porting_with_an_agent.md":
        shutil.copy(REPOSITORY / "docs" / "agent.py", folder)
    elif page in ("porting.md", "matching.md"):
        make_pets(folder)
    elif page == "smaller_types.md":
        make_large(folder)
    elif page in ("tutorial.md", "loaded.md"):
        for name, script in SCRIPT.findall((REPOSITORY / "docs" / page).read_text(encoding="utf-8")):
            (folder / name).write_text(script, encoding="utf-8")


def make_pets(folder: Path) -> None:
    """A small fine-tuned classifier as transformers saves it: ``pets-vit``."""
    import torch

    from parity.porting.reading.libraries.peers import import_timm

    import_timm()  # declares the operators without which torchvision does not load on some machines
    from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessor

    torch.manual_seed(0)
    config = ViTConfig(
        image_size=48,
        patch_size=16,
        hidden_size=48,
        num_hidden_layers=3,
        num_attention_heads=3,
        intermediate_size=96,
        layer_norm_eps=1e-6,
        id2label={0: "cat", 1: "dog", 2: "owl"},
        label2id={"cat": 0, "dog": 1, "owl": 2},
    )
    model = ViTForImageClassification(config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    model.save_pretrained(folder / "pets-vit")
    ViTImageProcessor(size={"height": 48, "width": 48}).save_pretrained(folder / "pets-vit")


def make_large(folder: Path) -> None:
    """A small model two channels of which are beyond float16: ``large.safetensors``."""
    import numpy as np

    from parity.measure.redraw import redraw
    from vit_config import Preprocess, preset, write_weights
    from vit_config.parameters import parameters

    cfg = preset("vit_tiny_patch16_224").replace(depth=2, image_size=(64, 64), num_classes=5)
    arrays = {
        name: redraw(name, each.kind, each.shape, seed=0).astype(np.float32)
        for name, each in parameters(cfg).items()
    }
    arrays["blocks.0.mlp.fc2.weight"][[7, 101]] *= 2e5
    write_weights(folder / "large.safetensors", cfg, arrays, Preprocess())


def rerun(text: str, folder: Path) -> str:
    """The page with what its commands print now."""
    return BLOCK.sub(lambda block: _rerun_block(block[0], folder), text)


def masked(text: str) -> str:
    """Digests, durations and rounding errors, which differ, as dots; what pads or wraps as a space."""
    text = re.sub(r"\b[0-9a-f]{16,64}\b", "...", text)
    text = re.sub(r"\b\d+(\.\d+)? ?(s|ms|min)\b", "...", text)
    text = re.sub(r"\b[\d.,]+ (s a step|images/s)( +waits for data \d+%)?", "...", text)
    text = re.sub(r"\b\d:\d\d:\d\d in all|left \d:\d\d:\d\d|peaked at [\d,]+ MiB", "...", text)
    # a training run's loss and accuracy on the way, and its loss at the end to all digits
    text = re.sub(r"\bloss 0\.\d{4} +accuracy [01]\.\d{3}|\b0\.\d{6}\b", "...", text)
    text = re.sub(r"\b\d(\.\d)?e-1[0-9]\b|0\.0e\+00", "...", text)  # what rounding leaves
    text = re.sub(r"(?<=difference among them is )\s*\S+", "...", text)  # Adam's steps of noise
    text = re.sub(r"│ +\d+/\d+ │ +0\.\d{4} │", "│ ... │", text)  # of a training run, in the end
    text = re.sub(r"[\d.]+% of the time", "...", text)
    text = re.sub(r"\b([\d,]+),\d{3} bytes", r"\1,... bytes", text)  # with measured numbers in them
    # float32 is rounded by each processor in its own way
    text = re.sub(r"(│ (?:float\d\d|bfloat16) +│ \w+ +│ +\d+ │)[^\n]*(│ ok │)", r"\1 ... \2", text)
    # of tensors that agree, which one is the worst is a matter of rounding
    text = re.sub(r"(│ +\d+ │)[^│\n]*│[^│\n]*(│[^│\n]*│ ok )", r"\1 ... │ ... \2", text)
    # and so it is of moments, where gradients clipped to another norm part by one factor
    text = re.sub(r"(│ moments +│ +\d+ │)[^│\n]*│", r"\1 ... │", text)
    return re.sub(r"\s+|─+|━+", " ", text)


def _rerun_block(block: str, folder: Path) -> str:
    printed = []
    for command in re.findall(r"^\$ (.*)$", block, flags=re.MULTILINE):
        output = _run(command, folder)
        printed.append(f"$ {command}\n{output}\n" if output else f"$ {command}\n")
    return "".join(printed).rstrip("\n") + "\n"


def _run(command: str, folder: Path) -> str:
    tools = Path(sys.executable).parent
    environment = {
        **{name: value for name, value in os.environ.items() if name != "COLUMNS"},
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(map(str, (REPOSITORY, AS_READERS))),
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "",  # as many devices as a reader has, not the suite's eight
    }
    done = subprocess.run(
        command.replace("parity ", f"{sys.executable} -m parity ", 1),
        shell=True,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    lines = [line.rstrip().replace(f"{folder}/", "") for line in done.stdout.splitlines()]
    status = [f"(exit status {done.returncode})"] if done.returncode else []
    return "".join(f"{line}\n" for line in [*lines, *status])


def main() -> None:
    page = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        make_example(Path(folder), page.name)
        page.write_text(rerun(page.read_text(encoding="utf-8"), Path(folder)), encoding="utf-8")


if __name__ == "__main__":
    main()
