"""The bundled sample: fixed files, packed and unpacked alike."""

import pytest

from danseo.data.find import check_files, data_hashes, data_root, load
from danseo.files import content_sha256
from danseo.tasks import TASKS


def test_the_files_are_fixed(sample):
    assert content_sha256(sample) == "61de46a34eb5523ea34eed0c1ac590904bd09c15bc36f87d29eb346f3074f0d7"


@pytest.mark.parametrize("task", TASKS.values(), ids=lambda task: task.name)
def test_the_packed_files_are_read_in_place(task, sample):
    packed = data_root("sample")
    assert data_hashes(task, packed) == data_hashes(task, sample), "runs on both have the same name"
    assert load(task, "dev", packed) == load(task, "dev", sample)
    assert {report.verdict for report in check_files(packed, [task])} == {"subset"}
