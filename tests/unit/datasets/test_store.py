"""Files: where they are looked for, how they are checked, how they are downloaded."""

import functools
import hashlib
import http.server
import importlib.util
import threading
from pathlib import Path

import pytest

from fferm.datasets import _store
from fferm.datasets._store import DataFile, data_home, read_external
from fferm.errors import DataUnavailableError, MissingDependencyError

CONTENT = b"a,b\n1,2\n"
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture
def server(tmp_path, monkeypatch):
    """Return the address of a local publisher of table.csv."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    published = tmp_path / "published"
    published.mkdir()
    (published / "table.csv").write_bytes(CONTENT)
    handler = functools.partial(QuietHandler, directory=str(published))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()
        thread.join()


def table_file(url=None, sha256=SHA256):
    return DataFile("table.csv", (sha256,), "https://publisher.example/tables", url)


def test_the_data_folder_is_the_environment_variable(monkeypatch):
    monkeypatch.setenv("FFERM_DATA_HOME", "~/tables")
    assert data_home() == Path.home() / "tables"


def test_without_the_variable_it_is_in_the_users_cache(monkeypatch, tmp_path):
    monkeypatch.delenv("FFERM_DATA_HOME", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert data_home() == Path.home() / ".cache" / "fferm"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert data_home() == tmp_path / "fferm"


def test_a_file_is_downloaded_once_and_then_read_from_the_folder(server, empty_home):
    file = table_file(f"{server}/table.csv")
    assert read_external(file) == CONTENT
    assert (empty_home / "table.csv").read_bytes() == CONTENT
    assert read_external(table_file("http://127.0.0.1:1/nowhere")) == CONTENT


def test_a_download_with_a_wrong_checksum_leaves_nothing_behind(server, empty_home):
    file = table_file(f"{server}/table.csv", sha256="0" * 64)
    with pytest.raises(DataUnavailableError, match=f"it has sha256 {SHA256}; expected"):
        read_external(file)
    assert not empty_home.exists()


def test_a_file_the_publisher_lacks_says_what_to_put_where(server, empty_home):
    with pytest.raises(DataUnavailableError, match="404") as caught:
        read_external(table_file(f"{server}/gone.csv"))
    assert f"Put it there as {empty_home / 'table.csv'}" in str(caught.value)
    assert not empty_home.exists()


def test_offline_the_error_names_folder_variable_source_and_checksum(empty_home):
    # Port 1 of this machine answers nobody.
    with pytest.raises(DataUnavailableError, match="could not be downloaded") as caught:
        read_external(table_file("http://127.0.0.1:1/table.csv"))
    message = str(caught.value)
    assert f"Put it there as {empty_home / 'table.csv'}" in message
    assert "FFERM_DATA_HOME" in message
    assert "https://publisher.example/tables" in message
    assert SHA256 in message


def test_a_file_without_a_publisher_is_asked_for(empty_home):
    with pytest.raises(DataUnavailableError, match="cannot be downloaded") as caught:
        read_external(table_file())
    assert f"Put it there as {empty_home / 'table.csv'}" in str(caught.value)
    assert not empty_home.exists()


def test_a_changed_file_in_the_folder_is_refused(empty_home):
    empty_home.mkdir()
    (empty_home / "table.csv").write_bytes(b"changed")
    with pytest.raises(DataUnavailableError, match="Replace it with the file from"):
        read_external(table_file())


def test_a_changed_file_in_the_package_asks_to_reinstall():
    with pytest.raises(DataUnavailableError, match=r"expected 000.*Reinstall fferm"):
        _store.read_shipped(DataFile("german.csv.gz", ("000",)))


def test_without_pyarrow_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match="pip install pyarrow"):
        _store.read_parquet(table_file(), ["a"])
