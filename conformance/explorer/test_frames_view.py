"""The explorer's frames in a real browser: live, by filter, by permalink, by keyboard, in light and dark."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from playwright.sync_api import Browser, expect

from conformance.explorer.browsing import WAIT_MS, Explorer, chromium, inaccessible
from minibroker.testing import Broker
from minibroker.testing.seen.exchange import Exchange

HOSTILE = b"<img src=x onerror=alert(1)><script>alert(2)</script>\xe2\x80\xae\x1b[31m\xff"
MANY = 20_000
expect.set_options(timeout=WAIT_MS)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(explorer=True) as broker:
        broker.create_topic("orders", 2)
        produce(broker, HOSTILE)
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "billing"})
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce("orders", b"paid", partition=1)
        producer.commit_transaction()
        yield broker


@pytest.fixture(params=["light", "dark"])
def both(browser: Browser, broker: Broker, request: pytest.FixtureRequest) -> Iterator[Explorer]:
    explorer = Explorer(browser, broker.explorer_url, request.param)
    yield explorer
    explorer.close()


@pytest.fixture
def explorer(browser: Browser, broker: Broker) -> Iterator[Explorer]:
    explorer = Explorer(browser, broker.explorer_url)
    yield explorer
    explorer.close()


def produce(broker: Broker, *values: bytes, client_id: str = "shop") -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "client.id": client_id, "linger.ms": 200})
    for value in values:
        producer.produce("orders", value, key=value, partition=0)
    assert producer.flush(60) == 0


def produced(broker: Broker) -> int:
    """The number of the frame of the first Produce."""
    return broker.requests("Produce")[0].number


def test_a_timeline_bar_shows_its_frame_and_opens_it(explorer: Explorer, broker: Broker) -> None:
    page = explorer.open("#/frames?filter=api%3DProduce")
    first = broker.requests("Produce")[0]
    told = rf"^{first.number}: Produce v{first.version} of shop, [\d.]+ ms"
    expect(page.get_by_role("option").filter(has_text="shop").first).to_be_visible()
    bars = page.locator(".timeline canvas")
    bars.hover(position={"x": 152, "y": 26})  # the first bar of the first lane
    expect(bars).to_have_attribute("title", re.compile(told))
    bars.hover(position={"x": 20, "y": 26})
    expect(bars).to_have_attribute("title", "")
    bars.click(position={"x": 152, "y": 26})
    expect(page).to_have_url(re.compile(rf"#/frames/{first.number}\b"))


def test_new_frames_appear_immediately(explorer: Explorer, broker: Broker) -> None:
    page = explorer.open()
    expect(page.get_by_text("shop").first).to_be_visible()
    produce(broker, b"later", client_id="newcomer")
    expect(page.get_by_role("option").filter(has_text="newcomer").first).to_be_visible()


def test_a_filter_and_a_frame_have_a_url(explorer: Explorer, broker: Broker) -> None:
    page = explorer.open()
    expect(page.get_by_text("shop").first).to_be_visible()
    page.keyboard.press("/")
    expect(page.get_by_label("Filter")).to_be_focused()
    page.keyboard.type("api=Produce client_id=shop")
    rows = page.get_by_role("listbox", name="Frames").get_by_role("option")
    expect(rows).to_have_count(1)
    rows.first.click()
    expect(page.get_by_role("heading", name="Produce")).to_be_visible()
    address = page.url
    page.goto("about:blank")
    page.goto(address)
    expect(page.get_by_role("heading", name="Produce")).to_be_visible()
    expect(rows).to_have_count(1)
    page.get_by_label("Filter").fill("nonsense=1")
    expect(page.get_by_text("a filter has no nonsense")).to_be_visible()


def test_a_filter_without_matches_shows_nothing(explorer: Explorer) -> None:
    for word in ("topic%3Dconstructor", "topic%3DtoString", "user%3Dnobody", "mechanism%3DPLAIN"):
        page = explorer.open(f"#/frames?filter={word}")
        expect(page.get_by_text("No frame meets the filter.")).to_be_visible()
    page.get_by_label("Filter").fill("constructor=1")
    expect(page.get_by_text("a filter has no constructor")).to_be_visible()
    page.get_by_label("Filter").fill("user=ANONYMOUS")
    expect(page.get_by_role("listbox", name="Frames").get_by_role("option").first).to_be_visible()


def test_frames_are_filtered_by_user(browser: Browser) -> None:
    with Broker(security="SASL_PLAINTEXT", users={"alice": "secret"}, explorer=True) as broker:
        login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256"}
        names = {"bootstrap.servers": broker.bootstrap_servers, "sasl.username": "alice", "sasl.password": "secret"}
        AdminClient(login | names).list_topics(timeout=30)
        explorer = Explorer(browser, broker.explorer_url)
        page = explorer.open("#/frames?filter=user%3Dalice+mechanism%3DSCRAM-SHA-256")
        page.get_by_role("option").filter(has_text="Metadata").first.click()
        expect(page.get_by_text("user alice by SCRAM-SHA-256")).to_be_visible()
        explorer.close()


def test_a_frame_can_be_browsed_by_keyboard(explorer: Explorer, broker: Broker) -> None:
    page = explorer.open(f"#/frames/{produced(broker)}")
    fields = page.get_by_role("listbox", name="Fields of the request")
    fields.focus()
    page.keyboard.press("End")
    expect(fields.locator("[aria-selected=true]")).to_be_visible()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowDown")
    expect(fields.locator("[aria-selected=true]")).to_contain_text("size")
    expect(page.locator(".byte.lit")).to_have_count(4)
    page.keyboard.press("Escape")
    expect(fields).to_have_count(0)
    page.keyboard.press("2")
    expect(page.get_by_role("main", name="Topics")).to_be_visible()


def test_bytes_and_fields_highlight_each_other(explorer: Explorer, broker: Broker) -> None:
    page = explorer.open(f"#/frames/{produced(broker)}")
    page.locator(".byte").nth(8).hover()  # the correlation id
    expect(page.locator(".field.lit")).to_contain_text("correlation_id")
    page.locator(".field", has_text="client_id").hover()
    expect(page.locator(".byte.lit")).to_have_count(2 + len("shop"))
    page.get_by_role("tab", name="Answer").click()
    expect(page.get_by_role("listbox", name="Fields of the answer")).to_contain_text("base_offset")


def test_the_frame_of_a_produce_links_to_the_appended_records(explorer: Explorer, broker: Broker) -> None:
    page = explorer.open(f"#/frames/{produced(broker)}")
    page.get_by_role("link", name="appended 1 record to orders-0").click()
    expect(page.get_by_role("listbox", name="Records")).to_contain_text("0x3c696d67")


def test_frames_and_records_with_hostile_values_are_accessible_in_light_and_dark(
    both: Explorer, broker: Broker
) -> None:
    """Each view with values that do no harm is so by its recorded layout, in `test_layouts.py`."""
    page = both.open(f"#/frames/{produced(broker)}")
    expect(page.get_by_role("listbox", name="Fields of the request")).to_be_visible()
    assert inaccessible(page) == []
    both.open("#/topics/orders/0/0")
    expect(page.get_by_text("leader epoch").first).to_be_visible()
    assert inaccessible(page) == []


def test_a_produce_is_composed_sent_and_answered(explorer: Explorer, broker: Broker) -> None:
    page = explorer.open("#/try/Produce/9")
    page.get_by_role("textbox", name="records").fill("by=hand")
    expect(page.get_by_role("listbox", name="Fields of the request")).to_contain_text('"hand"')
    page.get_by_role("button", name="send").click()
    expect(page.get_by_role("listbox", name="Fields of the answer")).to_contain_text("base_offset")
    assert [record.key for record in broker.records("orders") if record.value == b"hand"] == [b"by"]


def test_field_values_of_a_produce_are_completely_visible_at_every_window_width(explorer: Explorer) -> None:
    page = explorer.open("#/try/Produce/9")
    page.get_by_role("textbox", name="records").fill("\n".join(f"key{number}=hello" for number in range(50)))
    page.get_by_role("option").filter(has_text="record_count50").wait_for(state="attached")
    for width in (390, 1024, 1280, 1440, 1920):
        page.set_viewport_size({"width": width, "height": 900})
        fields = page.get_by_role("listbox", name="Fields of the request")
        fields.evaluate("(list) => { list.scrollTop = 300; }")
        fields.get_by_text("base_timestamp").wait_for()
        assert page.evaluate(CUT) == [], width
        assert page.evaluate("() => document.documentElement.scrollWidth") <= width


CUT = """() => [...document.querySelectorAll("#request-tree .value")]
    .filter((value) => value.scrollWidth > value.clientWidth + 1).map((value) => value.title)"""


def test_a_request_is_sent_to_the_chosen_node_and_its_error_shown_in_one_line(browser: Browser) -> None:
    with Broker(explorer=True, nodes=2) as broker:
        broker.faults.add(api="Produce", node=2, error="NOT_LEADER_OR_FOLLOWER")
        explorer = Explorer(browser, broker.explorer_url)
        page = explorer.open("#/try/Produce/9")
        page.get_by_label("to node").select_option("2")
        page.get_by_role("button", name="send").click()
        expect(page.get_by_role("listbox", name="Fields of the answer")).to_contain_text("NOT_LEADER_OR_FOLLOWER")
        assert [each.node_id for each in broker.requests("Produce")] == [2]
        explorer.open("#/frames?filter=fault%3Dany")
        marks = page.get_by_role("option").locator(".tagged")
        expect(marks).to_have_count(2)
        error, fault = (each.bounding_box() for each in marks.all())
        assert error is not None and fault is not None
        assert error["y"] == fault["y"]
        assert error["x"] + error["width"] <= fault["x"]
        explorer.close()


def test_a_lesson_marks_the_steps_that_its_reader_has_done(explorer: Explorer, broker: Broker) -> None:
    page = explorer.open("#/try/ApiVersions/3")
    page.get_by_role("button", name="send").click()
    expect(page.get_by_role("listbox", name="Fields of the answer")).to_contain_text("api_keys")
    explorer.page.goto(f"{broker.explorer_url}#/lessons/framing")
    expect(page.locator("li.done")).to_have_count(1)
    answer = page.get_by_label("Your answer")
    answer.fill("1")
    page.get_by_role("button", name="check").click()
    expect(page.get_by_text("1 is not it.")).to_be_visible()
    answer.fill(str(len(broker.requests("ApiVersions", client_id="explorer")[-1].request_bytes)))
    page.get_by_role("button", name="check").click()
    expect(page.locator("li.done")).to_have_count(2)


def test_a_button_advances_the_clock_and_adds_a_mark_to_the_journal(explorer: Explorer, broker: Broker) -> None:
    page = explorer.open("#/controls")
    before = broker.clock.now_ms()
    page.get_by_role("button", name="+ 1 hour").click()
    expect(page.get_by_text("done: clock/advance")).to_be_visible()
    assert broker.clock.now_ms() - before >= 3_600_000
    assert broker.journal.marks[-1].text == "advance 1 hour"


def test_hostile_records_are_shown_as_text(explorer: Explorer, broker: Broker) -> None:
    page = explorer.open("#/topics/orders/0/0")
    expect(page.locator("pre.contents").first).to_contain_text("3c 69 6d 67")
    expect(page.locator(".rows .key").first).to_contain_text("0x3c696d67")
    assert page.locator("img:not([src='icon.svg'])").count() == 0
    page.get_by_role("tab", name="bytes").click()
    expect(page.get_by_role("listbox", name="Fields of the batch")).to_contain_text("<img src=x")


def test_a_list_of_many_frames_stays_small_and_responsive(explorer: Explorer, broker: Broker) -> None:
    """Only what is visible is in the page, however many frames there are."""
    first = broker.requests("Produce")[0]
    broker.call_on_loop(lambda: repeated(broker, first))
    page = explorer.open("#/frames?filter=api%3DProduce")
    expect(page.locator("output")).to_contain_text(f"{MANY:,}"[:3])
    frames = page.get_by_role("listbox", name="Frames")
    page.wait_for_selector(f"html[data-frames='{len(broker.requests())}']")
    assert frames.get_by_role("option").count() < 100
    frames.focus()
    page.keyboard.press("End")
    expect(frames.locator("[aria-selected=true]")).to_be_visible()


def repeated(broker: Broker, frame: Exchange) -> None:
    """Keep a frame very often, as if a client had sent it."""
    for _ in range(MANY):
        broker.journal._number += 1
        copy = Exchange(broker.journal._number, frame.api_key, frame.version, frame.correlation_id, frame.request_bytes)
        copy.client_id, copy.node_id, copy.connection = frame.client_id, frame.node_id, frame.connection
        copy.outcome, copy.duration_ms, copy.started_ms = "answered", 1.0, frame.started_ms
        broker.journal._add_exchange(copy)
