"""Counts in sentences."""


def counted(count: int, noun: str) -> str:
    """Such as "1 video" and "2,000 videos"."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
