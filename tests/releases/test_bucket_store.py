"""Releases in services of buckets: whatever happens, one draw remains, or nothing.

What all stores keep is in ``contracts/test_stores``.
"""

import io
import itertools
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from fake_google_storage import PRIVATE, RIGHTS, Answer, FakeGoogleStorage, serving
from fake_storage import skip_waits
from places import Place, place_of
from release_examples import release_of, same_release

from beam_dp.errors import InputError
from beam_dp.releases.files.card import ReleaseError
from beam_dp.releases.files.commit import check_output
from beam_dp.releases.kinds import commit_release, read_release, write_release
from beam_dp.releases.leftovers import finish_writing
from beam_dp.storage.google import GoogleBucket

pytestmark = pytest.mark.job
OURS = release_of()


@pytest.fixture(params=["gs", "s3"])
def cloud(request, tmp_path, monkeypatch) -> Iterator[Place]:
    with place_of(request.param, tmp_path, monkeypatch) as place:
        yield place


def assert_holds(cloud: Place, release: Any) -> None:
    """The folder contains exactly one whole release."""
    assert same_release(read_release(cloud.url()), release)
    assert len(cloud.names()) == 3


def test_ignores_objects_outside_the_folder(cloud):
    for name in ("out/visits", "out/visits2/card.json", "out/card.json", "out/visits/"):
        cloud.service.put(name, b"mine")
    check_output(cloud.url())
    write_release(OURS, cloud.url())
    assert {"out/visits", "out/visits2/card.json", "out/card.json"} < set(cloud.service.names())
    assert same_release(read_release(cloud.url()), OURS)


def test_missing_bucket_gives_a_one_line_error(cloud):
    url = cloud.url().replace("releases", "absent")
    for act in (check_output, lambda url: commit_release(OURS, url)):
        with pytest.raises(InputError, match=r"output: .*/visits' is not valid: must be .*no such"):
            act(url)
    with pytest.raises(ReleaseError, match=r"release: .* is not valid: card.json cannot be read"):
        read_release(url)


def test_commit_succeeds_if_responses_to_requests_are_lost(cloud, monkeypatch):
    """The library repeats requests that already succeeded; its waits are skipped here."""
    skip_waits(monkeypatch)
    for are_lost in ([1, 0, 0], [0, 1, 0], [0, 0, 1]):
        cloud.new()
        losses = itertools.cycle(are_lost)
        cloud.service.loses = lambda method, path, losses=losses: bool(next(losses))
        assert commit_release(OURS, cloud.url()) is True
        cloud.service.loses = lambda method, path: False
        assert_holds(cloud, OURS)
    assert len(cloud.service.requests) > 60


@pytest.mark.parametrize("status", [pytest.param(403, marks=pytest.mark.part), 507])
def test_failed_write_is_reported_in_one_line_and_leaves_nothing_after_cleanup(cloud, status):
    for at in range(4):
        count = 0

        def full(method: str, path: str, at: int = at) -> None:
            nonlocal count
            count += method in ("PUT", "POST")
            if count > at and method in ("PUT", "POST"):
                raise Answer(status)

        cloud.service.before = full
        with pytest.raises(InputError, match=r"output: .*must be .*written: .*") as caught:
            commit_release(OURS, cloud.url())
        assert str(status) in str(caught.value) and "\n" not in str(caught.value)
        cloud.service.before = lambda method, path: None
        finish_writing(cloud.url())
        assert cloud.names() == []


OUT = "gs://releases/out"


@pytest.fixture
def service(monkeypatch) -> Iterator[FakeGoogleStorage]:
    with serving(monkeypatch) as served:
        yield served


@pytest.mark.parametrize(
    ("settings", "cure"),
    [
        ({"versioning": {"enabled": True}}, "object versioning: .*--no-versioning"),
        ({"softDeletePolicy": {"retentionDurationSeconds": "604800"}}, "--clear-soft-delete"),
        ({"retentionPolicy": {"retentionPeriod": "100"}}, "--clear-retention-period"),
        ({"defaultEventBasedHold": True}, "--no-default-event-based-hold"),
        ({"iamConfiguration": {"publicAccessPrevention": "inherited"}}, "--public-access-prev"),
        ({"iamConfiguration": {}}, "prevents public access, because drafts are private"),
    ],
    ids=str,
)
def test_rejects_bucket_where_drafts_are_not_private_or_not_deletable(service, settings, cure):
    service.buckets["releases"].settings = {**PRIVATE, **settings}
    for act in (check_output, lambda url: commit_release(release_of(), url)):
        with pytest.raises(InputError, match=rf"output: '{OUT}' is not valid: .*{cure}") as caught:
            act(OUT)
        assert "\n" not in str(caught.value)
    assert service.names() == []


@pytest.mark.parametrize("seconds", ["0", None])
def test_accepts_bucket_without_soft_delete(service, seconds):
    policy = {} if seconds is None else {"retentionDurationSeconds": seconds}
    service.buckets["releases"].settings = {**PRIVATE, "softDeletePolicy": policy}
    check_output(OUT)


@pytest.mark.parametrize("right", sorted(RIGHTS))
def test_missing_permission_is_named_before_spending_budget(service, right):
    service.buckets["releases"].rights.remove(right)
    with pytest.raises(InputError, match=f"must be in a bucket where you have {right}"):
        check_output(OUT)


@pytest.mark.parametrize("status", [400, 401, 403, 429, 500, 503])
def test_service_error_gives_a_one_line_error(service, monkeypatch, status):
    def fail(method: str, path: str) -> None:
        raise Answer(status)

    clock = iter(range(0, 10**9, 30))  # whoever tries again for minutes gives up at once
    skip_waits(monkeypatch)
    monkeypatch.setattr("time.monotonic", lambda: float(next(clock)))
    service.before = fail
    with pytest.raises(InputError, match=r"output: .* can be written: Google Cloud") as e:
        check_output(OUT)
    assert "\n" not in str(e.value) and len(str(e.value)) < 200
    with pytest.raises(ReleaseError, match=r"release: .* cannot be read: Google Cloud"):
        read_release(OUT)


def test_error_for_missing_google_library_states_the_install_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "google.cloud.storage.exceptions", None)
    with pytest.raises(InputError, match=r"not installed: pip install 'beam_dp\[gcs\]'"):
        check_output(OUT)


def test_missing_credentials_are_named(monkeypatch):
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/absent.json")
    with pytest.raises(InputError, match="Google Cloud credentials are missing: gcloud auth"):
        check_output(OUT)


def test_large_file_is_sent_and_read_in_pieces(service):
    """The library sends files above 8 MiB in a session."""
    data = bytes(range(256)) * (40 * 2**10)  # 10 MiB
    bucket = GoogleBucket("releases")
    bucket.write("large", data)
    bucket.copy("large", "copied")
    held = io.BytesIO()
    bucket.read("copied", held)
    assert held.getvalue() == data and bucket.size("copied") == len(data)
    assert ("PUT", "/upload/storage/v1/b/releases/o") in service.requests
