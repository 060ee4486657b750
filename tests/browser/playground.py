"""The page as its visitors use it."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from PIL import Image

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

WINDOW = {"width": 1280, "height": 920}
_TOUR_SEEN = "if (location.host) localStorage.setItem('capsnet-tour', 'seen')"
PATIENCE_MS = 60_000
"""How long a test waits for the page, before it fails; machines may be busy."""


class Playground:
    """A page in a browser, and all that it asked for and complained of."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.requests: list[str] = []
        self.complaints: list[str] = []
        page.set_default_timeout(PATIENCE_MS)
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def _hear(self, message: Any) -> None:
        if message.type in {"error", "warning"}:
            self.complaints.append(message.text)

    @property
    def label(self) -> str:
        """What the network takes the picture for."""
        return self.page.locator("#verdict strong").inner_text()

    @property
    def foreign_requests(self) -> list[str]:
        """Addresses of other hosts than the page's."""
        home = urlsplit(self.page.url).netloc
        return [
            url
            for url in self.requests
            if urlsplit(url).scheme in {"http", "https"} and urlsplit(url).netloc != home
        ]

    def settle(self) -> None:
        """Wait until every answer has arrived."""
        self.page.locator("[aria-busy=true]").first.wait_for(state="detached")

    def draw(self, shape: Shape, pad: str = "#pad") -> None:
        """Draw strokes with the mouse, in a pad of one by one."""
        mouse = self.page.mouse
        box = self.page.locator(f"{pad} canvas").bounding_box()
        assert box is not None
        for stroke in shape:
            for place, (x, y) in enumerate(stroke):
                mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"])
                if place == 0:
                    mouse.down()
            mouse.up()
        self.settle()

    def clear(self) -> None:
        """Wipe the first pad."""
        self.page.get_by_role("button", name="Clear").first.click()
        self.settle()

    def take_sample(self, name: str | int, pad: str = "#pad") -> None:
        """Take one of the service's pictures."""
        self.page.locator(pad).get_by_role("button", name=f"Sample {name}", exact=True).click()
        self.page.locator(f'{pad} img[alt="a sample: {name}"]').wait_for()
        self.settle()

    def look(self, part: str) -> Image.Image:
        """A picture of a part of the page, when nothing moves any more."""
        self.page.locator(part).first.wait_for()
        self.settle()
        shot = self.page.locator(part).first.screenshot(animations="disabled")
        return Image.open(io.BytesIO(shot)).convert("RGB")

    def show_numbers(self) -> None:
        """Open the sliders that move one number of the pose each."""
        self.page.locator("#pose details:not([open]) > summary").click()

    def open_tab(self, name: str) -> None:
        """Choose a tab and wait for what it shows."""
        self.page.get_by_role("tab", name=name).click()
        self.settle()


def new_visitor(browser: Browser, *, first_visit: bool = False, **options: Any) -> BrowserContext:
    """Someone with a browser of these options, to whom the page offers its tour if it is new."""
    visitor = browser.new_context(**{"viewport": WINDOW, **options})
    if not first_visit:
        visitor.add_init_script(_TOUR_SEEN)
    return visitor


@contextmanager
def open_playground(
    visitor: BrowserContext, url: str, *, ready: bool = True
) -> Iterator[Playground]:
    """Open the page, and wait until it knows the service's networks, unless it need not be ready.

    Pages of one browser context share their storage, which holds only that the tour was seen.
    """
    playground = Playground(visitor.new_page())
    playground.page.goto(url)
    if ready:
        playground.page.locator("#lengths li").first.wait_for()
        playground.settle()
    yield playground
    playground.page.close()


# digits as people draw them: strokes in a unit square, x to the right and y down


Point = tuple[float, float]
Stroke = list[Point]
Shape = list[Stroke]


def line(*points: Point) -> Stroke:
    """Straight from point to point."""
    return list(points)


def arc(centre: Point, radii: Point, start_deg: float, stop_deg: float) -> Stroke:
    """Part of an ellipse; 0 degrees is to the right, 90 is down."""
    count = max(4, round(abs(stop_deg - start_deg) / 40))
    angles = [
        math.radians(start_deg + (stop_deg - start_deg) * i / count) for i in range(count + 1)
    ]
    (x, y), (across, down) = centre, radii
    return [(x + across * math.cos(a), y + down * math.sin(a)) for a in angles]


def _place(shape: Shape) -> Shape:
    """A shape in the middle of the pad."""
    return [[(0.27 + 0.46 * x, 0.15 + 0.7 * y) for x, y in stroke] for stroke in shape]


DIGITS: dict[int, Shape] = {
    digit: _place(shape)
    for digit, shape in {
        0: [arc((0.5, 0.5), (0.42, 0.48), -90, -450)],
        1: [line((0.5, 0.02), (0.5, 0.98))],
        2: [arc((0.5, 0.28), (0.34, 0.26), -170, 30) + line((0.15, 0.97), (0.88, 0.97))],
        3: [arc((0.45, 0.27), (0.33, 0.25), -150, 80) + arc((0.45, 0.74), (0.37, 0.24), -80, 150)],
        4: [line((0.2, 0.03), (0.14, 0.55), (0.9, 0.55)), line((0.7, 0.05), (0.66, 0.98))],
        5: [
            line((0.24, 0.05), (0.2, 0.45)) + arc((0.45, 0.68), (0.36, 0.28), -130, 150),
            line((0.24, 0.05), (0.82, 0.05)),
        ],
        6: [
            line((0.7, 0.04), (0.48, 0.18), (0.3, 0.42)) + arc((0.5, 0.73), (0.29, 0.25), 180, -180)
        ],
        7: [line((0.12, 0.05), (0.86, 0.05), (0.38, 0.98))],
        8: [arc((0.5, 0.26), (0.27, 0.24), 90, 450), arc((0.5, 0.74), (0.34, 0.24), -90, 270)],
        9: [arc((0.46, 0.28), (0.3, 0.26), 0, -360) + line((0.74, 0.6), (0.62, 0.98))],
    }.items()
}
