from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from sweep.report.__main__ import main


class Page(HTMLParser):
    """Collects ids, links and whatever would be fetched."""

    VOID = frozenset({"meta", "br", "img", "link", "path", "use", "rect", "line", "circle"})

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.references: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value)
            if name in ("src", "href", "xlink:href", "data"):
                self.references.append(value)

    handle_startendtag = handle_starttag


@pytest.fixture(scope="module")
def page_text(paper_store, tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("html") / "deep" / "report.html"
    assert main([str(paper_store), "--html", str(path), "--tables", "5"]) == 0
    return path.read_text()


def test_it_needs_no_network_and_stays_small(page_text):
    page = Page()
    page.feed(page_text)
    assert len(page_text) < 5_000_000
    assert all(r.startswith("#") for r in page.references), set(page.references)
    assert not {"script", "link", "iframe", "img"} & set(page.tags)
    assert not re.findall(r"url\((?!#)", page_text)
    assert "@import" not in page_text


def test_every_link_leads_somewhere_and_no_id_comes_twice(page_text):
    page = Page()
    page.feed(page_text)
    assert len(page.ids) == len(set(page.ids))
    assert {r[1:] for r in page.references} <= set(page.ids)


def test_it_has_all_tables_figures_and_runs(page_text):
    page = Page()
    page.feed(page_text)
    expected = {f"t-{n}" for n in range(5, 15)} | {f"f-figure{n}" for n in range(1, 7)}
    assert expected | {"f-coverage", "f-timeline", "t-runs-client", "left-out"} <= set(page.ids)
    assert page_text.count("<svg") == 8
    assert "† 0.913" in page_text
    assert "n = 224" in page_text
    assert "bootstrap over runs" in page_text


def test_what_a_store_says_is_escaped(demo_store, tmp_path):
    path = demo_store / "runs" / "smollm2-135m-none_leastconn_n3_s42" / "summary.json"
    path.write_text(path.read_text().replace("SmolLM2 135M", "<script>alert(1)</script>"))
    target = tmp_path / "report.html"
    assert main([str(demo_store), "--html", str(target)]) == 0
    text = target.read_text()
    assert "<script>" not in text
    assert "&lt;script&gt;" in text
