"""engine.loading.budget: what a model takes, and what fits."""

from dataclasses import replace

import pytest

from engine.devices.session import DeviceError
from engine.loading.budget import ENOUGH_ROWS, HostLoad, HostMemory, fit, total_bytes
from engine.loading.driven import DrivenLoad
from engine.queueing.express import EXPRESS_ROWS, EXPRESS_TOKENS, FEWEST_BESIDE
from models.config import ModelConfig
from models.package.declared.graphs import GraphFile, Scoring
from models.package.derived import graphs_spec

CONFIG = ModelConfig(
    width=256,
    encoder_layers=6,
    decoder_layers=2,
    encoder_heads=8,
    decoder_heads=8,
    encoder_ffn=1536,
    decoder_ffn=1536,
    source_vocab_size=32_000,
    target_vocab_size=32_000,
    max_positions=512,
    pad_id=0,
    end_id=1,
    decoder_start_id=0,
)
MB = 1_000_000
LOAD = HostLoad(graphs_spec(CONFIG, "fp32"), False, 2, 64, 500, 512)


def memory(limit: int, least_rows: int = 1) -> HostMemory:
    return HostMemory(limit, resident_bytes=250 * MB, besides_bytes=100 * MB, least_rows=least_rows)


TOTAL = total_bytes([LOAD], memory(0))


def test_the_parts() -> None:
    token_bytes = 2 * 2 * 256 * 4  # keys and values of two layers
    block = 64 * 512 * token_bytes
    assert LOAD.growth_bytes == block
    last = 64 * token_bytes
    express = EXPRESS_ROWS * ((EXPRESS_TOKENS + 512) * token_bytes + token_bytes)
    assert LOAD.cache_bytes == 2 * (2 * block + last) + express
    few = replace(LOAD, rows=FEWEST_BESIDE - 1)
    assert few.express_rows == 0 and few.cache_bytes == 2 * few.rows * (2 * 512 + 1) * token_bytes
    assert sum([LOAD.cache_bytes, LOAD.growth_bytes, LOAD.work_bytes, 350 * MB]) == TOTAL
    small, large = (
        GraphFile(file=name, weight_bytes=size) for name, size in (("a.onnx", 10 * MB), ("b.onnx", 30 * MB))
    )
    scoring = replace(LOAD, graphs=LOAD.graphs.model_copy(update={"scoring": Scoring(target=small, log_probs=large)}))
    rows = 2 * 2 * 64 * 32_000 * 4  # of two workers: logits and their softmax of 64 tokens
    assert 80 * MB + rows < scoring.late_bytes < 80 * MB + 5 * rows
    assert scoring.needed_bytes == LOAD.needed_bytes + scoring.late_bytes and LOAD.late_bytes == 0
    recurrent = replace(LOAD, graphs=graphs_spec(CONFIG.model_copy(update={"decoder_cell": "ssru"}), "fp32"))
    assert recurrent.cache_bytes < LOAD.cache_bytes


def test_more_of_anything_takes_more() -> None:
    for more in (
        {"rows": 65},
        {"workers": 3},
        {"source_tokens": 513},
        {"target_tokens": 513},
    ):
        assert replace(LOAD, **more).needed_bytes > LOAD.needed_bytes  # type: ignore[arg-type]


def test_what_callers_may_take_is_a_part() -> None:
    there = replace(memory(TOTAL), callers_bytes=30 * MB)
    assert total_bytes([LOAD], there) == TOTAL + 30 * MB
    with pytest.raises(DeviceError, match=r"besides 100, callers 30\); "):
        fit([LOAD], there)


def test_what_fits_stays_as_it_is() -> None:
    assert fit([LOAD], memory(TOTAL)) == [LOAD]


def test_rows_that_nobody_asked_for_are_as_many_as_fit() -> None:
    there = memory(TOTAL - 1, least_rows=16)
    found = fit([LOAD], there, fewer_rows=True)
    assert found == [replace(LOAD, rows=63)] and total_bytes(found, there) <= there.limit_bytes


def test_workers_that_nobody_asked_for_are_fewer_before_their_rows_are_too_few() -> None:
    one, few = replace(LOAD, workers=1), replace(LOAD, rows=ENOUGH_ROWS)
    for rows_are_enough in (True, False):
        there = memory(total_bytes([few], memory(0)) - (not rows_are_enough), least_rows=2)
        assert fit([LOAD], there, fewer_rows=True) == [few if rows_are_enough else replace(LOAD, rows=ENOUGH_ROWS - 1)]
        [found] = fit([LOAD], there, fewer_rows=True, fewer_workers=True)
        assert (found.workers, found.rows > ENOUGH_ROWS) == ((2, False) if rows_are_enough else (1, True))
    assert fit([LOAD], memory(total_bytes([one], memory(0))), fewer_workers=True) == [one]
    tight = memory(total_bytes([replace(one, rows=2)], memory(0)), least_rows=2)
    assert fit([LOAD], tight, fewer_rows=True, fewer_workers=True) == [replace(one, rows=2)]
    for asked in ({}, {"fewer_rows": True}, {"fewer_workers": True}):
        with pytest.raises(DeviceError, match=r"^2 workers of 64 rows of .* \(--memory-mb\): "):
            fit([LOAD], tight, **asked)


def test_several_models_get_as_many_rows_each_as_fit_together() -> None:
    small = replace(LOAD, workers=1, rows=48, source_tokens=128)
    there = memory(TOTAL, least_rows=16)
    found = fit([LOAD, small], there, fewer_rows=True)
    assert found[0].rows == found[1].rows < 48
    more = [replace(load, rows=load.rows + 1) for load in found]
    assert total_bytes(found, there) <= TOTAL < total_bytes(more, there)
    with pytest.raises(DeviceError, match=r"^2 models, the largest with 2 workers of 64 rows of 500 source"):
        fit([LOAD, small], there)
    large = memory(2 * TOTAL)
    assert fit([LOAD, small], large) == [LOAD, small]


def test_what_does_not_fit_is_told_with_what_would() -> None:
    with pytest.raises(DeviceError) as refused:
        fit([LOAD], memory(700 * MB))
    told = str(refused.value)
    assert told.startswith("2 workers of 64 rows of 500 source and 512 target tokens may take ")
    assert "(loaded 250, cache " in told and "; 700 MB may be used (--memory-mb): " in told
    fits = replace(LOAD, rows=int(told.split("--memory-mb): ")[1].split()[0]))
    assert total_bytes([fits], memory(0)) <= 700 * MB
    assert total_bytes([replace(fits, rows=fits.rows + 1)], memory(0)) > 700 * MB


def test_what_callers_may_take_is_told_with_the_settings_that_it_comes_of() -> None:
    with pytest.raises(
        DeviceError,
        match=r": not even one row fits: .*, --max-incoming and --max-message-bytes, or pass --no-http \(call",
    ):
        fit([LOAD], replace(memory(TOTAL), callers_bytes=TOTAL))


def test_fewer_workers_are_said_to_fit() -> None:
    with pytest.raises(DeviceError, match=r" \d+ workers fit \(--workers\)$"):
        fit([replace(LOAD, workers=1024)], memory(2 * TOTAL))


def test_fewer_rows_than_are_of_use_are_refused() -> None:
    with pytest.raises(DeviceError, match="rows of these lengths fit"):
        fit([LOAD], memory(600 * MB, least_rows=40), fewer_rows=True)


def test_where_nothing_fits_and_nobody_calls_no_setting_of_callers_is_named() -> None:
    with pytest.raises(
        DeviceError, match=r"row fits: give it more, such as by ulimit -v or the limit of its container$"
    ):
        fit([LOAD], replace(memory(300 * MB), served=False), fewer_rows=True)


def test_where_nothing_fits_it_says_so() -> None:
    with pytest.raises(
        DeviceError, match=r"not even one row fits: .* --cache-mb and --max-waiting .* --max-connections"
    ):
        fit([LOAD], memory(300 * MB), fewer_rows=True)


def test_what_one_thread_drives_counts_by_where_it_runs() -> None:
    spec = graphs_spec(CONFIG, "fp16")
    host = DrivenLoad(spec, False, 1, 64, 500, 512)
    device = replace(host, on_host=False)
    token_bytes = 2 * 2 * 256 * 2  # keys and values of two layers, 16 bits each
    assert 64 * (500 + 512) * token_bytes <= host.cache_bytes < 1.1 * 64 * (500 + 512) * token_bytes
    assert device.cache_bytes == host.growth_bytes == device.growth_bytes == 0
    logits = 64 * 32_000 * 4
    assert device.work_bytes > 3 * logits and host.work_bytes > 2 * 2 * logits
    for load in (host, device):
        scoring = Scoring(
            target=GraphFile(file="a.onnx", weight_bytes=MB), log_probs=GraphFile(file="b.onnx", weight_bytes=MB)
        )
        scored = replace(load, graphs=spec.model_copy(update={"scoring": scoring}))
        assert scored.late_bytes >= 2 * MB and load.late_bytes == 0
        for more in ({"rows": 65}, {"source_tokens": 513}, {"target_tokens": 513}) if load.on_host else ({"rows": 65},):
            assert replace(load, **more).needed_bytes > load.needed_bytes  # type: ignore[arg-type]
    there = replace(memory(total_bytes([device], memory(0))), callers_bytes=30 * MB)
    with pytest.raises(DeviceError, match="callers 30"):
        fit([device], there)
    assert fit([device], replace(there, limit_bytes=there.limit_bytes + 30 * MB)) == [device]
