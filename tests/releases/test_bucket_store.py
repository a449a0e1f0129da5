"""Releases in services of buckets: whatever happens, one draw remains, or nothing.

What all stores keep is in ``contracts/test_stores``.
"""

import io
import itertools
import re
import sys
import types
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ReadTimeoutError
from fake_amazon_storage import ACCOUNT, BLOCKS, PRIVATE
from fake_google_storage import PRIVATE as GOOGLE_PRIVATE, RIGHTS
from fake_storage import Answer, skip_waits
from places import Place, place_of
from release_examples import release_of, same_release

from beam_dp.errors import InputError
from beam_dp.releases.files.card import ReleaseError
from beam_dp.releases.files.commit import check_output, probe_output
from beam_dp.releases.kinds import commit_release, finish_writing, read_release, write_release
from beam_dp.storage import amazon
from beam_dp.storage.amazon import AmazonBucket

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


@pytest.fixture
def service(cloud) -> Any:
    return cloud.service


@pytest.fixture
def no_waits(monkeypatch) -> list[float]:
    """Skips waits, and returns the lengths of the skipped waits."""
    return skip_waits(monkeypatch)


def fail_first(service: Any, wanted: str, times: float, status: int, code: str) -> None:
    """Makes the service reject a method several times."""
    failed = 0

    def fail(method: str, path: str) -> None:
        nonlocal failed
        failed += method == wanted
        if method == wanted and failed <= times:
            raise Answer(status, code)

    service.before = fail


IN_AMAZON = pytest.mark.parametrize("cloud", ["s3"], indirect=True)
OUT = "s3://releases/out"
PUBLIC = (
    "aws s3api put-public-access-block --bucket releases --public-access-block-configuration"
    " BlockPublicAcls=true,IgnorePublicAcls=true,BlockPublicPolicy=true,RestrictPublicBuckets=true"
)
VERSIONED = (
    "aws s3api put-bucket-versioning --bucket releases --versioning-configuration Status=Suspended"
)
LOCKED = "aws s3api create-bucket --bucket ANOTHER"

LOCK = {"object-lock": {"ObjectLockEnabled": "Enabled"}}
# Settings of a bucket, and what must be told.
REJECTED: list[tuple[str, dict[str, Any], str]] = [
    *(
        ("gs", {**GOOGLE_PRIVATE, **settings}, cure)
        for settings, cure in (
            ({"versioning": {"enabled": True}}, "object versioning: .*--no-versioning"),
            ({"softDeletePolicy": {"retentionDurationSeconds": "604800"}}, "--clear-soft-delete"),
            ({"retentionPolicy": {"retentionPeriod": "100"}}, "--clear-retention-period"),
            ({"defaultEventBasedHold": True}, "--no-default-event-based-hold"),
            ({"iamConfiguration": {"publicAccessPrevention": "inherited"}}, "--public-access-prev"),
            ({"iamConfiguration": {}}, "prevents public access, because drafts are private"),
        )
    ),
    *(
        ("s3", settings, f"because drafts are private.*: {re.escape(cure)}$")
        for settings, cure in (
            ({**PRIVATE, "versioning": {"Status": "Enabled"}}, VERSIONED),
            ({**PRIVATE, **LOCK}, LOCKED),
            ({**PRIVATE, **LOCK, "versioning": {"Status": "Enabled"}}, LOCKED),
            ({}, PUBLIC),
            *(
                ({"publicAccessBlock": {**PRIVATE["publicAccessBlock"], block: "false"}}, PUBLIC)
                for block in BLOCKS
            ),
        )
    ),
]


@pytest.mark.parametrize(("cloud", "settings", "cure"), REJECTED, indirect=["cloud"], ids=str)
def test_rejects_bucket_where_drafts_are_not_private_or_not_deletable(cloud, settings, cure):
    cloud.service.buckets["releases"].settings = settings
    told = f"^output: '{cloud.url()}' is not valid: .*{cure}"
    for act in (check_output, lambda url: commit_release(OURS, url)):
        with pytest.raises(InputError, match=told) as caught:
            act(cloud.url())
        assert "\n" not in str(caught.value)
    assert cloud.service.names() == []


@pytest.mark.parametrize(
    ("cloud", "settings"),
    [
        ("gs", {**GOOGLE_PRIVATE, "softDeletePolicy": {"retentionDurationSeconds": "0"}}),
        ("gs", {**GOOGLE_PRIVATE, "softDeletePolicy": {}}),
        ("s3", {**PRIVATE, "versioning": {}}),
        ("s3", {**PRIVATE, "versioning": {"Status": "Suspended"}}),
    ],
    indirect=["cloud"],
    ids=str,
)
def test_accepts_bucket_without_soft_delete_or_active_versioning(cloud, settings):
    cloud.service.buckets["releases"].settings = settings
    check_output(cloud.url())
    assert cloud.service.names() == [] and not getattr(cloud.service, "delete_markers", None)


@pytest.mark.parametrize(
    ("cloud", "right", "told"),
    [
        *(("gs", right, f"must be in a bucket where you have {right}") for right in sorted(RIGHTS)),
        *(
            ("s3", f"s3:{right}", f"says 403 AccessDenied to {operation or right}$")
            for right, operation in {
                "GetBucketVersioning": "",
                "GetBucketObjectLockConfiguration": "GetObjectLockConfiguration",
                "GetBucketPublicAccessBlock": "GetPublicAccessBlock",
                "ListBucket": "ListObjectsV2",
                "DeleteObject": "",
                "PutObject": "",
                "GetObject": "",
            }.items()
        ),
    ],
    indirect=["cloud"],
)
def test_missing_permission_is_named_before_spending_budget(cloud, right, told):
    cloud.service.buckets["releases"].rights.remove(right)
    with pytest.raises(InputError, match=told) as caught:
        check_output(cloud.url())
    assert ACCOUNT not in str(caught.value)


@pytest.mark.parametrize("status", [400, 401, 403, 429, 500, 503])
def test_service_error_gives_a_one_line_error(cloud, monkeypatch, status):
    def fail(method: str, path: str) -> None:
        raise Answer(status, "SomeCode")

    is_google = cloud.url().startswith("gs:")
    skip_waits(monkeypatch)
    if is_google:
        clock = iter(range(0, 10**9, 30))  # whoever tries again for minutes gives up at once
        monkeypatch.setattr("time.monotonic", lambda: float(next(clock)))
    cloud.service.before = fail
    told = ["Google Cloud"] * 2
    if not is_google:
        told = [f"Amazon S3 says {status} SomeCode to {what}" for what in ("Get", "ListObjectsV2$")]
    with pytest.raises(InputError, match=f"output: .* can be written: {told[0]}") as e:
        check_output(cloud.url())
    line = str(e.value)
    assert "\n" not in line and len(line) < 200 and ACCOUNT not in line
    with pytest.raises(ReleaseError, match=f"release: .* cannot be read: {told[1]}"):
        read_release(cloud.url())


@pytest.mark.parametrize(
    ("cloud", "module", "told", "unset", "missing"),
    [
        (
            *("gs", "google.cloud.storage.exceptions", r"not installed: .*'beam_dp\[gcs\]'"),
            *(["STORAGE_EMULATOR_HOST"], "Google Cloud credentials are missing: gcloud auth"),
        ),
        (
            *("s3", "boto3.exceptions", r"boto3 is not installed: pip install 'beam_dp\[s3\]'"),
            *(["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"], "are missing: aws configure$"),
        ),
    ],
    indirect=["cloud"],
)
def test_missing_library_or_credentials_are_named(cloud, monkeypatch, module, told, unset, missing):
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, module, None)
        with pytest.raises(InputError, match=told):
            check_output(cloud.url())
    for name in unset:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/absent.json")
    with pytest.raises(InputError, match=missing):
        check_output(cloud.url())


def test_large_file_is_sent_in_one_piece_or_in_a_session(cloud):
    """The library of Google sends files above 8 MiB in a session."""
    data = bytes(range(256)) * (40 * 2**10)  # 10 MiB
    bucket, held = cloud.owner("releases"), io.BytesIO()
    bucket.write("large", data)
    bucket.copy("large", "copied")
    bucket.read("copied", held)
    assert held.getvalue() == data and bucket.size("copied") == len(data)
    if cloud.owner is AmazonBucket:
        sent = [method for method, _ in cloud.service.requests]
        assert sent == ["PUT", "PUT", "GET", "HEAD"]
    else:
        assert ("PUT", "/upload/storage/v1/b/releases/o") in cloud.service.requests


@IN_AMAZON
@pytest.mark.parametrize("header", ["If-Match", "If-None-Match", "x-amz-copy-source-if-match"])
def test_service_that_ignores_conditions_is_rejected_before_any_draft(service, header):
    service.unknown = {header}
    with pytest.raises(InputError, match=r"this service ignores the conditions of \w+$"):
        commit_release(release_of(), OUT)
    assert service.names() == []
    with pytest.raises(InputError, match=r"ignores the conditions of \w+$"):
        probe_output(OUT)
    if header == "If-Match":  # the others are not seen without writing
        with pytest.raises(InputError, match=r"this service ignores the conditions of writes"):
            check_output(OUT)
        assert service.names() == []


@IN_AMAZON
def test_permissions_are_tested_inside_the_output_folder(service):
    check_output("s3://releases/out/visits/")
    assert ("DELETE", "/releases/out/visits/.draft-") in service.requests


@IN_AMAZON
def test_old_library_is_named(service, monkeypatch):
    old = types.SimpleNamespace(members={"CopySourceIfMatch"})
    monkeypatch.setattr("botocore.model.OperationModel.input_shape", old)
    with pytest.raises(InputError, match=r"boto3 is too old: pip install 'beam_dp\[s3\]'"):
        check_output(OUT)
    assert service.requests == []


@IN_AMAZON
@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1", "EndpointConnectionError"),
        ("AWS_ENDPOINT_URL_S3", "nowhere", "ValueError"),
        ("AWS_DEFAULT_REGION", "no region", "InvalidRegionError"),
        ("AWS_PROFILE", "nobody", "ProfileNotFound"),
    ],
)
@pytest.mark.usefixtures("no_waits", "service")
def test_unreachable_service_gives_a_one_line_error(monkeypatch, name, value, reason):
    monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match=f"written: Amazon S3 cannot be reached: {reason}$"):
        check_output(OUT)


@IN_AMAZON
@pytest.mark.usefixtures("no_waits")
def test_missing_response_gives_a_one_line_error(service, monkeypatch):
    service.loses = lambda method, path: True
    with pytest.raises(InputError, match=r"cannot be reached: ConnectionClosedError$"):
        check_output(OUT)

    def wait(*_: object) -> None:
        raise ReadTimeoutError(endpoint_url=service.url)

    monkeypatch.setattr("botocore.httpsession.URLLib3Session.send", wait)
    with pytest.raises(InputError, match=r"cannot be reached: ReadTimeoutError$"):
        check_output(OUT)


@IN_AMAZON
def test_rejects_bytes_changed_in_transit(service, monkeypatch):
    monkeypatch.setenv("AWS_RESPONSE_CHECKSUM_VALIDATION", "when_required")
    service.put("file", b"as it was")
    monkeypatch.setattr("fake_amazon_storage._crc32", lambda data: "AAAAAA==")
    with pytest.raises(OSError, match="FlexibleChecksumError"):
        AmazonBucket("releases").read("file", io.BytesIO())


@IN_AMAZON
def test_retries_request_that_conflicts_with_another(service, no_waits):
    bucket = AmazonBucket("releases")
    fail_first(service, "PUT", 4, 409, "ConditionalRequestConflict")
    opened = bucket.create("commit")
    assert opened == service.buckets["releases"].objects["commit"][1]
    assert no_waits == [0.1, 0.2, 0.4, 0.8]
    fail_first(service, "PUT", 4, 409, "ConditionalRequestConflict")
    assert bucket.copy_exclusively("commit", opened, "card")
    fail_first(service, "PUT", float("inf"), 409, "ConditionalRequestConflict")
    with pytest.raises(OSError, match="says 409 ConditionalRequestConflict to PutObject"):
        bucket.replace("commit", opened, b"ours")
    assert no_waits[8:] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2]


@IN_AMAZON
def test_copy_that_fails_after_its_status_was_sent_is_a_failure(service, no_waits):
    service.put("commit", b"ours")
    bucket, version = AmazonBucket("releases"), service.version_of(b"ours")
    fail_first(service, "PUT", 1, 200, "InternalError")
    assert bucket.copy_exclusively("commit", version, "card") and len(no_waits) == 1
    fail_first(service, "PUT", float("inf"), 200, "InternalError")
    for act in (bucket.copy, lambda *names: bucket.copy_exclusively(names[0], version, names[1])):
        with pytest.raises(OSError, match="InternalError to CopyObject"):
            act("commit", "other")
    assert service.names() == ["card", "commit"]


@IN_AMAZON
def test_rejects_file_too_large_for_one_request(service, monkeypatch):
    monkeypatch.setattr(amazon, "_MAX_BYTES", 4)
    with pytest.raises(OSError, match="at most 5 GB in one request"):
        AmazonBucket("releases").write("large", b"large")
    assert service.requests == []
