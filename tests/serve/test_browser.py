"""The page in a real browser, as a new user would use it."""

import json
import re
import shutil

import numpy as np
import pytest

pytest.importorskip("playwright")
from playwright.sync_api import expect, sync_playwright

from genplan import tasks

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


@pytest.fixture
def board(page, address, pusht):
    """The page of PushT, with a planner that has been chosen."""
    page.click("nav a:not([aria-current])")
    page.wait_for_url("**/pusht.html*")
    page.wait_for_selector("body[data-ready]")
    page.select_option("#planner", pusht)
    return page


def drag(page, selector, dx, dy):
    page.locator(selector).scroll_into_view_if_needed()
    box = page.locator(selector).bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + dx / 2, y + dy / 2)
    page.mouse.move(x + dx, y + dy)
    page.mouse.up()


def start(page):
    """The state that the address says: x and y of the agent, x, y and angle of the block."""
    fields = dict(field.split("=") for field in page.evaluate("location.hash.slice(1)").split("&"))
    return [float(number) for number in fields["start"].split("%2C")]


def test_pusht_is_dragged_planned_run_scrubbed_and_restored(board, tmp_path):
    page = board
    assert page.locator("#planner option").count() == 3  # none of mazes
    before = start(page)
    drag(page, ".disk", 20, -20)
    after = start(page)
    assert after[0] > before[0] + 10
    assert after[1] < before[1] - 10
    assert after[2:] == before[2:]
    drag(page, ".handle", 60, 60)
    assert abs(start(page)[4] - after[4]) > 0.1
    # The plan, the candidates of it and of others; and again when the block is moved.
    page.fill("#num-candidates", "2")
    page.fill("#samples", "3")
    page.click("#plan")
    expect(page.locator("#candidate-list button")).to_have_count(6)
    expect(page.locator("#board .other")).to_have_count(6)  # when the last call is shown
    assert page.locator("#board .dot").count() == 8
    page.fill("#iteration", "0")
    assert page.locator("#board .other").count() == 0
    page.locator("#candidate-list button").nth(5).click()
    assert page.locator('#candidate-list button[aria-pressed="true"]').count() == 1
    with page.expect_response("**/api/pusht/plan"):
        drag(page, ".disk", -15, 10)
    # An episode, its coverage, and pauses.
    page.click("#run")
    expect(page.locator("#play")).to_have_text("Pause", timeout=60_000)
    page.click("#play")
    page.fill("#step", "120")
    expect(page.locator("#caption")).to_have_text(re.compile("^step 120 of 300: coverage .* %, maximum so far .* %"))
    expect(page.locator("#coverage svg")).to_be_visible()
    page.click("#forward")
    expect(page.locator("#caption")).to_contain_text("step 121 of 300")
    page.screenshot(path=str(tmp_path / "pusht.png"), full_page=True)
    wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide <= 0
    # The link restores everything.
    link, kept = page.evaluate("location.href"), start(page)
    page.goto("about:blank")
    page.goto(link)
    page.wait_for_selector("body[data-ready]")
    assert start(page) == kept
    assert page.input_value("#samples") == "3"
    assert page.input_value("#planner").startswith("pusht/")


def test_pusht_by_keyboard_alone_and_what_is_refused(board):
    page, before = board, start(board)
    page.locator("[data-part='agent']").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Shift+ArrowDown")
    page.locator("[data-part='block']").focus()
    page.keyboard.press("e")
    page.keyboard.press("ArrowUp")
    after = start(page)
    assert after[0] - before[0] == pytest.approx(8, abs=0.01)
    assert after[1] - before[1] == pytest.approx(1, abs=0.01)
    assert abs(after[4] - before[4]) == pytest.approx(5 * 3.14159 / 180, abs=0.01)
    # A plan that is shown follows, also where the next key comes before it.
    page.click("#plan")
    expect(page.locator("#candidate-list button")).to_have_count(8)
    page.locator("[data-part='agent']").focus()
    for _ in range(5):
        page.keyboard.press("ArrowLeft")
    expect(page.locator("#plan-view")).to_be_hidden()
    expect(page.locator("#candidate-list button").first).to_be_visible()
    assert page.evaluate("document.activeElement.dataset.part") == "agent"
    page.route("**/api/pusht/plan", lambda route: route.fulfill(status=422, json={"detail": "install the robots"}))
    page.click("#plan")
    expect(page.locator("#message")).to_have_text("install the robots")
    page.problems.clear()  # what the browser says of the refusal


def test_the_drawn_block_and_its_place_are_the_simulators(board):
    env = tasks.get("PushT").make_env()
    env.reset(seed=0)
    corners = {(round(x), round(y)) for shape in env.simulator.block.shapes for x, y in shape.get_vertices()}
    numbers = [int(number) for number in board.locator(".tee").get_attribute("points").replace(" ", ",").split(",")]
    assert set(zip(numbers[::2], numbers[1::2], strict=True)) == corners
    x, y, angle = env.simulator.goal_pose
    expected = f"translate({x:.0f} {y:.0f}) rotate({np.degrees(angle):.0f})"
    assert board.locator(".place").get_attribute("transform") == expected


def test_a_run_on_pusht_is_followed_from_the_page_of_mazes_and_planned_on_its_own(page, pusht):
    assert page.locator(f'#planner option[value="{pusht}"]').count() == 0
    page.reload()
    page.wait_for_selector("body[data-ready]")
    page.select_option("#training", pusht)
    expect(page.locator("#progress")).to_contain_text("PushT: step")
    page.click("#use-run")
    page.wait_for_url("**/pusht.html*")
    page.wait_for_selector("body[data-ready]")
    assert page.input_value("#planner") == pusht
