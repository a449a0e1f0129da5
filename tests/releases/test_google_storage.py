"""Google Cloud Storage: rejected buckets, and error messages."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator

import pytest
from fake_google_storage import PRIVATE, RIGHTS, Answer, FakeGoogleStorage, serving
from fake_storage import skip_waits
from release_examples import release_of

from beam_dp.errors import InputError
from beam_dp.releases.files.card import ReleaseError
from beam_dp.releases.files.commit import check_output
from beam_dp.releases.kinds import commit_release, read_release
from beam_dp.storage.google import GoogleBucket

pytestmark = pytest.mark.job
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


@pytest.mark.parametrize("bucket", ["", "No", "a", "a_", "bucket name"])
def test_rejects_url_that_does_not_name_a_bucket(service, bucket):
    with pytest.raises(InputError, match="must be gs://BUCKET/FOLDER"):
        check_output(f"gs://{bucket}/out")


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
