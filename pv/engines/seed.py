"""The seed of a claim's examples."""

import hashlib


def seed_of(claim: str, seed: int) -> int:
    """Return the seed of a claim's examples. It depends on the id, so adding a claim does not change the others.

    Args:
        claim: The id of the claim.
        seed: The seed of the user, `--seed`.
    """
    return int.from_bytes(hashlib.sha256(f"{claim}:{seed}".encode()).digest()[:6], "big")
