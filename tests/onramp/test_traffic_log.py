from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from planner.errors import ScenarioError
from planner.onramp.traffic_log import (
    parse_columns,
    read_request_log,
)
from planner.physics.prefix_cache import from_points
from tests.demand.shared_traces import trace
from tests.physics.test_prefix_cache import BLOCK_TOKENS, chat_replayed, chat_requests, predicted


def _write(folder: Path, text: str, name: str = "log.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_azure_names_and_dates(tmp_path: Path) -> None:
    rows = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:04.5000000,20,2\n2023-11-16 18:17:03.0,10,1\n"
    log = read_request_log(_write(tmp_path, rows))
    assert log.times_s.tolist() == [1700158623.0, 1700158624.5]  # sorted
    assert log.input_tokens.tolist() == [10, 20]
    assert log.output_tokens.tolist() == [1, 2]
    assert log.has_date
    assert log.prefix_cache_hit_fraction is None


def test_other_names_any_case_gzip_and_a_clock_from_zero(tmp_path: Path) -> None:
    path = tmp_path / "log.csv.gz"
    path.write_bytes(
        gzip.compress(b"Arrived_At, num_prefill_tokens, num_decode_tokens\n0.5,7,3\n1.5,8,4\n")
    )
    log = read_request_log(path)
    assert log.times_s.tolist() == [0.5, 1.5]
    assert log.output_tokens.tolist() == [3, 4]
    assert not log.has_date


@pytest.mark.parametrize(
    ("scale", "unit"), [(1e3, "auto"), (1e6, "auto"), (1e9, "auto"), (1, "s"), (1e3, "ms")]
)
def test_epoch_units_are_told_apart(tmp_path: Path, scale: float, unit: str) -> None:
    rows = "".join(f"{int((1.7e9 + i) * scale)},1,1\n" for i in range(3))
    log = read_request_log(
        _write(tmp_path, "timestamp,input_tokens,output_tokens\n" + rows), time_unit=unit
    )
    np.testing.assert_allclose(np.diff(log.times_s), 1.0)
    assert log.has_date


def test_columns_may_be_named(tmp_path: Path) -> None:
    path = _write(tmp_path, "when,p,r,who\n1,5,6,a\n2,7,8,b\n3,7,8,a\n")
    log = read_request_log(path, parse_columns("timestamp=when, input=p,output=r,client=who"))
    assert log.input_tokens.tolist() == [5, 7, 7]
    assert log.clients is not None
    assert log.clients.tolist() == [0, 1, 0]


def test_block_hashes_are_replayed(tmp_path: Path) -> None:
    rows = [
        {"timestamp": 0, "input_length": 1024, "output_length": 5, "hash_ids": [1, 2]},
        {"timestamp": 1000, "input_length": 1500, "output_length": 5, "hash_ids": [1, 2, 3]},
        {"timestamp": 2000, "input_length": 600, "output_length": 5, "hash_ids": [9, 2]},
    ]
    log = read_request_log(_write(tmp_path, "\n".join(map(json.dumps, rows)), "log.jsonl"))
    assert log.times_s.tolist() == [0.0, 1.0, 2.0]
    assert log.prefix_cache_hit_fraction == pytest.approx(1024 / 3124)


def test_cached_tokens_are_counted_and_sessions_with_their_own_clock_are_noticed(
    tmp_path: Path,
) -> None:
    text = "trace,t,in_tok,out_tok,cached_tok\na,0,100,1,0\na,9,200,1,100\nb,0,100,1,60\n"
    log = read_request_log(_write(tmp_path, text))
    assert log.prefix_cache_hit_fraction == pytest.approx(160 / 400)
    assert not log.one_clock


def test_public_logs_show_the_published_cache_hits() -> None:
    assert read_request_log(
        trace("mooncake_conversation_trace.jsonl")
    ).prefix_cache_hit_fraction == pytest.approx(0.37, abs=0.005)
    agentic = read_request_log(trace("claude_code_agentic_requests.csv.gz"))
    assert agentic.prefix_cache_hit_fraction == pytest.approx(0.96, abs=0.005)
    assert agentic.times_s.size == 49_334
    assert not agentic.one_clock


def test_missing_columns_name_what_the_file_has(tmp_path: Path) -> None:
    path = _write(tmp_path, "timestamp,inptu_tokens,reply\n1,2,3\n")
    with pytest.raises(ScenarioError) as caught:
        read_request_log(path)
    assert len(caught.value.problems) == 2
    assert "inptu_tokens" in str(caught.value)
    assert "--columns output=COLUMN" in str(caught.value)


def test_every_bad_row_is_named_with_its_line(tmp_path: Path) -> None:
    path = _write(
        tmp_path, "timestamp,input_tokens,output_tokens\n1,2,3\n2,-5,3\n3,,3\nx,1,nan\n5,abc,1\n"
    )
    with pytest.raises(ScenarioError) as caught:
        read_request_log(path)
    places = {(problem.line, problem.path) for problem in caught.value.problems}
    assert places == {
        (5, "timestamp"),
        (3, "input_tokens"),
        (4, "input_tokens"),
        (6, "input_tokens"),
        (5, "output_tokens"),
    }


def test_many_bad_rows_are_counted(tmp_path: Path) -> None:
    path = _write(tmp_path, "timestamp,input_tokens,output_tokens\n" + "1,-1,1\n" * 25)
    with pytest.raises(ScenarioError, match="and 15 more such rows"):
        read_request_log(path)


def test_cached_above_input_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="more than the input"):
        read_request_log(
            _write(tmp_path, "timestamp,input_tokens,output_tokens,cached_tokens\n1,10,1,11\n")
        )


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        ("", "log.csv", "cannot be read as a table"),
        ("timestamp,input_tokens,output_tokens\n", "log.csv", "holds no rows"),
        ("not a gzip", "log.csv.gz", "cannot be read"),
        ("{broken", "log.jsonl", "cannot be read"),
    ],
)
def test_unreadable_files_are_refused(tmp_path: Path, text: str, name: str, message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        read_request_log(_write(tmp_path, text, name))


def test_bad_column_choice_names_the_nearest_role() -> None:
    with pytest.raises(ScenarioError, match=r"(?s)is not ROLE=COLUMN .did you mean timestamp"):
        parse_columns("timestmp=a,input")
    assert parse_columns(None) == {}


@pytest.mark.parametrize("cell", ["1e16", "1e308", "-1", "many", "9" * 400])
def test_a_count_that_no_log_can_hold_is_refused(tmp_path: Path, cell: str) -> None:
    path = tmp_path / "log.csv"
    path.write_text(f"timestamp,input_tokens,output_tokens\n1,10,10\n2,{cell},10\n")
    with pytest.raises(ScenarioError, match="must be a number from 0 to"):
        read_request_log(path)


def test_a_slip_of_the_pen_in_a_year_is_no_overflow(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(
        "timestamp,input_tokens,output_tokens\n2026-01-01T00:00:00,10,10\n1200-01-01T00:00:00,10,10\n"
    )
    with pytest.raises(ScenarioError, match="times span 826 years; a log may have 30"):
        read_request_log(path)


JANUARY = 1_767_225_600.0  # 2026-01-01 00:00 UTC


@pytest.mark.parametrize(
    ("name", "times", "seconds"),
    [
        (
            "timestamp",
            ["46023.5", "46023.75"],
            [JANUARY + 43_200.0, JANUARY + 64_800.0],
        ),  # Excel: 46023 is 2026-01-01
        ("timestamp", ["46023", "46023.000011574"], [JANUARY, JANUARY + 1.0]),
        ("timestamp", ["1767225600000", "1767225600250"], [JANUARY, JANUARY + 0.25]),
        ("timestamp_ms", ["0", "3600000"], [0.0, 3600.0]),
        ("arrival_us", ["0", "3600000"], [0.0, 3.6]),
        ("timestamp", ["0", "604800"], [0.0, 604_800.0]),
    ],
)
def test_times_are_read_as_what_they_are(
    tmp_path: Path, name: str, times: list[str], seconds: list[float]
) -> None:
    path = _write(
        tmp_path,
        f"{name},input_tokens,output_tokens\n" + "".join(f"{time},10,10\n" for time in times),
    )
    log = read_request_log(path)
    np.testing.assert_allclose(log.times_s, seconds, atol=0.001)
    assert log.has_date is (seconds[0] > 0)


@pytest.mark.parametrize(
    ("times", "told", "unit", "span_s"),
    [
        (["0", "86400000"], "1,000 days in seconds or 24.0 hours in milliseconds", "ms", 86_400.0),
        (["46023", "46024"], "whole days of a spreadsheet or seconds", "excel", 86_400.0),
        (["46023", "46024"], "whole days of a spreadsheet or seconds", "s", 1.0),
    ],
)
def test_times_that_may_be_two_things_are_asked_about(
    tmp_path: Path, times: list[str], told: str, unit: str, span_s: float
) -> None:
    path = _write(
        tmp_path,
        "timestamp,input_tokens,output_tokens\n" + "".join(f"{time},10,10\n" for time in times),
    )
    with pytest.raises(ScenarioError, match=f"(?s){told}.*--time-unit"):
        read_request_log(path)
    assert np.ptp(read_request_log(path, time_unit=unit).times_s) == pytest.approx(span_s)


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_a_packed_log_that_never_ends_is_refused_at_a_size(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("planner.onramp.traffic_log.MAX_UNPACKED_BYTES", 1_000_000)
    path = tmp_path / f"bomb.{suffix}.gz"
    with gzip.open(path, "wb") as stream:
        stream.write(b"" if suffix == "jsonl" else b"timestamp,input_tokens,output_tokens\n")
        stream.write(b" " * 20_000_000)
    assert path.stat().st_size < 100_000
    with pytest.raises(ScenarioError, match="has more than 1,000,000 bytes once unpacked"):
        read_request_log(path)


def test_block_hashes_show_how_long_ago_tokens_were_used(tmp_path: Path) -> None:
    rows = [
        {"timestamp": 0, "input_length": 1024, "output_length": 1, "hash_ids": [1, 2]},
        {"timestamp": 4_000, "input_length": 600, "output_length": 1, "hash_ids": [1, 3]},
        {"timestamp": 64_000, "input_length": 1200, "output_length": 1, "hash_ids": [1, 2, 9]},
    ]
    log = read_request_log(_write(tmp_path, "\n".join(map(json.dumps, rows)), "log.jsonl"))
    assert log.reuse is not None
    # Block 1 four seconds ago and a minute ago, block 2 only 64 seconds ago, of 2,824 tokens.
    assert log.reuse[3.0] == 0.0
    assert log.reuse[5.0] == pytest.approx(512 / 2824)
    assert log.reuse[60.0] == pytest.approx(1024 / 2824)
    assert log.reuse[100.0] == pytest.approx(1536 / 2824)
    # No gap is longer.
    assert max(log.reuse) == 100.0
    assert log.prefix_cache_hit_fraction == pytest.approx(1536 / 2824)


def test_sessions_show_it_too_and_a_shorter_prompt_begins_anew(tmp_path: Path) -> None:
    text = "session_id,t,in_tok,out_tok\na,0,100,20\nb,1,50,5\na,10,150,20\na,40,90,1\n"
    log = read_request_log(_write(tmp_path, text), time_unit="s")
    assert log.reuse is not None
    assert list(log.reuse) == [1.0, 3.0, 5.0, 7.0, 10.0]
    assert list(log.reuse.values()) == pytest.approx([0.0, 0.0, 0.0, 0.0, 120 / 390])
    # Nobody counted what was cached.
    assert log.prefix_cache_hit_fraction is None
    counted = "session_id,t,in_tok,out_tok,cached\na,0,100,20,0\na,10,150,20,64\n"
    path = _write(tmp_path, counted.replace(",cached\n", ",cached_tokens\n"), "counted.csv")
    log = read_request_log(path, time_unit="s")
    assert log.reuse is not None
    assert log.reuse[10.0] == pytest.approx(64 / 250)


@pytest.mark.slow
def test_the_reuse_of_a_public_log_is_what_an_exact_replay_of_it_finds() -> None:
    path = trace("mooncake_conversation_trace.jsonl")
    log = read_request_log(path)
    assert log.reuse is not None
    curve = from_points(log.reuse)
    requests = list(chat_requests())
    blocks_per_s = sum(len(blocks) for _, blocks in requests) / requests[-1][0]
    for servers, tokens in ((1, 1e6), (1, 10e6), (4, 3e6), (4, 30e6)):
        blocks = tokens / BLOCK_TOKENS
        exact = chat_replayed(requests, blocks, servers, "session")
        by_fit = predicted(curve, blocks_per_s / servers, blocks, "session", servers)
        assert by_fit == pytest.approx(exact, abs=0.01)
