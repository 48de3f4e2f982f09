"""The objective of a checkpoint's own classifier of texts."""

import numpy as np
import pytest
import safetensors.torch
import tiny_models
import torch
import transformers as hf
from tolerances import float32_error
from transformers import AutoTokenizer

from helpers.data.labelled import read_labelled
from helpers.data.records import roles
from helpers.data.visible import Visible, visible_mask
from helpers.errors import CorpusError, ModelError
from helpers.model.classifier import classifier_labels, labelled_records, with_classifier
from helpers.model.encoder import load_encoder
from helpers.model.gradients import KEY_TYPES, gradient_importance

LABELLED = "sentence\tlabel\nThe cat sat on it .\t1\nA dog , a bird\tPOSITIVE\nrain\tnegative\n"
CLASSIFIERS = ("bert", "roberta", "distilbert", "albert", "electra", "mpnet", "deberta_v2",
               "modernbert")  # fmt: skip


def save_classifier(folder, family="bert", **settings):
    """Save a tiny classifier of texts with labels called "Negative" and "Positive"."""
    torch.manual_seed(0)
    model, tokenizer = getattr(tiny_models, family)()
    config = model.config
    config.id2label = {0: "Negative", 1: "Positive"}
    config.update(settings)
    torch.manual_seed(1)
    classifier = hf.AutoModelForSequenceClassification.from_config(config)
    return tiny_models.save(folder, tiny_models.spread(classifier), tokenizer)


def read_records(encoder, tmp_path, text=LABELLED, max_tokens=60):
    path = tmp_path / "dev.tsv"
    path.write_text(text)
    return labelled_records(encoder, path, read_labelled(path), max_tokens=max_tokens)


@pytest.mark.parametrize("family", CLASSIFIERS)
def test_importance_by_labels_has_the_gradients_of_plain_autograd(family, tmp_path):
    folder = save_classifier(tmp_path / family, family)
    encoder = load_encoder(str(folder), device="cpu")
    assert encoder.objective == "contrastive"
    assert classifier_labels(encoder) == ["Negative", "Positive"]
    classifier = with_classifier(encoder)
    assert classifier.objective == "classification"
    assert classifier.identity == encoder.identity
    records = read_records(encoder, tmp_path)
    assert [record["label"] for record in records] == [1, 1, 0]
    importance = gradient_importance(classifier, records, seed=0)
    model = hf.AutoModelForSequenceClassification.from_pretrained(
        folder, attn_implementation="eager"
    ).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    texts = ["The cat sat on it .", "A dog , a bird", "rain"]
    for example, text in enumerate(texts):
        batch = tokenizer(text, return_tensors="pt")
        labels = torch.tensor([records[example]["label"]])
        output = model(**batch, labels=labels, output_attentions=True)
        assert importance["losses"][example] == pytest.approx(output.loss.item(), rel=1e-5)
        gradients = torch.stack(torch.autograd.grad(output.loss, output.attentions))[:, 0].abs()
        tokens = tokenizer.convert_ids_to_tokens(batch["input_ids"][0])
        layers = [Visible(**layer) for layer in encoder.visible]
        visible_keys = np.stack([visible_mask(layer, len(tokens)) for layer in layers])
        for name, mask in roles(tokens, encoder.special_tokens).masks().items():
            is_seen = torch.tensor(visible_keys & mask)[:, None].expand_as(gradients)
            n_pairs = is_seen.sum(dim=(1, 2, 3))
            expected = (gradients * is_seen).sum(dim=(1, 2, 3)) / n_pairs
            values = importance["gradients"][example, :, KEY_TYPES.index(name)]
            error = float32_error(gradients)
            np.testing.assert_allclose(values, expected, rtol=1e-3, atol=error)


def test_the_classifier_of_a_control_is_reinitialised(tmp_path):
    folder = save_classifier(tmp_path / "model")
    trained = with_classifier(load_encoder(str(folder), device="cpu")).model
    temperatures = [[2.0] * 4] * 3
    control = load_encoder(str(folder), device="cpu", random_init=1, temperatures=temperatures)
    model = with_classifier(control).model
    inputs = {"input_ids": torch.tensor([[2, 5, 6, 3]]), "output_attentions": True}
    maps = torch.stack(model(**inputs).attentions)
    assert torch.equal(maps, torch.stack(control.model(**inputs).attentions))
    assert not torch.equal(model.classifier.weight, trained.classifier.weight)
    again = with_classifier(control).model
    assert torch.equal(model.classifier.weight, again.classifier.weight)


@pytest.mark.parametrize(
    "settings",
    [
        {"problem_type": "multi_label_classification"},
        {"problem_type": "regression"},
        {"id2label": {0: "score"}},
    ],
)
def test_a_classifier_without_one_label_per_text_has_no_labels(settings, tmp_path):
    encoder = load_encoder(str(save_classifier(tmp_path / "model", **settings)), device="cpu")
    assert classifier_labels(encoder) == []


def test_a_classifier_without_its_weights_is_refused_in_one_line(tmp_path):
    folder = save_classifier(tmp_path / "model")
    weights = safetensors.torch.load_file(folder / "model.safetensors")
    del weights["classifier.weight"]
    safetensors.torch.save_file(weights, folder / "model.safetensors", {"format": "pt"})
    encoder = load_encoder(str(folder), device="cpu")
    with pytest.raises(ModelError, match=r"no weights for classifier\.weight\. .*--task out"):
        with_classifier(encoder)


def test_labelled_records_cut_a_text_and_both_texts_of_a_pair(tmp_path):
    encoder = load_encoder(str(save_classifier(tmp_path / "model")), device="cpu")
    text = "a b c d e f g h i\tb c\t0\na\tb c d e f g h i\t1\n"
    for record in read_records(encoder, tmp_path, text, max_tokens=9):
        assert len(record["inputs"]["input_ids"]) == 9
        assert sorted(set(record["inputs"]["token_type_ids"])) == [0, 1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("good\t1\nbad\t2\n", r"dev\.tsv:2: the label '2' is none of the model's: Negative, Pos"),
        ("good\tfine\n", r"dev\.tsv:1: the label 'fine'"),
        ("a\tb\tc\td\te\n", r"dev\.tsv:1: 5 columns"),
        ("sentence\tscore\nrain\t1\n", r"dev\.tsv:1: the header names no label"),
    ],
)
def test_labelled_records_refuse_other_labels_and_columns(text, message, tmp_path):
    encoder = load_encoder(str(save_classifier(tmp_path / "model")), device="cpu")
    with pytest.raises(CorpusError, match=message) as caught:
        read_records(encoder, tmp_path, text)
    assert "\n" not in str(caught.value)
