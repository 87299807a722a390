"""The measurement of plain decoding: what it returns for a tiny model."""

from gguf_files import write_gguf

from engine.models import benchmark
from engine.models.gguf_convert import convert_gguf


def test_both_decoders_are_measured_on_the_same_work(make_hf, tmp_path, monkeypatch):
    monkeypatch.setattr(benchmark, "BANDWIDTH_SHAPE", (64, 64))
    theirs = make_hf("llama", vocab_size=260, intermediate_size=64, tie_word_embeddings=True)
    write_gguf(tmp_path / "m.gguf", "llama", theirs)
    convert_gguf(tmp_path / "m.gguf", tmp_path / "out")
    found = benchmark.bench_plain(tmp_path / "out", new_tokens=5, rounds=2)
    assert found["same_tokens"] is True
    assert found["weight_bytes"] == 4 * sum(p.numel() for p in theirs.parameters())
    assert len(found["ours"]) == len(found["transformers"]) == 2
    assert found["weight_gb_s"] > 0
    assert found["read_gb_s"] > 0
    ratios = sorted(a / b for a, b in zip(found["ours"], found["transformers"], strict=True))
    assert found["ratio"] == sum(ratios) / 2
