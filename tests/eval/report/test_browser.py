"""What the page does in Chromium; skipped where it is not installed."""

import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from galaxydit.eval.jobs.record import VideoRecord
from galaxydit.eval.report.page import write_page
from galaxydit.eval.report.read_run import read_run
from galaxydit.pipelines.page_design import Brief, render_page
from galaxydit.pipelines.table import Table

TIMES = "return [...arguments[0].querySelectorAll('video')].map((video) => video.currentTime)"
READY = "return [...arguments[0].querySelectorAll('video')].every((video) => video.readyState >= 2)"


def open_report(browser: Any, root: Path, embed: bool = True) -> None:
    browser.get(write_page(read_run(root), root / "report.html", embed).resolve().as_uri())


def see(browser: Any, place: int) -> Any:
    """The row at this place, scrolled to, its videos loaded."""
    row = rows(browser)[place]
    browser.execute_script("arguments[0].scrollIntoView()", row)
    wait_until(lambda: browser.execute_script(READY, row))
    return row


def rows(browser: Any) -> list[Any]:
    return [row for row in browser.find_elements("css selector", "#prompts tbody") if row.is_displayed()]


def column(browser: Any, table: str, place: int) -> list[str]:
    """The texts of one column as the table shows them."""
    return browser.execute_script(
        "return [...document.querySelectorAll(arguments[0] + ' tbody:not([hidden]) > tr')]"
        ".filter((row) => row.cells.length > 1).map((row) => row.cells[arguments[1]].textContent.trim())",
        table,
        place,
    )


def headings(browser: Any, table: str) -> dict[str, Any]:
    cells = browser.find_elements("css selector", f"{table} thead th")
    return {cell.find_element("css selector", "span").text.rstrip("\u00a0↕↑↓"): cell for cell in cells}


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "nothing happened within a minute"
        time.sleep(0.05)


def complaints(browser: Any) -> list[str]:
    return [entry["message"] for entry in browser.get_log("browser")]


@pytest.mark.parametrize("embed", [True, False])
def test_it_plays_all_videos_of_a_row_together(browser: Any, run_of: Callable[..., Path], embed: bool) -> None:
    open_report(browser, run_of(["a", "b"]), embed)
    row = see(browser, 0)
    button = row.find_element("css selector", ".play")
    button.click()
    # A loop takes 2 seconds: a time that falls has come round.
    before = browser.execute_script(TIMES, row)
    wait_until(lambda: all(now != then for now, then in zip(browser.execute_script(TIMES, row), before, strict=True)))
    wait_until(lambda: max(times := browser.execute_script(TIMES, row)) - min(times) < 0.1 and min(times) > 0.2)
    assert button.get_attribute("aria-pressed") == "true"
    assert browser.execute_script("return [...document.querySelectorAll('video')].every((video) => video.muted)")
    button.click()
    assert browser.execute_script(
        "return [...arguments[0].querySelectorAll('video')].every((video) => video.paused)", row
    )
    assert complaints(browser) == []


@pytest.mark.parametrize("embed", [True, False])
def test_one_sound_of_the_page_is_heard_at_a_time_while_the_videos_stay_in_step(
    browser: Any, run_of: Callable[..., Path], embed: bool
) -> None:
    open_report(browser, run_of(["a", "b"], sound=True), embed)
    row = see(browser, 0)
    pictures = row.find_elements("css selector", "img.spectrogram")
    assert [picture.get_attribute("naturalHeight") for picture in pictures] == ["80"] * 4
    assert pictures[1].get_attribute("alt") == "spectrogram of galaxydit-2x, 2.00 s, 0 to 8 kHz"
    first, second = row.find_elements("css selector", ".listen")[:2]
    muted = "return [...document.querySelectorAll('video')].map((video) => video.muted)"
    first.click()
    wait_until(lambda: browser.execute_script(TIMES, row)[0] > 0.2)
    assert browser.execute_script(muted).count(False) == 1
    second.click()
    assert browser.execute_script(muted)[:2] == [True, False]
    assert [button.get_attribute("aria-pressed") for button in (first, second)] == ["false", "true"]
    wait_until(lambda: max(times := browser.execute_script(TIMES, row)) - min(times) < 0.1)
    see(browser, 1).find_elements("css selector", ".listen")[2].click()
    assert browser.execute_script(muted).count(False) == 1
    assert browser.execute_script(muted)[6] is False
    assert complaints(browser) == []


def test_the_value_that_is_farthest_from_the_best_one_is_the_worst(browser: Any, run_of: Callable[..., Path]) -> None:
    ratios = {"a": (1.02, 1.01), "b": (2.0, 0.9), "c": (0.7, 1.1)}

    def change(record: VideoRecord) -> VideoRecord:
        if record.variant == "baseline":
            return replace(record, metrics={})
        is_fast = record.variant == "fast"
        return replace(record, metrics={"rms_ratio": ratios[record.prompt][is_fast]})

    open_report(browser, run_of([*ratios], change, variants={"baseline": 1.0, "slow": 2.0, "fast": 3.0}))
    place = list(headings(browser, "#prompts")).index("RMS ratio")
    assert column(browser, "#prompts", 0) == ["b", "c", "a"]
    assert column(browser, "#prompts", place) == ["2.0000", "0.7000", "1.0200"]
    assert "farthest from 1" in headings(browser, "#prompts")["RMS ratio"].text
    assert "RMS ratio, best at 1" in browser.find_element("id", "plot").text
    assert complaints(browser) == []


def test_a_page_without_sound_has_no_buttons_for_it(browser: Any, run_of: Callable[..., Path]) -> None:
    open_report(browser, run_of(["a"]))
    assert not browser.find_elements("css selector", ".listen, .spectrogram")
    assert "Listen" not in browser.find_element("id", "playing-hint").text


def test_a_video_that_lags_is_brought_back(browser: Any, run_of: Callable[..., Path]) -> None:
    open_report(browser, run_of(["a"]))
    row = see(browser, 0)
    row.find_element("css selector", ".play").click()
    wait_until(lambda: browser.execute_script(TIMES, row)[0] > 0.2)
    browser.execute_script("arguments[0].querySelectorAll('video')[2].currentTime += 0.7", row)
    wait_until(lambda: max(times := browser.execute_script(TIMES, row)) - min(times) < 0.1)


def test_the_space_key_plays_the_row_in_focus_and_the_slider_moves_all_videos(
    browser: Any, run_of: Callable[..., Path]
) -> None:
    from selenium.webdriver.common.keys import Keys

    open_report(browser, run_of(["a", "b"]))
    row = see(browser, 1)
    slider = row.find_element("css selector", "input[type=range]")
    slider.send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    wait_until(lambda: browser.execute_script(TIMES, row) == [2.5 / 8] * 4)
    assert row.find_element("css selector", ".frame").text == "3 of 16"
    slider.send_keys(Keys.SPACE)
    wait_until(lambda: min(browser.execute_script(TIMES, row)) > 0.6)
    browser.switch_to.active_element.send_keys(Keys.SPACE)
    assert row.find_element("css selector", ".play").get_attribute("aria-pressed") == "false"


def test_every_column_sorts_both_ways_and_says_so(browser: Any, run_of: Callable[..., Path]) -> None:
    open_report(browser, run_of([f"prompt {index}" for index in range(5)]))
    for table in ("#prompts", "#summary"):
        for place, (name, cell) in enumerate(headings(browser, table).items()):
            button = cell.find_element("css selector", "button")
            orders = {}
            for _ in range(2):
                button.click()
                orders[cell.get_attribute("aria-sort")] = column(browser, table, place)
            assert set(orders) == {"ascending", "descending"}, name
            for order, texts in orders.items():
                # The summary's variants keep the order of the job, and its cells hold intervals below the mean.
                numbers = [float(text.rstrip(" x%")) for text in texts if text.rstrip(" x%").replace(".", "").isdigit()]
                assert numbers == sorted(numbers, reverse=order == "descending"), name
            assert len(browser.find_elements("css selector", f"{table} th[aria-sort]")) == 1
    assert complaints(browser) == []


def test_the_worst_row_is_first_and_a_failed_one_before_it(
    browser: Any, run_of: Callable[..., Path], failing: Callable[[VideoRecord], VideoRecord]
) -> None:
    def change(record: VideoRecord) -> VideoRecord:
        return failing(record) if record.unit.startswith("00002") and record.variant == "half-steps" else record

    open_report(browser, run_of([f"prompt {index}" for index in range(5)], change))
    assert column(browser, "#prompts", 0)[0] == "prompt 2 failed"
    place = list(headings(browser, "#prompts")).index("PSNR, dB")
    worst = [float(text) for text in column(browser, "#prompts", place)[1:]]
    assert worst == sorted(worst)
    row = rows(browser)[0]
    row.find_element("css selector", "details summary").click()
    assert "out of memory <script>alert(1)</script>" in row.find_element("css selector", "pre").text
    browser.find_element("id", "filter-failed").click()
    assert column(browser, "#prompts", 0) == ["prompt 2 failed"]


def test_text_variant_and_threshold_filter_the_rows(browser: Any, run_of: Callable[..., Path]) -> None:
    from selenium.webdriver.common.keys import Keys

    open_report(browser, run_of(["a red ball", "a blue ball", "a red cube"]))
    count = browser.find_element("id", "filter-count")
    text = browser.find_element("id", "filter-text")
    text.send_keys("RED")
    wait_until(lambda: count.text == "2 of 3 rows")
    assert sorted(column(browser, "#prompts", 0)) == ["a red ball", "a red cube"]
    text.send_keys(Keys.CONTROL + "a", Keys.DELETE)
    wait_until(lambda: count.text == "3 of 3 rows")
    place = list(headings(browser, "#prompts")).index("PSNR, dB")
    values = sorted(float(each) for each in column(browser, "#prompts", place))
    limit = browser.find_element("id", "filter-limit")
    limit.send_keys(f"{(values[0] + values[1]) / 2:.2f}")
    wait_until(lambda: count.text == "1 of 3 rows")
    assert [float(each) for each in column(browser, "#prompts", place)] == values[:1]
    limit.send_keys(Keys.CONTROL + "a", Keys.DELETE)
    wait_until(lambda: count.text == "3 of 3 rows")
    browser.find_element("css selector", "#filter-variants input[value='2']").click()  # galaxydit-3x, the worst
    assert min(float(each) for each in column(browser, "#prompts", place)) > values[0]
    assert (
        len([figure for figure in rows(browser)[0].find_elements("css selector", "figure") if figure.is_displayed()])
        == 3
    )


def test_many_rows_are_shown_in_pages_in_the_order_of_the_columns(browser: Any, run_of: Callable[..., Path]) -> None:
    from selenium.webdriver.common.keys import Keys

    variants = {"baseline": 1.0, "fast": 2.0}
    open_report(browser, run_of([f"prompt {index:02d}" for index in range(45)], variants=variants), embed=False)
    place = list(headings(browser, "#prompts")).index("PSNR, dB")
    count = browser.find_element("id", "filter-count")
    seen = []
    for shown in ("1 to 20", "21 to 40", "41 to 45"):
        assert count.text == f"45 of 45 rows, {shown} on this page"
        seen += [float(value) for value in column(browser, "#prompts", place)]
        next_page = browser.find_elements("css selector", ".pager button")[1]
        next_page.click()
    assert seen == sorted(seen)
    assert len(seen) == 45
    assert not next_page.is_enabled()
    number = browser.find_element("css selector", ".pager input")
    number.send_keys(Keys.CONTROL + "a")
    number.send_keys("2", Keys.TAB)
    assert count.text.endswith("21 to 40 on this page")
    browser.find_element("id", "filter-text").send_keys("prompt 1")
    assert count.text == "10 of 45 rows"
    assert not browser.find_element("css selector", ".pager").is_displayed()
    assert complaints(browser) == []


def test_thumbnails_are_there_before_the_videos(browser: Any, run_of: Callable[..., Path]) -> None:
    open_report(browser, run_of(["a", "b"]), embed=False)
    posters = "return [...document.querySelectorAll('video')].map((video) => video.poster)"
    assert all(poster.endswith(".thumbnail.jpg") for poster in browser.execute_script(posters))
    loads = "return new Promise((done) => {const image = new Image(); image.onload = () => done(true); "
    loads += "image.onerror = () => done(false); image.src = document.querySelector('video').poster})"
    assert browser.execute_script(loads), "the content security policy allows them"
    assert complaints(browser) == []


def test_prompts_are_shown_as_text_to_the_letter(
    browser: Any, run_of: Callable[..., Path], nasty: tuple[str, ...]
) -> None:
    open_report(browser, run_of(nasty))
    shown = browser.execute_script(
        "return [...document.querySelectorAll('#prompts tbody th')].map((cell) => cell.firstChild.textContent)"
    )
    assert sorted(shown) == sorted(nasty)
    assert browser.title == "Evaluation of x"
    assert not browser.find_elements("css selector", "img, iframe")
    assert complaints(browser) == []


def test_nothing_is_loaded_but_the_page_and_the_videos_near_the_screen(
    browser: Any, run_of: Callable[..., Path]
) -> None:
    open_report(browser, run_of([f"prompt {index}" for index in range(20)]), embed=False)
    first = see(browser, 0)
    with_source = browser.find_elements("css selector", "video[src]")
    assert 4 <= len(with_source) <= 5 * 4
    addresses = browser.execute_script("return performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert not [address for address in addresses if address.startswith("http")]
    browser.execute_script("window.scrollTo(0, document.body.scrollHeight)")
    wait_until(lambda: not first.find_elements("css selector", "video[src]"))


def test_the_plot_has_a_titled_point_for_each_variant_and_follows_the_choice(
    browser: Any, run_of: Callable[..., Path]
) -> None:
    from selenium.webdriver.support.ui import Select

    open_report(browser, run_of(["a", "b", "c"]))
    titles = browser.execute_script(
        "return [...document.querySelectorAll('#plot title')].map((each) => each.textContent)"
    )
    assert len(titles) == 3
    assert all(title.startswith(("galaxydit-2x: denoise speedup", "galaxydit-3x:", "half-steps:")) for title in titles)
    assert "PSNR" in titles[0]
    Select(browser.find_element("id", "plot-metric")).select_by_visible_text("SSIM")
    assert "SSIM" in browser.find_element("css selector", "#plot svg").get_attribute("aria-label")


def test_names_in_the_plot_end_within_it(browser: Any, run_of: Callable[..., Path]) -> None:
    names = {"baseline": 1.0, "galaxydit WWWW, cache_interval 2, max_order 0": 2.0, f"half {'WM' * 60}": 2.1}
    open_report(browser, run_of(["a"], variants=names))
    outside = browser.execute_script(
        "return [...document.querySelectorAll('#plot .name')].filter((each) => { const box = each.getBBox(); return "
        "box.x < 0 || box.x + box.width > each.ownerSVGElement.viewBox.baseVal.width }).map((each) => each.textContent)"
    )
    assert outside == []


def test_long_prompts_are_clamped_and_open_on_request(browser: Any, run_of: Callable[..., Path]) -> None:
    open_report(browser, run_of(["a ball", "a very long caption " * 40]))
    (button,) = browser.find_elements("css selector", "button.more")
    prompt = button.find_element("xpath", "preceding-sibling::div")
    assert prompt.size["height"] < 100
    button.click()
    assert prompt.size["height"] > 100
    assert (button.text, button.get_attribute("aria-expanded")) == ("less", "true")


def test_on_a_phone_videos_are_stacked_figures_are_seen_and_labels_of_the_plot_keep_their_size(
    browser: Any, run_of: Callable[..., Path]
) -> None:
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
    )
    try:
        open_report(browser, run_of(["a"]))
        places = [figure.rect for figure in browser.find_elements("css selector", "figure")]
        assert len({place["x"] for place in places}) == 1
        assert all(250 < place["width"] <= 390 for place in places)
        cells = [cell.rect for cell in browser.find_elements("css selector", "#summary td")]
        assert all(place["x"] + place["width"] <= 390 for place in cells)
        script = "const svg = document.querySelector('#plot svg'); return svg.clientWidth / svg.viewBox.baseVal.width"
        assert browser.execute_script(script) > 0.9
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.parametrize("dark", [False, True])
def test_nothing_of_the_design_is_cut_on_a_phone_and_a_wide_table_scrolls_in_its_box(
    browser: Any, tmp_path: Path, dark: bool
) -> None:
    table = Table([f"heading {column}" for column in range(20)], [["a cell"] * 20])
    template = '{% extends "base.html" %}{% block main %}{{ box(table, "wide") }}{% endblock %}'
    brief = Brief("x" * 200, "y " * 200, "see", "galaxydit eval report " + "z" * 200)
    (tmp_path / "a.html").write_text(render_page(template, "w" * 200, brief, table=table, facts=[("n" * 60, "v" * 90)]))
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    phone = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    try:
        browser.get((tmp_path / "a.html").as_uri())
        cut = "return [...document.querySelectorAll('body :not(.scroll *, .skip)')].filter("
        cut += "(each) => each.getBoundingClientRect().right > innerWidth + 1).map((each) => each.tagName)"
        assert browser.execute_script(cut) == []
        box = browser.find_element("css selector", ".scroll")
        assert browser.execute_script("return arguments[0].scrollWidth > arguments[0].clientWidth", box)
        paper = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
        assert (paper == "rgb(255, 255, 255)") is not dark
        assert complaints(browser) == []
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        light = {"name": "prefers-color-scheme", "value": "light"}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [light]})


@pytest.mark.parametrize("load", [0.5, 9.0])
def test_disturbed_seconds_are_drawn_hollow_and_the_legend_says_so(
    browser: Any, run_of: Callable[..., Path], load: float
) -> None:
    open_report(browser, run_of(["a", "b"], lambda record: replace(record, load=load)))
    is_disturbed = load > 1.5
    assert len(browser.find_elements("css selector", "#plot .point.disturbed")) == 3 * is_disturbed
    assert ("seconds disturbed by other work" in browser.find_element("id", "plot-legend").text) is is_disturbed
    assert bool(browser.find_elements("css selector", "#summary td.disturbed")) is is_disturbed


def test_decisions_are_drawn_and_told(browser: Any, run_of: Callable[..., Path]) -> None:
    open_report(browser, run_of(["a"]))
    timeline = browser.find_element("css selector", "svg.timeline")
    assert timeline.get_attribute("aria-label").startswith("10 of 20 steps reused: 2, ")
    assert len(browser.find_elements("css selector", "svg.timeline")) == 2


def test_the_tab_key_reaches_everything_in_reading_order_and_shows_where_it_is(
    browser: Any, run_of: Callable[..., Path]
) -> None:
    from selenium.webdriver.common.keys import Keys

    open_report(browser, run_of(["a"]))
    reached = []
    for _ in range(40):
        browser.switch_to.active_element.send_keys(Keys.TAB)
        element = browser.switch_to.active_element
        if element.tag_name == "body":
            break
        assert browser.execute_script("return getComputedStyle(arguments[0]).outlineStyle", element) == "solid"
        reached.append(element)
    tops = [element.location["y"] for element in reached]
    assert all(after > before - 60 for before, after in pairwise(tops)), "what stands in one row may differ in height"
    kinds = {element.get_attribute("id") or element.get_attribute("class") or element.tag_name for element in reached}
    assert {"button", "plot-metric", "filter-text", "filter-metric", "filter-limit", "play"} <= kinds
