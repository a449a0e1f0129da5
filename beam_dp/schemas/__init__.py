"""Drafts of domains from declared schemas: names and types, never records or facts about them."""

from beam_dp.schemas.draft import DomainDraft as DomainDraft
from beam_dp.schemas.read import domain_draft as domain_draft
