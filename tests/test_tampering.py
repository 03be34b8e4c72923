"""Tampered run folders: each loads what it was before, bit for bit, or is refused with one line; and quickly.

Where a change is valid data under a digest that was made again, what it says may be loaded; nothing of it is ever run.
"""

import copy
import json
import os
import random
import resource
import shutil
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

import genplan
from genplan import checkpoint, export, planners, runs, tasks
from genplan.collect import CollectConfig, collect
from genplan.config import override
from genplan.errors import UserError
from genplan.files import write_sealed
from genplan.presets import TrainConfig
from genplan.tasks.files import import_object

EXAMPLE = Path(__file__).parent.parent / "examples" / "pendulum.py"
TASK, SECONDS, GROWTH = "Pendulum", 10, 400 * 2**10  # growth of the peak memory, in KiB
TENSORS = ("model", "last", "best", "codec")
LOADED = ("config.json", "model.safetensors", "card.json")  # by `load_planner`; the others by `resume_run`
DEEP = ("[" * 100_000, '{"a":' * 100_000, '{"format": 3, "planner": ' + "[" * 900 + "]" * 900 + "}")
TEXTS = (
    *DEEP, "", "null", "[]", "3", '"text"', "{", "{}", '{"format": NaN}', '{"format": Infinity}', '{"format": 1e999}',
    '{"format": 3, "format": 3}', f'{{"format": {"9" * 100_000}}}', f'{{"format": 3, "task": {"9" * 4000}}}',
    '{"format": "3"}', '{"format": true}', '{"format": 3, "task": "\\ud800"}', '{"format": 3, "task": "a\\u001b[2Jb"}',
    '{"format": 3, "task": "' + "x" * 100_000 + '"}', '{"format": 3, "digest": "0"}', " " * (2**20 + 1), "\x00" * 100,
)  # fmt: skip
BYTES = (b"\xff\xfe\xfd", b'{"format": 3, "task": "\xff"}', '{"format": 3}'.encode("utf-16"), b"\x80\x04N.")
VALUES = (
    None, True, -1, 0, 10**9, 2**53, 1e308, -0.5, "", "x", "evil.py:evil", [], [[]], {}, ["a"], {"a": 1}, [10**6] * 2,
)  # fmt: skip


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A run with a codec, the same with another seed, what is exported of it, and a planner of format 1."""
    folder, fixed = tmp_path_factory.mktemp("tampering"), import_object(f"{EXAMPLE}:task")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("MINARI_DATASETS_PATH", str(folder / "minari"))
        patch.setitem(tasks.TASKS, TASK, lambda: fixed)
        patch.setattr(export, "TEST_SEEDS", range(2000, 2001))
        data = collect(CollectConfig(TASK, 5), workers=1).name
        (folder / "evil.py").write_text(f"open({str(folder / 'executed')!r}, 'w')\nevil = 1\n")
        small = {"horizon": 2, "hidden_size": 8, "num_layers": 1, "num_heads": 2, "iterations": 1, "bins": 4}
        planner = override(planners.default_settings("GenPlan-M"), **small)
        training = TrainConfig(steps=4, batch_size=4, windows_per_scene=1, save_every=2, validate_every=2)
        for seed, name in enumerate(("run", "other")):
            seeded = override(training, seed=seed)
            runs.create_run(folder / name, TASK, "GenPlan-M", planner, seeded, data).fit()
        export.export(folder / "run", folder / "exported")
        shutil.copytree(checkpoint.pretrained()["MazeS4G1"], folder / "old")
        yield folder
        assert not (folder / "executed").exists(), "code of a run folder was run"


@pytest.fixture(scope="module")
def memory():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < GROWTH


class Case:
    """A copy of a folder, to be tampered with and put back; and what was loaded of it before."""

    def __init__(self, source, place):
        self.source, self.place = source, place
        shutil.copytree(source, place)
        self.before = {resume: self.load(resume) for resume in {False, (source / "last.safetensors").exists()}}

    def load(self, resume):
        if resume:
            trainer = runs.resume_run(self.place)
            trainer.writer.close()
            moments = trainer.optimizer.state_dict()["state"].items()
            tensors = trainer._weights() | {(key, name): one for key, of in moments for name, one in of.items()}
            return tensors, (trainer.step, trainer.best_loss, trainer.config), (self.place / "log.jsonl").read_text()
        policy = genplan.load(self.place)
        return policy.planner.state_dict(), policy.planner.config, policy.config

    def outcome(self, resume, must_equal=True):
        """The refusal, or empty; within the limit of time, and with nothing else raised."""

        def hang(*_):
            raise AssertionError(f"more than {SECONDS} s")

        handler, start = signal.signal(signal.SIGALRM, hang), time.time()
        signal.alarm(SECONDS)
        refusal, found = "", None
        try:
            found = self.load(resume)
        except UserError as error:
            refusal = str(error)
        finally:
            signal.alarm(0)
            signal.signal(signal.SIGALRM, handler)
        assert time.time() - start < SECONDS
        assert "\n" not in refusal
        assert found or 10 < len(refusal) < 3000
        if must_equal and found:
            (tensors, *others), (expected, *known) = found, self.before[resume]
            assert others == known
            assert tensors.keys() == expected.keys()
            assert all(torch.equal(one, expected[name]) for name, one in tensors.items())
        return refusal

    def restore(self, name):
        path = self.place / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        if (self.source / name).is_dir():
            shutil.copytree(self.source / name, path)
        elif (self.source / name).exists():
            shutil.copy(self.source / name, path)

    def tampered(self, name, data, must_equal=True):
        (self.place / name).write_bytes(data)
        try:
            return self.outcome(name not in LOADED, must_equal)
        finally:
            self.restore(name)
            if name not in LOADED:
                self.restore("log.jsonl")


@pytest.fixture(scope="module")
def cases(folders, memory):
    return {name: Case(folders / name, folders / "copies" / name) for name in ("run", "exported", "old")}


def files(case):
    return [path.name for path in sorted(case.source.glob("*.*")) if path.suffix in (".json", ".safetensors")]


def header_size(data):
    return 8 + int.from_bytes(data[:8], "little")


def paths(data, prefix=()):
    """All places in plain data."""
    for key, value in data.items() if isinstance(data, dict) else enumerate(data):
        yield (*prefix, key)
        if isinstance(value, dict | list):
            yield from paths(value, (*prefix, key))


def put(data, path, value):
    for key in path[:-1]:
        data = data[key]
    if value is ...:
        del data[path[-1]]
    else:
        data[path[-1]] = value


def sealed(case, name, config):
    """Plain data as it would be written, with a digest of its own."""
    path = case.place.parent / "sealed.json"
    if "digest" in json.loads((case.source / name).read_text()):
        write_sealed(path, {key: value for key, value in config.items() if key != "digest"})
        return path.read_bytes()
    return json.dumps(config).encode()


# --- what nothing can excuse: bits and bytes --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["run", "exported", "old"])
def test_bit_flips(cases, name):
    case, chance, refused = cases[name], random.Random(0), 0
    for file in files(case):
        data = (case.source / file).read_bytes()
        size = header_size(data) if file.endswith("s") else len(data)
        number = 300 if file == "model.safetensors" else 25 if file not in LOADED else 100
        # Before format 3, settings, cards and metadata have no digest: they are checked, not known to be unchanged.
        must_equal = name != "old" and file != "best.safetensors"
        for place in (chance.randrange(limit) for limit in [size] * number + [len(data)] * 8):
            flipped = bytearray(data)
            flipped[place] ^= 1 << chance.randrange(8)
            refused += bool(case.tampered(file, bytes(flipped), must_equal))
    assert refused > 200


@pytest.mark.parametrize("name", ["run", "exported", "old"])
def test_truncated_extended_and_replaced(cases, name):
    case, chance = cases[name], random.Random(1)
    for file in files(case):
        data = (case.source / file).read_bytes()
        cuts = [data[: chance.randrange(len(data))] for _ in range(4)] + [b"", data[:7], data[: len(data) - 1]]
        longer = [data + b"\x00", data + data, b"\x00" + data, bytes(len(data)), chance.randbytes(500)]
        for changed in (*cuts, *longer, *BYTES):
            if file != "best.safetensors":  # which nothing loads
                done = case.tampered(file, changed)
                assert done or changed.rstrip(b"\n") == data.rstrip(b"\n"), (file, changed[:40])


@pytest.mark.parametrize("file", ["config.json", "card.json"])
@pytest.mark.parametrize("name", ["exported", "old"])
def test_texts_that_are_no_config(cases, name, file):
    for text in TEXTS:
        assert cases[name].tampered(file, text.encode("utf-8", "surrogatepass"))


def test_logs_of_any_content_neither_harm_nor_stop(cases):
    case, data = cases["run"], (cases["run"].source / "log.jsonl").read_bytes()
    odd = "\n".join((*TEXTS, '{"step": "x"}', '{"step": 1e300}', '{"step": []}')).encode()
    assert not case.tampered("log.jsonl", data + odd, must_equal=False)
    assert not case.tampered("log.jsonl", b"\xff\xfe\n" + data, must_equal=False)


# --- what is not a file, or that of another ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["run", "exported"])
def test_links_pipes_devices_and_folders(cases, name, tmp_path):
    case = cases[name]
    kinds = {
        "pipe": os.mkfifo, "folder": os.mkdir, "dangling": lambda path: path.symlink_to("nothing"),
        "loop": lambda path: path.symlink_to(path.name), "device": lambda path: path.symlink_to("/dev/zero"),
        "terminal": lambda path: path.symlink_to("/dev/tty"), "secret": lambda path: path.symlink_to("/etc/passwd"),
    }  # fmt: skip
    for file in [*files(case), *(["log.jsonl", ".lock", "tensorboard"] if name == "run" else [])]:
        for kind, make in kinds.items():
            if file == "best.safetensors" or (file, kind) == ("tensorboard", "folder"):
                continue
            case.restore(file)
            path = case.place / file
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
            make(path)
            refusal = case.outcome(file not in LOADED)
            case.restore(file)
            assert refusal, (file, kind)
    kept = tmp_path / "kept"
    for file in files(case):  # a link to the very same content is that content; to go on, links are refused
        shutil.copy(case.source / file, kept)
        (case.place / file).unlink()
        (case.place / file).symlink_to(kept)
        assert bool(case.outcome(resume=file not in LOADED)) == (file not in LOADED)
        assert kept.read_bytes() == (case.source / file).read_bytes()
        case.restore(file)


def test_swapped_files(cases, folders):
    case = cases["run"]
    for file in TENSORS[:2]:
        for other in (*(folders / "run" / f"{one}.safetensors" for one in TENSORS if one != file),
                      folders / "other" / f"{file}.safetensors", folders / "exported" / "model.safetensors",
                      folders / "old" / "model.safetensors"):  # fmt: skip
            assert case.tampered(f"{file}.safetensors", other.read_bytes())
    assert "use files of one run" in case.tampered("config.json", (folders / "other" / "config.json").read_bytes())
    card = (folders / "old" / "card.json").read_bytes()
    assert "as its card says" in cases["exported"].tampered("card.json", card)


def test_a_format_cannot_be_talked_down(cases):
    """What a later format seals is not read as an earlier one, which sealed less."""
    case = cases["run"]
    config = json.loads((case.source / "config.json").read_text())
    for version in (1, 2, 4):
        assert case.tampered("config.json", json.dumps({**config, "format": version}).encode())
    data = (case.source / "model.safetensors").read_bytes()
    for version in (b"1", b"2", b"4"):
        assert case.tampered("model.safetensors", data.replace(b'"format":"3"', b'"format":"' + version + b'"'))


# --- what has a digest of its own: typed, bounded, complete -----------------------------------------------------------


@pytest.mark.parametrize(("name", "file"), [("run", "config.json"), ("exported", "card.json"), ("old", "config.json"),
                                            ("old", "card.json")])  # fmt: skip
def test_every_key_removed_and_every_value_replaced(cases, name, file):
    case = cases[name]
    config, chance = json.loads((case.source / file).read_text()), random.Random(2)
    for path in paths(config):
        for value in (..., *chance.sample(VALUES, 3)):
            changed = copy.deepcopy(config)
            put(changed, path, value)
            case.tampered(file, sealed(case, file, changed), must_equal=False)
        if len(path) == 1 and path[0] not in ("digest", "format"):
            put(changed := copy.deepcopy(config), path, ...)
            assert case.tampered(file, sealed(case, file, changed)), path
    assert "unknown key 'extra'" in case.tampered(file, sealed(case, file, {**config, "extra": 1}))


HUGE = {
    "hidden_size": (10**9, 8192, "64"), "num_layers": (10**9, 129), "horizon": (10**9, 5000), "bins": (10**9,),
    "encoder_iterations": (10**9,), "context_length": (10**9,), "iterations": (10**9,), "num_heads": (10**9,),
}  # fmt: skip


def test_huge_sizes_are_refused_before_anything_is_allocated(cases):
    case = cases["run"]
    config = json.loads((case.source / "config.json").read_text())
    for name, values in HUGE.items():
        (path,) = (path for path in paths(config["planner"]) if path[-1] == name)
        for value in values:
            put(changed := copy.deepcopy(config), ("planner", *path), value)
            assert case.tampered("config.json", sealed(case, "config.json", changed)), (name, value)
    field = next(iter(config["spec"]["fields"]))
    for value in ([10**6, 10**6], [10**9], [2**24], [2**24 + 1], ["9"], [1.5], [True]):
        put(changed := copy.deepcopy(config), ("spec", "fields", field, "shape"), value)
        assert case.tampered("config.json", sealed(case, "config.json", changed)), value
    for name, value in {"batch_size": 10**9, "threads": 10**9, "seed": -1, "precision": "x", "steps": 10**12}.items():
        put(changed := copy.deepcopy(config), ("training", name), value)
        (case.place / "config.json").write_bytes(sealed(case, "config.json", changed))
        assert case.outcome(resume=True), name
        case.restore("config.json")


def written(case, file, tensors, metadata, **header):
    """A tensor file with a digest of its own."""
    text, place = json.dumps(metadata, sort_keys=True), case.place.parent / file
    seal = checkpoint._seal("3", text, checkpoint.digest(tensors))
    save_file(tensors, place, {"format": "3", "metadata": text, "digest": seal, **header})
    return place.read_bytes()


def test_tensors_and_metadata_with_a_digest_of_their_own(cases):
    case = cases["run"]
    for kind in ("model", "last", "codec"):
        file = f"{kind}.safetensors"
        tensors, found = load_file(case.source / file), checkpoint.load_tensors(case.source / file)[1]
        metadata = {name: value for name, value in found.items() if name != "weights"}
        assert not case.tampered(file, written(case, file, tensors, metadata))
        for name, value in ((name, value) for name in metadata for value in (..., *VALUES)):
            put(changed := dict(metadata), (name,), value)
            case.tampered(file, written(case, file, tensors, changed), must_equal=False)
            if value is ... or (value in (-1, "", "x", 1e308) and name in ("step", "kind", "run")):
                assert case.tampered(file, written(case, file, tensors, changed)), (name, value)
        assert case.tampered(file, written(case, file, tensors, {**metadata, "extra": 1}))
        assert case.tampered(file, written(case, file, tensors, metadata, extra="1"))
        name, one = max(tensors.items(), key=lambda item: item[1].numel())
        odd = [one * np.nan, one.long(), one.to(torch.complex64), one[..., None], one[:0], one.flatten()[:1] + 0]
        changes = [{**tensors, name: other} for other in odd] + [{**tensors, "extra": one.clone()}]
        if kind != "codec":  # whose statistics are those of `last`
            changes.append({other: tensor for other, tensor in tensors.items() if other != name})
            assert "is not finite" in case.tampered(file, written(case, file, changes[0], metadata))
            assert f"lacks 1 tensors, such as {name}" in case.tampered(file, written(case, file, changes[-1], metadata))
        for number, change in enumerate(changes):
            assert case.tampered(file, written(case, file, change, metadata)) or (kind, number) == ("codec", 0)


# --- and what nobody thought of ---------------------------------------------------------------------------------------

FUZZ = settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.sampled_from(VALUES),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4), max_leaves=8,
)  # fmt: skip


@FUZZ
@given(st.data())
def test_any_bytes_anywhere(cases, data):
    case = cases[data.draw(st.sampled_from(["run", "exported"]))]
    file = data.draw(st.sampled_from([name for name in files(case) if name != "best.safetensors"]))
    content = (case.source / file).read_bytes()
    start = data.draw(
        st.integers(0, min(len(content), header_size(content) + 200) if file.endswith("s") else len(content))
    )
    end = data.draw(st.integers(start, min(len(content), start + 50)))
    case.tampered(file, content[:start] + data.draw(st.binary(max_size=50)) + content[end:])


@FUZZ
@given(st.data())
def test_any_value_anywhere(cases, data):
    case = cases[data.draw(st.sampled_from(["run", "exported", "old"]))]
    file = data.draw(st.sampled_from(["config.json", "card.json"] if case.source.name != "run" else ["config.json"]))
    config = json.loads((case.source / file).read_text())
    for _ in range(data.draw(st.integers(1, 3))):
        try:
            put(config, data.draw(st.sampled_from(list(paths(config)))), copy.deepcopy(data.draw(PLAIN)))
        except (KeyError, IndexError, TypeError):
            continue
    case.tampered(file, sealed(case, file, config), must_equal=False)
    if case.source.name == "run":
        (case.place / file).write_bytes(sealed(case, file, config))
        case.outcome(resume=True, must_equal=False)
        case.restore(file)
        case.restore("log.jsonl")
