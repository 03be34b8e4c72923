"""Small datasets, collected once per session into a folder of their own."""

import os

import pytest

from genplan.collect import CollectConfig, collect


@pytest.fixture(scope="session", autouse=True)
def datasets(tmp_path_factory):
    root = tmp_path_factory.mktemp("minari")
    before = os.environ.get("MINARI_DATASETS_PATH")
    os.environ["MINARI_DATASETS_PATH"] = str(root)
    yield root
    if before is None:
        del os.environ["MINARI_DATASETS_PATH"]
    else:
        os.environ["MINARI_DATASETS_PATH"] = before


@pytest.fixture(scope="session")
def maze(datasets):
    return collect(CollectConfig("MazeS4G1", 30), workers=1)


@pytest.fixture(scope="session")
def blocked(datasets):
    return collect(CollectConfig("BlockUnlock", 8), workers=1)
