"""Who is let in, what is refused and how, and that a newer move takes the place of an older one."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from planner.errors import ScenarioError
from planner.run.simulate import simulate
from planner.ui import workbench as workbench_module
from planner.ui.server import Live, listen
from planner.ui.workbench import Workbench
from tests.ui.conftest import BASE, TOKEN, Post


def test_the_page_comes_with_its_token_and_a_policy_that_lets_it_speak_to_its_own_server_alone(
    client: TestClient,
) -> None:
    found = client.get(f"/{TOKEN}/")
    assert found.status_code == 200
    policy = found.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "connect-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe-eval" not in policy
    assert found.headers["x-content-type-options"] == "nosniff"
    assert found.headers["referrer-policy"] == "no-referrer"
    assert not re.search(r"(src|href)=\"(https?:)?//", found.text), (
        "the page names an address of somebody else's"
    )


@pytest.mark.parametrize(
    "path", ["/", "/show", "/wrong/", "/wrong/show", f"/{TOKEN}x/", "/%2e%2e/", "//"]
)
def test_without_its_token_nothing_is_answered(client: TestClient, path: str) -> None:
    for found in (client.get(path), client.post(path, json={})):
        assert found.status_code == 403
        assert "token" in found.text
        assert TOKEN not in found.text


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1", "127.0.0.1:9", "evil.example:8123", ""]
)
def test_another_host_is_refused_so_that_no_name_can_be_turned_to_this_machine(
    client: TestClient, host: str
) -> None:
    assert client.get(f"/{TOKEN}/", headers={"host": host}).status_code == 403


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "https://127.0.0.1:8123", "http://127.0.0.1:8124"]
)
def test_another_origin_is_refused(client: TestClient, origin: str) -> None:
    for found in (
        client.get(f"/{TOKEN}/", headers={"origin": origin}),
        client.post(f"/{TOKEN}/show", json={}, headers={"origin": origin}),
    ):
        assert found.status_code == 403


def test_its_own_origin_is_let_in_by_either_name(client: TestClient) -> None:
    assert client.post(f"/{TOKEN}/show", json={}, headers={"origin": BASE}).status_code == 200
    named = {"host": "localhost:8123", "origin": "http://localhost:8123"}
    assert client.post(f"/{TOKEN}/show", json={}, headers=named).status_code == 200


BAD: list[tuple[bytes, int, str]] = [
    (b"", 400, "not JSON"),
    (b"{", 400, "not JSON"),
    (b"[" * 60_000, 400, "not JSON"),
    (b"[]", 400, "not a JSON object"),
    (b'{"plan": "clusters.h200.nodes=3"}', 400, "plan must be a list"),
    (b'{"plan": [1]}', 400, "plan must be a list"),
    (b'{"plans": {}}', 400, "plans must be a list of at most 8 lists"),
    (
        b'{"futures": [["future.traffic=lots"]], "part": "grid"}',
        422,
        "is not a setting of this page",
    ),
    (b'{"futures": [["elsewhere=1"]], "part": "grid"}', 422, "is not a setting of this page"),
    (b'{"plan": ["tiny", "future.traffic=-1"]}', 422, "is not a setting of this page"),
    (b'{"plan": ["elsewhere"]}', 422, "no scenario is called 'elsewhere'; there are tiny"),
    (b'{"stop": 1}', 400, "stop must be true or false"),
    (b'{"move": -1}', 400, "move must be a whole number"),
    (b'{"move": "1"}', 400, "move must be a whole number"),
    (b'{"move": 1.5}', 400, "move must be a whole number"),
    (b'{"tab": 7}', 400, "tab must be a text"),
    (b'{"part": "all"}', 400, "part must be answer, rest or grid"),
    (b'{"plan": ["tiny", "clusters.h200.nodes=-1"]}', 422, "h200, nodes: must be greater than"),
    (b'{"plan": ["tiny", "clusters.h200.nodes=1e99"]}', 422, "h200, nodes: must be a whole"),
    (b'{"plan": ["tiny", "site.pue_ratio=0.5"]}', 422, "PUE: must be greater than or equal"),
    (b'{"plan": ["tiny", "clusters.h200.accelerator=Z80"]}', 422, "unknown accelerator 'Z80'"),
    (b'{"plan": ["tiny", "clusters.b200.nodes=3"]}', 422, "clusters.b200"),
    (b'{"plan": ["tiny", "nonsense"]}', 422, "is not a setting of this page"),
    (b'{"plan": ["tiny", "name=other"]}', 422, "is not a setting of this page"),
    (b'{"plan": ["tiny", "catalog.overlay=secret.yaml"]}', 422, "is not a setting of this page"),
    (
        b'{"plan": ["tiny", "workloads.chat.growth={kind: csv, file: /etc/passwd}"]}',
        422,
        "is not a setting of this page",
    ),
    (
        b'{"plan": ["tiny", "clusters.h200={accelerator: B200, nodes: 8}"]}',
        422,
        "is not a setting of this page",
    ),
    (
        b'{"plan": ["tiny", "clusters.x={accelerator: B200, nodes: 8, quotes: []}"]}',
        422,
        "is not a setting of this page",
    ),
    (b'{"plan": ["tiny", "clusters.h200.nodes=[1, 2]"]}', 422, "is not a setting of this page"),
]


@pytest.mark.parametrize(("body", "status", "words"), BAD)
def test_a_bad_request_is_answered_by_a_sentence(
    client: TestClient, body: bytes, status: int, words: str
) -> None:
    found = client.post(
        f"/{TOKEN}/show", content=body, headers={"content-type": "application/json"}
    )
    assert found.status_code == status
    assert words in found.text
    assert "Traceback" not in found.text
    assert "--set" not in found.text, "a word of a command line"


def test_what_is_too_long_of_another_kind_or_not_there_is_refused(
    client: TestClient, post: Post
) -> None:
    headers = {"content-type": "application/json"}
    assert client.post(f"/{TOKEN}/show", content=b" " * 100_001, headers=headers).status_code == 413
    assert (
        client.post(f"/{TOKEN}/show", content=iter([b"{}"]), headers=headers).status_code == 413
    ), "no length"
    both = headers | {"content-length": "2", "transfer-encoding": "chunked"}
    assert client.post(f"/{TOKEN}/show", content=b"{}", headers=both).status_code == 413, (
        "two lengths"
    )
    assert (
        client.post(
            f"/{TOKEN}/show", content=b"{}", headers={"content-type": "text/plain"}
        ).status_code
        == 415
    )
    assert client.get(f"/{TOKEN}/show").status_code == 405
    assert client.put(f"/{TOKEN}/", content=b"").status_code == 405
    assert client.get(f"/{TOKEN}/nothing").status_code == 404
    many = [f"clusters.h200.nodes={n}" for n in range(500)]
    assert post(set=many, part="rest").status_code == 200, "of one setting the last turn counts"
    many = [f"clusters.n{n}={{accelerator: H200, nodes: 8}}" for n in range(500)]
    assert "the page takes 400" in post(set=many).text


def test_a_fault_of_our_own_is_told_without_a_traceback(
    post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("of nodes")

    monkeypatch.setattr(Workbench, "answer", broken)
    found = post()
    assert found.status_code == 500
    assert (
        found.text
        == "the planner failed because of a fault in its own code: ZeroDivisionError: of nodes"
    )


def test_a_newer_move_of_the_same_tab_drops_the_older_one_and_no_other_tab_s(
    served: tuple[TestClient, Live],
    workbench: Workbench,
    post: Post,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun: list[str] = []
    may_end = threading.Event()

    def slow(scenario: Any) -> Any:
        begun.append(",".join(scenario.document.overrides))
        may_end.wait(20)
        return simulate(scenario)

    monkeypatch.setattr("planner.ui.workbench.simulate", slow)
    answers: dict[str, int] = {}

    def ask(name: str, **asked: Any) -> threading.Thread:
        thread = threading.Thread(target=lambda: answers.update({name: post(**asked).status_code}))
        thread.start()
        return thread

    def wait_until(condition: Callable[[], bool]) -> None:
        until = time.monotonic() + 20.0
        while not condition():
            assert time.monotonic() < until
            time.sleep(0.01)

    def waiting(tab: str, move: int) -> None:
        wait_until(lambda: served[1]._latest.get(tab, 0) >= move)

    threads = [ask("first", tab="a", move=1, set=["clusters.h200.nodes=31"])]
    wait_until(lambda: bool(begun))
    for name, tab, move, nodes in (
        ("second", "a", 2, 32),
        ("other", "b", 1, 33),
        ("third", "a", 3, 34),
    ):
        threads.append(ask(name, tab=tab, move=move, set=[f"clusters.h200.nodes={nodes}"]))
        waiting(tab, move)
    may_end.set()
    for thread in threads:
        thread.join(60)
    assert answers == {"first": 409, "second": 409, "other": 200, "third": 200}
    assert "clusters.h200.nodes=32" not in begun, "what nobody awaits is not run"
    assert post(tab="a", move=2).status_code == 409


def test_the_grid_ends_between_two_draws_when_a_newer_move_comes(
    served: tuple[TestClient, Live],
    workbench: Workbench,
    post: Post,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn: list[int] = []

    def draw_again(_: Any, draws: int, progress: Any) -> None:
        for number in range(draws):
            drawn.append(number)
            if number == 2:
                served[1]._latest["one"] = 99
            progress([])

    monkeypatch.setattr("planner.ui.workbench.draw_again", draw_again)
    changes = ["clusters.h200.nodes=7"]
    assert post(set=changes, part="grid").status_code == 409
    assert drawn == [0, 1, 2]
    assert workbench.plan(("tiny", *changes)).replications is None


def test_the_rest_ends_between_two_sections_when_a_newer_move_comes(
    served: tuple[TestClient, Live], post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    def body(*_: object) -> Iterator[None]:
        for name in ("first", "second", "third"):
            made.append(name)
            if name == "second":
                served[1]._latest["one"] = 99
            yield None

    monkeypatch.setattr(workbench_module, "run_body", body)
    assert post(part="rest").status_code == 409
    assert made == ["first", "second"]


def test_it_listens_on_this_machine_alone_and_a_port_in_use_is_one_message() -> None:
    listening = listen(0)
    address, port = listening.getsockname()
    assert address == "127.0.0.1"
    with pytest.raises(
        ScenarioError,
        match=rf"port {port} cannot be used: Address already in use \(leave --port out",
    ):
        listen(port)
    listening.close()


def test_a_plan_that_is_known_is_not_run_again(
    workbench: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = workbench.plan(("tiny", "clusters.h200.nodes=6"))
    monkeypatch.setattr("planner.ui.workbench.simulate", lambda _: pytest.fail("ran again"))
    assert workbench.plan(("tiny", "clusters.h200.nodes=6")) is first


def test_what_is_kept_is_bounded(
    workbench: Workbench,
    served: tuple[TestClient, Live],
    post: Post,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("planner.ui.workbench.simulate", lambda _: None)
    for nodes in range(1, 9):
        workbench.plan(("tiny", f"clusters.h200.nodes=10{nodes}"))
    assert len(workbench._plans) == 6
    workbench._plans.clear()
    monkeypatch.undo()
    for tab in range(1005):
        served[1]._latest[str(tab)] = 1
    assert post(tab="new").status_code == 200
    assert len(served[1]._latest) == 1000
