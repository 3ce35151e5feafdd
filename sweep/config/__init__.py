"""From composed configuration to typed, validated specifications and a fingerprint."""
