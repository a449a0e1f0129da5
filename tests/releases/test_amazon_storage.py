"""Amazon S3: rejected buckets, error messages, and object versions."""

import io
import sys
import types
from collections.abc import Iterator

import pytest
from botocore.exceptions import ReadTimeoutError
from fake_amazon_storage import ACCOUNT, BLOCKS, PRIVATE, Answer, FakeAmazonStorage, serving
from fake_storage import skip_waits
from release_examples import release_of

import beam_dp as dp
from beam_dp.releases.files.commit import check_output, probe_output
from beam_dp.releases.kinds import commit_release, read_release
from beam_dp.storage import amazon
from beam_dp.storage.amazon import AmazonBucket

pytestmark = pytest.mark.job
OUT = "s3://releases/out"
PUBLIC = (
    "aws s3api put-public-access-block --bucket releases --public-access-block-configuration"
    " BlockPublicAcls=true,IgnorePublicAcls=true,BlockPublicPolicy=true,RestrictPublicBuckets=true"
)
VERSIONED = (
    "aws s3api put-bucket-versioning --bucket releases --versioning-configuration Status=Suspended"
)
LOCKED = "aws s3api create-bucket --bucket ANOTHER"


@pytest.fixture
def service(monkeypatch) -> Iterator[FakeAmazonStorage]:
    with serving(monkeypatch) as served:
        yield served


@pytest.fixture
def no_waits(monkeypatch) -> list[float]:
    """Skips waits, and returns the lengths of the skipped waits."""
    return skip_waits(monkeypatch)


def fail_first(
    service: FakeAmazonStorage, wanted: str, times: float, status: int, code: str
) -> None:
    """Makes the service reject a method several times."""
    failed = 0

    def fail(method: str, path: str) -> None:
        nonlocal failed
        failed += method == wanted
        if method == wanted and failed <= times:
            raise Answer(status, code)

    service.before = fail


@pytest.mark.parametrize(
    ("settings", "cure"),
    [
        ({**PRIVATE, "versioning": {"Status": "Enabled"}}, VERSIONED),
        ({**PRIVATE, "object-lock": {"ObjectLockEnabled": "Enabled"}}, LOCKED),
        (
            {
                **PRIVATE,
                "object-lock": {"ObjectLockEnabled": "Enabled"},
                "versioning": {"Status": "Enabled"},
            },
            LOCKED,
        ),
        ({}, PUBLIC),
        *(
            ({"publicAccessBlock": {**PRIVATE["publicAccessBlock"], block: "false"}}, PUBLIC)
            for block in BLOCKS
        ),
    ],
    ids=str,
)
def test_rejects_bucket_where_drafts_are_not_private_or_not_deletable(service, settings, cure):
    service.buckets["releases"].settings = settings
    for act in (check_output, lambda url: commit_release(release_of(), url)):
        with pytest.raises(dp.InputError, match="because drafts are private") as caught:
            act(OUT)
        assert str(caught.value).startswith(f"output: '{OUT}' is not valid: ")
        assert str(caught.value).endswith(f": {cure}") and "\n" not in str(caught.value)
    assert service.names() == []


@pytest.mark.parametrize("versioning", [{}, {"Status": "Suspended"}], ids=str)
def test_accepts_bucket_without_active_versioning_and_leaves_it_unchanged(service, versioning):
    service.buckets["releases"].settings = {**PRIVATE, "versioning": versioning}
    check_output(OUT)
    assert service.names() == [] and service.delete_markers == set()


@pytest.mark.parametrize("header", ["If-Match", "If-None-Match", "x-amz-copy-source-if-match"])
def test_service_that_ignores_conditions_is_rejected_before_any_draft(service, header):
    service.unknown = {header}
    with pytest.raises(dp.InputError, match=r"this service ignores the conditions of \w+$"):
        commit_release(release_of(), OUT)
    assert service.names() == []
    with pytest.raises(dp.InputError, match=r"ignores the conditions of \w+$"):
        probe_output(OUT)
    if header == "If-Match":  # the others are not seen without writing
        with pytest.raises(dp.InputError, match=r"this service ignores the conditions of writes"):
            check_output(OUT)
        assert service.names() == []


@pytest.mark.parametrize(
    ("right", "operation"),
    [
        ("s3:GetBucketVersioning", "GetBucketVersioning"),
        ("s3:GetBucketObjectLockConfiguration", "GetObjectLockConfiguration"),
        ("s3:GetBucketPublicAccessBlock", "GetPublicAccessBlock"),
        ("s3:ListBucket", "ListObjectsV2"),
        ("s3:DeleteObject", "DeleteObject"),
        ("s3:PutObject", "PutObject"),
        ("s3:GetObject", "GetObject"),
    ],
)
def test_missing_permission_is_named_before_spending_budget(service, right, operation):
    service.buckets["releases"].rights.remove(right)
    with pytest.raises(dp.InputError, match=f"says 403 AccessDenied to {operation}$") as caught:
        check_output(OUT)
    assert ACCOUNT not in str(caught.value)


def test_permissions_are_tested_inside_the_output_folder(service):
    check_output("s3://releases/out/visits/")
    assert ("DELETE", "/releases/out/visits/.draft-") in service.requests


@pytest.mark.parametrize("status", [400, 401, 403, 429, 500, 503])
@pytest.mark.usefixtures("no_waits")
def test_service_error_gives_a_one_line_error(service, status):
    fail_first(service, "GET", float("inf"), status, "SomeCode")
    line = f"Amazon S3 says {status} SomeCode to"
    with pytest.raises(dp.InputError, match=f"output: .* can be written: {line} Get") as caught:
        check_output(OUT)
    assert "\n" not in str(caught.value) and ACCOUNT not in str(caught.value)
    with pytest.raises(dp.ReleaseError, match=f"release: .* cannot be read: {line} ListObjectsV2$"):
        read_release(OUT)


def test_error_for_missing_boto3_states_the_install_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "boto3.exceptions", None)
    with pytest.raises(dp.InputError, match=r"boto3 is not installed: pip install 'beam_dp\[s3\]'"):
        check_output(OUT)


def test_missing_or_old_library_and_missing_credentials_are_named(service, monkeypatch):
    old = types.SimpleNamespace(members={"CopySourceIfMatch"})
    monkeypatch.setattr("botocore.model.OperationModel.input_shape", old)
    with pytest.raises(dp.InputError, match=r"boto3 is too old: pip install 'beam_dp\[s3\]'"):
        check_output(OUT)
    assert service.requests == []
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(dp.InputError, match=r"credentials are missing: aws configure$"):
        check_output(OUT)


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
    with pytest.raises(dp.InputError, match=f"written: Amazon S3 cannot be reached: {reason}$"):
        check_output(OUT)


@pytest.mark.usefixtures("no_waits")
def test_missing_response_gives_a_one_line_error(service, monkeypatch):
    service.loses = lambda method, path: True
    with pytest.raises(dp.InputError, match=r"cannot be reached: ConnectionClosedError$"):
        check_output(OUT)

    def wait(*_: object) -> None:
        raise ReadTimeoutError(endpoint_url=service.url)

    monkeypatch.setattr("botocore.httpsession.URLLib3Session.send", wait)
    with pytest.raises(dp.InputError, match=r"cannot be reached: ReadTimeoutError$"):
        check_output(OUT)


def test_rejects_bytes_changed_in_transit(service, monkeypatch):
    monkeypatch.setenv("AWS_RESPONSE_CHECKSUM_VALIDATION", "when_required")
    service.put("file", b"as it was")
    monkeypatch.setattr("fake_amazon_storage._crc32", lambda data: "AAAAAA==")
    with pytest.raises(OSError, match="FlexibleChecksumError"):
        AmazonBucket("releases").read("file", io.BytesIO())


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


def test_large_file_is_sent_in_one_piece(service):
    data = bytes(range(256)) * (40 * 2**10)  # 10 MiB
    bucket, held = AmazonBucket("releases"), io.BytesIO()
    bucket.write("large", data)
    bucket.copy("large", "copied")
    bucket.read("copied", held)
    assert held.getvalue() == data and bucket.size("copied") == len(data)
    assert [method for method, _ in service.requests] == ["PUT", "PUT", "GET", "HEAD"]


def test_rejects_file_too_large_for_one_request(service, monkeypatch):
    monkeypatch.setattr(amazon, "_MAX_BYTES", 4)
    with pytest.raises(OSError, match="at most 5 GB in one request"):
        AmazonBucket("releases").write("large", b"large")
    assert service.requests == []
