"""The page without a scenario: files and answers over its server, and what comes of them."""

from __future__ import annotations

import json
import random
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from planner import api
from planner.ui.server import build_app
from planner.ui.workbench import EXAMPLES, Workbench
from tests.calibration import test_bench_results as bench_results
from tests.conftest import Planner
from tests.fuzz.mutations import mutate
from tests.onramp.test_spoiled_files import _specimens
from tests.ui.conftest import BASE, TOKEN

TAB = "tab-1"
HOURS = "timestamp,requests,input_tokens,output_tokens\n" + "".join(
    f"2026-01-{5 + hour // 24:02d} {hour % 24:02d}:00,{3600 + 60 * (hour % 24)},{900 * 3600},{250 * 3600}\n"
    for hour in range(21 * 24)
)
FILES = {
    "chat.csv": HOURS,
    "have.csv": "host,accelerator,bought\n" + "".join(f"gpu{n},H200,2025-03-01\n" for n in range(10)),
    "offers.csv": "accelerator,price_usd,lead_weeks,vendor\nB200,39500,20,Acme\nH200,31000,20,Other\n",
}  # fmt: skip


class Page:
    """What the script of the page sends."""

    def __init__(self, client: TestClient, folder: Path) -> None:
        self.client = client
        self.folder = folder
        self.files: list[dict[str, str]] = []

    def drop(self, name: str, content: str | bytes) -> Any:
        headers = {"content-type": "application/octet-stream"}
        where = f"/{TOKEN}/keep?tab={TAB}&name={name}"
        raw = content.encode() if isinstance(content, str) else content
        found = self.client.post(where, content=raw, headers=headers)
        if {"name": name} not in self.files:
            self.files.append({"name": name})
        return found

    def draft(self, **answers: Any) -> Any:
        asked = {"tab": TAB, "files": self.files, "name": "lead", **answers}
        found = self.client.post(f"/{TOKEN}/draft", json=asked)
        assert found.status_code == 200, found.text
        return found.json()

    def post(self, what: str, **asked: Any) -> Any:
        return self.client.post(f"/{TOKEN}/{what}", json={"tab": "one", "move": 1, **asked})


@pytest.fixture
def workbench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workbench:
    monkeypatch.chdir(tmp_path)
    examples = [api.load(file) for file in sorted(EXAMPLES.glob("*.yaml"))]
    return Workbench(examples, asks_first=True)


@pytest.fixture
def page(workbench: Workbench) -> Page:
    app, _ = build_app(workbench, TOKEN, 8123)
    return Page(TestClient(app, base_url=BASE), workbench.intake.folder / TAB)


def problems(page: Page, **answers: Any) -> list[tuple[str, str, str]]:
    """Return question, path and text of everything that is wrong."""
    found = page.draft(**answers)["problems"]
    return [(one["question"], one["path"], one["text"]) for one in found]


def test_the_page_begins_with_questions_and_loads_nothing(page: Page) -> None:
    found = page.client.get(f"/{TOKEN}/")
    assert "What do your files show?" in found.text
    assert found.text.count('<section class="question"') == 10
    assert found.headers["content-security-policy"].startswith("default-src 'none'")
    assert "http://" not in found.text
    assert "https://" not in found.text
    # An example is a page as before, with a way to the questions.
    assert 'href="?start"' in page.client.get(f"/{TOKEN}/?of=buy-now").text


def test_files_and_answers_come_to_what_the_command_writes(
    page: Page, planner: Planner, tmp_path: Path
) -> None:
    for name, content in FILES.items():
        assert page.drop(name, content).status_code == 200
        (tmp_path / name).write_text(content)
    settings = {
        "workloads.chat.model": "qwen3-32b",
        "workloads.chat.growth.per_year": "0.4",
        "workloads.chat.slo.ttft_s": "1.5",
        "workloads.chat.lengths.input.mean": "1000",
        "slo_target.confidence": "0.8",
        "site.facility_power_cap_kw": "1200",
        "clusters.*.host_memory_gb": "2000",
    }
    found = page.draft(settings=settings, open=True)
    assert found["problems"] == []
    assert found["lists"] == {"have.csv": "10 nodes owned", "offers.csv": "2 quotes"}
    (chat,) = found["workloads"]
    assert chat["source"] == "chat.csv"
    assert chat["figures"]["growth.per_year"] == ["0.4", "as given"]
    assert found["values"]["finance.discount_rate_per_year"] == "0.1"
    # The command that the page shows, run, writes the bytes that the page saves.
    words = shlex.split(found["command"])
    assert planner(*words[1:]).code == 0
    (tmp_path / "lead.yaml").rename(tmp_path / "by-command.yaml")
    said = f"saved as lead.yaml in {tmp_path}, with scenario.schema.json for editors beside it"
    assert page.post("save", plan=["lead"], name="lead").json() == {"said": said}
    text = (tmp_path / "lead.yaml").read_text()
    assert text == (tmp_path / "by-command.yaml").read_text()
    for line in (
        "model: qwen3-32b  # as given",
        "ttft_s: 1.5  # as given",
        "tpot_s: 0.1  # assumed: preset chat, no file contains your SLO",
        "facility_power_cap_kw: 1200  # as given",
        "# owned, line 2 of have.csv",
    ):
        assert line in text
    assert planner("validate", "lead.yaml").code == 0
    again = page.post("save", plan=["lead"], name="lead")
    assert again.status_code == 422
    assert again.text == "lead.yaml: exists and will not be overwritten (give another name)"


def test_what_is_changed_on_the_plan_is_saved_with_it_and_gives_the_same_figures(
    page: Page, workbench: Workbench, planner: Planner, tmp_path: Path
) -> None:
    for name, content in FILES.items():
        page.drop(name, content)
    page.draft(open=True)
    plan = ["lead", "clusters.b200-quote.nodes=2", "future.traffic=1.5"]
    shown = page.post("show", plan=plan, futures=[["future.growth=2"]]).json()
    assert shown["futures"] == ["growth ×2"]
    page.post("save", plan=plan, futures=[["future.growth=2"]], name="mine")
    saved = api.load(tmp_path / "mine.yaml")
    assert saved.clusters["b200-quote"].nodes == 2
    assert list(saved.futures) == ["growth-x-2", "traffic-x-1-5"]
    assert saved.futures["growth-x-2"].set == {"workloads.chat.growth.per_year": "×2"}
    on_page = workbench.plan(("lead", "clusters.b200-quote.nodes=2")).result
    assert planner("run", "mine.yaml", "-n", "1", "-q").code == 0
    ledger = (tmp_path / "outputs" / "mine" / "ledger.csv").read_text()
    other = api.run(on_page.scenario, tmp_path / "page", replications=1)
    assert (other.folder / "ledger.csv").read_text().replace("lead,", "mine,") == ledger


def test_typed_rows_are_a_list_like_any_other(page: Page, tmp_path: Path) -> None:
    owned = [{"accelerator": "H200", "nodes": "10", "bought": "2025-03-01"}, {}]
    quoted = [{"accelerator": "B200", "price_usd": "$39,500", "lead_weeks": "20", "vendor": "Acme"}]
    found = page.draft(owned=owned, quoted=quoted, open=True)
    assert found["problems"] == []
    assert found["lists"] == {"owned-typed.csv": "10 nodes owned", "quotes-typed.csv": "1 quote"}
    assert page.post("save", plan=["lead"], name="lead").status_code == 200
    saved = api.load(tmp_path / "lead.yaml")
    assert saved.clusters["h200-2025-03"].nodes == 10
    assert saved.clusters["b200-quote"].accelerator_price_usd == 39500
    assert (tmp_path / "quotes-typed.csv").read_text().splitlines()[1] == 'B200,"$39,500",20,Acme,'
    # Another plan of the same machines is saved beside it; a list of other machines stays as it is.
    assert page.post("save", plan=["lead"], name="lead-2").status_code == 200
    (tmp_path / "quotes-typed.csv").write_text("accelerator\n")
    refused = page.post("save", plan=["lead"], name="lead-3")
    assert (refused.status_code, "quotes-typed.csv: exists already" in refused.text) == (422, True)
    assert not (tmp_path / "lead-3.yaml").exists()
    bad = [{}, {"accelerator": "H20", "nodes": "10", "bought": "2025-03-01"}]
    ((question, path, text),) = problems(page, owned=bad)
    assert (question, path) == ("owned", "clusters.h20-2025-03.accelerator")
    assert text.startswith("row 2: ")
    assert "did you mean" in text


BAD_ANSWERS = {
    "slo_target.attainment": ("2", "objectives", "must be less than or equal to 1"),
    "slo_target.confidence": ("1", "objectives", "must be less than 1"),
    "workloads.chat.slo.ttft_s": ("-1", "objectives", "must be greater than 0"),
    "workloads.chat.lengths.input.mean": ("0", "lengths", "must be greater than 0"),
    "workloads.chat.model": ("qwen-32b", "models", "unknown model"),
    "workloads.chat.growth.per_year": ("-3", "growth", "must be above -1"),
    "workloads.chat.requests_per_s": ("much", "growth", "takes a number"),
    "site.pue_ratio": ("0.5", "power", "must be greater than or equal to 1"),
    "site.tariff": ("nowhere", "prices", "unknown tariff"),
    "finance.discount_rate_per_year": ("-2", "prices", "must be greater than"),
    "clusters.*.host_memory_gb": ("-5", "owned", "must be greater than or equal to 0"),
    "catalog.overlay": ("a.yaml", "", "cannot be 'a.yaml'"),
    "site.electricity_usd_per_kwh": ("{a: 1}", "prices", "cannot be '{a: 1}'"),
    "site.facility_power_cap_kw": ("1.2 MW", "power", "cannot be '1.2 MW' (it takes only a number"),
}


@pytest.mark.parametrize("path", BAD_ANSWERS)
def test_a_bad_answer_is_told_beside_its_question(page: Page, path: str) -> None:
    page.drop("chat.csv", HOURS)
    text, question, message = BAD_ANSWERS[path]
    (first, *_) = problems(page, settings={path: text})
    assert first[0] == question, first
    assert message in first[2], first
    assert "planner-" not in first[2]
    assert page.draft()["problems"] == []


@pytest.mark.parametrize(
    ("answers", "question", "message"),
    [
        ({"timezone": "Mars"}, "files", "no time zone 'Mars'"),
        ({"rate": "speed"}, "files", "no rate column 'speed'"),
        ({"columns": "input"}, "files", "columns"),
        ({"name": "a/b"}, "name", "will not do as a name"),
        ({"start": "2026-02-30"}, "name", "must be a date"),
    ],
)
def test_how_files_are_read_and_the_plan_is_called_have_their_places(
    page: Page, answers: dict[str, str], question: str, message: str
) -> None:
    page.drop("chat.csv", HOURS)
    (first, *_) = problems(page, **answers)
    assert first[0] == question, first
    assert message in first[2]


def test_a_bad_file_is_told_beside_the_file_with_its_line(page: Page) -> None:
    page.drop("chat.csv", HOURS.replace("3600,", "many,", 1))
    page.drop("offers.csv", FILES["offers.csv"].replace("39500", "dear"))
    page.drop("have.csv", FILES["have.csv"])
    found = page.draft()["problems"]
    assert [(one["question"], one["file"]) for one in found] == [("files", "chat.csv")]
    assert found[0]["text"].startswith("chat.csv:2: requests: many")
    # A file of the same name takes its place.
    page.drop("chat.csv", HOURS)
    (problem,) = page.draft()["problems"]
    assert problem["text"].startswith("offers.csv:2: clusters.b200-quote.accelerator_price_usd")
    page.drop("offers.csv", FILES["offers.csv"])
    assert page.draft()["problems"] == []


@pytest.mark.parametrize("name", ["../x.csv", "a/b.csv", "..", "", "a\nb.csv", "x" * 300])
def test_no_name_of_a_file_leads_anywhere(page: Page, workbench: Workbench, name: str) -> None:
    params = {"tab": TAB, "name": name}
    headers = {"content-type": "application/octet-stream"}
    found = page.client.post(f"/{TOKEN}/keep", params=params, content=b"x", headers=headers)
    assert found.status_code == 422
    written = [one for one in workbench.intake.folder.rglob("*") if one.is_file()]
    assert written == []
    if len(name) < 200:
        page.files.append({"name": name})
        assert "not a name of a file" in page.draft()["problems"][0]["text"]


def test_who_sends_anything_else_is_refused(page: Page) -> None:
    keep = f"/{TOKEN}/keep?tab={TAB}&name=a.csv"
    assert page.client.post(keep, json={}).status_code == 415
    as_form = {"content-type": "text/plain"}
    assert page.client.post(keep, content=b"x", headers=as_form).status_code == 415
    octets = {"content-type": "application/octet-stream"}
    too_long = {**octets, "content-length": "200000001"}
    assert page.client.post(keep, content=b"x", headers=too_long).status_code == 413
    other_tab = keep.replace(TAB, "..%2F..")
    assert page.client.post(other_tab, content=b"x", headers=octets).status_code == 400
    for body in ("{", "[]", '{"tab": "a/b"}', json.dumps({"tab": TAB, "settings": {"a": 1}})):
        found = page.client.post(
            f"/{TOKEN}/draft", content=body, headers={"content-type": "application/json"}
        )
        assert found.status_code == 400
        assert found.text.startswith("answers: ")


def test_a_benchmark_stands_beside_its_prediction_and_leaves_the_plan_alone(page: Page) -> None:
    page.drop("chat.csv", HOURS)
    before = page.draft()
    page.drop("bench.json", json.dumps(bench_results._vllm(), indent=1))
    found = page.draft()
    assert found["command"] == before["command"]
    (missing, *_) = found["benchmarks"]["bench.json"]
    assert missing.startswith("is not checked yet: ")
    assert "accelerator" in missing
    page.files[-1]["run"] = "accelerator=H200,tp=4,precision=fp8,model=llama-3.1-70b,engine=vllm"
    lines = page.draft()["benchmarks"]["bench.json"]
    assert any(line.startswith("tpot ms: measured 18") for line in lines), lines
    checked = api.check_benchmarks(page.folder / "bench.json", [page.files[-1]["run"]])
    predicted = {row["quantity"]: row["predicted"] for row in checked.rows()}
    assert any(f"predicted {predicted['tpot_ms']:,.4g} (" in line for line in lines)
    page.drop("chat.csv", json.dumps(bench_results._vllm())[:-30])
    assert page.draft()["benchmarks"]["chat.csv"][0].startswith("is not checked yet: ")


def test_a_second_draft_takes_the_place_of_the_first(page: Page) -> None:
    for nodes in ("10", "20"):
        owned = [{"accelerator": "H200", "nodes": nodes, "bought": "2025-03-01"}]
        page.draft(owned=owned, open=True)
        shown = page.post("show", plan=["lead"]).json()
        values = {path: value for path, value, _ in shown["settings"]}
        assert values["clusters.h200-2025-03.nodes"] == nodes


def _spoil(page: Page, seeds: range, folder: Path) -> int:
    """Drop spoiled files one by one, and return how many were refused, each beside its name or question."""
    refused = 0
    specimens = {name: raw for name, raw in _specimens().items() if not name.startswith("bench")}
    for seed in seeds:
        chance = random.Random(seed)
        kind = chance.choice(sorted(specimens))
        file = kind.partition(" ")[2]
        page.files.clear()
        page.drop(file, mutate(specimens[kind], chance, is_yaml=False))
        found = page.draft()["problems"]
        refused += bool(found)
        for problem in found:
            assert problem["text"].isprintable()
            assert "planner-" not in problem["text"], "names the folder that files are taken into"
            assert problem["file"] in (file, "")
    assert sorted(folder.iterdir()) == []
    return refused


def test_spoiled_files_are_refused_on_the_page_and_nothing_is_written(
    page: Page, tmp_path: Path
) -> None:
    assert _spoil(page, range(40), tmp_path) > 8


@pytest.mark.prove
def test_five_hundred_spoiled_files_on_the_page(page: Page, tmp_path: Path) -> None:
    assert _spoil(page, range(500), tmp_path) > 100


def test_a_plan_that_cannot_run_is_told_beside_its_question(page: Page) -> None:
    """A cap of megawatts in the place of kilowatts is under the power of one node."""
    page.drop("chat.csv", HOURS)
    ((question, path, text),) = problems(
        page, settings={"site.facility_power_cap_kw": "1.2"}, open=True
    )
    assert (question, path) == ("power", "site.facility_power_cap_kw")
    assert "a single node draws" in text


def test_a_draft_says_that_it_is_drafted(page: Page) -> None:
    page.draft(open=True)
    shown = page.post("show", plan=["lead"]).json()["parts"]
    assert "As drafted from the answers; nothing is changed." in dict(shown)["changes"]


@pytest.mark.slow
def test_a_memo_of_a_draft_is_that_of_the_command(
    page: Page, planner: Callable[..., Any], tmp_path: Path
) -> None:
    page.draft(settings={"site.facility_power_cap_kw": "1200"}, open=True)
    found = page.post("memo", plan=["lead"], name="memo-of-page").json()
    assert found["href"] == "folder/memo-of-page/memo.html"
    assert page.client.get(f"/{TOKEN}/{found['href']}").status_code == 200
    page.post("save", plan=["lead"], name="lead")
    assert planner("run", "lead.yaml", "--out", "own", "-q").code == 0
    own, other = (
        (tmp_path / folder / "summary.json").read_text()
        for folder in ("own", "outputs/memo-of-page")
    )
    assert own == other
    # The memo of another plan does not take its place; that of the same plan does.
    changed = page.post("memo", plan=["lead", "site.pue_ratio=1.3"], name="memo-of-page")
    assert changed.status_code == 422
    assert changed.text.endswith("memo-of-page exists already: give it another name")
    assert (tmp_path / "outputs/memo-of-page/summary.json").read_text() == own
    assert page.post("memo", plan=["lead"], name="memo-of-page").status_code == 200
    assert (tmp_path / "outputs/memo-of-page/summary.json").read_text() == own
    memo = (tmp_path / "outputs/memo-of-page/memo.md").read_text()
    assert "This memo covers one plan." in memo
