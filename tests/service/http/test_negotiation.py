from __future__ import annotations

import pytest

from service.errors import NotAcceptable
from service.http.answers import JSON, PNG, choose_media_type


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        pytest.param(None, JSON, id="no header"),
        pytest.param("", JSON, id="empty header"),
        pytest.param("*/*", JSON, id="anything"),
        pytest.param("image/png", PNG, id="one type"),
        pytest.param("IMAGE/PNG", PNG, id="in capitals"),
        pytest.param("image/png;level=1", PNG, id="with another parameter"),
        pytest.param("image/*", PNG, id="any image"),
        pytest.param("application/*", JSON, id="any application"),
        pytest.param("text/html, image/png", PNG, id="one of two known"),
        pytest.param("image/png, application/json", JSON, id="a tie goes to the default"),
        pytest.param("image/png, */*", JSON, id="a tie with anything"),
        # The higher quality is chosen.
        pytest.param("application/json;q=0.5, image/png", PNG, id="against one"),
        pytest.param("image/png;q=0.5, application/json;q=0.6", JSON, id="against each other"),
        pytest.param("image/png ; q = 1.000 , application/json;q=0.999", PNG, id="with spaces"),
        pytest.param("application/json;Q=0.1, image/png;q=0.2", PNG, id="a capital Q"),
        pytest.param("application/json;q=0., image/png;q=0.001", PNG, id="nothing after the point"),
        pytest.param("application/json;q=0, */*", PNG, id="zero excludes"),
        pytest.param(
            "image/png;q=0.1, application/json;q=0.5, image/png;q=0.9", PNG, id="the last of a type"
        ),
        pytest.param(
            "image/png;q=0.9, application/json;q=0.5, image/png;q=0.1", PNG, id="the first"
        ),
        # A range that names the type outweighs a wildcard, whatever their order and quality.
        pytest.param("*/*;q=1, application/json;q=0.2", PNG, id="type before anything"),
        pytest.param("image/*;q=0.9, image/png;q=0.1, application/json;q=0.5", JSON, id="subtype"),
        pytest.param("*/*;q=0.9, image/*;q=0.1", JSON, id="kind before anything"),
        # A type whose quality cannot be read is not chosen, and nothing fails.
        *(
            (f"image/png;q={quality}, application/json;q=0.1", JSON)
            for quality in ("", "high", "nan", "inf", "-1", "1.1", "2", "0,5", "1e-1")
        ),
    ],
)
def test_what_is_accepted_is_chosen(accept: str | None, expected: str) -> None:
    """The best offer that the header covers is chosen; JSON where it says nothing."""
    assert expected == choose_media_type(accept, (JSON, PNG))


@pytest.mark.parametrize(
    "accept",
    ["text/html", "image/jpeg", "text/*", "*/*;q=0", "application/json;q=0, image/*;q=0.0"],
)
def test_nothing_acceptable_is_refused(accept: str) -> None:
    """The problem names what there is and what was asked for."""
    with pytest.raises(NotAcceptable, match=r"application/json or image/png, not with") as refusal:
        choose_media_type(accept, (JSON, PNG))
    assert accept in refusal.value.detail
