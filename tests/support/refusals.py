"""What every message to a user is like."""


def one_line(error: BaseException, *words: str) -> str:
    """The message is one line and holds every one of `words`."""
    message = str(error)
    assert "\n" not in message
    for word in words:
        assert word in message
    return message
