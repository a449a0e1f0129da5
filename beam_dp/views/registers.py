"""Describes releases in the fields of registers: of deployments of privacy, and of data sets."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from beam_dp.privacy.guarantee import Neighboring
from beam_dp.releases.parts import view_of
from beam_dp.releases.release import AnyRelease
from beam_dp.views.page import guarantee_words
from beam_dp.views.terminal import NAMED, counted, noise_text, words_of

if TYPE_CHECKING:
    from beam_dp.releases.verdict import Verification
    from beam_dp.views.page import Told

TO_FILL_IN = "TO FILL IN"
_CONTEXT = {
    "dcat": "http://www.w3.org/ns/dcat#",
    "dcterms": "http://purl.org/dc/terms/",
    "rdfs": "http://www.w3.org/2000/01/rdf-schema#",
    "spdx": "http://spdx.org/rdf/terms#",
    "xsd": "http://www.w3.org/2001/XMLSchema#",
}
# Avro has no media type that is registered.
_MEDIA_TYPES = {"csv": "text/csv", "parquet": "application/vnd.apache.parquet"}
_SHA256 = {"@id": "spdx:checksumAlgorithm_sha256", "@type": "spdx:ChecksumAlgorithm"}
_REGISTERED = "https://www.iana.org/assignments/media-types/"


def registry_record(release: AnyRelease, check: Verification, verdict: str) -> dict[str, Any]:
    """Returns a draft for the Differential Privacy Deployments Registry.

    What only the owner of the data knows is ``TO_FILL_IN``; docs/standards.md lists the fields.

    ``verdict``: the last line of `beam-dp verify`.
    """
    content: Told = view_of(release.KIND).report(release, None)
    promised, card = release.guarantee, release.card
    unit, precisely = guarantee_words(promised)
    is_stream = release.KIND == "horizon"
    parameters = {"epsilon": promised.epsilon, "delta": promised.delta}
    product = "Synthetic data" if release.KIND == "synthetic_database" else "Summary statistics"
    model = {
        "model_name": "Central",
        "release_type": "Many releases" if is_stream else "One release",
        **({"release_type_details": card["promise"]} if is_stream else {}),
        **({"data_source_type": "Dynamic"} if is_stream else {}),
        # Queries may have been asked one at a time.
        **({} if release.KIND == "answers" else {"access_type": "Non-interactive"}),
    }
    public = "The declaration of the columns and all parameters, which the curator states as public"
    if promised.neighboring is Neighboring.REPLACE_ONE:
        public += "; the number of records"
    if (card.get("domain") or {}).get("types_from"):
        public += "; the types of columns, which follow from the records"
    earlier = [name for name in ("discovered", "records_per_unit") if card.get(name) is not None]
    limit = counted(promised.max_records_per_unit, "record is", "records are")
    used = f"At most {limit} used of each privacy unit."
    if earlier:
        used += (
            " An earlier private release chose values, bins or this number; its loss is included."
        )
    return {
        "url_slug": f"beam_dp_{release.id}",
        "deployment": {
            "basic": {
                "name": TO_FILL_IN,
                "data_curators": [
                    {"data_curator_name": TO_FILL_IN, "data_curator_type": TO_FILL_IN}
                ],
                "description": _description(content),
                "intended_use": TO_FILL_IN,
                "data_product_type": product,
                "data_product_region": TO_FILL_IN,
                "publication_date": TO_FILL_IN,
            },
            "dp_variant": {
                "variant_name": "Approximate DP" if promised.delta else "Pure DP",
                "data_domain": _data_domain(card),
                "unprotected_quantities": f"{public}.",
            },
            "privacy_loss": {
                "privacy_unit": promised.privacy_unit,
                "privacy_unit_details": f"{unit} The relation is {promised.neighboring.value}.",
                "privacy_parameters": parameters,
                "privacy_parameters_details": precisely,
            },
            "deployment_model": model,
            "implementation": {
                "preprocessing_and_hyperparameter_tuning": used,
                "mechanisms": _mechanisms(release),
                "composition": f"{check.together.theorem}. Recomputed from the noise: {verdict}.",
                "post_processing": "All other numbers are computed from the noisy measurements and"
                " from public parameters alone.",
                "utility": content.meaning.replace("\n", " ") or content.headline,
            },
            "administrative": {"status": "Draft", "registry_authors": [TO_FILL_IN], "tier": 3},
        },
    }


def dcat_record(release: AnyRelease) -> dict[str, Any]:
    """Returns a record of DCAT 3 as JSON-LD; its links are relative to the release's folder."""
    content: Told = view_of(release.KIND).report(release, None)
    name, ends = release.id, itertools.pairwise((0, 8, 12, 16, 20, 32))
    unit, precisely = guarantee_words(release.guarantee)
    files = (getattr(release, "read_from", None) or {}).get("files", {})
    statement = f"{_mechanisms(release)} {unit} {precisely}"
    return {
        "@context": _CONTEXT,
        "@id": f"urn:uuid:{'-'.join(name[start:stop] for start, stop in ends)}",
        "@type": "dcat:DatasetSeries" if release.KIND == "horizon" else "dcat:Dataset",
        "dcterms:identifier": name,
        "dcterms:title": content.what,
        "dcterms:description": _description(content),
        "dcterms:provenance": {"@type": "dcterms:ProvenanceStatement", "rdfs:label": statement},
        "dcat:keyword": ["differential privacy", release.KIND.replace("_", " ")],
        "dcat:distribution": [_distribution(name, files[name]) for name in sorted(files)],
    }


def _distribution(name: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    media_type = _MEDIA_TYPES.get(name.rpartition(".")[2])
    avro = {"@type": "dcterms:MediaTypeOrExtent", "rdfs:label": "Apache Avro"}
    form = {"dcterms:format": avro}
    if media_type is not None:
        form = {"dcat:mediaType": {"@id": _REGISTERED + media_type}}
    size = {"@value": str(entry["bytes"]), "@type": "xsd:nonNegativeInteger"}
    return {
        "@type": "dcat:Distribution",
        "dcterms:title": name,
        "dcat:accessURL": {"@id": name},
        "dcat:downloadURL": {"@id": name},
        **form,
        "dcat:byteSize": size,
        "spdx:checksum": {
            "@type": "spdx:Checksum",
            "spdx:algorithm": _SHA256,
            "spdx:checksumValue": {"@value": entry["sha256"], "@type": "xsd:hexBinary"},
        },
    }


def _description(content: Told) -> str:
    return f"{content.what}. {content.headline}."


def _data_domain(card: Mapping[str, Any]) -> str:
    """Returns the columns of the tables that are eligible for protection."""
    domain = card.get("domain")
    entries = [card["attribute"]] if "attribute" in card else (domain or {}).get("attributes", [])
    names = words_of([entry["name"] for entry in entries], NAMED)
    return f"All tables with the declared columns {names}." if names else "All tables of keys."


def _mechanisms(release: AnyRelease) -> str:
    """Returns the mechanism, its noise and the versions of the libraries."""
    kinds = dict.fromkeys(noise_text(entry.get("distribution")) for entry in release.noise)
    noise = f" with {' and '.join(kinds)} noise" if kinds else ""
    versions = release.card.get("versions", {})
    libraries = [f"{name} {versions[name]}" for name in ("beam_dp", "opendp") if name in versions]
    by = f", by {' and '.join(libraries)}" if libraries else ""
    return f"The mechanism {release.mechanism}{noise}{by}."
