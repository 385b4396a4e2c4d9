"""Property tests here are the same every time, and a busy machine does not fail them."""

from hypothesis import settings

settings.register_profile("danseo", deadline=None, derandomize=True)
settings.load_profile("danseo")
