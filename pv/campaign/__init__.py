"""Carries a validation out."""

from pv.campaign.campaign import Campaign
from pv.campaign.job import Options, Progress

__all__ = ["Campaign", "Options", "Progress"]
