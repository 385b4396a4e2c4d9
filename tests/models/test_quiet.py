"""Libraries that talk while they work."""

import logging

from danseo.models.checkpoint import quiet_transformers


def test_a_hub_that_does_not_answer_is_left_to_our_own_line():
    logging.getLogger("huggingface_hub").setLevel(logging.WARNING)
    quiet_transformers()
    assert not logging.getLogger("huggingface_hub.utils._http").isEnabledFor(logging.WARNING)
