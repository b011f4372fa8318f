"""What jobs are expected to need: above what was measured, and growing with the shape."""

import re
from pathlib import Path

import pytest

from tokensphere import resources, sources


def checkpoint(mb, layers, width, heads, positions=0):
    return sources.Checkpoint(
        {}, None, "", True, mb, layers, width=width, heads=heads, positions=positions
    )


def work(shape, weights="trained", tokens=512, **model):
    return resources.work(checkpoint(*shape), weights, tokens, model)


GPT2_XL = (6230, 48, 1600, 25)
GPT2 = (494, 12, 768, 12)
MIDDLE = (1358, 14, 1280, 20)
SMOLLM2 = (538, 30, 576, 9)


# Peaks of processes that ran; an estimate is above them, and not more than 2.5 times of them.
@pytest.mark.parametrize(
    ("need", "work", "peak"),
    [
        (resources.extraction, work(GPT2), 865),
        (resources.extraction, work(MIDDLE), 1647),
        (resources.attention, work(GPT2), 888),
        (resources.extraction, work(SMOLLM2), 933),
        (resources.attention, work(SMOLLM2), 960),
        # Weights are drawn first.
        (resources.extraction, work(GPT2, "gaussian.0"), 1393),
        (resources.extraction, work(MIDDLE, "gaussian.0"), 3133),
        # Attention measures of GPT-2 xl.
        (resources.of_attention, work(GPT2_XL), 310),
    ],
)
def test_memory_is_above_what_was_measured_and_not_far_above(need, work, peak):
    assert peak < need(work).mb <= 2.5 * peak


@pytest.mark.parametrize(
    "need", [resources.extraction, resources.attention, resources.geometry, resources.of_attention]
)
@pytest.mark.parametrize(
    "larger", [{"layers": 96}, {"heads": 50}, {"width": 6400}, {"tokens": 4096}]
)
def test_a_larger_shape_needs_no_less(need, larger):
    one = work(GPT2_XL)
    two = one._replace(**larger)
    assert need(two).mb >= need(one).mb
    assert need(two).minutes >= need(one).minutes


def test_each_kind_of_job_grows_with_what_fills_its_memory():
    one = work(GPT2_XL)
    heavier = one._replace(weights=2 * one.weights)
    longer = one._replace(tokens=4096)
    more = one._replace(heads=4 * one.heads)
    assert resources.extraction(heavier).mb > 1.4 * resources.extraction(one).mb
    assert resources.weights(heavier).mb > 1.4 * resources.weights(one).mb
    assert resources.geometry(heavier).mb == resources.geometry(one).mb
    assert resources.geometry(longer).mb > 2 * resources.geometry(one).mb
    assert resources.of_attention(more).mb > 1.4 * resources.of_attention(one).mb
    assert resources.attention(more).mb > 1.3 * resources.attention(one).mb


def test_random_weights_need_room_to_be_drawn_in():
    assert resources.extraction(work(GPT2_XL, "gaussian.0")).mb > 2 * 6230
    assert resources.extraction(work(GPT2_XL)).mb < 2 * 6230


def test_a_model_in_16_bits_or_on_the_disk_needs_less_memory_and_more_time():
    whole, half = work(GPT2_XL), work(GPT2_XL, dtype="bfloat16")
    assert resources.extraction(half).mb < 0.6 * resources.extraction(whole).mb
    assert resources.extraction(half).minutes > resources.extraction(whole).minutes
    for size in ("1GB", "1000MB", "1000000KB"):
        spread = work(GPT2_XL, device_map="auto", max_memory={"cpu": size})
        assert spread.kept == pytest.approx(1000)
    assert work(GPT2_XL, max_memory={"cpu": "1GiB"}).kept == pytest.approx(1073.7, abs=0.1)
    assert resources.extraction(spread).mb < 0.4 * resources.extraction(whole).mb
    assert resources.extraction(spread).minutes > resources.extraction(whole).minutes
    # Norms and drawing are of the whole model in float32.
    assert resources.weights(half) == resources.weights(spread) == resources.weights(whole)


def test_a_block_that_is_iterated_takes_time_as_often_and_no_more_memory():
    shape = (47, 12, 768, 12)
    as_trained, longer = work(shape), work(shape, iterations=480)
    assert longer.layers == 480
    assert resources.extraction(longer).minutes > 2 * resources.extraction(as_trained).minutes
    assert resources.extraction(longer).mb == resources.extraction(as_trained).mb


def test_a_model_reads_no_more_tokens_than_it_has_positions():
    assert work((*GPT2, 1024), tokens=4096).tokens == 1024
    assert work((*GPT2, 1024), tokens=512).tokens == 512
    assert work(GPT2, tokens=4096).tokens == 4096


def test_a_shape_that_no_configuration_tells_is_taken_for_a_large_one():
    assert work((500, 0, 0, 0))[1:4] == (resources.LAYERS, resources.WIDTH, resources.HEADS)


def test_more_runs_and_more_pictures_need_more():
    assert resources.tables(1000).mb > resources.tables(1).mb
    assert resources.tables(1000).minutes > resources.tables(1).minutes
    assert resources.pictures(80).mb > resources.pictures(10).mb


def test_every_rule_says_what_it_needs(root):
    for path in sorted((root / "workflow/rules").glob("*.smk")):
        _, *rules = re.split(r"^ *(?:use )?rule\b.*:$", path.read_text(), flags=re.M)
        for rule in rules:
            said = re.findall(r"^ +(mem_mb=mb|runtime=minutes)\(", rule, flags=re.M)
            assert said == ["mem_mb=mb", "runtime=minutes"], f"{path.name}: {rule[:60]}"


def test_what_is_needed_decides_no_number(root):
    """Estimates stand in no code closure: a better one makes nothing again."""
    from tokensphere.harness import closure

    for script in Path(root / "scripts").glob("*.py"):
        assert "resources.py" not in {path.name for path in closure.code(script)}
