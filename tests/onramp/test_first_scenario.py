"""``planner init`` from files: what is written is what the files say, and what is wrong is said with file and line."""

from __future__ import annotations

import datetime
import math
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import linregress

from planner.errors import ScenarioError
from planner.onramp.first_scenario import order_dates, read_quotes
from planner.onramp.traffic_fit import fit_hourly_shape, fit_trend
from planner.scenario.loading import load_scenario
from planner.scenario.workload import Compound
from tests.conftest import Planner, WriteScenario

FLEET = 'accelerator,nodes,bought,cost_usd,book_value_usd\nH200,6,2025-03-01,"$1,800,000",\nH100,2,2023-06-01,,90000\n'
QUOTES = (
    "accelerator,price_usd,lead_weeks,earliest,latest,min_nodes,max_nodes,vendor\n"
    "B200,39500,16,2027-01-15,2027-12-31,1,20,Acme Servers\n"
    "MI325X,17000,10,,,,40,Other: & Co\n"
)


def log_text(seconds: int = 1200) -> str:
    generator = np.random.default_rng(4)
    tokens = np.exp([[6.5], [5.0]] + 0.7 * generator.standard_normal((2, seconds)))
    rows = [
        f"{1.79e9 + second},{tokens[0, second]:.0f},{tokens[1, second]:.0f}"
        for second in range(seconds)
    ]
    return "timestamp,input_tokens,output_tokens\n" + "\n".join(rows) + "\n"


def series_text(hours: int = 52 * 168, per_year: float = 0.8, first: str = "2025-12-01") -> str:
    """Return rates that grow by a factor a year, weekends at half: 10 requests a second on a weekday of the first."""
    start = datetime.datetime.fromisoformat(first)
    lines = ["timestamp,requests_per_s"]
    for hour in range(hours):
        now = start + datetime.timedelta(hours=hour)
        rate = 10 * (1 + per_year) ** (hour / 8766) * (1.0 if now.weekday() < 5 else 0.5)
        lines.append(f"{now:%Y-%m-%d %H:%M:%S},{rate:.6f}")
    return "\n".join(lines) + "\n"


def test_growth_level_and_shape_of_an_exact_series_are_found_again() -> None:
    hours = np.arange(70 * 168)
    week = np.where(hours % 168 < 120, 1.2, 0.5)
    rates = 10.0 * 1.8 ** (hours / 8766.0) * week
    trend = fit_trend(rates)
    assert trend is not None
    assert trend.per_year == pytest.approx(0.8, rel=1e-3)
    # No week departs from the line, and yet a wave might be hidden in less than two years.
    assert 0.005 < trend.trend.growth.sigma < 0.05
    assert rates.mean() / trend.factors.mean() == pytest.approx(
        10.0 * week.mean() * 1.8 ** (hours.size / 8766.0), rel=0.004
    )
    shape = fit_hourly_shape(rates / trend.factors, 0)
    assert shape is not None
    assert shape.noise is not None
    assert shape.noise[0] == pytest.approx(0.0, abs=1e-3)  # with the trend left in it would be 0.23
    assert shape.weekend_fraction == pytest.approx(0.5 / 1.2, rel=1e-3)


def test_growth_has_more_than_the_textbook_error_and_needs_half_a_year() -> None:
    assert fit_trend(np.ones(26 * 168 - 1)) is None
    assert fit_trend(np.where(np.arange(30 * 168) < 168, 0.0, 1.0)) is None
    weeks = np.exp(0.1 * np.random.default_rng(1).standard_normal(40))
    trend = fit_trend(np.repeat(weeks, 168))
    assert trend is not None
    line = linregress(np.arange(40) * 168 / 8766, np.log(weeks))
    # A line through the weeks knows of no season: its error is the least there can be.
    textbook_error = math.exp(line.slope) * line.stderr
    assert abs(trend.per_year - math.expm1(line.slope)) < textbook_error
    assert textbook_error < trend.trend.growth.sigma < 3.0 * textbook_error
    assert trend.season is None
    # Over five years the wave is told from the trend, and the error is the line's.
    long = np.exp(0.1 * np.random.default_rng(1).standard_normal(260))
    seen = fit_trend(np.repeat(long, 168), 1.8e9)
    assert seen is not None
    line = linregress(np.arange(260) * 168 / 8766, np.log(long))
    textbook_error = math.exp(line.slope) * line.stderr
    assert seen.per_year == pytest.approx(math.expm1(line.slope), abs=2.0 * textbook_error)
    assert seen.season is not None
    assert seen.season[0] < 4.0 * seen.season[1]


def test_a_scenario_says_what_its_files_say(
    planner: Planner, write: WriteScenario, tmp_path: Path
) -> None:
    for name, text in (
        ("chat.csv", log_text()),
        ("hourly.csv", series_text()),
        ("owned.csv", FLEET),
        ("quotes.csv", QUOTES),
    ):
        write(text, name)
    told = planner(
        "init", "fleet", "--from", "chat.csv", "--from", "chat=hourly.csv", "--fleet", "owned.csv",
        "--quotes", "quotes.csv",
    )  # fmt: skip
    assert told.code == 0, told.err
    assert "planner size fleet.yaml" in told.out
    scenario = load_scenario(tmp_path / "fleet.yaml")
    assert scenario.start == datetime.date(2026, 12, 1)  # the series ends on 30 November
    chat = scenario.workloads["chat"]
    assert isinstance(chat.growth, Compound)
    assert chat.growth.per_year == pytest.approx(0.8, rel=0.01)
    days = (scenario.start - datetime.date(2025, 12, 1)).days
    assert chat.requests_per_s == pytest.approx(10 * 6 / 7 * 1.8 ** (days / 365.25), rel=0.01)
    h200 = scenario.clusters["h200-2025-03"]
    h100 = scenario.clusters["h100-2023-06"]
    assert h200.owned is not None
    assert h100.owned is not None
    assert (h200.nodes, h200.owned.cost_usd, h100.owned.book_value_usd) == (6, 1.8e6, 9e4)
    quote = scenario.clusters["b200-quote"]
    assert quote.order is not None
    assert (quote.accelerator_price_usd, quote.order.lead_weeks, quote.nodes) == (39500, 16, 1)
    assert scenario.clusters["mi325x-quote"].price_source == "quote of Other: & Co, quotes.csv"
    assert scenario.sizing is not None
    choices = scenario.sizing.clusters
    assert [str(day) for day in choices["b200-quote"].dates] == ["2027-01-15", "2027-07-15"]
    assert (choices["b200-quote"].min_nodes, choices["mi325x-quote"].max_nodes) == (1, 40)
    assert planner("validate", "fleet.yaml").code == 0


def test_what_is_stated_of_a_workload_is_written_without_a_file_of_traffic(
    planner: Planner, tmp_path: Path
) -> None:
    """Rate, growth, model, class and zone were taken and dropped: the starter's own 80 requests a second were run."""
    stated = (
        "--requests-per-s",
        "60",
        "--growth",
        "0.8",
        "--model",
        "qwen3-32b",
        "--preset",
        "code-completion",
    )
    assert planner("init", "a", *stated, "--timezone", "Europe/Berlin").code == 0
    (load,) = load_scenario(tmp_path / "a.yaml").workloads.items()
    assert load[0] == "code-completion"
    assert (load[1].requests_per_s, load[1].model, load[1].load_profile.timezone) == (
        60,
        "qwen3-32b",
        "Europe/Berlin",
    )
    assert load[1].growth == Compound(kind="compound", per_year=0.8)
    assert planner("init", "b", "--model", "qwen3-32b").code == 0
    assert "requests_per_s: 80  # assumed: " in (tmp_path / "b.yaml").read_text()
    planner("init", "c", "--model", "qwen-32b").refused("unknown model 'qwen-32b'")
    planner("init", "c", "--rate", "x", "--columns", "input=x").refused(
        "--columns: is of no use without --from", "--rate: is of no use without --from"
    )
    assert not (tmp_path / "c.yaml").exists()


def test_a_quote_may_be_of_a_whole_node(
    planner: Planner, write: WriteScenario, tmp_path: Path
) -> None:
    write('accelerator,node_price_usd\nB200,"$420,000"\n', "quotes.csv")
    assert planner("init", "a", "--quotes", "quotes.csv").code == 0
    quote = load_scenario(tmp_path / "a.yaml").clusters["b200-quote"]
    assert (quote.accelerator_price_usd, quote.host_usd_per_node) == (420_000 / 8, 0)


def test_orders_end_where_their_machines_would_hardly_serve(write: WriteScenario) -> None:
    late = read_quotes(write("accelerator,price_usd,lead_weeks\nB200,39500,52\n", "quotes.csv"))[0]
    dates = order_dates(late, datetime.date(2026, 1, 1))
    assert [str(day) for day in dates] == [
        "2026-01-01",
        "2026-07-01",
        "2027-01-01",
        "2027-07-01",
    ]  # serves by July 2028


def test_growth_is_assumed_aloud_or_stated(
    planner: Planner, write: WriteScenario, tmp_path: Path
) -> None:
    write(log_text(), "chat.csv")
    assert planner("init", "a", "--from", "chat.csv").code == 0
    assert "per_year: 0.5  # assumed: " in (tmp_path / "a.yaml").read_text()
    write(series_text(), "hourly.csv")
    given = ("--from", "chat=hourly.csv", "--growth", "0.2", "--start", "2027-12-01")
    assert planner("init", "b", "--from", "chat.csv", *given).code == 0
    chat = load_scenario(tmp_path / "b.yaml").workloads["chat"]
    assert chat.growth == Compound(kind="compound", per_year=0.2)
    end_years = (52 * 7) / 365.25
    later_years = (datetime.date(2027, 12, 1) - datetime.date(2026, 11, 30)).days / 365.25
    assert chat.requests_per_s == pytest.approx(
        10 * 6 / 7 * 1.8**end_years * 1.2**later_years, rel=0.01
    )


@pytest.mark.parametrize(
    ("option", "text", "parts"),
    [
        (
            "--fleet",
            "accelerator,nodes,bougth\nH200,6,2025-03-01\n",
            ["owned.csv:1: unknown column 'bougth' (did you mean bought?)", "no column 'bought'"],
        ),
        (
            "--fleet",
            "accelerator,nodes,bought\nH200,,2025-03-01\n",
            ["owned.csv:2: nodes: is required"],
        ),
        (
            "--fleet",
            "accelerator,nodes,bought\n\nH20,6,2025-03-01\n",
            ["owned.csv:3: clusters.h20-2025-03.accelerator", "did you mean H200?"],
        ),
        (
            "--fleet",
            "accelerator,nodes,bought\nH200,6.5,2025-03-01\n",
            ["owned.csv:2:", "must be a whole number, not 6.5"],
        ),
        (
            "--fleet",
            "accelerator,nodes,bought\nH200,6,2029-03-01\n",
            ["owned.csv:2:", "is not before the start"],
        ),
        (
            "--fleet",
            "accelerator,nodes,bought\nH200,6\n",
            ["owned.csv:2: has 2 cells under 3 columns"],
        ),
        ("--fleet", "accelerator,nodes,bought\n", ["owned.csv: has 0 rows"]),
        (
            "--fleet",
            "accelerator,nodes,bought,name\nH200,6,2025-03-01,a\nH200,6,2025-03-01,a\n",
            ["owned.csv:3: name: 'a' is also"],
        ),
        (
            "--quotes",
            "accelerator,price_usd,lead_weeks\nB200,dear,12\n",
            ["owned.csv:2: clusters.b200-quote.accelerator_price_usd"],
        ),
        (
            "--quotes",
            "accelerator,price_usd,node_price_usd\nB200,1,8\n",
            ["owned.csv:2: needs price_usd", "state one of them, and not both"],
        ),
        (
            "--quotes",
            "accelerator,lead_weeks\nB200,8\n",
            ["owned.csv:2: needs price_usd, of one accelerator"],
        ),
        (
            "--quotes",
            "accelerator,node_price_usd\nB20,8\n",
            ["owned.csv:2: clusters.b20-quote.accelerator"],
        ),
        (
            "--quotes",
            "accelerator,price_usd,min_nodes,max_nodes\nB200,40000,9,3\n",
            ["owned.csv:2:", "min_nodes, 9"],
        ),
        (
            "--quotes",
            "accelerator,price_usd,earliest,latest\nB200,40000,2026-05-01,2026-03-01\n",
            ["owned.csv:2: latest:"],
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_line(
    planner: Planner, write: WriteScenario, tmp_path: Path, option: str, text: str, parts: list[str]
) -> None:
    write(text, "owned.csv")
    planner("init", "fleet", option, "owned.csv").refused(*parts)
    assert not (tmp_path / "fleet.yaml").exists()
    assert not (tmp_path / "scenario.schema.json").exists()


def test_a_list_that_is_not_text_is_refused(write: WriteScenario) -> None:
    with pytest.raises(ScenarioError, match="not UTF-8"):
        read_quotes(write(b"accelerator,price_usd\n\xff\xfe,1\n", "quotes.csv"))


def test_lists_are_told_by_their_columns_and_values_are_written_as_given(
    planner: Planner, write: WriteScenario, tmp_path: Path
) -> None:
    write("timestamp,requests\n" + _hours(400), "chat.csv")
    write("host,accelerator,bought\na,H200,2025-03-01\nb,H200,2025-03-01\n", "have.csv")
    write("accelerator,price_usd,lead_weeks\nB200,39500,20\n", "offers.csv")
    one_by_one = ("--from", "chat.csv", "--fleet", "have.csv", "--quotes", "offers.csv")
    assert planner("init", "named", *one_by_one).code == 0
    sources = [word for file in ("chat", "offers", "have") for word in ("--from", f"{file}.csv")]
    assert planner("init", "told", *sources).code == 0
    named, told = (load_scenario(tmp_path / f"{name}.yaml") for name in ("named", "told"))
    assert dict(sorted(named.clusters.items())) == dict(sorted(told.clusters.items()))
    stated = ("workloads.*.slo.ttft_s=1.5", "site.facility_power_cap_kw=1200")
    words = [word for text in stated for word in ("--set", text)]
    assert planner("init", "stated", *sources, *words, "--growth", "chat=0.4").code == 0
    text = (tmp_path / "stated.yaml").read_text()
    assert (
        "order: {placed: 2026-02-01, lead_weeks: 20, slip_weeks: {low: 0, base: 2, high: 12}}"
        "  # ordered 2026-02-01, delivered 2026-06-21 or later; the slip is assumed"
    ) in text
    for line in ("ttft_s: 1.5  # as given", "facility_power_cap_kw: 1200  # as given",
                 "per_year: 0.4  # as given"):  # fmt: skip
        assert line in text
    over = load_scenario(tmp_path / "told.yaml", [*stated, "workloads.chat.growth.per_year=0.4"])
    saved = load_scenario(tmp_path / "stated.yaml")
    assert saved.site == over.site
    assert saved.workloads["chat"].slo == over.workloads["chat"].slo
    planner("init", "no", *sources, "--set", "slo_target.attainment=2").refused(
        "--set #1: slo_target.attainment: must be less than or equal to 1, not 2"
    )
    planner("init", "no", *sources, "--growth", "chta=0.4").refused("no workload 'chta'")
    planner("init", "no", *sources, "--growth", "much").refused("--growth: takes a number")
    assert not (tmp_path / "no.yaml").exists()


def test_every_file_says_what_is_wrong_with_it(planner: Planner, write: WriteScenario) -> None:
    write("timestamp,requests\n2026-01-01 00:00,x\n2026-01-01 01:00,2\n", "chat.csv")
    write("acelerator,price_usd,lead_weeks\nB200,39500,20\n", "offers.csv")
    write("accelerator,nodes,bought\nH200,ten,2025-03-01\nH200,2,\n", "have.csv")
    sources = [word for file in ("chat", "offers", "have") for word in ("--from", f"{file}.csv")]
    planner("init", "no", *sources).refused(
        "chat.csv:2: requests", "offers.csv:1: unknown column 'acelerator'", "have.csv:3: bought"
    )


def _hours(number: int) -> str:
    begin = datetime.datetime(2026, 1, 5)
    moments = (begin + datetime.timedelta(hours=hour) for hour in range(number))
    return "".join(f"{moment},{3600 + moment.hour * 60}\n" for moment in moments)
