"""Releases as they are written: the card and all files."""

from beam_dp.releases.files.card import card_text, fingerprint
from beam_dp.releases.files.commit import Draw
from beam_dp.releases.kinds import commit_release, write_shard
from beam_dp.releases.parts import part
from beam_dp.releases.release import Release


def commit_in_parts(release: Release, directory: str) -> bool:
    """Commits as a pipeline does: each file of records is written into a draft of its own."""
    written = {shard.name: write_shard(shard, directory) for shard in release.shards()}
    return commit_release(release, directory, written)


def draw_of(release: Release) -> Draw:
    """Returns the card and the files, by name."""
    files = part(release.KIND, "files")
    payload = dict(files.payload(release))
    payload |= {shard.name: files.shard_bytes(shard) for shard in release.shards()}
    stated = {name: fingerprint(data) for name, data in payload.items()}
    text = card_text(release.KIND, release.draw_id, release.card, stated)
    return Draw(text.encode(), payload)
