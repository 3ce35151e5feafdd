"""Policies: what maps a snapshot to a plan (`controller.api.Policy`)."""

from controller.policies.llm import LlmPolicy, LlmPolicyConfig
from controller.policies.static import StaticPolicy
from controller.policies.threshold import ThresholdParams, ThresholdPolicy

__all__ = ["LlmPolicy", "LlmPolicyConfig", "StaticPolicy", "ThresholdParams", "ThresholdPolicy"]
