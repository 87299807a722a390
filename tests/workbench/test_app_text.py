"""Text against plain decoding. Run: pytest tests/workbench/test_app_text.py."""

from __future__ import annotations

from workbench.panes.text_pane import compare, excerpt, plain_excerpt, summary

TEXTS = {1: "In", 2: " the", 3: " sea", 4: " sky", 5: ","}


def test_a_shorter_text_does_not_differ() -> None:
    result = compare([1, 2], [1, 2, 3])
    assert result.first_difference is None
    assert summary(result, TEXTS) == "all 2 tokens are plain decoding's"
    assert excerpt(result.ours, result, TEXTS) == "In the"


def test_the_first_differing_token_is_named_by_text_and_id() -> None:
    result = compare([1, 2, 4], [1, 2, 3, 9])
    assert summary(result, TEXTS) == (
        ":red[✖] token 2 is `␠sky` (id 4), plain decoding writes `␠sea` (id 3); "
        "the 2 tokens before it agree"
    )
    assert excerpt(result.ours, result, TEXTS) == "In the⟦␠sky⟧"


def test_plain_text_is_shown_as_recorded_even_where_a_token_has_no_text() -> None:
    result = compare([1, 2, 4, 5], [1, 2, 3, 9])
    assert plain_excerpt(result, TEXTS, "In the sea below") == "In the⟦␠sea⟧ below"
    assert plain_excerpt(result, TEXTS, None) == "In the⟦␠sea⟧ #9"
    assert plain_excerpt(result, TEXTS, "another text") == "In the⟦␠sea⟧ #9"


def test_a_long_text_is_cut_before_the_difference() -> None:
    result = compare([1] * 50 + [4], [1] * 50 + [3])
    assert excerpt(result.ours, result, TEXTS) == "… " + "In" * 40 + "⟦␠sky⟧"
