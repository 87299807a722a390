"""URLs that no file system takes are told in a sentence."""

from __future__ import annotations

from typing import Any

import pytest

from engine.live.source import Directory


def test_a_kind_of_url_that_nobody_knows() -> None:
    with pytest.raises(ValueError, match=r"^foo://x/y: expected a kind of URL that fsspec knows"):
        Directory("foo://x/y")


def test_a_kind_of_url_whose_package_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(url: str, **options: Any) -> Any:
        raise ImportError('SFTPFileSystem requires "paramiko" to be installed')

    monkeypatch.setattr("fsspec.core.url_to_fs", missing)
    with pytest.raises(ValueError, match="expected the package of this kind of URL") as told:
        Directory("sftp://host/x")
    assert 'requires "paramiko"' in str(told.value)
    assert "ImportError" not in str(told.value)
