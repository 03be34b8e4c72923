"""The page in a real browser, as somebody new to it would use it."""

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
    return page.locator(f'#board-0 g[data-x="{x}"][data-y="{y}"]')


def test_edit_plan_scrub_run_and_restore(page, tmp_path):
    # Take a maze, close it in, and be told that it cannot be done.
    page.fill("#seed", "2001")
    page.click("#new-maze")
    expect(page.locator("#mission")).to_have_value("go to the yellow ball")
    expect(page.locator("#verdict")).to_have_text("This can be done.")
    page.fill("#mission", "go to the green box")
    page.press("#mission", "Enter")
    page.wait_for_selector("#verdict.bad")
    assert page.is_disabled("#plan")
    # Draw the box that the mission names.
    page.click('button[data-tool="box"]')
    page.select_option("#colour", "G")
    cell(page, 4, 7).click()
    expect(page.locator("#verdict")).to_have_text("This can be done.")
    # Watch a plan take shape, and scrub through it.
    page.fill("#candidates", "3")
    page.click("#plan")
    page.wait_for_selector("#tokens li")
    expect(page.locator("#tokens li.settled")).to_have_count(10)
    page.fill("#iteration", "0")
    assert page.locator("#tokens li.settled").count() == 0
    assert page.locator("#candidate-list button").count() == 3
    page.locator("#candidate-list button").nth(1).click()
    assert page.locator('#candidate-list button[aria-pressed="true"]').count() == 1
    # Two planners side by side on the same maze.
    page.select_option("#other", "pretrained:MazeS4G1-uniform")
    page.click("#plan")
    expect(page.locator("#board-1 .path").first).to_be_visible()
    # Run it beside the bot, to success.
    page.select_option("#other", "bot")
    page.click("#run")
    page.fill("#speed", "20")
    expect(page.locator("#told-0")).to_have_text(re.compile("^done after"), timeout=60_000)
    assert "the bot needs" in page.inner_text("#told-0")
    expect(page.locator("#told-1")).to_have_text(re.compile("^done after"), timeout=60_000)
    page.click("#back")
    assert page.inner_text("#told-0").startswith("step") or page.inner_text("#told-1").startswith("step")
    with page.expect_download() as saved:
        page.click("#json")
    kept = json.loads(saved.value.path().read_text())
    assert [request["planner"] for request in kept["requests"]] == ["pretrained:MazeS4G1", "bot"]
    with page.expect_download() as saved:
        page.click("#gif")
    assert saved.value.path().read_bytes().startswith(b"GIF8")
    # The link brings everything back.
    link = page.url
    page.goto("about:blank")
    page.goto(link)
    page.wait_for_selector("body[data-ready]")
    assert page.input_value("#mission") == "go to the green box"
    assert page.input_value("#other") == "bot"
    assert page.input_value("#candidates") == "3"
    assert cell(page, 4, 7).text_content() == "G"  # the box that was drawn
    page.screenshot(path=str(tmp_path / "page.png"), full_page=True)


def test_landscape_keyboard_and_training(page):
    page.click("#landscape")
    expect(page.locator("#landscape")).to_have_attribute("aria-pressed", "true")
    cell(page, 1, 1).click()  # where the cursor is from now on
    expect(page.locator("#message")).to_contain_text("sub-goal at 1, 1")
    page.click("#landscape")
    # Draw with the keyboard alone.
    page.click('button[data-tool="wall"]')
    page.locator("#board-0 svg").focus()
    for _ in range(2):
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowDown")
    assert "column 3, row 3" in page.inner_text("#message")
    page.keyboard.press("Enter")
    page.select_option("#training", "runs/mine")
    page.wait_for_selector("#curves svg")
    assert "step 150" in page.inner_text("#progress")
    page.click("#use-run")
    expect(page.locator("#tokens li.settled")).to_have_count(10)
    assert page.input_value("#planner") == "runs/mine"
    wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide <= 0  # nothing sticks out, however narrow the window


def test_an_answer_that_comes_too_late_is_not_shown(page):
    page.route("**/api/plan", lambda route: (page.wait_for_timeout(300), route.continue_()))
    page.click("#plan")
    page.fill("#seed", "2002")
    page.click("#new-maze")
    page.wait_for_timeout(1500)
    assert page.locator("#board-0 .path").count() == 0
    assert page.is_hidden("#plan-view")


def test_the_agent_turns_and_bad_links_are_told(page):
    page.click('button[data-tool="agent"]')
    before = page.locator("#board-0 .agent").last.get_attribute("transform")
    page.locator("#board-0 .agent").last.click(force=True)
    expect(page.locator("#board-0 .agent").last).not_to_have_attribute("transform", before)
    page.locator('button[data-tool="key"]').focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.dataset.tool") == "key"  # and keeps the focus
    page.evaluate("location.hash = 'nonsense'")
    expect(page.locator("#message")).to_contain_text("cannot be read")


def test_settings_that_change_play_the_episode_anew_and_pause_pauses(page):
    page.click("#run")
    expect(page.locator("#play")).to_have_text("Pause", timeout=30_000)
    with page.expect_response("**/api/episode"):
        page.fill("#temperature", "0.4")
        page.press("#temperature", "Enter")
    expect(page.locator("#play")).to_have_text("Pause", timeout=30_000)
    page.click("#play")
    moment = page.input_value("#moment")
    page.wait_for_timeout(700)
    assert page.input_value("#moment") == moment
    # The landscape is that of the moment, and does not throw the episode away.
    page.click("#landscape")
    expect(page.locator("#landscape")).to_have_attribute("aria-pressed", "true")
    assert page.input_value("#moment") == moment
    assert page.is_visible("#player")
    page.click("#forward")
    expect(page.locator("#landscape")).to_have_attribute("aria-pressed", "false")
