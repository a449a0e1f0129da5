"""Contracts that ``BucketStore`` relies on: the docstrings of ``Bucket``, one by one."""

import io
from collections.abc import Iterator

import fake_amazon_storage
import fake_google_storage
import pytest
from memory_bucket import MemoryBucket

from beam_dp.storage.amazon import AmazonBucket
from beam_dp.storage.bucket import Bucket
from beam_dp.storage.google import GoogleBucket

SERVICES = {"gs": (fake_google_storage, GoogleBucket), "s3": (fake_amazon_storage, AmazonBucket)}


@pytest.fixture(
    params=["memory", *(pytest.param(each, marks=pytest.mark.job) for each in SERVICES)]
)
def bucket(request, monkeypatch) -> Iterator[Bucket]:
    if request.param == "memory":
        yield MemoryBucket("releases")
    else:
        module, kind = SERVICES[request.param]
        with module.serving(monkeypatch):
            yield kind("releases")


def content(bucket: Bucket, name: str) -> bytes | None:
    file = io.BytesIO()
    try:
        bucket.read(name, file)
    except FileNotFoundError:
        return None
    return file.getvalue()


def test_creates_an_object_only_once(bucket):
    bucket.check()
    assert bucket.create("a/b") is not None
    assert bucket.create("a/b") is None
    assert len(content(bucket, "a/b") or b"") == bucket.size("a/b")


def test_replaces_an_object_only_at_its_version(bucket):
    opened = bucket.create("a")
    assert opened is not None
    full = bucket.replace("a", opened, b"full")
    assert full not in (None, opened) and content(bucket, "a") == b"full"
    assert bucket.replace("a", opened, b"other") is None
    assert content(bucket, "a") == b"full"
    bucket.delete("a")
    assert bucket.replace("a", opened, b"other") is None
    assert content(bucket, "a") is None


def test_recreated_object_has_a_new_version(bucket):
    """Otherwise the writer of a withdrawn draft could publish the next draft of that name."""
    opened = bucket.create("a")
    assert opened is not None
    full = bucket.replace("a", opened, b"full")
    assert full is not None
    bucket.delete("a")
    assert bucket.create("a") not in (None, opened, full)
    assert bucket.replace("a", opened, b"full") is None
    assert bucket.copy_exclusively("a", full, "b") is False
    assert content(bucket, "a") not in (None, b"full") and content(bucket, "b") is None


def test_copies_only_the_given_version_and_only_to_an_unused_name(bucket):
    opened = bucket.create("a")
    assert opened is not None
    full = bucket.replace("a", opened, b"full")
    assert full is not None
    assert bucket.copy_exclusively("a", opened, "b") is False
    assert content(bucket, "b") is None
    assert bucket.copy_exclusively("a", full, "b") is True
    assert content(bucket, "a") == content(bucket, "b") == b"full"
    bucket.write("b", b"another")
    assert bucket.copy_exclusively("a", full, "b") is False
    assert content(bucket, "b") == b"another"
    bucket.delete("a")
    with pytest.raises(FileNotFoundError):
        bucket.copy_exclusively("a", full, "c")
    assert content(bucket, "c") is None


def test_copies_replace_only_by_name_and_write_any_bytes(bucket):
    bucket.write("a", b"new")
    bucket.write("b", b"old")
    bucket.copy("a", "b")
    assert content(bucket, "b") == b"new"
    with pytest.raises(FileNotFoundError):
        bucket.copy("absent", "b")
    assert content(bucket, "b") == b"new"
    data = b"line\r\n\x00\xff--boundary"
    bucket.write("a", data)
    assert content(bucket, "a") == data and bucket.size("a") == 18


def test_lists_names_in_order_across_pages_and_keeps_them_unchanged(bucket):
    names = [f"a/{letter}" for letter in "abcdefg"] + ["a/é?#%&+ '/x"]
    names += ["a/a b", "a/a&<b>", "a/a+%2B", "a/\U0001f512"]
    for name in [*names, "b", "a"]:
        bucket.write(name, name.encode())
    assert [each.name for each in bucket.listed("a/")] == sorted(names)
    for name in names:
        bucket.copy(name, "b")
        assert content(bucket, "b") == name.encode()
        bucket.delete(name)
    assert [each.name for each in bucket.listed("")] == ["a", "b"]


def test_reading_a_missing_object_raises_and_deleting_it_is_allowed(bucket):
    bucket.delete("absent")
    assert list(bucket.listed("absent")) == []
    for act in (lambda: bucket.size("absent"), lambda: bucket.read("absent", io.BytesIO())):
        with pytest.raises(FileNotFoundError):
            act()
