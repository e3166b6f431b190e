"""What looks at pages sees what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser import need_browser, open_browser

ROOT = Path(__file__).parents[2]
HEAD = "<!doctype html><meta name='color-scheme' content='light dark'><title>A page</title>"


def test_a_bad_page_is_seen_to_be_bad(tmp_path: Path) -> None:
    picture = (tmp_path / "none.png").as_uri()
    (tmp_path / "bad.html").write_text(
        f"""{HEAD}<p style="color: #888">grey</p><p style="color: #111">dark</p><p>plain</p>
        <p style="background: #ccc"><b style="color: rgb(0 0 0 / 30%)">thin</b></p>
        <p style="display: none">unseen</p>
        <svg><text y="20" fill="#888">drawn</text></svg>
        <div style="width: 450px">wide</div><img src="{picture}">
        <script>console.error("said", 5); console.log("by the way"); undefined.thrown</script>"""
    )
    (tmp_path / "good.html").write_text(f"{HEAD}<p>plain <a href='https://example.org'>link</a></p>")
    with open_browser() as browser:
        with browser.page((tmp_path / "bad.html").as_uri(), 400) as page:
            assert page.evaluate("innerWidth") == 400
            assert 50 <= page.sideways() <= 60
            assert [faint.text for faint in page.faint()] == ["grey", "thin", "drawn"]
            assert page.faint()[0].contrast == pytest.approx(3.54, abs=0.01)
            assert any("error: said 5" in line for line in page.complaints)
            assert any("thrown" in line for line in page.complaints)
            assert any("not loaded" in line for line in page.complaints)
            assert not any("by the way" in line for line in page.complaints)
            assert page.foreign_requests() == [picture]
            page.show(1200, dark=True)
            assert page.sideways() == 0
            assert [faint.text for faint in page.faint()] == ["dark", "thin"]
            page.screenshot(tmp_path / "bad.png")
            assert (tmp_path / "bad.png").read_bytes().startswith(b"\x89PNG")
            with pytest.raises(TimeoutError, match="not true within"):
                page.wait_for("document.title === 'Another'", seconds=0.1)
            with pytest.raises(RuntimeError, match="ReferenceError"):
                page.evaluate("nobody")
        for dark in (False, True):
            with browser.page((tmp_path / "good.html").as_uri(), 400, dark) as page:
                assert page.wait_for("document.title") == "A page"
                assert (page.sideways(), page.faint(), page.complaints, page.foreign_requests()) == (
                    0,
                    [],
                    [],
                    [],
                )
        with pytest.raises(RuntimeError, match="ERR_FILE_NOT_FOUND"), browser.page(picture):
            pass


def test_where_it_is_required_a_missing_browser_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("FMNES_BROWSER", "required")
    with pytest.raises(pytest.fail.Exception, match="apt-get install chromium"):
        need_browser()
    monkeypatch.delenv("FMNES_BROWSER")
    with pytest.raises(pytest.skip.Exception, match="apt-get install chromium"):
        need_browser()
    assert "export FMNES_BROWSER=required\n" in (ROOT / ".ci" / "run").read_text()
