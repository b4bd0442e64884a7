"""What is wrong with the site is found: a link that leads nowhere, an image that is not there."""

import re
from pathlib import Path

import look_at_site
import pytest

pytestmark = pytest.mark.quick

DOCS = Path(__file__).parents[2] / "docs"
SOUGHT = """android attention browser clip coreml deploy deployment detection edge embedding export
features finetuning flax gpu huggingface inference install int8 ios keras lightning litert lora mlflow
mobile onnx onnxruntime openvino pretrained quantization quantized segmentation serving tensorflow
tensorrt tflite torchscript tpu triton video wandb"""
"""What newcomers look for: words of the site's search, which parts them at spaces and hyphens."""
PHRASES = (
    "attention maps", "batch inference", "class imbalance", "class weights", "coding agent", "colab",
    "confusion matrix", "custom dataset", "data augmentation", "early stopping", "exact resume",
    "fastapi", "feature extraction", "gradient accumulation", "gradient checkpointing", "http server",
    "image classification", "knowledge distillation", "label smoothing", "learning rate schedule",
    "linear probe", "mixed precision", "model card", "multi-label", "object detection",
    "position embeddings", "rest api", "semantic segmentation", "test-time", "transfer learning",
    "weight decay",
)  # fmt: skip
"""Phrases of theirs."""
PAGE = '<main role="main"><h2 id="two"></h2><a href="{link}">x</a><img src="{image}"></main>'


@pytest.mark.parametrize(
    ("link", "image", "said"),
    [
        ("b.html#two", "a.png", []),
        ("https://example.org/none", "a.png", []),
        ("b.html#three", "a.png", ["leads nowhere: b.html#three"]),
        ("c.html", "a.png", ["leads nowhere: c.html"]),
        ("b.html", "b.png", ["leads nowhere: b.png"]),
    ],
)
def test_links_and_images_are_followed(tmp_path, link, image, said):
    (tmp_path / "index.html").write_text(PAGE.format(link=link, image=image))
    (tmp_path / "b.html").write_text(PAGE.format(link="index.html", image="a.png"))
    (tmp_path / "a.png").write_bytes(b"")
    assert [each.partition(": ")[2] for each in look_at_site.dead(tmp_path)] == said


def test_words_that_newcomers_look_for_are_on_some_page():
    pages = " ".join(page.read_text(encoding="utf-8").lower() for page in DOCS.glob("*.md"))
    words = {re.sub(r"^\W+|\W+$", "", word) for word in re.split(r"[\s-]+", pages)}
    assert [word for word in SOUGHT.split() if word not in words] == []
    together = re.sub(r"\s+", " ", pages)
    assert [phrase for phrase in PHRASES if phrase not in together] == []
