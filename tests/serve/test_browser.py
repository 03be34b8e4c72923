"""The page in a real browser, as a new user would use it."""

import json
import re
import shutil

import pytest

pytest.importorskip("playwright")
from playwright.sync_api import expect, sync_playwright

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed; 'make browser' gets one")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=BROWSER, args=FLAGS)
        yield found
        found.close()


@pytest.fixture(params=[(1400, 900), (390, 844)], ids=["desktop", "phone"])
def page(browser, address, request):
    width, height = request.param
    context = browser.new_context(viewport={"width": width, "height": height}, accept_downloads=True)
    page = context.new_page()
    page.problems, page.hosts = [], set()
    page.on("pageerror", lambda error: page.problems.append(str(error)))
    page.on("console", lambda line: page.problems.append(line.text) if line.type == "error" else None)
    page.on("request", lambda sent: page.hosts.add(sent.url.split("/")[2]))
    page.goto(address)
    page.wait_for_selector("body[data-ready]")
    yield page
    assert page.problems == []
    assert page.hosts == {address.split("/")[2]}
    context.close()


def cell(page, x, y):
    return page.locator(f'#maze-0 g[data-x="{x}"][data-y="{y}"]')


def test_edit_plan_scrub_run_and_restore(page, tmp_path):
    # Load a maze, and write a mission that cannot be done in it.
    page.fill("#seed", "2001")
    page.click("#load-maze")
    expect(page.locator("#mission")).to_have_value("go to the yellow ball")
    expect(page.locator("#check")).to_have_text("This maze can be solved.")
    page.fill("#mission", "go to the green box")
    page.press("#mission", "Enter")
    page.wait_for_selector("#check.bad")
    assert page.is_disabled("#plan")
    # Draw the box that the mission names.
    page.click('button[data-tool="box"]')
    page.select_option("#color", "G")
    cell(page, 4, 7).click()
    expect(page.locator("#check")).to_have_text("This maze can be solved.")
    # Plan, and move through the iterations.
    page.fill("#num-candidates", "3")
    page.click("#plan")
    page.wait_for_selector("#tokens li")
    expect(page.locator("#tokens li.committed")).to_have_count(10)
    page.fill("#iteration", "0")
    assert page.locator("#tokens li.committed").count() == 0
    assert page.locator("#candidate-list button").count() == 3
    page.locator("#candidate-list button").nth(1).click()
    assert page.locator('#candidate-list button[aria-pressed="true"]').count() == 1
    # Two planners side by side on the same maze.
    page.select_option("#compare", "pretrained:MazeS4G1-uniform")
    page.click("#plan")
    expect(page.locator("#maze-1 .path").first).to_be_visible()
    # Run it and the expert, to success.
    page.select_option("#compare", "expert")
    page.click("#run")
    page.fill("#speed", "20")
    expect(page.locator("#caption-0")).to_have_text(re.compile("^solved after"), timeout=60_000)
    assert "the expert needs" in page.inner_text("#caption-0")
    expect(page.locator("#caption-1")).to_have_text(re.compile("^solved after"), timeout=60_000)
    page.click("#back")
    assert page.inner_text("#caption-0").startswith("step") or page.inner_text("#caption-1").startswith("step")
    with page.expect_download() as saved:
        page.click("#json")
    kept = json.loads(saved.value.path().read_text())
    assert [request["planner"] for request in kept["requests"]] == ["pretrained:MazeS4G1", "expert"]
    with page.expect_download() as saved:
        page.click("#gif")
    assert saved.value.path().read_bytes().startswith(b"GIF8")
    # The link restores everything.
    link = page.url
    page.goto("about:blank")
    page.goto(link)
    page.wait_for_selector("body[data-ready]")
    assert page.input_value("#mission") == "go to the green box"
    assert page.input_value("#compare") == "expert"
    assert page.input_value("#num-candidates") == "3"
    assert cell(page, 4, 7).text_content() == "G"  # the box that was drawn
    page.screenshot(path=str(tmp_path / "page.png"), full_page=True)


def test_what_the_actions_do_is_drawn_where_it_differs_and_what_is_behind_the_arrival_is_grey(page):
    altered = {}

    def alter(route):
        response = route.fetch()
        plan = response.json()
        candidate = plan["candidates"][plan["selected"]]
        states = candidate["frames"][-1]["states"]
        candidate.update(executed=states[: altered["holds"]] + states[:1], arrival=altered["arrival"])
        route.fulfill(response=response, json=plan)

    def count(selector):
        return page.locator(selector).count()

    page.route("**/api/plan", alter)
    for holds, arrival, apart, behind in ((0, None, 0, 0), (0, 2, 0, 7), (9, None, 1, 0), (9, 2, 1, 7)):
        altered.update(holds=holds, arrival=arrival)
        page.click("#plan")
        expect(page.locator("#tokens li.committed")).to_have_count(10)
        expect(page.locator("#caption-0 .legend")).to_have_count(apart + bool(behind))
        assert count("#maze-0 circle.executed") == count("#caption-0 .legend.executed") == apart
        assert count("#maze-0 circle.behind") == behind
        assert count("#tokens li.behind") == (8 if behind else 0)
        page.fill("#iteration", "0")
        assert count(".legend, #maze-0 .executed, #maze-0 circle.behind, #tokens li.behind") == 0
    # In an episode, one step before its end.
    page.click("#run")
    expect(page.locator("#caption-0")).to_have_text(re.compile("^solved after"), timeout=60_000)
    assert count("#caption-0 .legend") == 0
    page.click("#back")
    assert count("#maze-0 circle.dot:not(.behind)") <= 1


def test_landscape_keyboard_and_training(page):
    page.click("#landscape")
    expect(page.locator("#landscape")).to_have_attribute("aria-pressed", "true")
    cell(page, 1, 1).click()  # where the cursor is from now on
    expect(page.locator("#message")).to_contain_text("sub-goal at 1, 1")
    page.click("#landscape")
    # Draw with the keyboard alone.
    page.click('button[data-tool="wall"]')
    page.locator("#maze-0 svg").focus()
    for _ in range(2):
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowDown")
    assert "column 3, row 3" in page.inner_text("#message")
    page.keyboard.press("Enter")
    page.select_option("#training", "runs/mine")
    page.wait_for_selector("#curves svg")
    assert "step 150" in page.inner_text("#progress")
    page.click("#use-run")
    expect(page.locator("#tokens li.committed")).to_have_count(10)
    assert page.input_value("#planner") == "runs/mine"
    wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide <= 0  # nothing sticks out, however narrow the window


def test_a_response_that_comes_too_late_is_dropped(page):
    page.route("**/api/plan", lambda route: (page.wait_for_timeout(300), route.continue_()))
    page.click("#plan")
    page.fill("#seed", "2002")
    page.click("#load-maze")
    page.wait_for_timeout(1500)
    assert page.locator("#maze-0 .path").count() == 0
    assert page.is_hidden("#plan-view")


def test_the_agent_turns_and_bad_links_are_refused(page):
    page.click('button[data-tool="agent"]')
    before = page.locator("#maze-0 .agent").last.get_attribute("transform")
    page.locator("#maze-0 .agent").last.click(force=True)
    expect(page.locator("#maze-0 .agent").last).not_to_have_attribute("transform", before)
    page.locator('button[data-tool="key"]').focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.dataset.tool") == "key"  # and keeps the focus
    page.evaluate("location.hash = 'nonsense'")
    expect(page.locator("#message")).to_contain_text("cannot be read")


def test_changed_settings_replay_the_episode_and_pause_pauses(page):
    page.click("#run")
    expect(page.locator("#play")).to_have_text("Pause", timeout=30_000)
    with page.expect_response("**/api/episode"):
        page.fill("#temperature", "0.4")
        page.press("#temperature", "Enter")
    expect(page.locator("#play")).to_have_text("Pause", timeout=30_000)
    page.click("#play")
    step = page.input_value("#step")
    page.wait_for_timeout(700)
    assert page.input_value("#step") == step
    # The landscape is that of the current step, and the episode stays.
    page.click("#landscape")
    expect(page.locator("#landscape")).to_have_attribute("aria-pressed", "true")
    assert page.input_value("#step") == step
    assert page.is_visible("#player")
    page.click("#forward")
    expect(page.locator("#landscape")).to_have_attribute("aria-pressed", "false")
