"""`clients/browser/browser.html` and the document's page script, in a real browser."""

import json
from pathlib import Path

import pytest

from tests.acceptance.browser import browser, pages, program
from tests.acceptance.conftest import not_run
from tests.acceptance.examples import BROWSER, adapted
from tests.web.server import Web

PAGES = Path(__file__).parents[2] / "clients" / "browser"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A daemon that lets pages of a web server in: (daemon, origin, directory of the pages)."""
    directory = tmp_path_factory.mktemp("pages")
    (directory / "browser.html").write_text((PAGES / "browser.html").read_text())
    with pages(directory) as origin:
        web = Web(tmp_path_factory.mktemp("browser"), origins=[origin])
        yield web, origin, directory
        web.close()


@pytest.fixture(scope="module")
def page():
    if program() is None:
        not_run("clients/browser/browser.html in a browser: there is no Chromium here")
    with browser() as page:
        yield page


def text_of(web, session):
    bodies = [event["body"] for event in web.read(session)]
    return "".join(body["Generated"]["text"] for body in bodies if "Generated" in body)


def test_the_page_opens_a_session_streams_a_reply_and_forks_it(page, place):
    web, origin, _ = place
    address = web.url.removeprefix("http://")
    page.open(f"{origin}/browser.html#token={web.token}&address={address}&message=Name%20two%20lakes.")
    page.until("document.getElementById('state').textContent.includes('finished')")
    assert page.evaluate("location.href") == f"{origin}/browser.html"
    first = page.evaluate("Number(document.querySelector('#replies p').dataset.session)")
    assert page.evaluate("document.getElementById('state').textContent") == f"session {first}: finished 2"
    assert page.evaluate("document.querySelector('#replies p').textContent") == text_of(web, first)
    assert page.evaluate("document.querySelector('#replies p').childNodes.length") > 1
    page.evaluate("document.getElementById('fork').click()")
    page.until("document.querySelectorAll('#replies p').length === 2")
    page.until("document.getElementById('state').textContent.includes('finished')")
    second = page.evaluate("Number(document.querySelectorAll('#replies p')[1].dataset.session)")
    assert [second, first, 1] in web.rpc("Tree")["Tree"]["nodes"]
    assert page.evaluate("document.querySelectorAll('#replies p')[1].textContent") == text_of(web, second)
    assert web.read(second)[2]["body"]["Message"]["text"] == "Name two lakes."
    page.evaluate("document.querySelector('#open button').click()")
    page.until("document.querySelectorAll('#replies p').length === 3")
    page.until("document.getElementById('state').textContent.includes('finished')")
    assert web.finishes(second) == [2, 2]


def test_the_script_of_the_document_in_a_page(page, place):
    web, origin, directory = place
    script = f"const TOKEN = {json.dumps(web.token)};\n{adapted(BROWSER, web)}"
    (directory / "document.html").write_text(f"<!doctype html><meta charset=utf-8><body><script>\n{script}</script>")
    before = set(web.rpc("List")["Sessions"]["ids"])
    page.open(f"{origin}/document.html")
    while not any(line.startswith("finished") for line in page.console):
        page.until("document.body.textContent")
    (session,) = set(web.rpc("List")["Sessions"]["ids"]) - before
    assert page.console[-1] == "finished 2"
    said = page.evaluate("[...document.body.childNodes].slice(1).map((node) => node.textContent).join('')")
    assert said == text_of(web, session)


def test_a_page_of_another_origin_is_not_let_in(page, place, tmp_path):
    web, _, _ = place
    (tmp_path / "browser.html").write_text((PAGES / "browser.html").read_text())
    before = web.rpc("List")
    with pages(tmp_path) as elsewhere:
        page.open(f"{elsewhere}/browser.html")
        address, token = web.url.replace("http", "ws"), web.token
        opened = f"""new Promise((done) => {{
            const ws = new WebSocket('{address}/web/ws', ['superfluid.v1', 'superfluid.token.{token}']);
            ws.onopen = () => done('open');
            ws.onerror = () => done('refused');
        }})"""
        assert page.evaluate(opened) == "refused"
        fetched = f"fetch('{web.url}/web/health').then(() => 'read', () => 'refused')"
        assert page.evaluate(fetched) == "refused"
    assert web.rpc("List") == before
